"""By profile, tombstones leave with the last node below them, and nothing more leaves."""

from __future__ import annotations

import pytest
from attrs import evolve

from kvcanon.conformance.judge.from_outside.tree.guard import BlackboxGuard
from kvcanon.conformance.judge.judges import JudgeConfig, make_judged
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
from states.judging import Table, step, table

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


def evicted(
    asked: Counts, before: tuple[NodeState, ...], *left: NodeState, profile: Profile = DECLARED
) -> Step:
    """An eviction that left these nodes."""
    one, other = (state_of(CONFIG, *nodes, profile=profile) for nodes in (before, left))
    return step(one, Evict(asked), other, Evicted(Counts()))


def loaded(profile: Profile) -> Step:
    """A load-back for window slots that takes a tombstone along."""
    host = node(9, ROOT, [9], full=on(None, [0]), swa=on(None, [0]))
    config = evolve(CONFIG, host_slots=CONFIG.device_slots, write_policy="write_through")
    config = evolve(config, device_slots=Counts(full=16, swa=1))
    before = state_of(config, TOP, MIDDLE, LEAF, host, profile=profile)
    after, told = state_of(config, host, profile=profile), LoadedBack(LoadDecision.NO_ROOM)
    return step(before, LoadBack(make_key([9], 1)), after, told)


COVERED = (TOP, MIDDLE, LEAF, OTHER)
FEW = (Counts(full=1), Counts(swa=1))

UNCOVERED: Table = {
    # By profile, and only then, a tombstone may leave with its last child, as a part of it.
    "EVICT-2": [
        *[evicted(asked, COVERED, OTHER) for asked in (*FEW, Counts(full=6))],
        evicted(Counts(full=6), COVERED, OTHER, profile=CANON),
        evicted(Counts(full=2), (TOP, MIDDLE, LEAF, SECOND)),
        evicted(Counts(swa=2), (TOP, MIDDLE, LEAF, SECOND)),
    ],
    "EVICT-2: ...": [
        *[evicted(asked, COVERED, OTHER, profile=CANON) for asked in FEW],
        # It excuses no other overshoot: of another leaf, a lone tombstone, or window data.
        evicted(Counts(full=1), COVERED),
        evicted(Counts(full=1), (TOP, OTHER)),
        evicted(Counts(full=1), (WINDOWED, MIDDLE, LEAF)),
        evicted(Counts(), (TOP, MIDDLE, LEAF)),
    ],
    "REC-3": [evicted(asked, COVERED, OTHER) for asked in (Counts(full=1), Counts(full=6))],
    ("REC-3: ...", "..."): [
        evicted(asked, COVERED, OTHER, profile=CANON) for asked in (Counts(full=1), Counts(full=6))
    ],
    # A tombstone that was a leaf before the eviction leaves in its turn.
    (
        "REC-3: ...full data of pages 0..1 in node 1 (tokens 0..2) left GPU, and should not have",
        "...full data of page 0 in node 5 (tokens 0..1) should have left GPU, and did not",
        ...,
    ): evicted(Counts(full=1), (TOP, OTHER), OTHER),
    # By profile, a load-back for window slots may take it along, too, and no other full data.
    "LOAD-1, REC-3": [loaded(DECLARED)],
    ("LOAD-1, REC-3: ...", "..."): loaded(CANON),
}

test_uncovered = table(UNCOVERED)


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
