"""A disk below the rows of a rank, whose reads and writes are late, fail or get lost, as drawn.

What it keeps outlives the process. The bytes of a job move when it ends, which is the worst moment
that it may choose. Real reads prove their pages (`kvcanon.disk`); here a damaged page is one that
is gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import numpy as np
from attrs import Factory, define, frozen
from numpy.typing import NDArray

from kvcanon.lab.connectors.late_copies import DEADLINE_STEPS, LateCopies
from kvcanon.optimized.vllm.disk_news import DiskJob, DiskPage, RankNews

REST_STEPS = 5
"""A disk that failed is left alone for so many steps."""

PageBytes = Mapping[str, NDArray[np.int64]]
"""What a page has of each layer."""


@frozen
class DiskTimes:
    """How jobs on a disk go."""

    latest_steps: int = 3
    """A job ends at most so many steps after it began."""
    failing: float = 0.0
    """The share of jobs that fail."""
    lost: float = 0.0
    """The share of jobs that end at the deadline, and fail."""
    damaged: float = 0.0
    """The share of pages that are found damaged when they are read."""
    most_pages: int = 1 << 30
    """More pages evict others."""


def draw_times(seed: int) -> DiskTimes:
    """Draw how a disk goes."""
    draw = Random(f"disk {seed}")
    return DiskTimes(
        latest_steps=draw.choice((0, 2, 8)),
        failing=draw.choice((0.0, 0.0, 0.1, 0.5)),
        lost=draw.choice((0.0, 0.0, 0.05)),
        damaged=draw.choice((0.0, 0.0, 0.1)),
        most_pages=draw.choice((8, 40, 1 << 30)),
    )


@define(eq=False)
class KeptPages:
    """What the folder of a rank has, from process to process."""

    pages: dict[DiskPage, PageBytes] = Factory(dict)


@define(eq=False)
class DrawnDisk:
    """The disk of one rank, as a process has it open."""

    kept: KeptPages
    host: LateCopies
    """Has the rows."""
    times: DiskTimes
    random: Random
    from_earlier: frozenset[DiskPage] = frozenset()
    """What was there when the process began."""
    from_earlier_read: int = 0
    """Pages of an earlier process that were read."""
    _begun: list[tuple[int, DiskJob]] = Factory(list)
    """The step that each job ends at, and the job."""
    _news: dict[DiskPage, bool] = Factory(dict)
    _rests_until: int = 0
    _now: int = 0
    _was_usable: bool | None = None

    def __attrs_post_init__(self) -> None:
        self.from_earlier = frozenset(self.kept.pages)
        self._news = dict.fromkeys(self.kept.pages, True)

    def begin(self, job: DiskJob) -> None:
        """Begin a job."""
        is_lost = self.random.random() < self.times.lost
        delay = DEADLINE_STEPS if is_lost else self.random.randint(0, self.times.latest_steps)
        self._begun.append((self._now + delay, job))

    def ended(self) -> list[tuple[DiskJob, bool]]:
        """The jobs that end with this step, in any order."""
        self._now += 1
        due = [job for at, job in self._begun if at < self._now]
        self._begun = [each for each in self._begun if each[0] >= self._now]
        self.random.shuffle(due)
        return [(job, self._end(job)) for job in due]

    def news(self) -> RankNews | None:
        """What became of pages since the last call."""
        usable = self._now >= self._rests_until
        if not self._news and usable == self._was_usable:
            return None
        news, self._news, self._was_usable = self._news, {}, usable
        return RankNews(news, usable)

    def close(self) -> None:
        """Nothing to free."""

    def _end(self, job: DiskJob) -> bool:
        """Move the bytes of a job. Returns: whether all its pages were moved."""
        if self.random.random() < self.times.failing:
            self._rests_until = self._now + REST_STEPS
            return False
        return self._write(job) if job.to_disk else self._read(job)

    def _write(self, job: DiskJob) -> bool:
        for row, page in zip(job.rows, job.pages, strict=True):
            self.kept.pages[page] = self.host.page_in(row, page[1])
            self._news[page] = True
        while len(self.kept.pages) > self.times.most_pages:
            self._lose(self.random.choice(sorted(self.kept.pages)))
        return True

    def _read(self, job: DiskJob) -> bool:
        for page in job.pages:
            if self.random.random() < self.times.damaged:
                self._lose(page)
        missing = [page for page in job.pages if page not in self.kept.pages]
        self._news |= dict.fromkeys(missing, False)
        if missing:
            return False
        for row, page in zip(job.rows, job.pages, strict=True):
            self.host.put_page(row, self.kept.pages[page])
            self.from_earlier_read += page in self.from_earlier
        return True

    def _lose(self, page: DiskPage) -> None:
        self.kept.pages.pop(page, None)
        self._news[page] = False
