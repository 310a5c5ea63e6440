"""REC-3: evictions in the order of the policy, and others."""

from __future__ import annotations

import pytest
from attrs import evolve

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.operations import (
    Evict,
    EvictHost,
    Match,
    Refused,
)
from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.types import (
    CPU,
    FULL,
    GPU,
    MAMBA,
    SWA,
    Component,
    Counts,
    EvictionPolicy,
    Medium,
    NodeId,
    WritePolicy,
)
from recency_cases import CONFIG, KEY, config, evict, leaves, slot_on
from states import ROOT, node, on, state_of
from telling import ask, step


def chain_with(
    component: Component,
    *there: NodeId,
    medium: Medium = GPU,
    locked: tuple[NodeId, ...] = (),
) -> Snapshot:
    """A path 1..4 on a medium, of which only some have the component there; leaf 5 lacks it."""
    nodes = []
    for node_id in (1, 2, 3, 4):
        refs = int(node_id <= max(locked, default=0))
        mine = slot_on(medium, node_id, lock_refs=refs) if node_id in there else None
        full = slot_on(medium, node_id, lock_refs=refs)
        swa, mamba = (mine, None) if component is SWA else (None, mine)
        nodes.append(node(node_id, node_id - 1, [node_id], full=full, swa=swa, mamba=mamba))
    nodes.append(node(5, 4, [5], full=slot_on(medium, 5)))
    return state_of(config(mamba=True), *nodes)


@pytest.mark.parametrize("medium", [GPU, CPU])
def test_rec_3_leaf_out_of_turn_is_named(medium: Medium) -> None:
    """A leaf that leaves before one of lower rank is reported."""
    asked = Evict(Counts(full=2)) if medium is GPU else EvictHost(Counts(full=2))
    before = leaves(1, 2, 3, 4, medium=medium)
    assert evict(before, leaves(3, 4, medium=medium), asked) == []
    (stayed, left) = evict(before, leaves(1, 4, medium=medium), asked)
    data = f"{type(asked).__name__}: full data of page 0 in"
    assert stayed == f"{data} node 1 (tokens 0..1) should have left {medium}, and did not"
    assert left == f"{data} node 3 (tokens 0..1) left {medium}, and should not have"


@pytest.mark.parametrize("medium", [GPU, CPU])
def test_rec_3_more_or_less_than_was_asked_is_named(medium: Medium) -> None:
    """An eviction that frees more or less than it has to is reported."""
    asked = Evict(Counts(full=2)) if medium is GPU else EvictHost(Counts(full=2))
    before = leaves(1, 2, 3, 4, medium=medium)
    (said,) = evict(before, leaves(4, medium=medium), asked)
    assert "node 3 (tokens 0..1) left" in said
    (said,) = evict(before, leaves(2, 3, 4, medium=medium), asked)
    assert "node 2 (tokens 0..1) should have left" in said


@pytest.mark.parametrize(
    ("policy", "first"),
    [
        (EvictionPolicy.LRU, 1),
        (EvictionPolicy.FIFO, 1),
        (EvictionPolicy.LFU, 4),
        (EvictionPolicy.MRU, 4),
        (EvictionPolicy.FILO, 4),
        (EvictionPolicy.SLRU, 3),
        (EvictionPolicy.PRIORITY, 1),
    ],
)
def test_rec_3_policy_decides_who_is_first(policy: EvictionPolicy, first: NodeId) -> None:
    """Victims leave in the order of the chosen policy."""
    chosen = config(evict=policy)
    before = leaves(1, 2, 3, 4, chosen=chosen)
    for victim in (1, 2, 3, 4):
        left = [node_id for node_id in (1, 2, 3, 4) if node_id != victim]
        found = evict(before, leaves(*left, chosen=chosen))
        assert (found == []) is (victim == first), found


def test_rec_3_locked_leaf_is_passed_over() -> None:
    """A locked leaf stays."""
    before = leaves(1, 2, 3, 4, locked=(1,))
    assert evict(before, leaves(1, 3, 4, locked=(1,))) == []


def test_rec_3_parent_takes_its_turn_as_a_leaf() -> None:
    """A node that becomes a leaf during an eviction leaves in turn, and not before."""
    parent = node(1, ROOT, [1], full=on([1]), last_access=1)
    child = node(2, 1, [2], full=on([2]), last_access=10)
    other = node(3, ROOT, [3], full=on([3]), last_access=20)
    before, two = state_of(CONFIG, parent, child, other), Evict(Counts(full=2))
    assert evict(before, state_of(CONFIG, parent, other)) == []
    assert evict(before, state_of(CONFIG, other), two) == []
    (stayed, left) = evict(before, state_of(CONFIG, parent), two)
    assert "node 1 (tokens 0..1) should have left GPU" in stayed
    assert "node 3 (tokens 0..1) left GPU, and should not have" in left


