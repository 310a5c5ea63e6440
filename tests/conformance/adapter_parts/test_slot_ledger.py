"""The slot ledger: refuses wrong slots before it moves any, and hides no fault of a cache."""

from __future__ import annotations

from time import process_time
from typing import Any

import pytest

from kvcanon.conformance.adapter_parts.slot_ledger import PlainFreeList, SlotLedger, TokenAllocator
from kvcanon.conformance.adapter_parts.token_slots import NotWholePages
from kvcanon.conformance.errors import UsageError
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument, CacheError, OutOfSlots, SlotNotHeld
from kvcanon.spec.operations import Inserted
from kvcanon.spec.types import FULL, MAMBA, Counts, Slots

CONFIG = CacheConfig(mamba=True, device_slots=Counts(full=4, swa=0, mamba=2))


@pytest.fixture(name="ledger")
def new_ledger() -> SlotLedger:
    """Four full slots and two mamba slots."""
    return SlotLedger.of_config(CONFIG)


def test_allocated_slots_are_held_until_they_are_freed(ledger: SlotLedger) -> None:
    """Allocated slots leave the free lists, and come back when they are freed."""
    slots = ledger.allocate(Counts(full=3, mamba=1))
    assert slots.counts() == Counts(full=3, mamba=1)
    assert ledger.counts() == Counts(full=1, mamba=1)
    assert ledger.held == {FULL: set(slots.full), MAMBA: set(slots.mamba)}
    ledger.free(slots)
    assert ledger.counts() == Counts(full=4, mamba=2)
    assert ledger.held == {FULL: set(), MAMBA: set()}


def test_a_large_pool_is_dealt_slot_by_slot_in_little_time() -> None:
    """To take a slot does not copy the free list: 66,200 of them take less than a second."""
    free = PlainFreeList(66_200)
    began = process_time()
    taken = [free.take(1)[0] for _ in range(66_200)]
    assert taken == list(reversed(range(66_200)))
    assert process_time() - began < 1.0


@pytest.mark.parametrize(
    ("counts", "error"),
    [
        (Counts(full=5), OutOfSlots),
        (Counts(full=1, mamba=3), OutOfSlots),
        (Counts(full=-1), BadArgument),
        (Counts(full=1, mamba=-1), BadArgument),
        (Counts(full=1, swa=1), BadArgument),
    ],
)
def test_refused_allocation_takes_nothing(
    ledger: SlotLedger, counts: Counts, error: type[CacheError]
) -> None:
    """An allocation that one pool cannot serve takes nothing from the others."""
    with pytest.raises(error):
        ledger.allocate(counts)
    assert ledger.counts() == Counts(full=4, mamba=2)
    assert not ledger.held[FULL]


def wrong_slots(held: Slots) -> list[tuple[Slots, type[CacheError]]]:
    """Slots of which one is wrong, with the refusal that they get."""
    free = next(slot for slot in range(4) if slot not in held.full)
    return [
        (Slots((*held.full, free)), SlotNotHeld),
        (Slots((free, *held.full)), SlotNotHeld),
        (Slots((*held.full, held.full[0])), BadArgument),
        (Slots(held.full, mamba=(99,)), SlotNotHeld),
        (Slots(held.full, swa=(0,)), BadArgument),
        (Slots(held.full, mamba=(-1,)), SlotNotHeld),
    ]


@pytest.mark.parametrize("case", range(6))
def test_refused_free_frees_nothing(ledger: SlotLedger, case: int) -> None:
    """A free with one wrong slot, in whatever place, frees none of the others."""
    held = ledger.allocate(Counts(full=2))
    slots, error = wrong_slots(held)[case]
    for call in (ledger.free, ledger.check_held, ledger.hand_over):
        with pytest.raises(error):
            call(slots)
        assert ledger.counts() == Counts(full=2, mamba=2)
        assert ledger.held[FULL] == set(held.full)


def test_insert_frees_the_duplicates_alone(ledger: SlotLedger) -> None:
    """The slots of pages that the cache had are free, and those that it kept are nobody's."""
    slots = ledger.allocate(Counts(full=3))
    done = ledger.insert_done(slots, start_pages=2, present_pages=3)
    assert done == Inserted(3, adopted=Counts(full=2), freed=Counts(full=1))
    assert ledger.counts().full == 2
    assert ledger.allocate(Counts(full=2)).full[-1] == slots.full[0]
    with pytest.raises(SlotNotHeld):
        ledger.free(Slots(slots.full[1:]))


