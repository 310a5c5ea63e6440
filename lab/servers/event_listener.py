"""Listens to the KV events of a server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Protocol, cast

from attrs import frozen

from kvcanon.lab.servers.folded_events import FoldedEvents

QUIET_MS = 60
"""How long nothing must come before all events of an idle server have come."""
LONG_QUIET_MS = 300
"""The same where what was cached is not known: after many requests, or in a namespace."""
LATE_SECONDS = 1.0
"""How long a page is waited for that was cached, before it is taken to have left again.

SGLang publishes in a thread beside its scheduler, which never sleeps: on a loaded machine events
come later than the quiet time.
"""
MOST_BATCHES = 10_000
"""Batches that are read at one time; a server that never gets quiet is left after them."""


class EventSocket(Protocol):
    """The methods of a ZeroMQ socket that are used here."""

    def poll(self, timeout: int) -> int:
        """Wait for a message, for so many milliseconds."""

    def recv_multipart(self) -> list[bytes]:
        """The frames of the next message."""


@frozen
class EventListener:
    """A socket on a server's events, and what they folded to."""

    socket: EventSocket
    folded: FoldedEvents

    def settle(self, cached: Sequence[int] = (), quiet_ms: int = QUIET_MS) -> FoldedEvents:
        """Fold what has come and what still comes, until nothing does and `cached` is there.

        Args:
            cached: Tokens of no namespace that were cached last, if they are known.
            quiet_ms: How long nothing must come.
        """
        return self._fold_until(lambda: self.folded.has_pages(cached), quiet_ms)

    def settle_cleared(self) -> FoldedEvents:
        """Fold what comes after a flush, until nothing does and no page is there."""
        return self._fold_until(lambda: not any(self.folded.resident()), QUIET_MS)

    def _fold_until(self, is_whole: Callable[[], bool], quiet_ms: int) -> FoldedEvents:
        """Fold events until none comes in a quiet time, and what is awaited is there or late."""
        decode = import_module("msgspec.msgpack").decode
        deadline = time.monotonic() + LATE_SECONDS
        for _ in range(MOST_BATCHES):
            if not self.socket.poll(quiet_ms):
                if is_whole() or time.monotonic() >= deadline:
                    break
                continue
            _, number, payload = self.socket.recv_multipart()
            _, events, *_ = decode(payload)
            self.folded.fold(int.from_bytes(number, "big"), events)
        return self.folded


@contextmanager
def listening(port: int, page_size: int) -> Iterator[EventListener]:
    """Listen to the events on a port."""
    zmq = import_module("zmq")
    context = zmq.Context()
    try:
        socket = context.socket(zmq.SUB)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.SUBSCRIBE, b"")
        socket.connect(f"tcp://127.0.0.1:{port}")
        yield EventListener(cast("EventSocket", socket), FoldedEvents(page_size))
    finally:
        context.destroy(linger=0)
