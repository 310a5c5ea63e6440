"""The pages on the host: their rows, who holds them, and which leaves first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet

from attrs import Factory, define, field

from kvcanon.optimized.vllm.pages import Page, PageKey
from kvcanon.optimized.vllm.tier_counts import TierCounts


@define(eq=False)
class KeptPage:
    """A page on the host."""

    page: Page
    row: int
    pins: int = 0
    """Answers and loads that need it: its row is not used for another page."""
    moved: bool = False
    """Whether a load has brought it to the device, under write_back."""
    found: bool = True
    """Whether prompts find it still; a pinned page outlives that."""


@define(eq=False)
class HostPages:
    """All pages on the host, least recently used first."""

    rows: int
    on_removal: Callable[[Page], None]
    """Told of each page that can be found no more."""
    counts: TierCounts
    _found: dict[PageKey, KeptPage] = Factory(dict)
    _evictable: OrderedDict[PageKey, KeptPage] = Factory(OrderedDict)
    """Those that nothing pins."""
    _free: list[int] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._free = list(range(self.rows - 1, -1, -1))

    def __contains__(self, key: PageKey) -> bool:
        return key in self._found

    def __len__(self) -> int:
        return len(self._found)

    @property
    def pinned(self) -> int:
        """How many pages that can be found are pinned."""
        return len(self._found) - len(self._evictable)

    def keys(self) -> AbstractSet[PageKey]:
        """The pages that can be found."""
        return self._found.keys()

    def get(self, key: PageKey) -> KeptPage | None:
        """The page of a key."""
        return self._found.get(key)

    def use(self, key: PageKey) -> None:
        """Make a page the most recently used."""
        if key in self._evictable:
            self._evictable.move_to_end(key)

    def take_row(self) -> int | None:
        """A row for a new page. Evicts the page that was used longest ago, if no row is free.

        Returns: None where everything is pinned or being filled.
        """
        if not self._free:
            if not self._evictable:
                return None
            self.counts.evicted_pages += 1
            self.remove(next(iter(self._evictable)))
        return self._free.pop()

    def add(self, page: Page, row: int) -> KeptPage:
        """Let a page be found whose bytes are in a row."""
        added = KeptPage(page, row)
        self._found[page.key] = self._evictable[page.key] = added
        return added

    def add_unfound(self, page: Page, row: int, holders: int) -> KeptPage:
        """Keep a row that nobody shall find for so many loads that read it."""
        if not holders:
            self._free.append(row)
        return KeptPage(page, row, found=False)

    def pin(self, pages: Iterable[KeptPage]) -> None:
        """Hold pages for an answer, or for a load."""
        for each in pages:
            each.pins += 1
            self._evictable.pop(each.page.key, None)

    def unpin(self, pages: Iterable[KeptPage]) -> None:
        """Let go of pages; give them in order, since the last of a prompt leaves first."""
        for each in reversed(list(pages)):
            each.pins -= 1
            if each.pins:
                continue
            if each.found:
                self._evictable[each.page.key] = each
            else:
                self._free.append(each.row)

    def remove(self, key: PageKey) -> None:
        """Let a page be found no more; its row comes free once nothing pins it."""
        removed = self._found.pop(key, None)
        if removed is None:
            return
        removed.found = False
        if self._evictable.pop(key, None) is not None:
            self._free.append(removed.row)
        self.on_removal(removed.page)

    def drop(self, hosted: KeptPage) -> None:
        """Remove a page, unless that was done before."""
        if hosted.found:
            self.remove(hosted.page.key)

    def clear(self) -> None:
        """Remove all pages."""
        for key in list(self._found):
            self.remove(key)
