"""Laws about what an operation leaves alone: TREE-6, REC-6, LOCK-10 and ALLOC-7."""

from __future__ import annotations

import pytest
from attrs import evolve

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import CacheBusy
from kvcanon.spec.operations import (
    Done,
    Free,
    Insert,
    Inserted,
    Lock,
    Poll,
    Receipt,
    Refused,
    Reset,
    Settled,
    Unlock,
)
from kvcanon.spec.snapshot import HoldState, NodeState, Snapshot
from kvcanon.spec.types import FULL, Counts, Slots, make_key
from states import ROOT, node, on, state_of
from telling import ask, step

CONFIG = CacheConfig(device_slots=Counts(6))
KEY = make_key([1, 2, 3], 1)
UPPER = node(1, ROOT, [1, 2], full=on([0, 1]), last_access=4)
LOWER = node(9, 1, [3], full=on([2]), last_access=4)
TREE = state_of(CONFIG, UPPER, held={FULL: {5}})
GROWN = state_of(CONFIG, UPPER, LOWER)
INSERTED = Inserted(2, Counts(1), Counts())
HELD = HoldState(7, 1, None, state_held=False)


def holding(*holds: HoldState) -> Snapshot:
    """A state in which these receipts are open."""
    return evolve(TREE, holds=holds)


def test_tree_6_a_touched_node_is_named() -> None:
    """A call that gives slots back and changes a node is reported."""
    free = Free(Slots((5,)))
    assert ask("TREE-6", step(TREE, free, TREE, Done())) == []
    touched = state_of(CONFIG, evolve(UPPER, last_access=5))
    assert ask("TREE-6", step(TREE, free, touched, Done())) == ["Free changed node 1"]


@pytest.mark.parametrize(
    ("upper", "lower", "said"),
    [
        (UPPER, LOWER, []),
        (evolve(UPPER, priority=1), LOWER, ["page 0", "page 1"]),
        (UPPER, evolve(LOWER, priority=-1), ["page 2 in node 9 (tokens 2..3) has priority -1"]),
        (evolve(UPPER, created=2), LOWER, ["page 0", "page 1"]),
        (UPPER, evolve(LOWER, created=1), ["page 2 in node 9 (tokens 2..3) is new, but created"]),
    ],
    ids=["sound", "raised", "lowered", "made younger", "born old"],
)
def test_rec_6_ranks_of_an_insert(upper: NodeState, lower: NodeState, said: list[str]) -> None:
    """An insert that changes age or priority of existing pages, or sets wrong ones, is reported."""
    after = state_of(CONFIG, upper, lower)
    found = ask("REC-6", step(TREE, Insert(KEY, 2, Slots((5,))), after, INSERTED))
    assert len(found) == len(said)
    assert all(words in text for words, text in zip(said, found, strict=True))


def test_rec_6_new_pages_are_of_one_age() -> None:
    """New pages of one insert with two ages are reported."""
    key, more = make_key([1, 2, 3, 4], 1), Slots((5, 6))
    young = node(7, 9, [4], full=on([6]), last_access=LOWER.last_access)
    told = step(TREE, Insert(key, 2, more), state_of(CONFIG, UPPER, LOWER, young), INSERTED)
    (said,) = ask("REC-6", told)
    assert said == "the new pages of one insert were created at [7, 9], and not at once"
    both = state_of(CONFIG, UPPER, LOWER, evolve(young, created=LOWER.created))
    assert ask("REC-6", evolve(told, after=both)) == []


def test_rec_6_a_higher_priority_is_taken_over() -> None:
    """An insert that does not raise the priority of its path is reported."""
    insert = Insert(KEY, 2, Slots((5,)), priority=3)
    raised = state_of(CONFIG, evolve(UPPER, priority=3), evolve(LOWER, priority=3))
    assert ask("REC-6", step(TREE, insert, raised, INSERTED)) == []
    assert len(ask("REC-6", step(TREE, insert, GROWN, INSERTED))) == 3


def test_lock_10_receipts_open_and_close_by_their_own_calls() -> None:
    """Receipts that open with a lock, close with their unlock or with their copy hold."""
    receipt = Receipt(7, KEY.prefix(2))
    assert ask("LOCK-10", step(TREE, Lock(receipt.key), holding(HELD), receipt)) == []
    assert ask("LOCK-10", step(holding(HELD), Unlock(receipt), TREE, Done())) == []
    assert ask("LOCK-10", step(holding(HELD), Poll(), holding(HELD), Settled(()))) == []
    of_a_transfer = evolve(HELD, transfer_id=3)
    assert ask("LOCK-10", step(holding(of_a_transfer), Poll(), TREE, Settled(()))) == []


def test_lock_10_a_receipt_that_ends_by_itself_is_named() -> None:
    """A receipt that another call closes is reported."""
    other = Unlock(Receipt(8, KEY))
    for asked in (Poll(), other):
        (said,) = ask("LOCK-10", step(holding(HELD), asked, TREE, Done()))
        assert said.endswith("closed receipt 7, which only its own unlock may close")
    (said,) = ask("LOCK-10", step(TREE, Poll(), holding(HELD), Settled(())))
    assert said == "Poll opened receipts [7], and gave out []"
    moved = evolve(HELD, node_id=9)
    (said,) = ask("LOCK-10", step(holding(HELD), Poll(), holding(moved), Settled(())))
    assert said.startswith("Poll changed receipt 7")


def test_alloc_7_reset_leaves_requests_their_slots() -> None:
    """A reset that takes slots from requests, loses some, or leaves nodes is reported."""
    empty = state_of(CONFIG, held={FULL: {5}})
    assert ask("ALLOC-7", step(TREE, Reset(), empty, Done())) == []
    assert ask("ALLOC-7", step(TREE, Reset(), TREE, Refused(CacheBusy(1)))) == []
    (said,) = ask("ALLOC-7", step(TREE, Reset(), state_of(CONFIG), Done()))
    assert said == "a reset changed who holds slots [5] of full on GPU"
    left, lost = ask("ALLOC-7", step(TREE, Reset(), TREE, Done()))
    assert left == "1 nodes are left after a reset"
    assert lost == "2 slots of full on GPU are neither free nor held after a reset"
