"""By profile, tombstones leave with the last node below them, and nothing more leaves."""

from __future__ import annotations

import pytest
from attrs import evolve

from kvcanon.conformance.check.judges import JudgeConfig, make_judged
from kvcanon.conformance.judge.from_outside.tree.guard import BlackboxGuard
from kvcanon.conformance.protocol.adapter import make_subject
from kvcanon.lab.variants.variant import varied
from kvcanon.spec.cache import Cache
from kvcanon.spec.config import CANON, CacheConfig, Profile
from kvcanon.spec.errors import SpecViolation
from kvcanon.spec.law import LAWS
from kvcanon.spec.operations import Evict, Evicted, LoadBack, LoadDecision, LoadedBack
from kvcanon.spec.snapshot import NodeState
from kvcanon.spec.types import Counts, Key, make_key
from kvcanon.spec.views import Step
from states import ROOT, node, on, state_of
from telling import ask, step

CONFIG = CacheConfig(window_tokens=1, device_slots=Counts(full=16, swa=4))
DECLARED = Profile(uncovered_tombstones_stay=False)
TOP = node(1, ROOT, [1, 2], full=on([0, 1]), swa=on(), last_access=20)
WINDOWED = node(1, ROOT, [1, 2], full=on([0, 1]), swa=on([2, 3]))
"""The same with window data, which keeps it."""
MIDDLE = node(2, 1, [3, 4, 5], full=on([2, 3, 4]), swa=on(), last_access=21)
LEAF = node(3, 2, [6], full=on([5]), swa=on([0]), last_access=10)
SECOND = node(4, 2, [7], full=on([6]), swa=on([1]), last_access=21)
OTHER = node(5, ROOT, [8], full=on([7]), swa=on([2]), last_access=15)
"""A leaf of another prompt, used after `LEAF` and before what that hangs below."""


def evicted(asked: Counts, before: tuple[NodeState, ...], *left: NodeState) -> Step:
    """An eviction that left these nodes, of a cache with this profile."""
    one, other = (evolve(state_of(CONFIG, *nodes), profile=DECLARED) for nodes in (before, left))
    return step(one, Evict(asked), other, Evicted(Counts()))


def by_the_canon(moved: Step) -> Step:
    """The same of a cache with the default profile."""
    before, after = (evolve(state, profile=CANON) for state in (moved.before, moved.after))
    return step(before, moved.operation, after, moved.outcome)


@pytest.mark.parametrize("asked", [Counts(full=1), Counts(swa=1), Counts(full=6)])
def test_what_is_uncovered_leaves_with_its_victim(asked: Counts) -> None:
    """By profile, and only then, a tombstone may leave with its last child."""
    moved = evicted(asked, (TOP, MIDDLE, LEAF, OTHER), OTHER)
    assert ask("EVICT-2", moved) == []
    assert bool(ask("EVICT-2", by_the_canon(moved))) == (asked.full < 6)
    if asked.full:
        assert ask("REC-3", moved) == []
        assert len(ask("REC-3", by_the_canon(moved))) == 2


def test_the_last_of_several_children_takes_it_along() -> None:
    """A tombstone counts as part of the child that was still needed."""
    both = (TOP, MIDDLE, LEAF, SECOND)
    assert ask("EVICT-2", evicted(Counts(full=2), both)) == []
    assert ask("EVICT-2", evicted(Counts(swa=2), both)) == []


@pytest.mark.parametrize(
    ("asked", "before", "left"),
    [
        (Counts(full=1), (TOP, MIDDLE, LEAF, OTHER), ()),
        (Counts(full=1), (TOP, OTHER), ()),
        (Counts(full=1), (WINDOWED, MIDDLE, LEAF), ()),
        (Counts(), (TOP, MIDDLE, LEAF), ()),
    ],
    ids=["another", "not covered", "has window data", "nothing asked"],
)
def test_nothing_else_may_leave(
    asked: Counts, before: tuple[NodeState, ...], left: tuple[NodeState, ...]
) -> None:
    """The profile does not excuse any other overshoot."""
    assert ask("EVICT-2", evicted(asked, before, *left))


def test_what_was_a_leaf_has_its_turn() -> None:
    """A tombstone that was a leaf before the eviction leaves in its turn."""
    said = ask("REC-3", evicted(Counts(full=1), (TOP, OTHER), OTHER))
    assert said[:2] == [
        "Evict: full data of pages 0..1 in node 1 (tokens 0..2) left GPU, and should not have",
        "Evict: full data of page 0 in node 5 (tokens 0..1) should have left GPU, and did not",
    ]


def test_load_may_uncover() -> None:
    """By profile, a load-back for window slots may take a tombstone along, no other full data."""
    key, decision = make_key([9], 1), LoadedBack(LoadDecision.NO_ROOM)
    config = evolve(CONFIG, host_slots=CONFIG.device_slots, write_policy="write_through")
    config = evolve(config, device_slots=Counts(full=16, swa=1))
    host = node(9, ROOT, [9], full=on(None, [0]), swa=on(None, [0]))
    before = evolve(state_of(config, TOP, MIDDLE, LEAF, host), profile=DECLARED)
    after = evolve(state_of(config, host), profile=DECLARED)
    moved = step(before, LoadBack(key), after, decision)
    for law_id in ("LOAD-1", "REC-3"):
        assert ask(law_id, moved) == []
        assert len(ask(law_id, by_the_canon(moved))) == 2


def uncover_out_of_turn(cache: Cache) -> None:
    """Evict a leaf whose tombstone was used after another leaf."""

    def put(tokens: list[int]) -> Key:
        key = make_key(tokens, 1)
        cache.insert(key, 0, cache.allocate(Counts(full=len(tokens), swa=1)))
        return key

    first, other, second = put([1, 2, 3]), put([9]), put([1, 2, 4])
    assert cache.match(second).prefix_pages == 3
    locks = [cache.lock(first), cache.lock(other)]
    cache.evict(Counts(full=1))
    for receipt in locks:
        cache.unlock(receipt)
    cache.evict(Counts(full=1))
    found = [cache.match(key).prefix_pages for key in (first, other, second)]
    assert found == [0, 1, 0]


@pytest.mark.parametrize("black_box", [False, True])
def test_both_judges_allow_what_is_declared(*, black_box: bool) -> None:
    """By profile, a tombstone may leave out of turn, seen from inside and from outside."""
    adapter = varied("mine", ["uncovered_tombstones_leave"])
    uncover_out_of_turn(make_judged(adapter, CONFIG, JudgeConfig(black_box=black_box))[1])


def test_outside_a_tombstone_has_its_turn_by_the_canon() -> None:
    """By default, a tombstone that leaves out of turn is reported from outside."""
    subject = make_subject(varied("mine", ["uncovered_tombstones_leave"]), CONFIG)
    with pytest.raises(SpecViolation, match="REC-3"):
        uncover_out_of_turn(BlackboxGuard(subject, CANON, tuple(LAWS.values())))
