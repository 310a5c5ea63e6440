"""ALLOC-1, ALLOC-2, ALLOC-3 and ALLOC-8: owners of slots, and counts."""

from __future__ import annotations

import pytest
from attrs import evolve

from alloc_cases import CANCELLED, KEY, TIP, TOP, orphaned, state, with_pool
from kvcanon.spec.config import Profile
from kvcanon.spec.operations import (
    Evict,
    Evicted,
    EvictHost,
    Free,
    Insert,
    Inserted,
    LoadBack,
    LoadDecision,
    LoadedBack,
    Operation,
)
from kvcanon.spec.snapshot import Snapshot, Usage
from kvcanon.spec.types import (
    CPU,
    FULL,
    MAMBA,
    SWA,
    Counts,
    Slots,
    make_key,
)
from states import ROOT, node, on
from telling import ask, step


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
        (EvictHost(Counts(full=2)), Counts(full=2), "freed on CPU_PINNED, and 0 came free"),
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
    assert any("1 full slots are said to be freed on GPU, and 0 came free" in each for each in said)
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
