"""The disk below the host, as the scheduler's half sees it: what is there, written and read.

A page goes to the disk once it is on the host, behind the engine's back, and stays there when it
leaves the host. It is found by a name of its own (`disk_names`), once its bytes are on the disks of
all ranks. A read brings it into a host row, from which it is loaded like any other.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Iterable, Sequence

from attrs import Factory, define, frozen

from kvcanon.optimized._core import HashedPages
from kvcanon.optimized.vllm.disk_names import PromptNames, seed_of
from kvcanon.optimized.vllm.disk_news import DiskIndex, DiskJob, DiskNews, DiskPage
from kvcanon.optimized.vllm.engine_calls import VllmRequest
from kvcanon.optimized.vllm.store_jobs import StoreJobs
from kvcanon.optimized.vllm.tier_counts import TierCounts
from kvcanon.optimized.vllm.tier_loads import PageRun, PagesThere, PagesToLoad, find_pages
from kvcanon.optimized.vllm.tier_shape import TierShape

SHARE_WRITING = 8
"""Writes hold no more than this part of the host's rows, ..."""
SHARE_WAITING = 4
"""... and no more than this part waits for them: a disk that is slower is passed over."""
MOST_PAGES_OF_A_WRITE = 64
"""So many may wait on a small host, too."""
MOST_STEPS_UNKNOWN = 16
"""So many steps at the start a prompt waits for the ranks to say what they have."""


@frozen
class StoredPage:
    """A page that came to the host."""

    block_hash: bytes
    page: DiskPage
    parent: bytes | None


@frozen
class HostAndDisk:
    """What `HashedPages` says of a prompt, with the pages that a disk has."""

    pages: HashedPages
    index: DiskIndex
    names: Sequence[bytes]
    """Of all pages that are asked for."""

    def leading(
        self, hashes: list[bytes], group: int, first: int, end: int, *, or_device: bool
    ) -> int:
        """Where a run of pages that are there ends."""
        before = -1
        while before < first < end:
            before = first
            first = self.pages.leading(hashes, group, first, end, or_device=or_device)
            first = self.index.leading(self.names, group, first, end)
        return first

    def there(
        self, hashes: list[bytes], group: int, first: int, end: int, *, or_device: bool
    ) -> list[bool]:
        """Of each page whether it is there."""
        found = self.pages.there(hashes, group, first, end, or_device=or_device)
        return [
            is_there or self.index.has((name, group))
            for is_there, name in zip(found, self.names[first:end], strict=True)
        ]


