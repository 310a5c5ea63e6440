"""LOAD: each law on a case where it holds, and on cases with a single fault."""

from __future__ import annotations

import pytest
from attrs import evolve

from kvcanon.spec.config import CANON, CacheConfig, Profile, StoreMoment
from kvcanon.spec.errors import PrefixNotCached
from kvcanon.spec.operations import (
    Flush,
    LoadBack,
    LoadDecision,
    LoadedBack,
    Poll,
    Refused,
    Settled,
)
from kvcanon.spec.snapshot import ComponentState, HoldState, NodeState, Snapshot, TransferState
from kvcanon.spec.transfer import Direction, TransferStatus
from kvcanon.spec.types import (
    FULL,
    MAMBA,
    SWA,
    Component,
    Counts,
    Key,
    Slot,
    WritePolicy,
    make_key,
)
from kvcanon.spec.views import Step
from states import ROOT, node, on, state_of
from telling import ask, step

LAWS_OF_LOADS = ["LOAD-1", "LOAD-2", "LOAD-3", "LOAD-4", "LOAD-5", "LOAD-6", "LOAD-7"]
KEY = make_key([1, 2, 3, 4], 1)
ENQUEUED, NO_ROOM = LoadDecision.ENQUEUED, LoadDecision.NO_ROOM


def config(device: Counts, threshold: int = 0) -> CacheConfig:
    """A cache with a window of two pages and enough host slots."""
    return CacheConfig(
        window_tokens=2,
        mamba=True,
        device_slots=device,
        host_slots=Counts(full=16, swa=16, mamba=4),
        write_policy=WritePolicy.WRITE_THROUGH,
        load_back_threshold_pages=threshold,
    )


ROOMY = config(Counts(full=16, swa=16, mamba=4))
SHORT_OF_SWA = config(Counts(full=8, swa=2, mamba=4))
"""Window slots for the load alone: those that others have must be evicted."""

STEM = node(1, ROOT, [1, 2], full=on([0, 1], [0, 1]), swa=on(None, [0, 1]))
"""The first half of `KEY`, on the device; its window data is out of reach."""
COLD = node(2, 1, [3, 4], full=on(None, [2, 3]), swa=on(None, [2, 3]), mamba=on(None, [0]))
"""The second half, on the host."""
WIDE = node(5, ROOT, [8, 9], full=on([4, 5]), swa=on([0, 1]))
"""Another prompt, a leaf with window data."""
PLAIN = node(6, ROOT, [7], full=on([6]))
"""Another prompt, a leaf without window data."""

STEM_HELD = evolve(STEM, data={**STEM.data, FULL: on([0, 1], [0, 1], lock_refs=1)})
COMING = node(
    2,
    1,
    [3, 4],
    full=on([2, 3], [2, 3], lock_refs=1, loading=7),
    swa=on([0, 1], [2, 3], lock_refs=1, loading=7),
    mamba=on([1], [0], lock_refs=1, loading=7),
)
"""`COLD` once its load is enqueued."""
TRANSFER = TransferState(
    7,
    Direction.LOAD_BACK,
    ((2, FULL), (2, SWA), (2, MAMBA)),
    {FULL: (2, 3), SWA: (2, 3), MAMBA: (0,)},
    {FULL: (2, 3), SWA: (0, 1), MAMBA: (1,)},
)
HOLD = HoldState(90, 2, 2, state_held=True, transfer_id=7)
LOADED = LoadedBack(ENQUEUED, 7, loading=Counts(2, 2, 1))


def cold(*others: NodeState, room: CacheConfig = ROOMY) -> Snapshot:
    """The state before a load-back."""
    return state_of(room, STEM, COLD, *others)


def coming(
    *others: NodeState,
    room: CacheConfig = ROOMY,
    stem: NodeState = STEM_HELD,
    tip: NodeState = COMING,
    transfer: TransferState = TRANSFER,
) -> Snapshot:
    """The state after the load-back was enqueued."""
    return state_of(room, stem, tip, *others, transfers=(transfer,), holds=(HOLD,))


def loaded(
    before: Snapshot,
    after: Snapshot,
    outcome: LoadedBack = LOADED,
    key: Key = KEY,
    quota: int | None = None,
) -> Step:
    """A load-back of `KEY`."""
    return step(before, LoadBack(key, quota), after, outcome)


