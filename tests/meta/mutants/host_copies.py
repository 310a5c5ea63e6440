"""Faults of copies on the host: halves of nodes, and data beside its page.

What readers get wrong: that a backup of the full data is a backup. Without its window, or its
state, no prefix ends there.
"""

from __future__ import annotations

from kvcanon.conformance.overriding import Overrides
from kvcanon.reference import backup, host_insert
from kvcanon.reference.state import Node, State
from kvcanon.spec.types import FULL, MAMBA, SWA, Component, Key
from meta.mutants.entry import mutant


@mutant("RES-9", "B26 sgl#25991")
def short_fetch_places_its_state_all_the_same(patch: Overrides) -> None:
    """Where the host had room for a part of the pages, the state goes to the end of that part."""
    place_full = host_insert._place_full

    def careless(state: State, key: Key, last: Node, fetched: host_insert._Fetched) -> Node:
        end = place_full(state, key, last, fetched)
        if MAMBA in end.data and end.parent is not None and end.end < len(key):
            host_insert._place_state(state, end, fetched)
        return end

    patch.setattr(host_insert, "_place_full", careless)


@mutant("RES-9")
def refilled_pages_are_told_as_placed(patch: Overrides) -> None:
    """What was on the device all the time is said to be new."""
    refill = host_insert._refill

    def confused(state: State, node: Node, fetched: host_insert._Fetched) -> Node | None:
        reached = refill(state, node, fetched)
        fetched.placed, fetched.refilled = fetched.placed + fetched.refilled, 0
        return reached

    patch.setattr(host_insert, "_refill", confused)


@mutant("RES-10", "B25 sgl#30057")
def backup_leaves_the_window_behind(patch: Overrides) -> None:
    """Full data is copied to the host, and nothing of what stands on it."""
    missing = backup._missing

    def full_first(node: Node) -> tuple[Component, ...]:
        lacking = missing(node)
        return (FULL,) if FULL in lacking else lacking

    patch.setattr(backup, "_missing", full_first)


@mutant("RES-10")
def healed_windows_stay_on_the_device(patch: Overrides) -> None:
    """Window data that came after its node was backed up never gets to the host."""
    missing = backup._missing

    def at_first_only(node: Node) -> tuple[Component, ...]:
        lacking = missing(node)
        return lacking if FULL in lacking else tuple([c for c in lacking if c is not SWA])

    patch.setattr(backup, "_missing", at_first_only)
