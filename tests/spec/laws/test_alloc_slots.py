"""ALLOC-4 to ALLOC-6, ALLOC-9 to ALLOC-11: the mapping, allocations and inserts."""

from __future__ import annotations

import pytest
from attrs import evolve

from alloc_cases import CONFIG, KEY, TIP, TOP, orphaned, state, with_pool
from kvcanon.spec.config import CANON, CacheConfig, Profile
from kvcanon.spec.errors import OutOfSlots
from kvcanon.spec.operations import (
    Allocate,
    Free,
    Insert,
    Inserted,
    Lock,
    Refused,
    Reset,
)
from kvcanon.spec.snapshot import NodeState, Snapshot
from kvcanon.spec.types import (
    FULL,
    MAMBA,
    SWA,
    Counts,
    Slot,
    Slots,
)
from states import ROOT, node, on, state_of
from telling import ask, step


def test_alloc_4_mapping_leads_to_the_page_s_own() -> None:
    """A mapping of pages, requests' slots and a cancelled copy's slots holds."""
    assert ask("ALLOC-4", state()) == []
    paired = evolve(orphaned(), swa_of_full={**orphaned().swa_of_full, 4: 2})
    assert ask("ALLOC-4", paired) == []
    no_window = state_of(CacheConfig(), node(1, ROOT, [1], full=on([0])))
    assert ask("ALLOC-4", evolve(no_window, swa_of_full={0: 0})) == []


@pytest.mark.parametrize(
    ("mapping", "said"),
    [
        ({3: 6}, "page 2 in node 2 (tokens 2..4) has full slot 2 and swa slot 5; the mapping"),
        ({3: 6}, "the mapping leads to none"),
        ({2: 6, 3: 6}, "full slot 2 and swa slot 5; the mapping leads to 6"),
    ],
)
def test_alloc_4_other_entries_are_named(mapping: dict[Slot, Slot], said: str) -> None:
    """A missing or wrong entry is reported."""
    (found,) = ask("ALLOC-4", evolve(state(), swa_of_full=mapping))
    assert said in found


GIVEN = Slots(full=(4, 5), swa=(1,))

ALLOCATED = evolve(
    state(TOP, TIP, held={FULL: {4, 5, 6, 7}, SWA: {1, 7}}),
    swa_of_full={2: 5, 3: 6, 7: 7, 5: 1},
)

ALLOCATE = Allocate(Counts(full=2, swa=1))


def test_alloc_5_free_slots_are_given() -> None:
    """An allocation of free slots, paired from the last on, holds."""
    assert ask("ALLOC-5", step(state(), ALLOCATE, ALLOCATED, GIVEN)) == []
    nothing = step(state(), Allocate(Counts()), state(), Slots())
    assert ask("ALLOC-5", nothing) == []


@pytest.mark.parametrize(
    ("after", "given", "said"),
    [
        (ALLOCATED, Slots(full=(4,), swa=(1,)), "2 full slots were asked for, and 1 given"),
        (ALLOCATED, Slots(full=(5, 5), swa=(1,)), "full slots [5] were given twice"),
        (ALLOCATED, Slots((4, 5), (0,)), "slot 0 of swa was given out and is not held"),
        (ALLOCATED, Slots((4, 7), (1,)), "slot 7 of full was given out and had not been free"),
        (
            evolve(ALLOCATED, swa_of_full={4: 1}),
            GIVEN,
            "swa slot 1 goes with full slot 5, and the mapping leads from there to none",
        ),
        (
            with_pool(ALLOCATED, MAMBA, free=()),
            GIVEN,
            "mamba slots [] were given out, but [1] left or entered the free list",
        ),
        (
            with_pool(ALLOCATED, FULL, held={4, 5}),
            GIVEN,
            "and [4, 5, 6, 7] are held only before or only after the call",
        ),
        (evolve(ALLOCATED, nodes=state(TOP).nodes), GIVEN, "page 2 in node 2 (tokens 2..4) van"),
    ],
)
def test_alloc_5_other_slots_are_named(after: Snapshot, given: Slots, said: str) -> None:
    """An allocation of other slots than it takes from the free list is reported."""
    found = ask("ALLOC-5", step(state(), ALLOCATE, after, given))
    assert any(said in each for each in found)


REFUSED = Refused(OutOfSlots("full on GPU", 9, 2))


def test_alloc_6_refusal_leaves_all_as_it_was() -> None:
    """A refusal that changes nothing holds, and served calls are not checked."""
    allocate = Allocate(Counts(full=9))
    assert ask("ALLOC-6", step(state(), allocate, state(), REFUSED)) == []
    assert ask("ALLOC-6", step(state(), ALLOCATE, ALLOCATED, GIVEN)) == []


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (state(TOP), "2 nodes are not as they were; the first is node 1 (tokens 0..2)"),
        (with_pool(state(), FULL, free=(5, 4)), "and pools is not as it was"),
    ],
)
def test_alloc_6_other_refusals_are_named(after: Snapshot, said: str) -> None:
    """A refused call that changes something is reported."""
    found = ask("ALLOC-6", step(state(), Lock(KEY), after, REFUSED))
    assert any(
        each.startswith("Lock was refused (full on GPU: 9 slots asked, 2 free") and said in each
        for each in found
    )


