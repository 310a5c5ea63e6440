"""Moves pages between host rows and the disk of a rank, by threads: one reads, and one writes.

No call waits for them. A thread moves a batch of pages by memory of its own, and touches rows only
while its job is waited for: a disk that answers late writes into nobody's row.
"""

from __future__ import annotations

import logging
import mmap
import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import TYPE_CHECKING, Protocol

import numpy as np
from attrs import Factory, define, field, frozen
from numpy.typing import NDArray

from kvcanon.optimized.vllm.disk_news import DiskJob, DiskPage, RankNews
from kvcanon.store_breaker import StoreBreaker

if TYPE_CHECKING:
    from kvcanon.disk import PageGet, PagePut

BATCH_BYTES = 16 << 20
"""About how much one call to the disk moves."""
DEADLINE_SECONDS = 10.0
"""Of one call, and of a read from when it was asked for: a prompt is computed in less."""
MOST_LATE = 4
"""Threads whose call was given up and has not returned. With so many the disk is left alone."""
ALIGNMENT_BYTES = 4096
"""Pages begin at multiples of it in the memory of a thread, so that the disk needs no copy."""

logger = logging.getLogger(__name__)


class DiskCallCounts(Protocol):
    """What is read of a store's statistics."""

    @property
    def failed_calls(self) -> int:
        """Calls that the disk refused."""


class PagesOnDisk(Protocol):
    """What is called of `kvcanon.disk.DiskStore`."""

    def put(self, pages: Sequence[PagePut]) -> Sequence[bool]:
        """Store pages; says for each whether it is on the disk, whole."""

    def get(self, pages: Sequence[PageGet]) -> Sequence[int | None]:
        """Read pages; says for each how many bytes it has, or None for a miss."""

    def pages(self) -> Sequence[DiskPage]:
        """All pages that are there."""

    def statistics(self) -> DiskCallCounts:
        """What it has done."""

    def close(self) -> None:
        """Close the store."""


class DiskMover(Protocol):
    """What a rank's half has below its rows."""

    def begin(self, job: DiskJob) -> None:
        """Begin a job. A read fills its rows, which nobody else writes; a write reads them."""

    def ended(self) -> list[tuple[DiskJob, bool]]:
        """The jobs that ended since the last call, each with whether it moved all its pages."""

    def news(self) -> RankNews | None:
        """What became of pages on the disk since the last call; None for nothing."""

    def close(self) -> None:
        """End all jobs."""


