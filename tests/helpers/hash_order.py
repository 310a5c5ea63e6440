"""Caches that choose by what differs between processes: hashes of strings, and addresses.

Each declares an eviction of its own, so that no law of policy judges what it chooses.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import evolve

from kvcanon.conformance.protocol.adapter import Adapter
from kvcanon.lab.variants.override import Overrides, overriding
from kvcanon.lab.variants.wrapped_rules import wrap
from kvcanon.reference import cache, victims
from kvcanon.reference.snapshot import take_snapshot
from kvcanon.reference.state import Node, State
from kvcanon.spec.config import CANON, Choosing

OWN = evolve(CANON, eviction=Choosing.OWN)


def _ranking(name: str, rank: Callable[[State, Node], int]) -> Adapter:
    """The plain cache, which evicts the leaf with the smallest policy key."""

    def plant(overrides: Overrides) -> None:
        wrap(overrides, victims, victims.rank, lambda _, state, node: (rank(state, node), 0))
        wrap(overrides, cache, take_snapshot, lambda take, state: evolve(take(state), profile=OWN))

    return Adapter(name, overriding(plant), profile=OWN)


def _in_a_set_of_strings(state: State, node: Node) -> int:
    names = {str(each.pages[0]) for each in state.nodes.values() if each.pages}
    return [*names].index(str(node.pages[0]))


def _in_a_set_of_objects(state: State, node: Node) -> int:
    everyone = set(state.nodes.values())
    return [*everyone].index(node)


STRINGS = _ranking("hash_order:STRINGS", _in_a_set_of_strings)
"""Evicts in the order of a set of strings."""
NAMESPACES = _ranking("hash_order:NAMESPACES", lambda _, node: hash(str(node.namespace)) % 64)
"""Evicts the namespaces in the order of their hashes."""
OBJECTS = _ranking("hash_order:OBJECTS", _in_a_set_of_objects)
"""Evicts in the order of a set of objects, which goes by their addresses."""