def changed(old: NodeState, component: Component, data: ComponentState) -> NodeState:
    """A node with other data of one component."""
    return evolve(old, data={**old.data, component: data})


SMALL = config(Counts(full=8, swa=1, mamba=4))
"""Never room for the window."""
STATELESS = config(Counts(full=8, swa=2, mamba=0))
"""Never room for the state."""
THRESHOLD = config(Counts(full=8, swa=8), threshold=3)
BRIEF = node(2, 1, [3, 4], full=on(None, [2, 3]))
"""The second half of `KEY`, of which only full data is to be loaded."""

LAWFUL: dict[str, Step] = {
    "room enough": loaded(cold(PLAIN), coming(PLAIN)),
    "a leaf leaves for its window data": loaded(
        cold(WIDE, PLAIN, room=SHORT_OF_SWA),
        coming(PLAIN, room=SHORT_OF_SWA),
        evolve(LOADED, evicted=Counts(2, 2)),
    ),
    "nothing to load": loaded(coming(), coming(), LoadedBack(LoadDecision.NOTHING_TO_LOAD)),
    "over the quota": loaded(cold(), cold(), LoadedBack(LoadDecision.OVER_QUOTA), quota=1),
    "below the threshold": loaded(
        state_of(THRESHOLD, STEM, BRIEF),
        state_of(THRESHOLD, STEM, BRIEF),
        LoadedBack(LoadDecision.BELOW_THRESHOLD),
    ),
    "no room": loaded(cold(room=SMALL), cold(room=SMALL), LoadedBack(NO_ROOM)),
    "no room, and a leaf has left in vain": loaded(
        cold(WIDE, PLAIN, room=STATELESS),
        cold(PLAIN, room=STATELESS),
        LoadedBack(NO_ROOM, evicted=Counts(2, 2)),
    ),
}


@pytest.mark.parametrize("law_id", [*LAWS_OF_LOADS, "REC-3"])
@pytest.mark.parametrize("lawful", LAWFUL.values(), ids=list(LAWFUL))
def test_lawful_loads(law_id: str, lawful: Step) -> None:
    """Correct load-backs hold."""
    assert ask(law_id, lawful) == []


@pytest.mark.parametrize("law_id", LAWS_OF_LOADS)
def test_refused_loads_are_not_judged_here(law_id: str) -> None:
    """A refused load-back is not checked."""
    refused = Refused(PrefixNotCached(4, 2))
    assert ask(law_id, step(cold(), LoadBack(KEY), coming(), refused)) == []


def test_load_1_full_pages_for_window_slots_are_named() -> None:
    """Full pages without window data that leave for window slots are reported."""
    before, after = cold(WIDE, PLAIN, room=SHORT_OF_SWA), coming(room=SHORT_OF_SWA)
    (said,) = ask("LOAD-1", loaded(before, after))
    assert said == (
        "node 6 (tokens 0..1) lost 1 full slots to a load that needed 2 full and had 3 free; swa: "
        "2 needed, 0 free; mamba: 1 needed, 4 free"
    )
    # That states are short excuses nothing that has no state.
    (said,) = ask("LOAD-1", loaded(cold(PLAIN, room=STATELESS), cold(room=STATELESS)))
    assert said.startswith("node 6 (tokens 0..1) lost 1 full slots to a load that needed 2 full")


def test_rec_3_nothing_leaves_once_there_is_room() -> None:
    """A load-back that evicts too much, or the wrong leaf, is reported."""
    second = node(7, ROOT, [6], full=on([7]), swa=on([2]))
    room = config(Counts(full=8, swa=4, mamba=4))
    before = cold(WIDE, second, room=room)
    assert ask("REC-3", loaded(before, coming(second, room=room))) == []
    assert ask("REC-3", loaded(before, coming(room=room))) == [
        "LoadBack: full data of page 0 in node 7 (tokens 0..1) left GPU, and should not have",
        "LoadBack: swa data of page 0 in node 7 (tokens 0..1) left GPU, and should not have",
    ]
    said = ask("REC-3", loaded(before, coming(WIDE, room=room)))
    assert said[0] == (
        "LoadBack: full data of pages 0..1 in node 5 (tokens 0..2) should have left GPU, and did "
        "not"
    )


