"""LOCK: each law on a case where it holds, and on cases with a single fault."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest
from attrs import evolve

from kvcanon.spec.config import CacheConfig, Profile
from kvcanon.spec.errors import PrefixNotCached
from kvcanon.spec.operations import (
    Evict,
    Evicted,
    Flush,
    Lock,
    Poll,
    Receipt,
    Refused,
    Settled,
    Unlock,
    UnlockWindow,
)
from kvcanon.spec.snapshot import ComponentState, HoldState, NodeState, Snapshot
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
    WritePolicy,
    make_key,
)
from states import ROOT, node, on, state_of
from telling import ask, step

POOLS = Counts(full=16, swa=16, mamba=4)
CONFIG = CacheConfig(
    window_tokens=2,
    mamba=True,
    device_slots=POOLS,
    host_slots=POOLS,
    write_policy=WritePolicy.WRITE_THROUGH,
)
KEY = make_key([1, 2, 3, 4, 5], 1)
RECEIPT = Receipt(100, KEY)
HOLD = HoldState(100, 1, 3, state_held=True)
"""What `RECEIPT` holds: five pages of full data, the last two of window data, and the state."""


class Refs(NamedTuple):
    """Lock refs of a node."""

    full: int = 0
    swa: int = 0
    mamba: int = 0


FREE = Refs()
UP, END = Refs(1, 0, 0), Refs(1, 1, 1)
"""What one lock of `KEY` counts above its window, and in it."""


def part(
    node_id: int, parent_id: int, tokens: list[int], refs: Refs, *, state: bool = False
) -> NodeState:
    """A part of the path of `KEY`: page n has slot n of every pool, the mamba state slot 0."""
    slots = [token - 1 for token in tokens]
    made = node(
        node_id,
        parent_id,
        tokens,
        full=on(slots, slots, lock_refs=refs.full),
        swa=on(slots, slots, lock_refs=refs.swa),
        mamba=on([0] if state else None, lock_refs=refs.mamba),
    )
    return evolve(made, created=1, last_access=1)


def whole(refs: Refs = FREE, *holds: HoldState) -> Snapshot:
    """The path as one node."""
    return state_of(CONFIG, part(1, ROOT, [1, 2, 3, 4, 5], refs, state=True), holds=holds)


def parted(upper: Refs = UP, lower: Refs = END, *holds: HoldState, at: int = 3) -> Snapshot:
    """The path cut before page `at`, with these refs above and below."""
    tokens = [1, 2, 3, 4, 5]
    return state_of(
        CONFIG,
        part(2, ROOT, tokens[:at], upper),
        part(1, 2, tokens[at:], lower, state=True),
        holds=holds,
    )


def with_data(
    state: Snapshot,
    node_id: int,
    component: Component,
    change: Callable[[ComponentState], ComponentState],
) -> Snapshot:
    """A state in which one component's data at one node is changed."""
    old = state.nodes[node_id]
    data = {**old.data, component: change(old[component])}
    return evolve(state, nodes={**state.nodes, node_id: evolve(old, data=data)})


def off_device(data: ComponentState) -> ComponentState:
    """The same data without its device slots, and with no load-back."""
    return evolve(data, device=None, loading=None)


def off_host(data: ComponentState) -> ComponentState:
    """The same data without its host slots, and with no backup."""
    return evolve(data, host=None)


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


EVICT = Evict(Counts(full=1))


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
    now = "none" if slots is None else str(slots[0])
    assert said[0] == (
        f"page 3 in node 1 (tokens 3..5) was in {component} slot 3 on {medium}, with 1 lock_refs, "
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


LOCK = Lock(KEY)


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


EARLY = evolve(HOLD, window_from_pages=None, state_held=False)


def test_lock_8_releases_undo_what_was_covered() -> None:
    """A release that lowers exactly what its receipt covered holds."""
    held = parted(UP, END, HOLD)
    after_window = parted(UP, UP, EARLY)
    assert ask("LOCK-8", step(held, Unlock(RECEIPT), parted(FREE, FREE))) == []
    assert ask("LOCK-8", step(held, UnlockWindow(RECEIPT), after_window)) == []
    assert ask("LOCK-8", step(after_window, UnlockWindow(RECEIPT), after_window)) == []
    assert ask("LOCK-8", step(after_window, Unlock(RECEIPT), parted(FREE, FREE))) == []


def test_lock_8_only_the_end_has_the_state() -> None:
    """A release on a node that was cut since does not lower the refs of a state higher up."""
    held = parted(UP, END, HOLD)
    between = [part(3, 2, [4], Refs(1, 1, 0)), part(1, 3, [5], END, state=True)]
    cut = state_of(CONFIG, part(2, ROOT, [1, 2, 3], UP), *between, holds=(HOLD,))
    free = [part(3, 2, [4], FREE), part(1, 3, [5], FREE, state=True)]
    after = state_of(CONFIG, part(2, ROOT, [1, 2, 3], FREE), *free)
    assert ask("LOCK-8", step(cut, Unlock(RECEIPT), after)) == []
    # And a release may cut, too.
    assert ask("LOCK-8", step(held, Unlock(RECEIPT), after)) == []


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (parted(UP, FREE), "node 2 (tokens 0..3) was covered by receipt 100"),
        (parted(FREE, Refs(0, 1, 0)), "swa lock_refs went from 1 to 1 with the release"),
        (parted(FREE, Refs(0, 0, -1)), "mamba lock_refs went from 1 to -1 with the release"),
        (parted(FREE, FREE, HOLD), "receipt 100 is still open after its release"),
        (evolve(parted(FREE, FREE), swa_of_full={}), "the mapping leads from full to window"),
    ],
)
def test_lock_8_other_releases_are_named(after: Snapshot, words: str) -> None:
    """A release that lowers more or less than its receipt, or leaves it open, is reported."""
    said = ask("LOCK-8", step(parted(UP, END, HOLD), Unlock(RECEIPT), after))
    assert any(words in each for each in said)


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (parted(UP, UP, HOLD), "receipt 100 still holds window data from page 3 on"),
        (parted(UP, UP), "receipt 100 is closed; its full data was not released"),
        (parted(FREE, FREE, EARLY), "full lock_refs went from 1 to 0"),
    ],
)
def test_lock_8_other_early_releases_are_named(after: Snapshot, words: str) -> None:
    """`unlock_window` that keeps the window, closes the receipt or frees full data is reported."""
    said = ask("LOCK-8", step(parted(UP, END, HOLD), UnlockWindow(RECEIPT), after))
    assert any(words in each for each in said)


