"""The store: puts, gets and removals of pages in one folder, by any number of threads.

What is acknowledged is on the disk: a put writes its slots, each with its record, and forces them
to the disk. The journal has the records as well, so that a store that was closed opens without a
look at its slots; it is forced only where it says what no slot does: that a page is gone. A slot is
used again only after that. So whatever a crash leaves, a record stands for a whole page, or its
slot does not agree with it.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path

from attrs import define, evolve, field, frozen

from kvcanon.disk.figures import DiskFigures
from kvcanon.disk.folders import JOURNAL
from kvcanon.disk.identity import DiskIdentity
from kvcanon.disk.opening import (
    OpenParts,
    StoreSettings,
    open_parts,
    segment_bytes_for,
    snapshot_journal,
)
from kvcanon.disk.parts import PageGet, PagePut, checksum_of, first_bytes, total_bytes
from kvcanon.disk.records import NAME_BYTES, DiskRecord, unpacked
from kvcanon.disk.scratch import Scratch
from kvcanon.disk.slab import BLOCK_BYTES, slot_blocks
from kvcanon.disk.transfers import (
    Read,
    SlotJob,
    in_parallel,
    read_run,
    runs_of,
    slot_job,
    write_run,
)

THREADS = 4
"""How many reads or writes are under way at a time, as a rule."""
OnDrop = Callable[[bytes, int], None]
"""Is called with the name and the pool of a page that left, by whatever thread it left."""
_LOG = logging.getLogger(__name__)


@frozen(eq=False)
class PlannedPage:
    """A page that is about to be written to a slot."""

    page: PagePut
    record: DiskRecord
    """Without the checksum of the page."""
    job: SlotJob

    def sealed(self) -> PlannedPage:
        """The same with a slot that ends with the record, which has the checksum."""
        packed = self.record.packed(checksum_of(self.job.parts))
        return PlannedPage(self.page, self.record, self.job.ending_with(packed))


@define(eq=False)
class DiskStore:
    """An open store. `open` makes one; no call raises, whatever the disk does."""

    parts: OpenParts
    executor: ThreadPoolExecutor
    threads: int
    figures: DiskFigures = field(factory=DiskFigures)
    scratch: Scratch = field(factory=Scratch)
    lock: threading.RLock = field(factory=threading.RLock)
    """Held while the index and the segments are read or changed, never during a transfer."""
    writing: threading.Lock = field(factory=threading.Lock)
    """Held during a put, a removal and a close: the journal has one writer."""
    closed: bool = False
    on_drop: OnDrop | None = None
    """Hears of each page that leaves: evicted, removed, or found damaged."""

    @classmethod
    def open(
        cls,
        root: Path,
        identity: DiskIdentity,
        capacity_bytes: int | None = None,
        *,
        pools: int = 1,
        threads: int = THREADS,
        segment_bytes: int | None = None,
        on_drop: OnDrop | None = None,
    ) -> DiskStore:
        """Open the store of an identity in a folder, or make one.

        `capacity_bytes` bounds all that it takes, and pages are evicted for it, or if the disk has
        less; with None nothing is evicted, and a full disk refuses pages. `segment_bytes` is for a
        new store: no page may be larger than a segment. Raises: DiskUnusable.
        """
        executor = ThreadPoolExecutor(threads, "kvcanon-disk")
        try:
            size = segment_bytes or segment_bytes_for(capacity_bytes)
            settings = StoreSettings(Path(root), identity, capacity_bytes, size, pools)
            parts = open_parts(settings, executor)
        except BaseException:
            executor.shutdown(wait=False)
            raise
        figures = DiskFigures(capacity_bytes=capacity_bytes or 0)
        return cls(parts, executor, threads, figures, on_drop=on_drop)

    # Puts.

    def put(self, pages: Sequence[PagePut]) -> list[bool]:
        """Store pages; says for each whether it is on the disk, whole.

        A page that is there already, and proves to be whole, is kept.
        """
        with self.writing:
            if self.closed:
                return [False] * len(pages)
            done = {at for at, page in enumerate(pages) if self._is_whole(page.name, page.pool)}
            self.figures.kept_pages += len(done)
            new: dict[tuple[bytes, int], PagePut] = {}
            for at, page in enumerate(pages):
                if at not in done:
                    new.setdefault((page.name, page.pool), page)
            written = self._write(list(new.values()), {page.name for page in pages})
            answers = [
                at in done or (page.name, page.pool) in written for at, page in enumerate(pages)
            ]
            with self.lock:
                # The first page of a prompt is then the last to be evicted.
                for page in reversed(pages):
                    self.parts.index.use(page.name)
            self.figures.refused_pages += answers.count(False)
        return answers

    def _write(self, pages: Sequence[PagePut], names: AbstractSet[bytes]) -> set[tuple[bytes, int]]:
        """Write new pages; returns the names and pools of those that are on the disk."""
        ledger = self.parts.ledger
        kept = names | {page.parent for page in pages if page.parent is not None}
        with self.lock:
            sizes = [size for page in pages if (size := self._blocks_of(page)) is not None]
            self.parts.room.prepare(Counter(sizes))
            jobs = {page: job for page in pages if (job := self._placed(page, kept)) is not None}
        if not jobs:
            return set()
        # Younger than what the journal says of the pages that left: a slot whose record is older
        # than the end of a journal that a crash has cut is not believed.
        planned = [PlannedPage(page, ledger.page(page, job), job) for page, job in jobs.items()]
        try:
            self._keep_journal_short(2 * len(planned))
            if ledger.frees_slots:
                ledger.force()
            good = self._sealed_and_written(planned)
            self.parts.slab.force()
            # The older first, so that the end of a journal that was cut is its youngest record.
            good.sort(key=lambda each: each.record.generation)
            ledger.add([each.job.record for each in good])
        except OSError as error:
            self._say_failed("a put", error)
            good = []
        with self.lock:
            for each in good:
                self.parts.index.add(each.record, each.job.record, proved=True)
                self.figures.written_pages += 1
                self.figures.written_bytes += each.record.length
            blocks = {each.record.block for each in good}
            for each in planned:
                if each.record.block not in blocks:
                    self.parts.room.segments.give_back(each.record.block)
        return {(each.page.name, each.page.pool) for each in good}

    def _sealed_and_written(self, planned: Sequence[PlannedPage]) -> list[PlannedPage]:
        """Make the checksums of pages and write them; returns those that were written.

        Each run is written as soon as it has its checksums, while others are on their way. Labels
        of new segments go with the slots behind them; without its label, no page of a segment is
        written.
        """
        room = self.parts.room
        labels = {each.block: each for each in room.unwritten}
        pages = {each.job.block: each for each in planned}
        ends = [slot_job(room.slab, at, (), label.packed()) for at, label in labels.items()]

        def write(run: Sequence[SlotJob]) -> list[int]:
            for job in run:
                if job.block in pages:
                    pages[job.block] = pages[job.block].sealed()
            jobs = [pages[job.block].job if job.block in pages else job for job in run]
            good = write_run(room.slab, self.scratch, jobs)
            return [job.block for job, is_written in zip(jobs, good, strict=True) if is_written]

        runs = runs_of([*ends, *(each.job for each in planned)], self.threads)
        written = set(chain.from_iterable(in_parallel(self.executor, runs, write)))
        room.unwritten = [label for at, label in labels.items() if at not in written]
        bare = labels.keys() - written
        size = room.segments.segment_blocks
        return [page for at, page in pages.items() if at in written and at - at % size not in bare]

    def _blocks_of(self, page: PagePut) -> int | None:
        """How many blocks the slot of a page has; None if no slot takes it."""
        blocks = slot_blocks(total_bytes(page.parts))
        fits = blocks <= self.parts.room.segments.most_blocks
        is_ours = len(page.name) == NAME_BYTES and page.pool < self.parts.index.pools
        return blocks if fits and is_ours else None

    def _placed(self, page: PagePut, kept: AbstractSet[bytes]) -> SlotJob | None:
        """The write of a page to a slot, without its record; None if there is no room for it."""
        blocks = self._blocks_of(page)
        block = self._slot(blocks, kept) if blocks is not None else None
        return slot_job(self.parts.slab, block, page.parts, b"") if block is not None else None

    def _slot(self, blocks: int, kept: AbstractSet[bytes]) -> int | None:
        """A slot of this size, for which pages may have to be evicted."""
        while True:
            block = self.parts.room.take(blocks)
            if block is not None:
                return block
            evicts = self.parts.room.capacity_bytes is not None
            victim = self.parts.index.victim(kept) if evicts else None
            if victim is None:
                return None
            for pool in self.parts.index.pools_of(victim):
                self._drop(victim, pool)
                self.figures.evicted_pages += 1

    def _drop(self, name: bytes, pool: int) -> None:
        """Forget a page, and free its slot. The lock is held."""
        record = self.parts.index.drop(name, pool)
        if record is not None:
            self.parts.room.segments.give_back(record.block)
            self.parts.ledger.note_gone(record)
            if self.on_drop is not None:
                self.on_drop(name, pool)

    def _is_whole(self, name: bytes, pool: int) -> bool:
        """Whether a page is there; one that was not proved since the open is read first."""
        with self.lock:
            packed = self.parts.index.find(name, pool)
            if packed is None or self.parts.index.is_proved(name, pool):
                return packed is not None
        record = unpacked(packed)
        length = record.length if record is not None else 0
        read = self.get([PageGet(name, (memoryview(bytearray(length)),), pool)])
        return read[0] is not None

    # Gets.

    def get(self, pages: Sequence[PageGet]) -> list[int | None]:
        """Read pages into their parts; says for each how many bytes it has, or None for a miss.

        A page that is larger than its parts is a miss, as is one that is damaged, which is dropped.
        The parts of a page that is a miss may have been written to.
        """
        asked: list[tuple[int, PageGet, SlotJob]] = []
        with self.lock:
            for at, page in enumerate(pages):
                job = None if self.closed else self._job(page)
                if job is not None:
                    asked.append((at, page, job))
            for _, page, _ in reversed(asked):
                self.parts.index.use(page.name)
        answers: list[int | None] = [None] * len(pages)
        damaged = 0
        if asked:
            proved = self._read([job for _, _, job in asked])
            with self.lock:
                for at, page, job in asked:
                    if id(job) in proved:
                        answers[at] = job.length
                        self.parts.index.prove(page.name, page.pool)
                        self.figures.read_bytes += job.length
                    elif self.parts.index.find(page.name, page.pool) == job.record:
                        self._drop(page.name, page.pool)
                        damaged += 1
        if damaged:
            self.figures.damaged_pages += damaged
            _LOG.warning("%s: %d pages are damaged, and dropped", self.parts.folder.path, damaged)
        missed = answers.count(None)
        self.figures.missed_pages += missed
        self.figures.read_pages += len(answers) - missed
        return answers

    def _job(self, page: PageGet) -> SlotJob | None:
        """The read of a page; None if it is not there, or does not fit."""
        packed = self.parts.index.find(page.name, page.pool)
        record = unpacked(packed) if packed is not None else None
        if packed is None or record is None or record.length > total_bytes(page.parts):
            return None
        parts = tuple(first_bytes(page.parts, record.length))
        return slot_job(self.parts.slab, record.block, parts, packed)

    def _read(self, jobs: Sequence[SlotJob], read: Read = read_run) -> set[int]:
        """Read pages from the slab; returns the identities of the jobs that succeeded."""
        runs = runs_of(jobs, self.threads)
        slab, scratch = self.parts.slab, self.scratch
        results = in_parallel(self.executor, runs, lambda run: read(slab, scratch, run))
        each = zip(chain.from_iterable(runs), chain.from_iterable(results), strict=True)
        return {id(job) for job, good in each if good}

    # Questions.

    def exists(self, pages: Sequence[tuple[bytes, int]]) -> list[bool]:
        """Whether each page is there, by name and pool."""
        with self.lock:
            return [not self.closed and self.parts.index.has(*each) for each in pages]

    def pages(self) -> list[tuple[bytes, int]]:
        """All pages that are there, by name and pool."""
        with self.lock:
            index = self.parts.index
            return [(name, pool) for name in index.entries for pool in index.pools_of(name)]

    def leading_run(self, names: Sequence[bytes]) -> int:
        """How many pages are there, in all pools, before the first that is not.

        They become the most recently used ones: who asks is about to read them.
        """
        with self.lock:
            index = self.parts.index
            count = 0
            while not self.closed and count < len(names) and index.has_all(names[count]):
                count += 1
            for name in reversed(names[:count]):
                index.use(name)
        return count

    # Removals.

    def remove(self, pages: Sequence[tuple[bytes, int]]) -> None:
        """Remove pages, by name and pool, for good: also from their slots."""
        with self.writing:
            if self.closed:
                return
            with self.lock:
                found = [self.parts.index.find(*each) for each in pages]
                for each in pages:
                    self._drop(*each)
            try:
                self.parts.ledger.force()
            except OSError as error:
                self._say_failed("a removal", error)
            records = [unpacked(packed) for packed in found if packed is not None]
            self._clear_ends([each for each in records if each is not None])

    def clear(self) -> None:
        """Remove all pages."""
        self.remove(self.pages())

    def _clear_ends(self, records: Sequence[DiskRecord]) -> None:
        """Write zeros over the records at the ends of slots, so that nothing finds the pages."""
        with self.scratch.piece(BLOCK_BYTES) as block:
            block[:] = bytes(BLOCK_BYTES)
            try:
                for record in records:
                    end = record.block + slot_blocks(record.length) - 1
                    self.parts.slab.write(end, [block])
                self.parts.slab.force()
            except OSError as error:
                self._say_failed("a removal", error)

    # The journal and the end.

    def _keep_journal_short(self, coming: int) -> None:
        """Write the journal anew if it would have too many records. Raises: OSError."""
        ledger, room = self.parts.ledger, self.parts.room
        if ledger.journal.records + len(ledger.waiting) + coming > room.most_records:
            self._write_journal(closed=False)

    def _write_journal(self, *, closed: bool) -> None:
        """Write the journal anew, with what there is now. Raises: OSError."""
        ledger = self.parts.ledger
        with self.lock:
            waiting = len(ledger.waiting)
            journal = snapshot_journal(
                self.parts.folder.path / JOURNAL,
                ledger,
                self.parts.index,
                self.parts.room.segments,
                closed=closed,
            )
            ledger.journal.close()
            ledger.journal = journal
            ledger.forget(waiting)

    def close(self) -> None:
        """Close the store. A later open then reads the journal alone, in the order of last use."""
        with self.writing, self.lock:
            if self.closed:
                return
            self.closed = True
            try:
                self._write_journal(closed=True)
            except OSError as error:
                self._say_failed("the end", error)
            self.executor.shutdown()
            self.parts.ledger.journal.close()
            self.parts.slab.close()
            self.parts.folder.close()

    def statistics(self) -> DiskFigures:
        """What it has done since it was opened, and what it holds."""
        with self.lock:
            segments = self.parts.room.segments
            used = sum(
                count * segments.slots[number] * BLOCK_BYTES
                for number, count in segments.used.items()
            )
            return evolve(
                self.figures,
                pages=self.parts.index.count,
                used_bytes=used,
                slab_bytes=segments.count * segments.segment_blocks * BLOCK_BYTES,
            )

    def _say_failed(self, what: str, error: OSError) -> None:
        self.figures.failed_calls += 1
        _LOG.warning("%s: %s failed: %s", self.parts.folder.path, what, error)
