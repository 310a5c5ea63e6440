"""Frames: the batches of publishers as they arrive, and where their numbers place them.

A frame on the wire has three parts: a topic, the number of the batch, and the batch.
"""

from __future__ import annotations

from collections import OrderedDict
from enum import Enum, auto
from typing import TypeAlias
from zlib import crc32

from attrs import frozen

SEQUENCE_BYTES = 8
END = (-1).to_bytes(SEQUENCE_BYTES, "big", signed=True)
"""The number of the frame that ends a replay."""
NEAR = 64
"""Numbers by which a publisher may have gone on while frames of it were lost, to be known again."""
MOST_FRAME_BYTES = 1 << 26
"""A connection that brings a larger part is cut."""
REMEMBERED = 4096
"""Batches whose checksums are kept, to tell a repeated batch from a publisher that began anew."""


class BatchPlace(Enum):
    """Where a batch stands in its stream."""

    FIRST = auto()
    """Batch 0 of a publisher: whatever was known before is void."""
    NEXT = auto()
    AFTER_GAP = auto()
    """Batches before it are missing."""
    REPEATED = auto()
    LATE = auto()
    """It was missing when later ones arrived."""
    OF_ANOTHER = auto()
    """It goes on where another publisher was before this one began: both send here."""


@frozen
class Placed:
    """The place of a batch, and which batches are missing before it."""

    place: BatchPlace
    missing: range = range(0)
    restarted: bool = False
    """Whether a new publisher took the place of the one before."""


@frozen
class Source:
    """A publisher: where it sends, and where it replays."""

    endpoint: str
    replay_endpoint: str | None = None
    rank: int | None = None
    """The rank that its batches must name; None where its address says nothing of a rank."""
    topic: str | None = None
    """What tells it from others at its address; None where it is the only one there."""
    is_bound: bool = False
    """Whether the address is bound here, and publishers connect to it."""

    @property
    def name(self) -> str:
        """Its address, with its topic if others send from that address, too."""
        return self.endpoint if self.topic is None else f"{self.endpoint} {self.topic}"


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


class SequenceTracker:
    """Follows the sequence numbers of one publisher."""

    def __init__(self) -> None:
        self.expected: int | None = None
        self._other: int | None = None
        """Where the publisher was whose place another took; it may go on there."""
        self._seen: OrderedDict[int, int] = OrderedDict()
        self._missing: list[range] = []

    def look(self, sequence: int, checksum: int) -> Placed:
        """Say where a batch stands, by its number and the checksum of its payload."""
        if self.expected is None:
            return _beginning(sequence, restarted=False)
        if sequence == self.expected:
            return Placed(BatchPlace.NEXT)
        if self._is_of_another(sequence, checksum):
            return Placed(BatchPlace.OF_ANOTHER)
        if sequence > self.expected:
            return Placed(BatchPlace.AFTER_GAP, range(self.expected, sequence))
        return self._look_back(sequence, checksum)

    def _look_back(self, sequence: int, checksum: int) -> Placed:
        """The place of a batch whose number has been passed."""
        if self._seen.get(sequence) == checksum:
            return Placed(BatchPlace.REPEATED)
        if sequence and any(sequence in missing for missing in self._missing):
            return Placed(BatchPlace.LATE)
        return _beginning(sequence, restarted=True)

    def place(self, sequence: int, checksum: int) -> Placed:
        """Say where a batch stands, and count it as seen unless it is a repeated or a late one."""
        placed = self.look(sequence, checksum)
        if placed.place in {BatchPlace.REPEATED, BatchPlace.LATE}:
            return placed
        if placed.place is BatchPlace.OF_ANOTHER:
            self._other, self.expected = self.expected, sequence + 1
            return placed
        if placed.restarted:
            before = self.expected
            self.forget()
            self._other = before
        if placed.missing:
            self._missing = [*self._missing, placed.missing][-REMEMBERED:]
        self.expected = sequence + 1
        self._seen[sequence] = checksum
        if len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)
        return placed

    def is_same_run(self, sequence: int, payload: bytes) -> bool:
        """Whether this batch is one that was seen; True where its checksum is not kept."""
        known = self._seen.get(sequence)
        return known is None or known == crc32(payload)

    def _is_of_another(self, sequence: int, checksum: int) -> bool:
        """Whether a batch goes on where the publisher was whose place another took."""
        if self._other is None or self.expected is None or self._seen.get(sequence) == checksum:
            return False
        if sequence < self.expected:
            return sequence == self._other
        return self._other <= sequence < self._other + NEAR

    def forget(self) -> None:
        """Begin anew: another publisher took the place of the one before."""
        self.expected = self._other = None
        self._seen.clear()
        self._missing = []


def _beginning(sequence: int, *, restarted: bool) -> Placed:
    """The place of the first batch that is seen of a publisher."""
    place = BatchPlace.AFTER_GAP if sequence else BatchPlace.FIRST
    return Placed(place, range(sequence), restarted)
