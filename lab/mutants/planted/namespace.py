"""Faults of namespaces: pages shared between namespaces, where equal tokens are not equal pages."""

from __future__ import annotations

from attrs import evolve

from kvcanon.lab.mutants.planted.entry import mutant
from kvcanon.lab.variants.override import Overrides
from kvcanon.lab.variants.wrapped_rules import Original, around
from kvcanon.reference import events, host_insert, insert, tree
from kvcanon.reference.state import Node, State
from kvcanon.spec.hashing import namespace_seed
from kvcanon.spec.types import DEFAULT_NAMESPACE


@mutant("NS-3", "C1 sgl#24568")
def names_ignore_the_namespace(patch: Overrides) -> None:
    """Page hashes do not depend on the namespace."""
    patch.setattr(events, "namespace_seed", lambda _: namespace_seed(DEFAULT_NAMESPACE))


@mutant("NS-3", "B20 sgl#37058")
def names_ignore_the_salt(patch: Overrides) -> None:
    """Page hashes do not depend on the salt."""
    patch.setattr(
        events, "namespace_seed", lambda named: namespace_seed(evolve(named, cache_salt=None))
    )


@mutant("NS-3", "sgl#24718", founding=True)
@around(tree.cut, tree, insert, host_insert)
def cut_leaves_all_names_above(cut: Original[Node], state: State, node: Node, at: int) -> Node:
    """After a cut the upper part also has the page hashes of the lower part."""
    names = node.hashes
    upper = cut(state, node, at)
    upper.hashes = names
    return upper


@mutant("NS-3", "D15 lmc#1842")
def names_differ_between_processes(patch: Overrides) -> None:
    """The seed of the page hashes has a number in it that differs between processes."""
    patch.setattr(events, "namespace_seed", lambda named: b"1" + namespace_seed(named)[1:])
