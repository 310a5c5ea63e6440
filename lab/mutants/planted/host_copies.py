"""Faults of host copies: parts of nodes, and data of the wrong page.

A backup of the full data alone is not enough: without window data or mamba state no prefix hit can
end there.
"""

from __future__ import annotations

from kvcanon.lab.mutants.planted.entry import mutant
from kvcanon.lab.variants.override import Overrides
from kvcanon.lab.variants.wrapped_rules import Original, around, instead
from kvcanon.reference import backup, host_insert, insert
from kvcanon.reference.departures import vacate
from kvcanon.reference.host import ensure_host_slots
from kvcanon.reference.match import on_device
from kvcanon.reference.state import Node, State
from kvcanon.reference.tree import path_to, upwards
from kvcanon.spec.types import (
    CPU,
    FULL,
    MAMBA,
    SWA,
    Component,
    Counts,
    Key,
    TransferId,
    WritePolicy,
)


@mutant("RES-9", "B26 sgl#25991")
@around(host_insert._place_full)
def short_fetch_places_its_state_all_the_same(
    place_full: Original[Node], state: State, key: Key, last: Node, fetched: host_insert._Fetched
) -> Node:
    """If not all fetched pages fit, the mamba state is placed at the end of those that fit."""
    end = place_full(state, key, last, fetched)
    if MAMBA in end.data and end.parent is not None and end.end < len(key):
        host_insert._place_state(state, end, fetched)
    return end


@mutant("RES-9")
@around(host_insert._refill)
def refilled_pages_are_told_as_placed(
    refill: Original[Node | None], state: State, node: Node, fetched: host_insert._Fetched
) -> Node | None:
    """A host insert reports refilled pages as placed, though they were on the device already."""
    reached = refill(state, node, fetched)
    fetched.placed, fetched.refilled = fetched.placed + fetched.refilled, 0
    return reached


@mutant("RES-10", "B25 sgl#30057")
@around(backup._missing)
def backup_leaves_the_window_behind(
    missing: Original[tuple[Component, ...]], node: Node
) -> tuple[Component, ...]:
    """A backup copies full data only: neither window data nor the mamba state."""
    lacking = missing(node)
    return (FULL,) if FULL in lacking else lacking


@mutant("RES-5")
@around(backup._missing)
def healed_windows_stay_on_the_device(
    missing: Original[tuple[Component, ...]], node: Node
) -> tuple[Component, ...]:
    """Window data that came after the backup of its node is never backed up."""
    lacking = missing(node)
    return lacking if FULL in lacking else tuple([c for c in lacking if c is not SWA])


@mutant("RES-10")
@instead(insert._back_up_hit_nodes)
def first_hit_is_enough(state: State, end: Node) -> tuple[TransferId, ...]:
    """Under write_through_selective a node is backed up at its first hit."""
    due = state.config.backup_hits is not None and end.parent is not None
    return backup.back_up(state, end) if due else ()


@mutant("RES-5")
@instead(backup.back_up, insert)
def backup_is_all_or_nothing(state: State, node: Node) -> tuple[TransferId, ...]:
    """If not all nodes of a path fit on the host, none of them is backed up."""
    chain = [each for each in path_to(node) if each.data[FULL].host is None]
    needed = {
        component.value: sum(
            len(each.data[component].device or ())
            for each in chain
            if component in backup._missing(each)
        )
        for component in state.config.components
    }
    return backup.back_up(state, node) if ensure_host_slots(state, Counts(**needed)) else ()


@mutant("RES-10")
@around(insert._back_up_hit_nodes)
def write_back_inserts_back_up(
    back_up_hit_nodes: Original[tuple[TransferId, ...]], state: State, end: Node
) -> tuple[TransferId, ...]:
    """Under write_back an insert backs up its path, as under write_through."""
    back = state.config.write_policy is WritePolicy.WRITE_BACK
    return backup.back_up(state, end) if back else back_up_hit_nodes(state, end)


@mutant("RES-10")
@instead(backup.back_up, insert)
def ancestors_are_copied_again(state: State, node: Node) -> tuple[TransferId, ...]:
    """A backup drops the host copies that its path has, and copies the path anew."""
    for each in path_to(node)[:-1]:
        if each.data[FULL].host is not None and _is_spare(each):
            vacate(state, each, CPU)
    return backup.back_up(state, node)


@mutant("RES-10")
@instead(backup.back_up, insert)
def copies_are_made_anew(state: State, node: Node) -> tuple[TransferId, ...]:
    """An insert backs up again the end of its path that is backed up already."""
    for each in upwards(node):
        below = any(child.data[FULL].host is not None for child in each.children.values())
        if each.data[FULL].host is None or below or not _is_spare(each):
            break
        vacate(state, each, CPU)
    return backup.back_up(state, node)


def _is_spare(node: Node) -> bool:
    """Whether the device has all host data of a node, and the host copy is not in use."""
    return not node.locked and all(
        on_device(data) and data.backing is None
        for data in node.data.values()
        if data.host is not None
    )


@mutant("RES-11")
def fetched_pages_make_no_leaf(patch: Overrides) -> None:
    """A host insert drops the pages that are not in the tree, though they fit."""
    patch.setattr(host_insert, "_new_host_leaf", lambda _state, _key, parent, _fetched: parent)


@mutant("RES-11")
def fetched_windows_are_dropped(patch: Overrides) -> None:
    """A host insert never places window data."""
    patch.setattr(host_insert, "_place_window", lambda *_: None)
