"""The slab: one large file of blocks, read and written past the page cache where that can be done.

A page lies in a *slot*: its bytes, padding, and its record in the last 128 bytes of the slot's last
block. So a page of whole blocks is written from the memory where it is, with one more block.
"""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Sequence
from pathlib import Path

from attrs import define

from kvcanon.disk.records import RECORD_BYTES

BLOCK_BYTES = 4096
"""What offsets and lengths are multiples of; the blocks of no disk are larger."""
_ALIGNMENTS = (64, 512)
"""Alignments of memory that are tried: torch aligns to 64 bytes, many drivers want 512."""


def slot_blocks(length: int) -> int:
    """How many blocks the slot of a page of `length` bytes has."""
    return -(-(length + RECORD_BYTES) // BLOCK_BYTES)


@define(eq=False)
class Slab:
    """An open slab."""

    path: Path
    file: int
    direct: bool
    """Whether the page cache is bypassed: memory and lengths then have to be aligned."""
    memory_bytes: int
    """What addresses of memory must be multiples of."""

    @property
    def blocks(self) -> int:
        """How many blocks it has."""
        return os.fstat(self.file).st_size // BLOCK_BYTES

    def grow(self, blocks: int) -> None:
        """Take room for so many blocks in all. Raises: OSError."""
        os.posix_fallocate(self.file, 0, blocks * BLOCK_BYTES)

    def shrink(self, blocks: int) -> None:
        """Give back all behind so many blocks. Raises: OSError."""
        os.ftruncate(self.file, blocks * BLOCK_BYTES)

    def write(self, block: int, pieces: Sequence[memoryview]) -> None:
        """Write pieces of memory, one after another, from a block on. Raises: OSError."""
        wanted = sum(map(len, pieces))
        if os.pwritev(self.file, pieces, block * BLOCK_BYTES) != wanted:
            raise OSError(errno.ENOSPC, f"{self.path} did not take {wanted} bytes")

    def read(self, block: int, pieces: Sequence[memoryview]) -> None:
        """Read into pieces of memory from a block on. Raises: OSError."""
        wanted = sum(map(len, pieces))
        if os.preadv(self.file, pieces, block * BLOCK_BYTES) != wanted:
            raise OSError(errno.EIO, f"{self.path} did not give {wanted} bytes")

    def force(self) -> None:
        """Force all that was written to the disk. Raises: OSError."""
        os.fdatasync(self.file)

    def close(self) -> None:
        """Close the file."""
        os.close(self.file)


def opened_slab(path: Path) -> Slab:
    """Open a slab, or make an empty one. Raises: OSError."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    try:
        file = os.open(path, flags | os.O_DIRECT, 0o644)
    except OSError as error:
        if error.errno != errno.EINVAL:  # What a file system without it answers.
            raise
        return Slab(path, os.open(path, flags, 0o644), direct=False, memory_bytes=1)
    return Slab(path, file, direct=True, memory_bytes=_memory_alignment(file))


def _memory_alignment(file: int) -> int:
    """The least alignment of memory that reads of a file accept. An empty one gets a block."""
    with mmap.mmap(-1, 2 * BLOCK_BYTES) as memory, memoryview(memory) as view:
        if os.fstat(file).st_size < BLOCK_BYTES:
            try:
                # Only what was written is really read.
                with view[:BLOCK_BYTES] as block:
                    os.pwritev(file, [block], 0)
            except OSError:
                return BLOCK_BYTES
        for alignment in _ALIGNMENTS:
            with view[alignment : alignment + BLOCK_BYTES] as piece:
                try:
                    os.preadv(file, [piece], 0)
                except OSError:
                    continue
                return alignment
    return BLOCK_BYTES
