"""ALLOC: each law on a case where it holds, and on cases with a single fault."""

from __future__ import annotations

import pytest
from attrs import evolve

from kvcanon.spec.config import CANON, CacheConfig, Profile
from kvcanon.spec.errors import OutOfSlots
from kvcanon.spec.operations import (
    Allocate,
    Evict,
    Evicted,
    EvictHost,
    Free,
    Insert,
    Inserted,
    LoadBack,
    LoadDecision,
    LoadedBack,
    Lock,
    Operation,
    Refused,
    Reset,
)
from kvcanon.spec.snapshot import NodeState, PoolState, Snapshot, TransferState, Usage
from kvcanon.spec.transfer import Direction
from kvcanon.spec.types import (
    CPU,
    FULL,
    GPU,
    MAMBA,
    SWA,
    Component,
    Counts,
    Medium,
    Slot,
    Slots,
    WritePolicy,
    make_key,
)
from states import ROOT, node, on, state_of
from telling import ask, step

POOLS = Counts(full=8, swa=8, mamba=2)
CONFIG = CacheConfig(
    window_tokens=2,
    mamba=True,
    device_slots=POOLS,
    host_slots=POOLS,
    write_policy=WritePolicy.WRITE_THROUGH,
)

TOP = node(1, ROOT, [1, 2], full=on([0, 1], [0, 1], lock_refs=1), swa=on(None, [4, 5]))
"""A tombstone, locked; its window data is on the host."""
TIP = node(2, 1, [3, 4], full=on([2, 3]), swa=on([5, 6]), mamba=on([0]))
KEY = make_key([1, 2, 3, 4], 1)
HELD: dict[Component, set[Slot]] = {FULL: {6, 7}, SWA: {7}}


def state(*nodes: NodeState, held: dict[Component, set[Slot]] | None = None) -> Snapshot:
    """These nodes, and slots of requests; slots 6 and 7 are a pair of theirs."""
    made = state_of(CONFIG, *(nodes or (TOP, TIP)), held=HELD if held is None else held)
    pair = {7: 7} if held is None else {}
    return evolve(made, swa_of_full={**made.swa_of_full, **pair})


def with_pool(
    before: Snapshot,
    component: Component,
    *,
    free: tuple[Slot, ...] | None = None,
    held: set[Slot] | None = None,
    medium: Medium = GPU,
) -> Snapshot:
    """A state in which a pool has other free or held slots."""
    pool = before.pools[component, medium]
    changed = PoolState(
        pool.capacity,
        pool.free if free is None else free,
        pool.held if held is None else frozenset(held),
    )
    return evolve(before, pools={**before.pools, (component, medium): changed})


CANCELLED = TransferState(
    9, Direction.LOAD_BACK, (), {FULL: (0,), SWA: (4,)}, {FULL: (4,), SWA: (2,)}, cancelled=True
)


def orphaned() -> Snapshot:
    """A state in which full slot 4 and swa slot 2 belong to a cancelled copy."""
    return state_of(CONFIG, TOP, TIP, transfers=(CANCELLED,))


def test_alloc_1_every_slot_has_one_owner() -> None:
    """A sound state holds, with or without slots that a cancelled copy still writes to."""
    assert ask("ALLOC-1", state()) == []
    assert ask("ALLOC-1", orphaned()) == []


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (
            with_pool(state(), FULL, free=(0, 4, 5)),
            "slot 0 of full on GPU belongs to the free list and node 1 (tokens 0..2)",
        ),
        (
            with_pool(state(), SWA, free=(0, 1, 2, 3, 4, 4)),
            "slot 4 of swa on GPU belongs to the free list and the free list",
        ),
        (
            with_pool(state(), MAMBA, held={0}),
            "slot 0 of mamba on GPU belongs to a request and node 2 (tokens 2..4)",
        ),
        (
            with_pool(state(), FULL, free=(2, 3, 4, 5, 6, 7, 9), medium=CPU),
            "slot 9 of full on CPU_PINNED belongs to the free list, and there is no such slot",
        ),
        (
            state(TOP, evolve(TIP, data={**TIP.data, FULL: on([1, 3])})),
            "slot 1 of full on GPU belongs to node 1 (tokens 0..2) and node 2 (tokens 2..4)",
        ),
    ],
)
def test_alloc_1_other_owners_are_named(broken: Snapshot, said: str) -> None:
    """A slot with two owners, or out of its pool's range, is reported."""
    assert said in ask("ALLOC-1", broken)