def test_rec_3_only_the_end_of_the_last_victim_may_leave() -> None:
    """Only the last victim may be cut, and only its needed end may leave."""
    long = node(1, ROOT, [1, 2, 3], full=on([1, 2, 3]))
    other = node(2, ROOT, [4], full=on([4]), last_access=20)
    before = state_of(CONFIG, long, other)

    def left(*pages: int) -> list[str]:
        kept = node(1, ROOT, pages, full=on(pages))
        return evict(before, state_of(CONFIG, kept, other), Evict(Counts(full=2)))

    assert left(1) == []
    assert evict(before, state_of(CONFIG, other), Evict(Counts(full=2))) == []
    (said,) = left(1, 2)
    assert "full data of pages 0..1 in node 1 (tokens 0..3) should have left" in said


def test_rec_3_leaf_above_locked_host_data_may_stay_under_write_back() -> None:
    """A leaf that fits nowhere on the host, and cannot be deleted, stays."""
    back = config(write=WritePolicy.WRITE_BACK)

    def passed_over(chosen: CacheConfig, below: int) -> list[str]:
        chosen = evolve(chosen, host_slots=Counts(full=8))
        taken = node(8, ROOT, range(20, 27), full=on(None, range(7), lock_refs=1))
        before = leaves(1, 2, 3, 4, chosen=chosen, below=below)
        after = leaves(1, 3, 4, chosen=chosen, below=below)
        before, after = (state_of(chosen, *each.below_root(), taken) for each in (before, after))
        return evict(before, after)

    assert passed_over(back, 1) == []
    assert passed_over(back, 0) != []
    assert passed_over(CONFIG, 1) != []


def test_rec_3_duplicates_on_the_host_are_no_leaves() -> None:
    """A host copy of data that is on the device is not ranked among host leaves."""
    back = config(write=WritePolicy.WRITE_BACK)
    recent = node(1, ROOT, [1], full=on([1], [1]), last_access=20)
    leaf = node(2, ROOT, [2], full=on(None, [2]), last_access=10)
    before = state_of(back, recent, leaf)
    after = state_of(back, evolve(recent, data={FULL: on([1])}), leaf)
    assert evict(before, after, EvictHost(Counts(full=1))) == []


@pytest.mark.parametrize("component", [SWA, MAMBA])
@pytest.mark.parametrize("medium", [GPU, CPU])
def test_rec_3_data_out_of_turn_is_named(component: Component, medium: Medium) -> None:
    """Window data or a state that leaves before less recent data of its kind is reported."""
    counts = Counts(swa=1) if component is SWA else Counts(mamba=1)
    asked = Evict(counts) if medium is GPU else EvictHost(counts)

    def left(*there: NodeId, locked: tuple[NodeId, ...] = ()) -> Snapshot:
        return chain_with(component, *there, medium=medium, locked=locked)

    everywhere, data = left(1, 2, 3, 4), f"{type(asked).__name__}: {component} data of"
    assert evict(everywhere, left(2, 3, 4), asked) == []
    (stayed, gone) = evict(everywhere, left(1, 3, 4), asked)
    assert stayed == f"{data} page 0 in node 1 (tokens 0..1) should have left {medium}, and did not"
    assert gone == f"{data} page 1 in node 2 (tokens 1..2) left {medium}, and should not have"
    (said,) = evict(everywhere, left(3, 4), asked)
    assert "in node 2 (tokens 1..2) left" in said
    assert evict(left(1, 2, 3, 4, locked=(1,)), left(1, 3, 4, locked=(1,)), asked) == []


def test_rec_3_copies_in_flight_and_duplicates_are_passed_over() -> None:
    """Window data in flight, and host copies of data on the device, stay."""
    busy = evolve(
        node(1, ROOT, [1], full=on([1])), data={FULL: on([1]), SWA: on([1], [1], backing=5)}
    )
    both = node(2, ROOT, [2], full=on([2], [2]), swa=on([2], [2]))
    victim = node(3, ROOT, [3], full=on([3], [3]), swa=on(None, [3]))
    lost = evolve(victim, data={FULL: on([3], [3])})
    before, after = state_of(CONFIG, busy, both, victim), state_of(CONFIG, busy, both, lost)
    assert evict(before, after, EvictHost(Counts(swa=1))) == []


def test_rec_3_what_one_component_frees_counts_for_the_next() -> None:
    """Slots that one component frees on the way count for the next."""
    both = [node(each, ROOT, [each], full=on([each]), swa=on([each])) for each in (1, 2, 3)]
    before, one_left = state_of(CONFIG, *both), state_of(CONFIG, *both[1:])
    assert evict(before, one_left, Evict(Counts(full=1, swa=1))) == []
    assert len(evict(before, state_of(CONFIG, both[2]), Evict(Counts(full=1, swa=1)))) == 2
    assert evict(before, state_of(CONFIG, both[2]), Evict(Counts(full=1, swa=2))) == []


def test_rec_3_is_a_matter_of_evictions() -> None:
    """Other calls, and refused ones, are not checked."""
    before, after = leaves(1, 2, 3, 4), leaves(1, 3, 4)
    assert evict(before, after, Match(KEY)) == []
    assert len(evict(before, after, Evict(Counts()))) == 1
    refused = Refused(BadArgument("counts", "are wrong"))
    assert ask("REC-3", step(before, Evict(Counts(full=1)), after, refused)) == []
