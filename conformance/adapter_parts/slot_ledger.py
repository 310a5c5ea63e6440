"""Slot ledger: which slots requests hold, over a free list of its own or the cache's allocator.

In an engine the scheduler knows which slots its requests hold; here the adapter does. The ledger
checks the slots of a call before it moves the first, and refuses the whole call.

What it must not do is hide a fault. It takes every slot back that the cache gives back, even one
that is free already or that a request holds, and takes none back that the cache forgets. So a slot
that the cache frees twice is allocated twice, and one that it leaks stays lost: the laws find both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, SupportsIndex

from attrs import define, field, frozen

from kvcanon.conformance.adapter_parts.arguments import check_allocate, check_insert, check_room
from kvcanon.conformance.adapter_parts.token_slots import page_slots, token_indices
from kvcanon.conformance.errors import UsageError
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument, OutOfSlots, SlotNotHeld
from kvcanon.spec.operations import Inserted
from kvcanon.spec.types import FULL, GPU, Component, Counts, Key, Slot, Slots


class FreeSlots(Protocol):
    """The free slots of one pool."""

    def count(self) -> int:
        """How many slots are free."""

    def take(self, count: int) -> Sequence[Slot] | None:
        """Take this many free slots; None if the pool does not give them."""

    def give_back(self, slots: Sequence[Slot]) -> None:
        """Free slots."""


class PlainFreeList:
    """Free slots in a plain list, for a cache whose engine keeps the free list elsewhere."""

    def __init__(self, capacity: int) -> None:
        self.slots = list(range(capacity))

    def count(self) -> int:
        """How many slots are free."""
        return len(self.slots)

    def take(self, count: int) -> Sequence[Slot]:
        """Take slots from the end of the list."""
        kept = len(self.slots) - count
        taken = self.slots[kept:]
        del self.slots[kept:]
        return taken

    def give_back(self, slots: Sequence[Slot]) -> None:
        """Add slots to the list, also those that it has already."""
        self.slots += slots


@frozen(eq=False)
class TokenAllocator:
    """Free slots of an allocator that counts in tokens, called with token indices."""

    alloc: Callable[[int], Iterable[SupportsIndex] | None]
    """Takes a number of tokens; returns an index for each, as a list or a tensor, or None."""
    free: Callable[[list[int]], object]
    """Frees token indices."""
    free_tokens: Callable[[], int]
    """How many tokens are free, as the allocator says."""
    page_size: int
    padding_pages: int = 0

    def count(self) -> int:
        """How many page slots are free."""
        return self.free_tokens() // self.page_size

    def take(self, count: int) -> Sequence[Slot] | None:
        """Allocate pages. Raises: NotWholePages."""
        indices = self.alloc(count * self.page_size)
        if indices is None:
            return None
        return page_slots(indices, self.page_size, self.padding_pages)

    def give_back(self, slots: Sequence[Slot]) -> None:
        """Free pages."""
        self.free(token_indices(slots, self.page_size, self.padding_pages))


@frozen(eq=False)
class CountedPool:
    """Free slots that only the cache's own allocator gives out, as one that gives out pairs.

    The adapter calls it between `SlotLedger.check_allocate` and `SlotLedger.hold`.
    """

    free_slots: Callable[[], int]
    """How many slots are free, as the allocator says."""

    def count(self) -> int:
        """How many slots are free."""
        return self.free_slots()

    def take(self, count: int) -> Sequence[Slot] | None:
        """None: call the allocator, and then `SlotLedger.hold`. Raises: UsageError."""
        raise UsageError(f"{count} slots are taken from a CountedPool; call the cache's allocator")

    def give_back(self, slots: Sequence[Slot]) -> None:
        """Nothing: call the allocator. Raises: UsageError."""
        raise UsageError(f"slots {slots} are given to a CountedPool; call the cache's allocator")


@define(eq=False)
class SlotLedger:
    """The slots that requests hold, and the free slots of each pool.

    It also knows which window slot a request holds for which full slot. Those of the cache are the
    cache's own.
    """

    free_slots: Mapping[Component, FreeSlots]
    """By component; a component that is missing is one that the cache lacks."""
    held: dict[Component, set[Slot]] = field(init=False)
    _pairs: dict[Slot, Slot] = field(factory=dict, init=False)
    """The window slot of each full slot that has one, while a request holds both."""
    _full_of: dict[Slot, Slot] = field(factory=dict, init=False)
    """The same, from the window slot."""

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.free_slots, Mapping):
            raise UsageError(
                f"SlotLedger.free_slots is {self.free_slots!r:.80}; give the free slots by "
                "component, as {Component.FULL: free_list}"
            )
        self.held = {component: set() for component in self.free_slots}

    @classmethod
    def of_config(cls, config: CacheConfig) -> SlotLedger:
        """A ledger with a plain free list for each component of a configuration."""
        return cls({each: PlainFreeList(config.device_slots[each]) for each in config.components})

    def allocate(self, counts: Counts) -> Slots:
        """Take free slots for a request, or none at all. Raises: BadArgument, OutOfSlots."""
        self.check_allocate(counts)
        taken: dict[str, tuple[Slot, ...]] = {}
        for component, free in self.free_slots.items():
            if counts[component]:
                taken[component] = self._take(component, free, counts[component])
        return self.hold(Slots(**taken))

    def check_allocate(self, counts: Counts) -> None:
        """Check that the counts are valid, and that enough slots are free. No effect.

        Raises: BadArgument, OutOfSlots.
        """
        check_allocate(counts, self.free_slots)
        for component, free in self.free_slots.items():
            check_room(_pool(component), counts[component], free.count())

    def hold(self, slots: Slots) -> Slots:
        """Note slots that a request got from the cache's own allocator; returns them."""
        for component, some in slots:
            if some:
                self.held[component].update(some)
        if slots.swa:
            paired = slots.full[-len(slots.swa) :]
            self._pairs.update(zip(paired, slots.swa, strict=True))
            self._full_of.update(zip(slots.swa, paired, strict=True))
        return slots

    def free(self, slots: Slots) -> None:
        """Free slots that requests hold, or none at all. Raises: BadArgument, SlotNotHeld."""
        self.hand_over(slots)
        for component, some in slots:
            self.give_back(some, component)

    def check_held(self, slots: Slots) -> None:
        """Check that requests hold all these slots, each given once. No effect.

        Raises: BadArgument: a slot is given twice, or its component is missing. SlotNotHeld.
        """
        for component, some in slots:
            if some and component not in self.held:
                raise BadArgument(f"slots.{component}", f"has slots; there is no {component} pool")
            if len(set(some)) < len(some):
                raise BadArgument(f"slots.{component}", "has a slot twice")
        for component, some in slots:
            for slot in some:
                if slot not in self.held[component]:
                    raise SlotNotHeld(_pool(component), slot)

    def check_insert(
        self, key: Key, start_pages: int, slots: Slots, counted_pages: int = 0
    ) -> None:
        """Check that an insert fits its key, and hands over whole pairs that requests hold.

        Raises: BadArgument: as `check_insert`, or a full slot is handed over without its window
            slot, or with another one. SlotNotHeld.
        """
        check_insert(key, start_pages, slots, counted_pages)
        self.check_held(slots)
        alone = len(slots.full) - len(slots.swa)
        for full, window in zip(slots.full, [*[None] * alone, *slots.swa], strict=True):
            if self._pairs.get(full) != window:
                raise BadArgument("slots.swa", f"has {window} for full slot {full}, not its own")

    def check_pairs_together(self, slots: Slots) -> None:
        """Check that full slots are freed with their window slots, by `Limit.PAIRS_TOGETHER`.

        Raises: BadArgument.
        """
        windows = {None, *slots.swa}
        for full in slots.full:
            if self._pairs.get(full) not in windows:
                raise BadArgument("slots.swa", f"lacks the window slot of full slot {full}")

    def full_slots_of(self, windows: Iterable[Slot]) -> tuple[Slot, ...]:
        """The full slots that requests hold with these window slots, as an engine names them."""
        return tuple(self._full_of[window] for window in windows)

    def check_writable(self, component: Component, slot: Slot) -> None:
        """Check that a request holds a slot that is to be written. Raises: SlotNotHeld."""
        if slot not in self.held.get(component, ()):
            raise SlotNotHeld(_pool(component), slot)

    def hand_over(self, slots: Slots) -> None:
        """Take slots from their requests: now the cache owns them. Raises: as `check_held`."""
        self.check_held(slots)
        for component, some in slots:
            if some:
                self.held[component].difference_update(some)
        for full in (*slots.full, *(self._full_of.get(window) for window in slots.swa)):
            if full in self._pairs:
                self._full_of.pop(self._pairs.pop(full), None)

    def give_back(self, slots: Iterable[Slot], component: Component = FULL) -> None:
        """Free slots that the cache owned: what it evicted, or did not keep."""
        listed = list(slots)
        if listed:
            self.free_slots[component].give_back(listed)

    def insert_done(self, slots: Slots, start_pages: int, present_pages: int) -> Inserted:
        """Move the slots of an insert, for a cache that answers how many pages it had already.

        The cache keeps the slots from page `present_pages` on. Those before it are duplicates,
        which the scheduler frees. Full slots alone. Raises: as `check_held`.
        """
        self.hand_over(slots)
        duplicates = max(0, present_pages - start_pages)
        surplus, kept = slots.full[:duplicates], slots.full[duplicates:]
        self.give_back(surplus)
        return Inserted(present_pages, Counts(len(kept)), Counts(len(surplus)))

    def insert_counted(self, slots: Slots, present_pages: int, before: Counts) -> Inserted:
        """Move the slots of an insert, for a cache that frees the duplicates by itself.

        `before` is what `counts` answered before it. Raises: as `check_held`.
        """
        self.hand_over(slots)
        freed = self.counts() - before
        return Inserted(present_pages, slots.counts() - freed, freed)

    def counts(self) -> Counts:
        """How many slots of each pool are free, as its free list says."""
        return Counts.of({component: free.count() for component, free in self.free_slots.items()})

    def _take(self, component: Component, free: FreeSlots, count: int) -> tuple[Slot, ...]:
        taken = free.take(count)
        if taken is None:
            # An allocator that contradicts its own count: the judge compares both.
            raise OutOfSlots(_pool(component), count, free.count())
        return tuple(taken)


def _pool(component: Component) -> str:
    return f"{component} on {GPU}"
