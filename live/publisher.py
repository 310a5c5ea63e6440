"""Publishes the events of a cache, as SGLang and vLLM publish theirs.

A scheduler calls `publish` with the events of a step and goes on: they are encoded and sent by a
thread of the publisher. Batches are numbered in the order of the calls. Subscribers that missed
some ask the replay socket for them.

No event is lost in silence. The queue is bounded in pages. When it is full, `publish` waits for
room ("block"), or drops the batch and leaves its number out ("drop"), so that every subscriber sees
the gap. A slow subscriber, from whose socket ZeroMQ drops frames, sees the gap, too, and gets them
by replay. `close` sends all that was published.

A request for a replay is a number: the first batch that is wanted. The answer is each batch that is
kept from there on, in the frames of the live stream, and then an end with the number -1. What is no
longer kept is left out.
"""

from __future__ import annotations

import atexit
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from enum import StrEnum
from queue import SimpleQueue
from threading import Condition, Lock, Thread
from threading import Event as Flag
from typing import Protocol, Self, TypeAlias, TypeGuard, cast

import zmq
from attrs import define, evolve

from kvcanon.live.dialects import DIALECTS, Dialect
from kvcanon.live.encode import encode_batch
from kvcanon.live.endpoints import bind, binds, connect, endpoint_of_rank
from kvcanon.live.frames import END, SEQUENCE_BYTES
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.events import Event

logger = logging.getLogger(__name__)

LOOKS_EVERY_MS = 50
"""How often a replay socket looks whether it is to close."""


class Packed(Protocol):
    """Events that encode themselves: `PrefixCache.take_packed_events`."""

    @property
    def pages(self) -> int:
        """Pages that were stored or removed."""

    def __len__(self) -> int: ...

    def encode(self, dialect: int, timestamp: float, rank: int) -> bytes:
        """The batch as MessagePack."""


Events: TypeAlias = Sequence[Event] | Packed


class WhenFull(StrEnum):
    """What `publish` does when the queue has no room."""

    BLOCK = "block"
    """It waits."""
    DROP = "drop"
    """It drops the batch, and leaves its number out."""


@define
class PublisherCounts:
    """What a publisher did so far."""

    published: int = 0
    """Batches that were accepted."""
    sent: int = 0
    dropped: int = 0
    """Batches that were dropped because the queue was full; each is a gap."""
    failed: int = 0
    """Batches that could not be encoded; each is a gap, and in the log."""
    waiting_pages: int = 0


class ReplayServer:
    """A ROUTER socket with a thread of its own. Raises: BadEndpoint."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        endpoint: str,
        topic: bytes,
        since: Callable[[int], list[tuple[int, bytes]]],
    ) -> None:
        self._socket = context.socket(zmq.ROUTER)
        # An answer may be longer than what a slow subscriber takes at once.
        self._socket.set_hwm(0)
        try:
            self.endpoint = bind(self._socket, endpoint)
        except Exception:
            self._socket.close(linger=0)
            raise
        self._topic, self._since = topic, since
        self._over = Flag()
        self._thread = Thread(target=self._work, name="kvcanon-replay", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving."""
        self._over.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._over.is_set():
            if self._socket.poll(LOOKS_EVERY_MS):
                self._serve(self._socket.recv_multipart())
        self._socket.close(linger=0)

    def _serve(self, request: list[bytes]) -> None:
        if len(request) != 3 or len(request[2]) != SEQUENCE_BYTES:
            logger.warning("a replay request with %d frames is not answered", len(request))
            return
        client, empty, first = request
        for number, payload in self._since(int.from_bytes(first, "big")):
            frames = (client, empty, self._topic, number.to_bytes(SEQUENCE_BYTES, "big"), payload)
            self._socket.send_multipart(frames)
        self._socket.send_multipart((client, empty, b"", END, b""))


