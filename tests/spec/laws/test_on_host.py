"""Laws where, by profile, the host has parts of nodes, or locks do not hold host copies."""

from __future__ import annotations

import pytest
from attrs import evolve

from kvcanon.spec.config import CANON, CacheConfig, Profile
from kvcanon.spec.operations import (
    Evict,
    Evicted,
    EvictHost,
    Insert,
    Inserted,
    LoadBack,
    LoadDecision,
    LoadedBack,
    Outcome,
)
from kvcanon.spec.snapshot import NodeState, Snapshot
from kvcanon.spec.types import CPU, FULL, SWA, Counts, Slots, WritePolicy, make_key
from states import ROOT, node, on, state_of
from telling import ask, step

POOLS = Counts(full=8, swa=8)
CONFIG = CacheConfig(
    window_tokens=2, device_slots=POOLS, host_slots=POOLS, write_policy="write_back"
)
THROUGH = evolve(CONFIG, write_policy=WritePolicy.WRITE_THROUGH)
PARTS = Profile(whole_nodes_on_host=False)
LOOSE = Profile(locks_hold_host_copies=False)
WHOLE = node(1, ROOT, [1, 2], full=on([0, 1]), swa=on([0, 1]))
TOMBSTONE = node(1, ROOT, [1, 2], full=on([0, 1]), swa=on(None, [0, 1]))
TOMBSTONE_HELD = node(1, ROOT, [1, 2], full=on([0, 1], [0, 1]), swa=on(None, [0, 1], lock_refs=1))
WITHOUT_WINDOW = node(1, ROOT, [1, 2], full=on([0, 1], [0, 1]), swa=on(lock_refs=1))
WINDOW = Evict(Counts(swa=2))


def under(profile: Profile, *nodes: NodeState, config: CacheConfig = CONFIG) -> Snapshot:
    """These nodes, in a cache of this profile."""
    return evolve(state_of(config, *nodes), profile=profile)


def test_parts_res_2_window_may_be_on_the_host_alone() -> None:
    """By profile, window data may be on the host alone while full data is on the device."""
    assert ask("RES-2", under(PARTS, TOMBSTONE)) == []
    assert ask("RES-2", under(CANON, TOMBSTONE)) != []
    assert ask("RES-2", under(PARTS, TOMBSTONE, config=THROUGH)) != []
    gone = evolve(TOMBSTONE, data={**TOMBSTONE.data, FULL: on()})
    assert ask("RES-2", under(PARTS, gone)) != []


@pytest.mark.parametrize(("profile", "holds"), [(PARTS, True), (CANON, False)])
def test_parts_evict_3_duplicates_may_leave_in_part(profile: Profile, holds: bool) -> None:
    """By profile, a node may give up the host copy of its full data and keep its window there."""
    twice = node(1, ROOT, [1, 2], full=on([0, 1], [0, 1]), swa=on(None, [0, 1]))
    left = under(profile, TOMBSTONE)
    before = under(profile, twice)
    asked = step(before, EvictHost(Counts(full=2)), left, Evicted(Counts(full=2)))
    assert (ask("EVICT-3", asked) == []) is holds


def test_parts_evict_6_window_before_a_victim_is_copied() -> None:
    """By profile, the window before a victim may be copied with it."""
    end = node(2, 1, [3], full=on([2]), swa=on([2]))
    end_copied = node(2, 1, [3], full=on(None, [2]), swa=on(None, [2]))
    both = node(1, ROOT, [1, 2], full=on([0, 1]), swa=on([0, 1], [0, 1]))
    told = Evict(Counts(full=1)), Evicted(Counts(full=1, swa=1))

    def said(profile: Profile, *after: NodeState) -> list[str]:
        before = under(profile, WHOLE, end)
        return ask("EVICT-6", step(before, told[0], under(profile, *after), told[1]))

    assert said(PARTS, both, end_copied) == []
    assert said(CANON, both, end_copied) != []
    moved = node(1, ROOT, [1, 2], full=on([0, 1]), swa=on([5, 6], [0, 1]))
    assert said(PARTS, moved, end_copied) != []
    assert said(PARTS, WHOLE, end_copied) == []


