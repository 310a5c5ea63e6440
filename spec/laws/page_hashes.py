"""Page hashes in a state: which page of which node a hash belongs to; shared by several areas.

A cache may compute hashes lazily, and laws must not depend on that. `PageHashes` takes a node's own
hashes where the cache has computed them (NS-3 checks that they are right) and computes the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kvcanon.spec.hashing import namespace_seed, page_hashes
from kvcanon.spec.snapshot import NodeState, Snapshot
from kvcanon.spec.views import PageNumber, PageRow, Step


class Place(NamedTuple):
    """A page of a state, with its hash and that of the page before it."""

    node: NodeState
    at: int
    """Pages of the node before this one."""
    page_hash: bytes
    parent: bytes | None
    """Hash of the page before it; None for the first page of its namespace."""

    def describe(self, state: Snapshot) -> str:
        """The page in words, as "tokens 6..8 (node 7)"."""
        size, page = state.config.page_size, state.starts[self.node.node_id] + self.at
        return f"tokens {page * size}..{(page + 1) * size} (node {self.node.node_id})"


class PageHashes:
    """The hashes of a state's pages, computed at most once for each node of the state."""

    def __init__(self, state: Snapshot) -> None:
        self._state = state

    def of(self, node: NodeState) -> tuple[bytes, ...]:
        """The hash of each page of a node."""
        shown = self._known(node)
        if shown is not None:
            return shown
        unhashed: list[NodeState] = []
        hashes: tuple[bytes, ...] | None = None
        for up in self._state.upwards[node.node_id]:
            hashes = self._known(up)
            if hashes is not None:
                break
            unhashed.append(up)
        for down in reversed(unhashed):
            before = hashes[-1] if hashes else namespace_seed(down.namespace)
            hashes = self._state.hashes[down.node_id] = page_hashes(before, down.pages)
        return hashes or ()

    def before(self, node: NodeState) -> bytes | None:
        """The hash of the page before a node; None for a node that begins its namespace."""
        parent = self._state.parent(node)
        hashes = self.of(parent) if parent is not None else ()
        return hashes[-1] if hashes else None

    def place(self, node: NodeState, index: int) -> Place:
        """The place of a page of a node."""
        hashes = self.of(node)
        return Place(node, index, hashes[index], hashes[index - 1] if index else self.before(node))

    def row_place(self, row: PageRow) -> Place:
        """The place of a page that is given as a row of a step's tables."""
        node = self._state.nodes[row.node_id]
        return self.place(node, row.depth - self._state.starts[row.node_id])

    def _known(self, node: NodeState) -> tuple[bytes, ...] | None:
        if node.hashes is not None and len(node.hashes) == len(node.pages):
            return node.hashes
        return self._state.hashes.get(node.node_id)


class PagesByHash:
    """The pages of some nodes of a state, found by hash."""

    def __init__(self, state: Snapshot, nodes: Iterable[NodeState]) -> None:
        self._hashes = PageHashes(state)
        self._found = {
            page_hash: (node, index)
            for node in nodes
            for index, page_hash in enumerate(self._hashes.of(node))
        }

    def get(self, page_hash: bytes) -> Place | None:
        """The page with a hash; None where none of these nodes has it."""
        found = self._found.get(page_hash)
        return None if found is None else self._hashes.place(*found)


def changed_pages(step: Step) -> tuple[PagesByHash, PagesByHash]:
    """The pages of all nodes that differ before and after a step, by hash."""
    before, after = step.changed
    return _pages_of(step.before, before), _pages_of(step.after, after)


def _pages_of(state: Snapshot, rows: Mapping[PageNumber, PageRow]) -> PagesByHash:
    node_ids = dict.fromkeys(row.node_id for row in rows.values())
    return PagesByHash(state, [state.nodes[node_id] for node_id in node_ids])


def short(page_hash: bytes | None) -> str:
    """The first eight hex digits of a hash, for messages."""
    return "none" if page_hash is None else page_hash.hex()[:8]


def everywhere(state: Snapshot) -> PagesByHash:
    """All pages of a state, by hash. For messages only: it takes time in a large state."""
    return PagesByHash(state, state.below_root())
