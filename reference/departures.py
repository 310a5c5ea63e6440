"""Departures: how data leaves a medium, at once or when its copy to the host is done.

Under write_back an eviction copies its victims to the host, all in one transfer, and waits for it
once. Until it settles a victim's device slots belong to its departure, and not to its node, so that
further victims are chosen as if it had left.

If the transfer fails the victims leave all the same. A leaf that has no host copy then is removed,
with the nodes below it on the host.
"""

from __future__ import annotations

from kvcanon.reference.events import emit_removed
from kvcanon.reference.slots import drop, place, take
from kvcanon.reference.state import LeavingVictim, Node, State
from kvcanon.reference.transfer import cancel, settle, submit
from kvcanon.reference.tree import remove_leaf
from kvcanon.spec.errors import SpecViolation
from kvcanon.spec.transfer import Direction
from kvcanon.spec.types import CPU, FULL, GPU, Component, Medium


def vacate(state: State, node: Node, medium: Medium) -> None:
    """Free all slots that a node has on a medium, full slots last, and emit its remove events."""
    emit_removed(state, node, medium)
    for component in reversed(state.config.components):
        drop(state, node, component, medium)


def delete_from_host(state: State, node: Node) -> None:
    """Remove a node that is on the host only, with all its data."""
    vacate(state, node, CPU)
    remove_leaf(state, node)


def delete(state: State, node: Node) -> None:
    """Remove a leaf that is on the device only, and (under write_back) the nodes below it.

    The nodes below are not locked: a lock on one would hold the leaf's full data, too.
    """
    for each in reversed(subtree(node)[1:]):
        delete_from_host(state, each)
    vacate(state, node, GPU)
    remove_leaf(state, node)


def subtree(node: Node) -> list[Node]:
    """A node and all nodes below it, each parent before its children."""
    found = [node]
    for each in found:
        found.extend(each.children.values())
    return found


def depart(state: State, node: Node, components: tuple[Component, ...], *, whole: bool) -> None:
    """Let data of a node leave the device when all victims are copied and those before it left."""
    slots = {component: take(state, node, component, GPU) for component in components}
    for component, some in slots.items():
        state.pools[component, GPU].leaving += len(some)
    state.departures.append(LeavingVictim(node, slots, whole=whole))


def is_departing(state: State, node: Node) -> bool:
    """Whether a node is a victim of the running eviction that has not left yet."""
    return any(departure.node is node for departure in state.departures)


def end_departures(state: State) -> None:
    """Copy all victims, wait for the copy, and let the victims leave in their order.

    Raises:
        SpecViolation: the copy is in flight after the wait.
    """
    transfer = state.victims_copy
    if transfer is not None:
        submit(state, transfer)
        state.engine.wait(transfer.transfer_id)
        settle(state, Direction.BACKUP)
        if transfer.transfer_id in state.transfers:
            raise SpecViolation(
                f"the engine was waited for, and {transfer.transfer_id} is still in flight"
            )
        state.victims_copy = None
    departures, state.departures = state.departures, []
    for departure in departures:
        _give_back(state, departure)
        _leave(state, departure)


def undo_departures(state: State) -> None:
    """Give all victims their data back, after the engine raised, and give their copy up."""
    for departure in state.departures:
        _give_back(state, departure)
    state.departures = []
    if state.victims_copy is not None:
        cancel(state, state.victims_copy)
        state.victims_copy = None


def _give_back(state: State, departure: LeavingVictim) -> None:
    for component in state.config.components:
        slots = departure.slots.get(component, ())
        if slots:
            state.pools[component, GPU].leaving -= len(slots)
            place(state, departure.node, component, GPU, slots)


def _leave(state: State, departure: LeavingVictim) -> None:
    node = departure.node
    if not departure.whole:
        for component in departure.slots:
            drop(state, node, component, GPU)
    elif node.data[FULL].host is not None:
        vacate(state, node, GPU)
    else:
        delete(state, node)
