"""The census: how many nodes of each kind a state has, updated step by step."""

from __future__ import annotations

from collections.abc import Iterable

from kvcanon.spec.difference import Difference
from kvcanon.spec.law import NodeKind
from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.types import NodeId


class Census:
    """Counts the nodes of a state by kind."""

    def __init__(self, kinds: Iterable[NodeKind]) -> None:
        self.counts: dict[NodeKind, int] = dict.fromkeys(kinds, 0)

    def take(self, state: Snapshot) -> None:
        """Count the nodes of a state."""
        self.counts = dict.fromkeys(self.counts, 0)
        self._add(state, state.nodes, 1)

    def update(self, difference: Difference) -> None:
        """Update the counts by one step, which must start from the counted state."""
        self._add(difference.before, difference.family, -1)
        self._add(difference.after, difference.family, 1)

    def _add(self, state: Snapshot, ids: Iterable[NodeId], times: int) -> None:
        nodes = [state.nodes[node_id] for node_id in ids if node_id in state.nodes]
        for kind in self.counts:
            self.counts[kind] += times * sum(kind(state, node) for node in nodes)
