"""Chapter 14. Grounds for refusal: when each operation is refused, and with which error.

One table, operation by error. A call must be refused while a ground of its row stands in the state
before it, and with the error of such a ground; otherwise it must be served. A cache that declares
limits (`config.Limit`) may refuse for these too. `kvcanon laws --refusals` prints the table. The
grounds are checked by functions in `keys`, `slots`, `inserts`, `receipts` and
`stores`.

What readers get wrong: `BadArgument` is not for whatever a cache does not support. Its grounds are
in the table like all others, and a cache that refuses any other argument breaks REFUSE-1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from attrs import frozen

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
from kvcanon.spec.operations import (
    Allocate,
    EndPrefetch,
    Evict,
    EvictHost,
    Flush,
    Free,
    Insert,
    InsertHost,
    LoadBack,
    Lock,
    Match,
    Operation,
    Poll,
    PollStore,
    Prefetch,
    Read,
    Reset,
    Settle,
    Store,
    TakeEvents,
    Unlock,
    UnlockWindow,
    Write,
    method_of,
)
from kvcanon.spec.refusals import inserts, keys, receipts, slots, stores
from kvcanon.spec.snapshot import Snapshot


@frozen
class Ground:
    """A reason for which an operation is refused."""

    words: str
    """When the ground stands, in a few words."""
    stands: Callable[[Snapshot, Any], str | None] = lambda _, __: None
    """Checks a call in a state: why it must be refused, as a clause; None if it need not be."""
    limit: Callable[[Snapshot, Any], str | None] = lambda _, __: None
    """Checks whether a cache with limits may refuse a call, but need not; likewise."""
    unseen: Callable[[Snapshot, Any], str | None] = lambda _, __: None
    """Checks whether a cache may refuse a call for what its state does not show; likewise."""


HEADS = ("operation", "error", "when")


def cells() -> list[tuple[str, str, str]]:
    """The table in words: a text for each of `HEADS`."""
    return [
        (method_of(operation), error.__name__, ground.words)
        for operation, row in REFUSALS.items()
        for error, ground in row.items()
    ]


def must_refuse(state: Snapshot, call: Operation) -> Iterator[tuple[type[CacheError], str]]:
    """The errors with which a call must be refused in a state, any one of them, with reasons."""
    for error, ground in REFUSALS[type(call)].items():
        reason = ground.stands(state, call)
        if reason is not None:
            yield error, reason


def may_refuse(state: Snapshot, call: Operation) -> Iterator[tuple[type[CacheError], str]]:
    """The errors with which a call may be refused, including those that its limits allow."""
    yield from must_refuse(state, call)
    for error, ground in REFUSALS[type(call)].items():
        reason = ground.unseen(state, call)
        if reason is not None:
            yield error, reason
    if state.profile.limits:
        for error, ground in REFUSALS[type(call)].items():
            reason = ground.limit(state, call)
            if reason is not None:
                yield error, reason


_WRONG_KEY = "the key has pages of another size, or units of another kind"

REFUSALS: Mapping[type[Operation], Mapping[type[CacheError], Ground]] = {
    Match: {BadArgument: Ground(_WRONG_KEY, keys.bad_key)},
    Lock: {
        BadArgument: Ground(_WRONG_KEY, keys.bad_key, keys.limit_of_lock),
        PrefixNotCached: Ground("not all of the key is in the tree", keys.not_cached),
    },
    Unlock: {ReceiptSpent: Ground("the receipt is not open", receipts.spent)},
    UnlockWindow: {ReceiptSpent: Ground("the receipt is not open", receipts.spent)},
    Allocate: {
        BadArgument: Ground(
            "a count is negative, of a component that is not there, or there are more window "
            "slots than pages",
            slots.bad_allocate,
        ),
        OutOfSlots: Ground("a pool has fewer free slots", slots.no_room),
    },
    Free: {
        BadArgument: Ground(
            "a slot is named twice, or of no component", slots.bad_free, slots.limit_of_free
        ),
        SlotNotHeld: Ground("no request holds a slot", slots.not_held),
    },
    Insert: {
        BadArgument: Ground(
            f"{_WRONG_KEY}; slots or counts do not fit the pages; or window slots are not those of "
            "the full slots",
            inserts.bad_insert,
            inserts.limit_of_insert,
        ),
        SlotNotHeld: Ground("no request holds a slot", slots.not_held),
        PrefixNotCached: Ground(
            "the pages before the first are not on the device", inserts.not_on_device
        ),
        TransferPending: Ground("something on the path is being loaded", inserts.loading),
    },
    Evict: {BadArgument: Ground("a count is negative", slots.negative)},
    EvictHost: {BadArgument: Ground("a count is negative", slots.negative)},
    LoadBack: {
        BadArgument: Ground(
            f"{_WRONG_KEY}; or the quota is negative", keys.bad_load, keys.limit_of_load
        ),
        PrefixNotCached: Ground("not all of the key is in the tree", keys.not_cached),
        TransferPending: Ground("by profile: another load is in flight", limit=keys.other_load),
    },
    InsertHost: {
        BadArgument: Ground(
            f"{_WRONG_KEY}; there is no host tier; or the payload does not fit the pages",
            inserts.bad_insert_host,
        ),
        PrefixNotCached: Ground(
            "the pages before the first are not in the tree", inserts.not_there
        ),
    },
    Settle: {
        BadArgument: Ground(
            "a transfer is not in flight, has not ended, is named twice, before an earlier one of "
            "its direction, or as done and failed",
            receipts.bad_settle,
            unseen=receipts.ends_unseen,
        )
    },
    Poll: {},
    Flush: {},
    Store: {BadArgument: Ground(f"{_WRONG_KEY}; or the cache has no store", stores.bad_order)},
    Prefetch: {BadArgument: Ground(f"{_WRONG_KEY}; or the cache has no store", stores.bad_order)},
    PollStore: {},
    EndPrefetch: {BadArgument: Ground("no such prefetch is open", stores.not_open)},
    Reset: {CacheBusy: Ground("a receipt is open; a copy in flight has one", receipts.busy)},
    TakeEvents: {},
    Write: {
        BadArgument: Ground("the data is not of a slot's size", slots.bad_write),
        SlotNotHeld: Ground("no request holds the slot", slots.not_written),
    },
    Read: {BadArgument: Ground("there is no such slot", slots.no_such_slot)},
}
"""The grounds of each operation, by error."""
