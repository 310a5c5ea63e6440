"""Chapter 8. Operations: what may be asked of a cache, and what it answers.

Every operation and every outcome is a value, so that a run is a list of values: it can be judged,
shrunk, written to a file and replayed against another cache.

What readers get wrong: a match gives no right to what it found. Slots may be used only while a
receipt holds them; between a match and its lock anything may be evicted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import TypeAlias

from attrs import frozen

from kvcanon.spec.errors import CacheError
from kvcanon.spec.events import Event
from kvcanon.spec.transfer import TransferStatus
from kvcanon.spec.types import Component, Counts, Key, Medium, ReceiptId, Slot, Slots, TransferId


@frozen
class Receipt:
    """Proof of a lock, good for one release. It belongs to the node that the lock was put on."""

    receipt_id: ReceiptId
    key: Key
    """What was locked."""


# Operations.


@frozen
class Match:
    """Find the longest usable prefix of a key, on any medium."""

    key: Key


@frozen
class Lock:
    """Hold a cached prefix: all of `key` must be in the tree."""

    key: Key


@frozen
class Unlock:
    """Give a lock back, or what is left of it after `UnlockWindow`."""

    receipt: Receipt


@frozen
class UnlockWindow:
    """Give back only the window data and the state of a lock: decoding has moved past them."""

    receipt: Receipt


@frozen
class Allocate:
    """Take free device slots. The swa slots are paired with the last of the full slots."""

    counts: Counts


@frozen
class Free:
    """Give allocated slots back."""

    slots: Slots


@frozen
class Insert:
    """Hand over the data of `key` from page `start_pages` on; what comes before is in the tree."""

    key: Key
    start_pages: int
    slots: Slots
    """Allocated slots, one full slot a page from `start_pages` on. Then the cache owns them."""
    counted_pages: int = 0
    """Pages that an earlier insert of the same request reached: their hits are counted already."""
    priority: int = 0
    """What is higher stays longer, under the priority policy; a node keeps its highest."""


@frozen
class Evict:
    """Free at least so many device slots of each component, if that can be done."""

    counts: Counts


@frozen
class EvictHost:
    """Free at least so many host slots of each component, if that can be done."""

    counts: Counts


@frozen
class LoadBack:
    """Copy what `key` has on the host only back to the device."""

    key: Key
    quota_pages: int | None = None
    """Load nothing where more than this many full pages would have to be loaded."""


@frozen
class HostPayload:
    """Bytes fetched from storage, a slot's worth each, laid out as in `Slots`."""

    full: tuple[bytes, ...] = ()
    swa: tuple[bytes, ...] = ()
    mamba: tuple[bytes, ...] = ()


@frozen
class InsertHost:
    """Place fetched data of `key` from page `start_pages` on in the host tier."""

    key: Key
    start_pages: int
    payload: HostPayload


@frozen
class Poll:
    """Take acknowledgements."""


@frozen
class Flush:
    """Wait for every transfer in flight, then take its acknowledgement."""


@frozen
class Reset:
    """Forget everything. Refused while a receipt is open: a transfer in flight has one, too."""


@frozen
class TakeEvents:
    """Take the events since the last time."""


@frozen
class Write:
    """Set the bytes behind a device slot, as a model's kernels do; the tree is not told."""

    component: Component
    slot: Slot
    data: bytes


@frozen
class Read:
    """Look at the bytes behind a slot."""

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
    | Poll
    | Flush
    | Reset
    | TakeEvents
    | Write
    | Read
)


def method_of(operation: type[Operation]) -> str:
    """The name of the method that an operation is called by."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", operation.__name__).lower()


# Outcomes.


@frozen
class Matched:
    """What a match found."""

    prefix_pages: int
    """The usable prefix, wherever its data is."""
    device_pages: int
    """The usable prefix of what is on the device now, loads in flight not counted."""
    slots: Slots
    """The device slots of the first `device_pages` pages: window slots only as far as they reach
    back without a gap, and the state at the end."""
    pending: tuple[TransferId, ...] = ()
    """Load-backs in flight on the usable prefix: poll until they settle, then match again."""


@frozen
class Inserted:
    """Where the slots went. Each is in the tree or free."""

    present_pages: int
    """Pages of the key that had full data on the device before."""
    adopted: Counts
    """Slots that the tree took."""
    freed: Counts
    """Slots that held what the tree had already."""
    backups: tuple[TransferId, ...] = ()
    backup_declined_pages: int = 0
    """Pages of the key that reached the threshold and have no backup: the host has no room."""


@frozen
class Evicted:
    """What was freed: slots that are in the free list now and were not before."""

    freed: Counts


class LoadDecision(StrEnum):
    """Why a load-back was enqueued, or was not."""

    ENQUEUED = "enqueued"
    NOTHING_TO_LOAD = "nothing_to_load"
    BELOW_THRESHOLD = "below_threshold"
    OVER_QUOTA = "over_quota"
    NO_ROOM = "no_room"
    """Not even eviction made room; what it evicted stays evicted."""


@frozen
class LoadedBack:
    """What a load-back did."""

    decision: LoadDecision
    transfer_id: TransferId | None = None
    loading: Counts = Counts()
    """Slots being loaded."""
    evicted: Counts = Counts()
    """Device slots that were freed to make room."""


@frozen
class HostInserted:
    """What became of fetched pages. `placed + refilled + present + dropped` are the pages given."""

    placed_pages: int
    """Pages in a new node."""
    refilled_pages: int
    """Pages that were on the device only and now have a host copy."""
    present_pages: int
    """Pages that had a host copy."""
    dropped_pages: int
    """Pages with no room, or that would have hung below a parent without a host copy."""


@frozen
class Settled:
    """Transfers that settled, in the order in which they did."""

    transfers: tuple[tuple[TransferId, TransferStatus], ...]


@frozen
class Taken:
    """The events since the last time."""

    events: tuple[Event, ...]


@frozen
class BytesRead:
    """What is behind a slot."""

    data: bytes


@frozen
class Done:
    """The operation has nothing to report."""


@frozen
class Refused:
    """The call was refused, and the state is as it was."""

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
    Poll: Settled,
    Flush: Settled,
    Reset: Done,
    TakeEvents: Taken,
    Write: Done,
    Read: BytesRead,
}
"""What each operation is answered with, where it is not refused."""

Outcome: TypeAlias = (
    Matched
    | Receipt
    | Slots
    | Inserted
    | Evicted
    | LoadedBack
    | HostInserted
    | Settled
    | Taken
    | BytesRead
    | Done
    | Refused
)
