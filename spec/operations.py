"""Chapter 9. Operations: the calls of a cache, and their outcomes.

Every operation and every outcome is a value, so a run is a list of values: it can be judged,
shrunk, written to a file and replayed against another cache.

A match protects nothing. Its slots may be used only while a receipt holds them; between a match and
its lock anything may be evicted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TypeAlias, get_args

from attrs import frozen

from kvcanon.spec.errors import CacheError
from kvcanon.spec.events import Event
from kvcanon.spec.tier import OrderId, OrderProgress
from kvcanon.spec.transfer import Completion, TransferStatus
from kvcanon.spec.types import (
    MAMBA,
    Component,
    Counts,
    Key,
    Medium,
    ReceiptId,
    Slot,
    Slots,
    TransferId,
)


@frozen
class Receipt:
    """Proof of a lock, valid for one release. It belongs to the node that was locked."""

    receipt_id: ReceiptId
    key: Key
    """The locked key."""


# Operations.


@frozen
class Match:
    """Find the longest usable prefix of a key, on any medium."""

    key: Key


@frozen
class Lock:
    """Protect a cached prefix from eviction: all of `key` must be in the tree."""

    key: Key


@frozen
class Unlock:
    """Release a lock, or what is left of it after `UnlockWindow`."""

    receipt: Receipt


@frozen
class UnlockWindow:
    """Release only a lock's window data and mamba state: decoding has moved past them."""

    receipt: Receipt


@frozen
class Allocate:
    """Take free device slots. The swa slots are paired with the last of the full slots."""

    counts: Counts


@frozen
class Free:
    """Free allocated slots."""

    slots: Slots


@frozen
class Insert:
    """Insert the data of `key` from page `start_pages` on; the pages before are in the tree."""

    key: Key
    start_pages: int
    slots: Slots
    """Allocated slots, one full slot a page from `start_pages` on; the cache then owns them."""
    counted_pages: int = 0
    """Pages that an earlier insert of the same request reached: their hits are counted already."""
    priority: int = 0
    """Under the priority policy a higher priority stays longer; a node keeps its highest one."""
    state_pages: tuple[int, ...] = ()
    """How many pages are before the end of each mamba state, ascending; none: the one state, if it
    is handed over, is at the end of the key."""

    def pages_of(self, component: Component) -> Sequence[int]:
        """The pages of the key, counted from 0, whose slots of a component are handed over."""
        if component is MAMBA and self.state_pages:
            return tuple([end - 1 for end in self.state_pages])
        return range(len(self.key) - len(self.slots[component]), len(self.key))


@frozen
class Evict:
    """Evict until at least `counts` device slots came free, as far as that is possible."""

    counts: Counts


@frozen
class EvictHost:
    """Evict until at least `counts` host slots came free, as far as that is possible."""

    counts: Counts


@frozen
class LoadBack:
    """Copy the data that `key` has on the host only back to the device."""

    key: Key
    quota_pages: int | None = None
    """Load nothing if more than this many full pages would have to be loaded."""


@frozen
class HostPayload:
    """Data fetched from storage: the bytes of one slot each, laid out as in `Slots`."""

    full: tuple[bytes, ...] = ()
    swa: tuple[bytes, ...] = ()
    mamba: tuple[bytes, ...] = ()


@frozen
class InsertHost:
    """Insert fetched data of `key` from page `start_pages` on into the host tier."""

    key: Key
    start_pages: int
    payload: HostPayload


@frozen
class Poll:
    """Settle the transfers that have ended."""


@frozen
class Flush:
    """Wait for every transfer in flight, and settle it."""


@frozen
class Reset:
    """Clear the tree. Refused while a receipt is open; a transfer in flight has one, too."""

    keep_store: bool = False
    """Whether pages in the store are still right: the weights are the same as before."""


@frozen
class Store:
    """Write the host pages of a key to the store below the host."""

    key: Key


@frozen
class Prefetch:
    """Fetch from the store the pages of a key that are not on the host yet."""

    key: Key


@frozen
class PollStore:
    """Take the progress of all orders to the store."""


@frozen
class EndPrefetch:
    """End a prefetch, and place on the host what of it has arrived."""

    order_id: OrderId


@frozen
class Settle:
    """Settle exactly these transfers, with these outcomes."""

    completions: tuple[Completion, ...]


@frozen
class TakeEvents:
    """Take the events that were emitted since the last `TakeEvents`."""


@frozen
class Write:
    """Set the bytes behind a device slot, as a model's kernels do; the tree takes no part."""

    component: Component
    slot: Slot
    data: bytes


@frozen
class Read:
    """Read the bytes behind a slot."""

    component: Component
    medium: Medium
    slot: Slot


