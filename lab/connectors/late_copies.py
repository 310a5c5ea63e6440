"""Copies between blocks and host rows that end late, out of order, failing, or at a deadline.

The bytes move when the copy ends, which is the worst moment that a copy may choose: what was read
too early or overwritten too soon shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

import numpy as np
from attrs import Factory, define, frozen
from numpy.typing import NDArray

from kvcanon.lab.connectors.engine_shape import CachedLayers

DEADLINE_STEPS = 40
"""A copy that is lost is given up after so many steps."""


@frozen
class CopiedBlock:
    """A block of the device and the host row that it is copied from or to."""

    block_id: int
    row: int
    group: int


@frozen
class CopyJob:
    """Blocks that are copied together."""

    number: int
    blocks: tuple[CopiedBlock, ...]
    to_host: bool
    request_id: str = ""
    """Whom a load is for."""


@frozen
class CopyTimes:
    """How copies go."""

    latest_steps: int = 3
    """A copy ends at most so many steps after it began."""
    failing: float = 0.0
    """The share of loads that fail."""
    lost: float = 0.0
    """The share of copies that end at the deadline, and fail."""


@define
class _Begun:
    job: CopyJob
    due: int
    fails: bool


@define
class LateCopies:
    """The copies of one rank."""

    layers: Mapping[str, NDArray[np.int64]]
    groups: Sequence[CachedLayers]
    rows: int
    times: CopyTimes
    random: Random
    _host: dict[str, NDArray[np.int64]] = Factory(dict)
    _begun: list[_Begun] = Factory(list)
    _now: int = 0

    def __attrs_post_init__(self) -> None:
        for name, layer in self.layers.items():
            self._host[name] = np.full((self.rows, *layer.shape[1:]), -2, np.int64)

    def begin(self, job: CopyJob) -> None:
        """Begin a copy."""
        times = self.times
        lost = self.random.random() < times.lost
        fails = lost or (not job.to_host and self.random.random() < times.failing)
        delay = DEADLINE_STEPS if lost else self.random.randint(0, times.latest_steps)
        self._begun.append(_Begun(job, self._now + delay, fails))

    def tick(self) -> list[tuple[CopyJob, bool]]:
        """Let a step pass. Returns: the copies that ended, each with whether it moved its bytes."""
        self._now += 1
        due = [each for each in self._begun if each.due < self._now]
        self._begun = [each for each in self._begun if each.due >= self._now]
        self.random.shuffle(due)
        for each in due:
            if not each.fails:
                self._move(each.job)
        return [(each.job, not each.fails) for each in due]

    def _move(self, job: CopyJob) -> None:
        for each in job.blocks:
            for name in self.groups[each.group].layers:
                if job.to_host:
                    self._host[name][each.row] = self.layers[name][each.block_id]
                else:
                    self.layers[name][each.block_id] = self._host[name][each.row]
