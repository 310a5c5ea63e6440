"""LOCK-1 to LOCK-6, LOCK-8, LOCK-9 and LOCK-11: lock refs, locks and releases."""

from __future__ import annotations

from typing import NamedTuple

from attrs import evolve

from kvcanon.spec.config import CacheConfig, Profile
from kvcanon.spec.errors import PrefixNotCached
from kvcanon.spec.operations import (
    Evict,
    Evicted,
    Flush,
    Lock,
    Outcome,
    Poll,
    Receipt,
    Refused,
    Settled,
    Unlock,
    UnlockWindow,
)
from kvcanon.spec.snapshot import ComponentState, HoldState, NodeState, Snapshot
from kvcanon.spec.types import CPU, GPU, Counts, NodeId, make_key
from kvcanon.spec.views import Step
from states import EVERYTHING, POOLS, ROOT, having, node, on, state_of, with_node
from states.judging import Table, step, still, table

KEY = make_key([1, 2, 3, 4, 5], 1)
RECEIPT = Receipt(100, KEY)
HOLD = HoldState(100, 1, 3, state_held=True)
"""What `RECEIPT` holds: five pages of full data, the last two of window data, and the state."""
EARLY = evolve(HOLD, window_from_pages=None, state_held=False)
"""The same once its window is released."""


class Refs(NamedTuple):
    """Lock refs of a node."""

    full: int = 0
    swa: int = 0
    mamba: int = 0


FREE = Refs()
UP, END = Refs(1, 0, 0), Refs(1, 1, 1)
"""The lock refs of one lock of `KEY`, above its window and in it."""


def part(
    node_id: NodeId, parent_id: NodeId, first: int, last: int, refs: Refs, *, state: bool = False
) -> NodeState:
    """Pages of the path of `KEY`: page n has slot n of every pool, the mamba state slot 0."""
    slots = range(first, last)
    made = node(
        node_id,
        parent_id,
        [slot + 1 for slot in slots],
        full=on(slots, slots, lock_refs=refs.full),
        swa=on(slots, slots, lock_refs=refs.swa),
        mamba=on([0] if state else None, lock_refs=refs.mamba),
    )
    return evolve(made, created=1, last_access=1)


def whole(refs: Refs = FREE, *holds: HoldState) -> Snapshot:
    """The path as one node."""
    return state_of(EVERYTHING, part(1, ROOT, 0, 5, refs, state=True), holds=holds)


def parted(upper: Refs = UP, lower: Refs = END, *holds: HoldState, at: int = 3) -> Snapshot:
    """The path cut before page `at`, with these refs above and below."""
    nodes = part(2, ROOT, 0, at, upper), part(1, 2, at, 5, lower, state=True)
    return state_of(EVERYTHING, *nodes, holds=holds)


def in_three(one: int, two: int, *refs: Refs, holds: tuple[HoldState, ...] = ()) -> Snapshot:
    """The path cut before two pages, with these refs from the root on."""
    top, middle, end = refs
    nodes = part(2, ROOT, 0, one, top), part(3, 2, one, two, middle)
    return state_of(EVERYTHING, *nodes, part(1, 3, two, 5, end, state=True), holds=holds)


HELD, FREED = parted(UP, END, HOLD), parted(FREE, FREE)
TWICE = parted(Refs(2, 0, 0), Refs(2, 2, 2))
LONE = node(1, ROOT, [1], full=on([0], lock_refs=1), mamba=on([0], lock_refs=1))
EMPTY = make_key([], 1)

PLAIN = CacheConfig(device_slots=POOLS)
"""A cache without windows and mamba states."""
PLAIN_FREE = state_of(PLAIN, node(1, ROOT, [1], full=on([0])))
PLAIN_LOCKED = state_of(
    PLAIN, node(1, ROOT, [1], full=on([0], lock_refs=1)), holds=(evolve(EARLY, state_held=True),)
)
PLAIN_RECEIPT = Receipt(100, make_key([1], 1))

