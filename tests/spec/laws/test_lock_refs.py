"""LOCK-1 to LOCK-6: lock refs that hold, and cases with a single fault."""

from __future__ import annotations

import pytest
from attrs import evolve

from kvcanon.spec.config import CacheConfig, Profile
from kvcanon.spec.operations import (
    Evicted,
    Flush,
    Poll,
    Settled,
    Unlock,
)
from kvcanon.spec.snapshot import ComponentState, HoldState
from kvcanon.spec.types import (
    CPU,
    FULL,
    GPU,
    SWA,
    Component,
    Counts,
    Medium,
    Slot,
)
from lock_cases import (
    CONFIG,
    END,
    EVICT,
    FREE,
    HOLD,
    LOCK,
    RECEIPT,
    UP,
    Refs,
    part,
    parted,
    whole,
    with_data,
)
from states import ROOT, node, on, state_of
from telling import ask, step


def off_device(data: ComponentState) -> ComponentState:
    """The same data without its device slots, and with no load-back."""
    return evolve(data, device=None, loading=None)


def test_lock_1_counts_below_zero_are_named() -> None:
    """A count below zero is reported."""
    assert ask("LOCK-1", parted()) == []
    (said,) = ask("LOCK-1", parted(Refs(0, -1, 0)))
    assert said == "node 2 (tokens 0..3) has -1 swa lock_refs"


@pytest.mark.parametrize(
    ("refs", "words"),
    [
        (Refs(1, 2, 0), "has 2 swa lock_refs and only 1 full lock_refs"),
        (Refs(2, 1, 2), "has 2 mamba lock_refs and only 1 swa lock_refs"),
    ],
)
def test_lock_2_lesser_above_greater_is_named(refs: Refs, words: str) -> None:
    """Window data with more lock refs than full data is reported, a state with more than it."""
    assert ask("LOCK-2", parted(UP, Refs(3, 2, 2))) == []
    (said,) = ask("LOCK-2", parted(UP, refs))
    assert said == f"node 1 (tokens 3..5) {words}"


def test_lock_2_components_that_are_not_there_do_not_count() -> None:
    """Without a window a mamba state is compared with full data."""
    config = CacheConfig(mamba=True)
    lone = node(1, ROOT, [1], full=on([0], lock_refs=1), mamba=on([0], lock_refs=1))
    assert ask("LOCK-2", state_of(config, lone)) == []


def test_lock_3_refs_of_all_receipts_add_up() -> None:
    """Two receipts on one path, one with its window released, account for its refs."""
    early = HoldState(101, 1, None, state_held=False)
    inner = HoldState(102, 2, 1, state_held=True)
    state = parted(Refs(3, 0, 1), Refs(2, 1, 1), HOLD, early, inner)
    (said,) = ask("LOCK-3", state)
    assert "receipt 102 holds window data from page 1 on, which is inside node 2" in said
    inner = HoldState(102, 2, 0, state_held=True)
    assert ask("LOCK-3", parted(Refs(3, 1, 1), Refs(2, 1, 1), HOLD, early, inner)) == []


def test_lock_3_empty_receipt_holds_nothing() -> None:
    """A receipt of the empty key holds nothing."""
    assert ask("LOCK-3", parted(FREE, FREE, HoldState(100, ROOT, 0, state_held=True))) == []


@pytest.mark.parametrize(
    ("upper", "lower", "words"),
    [
        (FREE, END, "node 2 (tokens 0..3) has 0 full lock_refs, but 1 open receipts cover it"),
        (Refs(1, 1, 0), END, "has 1 swa lock_refs, but 0 open receipts cover it: []"),
        (UP, Refs(1, 1, 0), "has 0 mamba lock_refs, but 1 open receipts cover it: [100]"),
        (UP, Refs(2, 1, 1), "node 1 (tokens 3..5) has 2 full lock_refs, but 1 open"),
    ],
)
def test_lock_3_other_refs_are_named(upper: Refs, lower: Refs, words: str) -> None:
    """Lock refs without a receipt are reported, and missing ones."""
    assert ask("LOCK-3", parted(UP, END, HOLD)) == []
    (said,) = ask("LOCK-3", parted(upper, lower, HOLD))
    assert words in said


def test_lock_3_refs_at_rest_are_named() -> None:
    """Lock refs are reported where no receipt is open."""
    assert ask("LOCK-3", parted(FREE, FREE)) == []
    (said,) = ask("LOCK-3", parted(FREE, Refs(0, 1, 0)))
    assert "node 1 (tokens 3..5) has 1 swa lock_refs, but 0 open receipts cover it: []" in said


def test_lock_3_receipt_on_no_node_is_named() -> None:
    """A receipt on a node that is not in the tree is reported."""
    (said,) = ask("LOCK-3", parted(FREE, FREE, evolve(HOLD, node_id=9)))
    assert said == "receipt 100 is on node 9, which is not in the tree"


def test_lock_4_unlocked_data_may_go() -> None:
    """Unlocked data may leave, and locked data may be gained."""
    before = parted(UP, Refs(1, 0, 0), evolve(HOLD, window_from_pages=None, state_held=False))
    after = with_data(before, 1, SWA, off_device)
    assert ask("LOCK-4", step(before, EVICT, after)) == []
    assert ask("LOCK-4", step(after, Poll(), before)) == []


