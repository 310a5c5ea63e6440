"""Copies between blocks and host rows that end late, out of order, failing, or at a deadline.

The bytes move when the copy ends, which is the worst moment that a copy may choose: what was read
too early or overwritten too soon shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
class BlockCopy:
    """Blocks that are copied together."""

    number: int
    blocks: tuple[CopiedBlock, ...]
    to_host: bool
    request_id: str = ""
    """Whom a load is for."""
    after: frozenset[int] = frozenset()
    """Copies that must have ended before it moves its bytes."""


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
    copy: BlockCopy
    due: int
    fails: bool
    moved: bool = False


@define
class LateCopies:
    """The copies of one rank."""

    layers: Mapping[str, NDArray[np.int64]]
    groups: Sequence[CachedLayers]
    rows: int
    times: CopyTimes
    random: Random
    _host: dict[str, NDArray[np.int64]] = Factory(dict)
    _begun: dict[int, _Begun] = Factory(dict)
    _failed: set[int] = Factory(set)
    _now: int = 0

    def __attrs_post_init__(self) -> None:
        for name, layer in self.layers.items():
            self._host[name] = np.full((self.rows, *layer.shape[1:]), -2, np.int64)

    def begin(self, copy: BlockCopy) -> None:
        """Begin a copy."""
        times = self.times
        lost = self.random.random() < times.lost
        fails = lost or (not copy.to_host and self.random.random() < times.failing)
        delay = DEADLINE_STEPS if lost else self.random.randint(0, times.latest_steps)
        self._begun[copy.number] = _Begun(copy, self._now + delay, fails)

    def end_now(self, numbers: Iterable[int]) -> None:
        """Move the bytes of copies that did not end yet; that they ended is said later."""
        for number in numbers:
            begun = self._begun.get(number)
            if begun is not None and not begun.moved:
                self._end(begun)

    def tick(self) -> list[tuple[BlockCopy, bool]]:
        """Let a step pass. Returns: the copies that ended, each with whether it moved its bytes."""
        self._now += 1
        due = [each for each in self._begun.values() if each.due < self._now]
        self.random.shuffle(due)
        ended = []
        for each in due:
            if any(number in self._begun for number in each.copy.after):
                continue
            if not each.moved:
                self._end(each)
            del self._begun[each.copy.number]
            ended.append((each.copy, not each.fails))
        return ended

    def page_in(self, row: int, group: int) -> dict[str, NDArray[np.int64]]:
        """What a row has now of the layers of a group."""
        return {name: self._host[name][row].copy() for name in self.groups[group].layers}

    def put_page(self, row: int, page: Mapping[str, NDArray[np.int64]]) -> None:
        """Fill a row."""
        for name, content in page.items():
            self._host[name][row] = content

    def _end(self, begun: _Begun) -> None:
        copy = begun.copy
        begun.moved = True
        # A load of rows that were not filled cannot be right.
        begun.fails = begun.fails or bool(copy.after & self._failed)
        if begun.fails:
            self._failed.add(copy.number)
            return
        for each in copy.blocks:
            for name in self.groups[each.group].layers:
                if copy.to_host:
                    self._host[name][each.row] = self.layers[name][each.block_id]
                else:
                    self.layers[name][each.block_id] = self._host[name][each.row]
