"""TREE: the shape of the tree.

A compressed prefix tree: an edge carries whole pages, and a node is the end of its edge.

What readers get wrong: where nodes are cut means nothing. A cut, and the joining of a node with its
only child, may happen at any time and must be invisible in everything but the nodes themselves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from kvcanon.spec.law import Kind, law
from kvcanon.spec.snapshot import Snapshot


@law("TREE-1", Kind.STATE)
def one_root(state: Snapshot) -> Iterator[str]:
    """There is one root, without pages and data, and every node hangs on it.

    Why: a node that no walk reaches is memory that nobody can use or free.

    Seen broken: not seen
    """
    roots = [node for node in state.nodes.values() if node.parent_id is None]
    if [node.node_id for node in roots] != [state.root_id]:
        yield f"nodes without a parent are {[n.node_id for n in roots]}, the root is {state.root_id}"
        return
    if state.root.pages or any(data.anywhere for data in state.root.data.values()):
        yield "the root has pages or data of its own"
    for node in state.nodes.values():
        if node.node_id not in state.starts:
            yield f"node {node.node_id} is in the tree but no path from the root leads to it"


@law("TREE-2", Kind.STATE)
def links_agree(state: Snapshot) -> Iterator[str]:
    """A node is a child of its parent, once, and the parent of each of its children.

    Why: a walk down finds what a walk up cannot lock or free, or the other way round.

    Seen broken: https://github.com/sgl-project/sglang/issues/36696
    """
    for node in state.nodes.values():
        parent = state.nodes.get(node.parent_id) if node.parent_id is not None else None
        if node.parent_id is not None and parent is None:
            yield f"{state.describe(node)} names parent {node.parent_id}, which is not in the tree"
        elif parent is not None and node.node_id not in parent.child_ids:
            yield f"{state.describe(node)} is not among the children of its parent {node.parent_id}"
        for child_id, times in Counter(node.child_ids).items():
            child = state.nodes.get(child_id)
            if child is None or child.parent_id != node.node_id or times > 1:
                yield (
                    f"{state.describe(node)} lists child {child_id} {times} times, whose parent is "
                    f"{child.parent_id if child else 'not in the tree'}"
                )