def test_alloc_2_counts_add_up() -> None:
    """A sound state holds, with or without slots that a cancelled copy still writes to."""
    assert ask("ALLOC-2", state()) == []
    assert ask("ALLOC-2", orphaned()) == []


@pytest.mark.parametrize(
    ("usage", "said"),
    [
        (Usage(4, 0), ["4 full slots are reported as evictable, and 2 are", "0 full slots"]),
        (Usage(2, 1), ["1 full slots are reported as protected, and 2 are"]),
    ],
)
def test_alloc_2_other_counts_are_named(usage: Usage, said: list[str]) -> None:
    """A count that differs from that of the slots is reported."""
    broken = evolve(state(), usage={**state().usage, FULL: usage})
    found = ask("ALLOC-2", broken)
    assert all(any(words in each for each in found) for words in said)


TOP_ALONE = state(TOP)


def test_alloc_3_freed_slots_are_free() -> None:
    """An eviction that reports what it freed holds."""
    evict = step(state(), Evict(Counts(full=1)), TOP_ALONE, Evicted(Counts(2, 2, 1)))
    assert ask("ALLOC-3", evict) == []
    bare = evolve(TOP, data={**TOP.data, SWA: on(None, None)})
    host = step(state(), EvictHost(Counts(swa=1)), state(bare, TIP), Evicted(Counts(swa=2)))
    assert ask("ALLOC-3", host) == []


@pytest.mark.parametrize(
    ("operation", "told", "said"),
    [
        (Evict(Counts(full=1)), Counts(1, 2, 1), "1 full slots are said to be freed on GPU, and 2"),
        (Evict(Counts(full=1)), Counts(2, 0, 1), "0 swa slots are said to be freed on GPU, and 2"),
        (EvictHost(Counts(full=2)), Counts(full=2), "freed on CPU_PINNED, and 0 are free that"),
    ],
)
def test_alloc_3_other_counts_are_named(operation: Operation, told: Counts, said: str) -> None:
    """An eviction that reports more or fewer slots, or on the wrong medium, is reported."""
    found = ask("ALLOC-3", step(state(), operation, TOP_ALONE, Evicted(told)))
    assert any(said in each for each in found)


def test_alloc_3_given_back_slots_are_free() -> None:
    """Slots that are given back and stay held, or do not become free, are reported."""
    slots = Slots(full=(7,), swa=(7,))
    freed = state(TOP, TIP, held={FULL: {6}, SWA: set()})
    assert ask("ALLOC-3", step(state(), Free(slots), freed)) == []
    kept = ask("ALLOC-3", step(state(), Free(slots), with_pool(freed, FULL, held={6, 7})))
    assert kept == ["slot 7 of full was given back and is still held"]
    lost = ask("ALLOC-3", step(state(), Free(slots), with_pool(freed, SWA, free=(0, 1, 2, 3, 4))))
    assert "slot 7 of swa was given back and is not free" in lost
    assert any("1 swa slots are said to be freed on GPU, and 0" in each for each in lost)


NEW = node(3, ROOT, [8], full=on([7]), swa=on([7]))


def test_alloc_3_handed_over_slots_are_adopted_or_free() -> None:
    """Wrong counts of adopted or freed slots of an insert are reported; right ones hold."""
    insert = Insert(make_key([8], 1), 0, Slots(full=(7,), swa=(7,)))
    adopted = Inserted(0, adopted=Counts(1, 1), freed=Counts())
    after = state(TOP, TIP, NEW, held={FULL: {6}, SWA: set()})
    assert ask("ALLOC-3", step(state(), insert, after, adopted)) == []
    dropped = Inserted(1, adopted=Counts(), freed=Counts(1, 1))
    assert (
        ask(
            "ALLOC-3", step(state(), insert, state(TOP, TIP, held={FULL: {6}, SWA: set()}), dropped)
        )
        == []
    )
    said = ask("ALLOC-3", step(state(), insert, after, dropped))
    assert any("1 full slots are said to be freed on GPU, and 0 are" in each for each in said)
    assert any("0 full slots are reported as adopted; the tree has [7]" in each for each in said)
    short = Inserted(0, adopted=Counts(1, 0), freed=Counts())
    said = ask("ALLOC-3", step(state(), insert, after, short))
    assert "1 swa slots were handed over, and 0 adopted + 0 freed is 0" in said
    said = ask("ALLOC-3", step(state(), insert, state(), adopted))
    assert "slot 7 of full was handed over and is neither in the tree nor free" in said


