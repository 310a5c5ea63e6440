"""Replays: what a publisher still has of its batches, read beside its live stream.

A replay is given up when it is silent, takes too long, or is too large: a publisher whose replay
never ends, or is dead, must hold up neither the others nor itself.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import zmq
from attrs import define, field

from kvcanon.live.endpoints import connect
from kvcanon.live.frames import END, MOST_FRAME_BYTES, SEQUENCE_BYTES

REPLAY_SILENCE_S = 2.0
"""How long a replay may be silent before it is given up."""
REPLAY_S = 20.0
MOST_REPLAYED = 100_000
MOST_REPLAY_BYTES = 1 << 30
"""How long one may take, and how much it may give."""
FEWEST_PARTS = 3
BATCHES_AT_ONCE = 200
"""That are read of one replay before others have their turn."""
FIRST_PAUSE_S, MOST_PAUSE_S = 1.0, 60.0
"""After a replay without an answer none is asked for so long; twice as long each time."""


@define
class ReplayRequest:
    """A request for the batches from a number on, and its progress."""

    socket: zmq.Socket[bytes]
    began: float = field(factory=time.monotonic)
    heard: float = field(factory=time.monotonic)
    """When the last part of it came."""
    batches: int = 0
    total_bytes: int = 0
    ended: bool = False
    """Whether the publisher said that this was all."""

    def read(self) -> Iterator[tuple[int, bytes]]:
        """The batches that have come, some at a time."""
        for _ in range(BATCHES_AT_ONCE):
            try:
                parts = self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            self.heard = time.monotonic()
            # Old publishers leave the topic out.
            if len(parts) < FEWEST_PARTS or parts[-2] == END:
                self.ended = True
                return
            self.batches += 1
            self.total_bytes += len(parts[-1])
            yield int.from_bytes(parts[-2], "big"), parts[-1]

    @property
    def answered(self) -> bool:
        """Whether anything came."""
        return self.ended or self.batches > 0

    def is_hopeless(self, now: float) -> bool:
        """Whether it is to be given up."""
        return (
            now - self.heard > REPLAY_SILENCE_S
            or now - self.began > REPLAY_S
            or self.batches > MOST_REPLAYED
            or self.total_bytes > MOST_REPLAY_BYTES
        )

    def close(self) -> None:
        """Stop receiving it."""
        self.socket.close(linger=0)


def ask_replay(context: zmq.Context[zmq.Socket[bytes]], endpoint: str, first: int) -> ReplayRequest:
    """Ask a publisher for its batches from a number on. Raises: BadEndpoint."""
    socket = context.socket(zmq.DEALER)
    # Few wait here: the publisher waits, and who reads decides how fast.
    socket.set_hwm(BATCHES_AT_ONCE)
    socket.setsockopt(zmq.MAXMSGSIZE, MOST_FRAME_BYTES)
    try:
        connect(socket, endpoint)
    except OSError:
        socket.close(linger=0)
        raise
    socket.send_multipart((b"", first.to_bytes(SEQUENCE_BYTES, "big")))
    return ReplayRequest(socket)


@define
class ReplayPauses:
    """When a publisher that did not answer a replay may be asked again."""

    _until: float = 0.0
    _pause_s: float = FIRST_PAUSE_S

    def is_over(self, now: float) -> bool:
        """Whether it may be asked now."""
        return now >= self._until

    def note(self, *, answered: bool) -> None:
        """Note whether the last replay was answered."""
        if answered:
            self._until, self._pause_s = 0.0, FIRST_PAUSE_S
        else:
            self._until = time.monotonic() + self._pause_s
            self._pause_s = min(2 * self._pause_s, MOST_PAUSE_S)