def test_lock_8_unknown_receipt_must_be_refused() -> None:
    """A release of a receipt that is not open is reported if it is served."""
    state = parted(FREE, FREE)
    (said,) = ask("LOCK-8", step(state, Unlock(RECEIPT), state))
    assert said == "receipt 100 was not open, and its release was not refused"
    refused = Refused(PrefixNotCached(1, 0))
    assert ask("LOCK-8", step(state, Unlock(RECEIPT), state, refused)) == []


def test_lock_8_and_9_other_things_stay() -> None:
    """A lock or a release that moves data, hits, or receipts of others is reported."""
    held, freed = parted(UP, END, HOLD), parted(FREE, FREE)
    changed: list[tuple[Snapshot, str]] = []
    for state in (freed, held):
        hit = evolve(state.nodes[1], hit_count=3)
        changed += [
            (with_data(state, 1, FULL, off_host), "full slot on CPU_PINNED was 3 and is none"),
            (evolve(state, nodes={**state.nodes, 1: hit}), "hit_count was 0 and is 3"),
        ]
    for at, (after, words) in enumerate(changed):
        law_id, before, what = (
            ("LOCK-8", held, Unlock(RECEIPT)) if at < 2 else ("LOCK-9", freed, LOCK)
        )
        assert any(words in each for each in ask(law_id, step(before, what, after)))
    another = evolve(HOLD, receipt_id=101)
    two, one = parted(Refs(2, 0, 0), Refs(2, 2, 2), HOLD, another), parted(UP, END)
    (said,) = ask("LOCK-8", step(two, Unlock(RECEIPT), one))
    assert said == "receipts [101] are open in one state only"


def test_lock_9_counts_the_whole_path() -> None:
    """A lock that counts its path, with or without a cut, holds."""
    assert ask("LOCK-9", step(whole(), LOCK, parted(), RECEIPT)) == []
    again = parted(Refs(2, 0, 0), Refs(2, 2, 2))
    assert ask("LOCK-9", step(parted(), LOCK, again, RECEIPT)) == []
    empty = Lock(make_key([], 1))
    assert ask("LOCK-9", step(whole(), empty, whole(), Receipt(1, empty.key))) == []


@pytest.mark.parametrize(
    ("after", "words", "count"),
    [
        (
            parted(FREE, END),
            "page 0 of the key; its full lock_refs went from 0 to 0, expected 1",
            3,
        ),
        (parted(Refs(2, 0, 0), END), "its full lock_refs went from 0 to 2, expected 1", 3),
        (parted(UP, Refs(1, 1, 0)), "page 4 of the key; its mamba lock_refs went from 0 to 0", 1),
        (whole(), "page 0 is page 0 of the key; its full lock_refs went from 0 to 0", 6),
    ],
)
def test_lock_9_other_counts_are_named(after: Snapshot, words: str, count: int) -> None:
    """A lock that misses a page of its key, or counts one twice, is reported."""
    said = ask("LOCK-9", step(whole(), LOCK, after, RECEIPT))
    assert len(said) == count
    assert any(words in each for each in said)


def test_lock_9_state_inside_is_not_the_end() -> None:
    """A lock that ends inside a node and holds the state at that node's end is reported."""
    prefix = Lock(KEY.prefix(3))
    right = state_of(
        CONFIG,
        part(3, ROOT, [1], UP),
        part(2, 3, [2, 3], END),
        part(1, 2, [4, 5], FREE, state=True),
    )
    assert ask("LOCK-9", step(whole(), prefix, right, Receipt(1, prefix.key))) == []
    assert ask("LOCK-6", step(whole(), prefix, right, Receipt(1, prefix.key))) == []
    wrong = state_of(
        CONFIG,
        part(3, ROOT, [1], UP),
        part(2, 3, [2, 3], Refs(1, 1, 0)),
        part(1, 2, [4, 5], Refs(0, 0, 1), state=True),
    )
    said = ask("LOCK-9", step(whole(), prefix, wrong, Receipt(1, prefix.key)))
    assert len(said) == 2
    assert "page 4 in node 1 (tokens 3..5) is not in the key; its mamba lock_refs went" in said[1]


