"""Follows publishers: gives each batch once and in order, with what replays can still give.

A gap in the numbers is filled from the publisher's replay socket before the batch after it is
given. A publisher that was started anew is told from one that repeats a batch, also where its
numbers happen to go on. What cannot be had is left out, so that whoever reads sees the gap.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Self
from zlib import crc32

import zmq
from attrs import define, evolve, field
from zmq.utils.monitor import recv_monitor_message

from kvcanon.live.endpoints import BadEndpoint, check_endpoint, connect
from kvcanon.live.frames import (
    END,
    SEQUENCE_BYTES,
    Arrived,
    BatchPlace,
    BrokenFrame,
    Frame,
    SequenceTracker,
    Source,
)

REPLAY_SILENCE_MS = 2000
"""How long a replay may be silent before it is given up."""

WAITING_FRAMES = 100_000
"""Of a publisher, before ZeroMQ drops more."""

FRAMES_AT_ONCE = 1000

MOST_TOPIC_BYTES = 0xFFFF
"""A recording has room for so many."""
MOST_SOURCES = 256
"""A recording numbers so many, and ZeroMQ has sockets for them."""

_ANY_NUMBER = 1 << 63


@define
class _Publisher:
    """One publisher, as its subscriber sees it."""

    source: Source
    socket: zmq.Socket[bytes]
    monitor: zmq.Socket[bytes]
    tracker: SequenceTracker = field(factory=SequenceTracker)
    filled: range = range(0)
    """Batches that a replay gave; they are left out where they arrive after it."""
    was_cut: bool = False
    doubtful: bool = False
    """Whether the connection was made anew, perhaps to another publisher."""


class Subscriber:
    """A SUB socket for each publisher. Raises: BadEndpoint."""

    def __init__(self, sources: Sequence[Source | str], *, topic: str = "") -> None:
        given = [Source(each) if isinstance(each, str) else each for each in sources]
        for source in given:
            check_endpoint(source.endpoint)
            if source.replay_endpoint is not None:
                check_endpoint(source.replay_endpoint)
        if len(given) > MOST_SOURCES:
            raise BadEndpoint(
                f"{len(given)} publishers are too many; follow {MOST_SOURCES} at most"
            )
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._poller = zmq.Poller()
        self._closed = False
        try:
            self._publishers = [self._connect(source, topic) for source in given]
        except zmq.ZMQError as error:
            self.close()
            raise BadEndpoint(f"{len(given)} publishers take too much: {error.strerror}") from error
        except BadEndpoint:
            self.close()
            raise

    @property
    def sources(self) -> list[Source]:
        """The publishers, by the numbers that frames have."""
        return [each.source for each in self._publishers]

    def receive(self, timeout_s: float) -> Iterator[Arrived]:
        """Give what waits; wait for the first at most `timeout_s`.

        No more than `FRAMES_AT_ONCE` of each publisher, so that one that never pauses holds up
        neither the others nor the caller.
        """
        ready = dict(self._poller.poll(max(0, int(timeout_s * 1000))))
        for number, publisher in enumerate(self._publishers):
            if publisher.monitor in ready:
                self._note_connection(publisher)
            if publisher.socket in ready:
                yield from self._drain(number, publisher)

    def close(self) -> None:
        """Close the sockets; what waits in them is dropped."""
        if not self._closed:
            self._closed = True
            self._context.destroy(linger=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_raised: object) -> None:
        self.close()

    def _connect(self, source: Source, topic: str) -> _Publisher:
        if source.replay_endpoint is not None:
            # It is asked when a batch is missed: too late to say that nobody can be there.
            with self._context.socket(zmq.DEALER) as tried:
                connect(tried, source.replay_endpoint)
        socket = self._context.socket(zmq.SUB)
        # Frames wait here while a gap is filled; those beyond are dropped, and are a gap to fill.
        socket.set_hwm(WAITING_FRAMES)
        socket.setsockopt(zmq.RECONNECT_IVL, 50)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, 1000)
        socket.setsockopt_string(zmq.SUBSCRIBE, topic)
        monitor = socket.get_monitor_socket(zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_SUCCEEDED)
        connect(socket, source.endpoint)
        self._poller.register(socket, zmq.POLLIN)
        self._poller.register(monitor, zmq.POLLIN)
        return _Publisher(source, socket, monitor)

    def _note_connection(self, publisher: _Publisher) -> None:
        while int(publisher.monitor.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
            event = recv_monitor_message(publisher.monitor)["event"]
            if event == zmq.EVENT_DISCONNECTED:
                publisher.was_cut = True
            elif publisher.was_cut:
                publisher.was_cut, publisher.doubtful = False, True

    def _drain(self, number: int, publisher: _Publisher) -> Iterator[Arrived]:
        for _ in range(FRAMES_AT_ONCE):
            try:
                parts = publisher.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            now = time.time()
            problem = _problem_of(parts)
            if problem is not None:
                yield BrokenFrame(number, problem, now)
                continue
            topic, sequence, payload = parts
            frame = Frame(number, topic, int.from_bytes(sequence, "big"), payload, now)
            yield from self._in_order(publisher, frame)

    def _in_order(self, publisher: _Publisher, frame: Frame) -> Iterator[Frame]:
        """The frame, after what is missing before it, each with its place."""
        tracker = publisher.tracker
        self._note_connection(publisher)
        anew = publisher.doubtful and not self._goes_on(publisher)
        publisher.doubtful = False
        if anew:
            tracker.forget()
        checksum = crc32(frame.payload)
        looked = tracker.look(frame.sequence, checksum)
        if looked.place is BatchPlace.REPEATED and frame.sequence in publisher.filled:
            return
        if looked.place is BatchPlace.AFTER_GAP:
            first = looked.missing.start
            goes_on = tracker.expected is not None and not looked.restarted
            # The last batch that was seen comes again, so that another publisher shows itself.
            missed = self._ask(publisher, first - 1 if goes_on else first, frame.sequence) or []
            if goes_on and missed and not tracker.is_same_run(*missed[0]):
                anew, first = True, 0
                missed = self._ask(publisher, first, frame.sequence) or []
                tracker.forget()
            publisher.filled = range(first, frame.sequence)
            for sequence, payload in missed:
                if sequence >= first:
                    placed = tracker.place(sequence, crc32(payload))
                    filled = evolve(frame, sequence=sequence, payload=payload, replayed=True)
                    yield evolve(filled, anew=anew, placed=placed)
                    anew = False
        yield evolve(frame, anew=anew, placed=tracker.place(frame.sequence, checksum))

    def _goes_on(self, publisher: _Publisher) -> bool:
        """Whether the publisher is the one that was connected before, as far as a replay shows."""
        last = (publisher.tracker.expected or 0) - 1
        answer = None if last < 0 else self._ask(publisher, last, _ANY_NUMBER, most=1)
        # A publisher that has not come so far has begun anew.
        return answer is None or (bool(answer) and publisher.tracker.is_same_run(*answer[0]))

    def _ask(
        self, publisher: _Publisher, first: int, end: int, most: int | None = None
    ) -> list[tuple[int, bytes]] | None:
        """Batches from `first` on and before `end` that the publisher has; None: no answer."""
        endpoint = publisher.source.replay_endpoint
        if endpoint is None:
            return None
        socket = self._context.socket(zmq.DEALER)
        socket.set_hwm(0)
        found: list[tuple[int, bytes]] = []
        answered = False
        try:
            connect(socket, endpoint)
            socket.send_multipart((b"", first.to_bytes(SEQUENCE_BYTES, "big")))
            while (most is None or len(found) < most) and socket.poll(REPLAY_SILENCE_MS):
                # Old publishers leave the topic out.
                parts = socket.recv_multipart()
                answered = True
                if len(parts) < 3 or parts[-2] == END:
                    break
                sequence = int.from_bytes(parts[-2], "big")
                if first <= sequence < end:
                    found.append((sequence, parts[-1]))
        finally:
            socket.close(linger=0)
        return found if answered else None


def _problem_of(parts: Sequence[bytes]) -> str | None:
    """What keeps parts from being a frame, if anything does."""
    if len(parts) != 3:
        return f"has {len(parts)} parts, not a topic, a number and a batch"
    if len(parts[0]) > MOST_TOPIC_BYTES:
        return f"has a topic of {len(parts[0])} bytes, more than {MOST_TOPIC_BYTES}"
    if len(parts[1]) != SEQUENCE_BYTES:
        return f"has a number of {len(parts[1])} bytes, not {SEQUENCE_BYTES}"
    return None
