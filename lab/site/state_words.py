"""A state of a cache in words: the text alternative of its picture, and the notes below it."""

from __future__ import annotations

from collections.abc import Iterator

from kvcanon.spec.snapshot import NodeState, Snapshot
from kvcanon.spec.types import CPU, FULL, GPU, MAMBA, SWA, Component, Medium

COMPONENTS = {FULL: "full", SWA: "swa", MAMBA: "mamba"}
"""The components, as pictures name them."""

MEDIA = {GPU: "GPU", CPU: "CPU"}
"""The media, as pictures name them."""


def row_name(component: Component, medium: Medium) -> str:
    """The name of a component on a medium, as "swa GPU"."""
    return f"{COMPONENTS[component]} {MEDIA[medium]}"


def describe_state(state: Snapshot) -> str:
    """All that the picture of a state shows, in words."""
    nodes = [_node_in_words(state, node) for node in state.below_root()]
    sentences = nodes or ["The tree is empty."]
    for component in state.config.components:
        for medium in (GPU, CPU):
            pool = state.pools.get((component, medium))
            if pool is not None and pool.capacity:
                words = pools_in_words(state, component, medium)
                sentences.append(f"Of the {row_name(component, medium)} slots, {words}.")
    sentences += [f"{note}." for note in receipts_and_copies(state)]
    return " ".join(sentences)


def pools_in_words(state: Snapshot, component: Component, medium: Medium) -> str:
    """How many slots of a pool are free, and how many requests hold."""
    pool = state.pools[component, medium]
    words = f"{len(pool.free)} of {pool.capacity} are free"
    return f"{words}, and requests hold {len(pool.held)}" if pool.held else words


def receipts_and_copies(state: Snapshot) -> Iterator[str]:
    """A line for each open receipt, each copy in flight, and each recency order."""
    for hold in state.holds:
        holder = "" if hold.transfer_id is None else f" of copy {hold.transfer_id}"
        window = hold.window_from_pages
        from_page = "" if window is None else f", its window from page {window}"
        held = ", its state" if hold.state_held else ""
        where = "the root" if hold.node_id == state.root_id else f"node {hold.node_id}"
        yield f"Receipt {hold.receipt_id}{holder} holds {where} and above{from_page}{held}"
    for copy in state.transfers:
        parts = ", ".join(f"{COMPONENTS[part]} of node {node}" for node, part in copy.parts)
        way = f"{MEDIA[copy.direction.source]} → {MEDIA[copy.direction.target]}"
        ended = ", cancelled" if copy.cancelled else ""
        yield f"Copy {copy.transfer_id} in flight, {way}: {parts or 'of nodes that left'}{ended}"
    for (component, medium), order in state.recency.items():
        if len(order) > 1:
            nodes = ", ".join(map(str, order))
            yield f"{row_name(component, medium)}, least recent first: nodes {nodes}"


def _node_in_words(state: Snapshot, node: NodeState) -> str:
    start = state.starts[node.node_id] if state.is_reachable(node.node_id) else 0
    if not state.is_reachable(node.node_id):
        where = "which no path leads to"
    elif len(node.pages) == 1:
        where = f"page {start}"
    else:
        where = f"pages {start} to {start + len(node.pages) - 1}"
    parent = "the root" if node.parent_id == state.root_id else f"node {node.parent_id}"
    data = [_data_in_words(node, component) for component in state.config.components]
    return f"Node {node.node_id}, {where}, below {parent}: {'; '.join(data)}."


def _data_in_words(node: NodeState, component: Component) -> str:
    data, name = node[component], COMPONENTS[component]
    there = []
    for medium in (GPU, CPU):
        slots = data.slots(medium)
        if slots is not None:
            coming = "" if data.pending(medium) is None else ", still being copied"
            there.append(f"{MEDIA[medium]} slots {' '.join(map(str, slots))}{coming}")
    locks = f", with {data.lock_refs} lock refs" if data.lock_refs else ""
    return f"{name} data {' and '.join(there) if there else 'nowhere'}{locks}"