def test_rec_3_what_is_held_for_the_load_makes_no_room() -> None:
    """A load-back may evict window data before its own window, but none of its window."""
    stem = changed(STEM, SWA, on([0, 1], [0, 1]))
    room = config(Counts(full=8, swa=3, mamba=4))
    before = state_of(room, stem, COLD)
    arrived = changed(COMING, SWA, on([2, 0], [2, 3], lock_refs=1, loading=7))
    after = coming(tip=arrived, room=room)
    assert ask("REC-3", loaded(before, after)) == []
    kept = changed(STEM_HELD, SWA, on([0, 1], [0, 1]))
    (said,) = ask("REC-3", loaded(before, coming(stem=kept, tip=COMING, room=room)))
    assert said.startswith("LoadBack: swa data of pages 0..1 in node 1")
    assert said.endswith("should have left GPU, and did not")


def test_load_1_full_slots_may_be_short() -> None:
    """Full pages may leave where full slots are short."""
    room = config(Counts(full=3, swa=4, mamba=4))
    lone = node(6, ROOT, [7], full=on([2]))
    another = node(7, ROOT, [6], full=on([3]))
    before = cold(lone, room=room)
    assert ask("LOAD-1", loaded(before, cold(room=room), LoadedBack(NO_ROOM))) == []
    room = config(Counts(full=5, swa=4, mamba=4))
    before = cold(lone, another, room=room)
    assert ask("LOAD-1", loaded(before, coming(another, room=room))) == []
    assert ask("LOAD-1", loaded(before, coming(room=room))) == []
    assert ask("REC-3", loaded(before, coming(another, room=room))) == []
    (said,) = ask("REC-3", loaded(before, coming(room=room)))
    assert said == (
        "LoadBack: full data of page 0 in node 7 (tokens 0..1) left GPU, and should not have"
    )


@pytest.mark.parametrize(
    ("stem", "said"),
    [
        (
            changed(STEM, FULL, on(None, [0, 1])),
            "page 0 of the key that was to be loaded; its full",
        ),
        (changed(STEM, FULL, on([0, 1])), "its full slot on CPU_PINNED was 0 and is none"),
        (changed(STEM, FULL, on([1, 0], [0, 1])), "its full slot on GPU was 0 and is 1"),
    ],
)
def test_load_2_own_victims_are_named(stem: NodeState, said: str) -> None:
    """A load-back that evicts data of its own key is reported, on either medium."""
    found = ask("LOAD-2", loaded(cold(), coming(stem=stem)))
    assert len(found) == 2
    assert said in found[0]
    assert len(ask("LOAD-2", loaded(cold(), state_of(ROOMY, stem, COLD), LoadedBack(NO_ROOM)))) == 2


def test_load_2_window_and_state_are_its_own() -> None:
    """Window data before the window may leave; that of the window and the state may not."""
    stem = changed(STEM, SWA, on([4, 5], [0, 1]))
    before = state_of(ROOMY, stem, COLD)
    assert ask("LOAD-2", loaded(before, coming(stem=changed(STEM_HELD, SWA, on())))) == []
    tip = changed(changed(COMING, SWA, on([0, 1])), MAMBA, on([1]))
    said = ask("LOAD-2", loaded(before, coming(tip=tip)))
    assert len(said) == 3
    assert "page 3 in node 2 (tokens 2..4) is page 3 of the key that was to be loaded" in said[2]
    assert said[2].endswith("its mamba slot on CPU_PINNED was 0 and is none")


def test_load_3_other_failures_are_named() -> None:
    """A load-back that is not enqueued and keeps locks, or evicts, is reported."""
    over = LoadedBack(LoadDecision.OVER_QUOTA)
    said = ask("LOAD-3", loaded(cold(), coming(), over, quota=0))
    assert any("page 0 in node 1 (tokens 0..2): full lock_refs was 0 and is 1" in s for s in said)
    (said_evicted,) = ask("LOAD-3", loaded(cold(PLAIN), cold(), over))[:1]
    assert said_evicted == "page 0 in node 6 (tokens 0..1) vanished"


def test_load_3_only_the_evicted_differ() -> None:
    """A load-back without enough slots that changes more than its victims is reported."""
    before = cold(WIDE, PLAIN, room=STATELESS)
    failed = LoadedBack(NO_ROOM)
    said = ask("LOAD-3", loaded(before, state_of(STATELESS, STEM_HELD, COLD, PLAIN), failed))
    assert said[0] == "page 0 in node 1 (tokens 0..2): full lock_refs was 0 and is 1"
    touched = evolve(PLAIN, hit_count=9)
    (said_hit,) = ask("LOAD-3", loaded(before, cold(touched, room=STATELESS), failed))
    assert said_hit == "page 0 in node 6 (tokens 0..1): hit_count was 0 and is 9"


