"""LOCK-8, LOCK-9 and LOCK-11: locks and releases that hold, and others."""

from __future__ import annotations

import pytest
from attrs import evolve

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import PrefixNotCached
from kvcanon.spec.operations import (
    Evicted,
    Lock,
    Poll,
    Receipt,
    Refused,
    Settled,
    Unlock,
    UnlockWindow,
)
from kvcanon.spec.snapshot import ComponentState, HoldState, Snapshot
from kvcanon.spec.types import (
    FULL,
    MAMBA,
    Counts,
    make_key,
)
from lock_cases import (
    CONFIG,
    END,
    EVICT,
    FREE,
    HOLD,
    KEY,
    LOCK,
    POOLS,
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


def off_host(data: ComponentState) -> ComponentState:
    """The same data without its host slots, and with no backup."""
    return evolve(data, host=None)


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
    assert said == "receipts [101] are open only before or only after the call"


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
