"""Evidence: how often each law was exercised.

A law can be checked a thousand times and never be exercised: it says something about a cache only
where its premise is met (`spec.law`), so that a faulty cache could have broken it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any

from attrs import frozen

from kvcanon.spec.difference import Difference
from kvcanon.spec.law import Kind, Law, Need, NodeKind, NodePremise, Premise
from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.types import NodeId


@frozen(eq=False)
class Shared:
    """A premise with all its laws, so that it is evaluated once for all of them."""

    premise: Premise[Any]
    law_ids: tuple[str, ...]
    is_of_stores: bool = False
    """Whether its laws are about the store below the host."""


def by_premise(laws: Iterable[Law], kind: Kind) -> tuple[Shared, ...]:
    """Group the laws of one kind of subject by their premises."""
    sharing: dict[int, list[Law]] = {}
    for law in laws:
        if law.kind is kind:
            sharing.setdefault(id(law.premise), []).append(law)
    return tuple(
        Shared(
            some[0].premise,
            tuple(law.law_id for law in some),
            all(Need.STORE in law.needs for law in some),
        )
        for some in sharing.values()
    )


class Evidence:
    """Counts, for each law, the states, steps and streams that met its premise."""

    def __init__(self, laws: Collection[Law]) -> None:
        self._law_ids = tuple(law.law_id for law in laws)
        self._times_met: Counter[tuple[Shared, ...]] = Counter()
        """How often premises were met together: the same ones are, step after step."""
        self._states = MetByStates(by_premise(laws, Kind.STATE))

    @property
    def laws_exercised(self) -> dict[str, int]:
        """How often the premise of each law was met."""
        exercised = dict.fromkeys(self._law_ids, 0)
        for met, times in self._times_met.items():
            for shared in met:
                for law_id in shared.law_ids:
                    exercised[law_id] += times
        return exercised

    def see(self, met: Iterable[Shared], difference: Difference) -> None:
        """Count premises that a step or its stream met, and those that the state after it meets."""
        self._times_met[tuple(met)] += 1
        self._times_met[self._states.after(difference)] += 1


class MetByStates:
    """Which premises a state meets, kept up to date from step to step."""

    def __init__(self, premises: Iterable[Shared]) -> None:
        found = [(shared, _finders(shared.premise)) for shared in premises]
        self._of_states = tuple([shared for shared, finders in found if not finders])
        self._of_nodes = tuple([(shared, finders) for shared, finders in found if finders])
        self._last: Snapshot | None = None
        self._met: tuple[Shared, ...] = ()
        """The premises that `_last` meets."""
        self._met_by_nodes: tuple[Shared, ...] = ()
        """Those of them that are of nodes."""

    def after(self, difference: Difference) -> tuple[Shared, ...]:
        """The premises that the state after a step meets."""
        before, after = difference.before, difference.after
        if after is self._last:
            return self._met
        goes_on = before is self._last
        if not goes_on or difference.rebuilt:
            self._met_by_nodes = self._find(difference, goes_on=goes_on)
        met = [shared for shared in self._of_states if shared.premise.is_met(after)]
        self._last, self._met = after, (*self._met_by_nodes, *met)
        return self._met

    def _find(self, difference: Difference, *, goes_on: bool) -> tuple[Shared, ...]:
        """The premises of nodes that the state after a step meets."""
        met: list[Shared] = []
        for shared, finders in self._of_nodes:
            is_met = False
            for each in finders:
                if goes_on:
                    each.update(difference)
                else:
                    each.take(difference.after)
                is_met |= each.are_enough
            if is_met:
                met.append(shared)
        return tuple(met)


def _finders(premise: Premise[Snapshot]) -> tuple[_NodesFound, ...]:
    """What finds the nodes of each kind that a premise is about; nothing if it is of no nodes."""
    if not isinstance(premise, NodePremise):
        return ()
    return tuple(_NodesFound(kind, premise.enough) for kind in premise.kinds)


class _NodesFound:
    """Nodes of one kind in a state: as many as are enough, or else all that there are."""

    def __init__(self, kind: NodeKind, enough: int) -> None:
        self._kind, self._enough = kind, enough
        self._ids: set[NodeId] = set()
        self.are_enough = False

    def take(self, state: Snapshot) -> None:
        """Look at a whole state."""
        self._ids.clear()
        self._look(state, state.nodes)

    def update(self, difference: Difference) -> None:
        """Look at what a step changed, from the last state that was looked at."""
        family, after = difference.family, difference.after
        if self.are_enough and self._ids.isdisjoint(family):
            return
        nodes, kind = after.nodes, self._kind
        for node_id in self._ids.intersection(family):
            if node_id not in nodes or not kind(after, nodes[node_id]):
                self._ids.remove(node_id)
        if len(self._ids) < self._enough:
            self._look(after, nodes if self.are_enough else family)

    def _look(self, state: Snapshot, at: Iterable[NodeId]) -> None:
        """Look for more nodes; there are no others than at these."""
        nodes, ids = state.nodes, self._ids
        for node_id in at:
            if len(ids) >= self._enough:
                break
            if node_id in nodes and node_id not in ids and self._kind(state, nodes[node_id]):
                ids.add(node_id)
        self.are_enough = len(ids) >= self._enough