def test_slot_that_the_cache_frees_twice_is_free_twice(ledger: SlotLedger) -> None:
    """The ledger does not mend a double free: the slot is given to two requests."""
    slots = ledger.allocate(Counts(full=4))
    ledger.insert_done(slots, 0, 0)
    ledger.give_back([2])
    ledger.give_back([2])
    assert ledger.allocate(Counts(full=2)).full == (2, 2)


def test_slot_that_the_cache_takes_from_a_request_is_free(ledger: SlotLedger) -> None:
    """The ledger does not mend a free of a held slot: it is given to another request."""
    slots = ledger.allocate(Counts(full=4))
    ledger.give_back(slots.full[:1])
    assert ledger.allocate(Counts(full=1)).full == slots.full[:1]


def test_only_held_slots_may_be_written(ledger: SlotLedger) -> None:
    """A write to a free slot, or to one of a missing component, is refused."""
    slots = ledger.allocate(Counts(full=1))
    ledger.check_writable(FULL, slots.full[0])
    for component, slot in ((FULL, 99), (MAMBA, 0)):
        with pytest.raises(SlotNotHeld):
            ledger.check_writable(component, slot)


class PagedAllocator:
    """Somebody's allocator: pages of two tokens, the first of which is padding."""

    def __init__(self) -> None:
        self.pages = [1, 2, 3]

    def alloc(self, tokens: int) -> list[int] | None:
        """Indices of tokens, or None."""
        pages, self.pages = self.pages[: tokens // 2], self.pages[tokens // 2 :]
        return [index for page in pages for index in (2 * page, 2 * page + 1)]

    def free(self, indices: list[int]) -> None:
        """Free the pages of indices."""
        self.pages += [index // 2 for index in indices[::2]]

    def available(self) -> int:
        """Free tokens."""
        return 2 * len(self.pages)


def ledger_over(allocator: PagedAllocator) -> SlotLedger:
    """A ledger whose free slots are those of an allocator."""
    free = TokenAllocator(
        allocator.alloc, allocator.free, allocator.available, page_size=2, padding_pages=1
    )
    return SlotLedger({FULL: free})


def test_allocator_of_a_cache_has_the_free_slots() -> None:
    """Slots are taken from the allocator's tokens, and given back to it."""
    allocator = PagedAllocator()
    ledger = ledger_over(allocator)
    slots = ledger.allocate(Counts(full=2))
    assert slots == Slots((0, 1))
    assert allocator.pages == [3]
    with pytest.raises(OutOfSlots):
        ledger.allocate(Counts(full=2))
    ledger.free(slots)
    assert allocator.pages == [3, 1, 2]


def test_allocator_that_contradicts_itself_is_not_helped() -> None:
    """An allocator that has room and gives nothing is out of slots; torn pages are an error."""
    stingy = TokenAllocator(lambda _: None, list.clear, lambda: 6, page_size=2)
    with pytest.raises(OutOfSlots, match="1 slots asked, 3 free"):
        SlotLedger({FULL: stingy}).allocate(Counts(full=1))
    tearing = TokenAllocator(lambda _: [3, 4], list.clear, lambda: 6, page_size=2)
    with pytest.raises(NotWholePages, match=r"\[3, 4\] are not those of whole pages of 2 tokens"):
        SlotLedger({FULL: tearing}).allocate(Counts(full=1))


def test_plain_list_gives_and_takes_at_its_end() -> None:
    """A plain list takes what it is given, even a slot that it has."""
    free = PlainFreeList(3)
    assert list(free.take(0)) == []
    assert list(free.take(2)) == [1, 2]
    free.give_back([0])
    assert free.slots == [0, 0]
    assert free.count() == 2


def test_free_list_without_a_component_is_refused() -> None:
    """A free list that is not given by component is refused in one line that says how."""
    wrong: Any = PlainFreeList(3)
    with pytest.raises(UsageError, match=r"as \{Component.FULL: free_list\}"):
        SlotLedger(wrong)
