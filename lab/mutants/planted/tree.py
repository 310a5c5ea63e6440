"""Faults of the tree: what a cut moves, where a child is registered, what is pruned.

A tree with wrong bookkeeping may return right matches for a long time.
"""

from __future__ import annotations

from kvcanon.lab.mutants.planted.entry import mutant
from kvcanon.lab.variants.override import Overrides
from kvcanon.lab.variants.wrapped_rules import Original, around
from kvcanon.reference import departures, host_insert, insert, lock, slots, tree, victims
from kvcanon.reference.state import Data, Hold, Node, State, Transfer
from kvcanon.spec.types import CPU, FULL, GPU, MAMBA, Component, Key, Slots


@mutant("TREE-1", "B14 sgl#22592")
def node_is_deleted_from_above_its_children(patch: Overrides) -> None:
    """A node on the host alone is deleted while it has children."""

    def childless_or_not(node: Node) -> bool:
        full = node.data[FULL]
        return full.device is None and full.host is not None and not node.locked

    def unlink(state: State, node: Node) -> None:
        assert node.parent is not None
        del node.parent.children[tree.edge(node.parent, node.namespace, node.pages[0])]
        del state.nodes[node.node_id]

    patch.setattr(victims, "is_host_leaf", childless_or_not)
    patch.setattr(departures, "remove_leaf", unlink)


@mutant("TREE-2", "D22 trt#17926")
@around(lock.hold, host_insert)
def host_insert_holds_nothing(
    hold: Original[Hold],
    state: State,
    end: Node,
    key: Key,
    window_from: int | None,
    transfer: Transfer | None = None,
) -> Hold:
    """A host insert evicts the node below which it adds its pages."""
    return hold(state, state.root if window_from is None else end, key, window_from, transfer)


@mutant("TREE-3", "A20 sgl#34823")
@around(tree.add_leaf, insert)
def last_page_lacks_a_unit(
    add_leaf: Original[Node], state: State, parent: Node, key: Key, tick: int, priority: int = 0
) -> Node:
    """The last page of a bigram edge lacks one unit, as if its length were counted in tokens."""
    leaf = add_leaf(state, parent, key, tick, priority)
    if state.config.bigram:
        leaf.pages = (*leaf.pages[:-1], leaf.pages[-1][:-1])
    return leaf


@mutant("TREE-3", "A32 sgl#10637")
@around(insert._attach_states)
def nothing_new_becomes_a_leaf(
    attach: Original[None], state: State, end: Node, incoming: insert._Incoming, tick: int
) -> None:
    """An insert without new pages adds an empty node."""
    attach(state, end, incoming, tick)
    if not incoming.adopted[FULL]:
        data = {component: Data() for component in state.config.components}
        empty = Node(state.new_id(), end, end.namespace, (), end.end, data, tick, tick)
        end.children[()] = state.nodes[empty.node_id] = empty


@mutant("TREE-4", "A23 sgl#36696")
@around(tree.cut, tree, insert, host_insert)
def cut_registers_the_lower_part_wrongly(
    cut: Original[Node], state: State, node: Node, at: int
) -> Node:
    """After a cut the lower part is registered under the first page of the upper part."""
    upper = cut(state, node, at)
    upper.children = {upper.pages[0]: node}
    return upper


@mutant("REC-7", "A5 sgl#38482")
@around(tree._cut_data)
def cut_makes_the_lower_part_recent(
    cut_data: Original[Data], node: Node, component: Component, at: int
) -> Data:
    """A cut makes the lower part recent, though the match did not use it."""
    upper = cut_data(node, component, at)
    node.data[component].used = 1 << 40
    return upper


@mutant("TREE-5")
@around(tree.cut, tree, insert, host_insert)
def cut_frees_the_state(cut: Original[Node], state: State, node: Node, at: int) -> Node:
    """A cut frees the mamba state at the end of the node, unless it is held or being copied."""
    data = node.data.get(MAMBA)
    if data and data.device and not (data.lock_refs or data.loading or data.backing):
        slots.drop(state, node, MAMBA, GPU)
    return cut(state, node, at)


@mutant("TREE-5", "A24 sgl#22935")
@around(tree._follow_cut)
def cut_moves_the_state_up(
    follow_cut: Original[None],
    state: State,
    upper: Node,
    lower: Node,
    component: Component,
    data: Data,
) -> None:
    """A cut gives the mamba state to the upper part, at whose end it is not valid."""
    if component is MAMBA:
        upper.data[MAMBA], lower.data[MAMBA] = lower.data[MAMBA], data
        for medium in (GPU, CPU):
            state.owners[MAMBA, medium].pop(lower, None)
    follow_cut(state, upper, lower, component, upper.data[component])


@mutant("TREE-6")
@around(slots.free)
def free_refreshes(free: Original[None], state: State, some: Slots) -> None:
    """A free of slots makes a node recent."""
    free(state, some)
    for node in list(state.nodes.values())[1:2]:
        node.last_access = state.tick()
