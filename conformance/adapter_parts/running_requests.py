"""Running requests of a block manager: the judge's request ids, and the engine's request objects.

The scheduler knows which requests run; here the adapter does. It refuses a request that does not
run, and forgets one whose admission is refused. It never frees a block itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from attrs import Factory, define

from kvcanon.conformance.protocol.request import RequestId
from kvcanon.spec.errors import BadArgument, CacheBusy, OutOfSlots

Handle = TypeVar("Handle")


@define(eq=False)
class RunningRequests(Generic[Handle]):
    """The requests that run, by id, each with the engine's object."""

    _running: dict[RequestId, Handle] = Factory(dict)

    def start(self, request_id: RequestId, handle: Handle) -> Handle:
        """Add a request. Raises: BadArgument: it runs already."""
        if request_id in self._running:
            raise BadArgument("request_id", f"is {request_id}, which runs already")
        self._running[request_id] = handle
        return handle

    def get(self, request_id: RequestId) -> Handle:
        """The engine's object of a request. Raises: BadArgument: no such request."""
        if request_id not in self._running:
            raise BadArgument("request_id", f"is {request_id}, which does not run")
        return self._running[request_id]

    def end(self, request_id: RequestId) -> Handle:
        """Remove a request; returns the engine's object. Raises: BadArgument: no such request."""
        handle = self.get(request_id)
        del self._running[request_id]
        return handle

    @contextmanager
    def admission(
        self, request_id: RequestId, handle: Handle, undo: Callable[[Handle], object]
    ) -> Iterator[Handle]:
        """Admit a request, or undo it where the engine runs out of slots halfway.

        `undo` is the engine's own call that ends a request, as its scheduler would make it. A block
        that this call does not free stays lost, and is found.

        Raises: BadArgument: it runs already. OutOfSlots: as the body raised it, after `undo`.
        """
        self.start(request_id, handle)
        try:
            yield handle
        except OutOfSlots:
            undo(self.end(request_id))
            raise

    def check_none(self) -> None:
        """Check that no request runs, as before a reset. Raises: CacheBusy."""
        if self._running:
            raise CacheBusy(len(self._running))
