"""Departures: how data leaves a medium, at once or when its copy to the host is done.

Under write_back an eviction copies its victims to the host. It enqueues the copies of all victims
before it waits for any of them. Until the copies settle a victim's device slots belong to its
departure, and not to its node, so that further victims are chosen as if it had left.

A victim whose copy fails leaves all the same. A leaf without a host copy is removed, with the nodes
below it on the host.
"""

from __future__ import annotations

from kvcanon.reference.events import emit_removed
from kvcanon.reference.lock import extend_hold
from kvcanon.reference.slots import drop, place, take
from kvcanon.reference.state import Departure, Node, State
from kvcanon.reference.transfer import settle
from kvcanon.reference.tree import remove_leaf
from kvcanon.spec.errors import SpecViolation
from kvcanon.spec.transfer import Direction
from kvcanon.spec.types import CPU, FULL, GPU, SWA, Component, Medium, TransferId


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


def depart(
    state: State,
    node: Node,
    components: tuple[Component, ...],
    transfer_id: TransferId | None,
    *,
    whole: bool,
) -> None:
    """Let data leave the device when a copy is done, and all victims before it have left."""
    slots = {component: take(state, node, component, GPU) for component in components}
    for component, some in slots.items():
        state.pools[component, GPU].leaving += len(some)
    state.departures.append(Departure(node, transfer_id, slots, whole=whole))


def is_departing(state: State, node: Node) -> bool:
    """Whether a node is a victim of the running eviction that has not left yet."""
    return any(departure.node is node for departure in state.departures)


def end_departures(state: State) -> None:
    """Wait for the copies of all victims, once, and let the victims leave in their order.

    Raises:
        SpecViolation: a copy is in flight after the wait.
    """
    copied = [each.transfer_id for each in state.departures if each.transfer_id is not None]
    if copied:
        state.engine.wait(copied[-1])
        settle(state, Direction.BACKUP)
    while state.departures:
        departure = state.departures[0]
        if departure.transfer_id in state.transfers:
            raise SpecViolation(
                f"the engine was waited for, and {departure.transfer_id} is still in flight"
            )
        del state.departures[0]
        _give_back(state, departure)
        _leave(state, departure)


def undo_departures(state: State) -> None:
    """Give all victims their data back, after the engine raised.

    Copies of victims that are still in flight hold their nodes from now on, as other copies do.
    """
    while state.departures:
        _give_back(state, state.departures.pop())
    for transfer in state.transfers.values():
        assert transfer.hold is not None
        if transfer.hold.node is state.root and transfer.parts:
            node = transfer.parts[0][0]
            extend_hold(transfer.hold, node, node.start if SWA in node.data else None)


def _give_back(state: State, departure: Departure) -> None:
    for component in state.config.components:
        slots = departure.slots.get(component, ())
        if slots:
            state.pools[component, GPU].leaving -= len(slots)
            place(state, departure.node, component, GPU, slots)


def _leave(state: State, departure: Departure) -> None:
    node = departure.node
    if not departure.whole:
        for component in departure.slots:
            drop(state, node, component, GPU)
    elif node.data[FULL].host is not None:
        vacate(state, node, GPU)
    else:
        delete(state, node)
