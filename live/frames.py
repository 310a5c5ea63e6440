"""Frames: the batches of publishers as they arrive, from a socket or from a recording."""

from __future__ import annotations

from typing import TypeAlias

from attrs import frozen

from kvcanon.live.sequence import Placed


@frozen
class Source:
    """A publisher: where it sends, and where it replays."""

    endpoint: str
    replay_endpoint: str | None = None


@frozen
class Frame:
    """A batch as it arrived."""

    source: int
    topic: bytes
    sequence: int
    payload: bytes
    received: float
    """Seconds since 1970."""
    replayed: bool = False
    anew: bool = False
    """Whether it is known to be of another publisher than the frame before it."""
    placed: Placed | None = None
    """Where it stands in its stream; None where who follows the stream has to find out, as of a
    recording."""


@frozen
class BrokenFrame:
    """Parts that are no frame."""

    source: int
    problem: str
    received: float


Arrived: TypeAlias = Frame | BrokenFrame
