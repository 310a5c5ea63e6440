"""Page records: what inserts, matches, free lists and events have shown of each page.

A page is identified by all tokens up to its end. It has data in a slot from the insert that put it
there until the slot is seen free. Less is known of the host: full data by events, other data by the
copies that may have been made.

"Unknown" is a value: if the cache could choose either way, both are lawful until one is seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import IntEnum
from typing import TypeAlias

from attrs import Factory, define

from kvcanon.conformance.judge.explain import key_in_words
from kvcanon.spec.hashing import namespace_seed, page_hash
from kvcanon.spec.oracle.prefix import usable_prefix
from kvcanon.spec.types import Component, Key, Namespace, Slot
from kvcanon.spec.types import Page as Units
from kvcanon.spec.views import COLUMN

Column: TypeAlias = int
"""A component, as a number: full, swa, mamba."""

ALL_COLUMNS = (0, 1, 2)
FULL_COLUMN, SWA_COLUMN, MAMBA_COLUMN = ALL_COLUMNS

SOMEWHERE: Slot = -1
"""A slot of unknown number."""


class Certainty(IntEnum):
    """How sure it is that something is true."""

    NO = 0
    MAYBE = 1
    YES = 2


@define(eq=False)
class PageRecord:
    """What is known of one page."""

    units: Units
    namespace: Namespace
    parent: PageRecord | None
    depth: int
    """How many pages are before it."""
    hash: bytes
    run: int
    """The operation that inserted the page; pages of one operation may be one node."""
    children: dict[Units, PageRecord] = Factory(dict)
    device: list[Slot | None] = Factory(lambda: [None, None, None])
    device_before: list[Slot | None] = Factory(lambda: [None, None, None])
    """The slots of the data that was on the device last, and is gone."""
    loading: list[bool] = Factory(lambda: [False, False, False])
    """Whether the data is still being copied to the device."""
    doubtful: list[bool] = Factory(lambda: [False, False, False])
    """Whether device data may have been evicted unseen."""
    host: list[Certainty] = Factory(lambda: [Certainty.NO, Certainty.NO, Certainty.NO])
    used_from: list[int] = Factory(lambda: [0, 0, 0])
    """The earliest possible time of the last use; `used_to` is the latest."""
    used_to: list[int] = Factory(lambda: [0, 0, 0])
    hazy: bool = False
    """Whether it may have been evicted and inserted again, so that its age and hits are unknown."""
    hits: int = 0
    hits_at_most: int = 0
    priority: int = 0
    content: list[set[bytes]] = Factory(lambda: [set(), set(), set()])
    """The bytes that it may have, by column; empty where they are unknown."""

    def surely_on_device(self, column: Column) -> bool:
        """Whether data is surely on the device."""
        there = self.device[column] is not None
        return there and not self.loading[column] and not self.doubtful[column]

    def maybe_on_device(self, column: Column) -> bool:
        """Whether data may be on the device."""
        return self.device[column] is not None and not self.loading[column]

    def surely_anywhere(self, column: Column) -> bool:
        """Whether data is surely on some medium."""
        loading = self.loading[column] and not self.doubtful[column]
        return self.surely_on_device(column) or loading or self.host[column] is Certainty.YES

    def maybe_anywhere(self, column: Column) -> bool:
        """Whether data may be on some medium."""
        return self.device[column] is not None or self.host[column] is not Certainty.NO

    def lose(self, column: Column) -> None:
        """Record that its device data is gone."""
        if self.device[column] is not None:
            self.device_before[column] = self.device[column]
        self.device[column] = None
        self.loading[column] = self.doubtful[column] = False
        self.forget_content(column)

    def lose_on_host(self, column: Column) -> None:
        """Record that its host data is gone."""
        self.host[column] = Certainty.NO
        self.forget_content(column)

    def forget_content(self, column: Column) -> None:
        """Forget the bytes of data that is on no medium any more."""
        if self.device[column] is None and self.host[column] is Certainty.NO:
            self.content[column].clear()

    def use(self, column: Column, now: int, *, surely: bool = True) -> None:
        """Record that it was used now, or may have been."""
        self.used_to[column] = now
        if surely:
            self.used_from[column] = now

    def come_back(self, run: int) -> None:
        """Record that it is inserted again; if it was evicted, it is a new page."""
        if self.surely_anywhere(FULL_COLUMN):
            return
        self.hazy = self.maybe_anywhere(FULL_COLUMN)
        if not self.hazy:
            self.run, self.hits, self.hits_at_most, self.priority = run, 0, 0, 0

    def describe(self, column: Column = FULL_COLUMN) -> str:
        """Return the page as text: its prompt up to it, and where its data is or was."""
        pages = [self.units]
        above = self.parent
        while above is not None:
            pages.append(above.units)
            above = above.parent
        key = key_in_words(Key(tuple(reversed(pages)), self.namespace))
        return f"page {self.depth} of {key}{self._describe_place(column)}"

    def _describe_place(self, column: Column) -> str:
        name = tuple(COLUMN)[column]
        slot, before = self.device[column], self.device_before[column]
        if slot is not None:
            return f" ({name} slot {slot})" if slot != SOMEWHERE else " (on the device)"
        if self.host[column] is Certainty.YES:
            return " (on the host)"
        known = before is not None and before != SOMEWHERE
        return f" (was in {name} slot {before})" if known else ""


class PageRecords:
    """All pages that were ever inserted, by their tokens and by their hashes."""

    def __init__(self) -> None:
        self._roots: dict[Namespace, dict[Units, PageRecord]] = {}
        self.by_hash: dict[bytes, PageRecord] = {}

    def __iter__(self) -> Iterator[PageRecord]:
        return iter(self.by_hash.values())

    def path(self, key: Key) -> list[PageRecord]:
        """Return the known leading pages of a key."""
        found: list[PageRecord] = []
        children = self._roots.get(key.namespace, {})
        for units in key.pages:
            page = children.get(units)
            if page is None:
                break
            found.append(page)
            children = page.children
        return found

    def path_made(self, key: Key, run: int) -> list[PageRecord]:
        """Return all pages of a key; new ones belong to the operation `run`."""
        path = self.path(key)
        for page in path:
            page.come_back(run)
        for units in key.pages[len(path) :]:
            parent = path[-1] if path else None
            before = namespace_seed(key.namespace) if parent is None else parent.hash
            page = PageRecord(
                units, key.namespace, parent, len(path), page_hash(before, units), run
            )
            siblings = (
                self._roots.setdefault(key.namespace, {}) if parent is None else parent.children
            )
            siblings[units] = page
            self.by_hash[page.hash] = page
            path.append(page)
        return path

    def clear(self) -> None:
        """Forget all pages."""
        self._roots.clear()
        self.by_hash.clear()

    def forget_gone(self) -> None:
        """Forget pages that have neither data nor pages below them."""
        for page in reversed(list(self.by_hash.values())):
            if not page.children and not page.maybe_anywhere(FULL_COLUMN):
                siblings = (
                    self._roots[page.namespace] if page.parent is None else page.parent.children
                )
                del siblings[page.units], self.by_hash[page.hash]


Has: TypeAlias = Callable[[PageRecord, Column], bool]
"""Whether a page has data of a component; the function decides how sure it must be."""


def present_pages(path: Sequence[PageRecord], has: Has) -> int:
    """Return how many leading pages of a path have full data."""
    for count, page in enumerate(path):
        if not has(page, FULL_COLUMN):
            return count
    return len(path)


def usable(
    path: Sequence[PageRecord],
    has: Sequence[Sequence[bool]],
    window_pages_units: tuple[int, int],
    columns: Iterable[Column],
) -> int:
    """Return the usable prefix of a path in pages; `has` says by column which page has data."""
    page_size, window_tokens = window_pages_units
    every = (True,) * len(path)
    full, swa, state = (tuple(has[c]) if c in columns else every for c in ALL_COLUMNS)
    return usable_prefix((page_size,) * len(path), full, swa, state, window_tokens) // page_size


def columns_of(components: Iterable[Component]) -> tuple[Column, ...]:
    """Return components as columns."""
    return tuple(COLUMN[component] for component in components)
