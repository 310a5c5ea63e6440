"""The note of a process: what it does now and until when, in memory that it shares with its parent.

The parent reads it when the process has ended, or is late. So a process that dies in native code
leaves the case, the action and the operation behind.

A note says: the place (bytes whose meaning the job knows, such as the number of a case), which of
two compared caches is called, the action, the number and name of the operation, and the time that
the process may take for what it does now, with a number that each such time has for itself.
"""

from __future__ import annotations

import os
import struct
from mmap import mmap
from zlib import crc32

from attrs import frozen

from kvcanon.conformance.errors import CaseTooSlow
from kvcanon.conformance.workers.allowance import WAITING_TIMES, Allowance, OwnTime

SIZE = 1 << 16
"""Bytes of a note; a place that is longer is cut."""

RENEWALS = 10
"""How many times its limit all imports of an action may take together."""

_LIMIT = struct.Struct("=Qddddd")
_CHECK = struct.Struct("=I")
"""The checksum of the limit before it: a look may come in the middle of a write."""
_NO_LIMIT = (0.0,) * 5
_STEP = struct.Struct("=BII")
_NAME = struct.Struct("=I40s")
_LENGTH = struct.Struct("=I")
_STEP_AT = _LIMIT.size + _CHECK.size
_NUMBER_AT = _STEP_AT + _STEP.size
_LENGTH_AT = _NUMBER_AT + _NAME.size
_PLACE_AT = _LENGTH_AT + _LENGTH.size

MAKING = "make"
"""The operation in which a cache is made."""


@frozen
class Noted:
    """What a note says."""

    place: bytes = b""
    compared: bool = False
    """Whether the cache to agree with was called, not the cache that is judged."""
    action: int = 0
    operation: int = 0
    """The number of the operation in the case, from 1; 0 if none began."""
    name: str = ""
    """The name of the operation, empty if none began; MAKING while a cache is made."""
    allowed: Allowance | None = None
    """The time that it may take for what it does; None for any."""


class Note:
    """The note of this process. Without a parent that reads it, it is plain memory."""

    def __init__(self, memory: mmap | bytearray | None = None) -> None:
        self.memory = bytearray(SIZE) if memory is None else memory
        self._operations = 0
        self._allowed: Allowance | None = None
        self._number = 0
        self._action = self._own = OwnTime()
        """Since the action began, and since its limit began or began anew."""
        self._case: OwnTime | None = None
        self._most = 0.0
        self._owner = os.getpid()

    def share(self, memory: mmap) -> None:
        """Note in memory that a parent reads, on behalf of this process."""
        self.memory, self._owner = memory, os.getpid()

    def end_copy(self) -> None:
        """End this process if a cache forked it, as it would play all cases again."""
        if self.shared and os.getpid() != self._owner:
            os._exit(0)

    @property
    def shared(self) -> bool:
        """Whether a parent reads it, and so ends this process if it is late."""
        return isinstance(self.memory, mmap)

    def place(self, where: bytes) -> None:
        """Begin at a place; nothing is known of its actions yet."""
        self.step(0, 0)
        _LENGTH.pack_into(self.memory, _LENGTH_AT, 0)
        self.more(where)

    def more(self, where: bytes) -> None:
        """Add to the place."""
        (length,) = _LENGTH.unpack_from(self.memory, _LENGTH_AT)
        begin = _PLACE_AT + length
        kept = where[: SIZE - begin]
        self.memory[begin : begin + len(kept)] = kept
        _LENGTH.pack_into(self.memory, _LENGTH_AT, length + len(kept))

    def step(self, action: int, operations: int, *, compared: bool = False) -> None:
        """Begin an action of a cache, after this many operations."""
        self._operations = operations
        _STEP.pack_into(self.memory, _STEP_AT, compared, action, operations)
        _NAME.pack_into(self.memory, _NUMBER_AT, operations, b"")

    def operation(self, name: str) -> None:
        """Begin an operation. Raises: CaseTooSlow."""
        self._operations += 1
        if self._case is not None:
            most, case = self._most, self._case
            if case.processor > most or case.elapsed > most * WAITING_TIMES:
                raise CaseTooSlow
            self._begin()
        _NAME.pack_into(self.memory, _NUMBER_AT, self._operations, name.encode())

    def large_case(self, most: float | None) -> None:
        """Begin a large case: each operation has its own limit, and all together this many seconds.

        None begins any other case.
        """
        self._case, self._most = (None, 0.0) if most is None else (OwnTime(), most)

    def making(self) -> None:
        """Begin to make a cache."""
        _NAME.pack_into(self.memory, _NUMBER_AT, 0, MAKING.encode())

    def limit(self, allowed: Allowance | None) -> None:
        """Set the time that an action may take, from now; None for no limit."""
        self._allowed = allowed
        self._action = OwnTime()
        self._begin()

    def _begin(self) -> None:
        self._own = OwnTime()
        self._number += 1
        it = self._allowed
        limits = _NO_LIMIT
        if it is not None:
            limits = (it.usual, it.times, it.waiting_times, it.most, it.most_waiting)
        noted = _LIMIT.pack(self._number, *limits)
        self.memory[:_STEP_AT] = noted + _CHECK.pack(crc32(noted))

    @property
    def over(self) -> bool:
        """Whether this thread has used the processor for longer than it may."""
        return self._allowed is not None and self._own.processor >= self._allowed.processor

    def renew(self) -> None:
        """Restart the limit, if there is one, but not without end."""
        allowed, action = self._allowed, self._action
        if (
            allowed is not None
            and action.processor < allowed.processor * RENEWALS
            and action.elapsed < allowed.waiting * RENEWALS
        ):
            self._begin()


def read_note(memory: mmap) -> Noted:
    """Read the note of another process."""
    compared, action, _ = _STEP.unpack_from(memory, _STEP_AT)
    operation, name = _NAME.unpack_from(memory, _NUMBER_AT)
    (length,) = _LENGTH.unpack_from(memory, _LENGTH_AT)
    place = bytes(memory[_PLACE_AT : _PLACE_AT + length])
    words = name.rstrip(b"\0").decode(errors="replace")
    return Noted(place, bool(compared), action, operation, words, limit_in(memory)[1])


def limit_in(memory: mmap) -> tuple[int, Allowance | None]:
    """The number of the limit of another process, and the limit; None if it has none now.

    While the other process writes it, it has none.
    """
    written = memory[:_STEP_AT]
    noted = written[: _LIMIT.size]
    number, *limits = _LIMIT.unpack(noted)
    whole = _CHECK.unpack_from(written, _LIMIT.size) == (crc32(noted),)
    return number, Allowance(*limits) if whole and any(limits) else None


NOTE = Note()
"""The note of this process."""