@pytest.mark.parametrize(
    ("tip", "words"),
    [
        (COLD, "page 2 in node 2 (tokens 2..4) has no full slot on GPU"),
        (
            changed(COMING, SWA, on(None, [2, 3], lock_refs=1)),
            "page 2 in node 2 (tokens 2..4) has no swa slot on GPU",
        ),
        (
            changed(COMING, MAMBA, on(None, [0], lock_refs=1)),
            "1 mamba slots are reported as loading, and pages gained 0",
        ),
        (
            changed(COMING, SWA, on([1, 0], [2, 3], lock_refs=1, loading=7)),
            "transfer 7 copies swa slots [2, 3] on CPU_PINNED to [0, 1] on GPU; what came to the",
        ),
        (
            changed(COMING, FULL, on([2, 3], [2, 3], lock_refs=1)),
            "page 2 in node 2 (tokens 2..4) has a new full slot on GPU that transfer 7 does not",
        ),
    ],
)
def test_load_4_what_does_not_come_is_named(tip: NodeState, words: str) -> None:
    """Needed data that stays on the host, or comes without a transfer, is reported."""
    found = ask("LOAD-4", loaded(cold(), coming(tip=tip)))
    assert any(words in each for each in found)


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (evolve(coming(), transfers=()), "transfer 7 should be the last in flight; there is none"),
        (
            evolve(coming(), transfers=(TRANSFER, evolve(TRANSFER, transfer_id=8))),
            "transfer 7 should be the last in flight; that is 8",
        ),
        (evolve(coming(), holds=()), "transfer 7 holds no receipt"),
        (
            coming(transfer=evolve(TRANSFER, parts=TRANSFER.parts[1:])),
            "transfer 7 and the key do not agree on the parts [(2, 'full')]",
        ),
        (
            coming(transfer=evolve(TRANSFER, direction=Direction.BACKUP)),
            "transfer 7 is a backup, cancelled: False",
        ),
    ],
)
def test_load_4_other_transfers_are_named(after: Snapshot, words: str) -> None:
    """A load-back with a wrong transfer, or none, or one without a receipt, is reported."""
    assert words in ask("LOAD-4", loaded(cold(), after))


def test_load_4_transfer_is_a_new_one() -> None:
    """A transfer that was in flight before the load-back is reported."""
    (said,) = ask("LOAD-4", loaded(evolve(cold(), transfers=(TRANSFER,)), coming()))
    assert said == "transfer 7 was in flight before the load"
    assert ask("LOAD-4", loaded(cold(), state_of(ROOMY, STEM)))[0] == (
        "of the 4 pages of the key 2 are in the tree after the load"
    )


def test_load_4_no_page_waits_where_a_load_is_of_use_at_once() -> None:
    """By profile, no page waits for a load-back that can be used at once."""
    tip = evolve(COMING, data={c: evolve(each, loading=None) for c, each in COMING.data.items()})
    unmarked = coming(tip=tip)
    assert len(ask("LOAD-4", loaded(cold(), unmarked))) == 5
    declared = evolve(unmarked, profile=Profile(load_back_usable=StoreMoment.ENQUEUED))
    assert ask("LOAD-4", loaded(cold(), declared)) == []


def test_load_4_window_that_is_nowhere_cannot_come() -> None:
    """A tombstone in the window need not get window data that is nowhere."""
    before = state_of(ROOMY, STEM, BRIEF)
    tip = node(2, 1, [3, 4], full=on([2, 3], [2, 3], lock_refs=1, loading=7))
    full: dict[Component, tuple[Slot, ...]] = {FULL: (2, 3)}
    transfer = evolve(TRANSFER, parts=((2, FULL),), sources=full, targets=full)
    outcome = evolve(LOADED, loading=Counts(2))
    assert ask("LOAD-4", loaded(before, coming(tip=tip, transfer=transfer), outcome)) == []


