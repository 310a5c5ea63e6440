"""Faults of what may be where: below what a page may hang on a device or on the host.

What readers get wrong: that a page which is there is a page that can be reached: it can be read
only if what is above it can be.
"""

from __future__ import annotations

from kvcanon.conformance.overriding import Overrides
from kvcanon.reference import (
    host_insert,
    insert,
    match,
    tree,
)
from kvcanon.reference.state import Node, State
from kvcanon.spec.types import (
    FULL,
)
from meta.mutants.entry import mutant


@mutant("RES-4", "B5 sgl#31902")
def fetched_pages_hang_on_anything(patch: Overrides) -> None:
    """Fetched pages are attached below a node that has no host copy."""
    refill = host_insert._refill

    def attaching(state: State, node: Node, fetched: host_insert._Fetched) -> Node | None:
        refilled = refill(state, node, fetched)
        return node if refilled is None and node.data[FULL].host is None else refilled

    patch.setattr(host_insert, "_refill", attaching)


@mutant("RES-7", "B17 sgl#36647")
def hits_count_twice(patch: Overrides) -> None:
    """An insert counts two hits at each node."""
    touch = match.touch

    def counting(state: State, end: Node, tick: int) -> None:
        touch(state, end, tick)
        for node in tree.upwards(end):
            node.hit_count += 1

    patch.setattr(insert, "touch", counting)
