"""Events: what is said, and the names of the pages that it is said of.

What readers get wrong: only *full* data has events, and only once its bytes are there. Nothing here
decides that; the callers announce when they know.
"""

from __future__ import annotations

from kvcanon.reference.state import Node, State
from kvcanon.reference.tree import path_to
from kvcanon.spec.events import AllBlocksCleared, BlockRemoved, BlockStored
from kvcanon.spec.hashing import namespace_seed, page_hashes
from kvcanon.spec.types import Medium


def emit_stored(state: State, node: Node, medium: Medium) -> None:
    """Tell that each page of a node is now on a medium, in order."""
    if not state.config.events:
        return
    hashes = hash_pages(node)
    parent = node.parent.hashes[-1] if node.parent is not None and node.parent.hashes else None
    for page, name in zip(node.pages, hashes, strict=True):
        state.events.append(BlockStored(name, parent, page, medium, node.namespace))
        parent = name


def emit_removed(state: State, node: Node, medium: Medium) -> None:
    """Tell that each page of a node is on a medium no more, the last page first."""
    if not state.config.events:
        return
    for name in reversed(hash_pages(node)):
        state.events.append(BlockRemoved(name, medium))


def emit_cleared(state: State) -> None:
    """Tell that nothing is anywhere."""
    if state.config.events:
        state.events.append(AllBlocksCleared())


def hash_pages(node: Node) -> tuple[bytes, ...]:
    """The names of a node's pages; names are computed once, for the whole path down to it."""
    if node.hashes is None:
        before = namespace_seed(node.namespace)
        for each in path_to(node):
            if each.hashes is None:
                each.hashes = page_hashes(before, each.pages)
            before = each.hashes[-1]
    assert node.hashes is not None
    return node.hashes
