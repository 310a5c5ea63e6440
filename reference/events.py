"""Events: emits the events of nodes, and computes the page hashes that they carry.

Only *full* data has events, and only once its bytes are there: callers emit at that moment.
"""

from __future__ import annotations

from kvcanon.reference.state import Node, State
from kvcanon.reference.tree import path_to
from kvcanon.spec.events import AllBlocksCleared, BlockRemoved, BlockStored
from kvcanon.spec.hashing import namespace_seed, page_hashes
from kvcanon.spec.types import Medium


def emit_stored(state: State, node: Node, medium: Medium) -> None:
    """Emit a store event for each page of a node, from the first to the last."""
    if not state.config.events:
        return
    hashes = hash_pages(node)
    parent = node.parent.hashes[-1] if node.parent is not None and node.parent.hashes else None
    for page, block_hash in zip(node.pages, hashes, strict=True):
        state.events.append(BlockStored(block_hash, parent, page, medium, node.namespace))
        parent = block_hash


def emit_removed(state: State, node: Node, medium: Medium) -> None:
    """Emit a remove event for each page of a node, from the last to the first."""
    if not state.config.events:
        return
    for block_hash in reversed(hash_pages(node)):
        state.events.append(BlockRemoved(block_hash, medium))


def emit_cleared(state: State) -> None:
    """Emit that nothing is on any medium."""
    if state.config.events:
        state.events.append(AllBlocksCleared())


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