@pytest.mark.parametrize("slots", [None, (7, 8)], ids=["gone", "moved"])
@pytest.mark.parametrize("component", [FULL, SWA])
@pytest.mark.parametrize("medium", [GPU, CPU])
def test_lock_4_locked_data_stays(
    component: Component, medium: Medium, slots: tuple[Slot, ...] | None
) -> None:
    """Locked data that leaves its slots is reported, on either medium."""
    before = parted(UP, END, HOLD)
    after = with_data(
        before,
        1,
        component,
        lambda data: evolve(data, device=slots) if medium is GPU else evolve(data, host=slots),
    )
    said = ask("LOCK-4", step(before, EVICT, after))
    assert len(said) == 2
    now = "no slot" if slots is None else f"slot {slots[0]}"
    assert said[0] == (
        f"page 3 in node 1 (tokens 3..5) was in {component} slot 3 on {medium}, with lock_refs 1, "
        f"and is now in {now}"
    )


def test_lock_4_vanished_page_is_named() -> None:
    """A locked page that leaves the tree is reported."""
    before = parted(UP, END, HOLD)
    after = evolve(state_of(CONFIG, part(2, ROOT, [1, 2, 3], UP)), holds=(HOLD,))
    said = ask("LOCK-4", step(before, EVICT, after))
    assert any("page 4 in node 1 (tokens 3..5) was in full slot 4 on GPU" in each for each in said)


def test_lock_4_polls_evict_nothing() -> None:
    """Data that leaves in the step that closes its copy's receipt is reported."""
    before = parted(UP, END, HOLD)
    gone = with_data(parted(FREE, FREE), 1, FULL, off_device)
    said = ask("LOCK-4", step(before, Poll(), gone, Settled(())))
    assert len(said) == 2
    assert all("in node 1 (tokens 3..5) was in full slot" in each for each in said)
    released = step(before, Unlock(RECEIPT), gone)
    assert ask("LOCK-4", released) == []


def test_lock_4_targets_of_copies_were_never_there() -> None:
    """Targets of a failed copy may go in a poll or a flush, and in no other call."""
    before = with_data(parted(UP, END, HOLD), 1, FULL, lambda data: evolve(data, loading=7))
    after = with_data(before, 1, FULL, off_device)
    assert ask("LOCK-4", step(before, Flush(), after, Settled(()))) == []
    assert len(ask("LOCK-4", step(before, EVICT, after, Evicted(Counts())))) == 2
    moved = with_data(before, 1, FULL, lambda data: evolve(data, device=(8, 9), loading=None))
    assert len(ask("LOCK-4", step(before, Poll(), moved, Settled(())))) == 2


def test_lock_5_parent_below_child_is_named() -> None:
    """A parent with fewer lock refs than its child is reported."""
    assert ask("LOCK-5", parted(Refs(2, 0, 0), END)) == []
    (said,) = ask("LOCK-5", parted(UP, Refs(2, 1, 1)))
    assert "node 1 (tokens 3..5) has 2 full lock_refs and its parent node 2" in said
    assert said.endswith("only 1")


def test_lock_6_exactly_the_window_is_counted() -> None:
    """A lock that cuts at its window and counts the window holds."""
    assert ask("LOCK-6", step(whole(), LOCK, parted(), RECEIPT)) == []
    again = parted(Refs(2, 0, 0), Refs(2, 2, 2))
    assert ask("LOCK-6", step(parted(), LOCK, again, RECEIPT)) == []


def test_lock_6_more_or_less_is_named() -> None:
    """A lock that counts more or less window data than its window is reported."""
    said = ask("LOCK-6", step(whole(), LOCK, whole(END), RECEIPT))
    assert len(said) == 3
    assert said[0] == (
        "page 0 in node 1 (tokens 0..5) is page 0 of the key; its swa lock_refs went from 0 to 1, "
        "expected 0"
    )
    (said_less,) = ask("LOCK-6", step(whole(), LOCK, parted(UP, END, at=4), RECEIPT))
    assert "page 3 of the key; its swa lock_refs went from 0 to 0, expected 1" in said_less
    assert len(ask("LOCK-6", step(whole(), LOCK, whole(), RECEIPT))) == 2


def test_lock_6_whole_nodes_where_the_profile_says_so() -> None:
    """By profile, a lock may count whole nodes."""
    declared = Profile(window_lock_exact=False)
    before, after = evolve(whole(), profile=declared), evolve(whole(END), profile=declared)
    assert ask("LOCK-6", step(before, LOCK, after, RECEIPT)) == []
    less = evolve(parted(UP, END, at=4), profile=declared)
    assert len(ask("LOCK-6", step(before, LOCK, less, RECEIPT))) == 1


def test_lock_6_other_prompts_are_not_counted() -> None:
    """A lock that counts window data of another prompt is reported."""
    other = node(9, ROOT, [9], full=on([9], [9]), swa=on([9], [9]))
    counted = evolve(other, data={**other.data, SWA: on([9], [9], lock_refs=1)})
    before = state_of(CONFIG, *whole().below_root(), other)
    after = state_of(CONFIG, *parted().below_root(), counted)
    (said,) = ask("LOCK-6", step(before, LOCK, after, RECEIPT))
    assert "page 0 in node 9 (tokens 0..1) is not in the key" in said