@frozen
class HostPages:
    """The memory of the host's rows."""

    rows: NDArray[np.uint8]
    """uint8[rows, bytes of the largest page]."""
    page_bytes: Sequence[int]
    """Bytes of a page of each group."""

    @property
    def stride_bytes(self) -> int:
        """How far from each other pages lie in the memory of a thread."""
        return -(-int(self.rows.shape[1]) // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


@define(eq=False)
class DiskNotes:
    """What became of pages, noted by any thread and taken by the rank's half."""

    _pages: dict[DiskPage, bool] = Factory(dict)
    _lock: threading.Lock = field(factory=threading.Lock)

    def note(self, pages: Sequence[DiskPage], *, is_there: bool) -> None:
        """Note that pages came, or left."""
        with self._lock:
            self._pages |= dict.fromkeys(pages, is_there)

    def note_gone(self, name: bytes, group: int) -> None:
        """Note a page that the store says has left."""
        self.note([(name, group)], is_there=False)

    def take(self) -> dict[DiskPage, bool]:
        """All notes since the last call."""
        with self._lock:
            taken, self._pages = self._pages, {}
        return taken


@define(eq=False)
class _OpenJob:
    """A job that has not ended."""

    job: DiskJob
    is_trial: bool
    """Whether it tries a disk that was left alone."""
    asked_at: float
    is_begun: bool = False
    is_given_up: bool = False
    moved: bool = False
    failure: str | None = None
    """What went wrong with the disk, in words; None if it has answered."""


@define(eq=False)
class _DiskThread:
    """A thread, and the jobs that it has."""

    waiting: SimpleQueue[_OpenJob | None] = Factory(SimpleQueue)
    lock: threading.Lock = field(factory=threading.Lock)
    """Held while its thread touches rows."""
    open: list[_OpenJob] = Factory(list)
    """The oldest first."""
    began_at: float | None = None
    """When the call began that is under way."""
    is_given_up: bool = False
    thread: threading.Thread | None = None


class DiskCopies:
    """The jobs of one rank. A job that fails, or that has no answer in time, ends without."""

    def __init__(
        self,
        store: PagesOnDisk,
        host: HostPages,
        notes: DiskNotes,
        *,
        clock: Callable[[], float] = time.monotonic,
        deadline_seconds: float = DEADLINE_SECONDS,
        batch_bytes: int = BATCH_BYTES,
    ) -> None:
        """Begin with what a store has. `notes` is told by the store which pages leave."""
        self._store, self._host, self._notes = store, host, notes
        self._clock, self._deadline_seconds = clock, deadline_seconds
        self._batch_pages = max(1, batch_bytes // host.stride_bytes)
        self._breaker = StoreBreaker(clock)
        self._done: SimpleQueue[tuple[_DiskThread, _OpenJob]] = SimpleQueue()
        self._lanes: dict[bool, _DiskThread] = {}
        """By whether they write."""
        self._late: list[_DiskThread] = []
        self._ended: list[tuple[DiskJob, bool]] = []
        self._was_usable: bool | None = None
        notes.note(store.pages(), is_there=True)

    @property
    def is_usable(self) -> bool:
        """Whether a job would be begun now."""
        return self._breaker.admits and len(self._late) < MOST_LATE

    def begin(self, job: DiskJob) -> None:
        """Begin a job, or end it at once while the disk is left alone."""
        if not self.is_usable:
            self._ended.append((job, False))
            return
        opened = _OpenJob(job, self._breaker.begin_call(), self._clock())
        lane = self._lanes.get(job.to_disk)
        if lane is None:
            lane = self._lanes[job.to_disk] = self._started(job.to_disk)
        with lane.lock:
            lane.open.append(opened)
        lane.waiting.put(opened)

    def ended(self) -> list[tuple[DiskJob, bool]]:
        """The jobs that ended since the last call, each with whether it moved all its pages."""
        while not self._done.empty():
            self._take(*self._done.get())
        self._give_up_overdue()
        self._give_up_late_reads()
        self._late = [lane for lane in self._late if lane.thread and lane.thread.is_alive()]
        ended, self._ended = self._ended, []
        return ended

    def news(self) -> RankNews | None:
        """What became of pages since the last call; the first time all that are there."""
        pages, usable = self._notes.take(), self.is_usable
        if not pages and usable == self._was_usable:
            return None
        self._was_usable = usable
        return RankNews(pages, usable)

    def close(self) -> None:
        """End the threads, and close the store unless a thread waits for it still."""
        lanes = list(self._lanes.values())
        for lane in lanes:
            lane.waiting.put(None)
        for lane in lanes:
            if lane.thread is not None:
                lane.thread.join(self._deadline_seconds)
        if any(lane.thread and lane.thread.is_alive() for lane in [*lanes, *self._late]):
            logger.warning("the disk has not answered: its threads are left")
            return
        self._store.close()

    # In the thread of the rank's half.

    def _started(self, to_disk: bool) -> _DiskThread:  # The key of its lane.
        lane = _DiskThread()
        name = "kvcanon-disk-writes" if to_disk else "kvcanon-disk-reads"
        lane.thread = threading.Thread(target=self._work, args=(lane,), name=name, daemon=True)
        lane.thread.start()
        return lane

    def _take(self, lane: _DiskThread, opened: _OpenJob) -> None:
        """Take a job whose thread is done with it."""
        with lane.lock:
            if opened not in lane.open:
                return
            lane.open.remove(opened)
        self._ended.append((opened.job, opened.moved))
        if opened.failure is not None:
            self._rest(opened.failure, is_trial=opened.is_trial)
        elif self._breaker.note_answer(is_trial=opened.is_trial):
            logger.warning("the disk answers again, and is used")

    def _give_up_overdue(self) -> None:
        """Wait no longer for calls that have passed their deadline."""
        for to_disk, lane in list(self._lanes.items()):
            with lane.lock:
                began = lane.began_at
                if began is None or self._clock() - began < self._deadline_seconds:
                    continue
                lane.is_given_up = True
            del self._lanes[to_disk]
            self._late.append(lane)
            lane.waiting.put(None)
            given_up, lane.open = lane.open, []
            self._ended += [(each.job, False) for each in given_up]
            tried = any(each.is_trial for each in given_up)
            self._rest(f"no answer for {self._deadline_seconds:g} s", is_trial=tried)

    def _give_up_late_reads(self) -> None:
        """Wait no longer for reads of a disk that answers each call, and is too slow."""
        lane = self._lanes.get(False)
        if lane is None:
            return
        oldest = self._clock() - self._deadline_seconds
        with lane.lock:
            late = [each for each in lane.open if each.asked_at <= oldest]
            for each in late:
                each.is_given_up = True
                lane.open.remove(each)
        self._ended += [(each.job, False) for each in late]
        if late:
            tried = any(each.is_trial for each in late)
            self._rest(f"a read took more than {self._deadline_seconds:g} s", is_trial=tried)

    def _rest(self, why: str, *, is_trial: bool) -> None:
        """Leave the disk alone for a while, and end the jobs that no thread has begun with."""
        if not self._breaker.note_failure(is_trial=is_trial):
            return
        logger.warning("the disk is left alone for %g s: %s", self._breaker.rest_seconds, why)
        for lane in self._lanes.values():
            with lane.lock:
                left = [each for each in lane.open if not each.is_begun]
                lane.open = [each for each in lane.open if each.is_begun]
            self._ended += [(each.job, False) for each in left]

    # In the thread of a lane.

    def _work(self, lane: _DiskThread) -> None:
        host, count = self._host, self._batch_pages
        memory = np.frombuffer(mmap.mmap(-1, count * host.stride_bytes), np.uint8)
        memory = memory.reshape(count, host.stride_bytes)
        while (opened := lane.waiting.get()) is not None:
            with lane.lock:
                if lane.is_given_up:
                    return
                if opened not in lane.open:
                    continue
                opened.is_begun = True
            try:
                opened.moved = self._move(lane, opened, memory)
            except Exception as error:  # noqa: BLE001  # Whatever a store raises is a failure.
                opened.failure = f"{type(error).__name__}: {error}"
            with lane.lock:
                lane.began_at = None
                if lane.is_given_up:
                    return
            self._done.put((lane, opened))

    def _move(self, lane: _DiskThread, opened: _OpenJob, memory: NDArray[np.uint8]) -> bool:
        """Move a job in batches. Returns: whether all its pages were moved."""
        move = self._write if opened.job.to_disk else self._read
        count, size = len(opened.job.rows), self._batch_pages
        batches = [range(first, min(first + size, count)) for first in range(0, count, size)]
        # A read is of no use without all its pages; of a write each page is.
        stops = not opened.job.to_disk
        moved = True
        for batch in batches:
            if lane.is_given_up or opened.is_given_up or (stops and not moved):
                return False
            moved &= move(lane, opened, batch, memory)
        return moved

    def _read(
        self, lane: _DiskThread, opened: _OpenJob, batch: Sequence[int], memory: NDArray[np.uint8]
    ) -> bool:
        from kvcanon.disk import PageGet  # noqa: PLC0415  # It needs xxhash, which a host does not.

        job = opened.job
        pieces = self._pieces(job, batch, memory)
        self._begin_call(lane)
        asked = [
            PageGet(job.pages[at][0], (piece.data,), job.pages[at][1])
            for at, piece in zip(batch, pieces, strict=True)
        ]
        lengths = self._store.get(asked)
        whole = [length == len(piece) for length, piece in zip(lengths, pieces, strict=True)]
        missing = [job.pages[at] for at, is_whole in zip(batch, whole, strict=True) if not is_whole]
        self._notes.note(missing, is_there=False)
        with lane.lock:
            if lane.is_given_up or opened.is_given_up or missing:
                return False
            for at, piece in zip(batch, pieces, strict=True):
                self._host.rows[job.rows[at], : len(piece)] = piece
        return True

    def _write(
        self, lane: _DiskThread, opened: _OpenJob, batch: Sequence[int], memory: NDArray[np.uint8]
    ) -> bool:
        from kvcanon.disk import PagePut  # noqa: PLC0415  # As above.

        job = opened.job
        pieces = self._pieces(job, batch, memory)
        with lane.lock:
            if lane.is_given_up:
                return False
            for at, piece in zip(batch, pieces, strict=True):
                piece[:] = self._host.rows[job.rows[at], : len(piece)]
        self._begin_call(lane)
        put = [
            PagePut(job.pages[at][0], (piece.data,), job.parents[at], job.pages[at][1])
            for at, piece in zip(batch, pieces, strict=True)
        ]
        failed_calls = self._store.statistics().failed_calls
        stored = self._store.put(put)
        came = [job.pages[at] for at, is_stored in zip(batch, stored, strict=True) if is_stored]
        self._notes.note(came, is_there=True)
        # A page may be refused for want of room; a call of the disk's that failed is another thing.
        if self._store.statistics().failed_calls > failed_calls:
            opened.failure = "a write failed"
        return len(came) == len(batch)

    def _pieces(
        self, job: DiskJob, batch: Sequence[int], memory: NDArray[np.uint8]
    ) -> list[NDArray[np.uint8]]:
        """The memory of a thread for each page of a batch."""
        sizes = [self._host.page_bytes[job.pages[at][1]] for at in batch]
        return [memory[place, :size] for place, size in enumerate(sizes)]

    def _begin_call(self, lane: _DiskThread) -> None:
        with lane.lock:
            lane.began_at = self._clock()
