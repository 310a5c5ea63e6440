"""Copies to the host: those in flight, those that an insert wants, and their names.

SGLang plans, allocates and acknowledges each copy on its own, so that nodes of one path are copied
as one, named by the lowest. A state is locked only at the end of a path, so that where there are
states each node is a copy. Room on the host is made node by node all the same (`host_room`).

An acknowledgement is known by what names its copy. A node that names one in flight gets another
name for the next. These names are negative, as no handle is, and -1 is SGLang's word for no node.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import Factory, define
from sglang.srt.mem_cache.unified_cache.cache_action import BackupKV, UpdatePendingBackupOnNodeSplit

from kvcanon.optimized.sglang.copy_order import NO_NODE, CopyOrder, CopyStage


@define(eq=False)
class Copies:
    """What the core knows of copies to the host."""

    pending: dict[int, tuple[int, ...]] = Factory(dict)
    """Nodes of which copies are in flight, with the acknowledgements that end them, in order."""
    unannounced: set[int] = Factory(set)
    """Those whose full data no event has announced on the host yet."""
    nodes_by_name: dict[int, int] = Factory(dict)
    """Nodes by the further names of their copies."""
    last_name: int = NO_NODE
    new_names: list[int] = Factory(list)
    """The names that the running insert gave."""
    joined: tuple[int, ...] = ()
    """The nodes of a copy of several that the controller has not made yet."""
    order: CopyOrder = Factory(CopyOrder)
    """The copy that the controller makes."""

    def node_of(self, name: int) -> int:
        """The native node for a node id of SGLang, which may be that of a copy."""
        return self.nodes_by_name.get(name, name)


def follow_cuts(copies: Copies, cuts: Sequence[tuple[int, int, int]]) -> list[object]:
    """Let copies in flight follow where the tree cut nodes; returns the actions for it."""
    actions: list[object] = []
    for upper, lower, _ in cuts:
        ack_ids = copies.pending.get(lower, ())
        if not ack_ids:
            continue
        copies.pending[upper] = ack_ids
        if lower in copies.unannounced:
            copies.unannounced.add(upper)
        actions += [
            UpdatePendingBackupOnNodeSplit(ack_id, lower, upper, lower) for ack_id in ack_ids
        ]
    return actions


def copy_of(copies: Copies, wanted: Sequence[int], lowest: int, *, apart: bool) -> BackupKV:
    """The action for the copies that an insert wants, each node `apart` or all as one."""
    in_flight = {ack_id for node in wanted for ack_id in copies.pending.get(node, ())}
    if in_flight:
        return BackupKV([_name_of_copy(copies, node, in_flight) for node in wanted])
    if len(wanted) > 1 and not apart:
        copies.joined = tuple(wanted)
        return BackupKV([lowest])
    return BackupKV(list(wanted))


def end_insert(copies: Copies) -> list[object]:
    """The copies that are left after an insert: one of each node, if one for all found no room.

    Further names that the insert gave to copies that SGLang did not make are forgotten.
    """
    if copies.order.stage is not CopyStage.NONE:
        copies.order.give_up("end_insert")
    if not copies.new_names and not copies.joined:
        return []
    for name in copies.new_names:
        if name not in copies.pending.get(copies.node_of(name), ()):
            copies.nodes_by_name.pop(name, None)
    copies.new_names.clear()
    if not copies.joined:
        return []
    left, copies.joined = BackupKV(list(copies.joined)), ()
    return [left]


def begin_pending(copies: Copies, ack_id: int) -> list[int]:
    """Record which acknowledgement ends the copy that was made last; returns its nodes."""
    copied = list(copies.order.acknowledge(ack_id))
    for node_id in copied:
        copies.pending[node_id] = (*copies.pending.get(node_id, ()), ack_id)
    return copied


def end_pending(copies: Copies, node_ids: list[int], ack_id: int) -> list[int]:
    """End copies; returns the nodes whose full data is to be announced."""
    stored: list[int] = []
    for node_id in node_ids:
        left = tuple(each for each in copies.pending.pop(node_id, ()) if each != ack_id)
        if left:
            copies.pending[node_id] = left
        if node_id in copies.unannounced:
            copies.unannounced.remove(node_id)
            stored.append(node_id)
    return stored


def _name_of_copy(copies: Copies, node_id: int, in_flight: set[int]) -> int:
    """The node, or a further name of it if the node names a copy in flight."""
    if node_id not in in_flight:
        return node_id
    copies.last_name -= 1
    copies.nodes_by_name[copies.last_name] = node_id
    copies.new_names.append(copies.last_name)
    return copies.last_name