def test_load_4_what_is_of_no_use_stays_on_the_host() -> None:
    """A load-back of window data from before the window is reported."""
    stem = changed(STEM_HELD, SWA, on([2, 3], [0, 1], loading=7))
    some = {FULL: (2, 3), SWA: (0, 1, 2, 3), MAMBA: (0,)}
    transfer = evolve(
        TRANSFER,
        parts=((1, SWA), *TRANSFER.parts),
        sources=some,
        targets={**some, SWA: (2, 3, 0, 1), MAMBA: (1,)},
    )
    after, outcome = coming(stem=stem, transfer=transfer), evolve(LOADED, loading=Counts(2, 4, 1))
    assert ask("LOAD-4", loaded(cold(), after, outcome)) == [
        f"page {page} in node 1 (tokens 0..2) got swa slot {slot} on GPU, which is of no use at "
        "the end of the key"
        for page, slot in ((0, 2), (1, 3))
    ]


def test_load_5_lost_sources_are_named() -> None:
    """A host copy that goes or moves while it is loaded, or afterwards, is reported."""
    tip = changed(COMING, FULL, on([2, 3], lock_refs=1, loading=7))
    said = ask("LOAD-5", loaded(cold(), coming(tip=tip)))
    assert said[0] == (
        "page 2 in node 2 (tokens 2..4) is loaded from full slot 2 on CPU_PINNED, which is none now"
    )
    here = node(2, 1, [3, 4], full=on([2, 3], [2, 3]), swa=on([0, 1], [2, 3]), mamba=on([1], [0]))
    settled = Settled(())
    assert ask("LOAD-5", step(coming(), Poll(), state_of(ROOMY, STEM, here), settled)) == []
    for gone in (changed(here, MAMBA, on([1])), changed(here, MAMBA, on([1], [3]))):
        (mamba,) = ask("LOAD-5", step(coming(), Flush(), state_of(ROOMY, STEM, gone), settled))
        assert "page 3 in node 2 (tokens 2..4) is loaded from mamba slot 0" in mamba
    failed = changed(COMING, FULL, on(None, [2, 3]))
    assert ask("LOAD-5", step(coming(), Poll(), coming(tip=failed), settled)) == []


EXCLUSIVE = Profile(loads_keep_host_copies=False)
BACK = evolve(ROOMY, write_policy=WritePolicy.WRITE_BACK)
HERE = node(2, 1, [3, 4], full=on([2, 3]), swa=on([0, 1]), mamba=on([1]))
"""`COLD` once it is on the device only."""


@pytest.mark.parametrize(
    ("room", "profile", "status", "may_go"),
    [
        (BACK, EXCLUSIVE, TransferStatus.DONE, True),
        (BACK, EXCLUSIVE, TransferStatus.FAILED, False),
        (BACK, CANON, TransferStatus.DONE, False),
        (ROOMY, EXCLUSIVE, TransferStatus.DONE, False),
    ],
    ids=["declared", "failed", "the canon", "write_through"],
)
def test_load_5_exclusive_tiers_give_up_what_is_loaded(
    room: CacheConfig, profile: Profile, status: TransferStatus, may_go: bool
) -> None:
    """By profile, and only then, the host copy may go when its load-back is done."""
    before = evolve(coming(room=room), profile=profile)
    after = evolve(state_of(room, STEM, HERE), profile=profile)
    given_up = step(before, Poll(), after, Settled(((7, status),)))
    assert (ask("LOAD-5", given_up) == []) is may_go
    assert (ask("LOCK-4", given_up) == []) is may_go


def test_load_5_exclusive_tiers_keep_what_is_read() -> None:
    """By profile, the host copy stays at the enqueue, and while another load-back reads it."""
    before, tip = evolve(cold(room=BACK), profile=EXCLUSIVE), changed(COMING, FULL, on([2, 3]))
    assert ask("LOAD-5", loaded(before, evolve(coming(room=BACK, tip=tip), profile=EXCLUSIVE)))
    other = evolve(TRANSFER, transfer_id=8, parts=((2, MAMBA),))
    reading = evolve(coming(room=BACK), transfers=(TRANSFER, other), profile=EXCLUSIVE)
    after = state_of(BACK, STEM, HERE, transfers=(other,))
    (said,) = ask("LOAD-5", step(reading, Poll(), after, Settled(((7, TransferStatus.DONE),))))
    assert "is loaded from mamba slot 0 on CPU_PINNED, which is none now" in said