@define(eq=False)
class DiskHalf:
    """What the disks of all ranks have, and the jobs that write and read them."""

    shape: TierShape
    pages: HashedPages
    jobs: StoreJobs
    counts: TierCounts
    index: DiskIndex
    _epoch: str | None = None
    """None until the first reset."""
    _names: dict[str, PromptNames] = Factory(dict)
    """Of each live request that asked, or computed a page."""
    _waiting: deque[StoredPage] = Factory(deque)
    """Pages to write."""
    _writing: dict[int, DiskJob] = Factory(dict)
    """The writes in flight, each of which holds its rows."""
    _reading: dict[int, int] = Factory(dict)
    """How many pages each read is of."""
    _new_jobs: list[DiskJob] = Factory(list)

    @classmethod
    def below(
        cls, shape: TierShape, pages: HashedPages, jobs: StoreJobs, counts: TierCounts
    ) -> DiskHalf:
        """Make the half of a disk of which nothing is known yet."""
        return cls(shape, pages, jobs, counts, DiskIndex(shape.ranks))

    @property
    def is_busy(self) -> bool:
        """Whether pages are being written, or wait for it."""
        return bool(self._writing or self._waiting or self._new_jobs)

    def gauges(self) -> dict[str, int]:
        """Present sizes, in pages."""
        return {"disk_pages": self.index.count, "disk_writing_pages": self._writing_pages()}

    def names_of(self, request: VllmRequest) -> PromptNames | None:
        """The names of a prompt's pages; None for a prompt that is kept off the disk.

        An adapter may be loaded again under its name, with other weights.
        """
        if request.lora_request is not None:
            return None
        names = self._names.get(request.request_id)
        if names is None:
            names = self._names[request.request_id] = PromptNames(
                self.shape.block_tokens,
                request.block_hashes,
                request.all_token_ids,
                seed_of(request.cache_salt, self._epoch),
            )
        return names

    def forget(self, request_id: str) -> None:
        """Forget a request that has ended. Its pages keep their names, and not its tokens."""
        names = self._names.pop(request_id, None)
        if names is not None:
            names.end()

    def must_ask_later(self, step: int) -> bool:
        """Whether the ranks have not said yet what they have, as they do with the first step."""
        return not self.index.is_known and step < MOST_STEPS_UNKNOWN

    def find(self, request: VllmRequest, first: int, last: int) -> PagesToLoad | None:
        """The longest hit of host and disk, of which each page has a row to come by."""
        hashes, known = request.block_hashes, self._known_pages(request, last)
        found = find_pages(hashes, first, last, self.shape, known)
        while found is not None and (over := self._pages_without_room(found)):
            last = found.end - -(-over // len(self.shape.groups))
            found = find_pages(hashes, first, last, self.shape, known)
        return found

    def read(self, request: VllmRequest, hashes: list[bytes], run: PageRun, prompt: object) -> int:
        """Begin to read the pages of a run that are on the disk alone, each into a row.

        Returns: how many those are.
        """
        names = self.names_of(request)
        if names is None:
            return 0
        named = names.up_to(run.end)
        places = [
            at
            for at, is_there in enumerate(self._on_host_or_device(hashes, run), run.first)
            if not is_there and self.index.has((named[at], run.group))
        ]
        if not places:
            return 0
        number = self.jobs.next_number()
        rows = self.pages.fetch(hashes, run.group, places, number, prompt)
        read = [(row, at) for row, at in zip(rows, places, strict=True) if row is not None]
        if read:
            self._reading[number] = len(read)
            pages = [(named[at], run.group) for _, at in read]
            self._new_jobs.append(DiskJob(number, [row for row, _ in read], pages, to_disk=False))
        return len(places)

    def note_stored(self, block_hash: bytes, group: int, names: PromptNames, place: int) -> None:
        """Let a page be written that came to the host, unless the disk has it."""
        if names.hashes[place : place + 1] != [block_hash]:
            return
        named = names.up_to(place + 1)
        page = named[place], group
        if self.index.has(page):
            return
        parent = named[place - 1] if place else None
        self._waiting.append(StoredPage(block_hash, page, parent))
        most = max(MOST_PAGES_OF_A_WRITE, self.shape.rows // SHARE_WAITING)
        while len(self._waiting) > most:
            # The oldest has been on the host for longest, and is the next to leave it.
            self._waiting.popleft()
            self.counts.disk_passed_pages += 1

    def take_jobs(self) -> Sequence[DiskJob]:
        """The jobs that begin with a step."""
        self._write()
        jobs, self._new_jobs = self._new_jobs, []
        return jobs

    def settle(self, news: DiskNews, jobs: Iterable[tuple[int, bool]]) -> None:
        """Take what ranks say of their disks, and let go of the rows of writes that have ended.

        `jobs` are those that all ranks have ended, each with whether all have moved its pages.
        """
        was_known = self.index.is_known
        came = self.index.take(news)
        self.counts.disk_written_pages += came if was_known else 0
        for number, moved in jobs:
            write = self._writing.pop(number, None)
            if write is not None:
                self.pages.let_go(write.rows)
                self.counts.disk_passed_pages += sum(not self.index.has(at) for at in write.pages)
            read = self._reading.pop(number, 0)
            if moved:
                self.counts.disk_read_pages += read
            else:
                self.counts.disk_failed_reads += read

    def reset(self) -> None:
        """Give all pages other names from now on, so that none of before is found.

        What the model computes now may be of other weights than those that the disk was opened
        for, and no later process finds these names either.
        """
        self._epoch = secrets.token_hex(16)
        self._names.clear()
        self._waiting.clear()

    def _writing_pages(self) -> int:
        return sum(len(job.rows) for job in self._writing.values())

    def _write(self) -> None:
        """Begin a write of the pages that have waited for longest and are on the host still."""
        if not self.index.is_usable:
            if self.index.is_known:
                self.counts.disk_passed_pages += len(self._waiting)
                self._waiting.clear()
            return
        most = max(1, self.shape.rows // SHARE_WRITING)
        while self._waiting and (room := most - self._writing_pages()) > 0:
            self._write_some(min(room, MOST_PAGES_OF_A_WRITE))

    def _write_some(self, most: int) -> None:
        rows: list[int] = []
        written: list[StoredPage] = []
        while self._waiting and len(rows) < most:
            each = self._waiting.popleft()
            if self.index.has(each.page):
                continue
            held = self.pages.hold([each.block_hash], each.page[1], 0, 1)
            rows += held
            written += [each] * len(held)
            self.counts.disk_passed_pages += not held
        if rows:
            number = self.jobs.next_number()
            pages = [each.page for each in written]
            parents = [each.parent for each in written]
            job = DiskJob(number, rows, pages, to_disk=True, parents=parents)
            self._writing[number] = job
            self._new_jobs.append(job)

    def _known_pages(self, request: VllmRequest, last: int) -> PagesThere:
        names = self.names_of(request)
        if names is None or not self.index.is_usable:
            return self.pages
        end = min(last, len(request.block_hashes))
        return HostAndDisk(self.pages, self.index, names.up_to(end))

    def _pages_without_room(self, found: PagesToLoad) -> int:
        """How many pages of a hit have no row, if any of them has to be read."""
        needed = lacking = 0
        for run in found.runs:
            there = self._on_host_or_device(found.hashes, run)
            needed += len(there)
            lacking += there.count(False)
        return max(0, needed - self.pages.takeable) if lacking else 0

    def _on_host_or_device(self, hashes: list[bytes], run: PageRun) -> list[bool]:
        several = len(self.shape.groups) > 1
        return self.pages.there(hashes, run.group, run.first, run.end, or_device=several)
