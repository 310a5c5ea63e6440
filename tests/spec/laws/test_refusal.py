"""REFUSE: calls that are rightly refused or served hold, all others are reported."""

from __future__ import annotations

from kvcanon.spec import operations as op
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import (
    BadArgument,
    CacheBusy,
    CacheError,
    OutOfSlots,
    PrefixNotCached,
    ReceiptSpent,
    SlotNotHeld,
    TransferPending,
)
from kvcanon.spec.snapshot import HoldState, Snapshot
from kvcanon.spec.types import FULL, Counts, Slots, make_key
from kvcanon.spec.views import Step
from states import ROOT, node, on, state_of
from states.judging import Table, still, table

CONFIG = CacheConfig(device_slots=Counts(6), host_slots=Counts(6), write_policy="write_through")
KEY, LONGER, WIDE = make_key([1, 2], 1), make_key([1, 2, 3], 1), make_key([1, 2], 2)
IDLE = state_of(CONFIG, node(1, ROOT, [1, 2], full=on([0, 1])), held={FULL: {5}})
BUSY = state_of(
    CONFIG,
    node(1, ROOT, [1, 2], full=on([0, 1], [0, 1], lock_refs=1, loading=9)),
    holds=(HoldState(7, 1, None, state_held=False),),
    held={FULL: {5}},
)
MATCH, LOCK_LONGER, RESET = op.Match(KEY), op.Lock(LONGER), op.Reset()
INSERT = op.Insert(KEY, 1, Slots((5,)))
SPENT, OPEN = op.Receipt(8, KEY), op.Receipt(7, KEY)


def refused(state: Snapshot, asked: op.Operation, error: CacheError) -> Step:
    """A call that is refused in a state."""
    return still(state, asked, op.Refused(error))


TRUE = [
    refused(BUSY, asked, error)
    for asked, error in (
        (op.Allocate(Counts(4)), OutOfSlots("full on GPU", 4, 3)),
        (LOCK_LONGER, PrefixNotCached(3, 2)),
        (op.Insert(LONGER, 3, Slots()), PrefixNotCached(3, 0)),
        (op.Unlock(SPENT), ReceiptSpent(8)),
        (op.Unlock(op.Receipt(7, LONGER.prefix(1))), ReceiptSpent(7)),
        (op.Free(Slots((4,))), SlotNotHeld("full on GPU", 4)),
        (op.Free(Slots((5, 4))), SlotNotHeld("full on GPU", 4)),
        (op.Free(Slots((5, 5))), SlotNotHeld("full on GPU", 5)),
        (INSERT, TransferPending(9)),
        (RESET, CacheBusy(1)),
        (op.Free(Slots((5, 5))), BadArgument("slots.full", "names a slot twice")),
        (op.Match(WIDE), BadArgument("key", "has pages of another size")),
    )
]
"""Refusals with a ground."""
FALSE: list[tuple[op.Operation, CacheError, str]] = [
    (MATCH, BadArgument("key", "is wrong"), "the key has pages of another size"),
    (op.Allocate(Counts(3)), OutOfSlots("full on GPU", 3, 0), "a pool has fewer free slots"),
    (op.Lock(KEY), PrefixNotCached(2, 0), "not all of the key is in the tree"),
    (op.Insert(KEY, 2, Slots()), PrefixNotCached(2, 1), "the pages before the first are not on"),
    (op.Free(Slots((5,))), SlotNotHeld("full on GPU", 5), "no request holds a slot"),
    (INSERT, TransferPending(9), "something on the path is being loaded"),
]
"""Refusals without a ground, and what would be one."""
NEVER: list[tuple[op.Operation, CacheError]] = [
    (op.Match(LONGER), PrefixNotCached(3, 2)),
    (op.Evict(Counts(9)), OutOfSlots("full on GPU", 9, 2)),
    (op.Poll(), TransferPending(9)),
    (op.TakeEvents(), CacheBusy(1)),
]
"""Refusals with an error that is not in the row of the table."""

REFUSED: Table = {
    "REFUSE-1, REFUSE-2": [*TRUE, still(IDLE, MATCH), still(IDLE, RESET)],
    # A refusal without a ground is reported.
    **{
        f"REFUSE-1: {type(asked).__name__} was refused ({error}), but ... not so: ...{lie}...": (
            refused(IDLE, asked, error)
        )
        for asked, error, lie in FALSE
    },
    "REFUSE-2: Reset was refused ..., but this is not so: ...a receipt is open...": refused(
        IDLE, RESET, CacheBusy(1)
    ),
    # A refusal for another ground than stands is reported, with the ground that stands.
    (
        "REFUSE-1: ...; the grounds that stand are PrefixNotCached: only 2 pages of the key are in "
        "the tree"
    ): refused(IDLE, LOCK_LONGER, BadArgument("key", "is too long")),
    **{
        f"REFUSE-1: {type(asked).__name__} ...it is never refused with {type(error).__name__}": (
            refused(BUSY, asked, error)
        )
        for asked, error in NEVER
    },
    "REFUSE-2: ...but this is not so: the receipt is not open": refused(
        BUSY, op.Unlock(OPEN), ReceiptSpent(7)
    ),
}

DUE: list[tuple[op.Operation, str]] = [
    (LOCK_LONGER, "PrefixNotCached: only 2 pages of the key are in"),
    (op.Allocate(Counts(4)), "OutOfSlots: full on GPU has 3 free slots"),
    (op.Free(Slots((4,))), "SlotNotHeld: no request holds full slot 4"),
    (INSERT, "TransferPending: transfer 9 is load"),
    (op.Match(WIDE), "BadArgument: the key has pages that"),
]
"""Calls that must be refused, and the ground."""
AGAINST_RECEIPTS = [still(BUSY, each) for each in (op.Unlock(SPENT), op.UnlockWindow(SPENT), RESET)]

SERVED: Table = {
    # A call that is served while a ground stands is reported.
    **{
        (
            "REFUSE-3",
            ...,
            f"{type(asked).__name__} was served, and must be refused with {ground}...",
        ): still(BUSY, asked)
        for asked, ground in DUE
    },
    "REFUSE-2": [still(BUSY, asked) for asked, _ in DUE],
    # So are a second release of a receipt, and a reset under an open one, by another law.
    "REFUSE-2: ...was served, and must be refused with...": AGAINST_RECEIPTS,
    "REFUSE-3": [still(BUSY, MATCH), *AGAINST_RECEIPTS],
    # An answer of another kind is reported.
    "REFUSE-4": [
        still(IDLE, MATCH, op.Matched(2, 2, Slots((0, 1)))),
        still(IDLE, RESET, op.Done()),
        still(IDLE, op.Allocate(Counts(1)), Slots((2,))),
        still(IDLE, op.Poll(), op.Settled(())),
        refused(IDLE, LOCK_LONGER, PrefixNotCached(3, 2)),
    ],
    "REFUSE-4: Match was answered with Settled(transfers=()); it is answered with Matched": still(
        IDLE, MATCH, op.Settled(())
    ),
}

test_refusal = table(REFUSED, SERVED)
