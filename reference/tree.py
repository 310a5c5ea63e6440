"""The radix tree: walks down a key, and cuts, adds and removes nodes.

A cut makes a new node *above* and keeps the old node below, so that a hold or a transfer on the old
node still ends where it ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kvcanon.reference.state import Data, Edge, Node, State
from kvcanon.spec.errors import PrefixNotCached
from kvcanon.spec.oracle.pages import split
from kvcanon.spec.oracle.prefix import shared_pages
from kvcanon.spec.types import CPU, GPU, MAMBA, Component, Key, Namespace, Page


class PathNode(NamedTuple):
    """A node on a key's path, and how many of its pages the key shares."""

    node: Node
    shared_pages: int


def walk(state: State, key: Key) -> list[PathNode]:
    """The nodes that a key shares pages with, from below the root down.

    Pages are compared by their tokens. The key may share only a part of the last node.
    """
    walked: list[PathNode] = []
    node, at = state.root, 0
    while at < len(key.pages):
        child = node.children.get(edge(node, key.namespace, key.pages[at]))
        if child is None:
            break
        shared = shared_pages(child.pages, key.pages[at : at + len(child.pages)])
        walked.append(PathNode(child, shared))
        if shared < len(child.pages):
            break
        node, at = child, child.end
    return walked


def walked_pages(walked: list[PathNode]) -> int:
    """How many pages of the key a walk found."""
    return walked[-1].node.start + walked[-1].shared_pages if walked else 0


def require(state: State, key: Key) -> list[PathNode]:
    """The path of a key, all of which must be in the tree. Raises: PrefixNotCached."""
    walked = walk(state, key)
    if walked_pages(walked) < len(key):
        raise PrefixNotCached(len(key), walked_pages(walked))
    return walked


def edge(parent: Node, namespace: Namespace, page: Page) -> Edge:
    """The key of a child in `parent.children`: below the root it has the namespace."""
    return (namespace, page) if parent.parent is None else page


def upwards(node: Node) -> Iterator[Node]:
    """A node and its ancestors, without the root."""
    while node.parent is not None:
        yield node
        node = node.parent


def path_to(node: Node) -> list[Node]:
    """The nodes from below the root down to this one."""
    return list(upwards(node))[::-1]


def node_ending_at(state: State, walked: list[PathNode], end_pages: int) -> Node:
    """The node of a walked path that ends at a page, cut there if needed; the root for page 0."""
    for node, _ in walked:
        if node.start < end_pages <= node.end:
            return node if node.end == end_pages else cut(state, node, end_pages - node.start)
    return state.root


def cut_path_at(state: State, end: Node, at_page: int) -> None:
    """Cut the path that ends with `end` so that a node begins at `at_page`."""
    for node in upwards(end):
        if node.start < at_page < node.end:
            cut(state, node, at_page - node.start)
            return


def cut(state: State, node: Node, at: int) -> Node:
    """Cut a node before its page `at`; returns the new node above, which has the first pages.

    Both parts keep hits, priority, ticks, locks, and their share of slots and of copies in flight.
    A mamba state, with its locks, stays with the lower part, at whose end it is.
    """
    assert node.parent is not None
    assert 0 < at < len(node.pages)
    upper_pages, lower_pages = split(node.pages, at)
    upper = Node(
        node_id=state.new_id(),
        parent=node.parent,
        namespace=node.namespace,
        pages=upper_pages,
        start=node.start,
        data={component: _cut_data(node, component, at) for component in node.data},
        created=node.created,
        last_access=node.last_access,
        hit_count=node.hit_count,
        priority=node.priority,
    )
    if node.hashes is not None:
        upper.hashes, node.hashes = split(node.hashes, at)
    node.parent.children[edge(node.parent, node.namespace, upper_pages[0])] = upper
    node.parent, node.pages, node.start = upper, lower_pages, node.start + at
    upper.children[lower_pages[0]] = node
    state.nodes[upper.node_id] = upper
    for component, data in upper.data.items():
        _follow_cut(state, upper, node, component, data)
    return upper


def add_leaf(state: State, parent: Node, key: Key, tick: int, priority: int = 0) -> Node:
    """Add a node, without data yet, for the pages of a key below `parent`."""
    leaf = Node(
        node_id=state.new_id(),
        parent=parent,
        namespace=key.namespace,
        pages=key.pages[parent.end :],
        start=parent.end,
        data={component: Data() for component in state.config.components},
        created=tick,
        last_access=tick,
        priority=priority,
    )
    parent.children[edge(parent, key.namespace, leaf.pages[0])] = leaf
    state.nodes[leaf.node_id] = leaf
    return leaf


def remove_leaf(state: State, node: Node) -> None:
    """Remove a childless node, which owns no slots, from the tree."""
    assert node.parent is not None
    assert not node.children
    assert not node.locked
    del node.parent.children[edge(node.parent, node.namespace, node.pages[0])]
    del state.nodes[node.node_id]


def _cut_data(node: Node, component: Component, at: int) -> Data:
    """Split one component's data; returns the upper part, and the node keeps the lower."""
    data = node.data[component]
    if component is MAMBA:
        return Data()
    upper = Data(
        lock_refs=data.lock_refs, used=data.used, loading=data.loading, backing=data.backing
    )
    if data.device is not None:
        upper.device, data.device = split(data.device, at)
    if data.host is not None:
        upper.host, data.host = split(data.host, at)
    return upper


def _follow_cut(state: State, upper: Node, lower: Node, component: Component, data: Data) -> None:
    """Add the new node wherever the old node is: to the owners and to copies in flight."""
    for medium in (GPU, CPU):
        if data.slots(medium) is not None:
            state.owners[component, medium][upper] = None
    for transfer in (data.loading, data.backing):
        if transfer is not None:
            at = transfer.parts.index((lower, component))
            transfer.parts.insert(at, (upper, component))
