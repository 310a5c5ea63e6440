"""Faults of evictions under write_back whose copy fails, or whose engine raises.

The wait of an eviction usually ends well, so that these lie hidden until a disk is full or a device
is lost.
"""

from __future__ import annotations

from sys import exc_info

from kvcanon.lab.mutants.planted.entry import mutant
from kvcanon.lab.variants.wrapped_rules import Original, around, everywhere, instead
from kvcanon.reference import departures, evict, load, transfer
from kvcanon.reference.departures import undo_departures
from kvcanon.reference.lock import release_hold
from kvcanon.reference.state import Hold, LeavingVictim, State, Transfer
from kvcanon.reference.transfer import settle
from kvcanon.spec.transfer import Direction
from kvcanon.spec.types import FULL, GPU


@mutant("EVICT-9")
@around(transfer._undo)
def failed_victims_keep_their_copies(undo: Original[None], state: State, failed: Transfer) -> None:
    """The copy of victims that failed stays on the host, as if it had been made."""
    if failed is not state.victims_copy:
        undo(state, failed)
        return
    for node, component in failed.parts:
        node.data[component].backing = None


@mutant("EVICT-1")
@around(departures.end_departures, *everywhere(departures.end_departures))
def failed_victims_stay(end: Original[None], state: State) -> None:
    """If the copy of victims fails, they all stay on the device."""
    copying = state.victims_copy
    if copying is not None:
        transfer.submit(state, copying)
        state.engine.wait(copying.transfer_id)
        settle(state, Direction.BACKUP)
        state.victims_copy = None
        if any(each.node.data[FULL].host is None for each in state.departures):
            undo_departures(state)
    end(state)


@mutant("ALLOC-8")
@around(departures._leave)
def failed_victims_leak(leave: Original[None], state: State, victim: LeavingVictim) -> None:
    """A victim without a host copy leaves the tree with its device slots, which nobody frees."""
    lost = victim.whole and victim.node.data[FULL].host is None
    pool = state.pools[FULL, GPU]
    before = list(pool.returned)
    leave(state, victim)
    if lost:
        pool.returned[:] = before


@mutant("ASYNC-16")
@instead(departures.undo_departures, evict)
def victims_are_lost_with_the_engine(state: State) -> None:
    """If the engine raises in an eviction, the victims that were to leave are lost."""
    for victim in state.departures:
        for component, slots in victim.slots.items():
            state.pools[component, GPU].leaving -= len(slots)
    state.departures = []
    state.victims_copy = None


@mutant("ASYNC-16")
@around(release_hold, load)
def broken_load_keeps_its_path(release: Original[None], state: State, held: Hold) -> None:
    """A load-back whose eviction was broken off leaves its path locked."""
    if exc_info()[0] is None:
        release(state, held)
