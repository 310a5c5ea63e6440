"""What workers are told of pages and the disk, and what they answer."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import Factory, define, frozen

DiskPage = tuple[bytes, int]
"""The name of a page on the disk, and its group of layers."""


@frozen
class DiskJob:
    """Pages that are read from the disk into host rows, or written there, together."""

    number: int
    """No other job of the tier ever has it."""
    rows: Sequence[int]
    pages: Sequence[DiskPage]
    to_disk: bool
    parents: Sequence[bytes | None] = ()
    """For a write the name before that of each page."""


@define
class RankNews:
    """What a rank says of its disk."""

    pages: dict[DiskPage, bool] = Factory(dict)
    """Whether a page is there, of those that came or left since it last said so."""
    is_usable: bool = True
    """False while it is left alone, since it failed."""

    def update(self, later: RankNews) -> None:
        """Take over what came later."""
        self.pages |= later.pages
        self.is_usable = later.is_usable


@define
class DiskNews:
    """What the ranks say of their disks."""

    ranks: dict[int, RankNews] = Factory(dict)

    def aggregate(self, other: DiskNews) -> DiskNews:
        """What both say."""
        return DiskNews({**self.ranks, **other.ranks})


@define(eq=False)
class DiskIndex:
    """Which pages the disks of all ranks have, as the ranks have said."""

    ranks: int
    is_known: bool = False
    """Whether all ranks have said what they have."""
    count: int = 0
    """Pages that are there on all ranks."""
    _there: dict[bytes, int] = Factory(dict)
    """For each name a bit for each group and rank."""
    _usable: dict[int, bool] = Factory(dict)

    @property
    def is_usable(self) -> bool:
        """Whether the disk of every rank may be asked."""
        return self.is_known and all(self._usable.values())

    def has(self, page: DiskPage) -> bool:
        """Whether all ranks have a page."""
        name, group = page
        every = self._every_rank(group)
        return self._there.get(name, 0) & every == every

    def leading(self, names: Sequence[bytes], group: int, first: int, end: int) -> int:
        """Where a run of pages that all ranks have ends."""
        every, there = self._every_rank(group), self._there
        while first < end and there.get(names[first], 0) & every == every:
            first += 1
        return first

    def take(self, news: DiskNews) -> int:
        """Take what ranks say. Returns: how many pages all ranks have now that had them not."""
        came = 0
        for rank, said in news.ranks.items():
            self._usable[rank] = said.is_usable
            for (name, group), is_there in said.pages.items():
                bit, every = 1 << (group * self.ranks + rank), self._every_rank(group)
                before = self._there.get(name, 0)
                now = before | bit if is_there else before & ~bit
                if now:
                    self._there[name] = now
                else:
                    self._there.pop(name, None)
                change = (now & every == every) - (before & every == every)
                self.count += change
                came += change > 0
        self.is_known = len(self._usable) == self.ranks
        return came

    def _every_rank(self, group: int) -> int:
        """The bits of a group."""
        return ((1 << self.ranks) - 1) << (group * self.ranks)