@pytest.mark.parametrize(
    ("before", "quota", "told", "right"),
    [
        (cold(), None, LoadDecision.NOTHING_TO_LOAD, "enqueued or no_room"),
        (cold(), 2, LoadDecision.OVER_QUOTA, "enqueued or no_room"),
        (cold(), 1, ENQUEUED, "over_quota"),
        (coming(), None, ENQUEUED, "nothing_to_load"),
        (state_of(THRESHOLD, STEM, BRIEF), None, ENQUEUED, "below_threshold"),
        (state_of(THRESHOLD, STEM, BRIEF), 1, ENQUEUED, "below_threshold or over_quota"),
        (state_of(THRESHOLD, STEM, COLD), None, LoadDecision.BELOW_THRESHOLD, "enqueued"),
    ],
)
def test_load_6_other_reasons_are_named(
    before: Snapshot, quota: int | None, told: LoadDecision, right: str
) -> None:
    """A reason that does not apply is reported, and an enqueue against one that does."""
    (said,) = ask("LOAD-6", loaded(before, before, LoadedBack(told), quota=quota))
    assert f"the decision was {told}, expected {right}" in said


def test_load_6_two_reasons_are_equal() -> None:
    """Of two reasons that apply, either may be given."""
    before = state_of(THRESHOLD, STEM, BRIEF)
    for told in (LoadDecision.BELOW_THRESHOLD, LoadDecision.OVER_QUOTA):
        assert ask("LOAD-6", loaded(before, before, LoadedBack(told), quota=1)) == []


def test_load_6_room_that_is_there_is_named() -> None:
    """The reason "no room" is reported where enough slots are free or could be freed."""
    (said,) = ask("LOAD-6", loaded(cold(), cold(), LoadedBack(NO_ROOM)))
    assert said == (
        "2 full, 2 swa and 1 mamba slots have to be loaded, and there is room or could be made: "
        "14 full, 16 swa and 4 mamba slots are free, and the decision was no_room"
    )
    short = cold(WIDE, room=SHORT_OF_SWA)
    assert len(ask("LOAD-6", loaded(short, short, LoadedBack(NO_ROOM)))) == 1


def test_load_6_pages_before_the_window_need_no_window_data() -> None:
    """Window data before the last window need not be loaded."""
    here = state_of(ROOMY, STEM, node(2, 1, [3, 4], full=on([2, 3]), swa=on([2, 3])))
    assert ask("LOAD-6", loaded(here, here, LoadedBack(LoadDecision.NOTHING_TO_LOAD))) == []
    shorter = KEY.prefix(3)
    (said,) = ask("LOAD-6", loaded(here, here, LoadedBack(LoadDecision.OVER_QUOTA), key=shorter))
    assert said.startswith("0 full, 1 swa and 0 mamba slots have to be loaded")
    whole = evolve(here, profile=Profile(window_lock_exact=False))
    (said,) = ask("LOAD-6", loaded(whole, whole, LoadedBack(LoadDecision.OVER_QUOTA), key=shorter))
    assert said.startswith("0 full, 2 swa and 0 mamba slots have to be loaded")


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (coming(evolve(PLAIN, hit_count=2)), "hit_count was 0 and is 2"),
        (coming(changed(PLAIN, FULL, on([9]))), "its full slot on GPU was 6 and is 9"),
        (coming(PLAIN, stem=evolve(STEM_HELD, hit_count=3)), "hit_count was 0 and is 3"),
        (
            coming(
                PLAIN,
                tip=changed(COMING, FULL, on([2, 3], [2, 3], lock_refs=1, loading=7, backing=8)),
            ),
            "full backup in flight was none and is 8",
        ),
    ],
)
def test_load_7_other_changes_are_named(after: Snapshot, words: str) -> None:
    """A load-back that changes other nodes, or hits and backups of its path, is reported."""
    found = ask("LOAD-7", loaded(cold(PLAIN), after))
    assert found
    assert all(words in each for each in found)


def test_load_7_locked_victims_are_named() -> None:
    """A load-back that evicts locked data is reported."""
    locked = changed(PLAIN, FULL, on([6], lock_refs=1))
    (said,) = ask("LOAD-7", loaded(cold(locked), coming()))
    assert said == (
        "page 0 in node 6 (tokens 0..1), with 1 full lock_refs: its full slot on GPU was 6 and is "
        "none"
    )
