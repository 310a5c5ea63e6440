"""Faults of ranks: each settles what its own copies say, and not what all ranks agreed on.

A single cache with one of these faults is sound: only several ranks show it.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvcanon.lab.mutants.planted.entry import mutant
from kvcanon.lab.variants.wrapped_rules import Original, around, instead
from kvcanon.reference import cache, transfer
from kvcanon.reference.state import State
from kvcanon.spec.transfer import Completion, TransferStatus
from kvcanon.spec.types import TransferId

Settled = tuple[tuple[TransferId, TransferStatus], ...]


@mutant("ASYNC-11", "sgl#28429")
@instead(transfer._arrived_on_all_ranks)
def ranks_settle_what_ended_here(
    state: State, flying: Sequence[TransferId]
) -> dict[TransferId, bool]:
    """A poll, a flush or an eviction settles what has ended on its own rank, and asks no other."""
    return {each: state.arrived[each] for each in flying if each in state.arrived}


@mutant("ASYNC-11", "sgl#33442")
@around(transfer._arrived_on_all_ranks)
def ranks_keep_what_failed_elsewhere(
    agreed: Original[dict[TransferId, bool]], state: State, flying: Sequence[TransferId]
) -> dict[TransferId, bool]:
    """A copy that failed on another rank is settled as done on this one."""
    return {each: state.arrived[each] for each in agreed(state, flying)}


@mutant("ASYNC-11")
@instead(transfer.settle_these, cache)
def settle_counts_outcomes_of_its_own(state: State, completions: Sequence[Completion]) -> Settled:
    """A settle call settles the copies that it names with the results of its own rank."""
    ids = {each.transfer_id for each in completions}
    ours = [each for each in transfer.arrived(state) if each.transfer_id in ids]
    return transfer.settle_these(state, ours)


@mutant("ASYNC-11")
@instead(transfer.settle_these, cache)
def settle_settles_all_that_arrived(state: State, completions: Sequence[Completion]) -> Settled:
    """A settle call also settles copies that have ended on its rank and were not named."""
    named = {each.transfer_id: each for each in completions}
    arrived = transfer.arrived(state)
    return transfer.settle_these(state, [named.get(each.transfer_id, each) for each in arrived])