REFS: Table = {
    # A count below zero is reported.
    "LOCK-1": [parted()],
    "LOCK-1: node 2 (tokens 0..3) has -1 swa lock_refs": parted(Refs(0, -1, 0)),
    # Window data with more lock refs than full data is reported, a state with more than it.
    # Without a window a mamba state is compared with full data.
    "LOCK-2": [parted(UP, Refs(3, 2, 2)), state_of(CacheConfig(mamba=True), LONE)],
    "LOCK-2: node 1 ... has 2 swa lock_refs and only 1 full lock_refs": parted(UP, Refs(1, 2, 0)),
    "LOCK-2: node 1 ... has 2 mamba lock_refs and only 1 swa lock_refs": parted(UP, Refs(2, 1, 2)),
    # All receipts account for the refs on their paths; one of the empty key holds nothing.
    "LOCK-3": [
        HELD,
        parted(
            Refs(3, 1, 1),
            Refs(2, 1, 1),
            HOLD,
            evolve(EARLY, receipt_id=101),
            HoldState(102, 2, 0, state_held=True),
        ),
        parted(FREE, FREE, HoldState(100, ROOT, 0, state_held=True)),
        FREED,
        PLAIN_LOCKED,
    ],
    "LOCK-3: ...receipt 102 holds window data from page 1 on, which is inside node 2...": parted(
        Refs(3, 0, 1),
        Refs(2, 1, 1),
        HOLD,
        evolve(EARLY, receipt_id=101),
        HoldState(102, 2, 1, state_held=True),
    ),
    "LOCK-3: node 2 ... has 0 full lock_refs, but 1 ... cover it...": parted(FREE, END, HOLD),
    "LOCK-3: ...has 1 swa lock_refs, but 0 ... cover it: []": parted(Refs(1, 1, 0), END, HOLD),
    "LOCK-3: ...has 0 mamba lock_refs, but 1 ... cover it: [100]": parted(UP, Refs(1, 1, 0), HOLD),
    "LOCK-3: node 1 ... has 2 full lock_refs, but 1 open...": parted(UP, Refs(2, 1, 1), HOLD),
    "LOCK-3: node 1 ... has 1 swa lock_refs, but 0 ... cover it: []": parted(FREE, Refs(0, 1, 0)),
    "LOCK-3: receipt 100 is on node 9, which is not in the tree": parted(
        FREE, FREE, evolve(HOLD, node_id=9)
    ),
    # A parent with fewer lock refs than its child is reported.
    "LOCK-5": [parted(Refs(2, 0, 0), END)],
    "LOCK-5: node 1 ... has 2 full lock_refs ... parent node 2...only 1": parted(UP, Refs(2, 1, 1)),
}


def at_end(state: Snapshot, **data: ComponentState) -> Snapshot:
    """A state in which the end of the path has other data."""
    return with_node(state, having(state.nodes[1], **data))


def evicted(before: Snapshot, after: Snapshot) -> Step:
    """An eviction."""
    return step(before, Evict(Counts(full=1)), after, Evicted(Counts()))


def locked(after: Snapshot, told: Outcome = RECEIPT, before: Snapshot | None = None) -> Step:
    """A lock of `KEY`, by default on one free node."""
    return step(before or whole(), LOCK, after, told)


def by_node(after: Snapshot) -> Step:
    """A lock in a cache that may lock whole nodes."""
    declared = Profile(window_lock_exact=False)
    return locked(evolve(after, profile=declared), before=evolve(whole(), profile=declared))


LOCK, UNLOCK, UNLOCK_WINDOW = Lock(KEY), Unlock(RECEIPT), UnlockWindow(RECEIPT)
GONE = at_end(FREED, full=on(None, [3, 4]))
FILLING = at_end(HELD, full=on([3, 4], [3, 4], lock_refs=1, loading=7))
REFILLED = at_end(HELD, full=on([8, 9], [3, 4], lock_refs=1))
STOPPED = at_end(HELD, full=on(None, [3, 4], lock_refs=1))
WINDOW_HELD = parted(UP, UP, EARLY)
WINDOW_GONE = at_end(WINDOW_HELD, swa=on(None, [3, 4]))
TOP_ALONE = state_of(EVERYTHING, part(2, ROOT, 0, 3, UP), holds=(HOLD,))

DATA: Table = {
    # Unlocked data may leave, and locked data may be gained.
    "LOCK-4": [
        evicted(WINDOW_HELD, WINDOW_GONE),
        step(WINDOW_GONE, Poll(), WINDOW_HELD),
        step(HELD, UNLOCK, GONE),
        # Targets of a failed copy may go in a flush, and in no other call.
        step(FILLING, Flush(), STOPPED, Settled(())),
    ],
    # Locked data that leaves its slots is reported, on either medium.
    **{
        (
            f"LOCK-4: page 3 in node 1 (tokens 3..5) was in {name} slot 3 on {medium}, ...in {now}",
            "...",
        ): evicted(HELD, at_end(HELD, **{name: on(device, host, lock_refs=1)}))
        for name in ("full", "swa")
        for medium, device, host, now in (
            (GPU, None, (3, 4), "no slot"),
            (GPU, (7, 8), (3, 4), "slot 7"),
            (CPU, (3, 4), None, "no slot"),
            (CPU, (3, 4), (7, 8), "slot 7"),
        )
    },
    ("LOCK-4", ..., "page 4 in node 1 ... in full slot 4 on GPU...", ...): evicted(HELD, TOP_ALONE),
    # Data that leaves in the step that closes its copy's receipt is reported.
    ("LOCK-4: ...in node 1 (tokens 3..5) was in full slot...", "...in full slot..."): [
        step(HELD, Poll(), GONE, Settled(())),
        evicted(FILLING, STOPPED),
        step(FILLING, Poll(), REFILLED, Settled(())),
    ],
}