@pytest.mark.parametrize(("slots", "holds"), [(3, True), (5, False)])
def test_parts_evict_8_windows_before_victims_need_room(slots: int, holds: bool) -> None:
    """By profile, a victim may be lost if the window before it does not fit on the host."""
    end = node(2, 1, [3], full=on([2]), swa=on([2]))
    config = evolve(CONFIG, host_slots=Counts(full=8, swa=slots))
    other = node(3, 1, [4], full=on([3]), swa=on([3]))
    before = under(PARTS, WHOLE, end, other, config=config)
    after = under(PARTS, WHOLE, config=config)
    told = Evict(Counts(full=2)), Evicted(Counts(full=2, swa=2))
    assert (ask("EVICT-8", step(before, told[0], after, told[1])) == []) is holds


def locked(host: tuple[int, int] | None, *, on_device: bool = True) -> NodeState:
    """A locked node, with these slots on the host."""
    full = on([0, 1] if on_device else None, host, lock_refs=1)
    return node(1, ROOT, [1, 2], full=full, swa=on([0, 1], lock_refs=1))


@pytest.mark.parametrize(
    ("profile", "before", "after", "holds"),
    [
        (LOOSE, locked((0, 1)), locked(None), True),
        (CANON, locked((0, 1)), locked(None), False),
        (LOOSE, locked((0, 1)), locked(None, on_device=False), False),
        (LOOSE, locked((0, 1), on_device=False), locked(None, on_device=False), False),
    ],
    ids=["gone", "canon", "gone from the device", "the only copy"],
)
def test_loose_copies_may_leave_under_a_lock(
    profile: Profile, before: NodeState, after: NodeState, *, holds: bool
) -> None:
    """By profile, a locked node's host copy may leave, unless its data is nowhere else."""
    asked = step(under(profile, before), WINDOW, under(profile, after), Evicted(Counts()))
    for law_id in ("LOCK-4", "EVICT-6"):
        assert (ask(law_id, asked) == []) is holds, law_id


def test_loose_copies_may_be_made_again() -> None:
    """By profile, a locked node's host copy may make way for another and be copied again."""

    def said(law_id: str, profile: Profile) -> list[str]:
        before, after = under(profile, locked((0, 1))), under(profile, locked((4, 5)))
        return ask(law_id, step(before, WINDOW, after, Evicted(Counts())))

    assert said("LOCK-4", LOOSE) == []
    assert said("LOCK-4", CANON) != []
    assert said("EVICT-6", LOOSE) != []


def test_loose_copies_of_others_make_room_for_a_load() -> None:
    """By profile, a load-back may take locked host copies of other prompts, not its own."""
    mine = node(2, ROOT, [7], full=on(None, [2]), swa=on(None, [2]))
    coming = node(2, ROOT, [7], full=on([2], [2]), swa=on([2], [2]))
    key, no_room = make_key([7], 1), LoadedBack(LoadDecision.NO_ROOM)

    def said(law_id: str, profile: Profile, outcome: Outcome, *after: NodeState) -> list[str]:
        before = under(profile, locked((0, 1)), mine)
        return ask(law_id, step(before, LoadBack(key), under(profile, *after), outcome))

    enqueued = LoadedBack(LoadDecision.ENQUEUED, 1, Counts(full=1, swa=1))
    assert said("TREE-5", LOOSE, enqueued, locked(None), coming) == []
    assert said("TREE-5", CANON, enqueued, locked(None), coming) != []
    for profile in (LOOSE, CANON):
        before = under(profile, TOMBSTONE_HELD, mine, config=THROUGH)
        after = under(profile, WITHOUT_WINDOW, mine, config=THROUGH)
        inserted = Insert(key, 1, Slots()), Inserted(1, Counts(), Counts())
        assert (ask("TREE-5", step(before, inserted[0], after, inserted[1])) == []) is (
            profile is LOOSE
        )
    lost = node(2, ROOT, [7], full=on(None, [2]), swa=on())
    assert said("LOAD-2", LOOSE, no_room, locked((0, 1)), lost) != []


def test_load_may_reorder_its_own_path_where_the_host_has_its_own_order() -> None:
    """By profile, and only then, a load-back may reorder its own path on the host."""
    one = node(1, ROOT, [1], full=on([0], [0]), swa=on([0], [0]))
    two = node(2, ROOT, [2], full=on([1], [1]), swa=on([1], [1]))
    key, outcome = make_key([1], 1), LoadedBack(LoadDecision.NO_ROOM)

    def said(profile: Profile, moved: tuple[int, int]) -> list[str]:
        before = under(profile, one, two)
        after = evolve(before, recency={**before.recency, (SWA, CPU): moved})
        return ask("REC-7", step(before, LoadBack(key), after, outcome))

    assert said(Profile(host_order_by_use=False), (2, 1)) == []
    assert said(CANON, (2, 1)) != []
