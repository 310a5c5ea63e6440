"""Load-back: copies to the device the data that a prefix has on the host only.

Each pool is short on its own. Full pages are evicted only if full slots are missing, not because
the window pool is short (sgl#26302).
"""

from __future__ import annotations

from kvcanon.reference.evict import evict
from kvcanon.reference.lock import held_window_start, hold, release_hold
from kvcanon.reference.slots import free_slot_counts
from kvcanon.reference.state import Node, State
from kvcanon.reference.transfer import enqueue
from kvcanon.reference.tree import PathNode, node_ending_at, path_to, require
from kvcanon.spec.operations import LoadDecision, LoadedBack
from kvcanon.spec.oracle.window import window_start
from kvcanon.spec.transfer import Direction
from kvcanon.spec.types import GPU, MAMBA, SWA, Component, Counts, Key, shortage


def load_back(state: State, key: Key, quota_pages: int | None) -> LoadedBack:
    """Enqueue the load of the data that a cached key has on the host only."""
    walked = require(state, key)
    needed = _needed(state, walked, len(key))
    refusal = _decide(state, needed, quota_pages)
    if refusal is not None:
        return LoadedBack(refusal)
    end = node_ending_at(state, walked, len(key))
    # The path is held before anything is evicted, so that the eviction does not take it.
    held = hold(state, end, key, held_window_start(state, end))
    try:
        evicted = evict(state, shortage(needed, free_slot_counts(state, GPU)))
    except BaseException:
        release_hold(state, held)
        raise
    if shortage(needed, free_slot_counts(state, GPU)):
        release_hold(state, held)
        return LoadedBack(LoadDecision.NO_ROOM, evicted=evicted)
    parts = _parts(state, end)
    transfer = enqueue(state, Direction.LOAD_BACK, parts, held)
    return LoadedBack(LoadDecision.ENQUEUED, transfer.transfer_id, needed, evicted)


def _decide(state: State, needed: Counts, quota_pages: int | None) -> LoadDecision | None:
    """Why nothing is loaded; None if the load goes on."""
    if not needed:
        return LoadDecision.NOTHING_TO_LOAD
    if needed.full < state.config.load_back_threshold_pages and not (needed.swa or needed.mamba):
        return LoadDecision.BELOW_THRESHOLD
    if quota_pages is not None and needed.full > quota_pages:
        return LoadDecision.OVER_QUOTA
    return None


def _needed(state: State, walked: list[PathNode], end_pages: int) -> Counts:
    """Slots that the load of a walked path takes; computed without cutting nodes."""
    needed = dict.fromkeys(Component, 0)
    for node, shared in walked:
        end = node.start + shared
        for component in state.config.components:
            begin = _begin(state, component, end_pages)
            if _on_host_only(node, component) and end > begin:
                ends_inside = component is MAMBA and shared < len(node.pages)
                pages = end - max(node.start, begin)
                needed[component] += 0 if ends_inside else 1 if component is MAMBA else pages
    return Counts.of(needed)


def _parts(state: State, end: Node) -> list[tuple[Node, Component]]:
    """The parts to load, root first; the path must be cut where its window begins."""
    return [
        (node, component)
        for node in path_to(end)
        for component in state.config.components
        if _on_host_only(node, component) and node.end > _begin(state, component, end.end)
    ]


def _begin(state: State, component: Component, end_pages: int) -> int:
    """The first page whose data of a component the end of the prefix needs."""
    if component is SWA:
        return window_start(end_pages, state.config.window_tokens or 1, state.config.page_size)
    return end_pages - 1 if component is MAMBA else 0


def _on_host_only(node: Node, component: Component) -> bool:
    data = node.data[component]
    return data.device is None and data.host is not None
