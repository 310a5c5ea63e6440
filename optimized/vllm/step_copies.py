"""What the scheduler's half tells the workers with a step, and what they answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from attrs import Factory, define, field, frozen

from kvcanon.optimized.vllm.disk_news import DiskJob, DiskNews


@frozen
class TierCopyJob:
    """Pages that are copied together."""

    number: int
    """No other job of the tier ever has it."""
    blocks: Sequence[int]
    rows: Sequence[int]
    """The host row of each block."""
    groups: Sequence[int]
    """The group of layers of each block."""
    to_host: bool
    request_id: str = ""
    """Whom a load is for."""
    after: frozenset[int] = frozenset()
    """Jobs that fill the rows of a load, or read its blocks, and end before it begins."""


@frozen
class StepCopies:
    """The copies that begin with a step."""

    step: int
    stores: Sequence[TierCopyJob] = ()
    """They read what earlier steps have computed."""
    loads: Sequence[TierCopyJob] = ()
    awaited: frozenset[int] = frozenset()
    """Stores that read blocks which this step overwrites: it waits for them."""
    failed_loads: frozenset[str] = frozenset()
    """Requests whose load cannot begin any more, and is reported as failed."""
    disk_jobs: Sequence[DiskJob] = ()
    """Pages that go between rows and the disk. A load comes after those that fill its rows."""


@define
class EndedStores:
    """How many ranks ended each job that is no load, and how many moved all its bytes."""

    ended: Counter[int] = Factory(Counter)
    moved: Counter[int] = Factory(Counter)
    disks: DiskNews = Factory(DiskNews)
    """What became of pages on the disks of the ranks."""

    def count(self, number: int, *, moved: bool) -> None:
        """Count a job that a rank has ended."""
        self.ended[number] += 1
        self.moved[number] += moved

    def aggregate(self, other: EndedStores) -> EndedStores:
        """The counts of both."""
        return EndedStores(
            self.ended + other.ended, self.moved + other.moved, self.disks.aggregate(other.disks)
        )


@frozen
class LoadResults:
    """Which loads a rank has ended, by request, with the names that vLLM has for them."""

    finished_recving: set[str] = field(factory=set)
    failed_recving: set[str] = field(factory=set)
    finished_sending: set[str] = field(factory=set)
