"""Chapter 13. Grounds for refusal: for each operation, when it may be refused, and must be.

One table, operation by error. A call is refused only with an error of its row, and only while its
ground stands in the state before; and it is refused while any of them stands. A cache that declares
limits (`config.Limit`) may refuse for these too. `kvcanon laws
--refusals` prints the table.

What readers get wrong: a `BadArgument` is no matter of taste. What is wrong with an argument can be
worked out like everything else, and a cache may not refuse what it merely does not like.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from attrs import frozen

from kvcanon.spec.config import Limit
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
    Evict,
    EvictHost,
    Flush,
    Free,
    HostPayload,
    Insert,
    InsertHost,
    LoadBack,
    Lock,
    Match,
    Operation,
    Poll,
    Read,
    Reset,
    TakeEvents,
    Unlock,
    UnlockWindow,
    Write,
    method_of,
)
from kvcanon.spec.snapshot import NO_POOL, Snapshot
from kvcanon.spec.transfer import Direction
from kvcanon.spec.types import CPU, FULL, GPU, MAMBA, SWA, Component, Counts, Key, Slots
from kvcanon.spec.views import path_of, present_pages, usable_pages


@frozen
class Ground:
    """Why an operation may be refused, and must be."""

    words: str
    """When it stands, in a few words."""
    stands: Callable[[Snapshot, Any], str | None] = lambda _, __: None
    """What makes it stand, as a clause; None where it does not."""
    limit: Callable[[Snapshot, Any], str | None] = lambda _, __: None
    """What lets a cache refuse that declares a limit, but does not oblige it to."""


HEADS = ("operation", "error", "when")


def cells() -> list[tuple[str, str, str]]:
    """The table in words: a text for each of `HEADS`."""
    return [
        (method_of(operation), error.__name__, ground.words)
        for operation, row in REFUSALS.items()
        for error, ground in row.items()
    ]


def must_refuse(state: Snapshot, asked: Operation) -> Iterator[tuple[type[CacheError], str]]:
    """The errors with one of which a call must be refused in a state, each with the reason."""
    for error, ground in REFUSALS[type(asked)].items():
        reason = ground.stands(state, asked)
        if reason is not None:
            yield error, reason


def may_refuse(state: Snapshot, asked: Operation) -> Iterator[tuple[type[CacheError], str]]:
    """The errors with which a call may be refused, by the limits of the cache too."""
    yield from must_refuse(state, asked)
    if state.profile.limits:
        for error, ground in REFUSALS[type(asked)].items():
            reason = ground.limit(state, asked)
            if reason is not None:
                yield error, reason


# Keys.


def _wrong_key(state: Snapshot, key: Key) -> str | None:
    """What is wrong with how a key is cut, or what it is made of."""
    config = state.config
    if any(len(page) != config.page_size for page in key.pages):
        return f"the key has pages that are not of {config.page_size} units"
    units: Sequence[Any] = list(chain.from_iterable(key.pages))
    try:
        array("I", [token for pair in units for token in _pair(pair)] if config.bigram else units)
    except (TypeError, ValueError, OverflowError):
        return f"the key is not made of {'bigrams' if config.bigram else 'tokens'}"
    return None


def _pair(unit: tuple[int, int]) -> tuple[int, int]:
    first, second = unit
    return first, second


def _bad_match(state: Snapshot, asked: Match) -> str | None:
    return _wrong_key(state, asked.key)


def _bad_lock(state: Snapshot, asked: Lock) -> str | None:
    return _wrong_key(state, asked.key)


def _limit_of_lock(state: Snapshot, asked: Lock) -> str | None:
    return _no_handle(state, asked.key, on_device=True)


def _bad_load(state: Snapshot, asked: LoadBack) -> str | None:
    if asked.quota_pages is not None and asked.quota_pages < 0:
        return f"the quota is {asked.quota_pages} pages"
    return _wrong_key(state, asked.key)


def _limit_of_load(state: Snapshot, asked: LoadBack) -> str | None:
    if asked.quota_pages is not None and Limit.NO_QUOTA in state.profile.limits:
        return "a quota is given"
    return _no_handle(state, asked.key, on_device=False)


def _no_handle(state: Snapshot, key: Key, *, on_device: bool) -> str | None:
    """Why a cache whose handles are nodes has none for a key: no match ends there."""
    if Limit.NODE_HANDLES not in state.profile.limits or not len(key):
        return None
    path = path_of(state, key)
    if path and path[-1].shared_pages < len(path[-1].node.pages):
        return "the key ends inside a node"
    media = (GPU,) if on_device else (GPU, CPU)
    return "no match ends with the key" if usable_pages(state, key, media) < len(key) else None


def _not_cached(state: Snapshot, asked: Lock | LoadBack) -> str | None:
    there = present_pages(state, asked.key)
    return None if there >= len(asked.key) else f"only {there} pages of the key are in the tree"


# Slots.


def _bad_allocate(state: Snapshot, asked: Allocate) -> str | None:
    counts = asked.counts
    for component in Component:
        if counts[component] and component not in state.config.components:
            return f"the cache has no {component} component"
    if counts.swa > counts.full:
        return f"{counts.swa} window slots are asked for {counts.full} pages"
    return _negative(state, asked)


def _negative(_: Snapshot, asked: Allocate | Evict | EvictHost) -> str | None:
    counts: Counts = asked.counts
    return "a count is negative" if any(counts[each] < 0 for each in Component) else None


def _no_room(state: Snapshot, asked: Allocate) -> str | None:
    for component in state.config.components:
        free = len(state.pools.get((component, GPU), NO_POOL).free)
        if asked.counts[component] > free:
            return f"{component} on {GPU} has {free} free slots"
    return None


def _bad_slots(state: Snapshot, slots: Slots) -> str | None:
    for component, some in slots:
        if some and component not in state.config.components:
            return f"the cache has no {component} component"
        if len(set(some)) < len(some):
            return f"a {component} slot is named twice"
    return None


def _bad_free(state: Snapshot, asked: Free) -> str | None:
    return _bad_slots(state, asked.slots)


def _limit_of_free(state: Snapshot, asked: Free) -> str | None:
    leads = state.swa_of_full
    alone = [s for s in asked.slots.full if s in leads and leads[s] not in asked.slots.swa]
    if Limit.PAIRS_TOGETHER in state.profile.limits and alone:
        return f"full slots {alone} are given back without their window slots"
    return None


def _not_held(state: Snapshot, asked: Free | Insert) -> str | None:
    for component, some in asked.slots:
        held = set(state.pools.get((component, GPU), NO_POOL).held)
        for slot in some:
            if slot not in held:
                return f"no request holds {component} slot {slot}, or holds it a second time"
            held.remove(slot)
    return None


def _bad_write(state: Snapshot, asked: Write) -> str | None:
    size = state.config.slot_bytes
    if len(asked.data) == size:
        return None
    return f"{len(asked.data)} bytes are written; a slot has {size}"


def _not_written(state: Snapshot, asked: Write) -> str | None:
    if asked.slot in state.pools.get((asked.component, GPU), NO_POOL).held:
        return None
    return f"no request holds {asked.component} slot {asked.slot}"


def _no_such_slot(state: Snapshot, asked: Read) -> str | None:
    capacity = state.config.capacity(asked.component, asked.medium)
    if 0 <= asked.slot < capacity:
        return None
    return f"{asked.component} on {asked.medium} has {capacity} slots; {asked.slot} is none of them"


# Inserts.


def _bad_insert(state: Snapshot, asked: Insert) -> str | None:
    size, start, slots = len(asked.key), asked.start_pages, asked.slots
    if not 0 <= start <= size:
        return f"start_pages is {start}, of {size} pages"
    if not 0 <= asked.counted_pages <= size:
        return f"counted_pages is {asked.counted_pages}, of {size} pages"
    if len(slots.full) != size - start:
        return f"{len(slots.full)} full slots are handed over for {size - start} pages"
    if len(slots.mamba) > min(1, size):
        return f"{len(slots.mamba)} states are handed over for one end"
    if len(slots.swa) > len(slots.full):
        return f"{len(slots.swa)} window slots are handed over for {len(slots.full)} pages"
    return _wrong_key(state, asked.key) or _bad_slots(state, slots) or _unpaired(state, slots)


def _unpaired(state: Snapshot, slots: Slots) -> str | None:
    """A window slot that is not handed over for the page of its full slot."""
    first = len(slots.full) - len(slots.swa)
    for index, full in enumerate(slots.full):
        window = slots.swa[index - first] if index >= first else None
        if state.swa_of_full.get(full) != window:
            return f"full slot {full} is not paired with window slot {window}"
    return None


def _limit_of_insert(state: Snapshot, asked: Insert) -> str | None:
    """What a cache with limits does not take over."""
    limits, start = state.profile.limits, asked.start_pages
    stateful = Limit.STATE_WITH_INSERT in limits and MAMBA in state.config.components
    if stateful and len(asked.slots.mamba) != 1:
        return "no state is handed over"
    if Limit.NODE_HANDLES in limits and start:
        path = path_of(state, asked.key.prefix(start))
        if path and path[-1].shared_pages < len(path[-1].node.pages):
            return "the insert begins inside a node"
    return None


def _not_on_device(state: Snapshot, asked: Insert) -> str | None:
    pages = 0
    for node, shared in path_of(state, asked.key):
        if not node[FULL].resident(GPU):
            break
        pages += shared
    if pages >= asked.start_pages:
        return None
    return f"only {pages} pages of the key are on {GPU}"


def _loading(state: Snapshot, asked: Insert) -> str | None:
    for node, _ in path_of(state, asked.key):
        for data in node.data.values():
            if data.loading is not None:
                return f"transfer {data.loading} is loading its path"
    return None


def _other_load(state: Snapshot, _: LoadBack) -> str | None:
    """Why a cache that loads one path at a time does not load another."""
    if Limit.ONE_LOAD not in state.profile.limits:
        return None
    loads = [t for t in state.transfers if t.direction is Direction.LOAD_BACK]
    return f"transfer {loads[0].transfer_id} is loading" if loads else None


def _bad_insert_host(state: Snapshot, asked: InsertHost) -> str | None:
    size, start, payload = len(asked.key), asked.start_pages, asked.payload
    if not state.config.host_tier:
        return "the cache has no host tier"
    if not 0 <= start <= size:
        return f"start_pages is {start}, of {size} pages"
    if len(payload.full) != size - start:
        return f"{len(payload.full)} pages are given for {size - start}"
    if len(payload.swa) > len(payload.full) or len(payload.mamba) > min(1, len(payload.full)):
        return "window data or states are given for pages that are not"
    return _wrong_payload(state, payload) or _wrong_key(state, asked.key)


def _wrong_payload(state: Snapshot, payload: HostPayload) -> str | None:
    given = {FULL: payload.full, SWA: payload.swa, MAMBA: payload.mamba}
    for component, some in given.items():
        if some and component not in state.config.components:
            return f"the cache has no {component} component"
        if any(len(data) != state.config.slot_bytes for data in some):
            return f"{component} data is not of {state.config.slot_bytes} bytes a slot"
    return None


def _not_there(state: Snapshot, asked: InsertHost) -> str | None:
    there = present_pages(state, asked.key)
    return None if there >= asked.start_pages else f"only {there} pages of the key are in the tree"


# Receipts.


def _spent(state: Snapshot, asked: Unlock | UnlockWindow) -> str | None:
    receipt = asked.receipt
    path = path_of(state, receipt.key)
    end = path[-1].node if path else state.root
    for hold in state.holds:
        of_a_request = hold.receipt_id == receipt.receipt_id and hold.transfer_id is None
        if of_a_request and hold.node_id == end.node_id and state.end(end) == len(receipt.key):
            return None
    return f"receipt {receipt.receipt_id} is not open"


def _busy(state: Snapshot, _: Reset) -> str | None:
    return f"{len(state.holds)} receipts are open" if state.holds else None


_WRONG_KEY = "the key has pages of another size, or units of another kind"

REFUSALS: Mapping[type[Operation], Mapping[type[CacheError], Ground]] = {
    Match: {BadArgument: Ground(_WRONG_KEY, _bad_match)},
    Lock: {
        BadArgument: Ground(_WRONG_KEY, _bad_lock, _limit_of_lock),
        PrefixNotCached: Ground("not all of the key is in the tree", _not_cached),
    },
    Unlock: {ReceiptSpent: Ground("the receipt is not open", _spent)},
    UnlockWindow: {ReceiptSpent: Ground("the receipt is not open", _spent)},
    Allocate: {
        BadArgument: Ground(
            "a count is negative, of a component that is not there, or there are more window "
            "slots than pages",
            _bad_allocate,
        ),
        OutOfSlots: Ground("a pool has fewer free slots", _no_room),
    },
    Free: {
        BadArgument: Ground("a slot is named twice, or of no component", _bad_free, _limit_of_free),
        SlotNotHeld: Ground("no request holds a slot", _not_held),
    },
    Insert: {
        BadArgument: Ground(
            f"{_WRONG_KEY}; slots or counts do not fit the pages; or window slots are not those of "
            "the full slots",
            _bad_insert,
            _limit_of_insert,
        ),
        SlotNotHeld: Ground("no request holds a slot", _not_held),
        PrefixNotCached: Ground("the pages before the first are not on the device", _not_on_device),
        TransferPending: Ground("something on the path is being loaded", _loading),
    },
    Evict: {BadArgument: Ground("a count is negative", _negative)},
    EvictHost: {BadArgument: Ground("a count is negative", _negative)},
    LoadBack: {
        BadArgument: Ground(f"{_WRONG_KEY}; or the quota is negative", _bad_load, _limit_of_load),
        PrefixNotCached: Ground("not all of the key is in the tree", _not_cached),
        TransferPending: Ground("by profile: another load is in flight", limit=_other_load),
    },
    InsertHost: {
        BadArgument: Ground(
            f"{_WRONG_KEY}; there is no host tier; or the payload does not fit the pages",
            _bad_insert_host,
        ),
        PrefixNotCached: Ground("the pages before the first are not in the tree", _not_there),
    },
    Poll: {},
    Flush: {},
    Reset: {CacheBusy: Ground("a receipt is open; a copy in flight has one", _busy)},
    TakeEvents: {},
    Write: {
        BadArgument: Ground("the data is not of a slot's size", _bad_write),
        SlotNotHeld: Ground("no request holds the slot", _not_written),
    },
    Read: {BadArgument: Ground("there is no such slot", _no_such_slot)},
}
"""When each operation is refused, with which error; what is not in it is served."""
