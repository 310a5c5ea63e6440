"""Reads and writes of slots: adjacent ones in one call, several calls at a time.

A page whose memory is aligned is moved without a copy; any other goes through a scratch. A read
proves each page: the record in its slot must be the record of the index, byte by byte, and the
checksum that of the bytes that were read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from typing import TypeAlias, TypeVar

from attrs import frozen

from kvcanon.disk.parts import are_aligned, checksum_of, copy_from, copy_into, total_bytes
from kvcanon.disk.records import RECORD_BYTES, checksum_in
from kvcanon.disk.scratch import Scratch
from kvcanon.disk.slab import BLOCK_BYTES, Slab, slot_blocks

MOST_RUN_BYTES = 8 << 20
"""How much of adjacent slots is moved in one call; a larger page is moved alone."""
LEAST_RUN_BYTES = 2 << 20
"""So much is, too, where there is little for each thread, or pages are copied: a scratch that is
larger than a processor's cache makes a copy slower."""
MOST_PIECES = 512
"""How many pieces of memory one call takes; Linux takes twice as many."""

Value = TypeVar("Value")
Result = TypeVar("Result")


@frozen(eq=False)
class SlotJob:
    """A page that is moved to or from its slot."""

    block: int
    """Where the slot begins."""
    parts: tuple[memoryview, ...]
    """All of the page in memory, and nothing else."""
    record: bytes
    """What the slot ends with; nothing yet for a write whose checksum is to be made."""
    is_moved_whole: bool
    """Whether its parts are moved without a copy."""
    length: int
    """The bytes of the page."""
    blocks: int
    """The blocks of the slot."""

    def ending_with(self, record: bytes) -> SlotJob:
        """The same with what the slot ends with."""
        return SlotJob(
            self.block, self.parts, record, self.is_moved_whole, self.length, self.blocks
        )

    @property
    def own_bytes(self) -> int:
        """What of the slot goes through a scratch: its end, or all of it."""
        return self.blocks * BLOCK_BYTES - (self.length if self.is_moved_whole else 0)


Read: TypeAlias = Callable[[Slab, Scratch, Sequence[SlotJob]], list[bool]]
"""Reads adjacent slots, and says for each whether it is proved: `read_run`."""


def slot_job(slab: Slab, block: int, parts: tuple[memoryview, ...], record: bytes) -> SlotJob:
    """A page that is moved to or from the slot that begins at a block."""
    is_whole = len(parts) < MOST_PIECES and (
        not slab.direct or are_aligned(parts, slab.memory_bytes, BLOCK_BYTES)
    )
    length = total_bytes(parts)
    return SlotJob(block, parts, record, is_whole, length, slot_blocks(length))


def runs_of(jobs: Sequence[SlotJob], threads: int) -> list[list[SlotJob]]:
    """The jobs in groups of adjacent slots, each for one call, with some for each thread."""
    share = sum(job.blocks for job in jobs) * BLOCK_BYTES // threads
    most = min(MOST_RUN_BYTES, max(LEAST_RUN_BYTES, share))
    runs: list[list[SlotJob]] = []
    size = copied = pieces = 0
    for job in sorted(jobs, key=lambda each: each.block):
        size += job.blocks * BLOCK_BYTES
        copied += job.own_bytes
        pieces += len(job.parts) + 1
        last = runs[-1][-1] if runs else None
        adjacent = last is not None and last.block + last.blocks == job.block
        is_full = size > most or copied > LEAST_RUN_BYTES or pieces > MOST_PIECES
        if not adjacent or is_full:
            runs.append([])
            size, copied, pieces = job.blocks * BLOCK_BYTES, job.own_bytes, len(job.parts) + 1
        runs[-1].append(job)
    return runs


def in_parallel(
    executor: Executor, items: Sequence[Value], work: Callable[[Value], Result]
) -> list[Result]:
    """Work on all items at once; on a single one in this thread."""
    if len(items) == 1:
        return [work(items[0])]
    return list(executor.map(work, items))


def write_run(slab: Slab, scratch: Scratch, jobs: Sequence[SlotJob]) -> list[bool]:
    """Write adjacent slots; returns whether each is written; they are not forced yet."""
    with scratch.piece(_scratch_bytes(jobs)) as memory:
        pieces: list[memoryview] = []
        for job, own in _shares(jobs, memory):
            if job.is_moved_whole:
                pieces += job.parts
                begin = 0
            else:
                copy_from(job.parts, own)
                begin = job.length
            pieces.append(own)
            padding = len(own) - RECORD_BYTES - begin
            own[begin : begin + padding] = bytes(padding)
            own[-RECORD_BYTES:] = job.record
        try:
            slab.write(jobs[0].block, pieces)
        except OSError:
            if len(jobs) == 1:
                return [False]
            return [write_run(slab, scratch, [job])[0] for job in jobs]
    return [True] * len(jobs)


def read_run(slab: Slab, scratch: Scratch, jobs: Sequence[SlotJob]) -> list[bool]:
    """Read adjacent slots into the parts of their pages; returns whether each is its page, proved.

    The parts of a page that is not proved may have been written to.
    """
    with scratch.piece(_scratch_bytes(jobs)) as memory:
        pieces: list[memoryview] = []
        shares = list(_shares(jobs, memory))
        for job, own in shares:
            if job.is_moved_whole:
                pieces += job.parts
            pieces.append(own)
        try:
            slab.read(jobs[0].block, pieces)
        except OSError:
            if len(jobs) == 1:
                return [False]
            return [read_run(slab, scratch, [job])[0] for job in jobs]
        return [_is_proved(job, own) for job, own in shares]


def _is_proved(job: SlotJob, own: memoryview) -> bool:
    """Whether what was read is the page of a record; it is then in its parts."""
    if own[-RECORD_BYTES:] != job.record:
        return False
    if job.is_moved_whole:
        return checksum_of(job.parts) == checksum_in(job.record)
    content = own[: job.length]
    if checksum_of([content]) != checksum_in(job.record):
        return False
    copy_into(job.parts, content)
    return True


def _scratch_bytes(jobs: Sequence[SlotJob]) -> int:
    return sum(job.own_bytes for job in jobs)


def _shares(jobs: Sequence[SlotJob], memory: memoryview) -> Iterator[tuple[SlotJob, memoryview]]:
    """Each job with its share of a scratch."""
    at = 0
    for job in jobs:
        size = job.own_bytes
        yield job, memory[at : at + size]
        at += size
