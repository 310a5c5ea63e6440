"""Slots: their owners, from the free list to a request, to a node, and back.

Attention kernels find a page's window slot through its full slot. A pair begins when both slots are
allocated, changes when a node adopts the window slot of a duplicate, and ends when the first of the
two is freed.
"""

from __future__ import annotations

from kvcanon.reference.state import Node, State, Transfer
from kvcanon.spec.errors import BadArgument, OutOfSlots, SlotNotHeld
from kvcanon.spec.types import FULL, GPU, SWA, Component, Counts, Medium, Slot, Slots


def allocate(state: State, counts: Counts) -> Slots:
    """Take free device slots for a request, all or none."""
    for component in Component:
        if counts[component] < 0:
            raise BadArgument(str(component), f"{counts[component]} slots asked; ask for 0 or more")
        if counts[component] and component not in state.config.components:
            raise BadArgument(str(component), "is no component of this cache; ask for 0 slots")
    if counts.swa > counts.full:
        raise BadArgument("swa", f"{counts.swa} slots asked for {counts.full} pages of full data")
    for component in state.config.components:
        free = state.pools[component, GPU].free_slots
        if free < counts[component]:
            raise OutOfSlots(f"{component} on GPU", counts[component], free)
    taken = {c: state.pools[c, GPU].take(counts[c]) for c in state.config.components}
    for component, slots in taken.items():
        state.pools[component, GPU].held.update(slots)
    allocated = Slots(**{component.value: slots for component, slots in taken.items()})
    pair(state, allocated.full[counts.full - counts.swa :], allocated.swa)
    return allocated


def free(state: State, slots: Slots) -> None:
    """Free a request's slots, all or none."""
    require_held(state, slots)
    unhold(state, slots)
    for component, some in slots:
        if some:
            release(state, component, GPU, some)


def require_held(state: State, slots: Slots) -> None:
    """Check that requests own each of these slots. Raises: SlotNotHeld, BadArgument."""
    for component, some in slots:
        if some and component not in state.config.components:
            raise BadArgument(str(component), "is no component of this cache; hand over no slots")
        if len(set(some)) < len(some):
            raise BadArgument(str(component), "names a slot twice; hand over each slot once")
        for slot in some:
            if slot not in state.pools[component, GPU].held:
                raise SlotNotHeld(f"{component} on GPU", slot)


def unhold(state: State, slots: Slots) -> None:
    """End the requests' ownership of slots; the caller gives every slot a new owner."""
    for component, some in slots:
        if some:
            state.pools[component, GPU].held.difference_update(some)


def release(state: State, component: Component, medium: Medium, slots: tuple[Slot, ...]) -> None:
    """Put slots into the free list, and end their pairs."""
    if medium is GPU and component is FULL:
        for slot in slots:
            state.full_of_swa.pop(state.swa_of_full.pop(slot, -1), None)
    elif medium is GPU and component is SWA:
        for slot in slots:
            state.swa_of_full.pop(state.full_of_swa.pop(slot, -1), None)
    pool = state.pools[component, medium]
    for slot in slots:
        pool.payloads.pop(slot, None)
    pool.give_back(slots)


def pair(state: State, full: tuple[Slot, ...], swa: tuple[Slot, ...]) -> None:
    """Pair each window slot with its full slot, and with no other."""
    for full_slot, swa_slot in zip(full, swa, strict=True):
        state.swa_of_full.pop(state.full_of_swa.pop(swa_slot, -1), None)
        state.swa_of_full[full_slot] = swa_slot
        state.full_of_swa[swa_slot] = full_slot


def place(
    state: State,
    node: Node,
    component: Component,
    medium: Medium,
    slots: tuple[Slot, ...],
    *,
    filled_by: Transfer | None = None,
) -> None:
    """Make a node the owner of slots without an owner; `filled_by` fills them later, if given."""
    data = node.data[component]
    assert data.slots(medium) is None
    if medium is GPU:
        data.device, data.loading = slots, filled_by
        if component is SWA:
            pair(state, node.data[FULL].device or (), slots)
    else:
        data.host, data.backing = slots, filled_by
    state.owners[component, medium][node] = None


def take(state: State, node: Node, component: Component, medium: Medium) -> tuple[Slot, ...]:
    """End a node's ownership of its slots in a pool, and return them without an owner."""
    data = node.data[component]
    slots = data.slots(medium)
    if slots is None:
        return ()
    if medium is GPU:
        data.device, data.loading = None, None
    else:
        data.host, data.backing = None, None
    del state.owners[component, medium][node]
    return slots


def drop(state: State, node: Node, component: Component, medium: Medium) -> None:
    """Free the slots that a node has in a pool."""
    release(state, component, medium, take(state, node, component, medium))


def free_slot_counts(state: State, medium: Medium) -> Counts:
    """Free slots of each component's pool on a medium."""
    return Counts.of({c: state.pools[c, medium].free_slots for c in state.config.components})


def free_tree(state: State) -> None:
    """Free all slots that nodes own."""
    for (component, medium), owners in state.owners.items():
        for node in list(owners):
            drop(state, node, component, medium)
