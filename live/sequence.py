"""Sequence numbers: what the number of a batch says about the batches before it."""

from __future__ import annotations

import zlib
from collections import OrderedDict
from enum import Enum, auto

from attrs import frozen

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


@frozen
class Placed:
    """The place of a batch, and which batches are missing before it."""

    place: BatchPlace
    missing_from: int = 0
    missing_to: int = 0
    """The first that is not missing."""
    restarted: bool = False
    """Whether a new publisher took the place of the one before."""


class SequenceTracker:
    """Follows the sequence numbers of one publisher."""

    def __init__(self) -> None:
        self.expected: int | None = None
        self._seen: OrderedDict[int, int] = OrderedDict()
        self._missing: list[range] = []

    def place(self, sequence: int, payload: bytes) -> Placed:
        """Say where a batch stands, and count it as seen unless it is a repeated or a late one."""
        checksum = zlib.crc32(payload)
        if self.expected is None:
            return self._begin(sequence, checksum, restarted=False)
        if sequence >= self.expected:
            missing_from = self.expected
            self._see(sequence, checksum)
            if sequence == missing_from:
                return Placed(BatchPlace.NEXT)
            self._missing = [*self._missing, range(missing_from, sequence)][-REMEMBERED:]
            return Placed(BatchPlace.AFTER_GAP, missing_from, sequence)
        if self._seen.get(sequence) == checksum:
            return Placed(BatchPlace.REPEATED)
        if sequence and any(sequence in missing for missing in self._missing):
            return Placed(BatchPlace.LATE)
        return self._begin(sequence, checksum, restarted=True)

    def is_same_run(self, sequence: int, payload: bytes) -> bool:
        """Whether this batch is one that was seen; True where its checksum is not kept."""
        known = self._seen.get(sequence)
        return known is None or known == zlib.crc32(payload)

    def forget(self) -> None:
        """A new publisher took the place of the one before."""
        self.expected = None
        self._seen.clear()
        self._missing = []

    def _begin(self, sequence: int, checksum: int, *, restarted: bool) -> Placed:
        self.forget()
        self._see(sequence, checksum)
        if sequence == 0:
            return Placed(BatchPlace.FIRST, restarted=restarted)
        self._missing = [range(sequence)]
        return Placed(BatchPlace.AFTER_GAP, 0, sequence, restarted=restarted)

    def _see(self, sequence: int, checksum: int) -> None:
        self.expected = sequence + 1
        self._seen[sequence] = checksum
        if len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)
