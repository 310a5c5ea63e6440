"""Laws about what an operation leaves alone: TREE-6, REC-6, LOCK-10 and ALLOC-7."""

from __future__ import annotations

from attrs import evolve

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import CacheBusy
from kvcanon.spec.operations import (
    Free,
    Insert,
    Inserted,
    Lock,
    Poll,
    Receipt,
    Refused,
    Reset,
    Unlock,
)
from kvcanon.spec.snapshot import HoldState, NodeState
from kvcanon.spec.types import FULL, Counts, Slots, make_key
from kvcanon.spec.views import Step
from states import ROOT, node, on, state_of
from states.judging import Table, step, still, table

CONFIG = CacheConfig(device_slots=Counts(6))
KEY = make_key([1, 2, 3], 1)
UPPER = node(1, ROOT, [1, 2], full=on([0, 1]), last_access=4)
LOWER = node(9, 1, [3], full=on([2]), last_access=4)
YOUNG = node(7, 9, [4], full=on([6]), last_access=4)
TREE = state_of(CONFIG, UPPER, held={FULL: {5}})


def inserted(*nodes: NodeState, priority: int = 0) -> Step:
    """An insert of `KEY`, below which more may hang."""
    insert = Insert(KEY, 2, Slots((5,)), priority=priority)
    return step(TREE, insert, state_of(CONFIG, *nodes), Inserted(2, Counts(1), Counts()))


def longer(lower: NodeState, young: NodeState) -> Step:
    """An insert of a longer prompt, in two new nodes."""
    insert = Insert(make_key([1, 2, 3, 4], 1), 2, Slots((5, 6)))
    after = state_of(CONFIG, UPPER, lower, young)
    return step(TREE, insert, after, Inserted(2, Counts(1), Counts()))


HELD = HoldState(7, 1, None, state_held=False)
COPYING = evolve(HELD, transfer_id=3)
RECEIPT = Receipt(7, KEY.prefix(2))
OPEN, MOVED, IN_FLIGHT = (
    evolve(TREE, holds=(hold,)) for hold in (HELD, evolve(HELD, node_id=9), COPYING)
)
EMPTY = state_of(CONFIG, held={FULL: {5}})

FRAMES: Table = {
    # A call that gives slots back and changes a node is reported.
    "TREE-6": [still(TREE, Free(Slots((5,))))],
    "TREE-6: Free changed node 1": step(
        TREE, Free(Slots((5,))), state_of(CONFIG, evolve(UPPER, last_access=5))
    ),
    # An insert that changes age or priority of existing pages, or sets wrong ones, is reported.
    "REC-6": [
        inserted(UPPER, LOWER),
        longer(LOWER, evolve(YOUNG, created=LOWER.created)),
        inserted(evolve(UPPER, priority=3), evolve(LOWER, priority=3), priority=3),
    ],
    ("REC-6: ...page 0...", "...page 1..."): [
        inserted(evolve(UPPER, priority=1), LOWER),
        inserted(evolve(UPPER, created=2), LOWER),
    ],
    "REC-6: page 2 in node 9 ... has priority -1...": inserted(UPPER, evolve(LOWER, priority=-1)),
    "REC-6: page 2 in node 9 ... is new, but created...": inserted(UPPER, evolve(LOWER, created=1)),
    "REC-6: ... pages of one insert were created at [7, 9], and not at once": longer(LOWER, YOUNG),
    # An insert that does not raise the priority of its path is reported.
    ("REC-6: ...", "...", "..."): inserted(UPPER, LOWER, priority=3),
    # Receipts open with a lock, and close with their unlock or with their copy.
    "LOCK-10": [
        step(TREE, Lock(RECEIPT.key), OPEN, RECEIPT),
        step(OPEN, Unlock(RECEIPT), TREE),
        still(OPEN, Poll()),
        step(IN_FLIGHT, Poll(), TREE),
    ],
    "LOCK-10: ...closed receipt 7, which only its own unlock may close": [
        step(OPEN, asked, TREE) for asked in (Poll(), Unlock(Receipt(8, KEY)))
    ],
    "LOCK-10: Poll opened receipts [7], and gave out []": step(TREE, Poll(), OPEN),
    "LOCK-10: Poll changed receipt 7...": step(OPEN, Poll(), MOVED),
    # A reset that takes slots from requests, loses some, or leaves nodes is reported.
    "ALLOC-7": [step(TREE, Reset(), EMPTY), still(TREE, Reset(), Refused(CacheBusy(1)))],
    "ALLOC-7: ... who holds slots [5] of full on GPU": step(TREE, Reset(), state_of(CONFIG)),
    (
        "ALLOC-7: 1 nodes are left after a reset",
        "2 slots of full on GPU are neither free nor held after a reset",
    ): still(TREE, Reset()),
}

test_frames = table(FRAMES)