class Publisher:
    """Sends batches of events on a PUB socket, and replays them from a ROUTER socket.

    `endpoint` and `replay_endpoint` are those of rank 0; the ports of other ranks are higher by
    their rank. A wildcard such as `tcp://*:5557` is bound, a host is connected to, unless `binds`
    says otherwise.

    Raises:
        BadEndpoint: an address that no socket can have.
        BadArgument: a bound below one.
    """

    def __init__(
        self,
        endpoint: str = "tcp://*:5557",
        *,
        replay_endpoint: str | None = None,
        topic: str = "",
        dialect: Dialect | str = Dialect.SGLANG,
        rank: int = 0,
        when_full: WhenFull | str = WhenFull.BLOCK,
        queue_pages: int = 1 << 20,
        replay_batches: int = 10_000,
        high_water_mark: int = 100_000,
        binds_endpoint: bool | None = None,
    ) -> None:
        for name, value in (("queue_pages", queue_pages), ("replay_batches", replay_batches)):
            if value < 1:
                raise BadArgument(name, f"is {value}; give at least 1")
        self._dialect, self._rank = Dialect(dialect), rank
        self._when_full, self._queue_pages = WhenFull(when_full), queue_pages
        self._topic = topic.encode()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.PUB)
        self._socket.set_hwm(high_water_mark)
        try:
            self.endpoint = self._open(endpoint_of_rank(endpoint, rank), binds_endpoint)
            self._kept: deque[tuple[int, bytes]] = deque(maxlen=replay_batches)
            self._kept_lock = Lock()
            self._replay = None
            if replay_endpoint is not None:
                wanted = endpoint_of_rank(replay_endpoint, rank)
                self._replay = ReplayServer(self._context, wanted, self._topic, self._since)
        except Exception:
            self._context.destroy(linger=0)
            raise
        self._queue: SimpleQueue[tuple[int, float, Events] | None] = SimpleQueue()
        self._state = Condition()
        self._next = 0
        self._counts = PublisherCounts()
        self._closed = False
        self._thread = Thread(target=self._work, name="kvcanon-publisher", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    @property
    def replay_endpoint(self) -> str | None:
        """Where replays are served; None where they are not."""
        return None if self._replay is None else self._replay.endpoint

    def counts(self) -> PublisherCounts:
        """What was published so far."""
        with self._state:
            return evolve(self._counts)

    def publish(self, events: Events, timestamp: float | None = None) -> bool:
        """Publish the events of one step as one batch; False where the batch was dropped.

        An empty batch is not sent. Events of `kvcanon.spec` must not change afterwards.

        Raises:
            BadArgument: the publisher is closed.
        """
        if not len(events):
            return True
        pages = _pages_of(events)
        at = time.time() if timestamp is None else timestamp
        with self._state:
            if self._when_full is WhenFull.BLOCK:
                self._state.wait_for(lambda: self._closed or self._has_room(pages))
            if self._closed:
                raise BadArgument("publisher", "is closed; make a new one")
            sequence = self._next
            self._next += 1
            if not self._has_room(pages):
                self._counts.dropped += 1
                return False
            self._counts.published += 1
            self._counts.waiting_pages += pages
            self._queue.put((sequence, at, events))
        return True

    def close(self, linger_s: float = 5.0) -> None:
        """Send all that was published, and close the sockets.

        Waits at most `linger_s` seconds for subscribers to take what was sent. Does nothing the
        second time.
        """
        with self._state:
            if self._closed:
                return
            self._closed = True
            self._state.notify_all()
        self._queue.put(None)
        self._thread.join()
        if self._replay is not None:
            self._replay.close()
        self._socket.close(linger=int(linger_s * 1000))
        self._context.term()
        atexit.unregister(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_raised: object) -> None:
        self.close()

    def _open(self, endpoint: str, binds_endpoint: bool | None) -> str:
        if binds(endpoint) if binds_endpoint is None else binds_endpoint:
            return bind(self._socket, endpoint)
        connect(self._socket, endpoint)
        return endpoint

    def _has_room(self, pages: int) -> bool:
        """Whether a batch fits; one that never would is taken when nothing waits."""
        waiting = self._counts.waiting_pages
        return not waiting or waiting + pages <= self._queue_pages

    def _work(self) -> None:
        """Encode and send what was published, until `close`; the thread's own function."""
        while (item := self._queue.get()) is not None:
            sequence, at, events = item
            try:
                payload = self._encode(events, at)
            except Exception:
                logger.exception("batch %d cannot be encoded; it is left out", sequence)
                payload = None
            if payload is not None:
                with self._kept_lock:
                    self._kept.append((sequence, payload))
                number = sequence.to_bytes(SEQUENCE_BYTES, "big")
                self._socket.send_multipart((self._topic, number, payload))
            with self._state:
                self._counts.waiting_pages -= _pages_of(events)
                self._counts.sent += payload is not None
                self._counts.failed += payload is None
                self._state.notify_all()

    def _encode(self, events: Events, at: float) -> bytes:
        if _is_packed(events):
            return events.encode(DIALECTS.index(self._dialect), at, self._rank)
        listed = cast("Sequence[Event]", events)
        return encode_batch(listed, self._dialect, at, self._rank)

    def _since(self, first: int) -> list[tuple[int, bytes]]:
        """The batches that are kept, from a number on."""
        with self._kept_lock:
            return [item for item in self._kept if item[0] >= first]


def _is_packed(events: Events) -> TypeGuard[Packed]:
    """Whether events encode themselves. `isinstance` with a protocol takes microseconds."""
    return hasattr(events, "encode")


def _pages_of(events: Events) -> int:
    return events.pages if _is_packed(events) else len(events)
