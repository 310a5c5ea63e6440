"""Names in a state: which page of which node a name stands for; shared by several areas.

A cache may or may not have computed the names of its pages; a law must not care. So names are asked
here, and are the cache's own where it has them (that those are right is NS-3).

What readers get wrong: the name of a page before a node is not in the node. It is the name of its
parent's last page, and where there is none the page is the first of its namespace.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kvcanon.spec.hashing import namespace_seed, page_hashes
from kvcanon.spec.snapshot import NodeState, Snapshot
from kvcanon.spec.types import NodeId
from kvcanon.spec.views import PageNumber, PageRow, Step


class Place(NamedTuple):
    """A page of a state: its node, where it stands in it, its name and the one before it."""

    node: NodeState
    at: int
    """Pages of the node before this one."""
    name: bytes
    parent: bytes | None
    """Name of the page before it; None where it is the first of its namespace."""

    def describe(self, state: Snapshot) -> str:
        """The page in words, as "tokens 6..8 (node 7)"."""
        size, page = state.config.page_size, state.starts[self.node.node_id] + self.at
        return f"tokens {page * size}..{(page + 1) * size} (node {self.node.node_id})"


class PageNames:
    """The names of a state's pages, computed at most once for each node."""

    def __init__(self, state: Snapshot) -> None:
        self._state = state
        self._names: dict[NodeId, tuple[bytes, ...]] = {}

    def of(self, node: NodeState) -> tuple[bytes, ...]:
        """The name of each page of a node."""
        unnamed: list[NodeState] = []
        names: tuple[bytes, ...] | None = None
        for up in self._state.upwards(node):
            names = self._known(up)
            if names is not None:
                break
            unnamed.append(up)
        for down in reversed(unnamed):
            before = names[-1] if names else namespace_seed(down.namespace)
            names = self._names[down.node_id] = page_hashes(before, down.pages)
        return names or ()

    def before(self, node: NodeState) -> bytes | None:
        """The name of the page before a node; None where it begins its namespace."""
        parent = self._state.parent(node)
        names = self.of(parent) if parent is not None else ()
        return names[-1] if names else None

    def place(self, node: NodeState, index: int) -> Place:
        """The place of a page of a node."""
        names = self.of(node)
        return Place(node, index, names[index], names[index - 1] if index else self.before(node))

    def row_place(self, row: PageRow) -> Place:
        """The place of a page that one of a step's tables speaks of."""
        node = self._state.nodes[row.node_id]
        return self.place(node, row.depth - self._state.starts[row.node_id])

    def _known(self, node: NodeState) -> tuple[bytes, ...] | None:
        if node.hashes is not None and len(node.hashes) == len(node.pages):
            return node.hashes
        return self._names.get(node.node_id)


class NamedPages:
    """The pages of some nodes of a state, found by name."""

    def __init__(self, state: Snapshot, nodes: Iterable[NodeState]) -> None:
        self._names = PageNames(state)
        self._found = {
            name: (node, index) for node in nodes for index, name in enumerate(self._names.of(node))
        }

    def get(self, name: bytes) -> Place | None:
        """The place of the page with a name; None where no page of these nodes has it."""
        found = self._found.get(name)
        return None if found is None else self._names.place(*found)


def changed_pages(step: Step) -> tuple[NamedPages, NamedPages]:
    """The pages of all nodes that are not the same before and after a step, by name."""
    before, after = step.changed
    return _pages_of(step.before, before), _pages_of(step.after, after)


def _pages_of(state: Snapshot, rows: Mapping[PageNumber, PageRow]) -> NamedPages:
    node_ids = dict.fromkeys(row.node_id for row in rows.values())
    return NamedPages(state, [state.nodes[node_id] for node_id in node_ids])


def short(name: bytes | None) -> str:
    """A name as it is written in sentences: its first eight digits."""
    return "none" if name is None else name.hex()[:8]


def everywhere(state: Snapshot) -> NamedPages:
    """All pages of a state, by name: for sentences, since it takes as long as the state is big."""
    return NamedPages(state, state.below_root())