Operation: TypeAlias = (
    Match
    | Lock
    | Unlock
    | UnlockWindow
    | Allocate
    | Free
    | Insert
    | Evict
    | EvictHost
    | LoadBack
    | InsertHost
    | Settle
    | Poll
    | Flush
    | Reset
    | Store
    | Prefetch
    | PollStore
    | EndPrefetch
    | TakeEvents
    | Write
    | Read
)


def method_of(operation: type[Operation]) -> str:
    """The name of the cache method for an operation."""
    return METHODS[operation]


METHODS: Mapping[type[Operation], str] = {
    kind: re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower() for kind in get_args(Operation)
}
"""The name of the cache method for each operation."""


# Outcomes.


@frozen
class Matched:
    """What a match found."""

    prefix_pages: int
    """Length of the usable prefix, on whichever media its data is."""
    device_pages: int
    """Length of the prefix that is usable on the device now, without loads in flight."""
    slots: Slots
    """The device slots of the first `device_pages` pages: window slots as far as they reach back
    without a gap, and the mamba state at the end."""
    pending: tuple[TransferId, ...] = ()
    """Load-backs in flight on the usable prefix: poll until they settle, then match again."""
    branch_pages: int | None = None
    """How many pages of the key are in the tree, usable or not: where the prompt leaves what is
    cached, and a mamba state is of use to others. None: the cache keeps no states, or does not say.
    """


@frozen
class Inserted:
    """What became of the inserted slots: each is in the tree or free."""

    present_pages: int
    """Pages of the key that had full data on the device before."""
    adopted: Counts
    """Slots that the tree took."""
    freed: Counts
    """Slots of data that the tree had already."""
    backups: tuple[TransferId, ...] = ()
    backup_declined_pages: int = 0
    """Pages of the key that reached the threshold and got no backup: no host slot is free."""


@frozen
class Evicted:
    """The result of an eviction: slots that are in the free list now and were not before."""

    freed: Counts


class LoadDecision(StrEnum):
    """Whether a load-back was enqueued, and if not, why."""

    ENQUEUED = "enqueued"
    NOTHING_TO_LOAD = "nothing_to_load"
    BELOW_THRESHOLD = "below_threshold"
    OVER_QUOTA = "over_quota"
    NO_ROOM = "no_room"
    """Eviction did not free enough slots; what it evicted stays evicted."""


@frozen
class LoadedBack:
    """The result of a load-back."""

    decision: LoadDecision
    transfer_id: TransferId | None = None
    loading: Counts = Counts()
    """Slots being loaded."""
    evicted: Counts = Counts()
    """Device slots that were freed for the load."""
    pages: int | None = None
    """Leading pages of the key that are loaded, where a cache loads what fits; None: all."""


@frozen
class HostInserted:
    """What became of fetched pages; `placed + refilled + present + dropped` is their number."""

    placed_pages: int
    """Pages that went into a new node."""
    refilled_pages: int
    """Pages that were on the device only and now have a host copy."""
    present_pages: int
    """Pages that had a host copy already."""
    dropped_pages: int
    """Pages without a free host slot, or below a parent without a host copy."""


@frozen
class Settled:
    """The transfers that settled, in order."""

    transfers: tuple[tuple[TransferId, TransferStatus], ...]


@frozen
class Ordered:
    """The order that a store or a prefetch gave to the store."""

    order_id: OrderId | None
    """None: there is nothing to write or to fetch, or no room for it."""
    start_pages: int
    """Pages of the key before the first of the order."""
    pages: int
    """Pages of the order."""


@frozen
class StorePolled:
    """The orders that went on or ended on every rank since the last `PollStore`."""

    orders: tuple[OrderProgress, ...]


@frozen
class Taken:
    """The events that were emitted since the last `TakeEvents`."""

    events: tuple[Event, ...]


@frozen
class BytesRead:
    """The bytes behind a slot."""

    data: bytes


@frozen
class Done:
    """The operation has nothing to report."""


@frozen
class Refused:
    """The call was refused, and the state is unchanged."""

    error: CacheError


ANSWERS: Mapping[type[Operation], type] = {
    Match: Matched,
    Lock: Receipt,
    Unlock: Done,
    UnlockWindow: Done,
    Allocate: Slots,
    Free: Done,
    Insert: Inserted,
    Evict: Evicted,
    EvictHost: Evicted,
    LoadBack: LoadedBack,
    InsertHost: HostInserted,
    Settle: Settled,
    Poll: Settled,
    Flush: Settled,
    Reset: Done,
    Store: Ordered,
    Prefetch: Ordered,
    PollStore: StorePolled,
    EndPrefetch: HostInserted,
    TakeEvents: Taken,
    Write: Done,
    Read: BytesRead,
}
"""The type of each operation's outcome when it is not refused."""

Outcome: TypeAlias = (
    Matched
    | Receipt
    | Slots
    | Inserted
    | Evicted
    | LoadedBack
    | HostInserted
    | Settled
    | Ordered
    | StorePolled
    | Taken
    | BytesRead
    | Done
    | Refused
)
