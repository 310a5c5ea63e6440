"""Grounds of calls on slots: allocations, frees, evictions, reads and writes."""

from __future__ import annotations

from kvcanon.spec.config import Limit
from kvcanon.spec.operations import Allocate, Evict, EvictHost, Free, Insert, Read, Write
from kvcanon.spec.snapshot import NO_POOL, Snapshot
from kvcanon.spec.types import GPU, Counts, Slots


def bad_allocate(state: Snapshot, call: Allocate) -> str | None:
    """A component that the cache lacks, more window slots than pages, or a negative count."""
    counts = call.counts
    for component, count in counts:
        if count and component not in state.config.components:
            return f"the cache has no {component} component"
    if counts.swa > counts.full:
        return f"{counts.swa} window slots are asked for {counts.full} pages"
    return negative(state, call)


def negative(_: Snapshot, call: Allocate | Evict | EvictHost) -> str | None:
    """A negative count."""
    counts: Counts = call.counts
    return "a count is negative" if min(counts.full, counts.swa, counts.mamba) < 0 else None


def no_room(state: Snapshot, call: Allocate) -> str | None:
    """A pool with fewer free slots than the call asks for."""
    for component, count in call.counts:
        free = len(state.pools.get((component, GPU), NO_POOL).free)
        if component in state.config.components and count > free:
            return f"{component} on {GPU} has {free} free slots"
    return None


def bad_slots(state: Snapshot, slots: Slots) -> str | None:
    """Slots of a component that the cache lacks, or a slot named twice."""
    for component, some in slots:
        if some and component not in state.config.components:
            return f"the cache has no {component} component"
        if len(set(some)) < len(some):
            return f"a {component} slot is named twice"
    return None


def bad_free(state: Snapshot, call: Free) -> str | None:
    """As `bad_slots`."""
    return bad_slots(state, call.slots)


def limit_of_free(state: Snapshot, call: Free) -> str | None:
    """By `Limit.PAIRS_TOGETHER`: full slots without their window slots."""
    leads = state.swa_of_full
    alone = [s for s in call.slots.full if s in leads and leads[s] not in call.slots.swa]
    if Limit.PAIRS_TOGETHER in state.profile.limits and alone:
        return f"full slots {alone} are given back without their window slots"
    return None


def not_held(state: Snapshot, call: Free | Insert) -> str | None:
    """A slot that no request holds."""
    for component, some in call.slots:
        held = set(state.pools.get((component, GPU), NO_POOL).held)
        for slot in some:
            if slot not in held:
                return f"no request holds {component} slot {slot}, or holds it a second time"
            held.remove(slot)
    return None


def bad_write(state: Snapshot, call: Write) -> str | None:
    """Bytes that do not fill a slot."""
    size = state.config.slot_bytes
    if len(call.data) == size:
        return None
    return f"{len(call.data)} bytes are written; a slot has {size}"


def not_written(state: Snapshot, call: Write) -> str | None:
    """A slot to write to that no request holds."""
    if call.slot in state.pools.get((call.component, GPU), NO_POOL).held:
        return None
    return f"no request holds {call.component} slot {call.slot}"


def no_such_slot(state: Snapshot, call: Read) -> str | None:
    """A slot to read that the pool does not have."""
    capacity = state.config.capacity(call.component, call.medium)
    if 0 <= call.slot < capacity:
        return None
    return f"{call.component} on {call.medium} has {capacity} slots; {call.slot} is none of them"
