"""Faults that are planted in kvcanon's connector, in the process of an engine."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from attrs import evolve

from kvcanon.optimized.vllm.block_copies import ThreadCopies
from kvcanon.optimized.vllm.disk_copies import DiskCopies
from kvcanon.optimized.vllm.disk_half import DiskHalf
from kvcanon.optimized.vllm.disk_names import PromptNames, seed_of
from kvcanon.optimized.vllm.disk_news import DiskJob
from kvcanon.optimized.vllm.scheduler_half import SchedulerHalf
from kvcanon.optimized.vllm.step_copies import LoadResults, StepCopies, TierCopyJob
from kvcanon.optimized.vllm.tier_events import PagesStored, TierEvent
from kvcanon.optimized.vllm.tier_shape import PageGroup
from kvcanon.optimized.vllm.worker_half import WorkerHalf

LATE_SECONDS = 0.05


def fail_loads() -> None:
    """Let every third load fail, before it has moved anything."""
    move = ThreadCopies._move
    loads = 0

    def failing(self: ThreadCopies, job: TierCopyJob) -> None:
        nonlocal loads
        loads += not job.to_host
        if not job.to_host and loads % 3 == 0:
            raise RuntimeError("a load that is made to fail")
        move(self, job)

    _plant(ThreadCopies, "_move", failing)


def failure_unreported() -> None:
    """A load that failed is reported as one that ended."""
    fail_loads()
    results = WorkerHalf.get_transfer_results

    def silent(self: WorkerHalf, finished: set[str]) -> LoadResults:
        return evolve(results(self, finished), failed_recving=set())

    _plant(WorkerHalf, "get_transfer_results", silent)


def wrong_block() -> None:
    """The rows of a load go to other blocks of it."""
    _change_loads(lambda job: evolve(job, rows=[*job.rows[1:], *job.rows[:1]]))


def two_loads_into_one_block() -> None:
    """The last page of a load goes into the block of its first."""
    _change_loads(lambda job: evolve(job, blocks=[*job.blocks[:-1], job.blocks[0]]))


def store_after_preemption() -> None:
    """No step waits for a store whose block it overwrites."""
    move = ThreadCopies._move

    def late(self: ThreadCopies, job: TierCopyJob) -> None:
        time.sleep(LATE_SECONDS)
        move(self, job)

    def never(self: ThreadCopies, numbers: Collection[int]) -> None:
        del self, numbers

    _plant(ThreadCopies, "_move", late)
    _plant(ThreadCopies, "wait", never)


def stale_after_reset() -> None:
    """A reset leaves the host as it is."""

    def kept(self: SchedulerHalf) -> bool:
        del self
        return True

    _plant(SchedulerHalf, "reset_cache", kept)


def salt_ignored() -> None:
    """A prompt with a salt is served what was stored without it."""
    find, known = SchedulerHalf._find, dict[tuple[int, ...], bytes]()

    def unsalted(self: SchedulerHalf, request: Any, first: int, last: int) -> Any:  # noqa: ANN401
        size, hashes = self.shape.block_tokens, list(request.block_hashes)
        for at, each in enumerate(hashes):
            tokens = tuple(request.all_token_ids[: (at + 1) * size])
            if request.cache_salt is None:
                known[tokens] = each
            hashes[at] = known.get(tokens, each)
        substitute: Any = _Substitute(request, hashes)
        return find(self, substitute, first, last)

    _plant(SchedulerHalf, "_find", unsalted)


def window_one_block_short() -> None:
    """A load has one block of the window too few."""
    needed = PageGroup.pages_needed

    def short(self: PageGroup, block_tokens: int) -> int | None:
        pages = needed(self, block_tokens)
        return None if pages is None else pages - 1

    _plant(PageGroup, "pages_needed", short)


def event_before_bytes() -> None:
    """A page is announced when its copy begins."""
    build, take = SchedulerHalf.build_connector_meta, SchedulerHalf.take_events
    early: list[TierEvent] = []

    def announcing(self: SchedulerHalf, plan: Any) -> StepCopies:  # noqa: ANN401
        built, pool = build(self, plan), self._pool
        for job in built.stores:
            for block, group in zip(job.blocks, job.groups, strict=True):
                key = pool.blocks[block].block_hash if pool else None
                if key is not None:
                    early.append(PagesStored((key[:-4],), None, (), 0, group, None, None, None))
        return built

    def taking(self: SchedulerHalf) -> list[TierEvent]:
        events = [*early, *take(self)]
        early.clear()
        return events

    _plant(SchedulerHalf, "build_connector_meta", announcing)
    _plant(SchedulerHalf, "take_events", taking)


def disk_salt_ignored() -> None:
    """Pages on the disk have the same names under all salts."""
    _change_seeds(lambda self, _: seed_of(None, self._epoch))


def disk_reset_ignored() -> None:
    """A reset leaves what is on the disk as it is."""
    _change_seeds(lambda _, request: seed_of(request.cache_salt, None))


def disk_pages_swapped() -> None:
    """The pages of a read come into each other's rows."""

    def swapped(self: DiskCopies, job: DiskJob) -> None:
        rows = job.rows if job.to_disk else [*job.rows[1:], *job.rows[:1]]
        begin(self, evolve(job, rows=rows))

    begin = DiskCopies.begin
    _plant(DiskCopies, "begin", swapped)


PLANTED: Mapping[str, Callable[[], None]] = {
    "failure-unreported": failure_unreported,
    "wrong-block": wrong_block,
    "store-after-preemption": store_after_preemption,
    "stale-after-reset": stale_after_reset,
    "salt-ignored": salt_ignored,
    "window-one-block-short": window_one_block_short,
    "two-loads-into-one-block": two_loads_into_one_block,
    "event-before-bytes": event_before_bytes,
    "disk-salt-ignored": disk_salt_ignored,
    "disk-reset-ignored": disk_reset_ignored,
    "disk-pages-swapped": disk_pages_swapped,
}
"""The faults, by name."""
WINDOW_FAULTS = frozenset({"window-one-block-short"})
"""Those that need a model with a window."""
DISK_FAULTS = frozenset(name for name in PLANTED if name.startswith("disk-"))
"""Those of a tier over a disk."""


class _Substitute:
    """A request with other hashes."""

    def __init__(self, request: object, hashes: list[bytes]) -> None:
        self._request, self.block_hashes = request, hashes

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._request, name)


def _change_seeds(seed: Callable[[DiskHalf, Any], bytes]) -> None:
    names_of = DiskHalf.names_of

    def named(self: DiskHalf, request: Any) -> PromptNames | None:  # noqa: ANN401
        names = names_of(self, request)
        if names is not None:
            names.seed = seed(self, request)
        return names

    _plant(DiskHalf, "names_of", named)


def _change_loads(changed: Callable[[TierCopyJob], TierCopyJob]) -> None:
    begin = ThreadCopies.begin

    def begins(self: ThreadCopies, job: TierCopyJob) -> None:
        begin(self, job if job.to_host else changed(job))

    _plant(ThreadCopies, "begin", begins)


def _plant(owner: type, name: str, function: object) -> None:
    setattr(owner, name, function)