@pytest.mark.parametrize("law_id", ["LOCK-4", "LOCK-6", "LOCK-8", "LOCK-9"])
@pytest.mark.parametrize("operation", [LOCK, Unlock(RECEIPT), UnlockWindow(RECEIPT)])
def test_refusals_are_not_judged_here(law_id: str, operation: Lock | Unlock | UnlockWindow) -> None:
    """Laws of locks do not check refused calls, nor other calls."""
    refused = Refused(PrefixNotCached(5, 0))
    assert ask(law_id, step(parted(), operation, whole(), refused)) == []
    if law_id != "LOCK-4":
        assert ask(law_id, step(parted(), EVICT, whole(), Evicted(Counts()))) == []


def test_unused_component_is_ignored() -> None:
    """A cache without windows and mamba states can be checked."""
    plain = CacheConfig(device_slots=POOLS)
    locked = state_of(
        plain,
        node(1, ROOT, [1], full=on([0], lock_refs=1)),
        holds=(HoldState(100, 1, None, state_held=True),),
    )
    free = state_of(plain, node(1, ROOT, [1], full=on([0])))
    receipt = Receipt(100, make_key([1], 1))
    assert MAMBA not in plain.components
    assert ask("LOCK-3", locked) == []
    for law_id in ("LOCK-6", "LOCK-9"):
        assert ask(law_id, step(free, Lock(receipt.key), locked, receipt)) == []
    assert ask("LOCK-8", step(locked, Unlock(receipt), free)) == []


@pytest.mark.parametrize(
    ("before", "after", "given", "words"),
    [
        (parted(UP, END, HOLD), parted(UP, END, HOLD), RECEIPT, "was open before the lock"),
        (whole(), parted(), RECEIPT, "and the open receipts of that number are []"),
        (
            whole(),
            parted(UP, END, evolve(HOLD, transfer_id=7)),
            RECEIPT,
            "and the open receipts of that number are [HoldState(",
        ),
        (
            whole(),
            parted(UP, END, evolve(HOLD, node_id=2)),
            RECEIPT,
            "its key of 5 pages leads to node 1",
        ),
        (
            whole(),
            parted(UP, END, HOLD),
            Receipt(100, KEY.prefix(3)),
            "is of 3 pages, not of the 5 that were locked",
        ),
        (whole(), parted(), Evicted(Counts()), "gave no receipt"),
    ],
    ids=["shared", "not open", "a copy's", "elsewhere", "of another key", "none"],
)
def test_lock_11_other_receipts_are_named(
    before: Snapshot, after: Snapshot, given: Receipt | Evicted, words: str
) -> None:
    """A lock that returns another's receipt, or one that holds nothing, is reported."""
    (said,) = ask("LOCK-11", step(before, LOCK, after, given))
    assert words in said


def test_lock_11_a_receipt_of_its_own_holds() -> None:
    """A new receipt of a whole key, or of the empty key, holds."""
    assert ask("LOCK-11", step(whole(), LOCK, parted(UP, END, HOLD), RECEIPT)) == []
    empty = Lock(make_key([], 1))
    nothing = whole(FREE, HoldState(1, ROOT, 0, state_held=True))
    assert ask("LOCK-11", step(whole(), empty, nothing, Receipt(1, empty.key))) == []
    refused = Refused(PrefixNotCached(5, 0))
    assert ask("LOCK-11", step(whole(), LOCK, whole(), refused)) == []


def test_lock_11_a_number_is_given_once() -> None:
    """A closed receipt's id that is used again is reported."""
    told = step(whole(), LOCK, parted(UP, END, HOLD), RECEIPT)
    assert ask("LOCK-11", evolve(told, given={RECEIPT.receipt_id + 1})) == []
    (said,) = ask("LOCK-11", evolve(told, given={RECEIPT.receipt_id}))
    assert said.startswith(f"receipt {RECEIPT.receipt_id} was given out before")


def test_receipt_may_be_on_a_node_of_another_name() -> None:
    """A receipt may be on another node id after a cut that leaves the old id above."""
    opened = HoldState(100, 2, 3, state_held=True)
    before, after = whole(END, opened), parted(UP, END, HOLD)
    root, node = evolve(before.root, child_ids=(2,)), evolve(before.nodes[1], node_id=2)
    renamed = evolve(before, nodes={ROOT: root, 2: node})
    assert ask("LOCK-10", step(renamed, Poll(), after, Settled(()))) == []
    elsewhere = evolve(HOLD, node_id=2)
    (said,) = ask("LOCK-10", step(before, Poll(), parted(UP, END, elsewhere), Settled(())))
    assert said.startswith("Poll changed receipt 100")