@pytest.mark.parametrize(("declared", "said"), [(False, 0), (True, 1)])
def test_alloc_3_healed_tombstone_may_take_new_slots(*, declared: bool, said: int) -> None:
    """By profile, healing takes new slots and counts them as freed."""
    profile = Profile(heals_in_place=declared)
    bare = node(1, ROOT, [1], full=on([0]), swa=on(None))
    healed = node(1, ROOT, [1], full=on([7]), swa=on([7]))
    after = evolve(state(healed, held={FULL: {6}, SWA: set()}), profile=profile)
    insert = Insert(KEY.prefix(1), 0, Slots(full=(7,), swa=(7,)))
    told = Inserted(1, adopted=Counts(swa=1), freed=Counts(full=1))
    found = ask("ALLOC-3", step(state(bare), insert, after, told))
    assert len(found) == said
    more = ask("ALLOC-3", step(state(bare), insert, after, evolve(told, adopted=Counts(1, 1))))
    assert any("1 full slots were handed over, and 1 adopted + 1 freed is 2" in e for e in more)


def test_alloc_3_slots_come_from_requests() -> None:
    """Slots that no request held and that are given back or handed over are reported."""
    freed = with_pool(state(TOP, TIP, held={FULL: {6}, SWA: {7}}), FULL, free=(4, 5, 5, 7))
    said = ask("ALLOC-3", step(state(), Free(Slots(full=(5, 7))), freed))
    assert "slot 5 of full was given back, and no request held it" in said
    new = node(3, ROOT, [8], full=on([5]))
    after = with_pool(state(TOP, TIP, new), FULL, free=(4,))
    adopted = Inserted(0, adopted=Counts(1), freed=Counts())
    insert = Insert(make_key([8], 1), 0, Slots(full=(5,)))
    said = ask("ALLOC-3", step(state(), insert, after, adopted))
    assert said == ["slot 5 of full was handed over, and no request held it"]


def test_alloc_3_loads_tell_what_they_evict() -> None:
    """A load-back with wrong counts of evicted or loading slots is reported."""
    here = evolve(TOP, data={**TOP.data, SWA: on([0, 1], [4, 5])})
    load = LoadBack(make_key([1, 2], 1))
    done = LoadedBack(LoadDecision.ENQUEUED, 9, loading=Counts(swa=2), evicted=Counts(2, 2, 1))
    assert ask("ALLOC-3", step(state(), load, state(here), done)) == []
    said = ask("ALLOC-3", step(state(), load, state(here), evolve(done, evicted=Counts(1, 2, 1))))
    assert said[0] == "1 full slots are reported as evicted for the load, and pages lost 2"
    said = ask("ALLOC-3", step(state(), load, state(here), evolve(done, loading=Counts(swa=1))))
    assert said == [
        "swa on GPU had 5 free slots and has 5, with 2 reported as evicted and 1 loading"
    ]


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
            "and [4, 5, 6, 7] are held in one state only",
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
    ("broken", "said"),
    [
        (with_pool(state(), FULL, free=(4,)), "slot 5 of full on GPU has no owner"),
        (evolve(orphaned(), transfers=()), "slot 4 of full on GPU has no owner"),
        (
            evolve(state(), transfers=(CANCELLED,)),
            "slot 4 of full on GPU belongs to the free list and a cancelled copy",
        ),
    ],
    ids=["leaked", "forgotten", "taken from a copy"],
)
def test_alloc_8_slots_without_an_owner_are_named(broken: Snapshot, said: str) -> None:
    """A lost slot is reported, and a free one that a cancelled copy still writes to."""
    assert said in ask("ALLOC-8", broken)


def test_alloc_8_every_slot_is_somewhere() -> None:
    """A sound state holds, with or without slots that a cancelled copy still writes to."""
    assert ask("ALLOC-8", state()) == []
    assert ask("ALLOC-8", orphaned()) == []


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