PREFIX, PLAIN_LOCK = Lock(KEY.prefix(3)), Lock(PLAIN_RECEIPT.key)
REFUSED = Refused(PrefixNotCached(5, 0))
EMPTY_LOCK = step(whole(), Lock(EMPTY), whole(), Receipt(1, EMPTY))
OTHER = node(9, ROOT, [9], full=on([9], [9]), swa=on([9], [9]))
OTHER_LOCKED = having(OTHER, swa=on([9], [9], lock_refs=1))

LOCKS: Table = {
    "LOCK-6, LOCK-9": [
        locked(parted()),
        locked(TWICE, before=parted()),
        step(PLAIN_FREE, PLAIN_LOCK, PLAIN_LOCKED, PLAIN_RECEIPT),
        # A lock that ends inside a node does not hold the state at that node's end.
        step(whole(), PREFIX, in_three(1, 3, UP, END, FREE), Receipt(1, PREFIX.key)),
        EMPTY_LOCK,
    ],
    # A lock that counts more or less window data than its window is reported, unless declared.
    "LOCK-6": [by_node(whole(END))],
    (
        "LOCK-6: page 0 in node 1 (tokens 0..5) is page 0 of the key; its swa...from 0 to 1...",
        "...",
        "...",
    ): locked(whole(END)),
    "LOCK-6: ...page 3 of the key; its swa lock_refs went from 0 to 0, expected 1": [
        locked(parted(UP, END, at=4)),
        by_node(parted(UP, END, at=4)),
    ],
    ("LOCK-6: ...page 3 of the key...", "...page 4 of the key..."): locked(whole()),
    "LOCK-6: ...page 0 in node 9 (tokens 0..1) is not in the key...": step(
        state_of(EVERYTHING, *whole().below_root(), OTHER),
        LOCK,
        state_of(EVERYTHING, *parted().below_root(), OTHER_LOCKED),
        RECEIPT,
    ),
    # A lock that misses a page of its key, or counts one twice, is reported.
    (
        "LOCK-9: ...page 0 of the key; its full lock_refs went from 0 to 0, expected 1",
        "...",
        "...",
    ): locked(parted(FREE, END)),
    ("LOCK-9: ...its full lock_refs went from 0 to 2, expected 1", "...", "..."): locked(
        parted(Refs(2, 0, 0), END)
    ),
    "LOCK-9: ...page 4 of the key; its mamba ... from 0 to 0...": locked(parted(UP, Refs(1, 1, 0))),
    ("LOCK-9: ...page 0 is page 0 of the key; its full lock_refs went...", *["..."] * 5): locked(
        whole()
    ),
    ("LOCK-9: ...", "page 4 in node 1 (tokens 3..5) is not in the key; its mamba lock_refs..."): (
        step(
            whole(),
            PREFIX,
            in_three(1, 3, UP, Refs(1, 1, 0), Refs(0, 0, 1)),
            Receipt(1, PREFIX.key),
        )
    ),
    # Refused calls, and other calls, are not checked.
    "LOCK-4, LOCK-6, LOCK-8, LOCK-9": [
        step(parted(), asked, whole(), REFUSED) for asked in (LOCK, UNLOCK, UNLOCK_WINDOW)
    ],
    "LOCK-6, LOCK-8, LOCK-9": [evicted(parted(), whole())],
}

CUT = in_three(3, 4, UP, Refs(1, 1, 0), END, holds=(HOLD,))
CUT_FREE = in_three(3, 4, FREE, FREE, FREE)


def released(after: Snapshot) -> Step:
    """A release of the receipt."""
    return step(HELD, UNLOCK, after)


