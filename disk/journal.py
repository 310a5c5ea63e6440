"""The journal: a file of records, to which groups are appended, and which is sometimes rewritten.

An append may be forced to the disk, and with it all before it. A rewrite makes a new file, forces
it to the disk, and then gives it the name of the old one, so that a crash leaves one of the two,
whole.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

from attrs import define, frozen

from kvcanon.disk.records import (
    RECORD_BYTES,
    DiskRecord,
    RecordKind,
    Records,
    unpacked,
    whole_records,
)

UNFINISHED = ".new"
"""Ends the name of a journal that is being written."""
_CHUNK_BYTES = 8 << 20


@define(eq=False)
class DiskJournal:
    """An open journal."""

    path: Path
    file: int
    """A file descriptor."""
    size_bytes: int

    @property
    def records(self) -> int:
        """How many records it has."""
        return self.size_bytes // RECORD_BYTES

    def append(self, records: Sequence[bytes], *, forced: bool) -> None:
        """Write records behind the last, and perhaps force all to the disk. Raises: OSError."""
        data = b"".join(records)
        try:
            _write(self.file, data, self.size_bytes)
            if forced:
                os.fdatasync(self.file)
        except OSError:
            # What was written of them is written over by the next group; it is cut off, if it can.
            _cut(self.file, self.size_bytes)
            raise
        self.size_bytes += len(data)

    def mark_open(self, header: DiskRecord) -> None:
        """Replace the header, to say that records may follow. Raises: OSError."""
        _write(self.file, header.packed(), 0)
        os.fdatasync(self.file)

    def close(self) -> None:
        """Close the file."""
        os.close(self.file)


def _write(file: int, data: bytes | memoryview, at: int) -> None:
    """Write all of something. Raises: OSError."""
    if os.pwrite(file, data, at) != len(data):
        raise OSError(errno.ENOSPC, f"the journal did not take {len(data)} bytes")


def _cut(file: int, size_bytes: int) -> None:
    try:
        os.ftruncate(file, size_bytes)
    except OSError:
        return


def written_journal(path: Path, header: DiskRecord, records: bytes) -> DiskJournal:
    """Write a journal anew, and open it. Raises: OSError; the old one is then unchanged."""
    new = path.with_name(path.name + UNFINISHED)
    file = os.open(new, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        whole = memoryview(header.packed() + records)
        for at in range(0, len(whole), _CHUNK_BYTES):
            _write(file, whole[at : at + _CHUNK_BYTES], at)
        os.fsync(file)
        new.replace(path)
        force_folder(path.parent)
    except BaseException:
        os.close(file)
        new.unlink(missing_ok=True)
        raise
    return DiskJournal(path, file, len(whole))


@frozen
class JournalRead:
    """What a journal says."""

    header: DiskRecord | None
    """None if it is damaged, or there is none."""
    records: Records
    damaged: int = 0
    """How many of its records are damaged."""
    is_current: bool = False
    """Whether it is the journal that was last written beside its slab."""
    noted_generation: int = 0
    """That of the journal that was last written beside its slab, as its note says."""

    @property
    def is_complete(self) -> bool:
        """Whether it was written by a close, and has been left alone since."""
        header = self.header
        return (
            header is not None
            and self.is_sound
            and header.pool == 1
            and header.length == len(self.records)
        )

    @property
    def is_sound(self) -> bool:
        """Whether it has every record that its header counts, and none is damaged."""
        if self.header is None or self.damaged or not self.is_current:
            return False
        return self.header.length <= len(self.records)


def read_journal(path: Path, current: Path, fingerprint: bytes) -> JournalRead:
    """Read the records of a journal that are whole. Raises: OSError."""
    data = path.read_bytes() if path.exists() else b""
    header = unpacked(data[:RECORD_BYTES])
    records, damaged = whole_records(memoryview(data)[RECORD_BYTES:])
    noted = unpacked(current.read_bytes()) if current.exists() else None
    generation = noted.generation if noted and noted.fingerprint == fingerprint else 0
    if header is None or header.kind is not RecordKind.HEADER or header.fingerprint != fingerprint:
        return JournalRead(None, records, damaged, noted_generation=generation)
    is_current = generation == header.generation
    return JournalRead(header, records, damaged, is_current, generation)


def continued_journal(path: Path) -> DiskJournal:
    """Open a journal as it is, behind its last whole record. Raises: OSError."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    size = os.fstat(file).st_size
    return DiskJournal(path, file, max(RECORD_BYTES, size - size % RECORD_BYTES))


def force_folder(folder: Path) -> None:
    """Force the names in a folder to the disk. Raises: OSError."""
    number = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(number)
    finally:
        os.close(number)
