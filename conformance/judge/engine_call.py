"""A call of an engine as a judge makes it: with the engine's own arguments, and once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import isawaitable
from time import perf_counter
from types import TracebackType
from typing import Any, TypeAlias

from attrs import define

from kvcanon.conformance.errors import UsageError

Clock: TypeAlias = Callable[[], float]


@define(eq=False)
class EngineCall:
    """One call of a cache's method, and what came of it."""

    name: str
    method: Callable[..., Any]
    args: tuple[object, ...]
    kwargs: Mapping[str, object]
    clock: Clock = perf_counter
    made: bool = False
    seconds: float = 0.0
    raised: BaseException | None = None
    _answer: object = None
    _context: BaseException | None = None
    _traceback: TracebackType | None = None

    def make(self, *_: object, **__: object) -> object:
        """Make the call, or say again what came of it.

        A judge calls by the protocol. What it passes is left out: an engine's own cache may take
        other arguments, and an iterator among them can be read only once.

        Raises: whatever the cache does; UsageError: the call has not ended when it returns.
        """
        if not self.made:
            self._make()
        if self.raised is not None:
            raise self.raised
        if isawaitable(self._answer):
            raise UsageError(
                f"{self.name} answered an awaitable; guard the cache that it calls, whose calls "
                "end when they return"
            )
        return self._answer

    def _make(self) -> None:
        self.made, begin = True, self.clock()
        try:
            self._answer = self.method(*self.args, **self.kwargs)
        except BaseException as error:  # noqa: BLE001  # It is raised again for whoever called.
            self.raised = error
            self._context, self._traceback = error.__context__, error.__traceback__
        finally:
            self.seconds = self.clock() - begin

    def deliver(self) -> object:
        """Return or raise what the cache did, as if nobody had judged it; call it if nobody did."""
        if not self.made:
            return self.method(*self.args, **self.kwargs)
        error = self.raised
        if error is None:
            return self._answer
        try:
            raise error.with_traceback(self._traceback)
        finally:
            # To raise it again made the error that the engine handles its context.
            error.__context__ = self._context
            # Else it would hold this frame, and this frame it.
            del error
            self.raised = self._context = self._traceback = None


@define(eq=False)
class HeardCache:
    """A cache that a judge calls: the operation that is judged is the engine's own call."""

    cache: Any
    call: EngineCall | None = None
    """The call that is judged now."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # Whatever the cache has there.
        if self.call is not None and name == self.call.name:
            return self.call.make
        return getattr(self.cache, name)