@pytest.mark.parametrize(
    ("mapping", "said"),
    [
        ({2: 5, 3: 6, 0: 0}, "the mapping leads from full slot 0 to swa slot 0; these belong to"),
        ({2: 5, 3: 6, 0: 0}, "these belong to node 1 (tokens 0..2) and the free list"),
        ({2: 5, 3: 6, 4: 1}, "these belong to the free list and the free list"),
        ({2: 5, 3: 6, 7: 6}, "these belong to a request and node 2 (tokens 2..4)"),
    ],
)
def test_alloc_9_stale_entries_are_named(mapping: dict[Slot, Slot], said: str) -> None:
    """An entry of a tombstone, or one to another owner's window slot, is reported."""
    (found,) = ask("ALLOC-9", evolve(state(), swa_of_full=mapping))
    assert said in found


def test_alloc_9_entries_of_pages_requests_and_copies_hold() -> None:
    """A mapping of pages, requests' slots and a cancelled copy's slots holds."""
    assert ask("ALLOC-9", state()) == []
    assert ask("ALLOC-9", evolve(orphaned(), swa_of_full={**orphaned().swa_of_full, 4: 2})) == []
    # A copy that was cancelled may have lost its pairing already.
    assert ask("ALLOC-9", orphaned()) == []


def test_alloc_10_pairs_of_requests_last() -> None:
    """A reset or an eviction that parts the slots of a running request is reported."""
    before = state()
    assert ask("ALLOC-10", step(before, Reset(), before)) == []
    forgotten = evolve(before, swa_of_full={})
    (said,) = ask("ALLOC-10", step(before, Reset(), forgotten))
    assert said == (
        "requests hold full slot 7 and swa slot 7, which was its own; after Reset the mapping "
        "leads to none"
    )
    given_back = with_pool(forgotten, SWA, held=set())
    assert ask("ALLOC-10", step(before, Free(Slots(swa=(7,))), given_back)) == []


BARE = node(1, ROOT, [1, 2], full=on(None, [0, 1]))
"""What an insert of `KEY` finds: two pages that are on the host alone."""

HANDED = Slots((0, 1, 2, 3), (2, 3), (0,))


def placed(*after: NodeState, before: NodeState = BARE, profile: Profile = CANON) -> list[str]:
    """What ALLOC-11 reports of an insert of all of `KEY`."""
    one, other = state_of(CONFIG, before), state_of(CONFIG, *after)
    outcome = Inserted(0, Counts(), Counts())
    return ask(
        "ALLOC-11", step(evolve(one, profile=profile), Insert(KEY, 0, HANDED), other, outcome)
    )


UP = node(1, ROOT, [1, 2], full=on([0, 1], [0, 1]))

DOWN = node(2, 1, [3, 4], full=on([2, 3]), swa=on([2, 3]), mamba=on([0]))


def test_alloc_11_slots_at_their_pages_hold() -> None:
    """Slots at their own pages, and slots that were not needed, hold."""
    assert placed(UP, DOWN) == []
    kept = evolve(UP, data={FULL: on([6, 7])})
    assert placed(kept, DOWN, before=kept) == []
    assert placed(UP, evolve(DOWN, data={FULL: on([2, 3])})) == []


@pytest.mark.parametrize(
    ("up", "down", "words"),
    [
        (
            UP,
            evolve(DOWN, data={**DOWN.data, FULL: on([3, 2])}),
            "page 2 of the key had full slot none, slot 2 was handed over for it, and it has slot",
        ),
        (UP, evolve(DOWN, data={**DOWN.data, SWA: on([3, 2])}), "slot 3 was handed over for it"),
        (UP, evolve(DOWN, data={**DOWN.data, MAMBA: on([1])}), "page 3 of the key had mamba slot"),
        (evolve(UP, data={**UP.data, SWA: on([6, 7])}), DOWN, "swa slot none, slot none was"),
    ],
    ids=["turned round", "window", "state", "from nowhere"],
)
def test_alloc_11_other_pages_are_named(up: NodeState, down: NodeState, words: str) -> None:
    """A slot at its neighbour's page is reported."""
    found = placed(up, down)
    assert found
    assert any(words in text for text in found)


def test_alloc_11_what_is_there_stays() -> None:
    """A slot that replaces another is reported, unless by profile healing replaces it."""
    was = evolve(UP, data={FULL: on([6, 7], [0, 1])})
    assert len(placed(UP, DOWN, before=was)) == 2
    assert placed(UP, DOWN, before=was, profile=Profile(heals_in_place=False)) == []
