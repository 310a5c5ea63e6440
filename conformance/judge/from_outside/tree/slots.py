"""Slot records: the owner of each device slot by the cache's own answers.

The answers say which slots were allocated, inserted and freed. If the free list says otherwise, the
cache contradicts itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import islice
from typing import TypeAlias

from attrs import frozen

from kvcanon.conformance.judge.answers import require_answer
from kvcanon.conformance.judge.from_outside.tree.pages import (
    ALL_COLUMNS,
    SWA_COLUMN,
    Column,
    PageRecord,
)
from kvcanon.spec.cache import Cache
from kvcanon.spec.config import CacheConfig, Profile
from kvcanon.spec.errors import CacheError
from kvcanon.spec.operations import (
    Allocate,
    Evict,
    Evicted,
    Free,
    Insert,
    Inserted,
    LoadBack,
    LoadedBack,
    Operation,
)
from kvcanon.spec.types import CPU, FULL, GPU, MAMBA, SWA, Component, Counts, Slot, Slots

COMPONENTS = (FULL, SWA, MAMBA)


@frozen
class HeldSlot:
    """A request has the slot."""


@frozen
class Loading:
    """A load-back has taken the slot, for one of its pages."""


HELD, LOADING = HeldSlot(), Loading()

Owner: TypeAlias = PageRecord | HeldSlot | Loading


@frozen
class FreeList:
    """The free slots of a pool, as the cache shows them."""

    slots: frozenset[Slot]
    right: bool
    """Whether there are as many as expected, each of them once."""
    in_words: str
    """How many there are, as "3 are"."""


class SlotRecords:
    """The owner of each device slot; a slot without an owner is free."""

    def __init__(
        self,
        cache: Cache,
        config: CacheConfig,
        profile: Profile,
        *,
        shown: bool,
        unobserved: bool = False,
    ) -> None:
        """The slots of pages are known but for caches that act on their own: no answer says so."""
        traced = not (profile.acts_unasked or unobserved)
        self._cache = cache
        self._shown = shown and traced
        self.capacity = [config.capacity(component, GPU) for component in COMPONENTS]
        self.owners: list[dict[Slot, Owner]] = [{}, {}, {}]
        self._of_pages: list[dict[Slot, PageRecord]] = [{}, {}, {}]
        """The slots of pages, which are few compared with those that requests may hold."""
        self._typed: set[Column] = set()
        """Columns whose free slots were checked for their type."""
        hidden = () if shown else (SWA_COLUMN,)
        self.unseen = frozenset(hidden if traced else ALL_COLUMNS)
        """Columns whose free slots are not visible: window slots are allocated only together with
        full slots, so that allocating all of them is not always possible."""

        self._reserved = [frozenset(self._never_free(each, profile)) for each in ALL_COLUMNS]
        self.room: Counts | None = None
        """How many slots of each pool are free by the counts of all answers; None if the free
        slots themselves are looked at, or no answer says what becomes free."""
        if unobserved and not profile.acts_unasked:
            self.room = Counts(*map(self.free_count, ALL_COLUMNS))

    def _never_free(self, column: Column, profile: Profile) -> Iterable[Slot]:
        """The slots that a new cache keeps for itself, as many as its profile says."""
        component, capacity = COMPONENTS[column], self.capacity[column]
        count = min(profile.reserved_slots[component], capacity)
        if not count or column in self.unseen:
            return range(count)
        seen = self.free_list(column, capacity - count)
        return [slot for slot in range(capacity) if slot not in seen.slots][:count]

    def free_count(self, column: Column) -> int:
        """Return how many slots are free by these records."""
        return self.capacity[column] - len(self._reserved[column]) - len(self.owners[column])

    def has_room(self, column: Column, count: int) -> bool:
        """Whether at least this many slots of a pool are certainly free."""
        if self.room is not None:
            return self.room[COMPONENTS[column]] >= count
        return self.free_count(column) >= count and (column not in self.unseen or not count)

    def free_list(self, column: Column, expected: int) -> FreeList:
        """Return the free slots: as the cache shows them, or found by allocating and freeing all.

        `expected` is how many there should be.
        """
        component = COMPONENTS[column]
        if self._shown:
            shown = self._cache.free_slots(component, GPU)
            if column not in self._typed:
                # Pools may be large, and a cache answers with the same types each time.
                self._typed.add(column)
                require_answer("free_slots", shown)
            slots = frozenset(shown)
            twice = ", some of them listed twice" if len(shown) != len(slots) else ""
            right = len(shown) == len(slots) == expected
            return FreeList(slots, right, f"{len(slots)} are{twice}")
        if expected < 0 or self._take(component, expected + 1) is not None:
            return FreeList(frozenset(), right=False, in_words="an allocation shows that more are")
        taken = self._take(component, expected)
        right = len(set(taken or ())) == expected
        return FreeList(frozenset(taken or ()), right, "an allocation shows that fewer are")

    def _take(self, component: Component, count: int) -> tuple[Slot, ...] | None:
        """Allocate `count` slots and free them; None if that is refused."""
        try:
            taken = self._cache.allocate(Counts(**{component.value: count}))
        except CacheError:
            return None
        require_answer("allocate", taken)
        self._cache.free(taken)
        return taken[component]

    def free_on_host(self) -> list[int] | None:
        """Return the number of free host slots by component; None if the cache does not show it."""
        if not self._shown:
            return None
        return [len(self._cache.free_slots(component, CPU)) for component in COMPONENTS]

    def pages_in(self, column: Column) -> list[tuple[Slot, PageRecord]]:
        """Return the slots of pages, with the pages."""
        return list(self._of_pages[column].items())

    def owned(self, column: Column, slots: frozenset[Slot]) -> list[Slot]:
        """Return those of the slots that have an owner, in order."""
        return sorted(slots & self.owners[column].keys())

    def give(self, column: Column, slots: Collection[Slot], owner: Owner) -> None:
        """Set the owner of slots."""
        self.owners[column].update(dict.fromkeys(slots, owner))
        if isinstance(owner, PageRecord):
            self._of_pages[column].update(dict.fromkeys(slots, owner))
        else:
            for slot in self._of_pages[column].keys() & slots:
                del self._of_pages[column][slot]

    def free(self, column: Column, slots: Iterable[Slot]) -> None:
        """Remove the owner of slots."""
        for slot in slots:
            self.owners[column].pop(slot, None)
            self._of_pages[column].pop(slot, None)

    def mark_loading(self, column: Column, free: Collection[Slot], count: int) -> None:
        """Mark `count` slots as taken by a load: they had no owner, and are not free now."""
        taken = (
            slot
            for slot in range(self.capacity[column] if count else 0)
            if slot not in self.owners[column] and slot not in free
            if slot not in self._reserved[column]
        )
        self.give(column, tuple(islice(taken, count)), LOADING)

    def settle_on(self, column: Column, slot: Slot, page: PageRecord) -> None:
        """Make a page the owner of one slot; its other slots were taken by loads."""
        others = [each for each, owner in self._of_pages[column].items() if owner is page]
        self.give(column, others, LOADING)
        self.give(column, (slot,), page)

    def describe_owner(self, column: Column, slot: Slot) -> str:
        """Return the owner of a slot as text."""
        owner = self.owners[column].get(slot)
        if owner is None:
            return "free"
        if isinstance(owner, PageRecord):
            return f"that of {owner.describe()}"
        return "a request's" if owner is HELD else "being loaded"

    def reset(self) -> None:
        """Free all slots of the tree."""
        for column in ALL_COLUMNS:
            kept: dict[Slot, Owner] = {
                slot: owner for slot, owner in self.owners[column].items() if owner is HELD
            }
            self.owners[column] = kept
            self._of_pages[column].clear()


def count_room(slots: SlotRecords, operation: Operation, answer: object) -> None:
    """Count what an answer says of the slots that are free now."""
    if slots.room is None:
        return
    freed, taken = Counts(), Counts()
    match operation, answer:
        case Allocate(), Slots():
            taken = answer.counts()
        case Free(), _:
            freed = operation.slots.counts()
        case Insert(), Inserted():
            freed = answer.freed
        case Evict(), Evicted():
            freed = answer.freed
        case LoadBack(), LoadedBack():
            freed, taken = answer.evicted, answer.loading
    slots.room -= taken - freed