RELEASES: Table = {
    # A release that lowers exactly what its receipt covered holds, whatever is cut.
    "LOCK-8": [
        released(FREED),
        step(HELD, UNLOCK_WINDOW, WINDOW_HELD),
        still(WINDOW_HELD, UNLOCK_WINDOW),
        step(WINDOW_HELD, UNLOCK, FREED),
        step(CUT, UNLOCK, CUT_FREE),
        released(CUT_FREE),
        still(FREED, UNLOCK, REFUSED),
        step(PLAIN_LOCKED, Unlock(PLAIN_RECEIPT), PLAIN_FREE),
    ],
    # A release that lowers more or less than its receipt, or leaves it open, is reported.
    ("LOCK-8", ..., "node 2 ... was covered by receipt 100...", ...): released(parted(UP, FREE)),
    ("LOCK-8", ..., "...swa lock_refs went from 1 to 1 with the release...", ...): released(
        parted(FREE, Refs(0, 1, 0))
    ),
    ("LOCK-8", ..., "...mamba lock_refs went from 1 to -1 with the release...", ...): released(
        parted(FREE, Refs(0, 0, -1))
    ),
    "LOCK-8: receipt 100 is still open after its release": released(parted(FREE, FREE, HOLD)),
    "LOCK-8: the mapping leads from full to window...": released(evolve(FREED, swa_of_full={})),
    # `unlock_window` that keeps the window, closes the receipt or frees full data is reported.
    ("LOCK-8: ...still ... page 3 on...", ...): step(HELD, UNLOCK_WINDOW, parted(UP, UP, HOLD)),
    "LOCK-8: receipt 100 is closed; its full data was not released": step(
        HELD, UNLOCK_WINDOW, parted(UP, UP)
    ),
    ("LOCK-8", ..., "...full lock_refs went from 1 to 0...", ...): step(
        HELD, UNLOCK_WINDOW, parted(FREE, FREE, EARLY)
    ),
    "LOCK-8: receipt 100 was not open, and its release was not refused": still(FREED, UNLOCK),
    "LOCK-8: receipts [101] are open only before or only after the call": step(
        parted(Refs(2, 0, 0), Refs(2, 2, 2), HOLD, evolve(HOLD, receipt_id=101)), UNLOCK, parted()
    ),
    # A lock or a release that moves data or counts hits is reported.
    ("LOCK-8", ..., "...full slot on CPU_PINNED was 3 and is none", ...): released(
        at_end(FREED, full=on([3, 4]))
    ),
    ("LOCK-8", ..., "...hit_count was 0 and is 3", ...): released(
        with_node(FREED, evolve(FREED.nodes[1], hit_count=3))
    ),
    ("LOCK-9", ..., "...full slot on CPU_PINNED was 3 and is none", ...): locked(
        at_end(HELD, full=on([3, 4], lock_refs=1)), before=FREED
    ),
    ("LOCK-9", ..., "...hit_count was 0 and is 3", ...): locked(
        with_node(HELD, evolve(HELD.nodes[1], hit_count=3)), before=FREED
    ),
}

NOTHING = whole(FREE, HoldState(1, ROOT, 0, state_held=True))
NEW = locked(HELD)
UNNAMED = whole(END, HoldState(100, 2, 3, state_held=True))
RENAMED = evolve(
    UNNAMED,
    nodes={
        ROOT: evolve(UNNAMED.root, child_ids=(2,)),
        2: evolve(UNNAMED.nodes[1], node_id=2),
    },
)
"""The path as one node, with the id that later is that of its upper part."""

RECEIPTS: Table = {
    # A new receipt of a whole key, or of the empty key, holds.
    "LOCK-11": [
        NEW,
        step(whole(), Lock(EMPTY), NOTHING, Receipt(1, EMPTY)),
        still(whole(), LOCK, REFUSED),
        evolve(NEW, given={101}),
    ],
    # A lock that returns another's receipt, or one that holds nothing, is reported.
    "LOCK-11: ...was open before the lock...": locked(HELD, before=HELD),
    "LOCK-11: ...and the open receipts of that number are []": locked(parted()),
    "LOCK-11: ... are [HoldState(...": locked(parted(UP, END, evolve(HOLD, transfer_id=7))),
    "LOCK-11: ...its key of 5 ... to node 1...": locked(parted(UP, END, evolve(HOLD, node_id=2))),
    "LOCK-11: ...is of 3 pages, not of the 5 ... locked": locked(HELD, Receipt(100, KEY.prefix(3))),
    "LOCK-11: ...gave no receipt...": locked(parted(), Evicted(Counts())),
    "LOCK-11: receipt 100 was given out before...": evolve(NEW, given={100}),
    # A receipt may be on another node id after a cut that leaves the old id above.
    "LOCK-10": [step(RENAMED, Poll(), HELD)],
    "LOCK-10: Poll changed receipt 100...": step(
        UNNAMED, Poll(), parted(UP, END, evolve(HOLD, node_id=2))
    ),
}

test_lock = table(REFS, DATA, LOCKS, RELEASES, RECEIPTS)
