"""Faults of what a cache asks of its engine, and of the other ranks."""

from __future__ import annotations

from attrs import evolve

from kvcanon.lab.mutants.planted.entry import mutant
from kvcanon.lab.variants.wrapped_rules import Original, around
from kvcanon.reference import cache, match, transfer
from kvcanon.reference.state import State, Transfer
from kvcanon.spec.operations import Matched
from kvcanon.spec.transfer import Completion, Direction, TransferOrder, TransferStatus
from kvcanon.spec.types import Key, TransferId


@mutant("ASYNC-12")
@around(transfer.submit)
def order_lists_are_swapped(submit: Original[None], state: State, copying: Transfer) -> None:
    """An order lists its sources as targets, and its targets as sources."""
    engine = state.engine

    class Swapping:
        """Passes an order on with its lists swapped."""

        def submit(self, order: TransferOrder) -> None:
            """Submit the order."""
            copies = [evolve(c, sources=c.targets, targets=c.sources) for c in order.copies]
            engine.submit(evolve(order, copies=copies))

    state.engine = Swapping()  # type: ignore[assignment]  # Nothing else is asked of it.
    try:
        submit(state, copying)
    finally:
        state.engine = engine


@mutant("ASYNC-13")
@around(match.match, cache)
def match_waits_for_loads(match: Original[Matched], state: State, key: Key) -> Matched:
    """A match waits for the loads of its prefix."""
    found = match(state, key)
    for transfer_id in found.pending:
        state.engine.wait(transfer_id)
    return found


@mutant("ASYNC-14")
@around(transfer.arrived, cache)
def last_arrival_is_not_said(
    arrived: Original[tuple[Completion, ...]], state: State
) -> tuple[Completion, ...]:
    """The last copy that has ended is not among those that have arrived."""
    return arrived(state)[:-1]


@mutant("ASYNC-15")
@around(transfer.settle, cache)
def poll_always_agrees(
    settle: Original[tuple[tuple[TransferId, TransferStatus], ...]],
    state: State,
    direction: Direction | None = None,
) -> tuple[tuple[TransferId, TransferStatus], ...]:
    """A poll asks the other ranks although nothing is in flight."""
    if state.agree is not None and not state.transfers:
        state.agree([])
    return settle(state, direction)
