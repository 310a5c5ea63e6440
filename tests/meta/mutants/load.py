"""Faults of loading back: what it makes room for, what it holds, and what it may refuse.

What readers get wrong: that a load is only an insert: its own path is in danger while room is
made.
"""

from __future__ import annotations

from itertools import cycle

from kvcanon.conformance.overriding import Overrides
from kvcanon.reference import (
    evict,
    load,
    lock,
    slots,
    transfer,
)
from kvcanon.reference.state import Hold, Node, State, Transfer
from kvcanon.spec.transfer import Direction
from kvcanon.spec.types import (
    CPU,
    Component,
    Counts,
)
from meta.mutants.entry import mutant


@mutant("LOAD-1", "A4 sgl#26302")
def short_of_either_is_short_of_full(patch: Overrides) -> None:
    """The smaller of two free rooms is taken for the room for full data."""
    turns = cycle((True, False))

    def confused(needed: Counts, free: Counts) -> Counts:
        """The first of the two questions of a load, what to evict, gets a wrong answer."""
        rightly = slots.shortage(needed, free)
        if not next(turns) or not free.swa:
            return rightly
        return Counts(max(0, needed.full - min(free.full, free.swa)), rightly.swa, rightly.mamba)

    patch.setattr(load, "shortage", confused)


@mutant("LOAD-2", "D7 vllm#39702")
def load_evicts_its_own_path(patch: Overrides) -> None:
    """The path of a load is not held while room is made for it, and room is made amply."""

    def unheld(state: State, counts: Counts) -> Counts:
        held = next(reversed(state.holds.values()))
        lock._count(held, -1)
        freed = evict.evict(state, Counts(counts.full and counts.full + held.node.end, counts.swa))
        lock._count(held, 1)
        return freed

    patch.setattr(load, "evict", unheld)


@mutant("LOAD-5", "B1 sgl#27444")
def load_gives_up_the_host_copy(patch: Overrides) -> None:
    """The host slots that a load reads come free when it is enqueued."""
    enqueue = transfer.enqueue

    def moving(
        state: State, direction: Direction, parts: list[tuple[Node, Component]], held: Hold
    ) -> Transfer:
        enqueued = enqueue(state, direction, parts, held)
        for node, component in parts:
            slots.drop(state, node, component, CPU)
        return enqueued

    patch.setattr(load, "enqueue", moving)
