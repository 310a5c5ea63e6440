"""Events: emits the events of nodes, and computes the page hashes that they carry.

Only *full* data has events, and only once its bytes are there: callers emit at that moment.

At most `CacheConfig.max_pending_events` wait. When more would wait, the log is given up, and what
waits is then a description of the tree: all pages cleared, and a store of each resident page.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvcanon.reference.state import Node, State
from kvcanon.reference.tree import path_to
from kvcanon.spec.events import AllBlocksCleared, BlockRemoved, BlockStored, Event
from kvcanon.spec.hashing import namespace_seed, page_hashes
from kvcanon.spec.types import CPU, FULL, GPU, Medium


def emit_stored(state: State, node: Node, medium: Medium) -> None:
    """Emit a store event for each page of a node, from the first to the last."""
    if state.config.events:
        _emit(state, stores_of(node, medium))


def emit_removed(state: State, node: Node, medium: Medium) -> None:
    """Emit a remove event for each page of a node, from the last to the first."""
    if state.config.events:
        _emit(state, [BlockRemoved(each, medium) for each in reversed(hash_pages(node))])


def emit_cleared(state: State) -> None:
    """Emit that nothing is on any medium; where the log is full, it begins anew with that."""
    if not state.config.events:
        return
    _emit(state, [AllBlocksCleared()])
    if state.events_given_up:
        state.events, state.events_given_up = [AllBlocksCleared()], False


def emit_in_store(state: State, event: BlockStored) -> None:
    """Emit that a page is in the store below the host."""
    if state.config.events:
        _emit(state, [event])


def emit_not_in_store(state: State, event: BlockStored) -> None:
    """Emit that the page of an earlier event is not in the store any more."""
    if state.config.events:
        _emit(state, [BlockRemoved(event.block_hash, event.medium)])


def pending_events(state: State) -> tuple[Event, ...]:
    """The events that wait: those of the log, or a description of the tree."""
    if state.events_given_up:
        in_store = () if state.tier is None else state.tier.stored.values()
        return (AllBlocksCleared(), *_stores_below(state.root), *in_store)
    return tuple(state.events)


def forget_events(state: State) -> None:
    """Begin a new log, once the events that waited were taken."""
    state.events, state.events_given_up = [], False


def stores_of(node: Node, medium: Medium) -> list[Event]:
    """A store event for each page of a node, from the first to the last."""
    events: list[Event] = []
    hashes = hash_pages(node)
    assert node.parent is not None  # The root has no pages.
    parent = node.parent.hashes[-1] if node.parent.hashes else None
    for page, block_hash in zip(node.pages, hashes, strict=True):
        events.append(BlockStored(block_hash, parent, page, medium, node.namespace))
        parent = block_hash
    return events


def _emit(state: State, events: list[Event]) -> None:
    room = state.config.max_pending_events - len(state.events)
    if state.events_given_up or len(events) > room:
        state.events, state.events_given_up = [], True
    else:
        state.events += events


def _stores_below(root: Node) -> Iterator[Event]:
    """A store of each resident page: those of a node before those of its children."""
    waiting = [*reversed(root.children.values())]
    while waiting:
        node = waiting.pop()
        for medium in (GPU, CPU):
            if _is_announced(node, medium):
                yield from stores_of(node, medium)
        waiting += reversed(node.children.values())


def _is_announced(node: Node, medium: Medium) -> bool:
    """Whether the stores of a node were emitted: its bytes are there."""
    full = node.data[FULL]
    filled_by = full.loading if medium is GPU else full.backing
    return full.slots(medium) is not None and filled_by is None


def hash_pages(node: Node) -> tuple[bytes, ...]:
    """The page hashes of a node, computed once for the whole path down to it."""
    if node.hashes is None:
        before = namespace_seed(node.namespace)
        for each in path_to(node):
            if each.hashes is None:
                each.hashes = page_hashes(before, each.pages)
            before = each.hashes[-1]
    assert node.hashes is not None
    return node.hashes
