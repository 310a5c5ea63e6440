"""Grounds of inserts, from a request and from storage."""

from __future__ import annotations

from itertools import pairwise

from kvcanon.spec.config import CacheConfig, Limit
from kvcanon.spec.operations import HostPayload, Insert, InsertHost
from kvcanon.spec.refusals.keys import wrong_key
from kvcanon.spec.refusals.slots import bad_slots
from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.types import FULL, GPU, MAMBA, SWA, Slots
from kvcanon.spec.views import path_of, present_pages


def bad_insert(state: Snapshot, call: Insert) -> str | None:
    """Counts or slots that do not fit the key, a wrong key, or wrong slots."""
    size, start, slots = len(call.key), call.start_pages, call.slots
    if not 0 <= start <= size:
        return f"start_pages is {start}, of {size} pages"
    if not 0 <= call.counted_pages <= size:
        return f"counted_pages is {call.counted_pages}, of {size} pages"
    if len(slots.full) != size - start:
        return f"{len(slots.full)} full slots are handed over for {size - start} pages"
    if (reason := _misplaced_states(call)) is not None:
        return reason
    if len(slots.swa) > len(slots.full):
        return f"{len(slots.swa)} window slots are handed over for {len(slots.full)} pages"
    return wrong_key(state.config, call.key) or bad_slots(state, slots) or _unpaired(state, slots)


def _misplaced_states(call: Insert) -> str | None:
    """States without a page of the key, or pages that are not in order."""
    size, states, ends = len(call.key), len(call.slots.mamba), call.state_pages
    if not ends:
        return f"{states} states are handed over for one end" if states > min(1, size) else None
    if len(ends) != states:
        return f"{states} states are handed over for {len(ends)} ends"
    if any(later <= earlier for earlier, later in pairwise((0, *ends))) or ends[-1] > size:
        return f"state_pages are {list(ends)}, of {size} pages"
    return None


def _unpaired(state: Snapshot, slots: Slots) -> str | None:
    """A window slot that is not handed over for the page of its full slot."""
    first = len(slots.full) - len(slots.swa)
    for index, full in enumerate(slots.full):
        window = slots.swa[index - first] if index >= first else None
        if state.swa_of_full.get(full) != window:
            return f"full slot {full} is not paired with window slot {window}"
    return None


def limit_of_insert(state: Snapshot, call: Insert) -> str | None:
    """By `STATE_WITH_INSERT`: no mamba state. By `NODE_HANDLES`: a start inside a node."""
    limits, start = state.profile.limits, call.start_pages
    stateful = Limit.STATE_WITH_INSERT in limits and MAMBA in state.config.components
    if stateful and not call.slots.mamba:
        return "no state is handed over"
    if Limit.NODE_HANDLES in limits and start:
        path = path_of(state, call.key.prefix(start))
        if path and path[-1].shared_pages < len(path[-1].node.pages):
            return "the insert begins inside a node"
    return None


def not_on_device(state: Snapshot, call: Insert) -> str | None:
    """Pages before `start_pages` without full data on the device."""
    pages = 0
    for node, shared in path_of(state, call.key):
        if not node.full.resident(GPU):
            break
        pages += shared
    if pages >= call.start_pages:
        return None
    return f"only {pages} pages of the key are on {GPU}"


def loading(state: Snapshot, call: Insert) -> str | None:
    """A load-back in flight on the path of the key."""
    for node, _ in path_of(state, call.key):
        for data in node.data.values():
            if data.loading is not None:
                return f"transfer {data.loading} is loading its path"
    return None


def bad_insert_host(state: Snapshot, call: InsertHost) -> str | None:
    """No host tier, or a payload that does not fit the key, or a wrong key."""
    return wrong_payload(state.config, call) or wrong_key(state.config, call.key)


def wrong_payload(config: CacheConfig, call: InsertHost) -> str | None:
    """No host tier, or a payload that does not fit the key."""
    size, start, payload = len(call.key), call.start_pages, call.payload
    if not config.host_tier:
        return "the cache has no host tier"
    if not 0 <= start <= size:
        return f"start_pages is {start}, of {size} pages"
    if len(payload.full) != size - start:
        return f"{len(payload.full)} pages are given for {size - start}"
    if len(payload.swa) > len(payload.full) or len(payload.mamba) > min(1, len(payload.full)):
        return "window data or states are given for pages that are not"
    return _wrong_bytes(config, payload)


def _wrong_bytes(config: CacheConfig, payload: HostPayload) -> str | None:
    given = {FULL: payload.full, SWA: payload.swa, MAMBA: payload.mamba}
    for component, some in given.items():
        if some and component not in config.components:
            return f"the cache has no {component} component"
        if any(len(data) != config.slot_bytes for data in some):
            return f"{component} data is not of {config.slot_bytes} bytes a slot"
    return None


def not_there(state: Snapshot, call: InsertHost) -> str | None:
    """Pages before `start_pages` that are not in the tree."""
    there = present_pages(state, call.key)
    return None if there >= call.start_pages else f"only {there} pages of the key are in the tree"
