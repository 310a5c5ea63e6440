"""Helpers for tests of laws: check a law, and make the events for a node of a state."""

from __future__ import annotations

import kvcanon.spec.laws  # noqa: F401  Importing the laws is what registers them.
from kvcanon.spec.events import BlockRemoved, BlockStored, Event, fold_events
from kvcanon.spec.hashing import namespace_seed, page_hashes
from kvcanon.spec.law import LAWS, Stream, Subject
from kvcanon.spec.operations import Done, Operation, Outcome
from kvcanon.spec.snapshot import NodeState, Snapshot
from kvcanon.spec.types import GPU, Medium, NodeId
from kvcanon.spec.views import Step


def ask(law_id: str, subject: Subject) -> list[str]:
    """The violations of a law by a subject; empty if the law holds."""
    return list(LAWS[law_id].check(subject))


def names_of(state: Snapshot, node_id: NodeId) -> tuple[bytes, ...]:
    """The page hashes of a node, computed from its path."""
    node: NodeState | None = state.nodes[node_id]
    path: list[NodeState] = []
    while node is not None and node.parent_id is not None:
        path.append(node)
        node = state.parent(node)
    pages = [page for each in reversed(path) for page in each.pages]
    chain = page_hashes(namespace_seed(path[0].namespace), pages)
    return chain[len(chain) - len(path[0].pages) :]


def stores(state: Snapshot, node_id: NodeId, medium: Medium = GPU) -> tuple[BlockStored, ...]:
    """The right store events of a node's pages."""
    node = state.nodes[node_id]
    names = names_of(state, node_id)
    above = names_of(state, node.parent_id) if node.parent_id else ()
    parents = (above[-1] if above else None, *names[:-1])
    return tuple(
        BlockStored(name, parent, page, medium, node.namespace)
        for name, parent, page in zip(names, parents, node.pages, strict=True)
    )


def removes(state: Snapshot, node_id: NodeId, medium: Medium = GPU) -> tuple[BlockRemoved, ...]:
    """The right remove events of a node's pages, the last page first."""
    return tuple(BlockRemoved(name, medium) for name in reversed(names_of(state, node_id)))


def step(
    before: Snapshot,
    operation: Operation,
    after: Snapshot,
    outcome: Outcome | None = None,
    events: tuple[Event, ...] = (),
) -> Step:
    """A step; its outcome is Done if the law does not read it."""
    return Step(before, operation, outcome or Done(), after, events)


def stream(state: Snapshot, *events: Event, start: tuple[Event, ...] = ()) -> Stream:
    """A stream with these events after those in `start`, ending in a state."""
    return Stream(fold_events(start), events, state)
