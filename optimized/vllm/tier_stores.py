"""The copies to the host: those that begin with a step, and those in flight."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from attrs import Factory, define

from kvcanon.optimized.vllm.host_pages import HostPages, KeptPage
from kvcanon.optimized.vllm.pages import Page, PageKey
from kvcanon.optimized.vllm.step_copies import EndedStores, TierCopyJob
from kvcanon.optimized.vllm.tier_counts import TierCounts


@define(eq=False)
class TierStore:
    """A page that is copied to the host."""

    page: Page
    block: int
    row: int
    job: int
    pinned_by: list[list[KeptPage]] = Factory(list)
    """The pages of each load that reads its row, to which it is added once it is on the host."""


@define(eq=False)
class StoreJob:
    """Pages whose copies begin with the same step."""

    number: int
    stores: list[TierStore] = Factory(list)
    outdated: bool = False
    """Whether the cache was reset since it began."""


@define(eq=False)
class TierStores:
    """All stores. A page is found on the host once its bytes are there on all ranks."""

    host: HostPages
    counts: TierCounts
    in_flight: int = 0
    """Pages that are being copied, or will be with the next step."""
    _by_key: dict[PageKey, TierStore] = Factory(dict)
    _readers: dict[int, set[int]] = Factory(dict)
    """The jobs that read a block."""
    _jobs: dict[int, StoreJob] = Factory(dict)
    _late: StoreJob | None = None
    _ahead: StoreJob | None = None
    """The jobs that begin with the next step: of blocks that it overwrites, and of others."""
    _awaited: set[int] = Factory(set)
    _ended: Counter[int] = Factory(Counter)
    _moved: Counter[int] = Factory(Counter)
    _numbers: int = 0

    def __contains__(self, key: PageKey) -> bool:
        return key in self._by_key

    def next_number(self) -> int:
        """A number for a job that no other has."""
        self._numbers += 1
        return self._numbers

    def get(self, key: PageKey) -> TierStore:
        """The store of a page."""
        return self._by_key[key]

    def readers_of(self, blocks: Iterable[int]) -> set[int]:
        """The jobs that read any of these blocks."""
        return {job for block in blocks for job in self._readers.get(block, ())}

    def await_readers(self, block: int) -> None:
        """Let the next step wait for the jobs that read a block."""
        self._awaited.update(self._readers.get(block, ()))

    def begin(self, page: Page, block: int, *, late: bool = False) -> bool:
        """Copy a page to the host with the next step; `late` if that step overwrites its block.

        Call `await_readers` for such a block afterwards.

        Returns: False where the host has no row for it.
        """
        row = self.host.take_row()
        if row is None:
            self.counts.lost_pages += 1
            return False
        job = self._next_job(late=late)
        store = TierStore(page, block, row, job.number)
        job.stores.append(store)
        self._by_key[page.key] = store
        self._readers.setdefault(block, set()).add(job.number)
        self.in_flight += 1
        self.counts.late_pages += late
        return True

    def take_jobs(self) -> tuple[Sequence[TierCopyJob], frozenset[int]]:
        """The jobs that begin with a step, and those that it waits for."""
        jobs = [job for job in (self._late, self._ahead) if job is not None]
        self._late = self._ahead = None
        awaited, self._awaited = frozenset(self._awaited), set()
        return [_copies(job) for job in jobs], awaited

    def settle(
        self, ended: EndedStores, ranks: int, still_there: Callable[[int, PageKey], bool]
    ) -> Iterator[Page]:
        """Count what ranks have ended, of pages that were in their blocks all the time.

        Returns: the pages that came to the host.
        """
        self._ended += ended.ended
        self._moved += ended.moved
        for number in [each for each, count in self._ended.items() if count >= ranks]:
            del self._ended[number]
            moved = self._moved.pop(number, 0) >= ranks
            yield from self._end(number, still_there, moved=moved)

    def outdate(self) -> None:
        """Let nothing of what is being copied be found, since the cache was reset."""
        for job in self._jobs.values():
            job.outdated = True
        self._by_key.clear()

    def _next_job(self, *, late: bool) -> StoreJob:
        job = self._late if late else self._ahead
        if job is None:
            job = StoreJob(self.next_number())
            self._jobs[job.number] = job
            if late:
                self._late = job
            else:
                self._ahead = job
        return job

    def _end(
        self, number: int, still_there: Callable[[int, PageKey], bool], *, moved: bool
    ) -> Iterator[Page]:
        job = self._jobs.pop(number, None)
        if job is None:
            return
        for store in job.stores:
            self.in_flight -= 1
            readers = self._readers[store.block]
            readers.discard(number)
            if not readers:
                del self._readers[store.block]
            key = store.page.key
            if self._by_key.get(key) is store:
                del self._by_key[key]
            wanted = not job.outdated and key not in self.host
            if moved and wanted and still_there(store.block, key):
                self._come(store, self.host.add(store.page, store.row))
                self.counts.stored_pages += 1
                yield store.page
            else:
                self.counts.failed_stores += not moved
                self._come(
                    store, self.host.add_unfound(store.page, store.row, len(store.pinned_by))
                )

    def _come(self, store: TierStore, hosted: KeptPage) -> None:
        """Let loads hold a page whose row they read."""
        for pages in store.pinned_by:
            self.host.pin([hosted])
            pages.append(hosted)


def _copies(job: StoreJob) -> TierCopyJob:
    stores = job.stores
    return TierCopyJob(
        job.number,
        [store.block for store in stores],
        [store.row for store in stores],
        [store.page.group for store in stores],
        to_host=True,
    )
