"""Faults of eviction order: victims out of order, and needless victims.

Each leaves a consistent state: only the choice of victims was wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from kvcanon.lab.mutants.planted.calls import Calls
from kvcanon.lab.mutants.planted.entry import mutant
from kvcanon.lab.variants.override import Overrides
from kvcanon.lab.variants.wrapped_rules import Original, around, instead
from kvcanon.reference import (
    backup,
    cache,
    departures,
    evict,
    host,
    host_insert,
    insert,
    load,
    slots,
    victims,
)
from kvcanon.reference.state import Node, State
from kvcanon.reference.tree import path_to
from kvcanon.spec.types import (
    CPU,
    FULL,
    GPU,
    MAMBA,
    SWA,
    Component,
    Counts,
    Key,
    Medium,
    TransferId,
    WritePolicy,
    shortage,
)


def backwards(patch: Overrides) -> Calls:
    """Turn the order of victims round while the calls last that this marks."""
    calls = Calls()
    rank, least_recent_first = victims.rank, victims.least_recent_first

    def turned(state: State, node: Node) -> tuple[int, int]:
        first, second = rank(state, node)
        return (-first, -second) if calls else (first, second)

    def most_recent_first(state: State, component: Component, medium: Medium) -> list[Node]:
        found = least_recent_first(state, component, medium)
        return found[::-1] if calls else found

    for module in (victims, host):
        patch.setattr(module, "rank", turned)
    for module in (evict, host):
        patch.setattr(module, "least_recent_first", most_recent_first)
    return calls


@mutant("REC-3")
def load_evicts_newest_first(patch: Overrides) -> None:
    """A load-back evicts the most recent data first."""
    patch.setattr(load, "evict", backwards(patch).during(evict.evict))


@mutant("REC-3")
def host_room_is_made_newest_first(patch: Overrides) -> None:
    """Backups and host inserts evict the most recent host data first."""
    patch.setattr(host, "evict_host", backwards(patch).during(host.evict_host))


@mutant("REC-3")
def fetched_pages_replace_the_newest(patch: Overrides) -> None:
    """A host insert evicts the most recent host data first."""
    made = backwards(patch).during(host.ensure_host_slots)
    patch.setattr(host_insert, "ensure_host_slots", made)


@mutant("REC-3")
def two_shortages_are_served_newest_first(patch: Overrides) -> None:
    """An eviction for more than one component takes the most recent data first."""
    reversed_evict = backwards(patch).during(evict.evict)

    def by_shortage(state: State, counts: Counts) -> Counts:
        short = [each for each in Component if counts[each]]
        return reversed_evict(state, counts) if len(short) > 1 else evict.evict(state, counts)

    patch.setattr(cache, "evict", by_shortage)


@mutant("REC-3")
@instead(victims.leaves_in_turn, evict)
def parents_wait_for_all_leaves(state: State, medium: Medium, enough: int) -> Iterator[Node]:
    """A parent that became a leaf is evicted only when no other leaf is left."""
    pool, owners = state.pools[FULL, medium], state.owners[FULL, medium]
    while pool.free_slots < enough:
        leaves = [node for node in owners if victims.is_device_leaf(node)]
        if not leaves:
            return
        for node in sorted(leaves, key=lambda node: victims.rank(state, node)):
            if pool.free_slots >= enough:
                return
            yield node


@mutant("REC-3", "B13 sgl#4987")
@around(victims.leaves_in_turn, evict)
def small_leaf_goes_along(
    leaves_in_turn: Original[Iterator[Node]], state: State, medium: Medium, enough: int
) -> Iterator[Node]:
    """An eviction takes one leaf too many where the sizes of the leaves hide it."""
    asked, sizes = enough - state.pools[FULL, medium].free_slots, list[int]()
    for leaf in leaves_in_turn(state, medium, enough):
        sizes.append(len(leaf.pages))
        yield leaf
    for leaf in islice(leaves_in_turn(state, medium, state.pools[FULL, medium].capacity), 1):
        if sizes and sum(sizes) + len(leaf.pages) - max(*sizes, len(leaf.pages)) < asked:
            yield leaf


@mutant("REC-3", "A11 sgl#28161")
def loads_leave_states_without_their_window(patch: Overrides) -> None:
    """Window data that a load-back evicts leaves the mamba state of its node behind."""
    loading, evict_inside = Calls(), evict._evict_inside

    def alone(state: State, node: Node, component: Component) -> None:
        if loading and component is SWA and MAMBA in node.data:
            slots.drop(state, node, SWA, GPU)
        else:
            evict_inside(state, node, component)

    patch.setattr(evict, "_evict_inside", alone)
    patch.setattr(load, "evict", loading.during(evict.evict))


# On the host.


@mutant("REC-3")
@instead(host.ensure_host_slots, backup)
def backup_empties_the_host(state: State, needed: Counts) -> bool:
    """An insert that backs up evicts all that may leave the host, needed or not."""
    if state.config.backup_hits is not None:
        host.evict_host(state, state.config.host_slots)
    return host.ensure_host_slots(state, needed)


@mutant("REC-3")
@instead(host.ensure_host_slots, backup)
def declined_backup_evicts_window_data(state: State, needed: Counts) -> bool:
    """A backup that finds no room for full data evicts window data and states from the host."""
    host.evict_host(state, shortage(needed, slots.free_slot_counts(state, CPU)))
    return not shortage(needed, slots.free_slot_counts(state, CPU))


@mutant("RES-11")
@around(host_insert._place_full)
def fetch_empties_the_host(
    place_full: Original[Node], state: State, key: Key, last: Node, fetched: host_insert._Fetched
) -> Node:
    """A host insert evicts all that may leave the host, needed or not."""
    host.evict_host(state, Counts(full=state.config.host_slots.full))
    return place_full(state, key, last, fetched)


@mutant("REC-3")
@around(insert._back_up_hit_nodes)
def insert_gives_up_host_copies_of_its_path(
    back_up_hit_nodes: Original[tuple[TransferId, ...]], state: State, end: Node
) -> tuple[TransferId, ...]:
    """Under write_back an insert frees the host copies of its path, needed or not."""
    if state.config.write_policy is WritePolicy.WRITE_BACK:
        for node in path_to(end):
            if node.data[FULL].host is not None and host._is_duplicate(node):
                departures.vacate(state, node, CPU)
    return back_up_hit_nodes(state, end)


@mutant("REC-3")
@around(insert._back_up_hit_nodes)
def insert_drops_windows_of_others_on_the_host(
    back_up_hit_nodes: Original[tuple[TransferId, ...]], state: State, end: Node
) -> tuple[TransferId, ...]:
    """An insert frees the window data of other prompts on the host, needed or not."""
    path = set(path_to(end))
    for node in state.nodes.values() if state.config.backup_hits is not None else ():
        data = node.data.get(SWA)
        idle = data is not None and not (data.lock_refs or data.backing or data.loading)
        if idle and node not in path:
            slots.drop(state, node, SWA, CPU)
    return back_up_hit_nodes(state, end)


# Under write_back.


@mutant("REC-3")
@around(host._evict_duplicates)
def many_duplicates_leave_together(
    evict_duplicates: Original[None], state: State, enough: int
) -> None:
    """If there are more than four duplicates on the host, either none of them leaves or all do."""
    duplicates = [node for node in state.owners[FULL, CPU] if host._is_duplicate(node)]
    evict_duplicates(state, enough)
    stay = [node for node in duplicates if node.data[FULL].host is not None]
    if len(duplicates) > 4 and len(stay) < len(duplicates):
        for node in stay:
            departures.vacate(state, node, CPU)


@mutant("REC-3")
def only_the_first_victim_makes_room(patch: Overrides) -> None:
    """Only the first victim of an eviction may evict host data for its copy."""
    copied = False

    def once(state: State, needed: Counts) -> bool:
        nonlocal copied
        if state.config.backup_hits is None and copied:
            return not shortage(needed, slots.free_slot_counts(state, CPU))
        copied = host.ensure_host_slots(state, needed)
        return copied

    def anew(state: State, counts: Counts) -> Counts:
        nonlocal copied
        copied = False
        return evict.evict(state, counts)

    patch.setattr(backup, "ensure_host_slots", once)
    patch.setattr(cache, "evict", anew)
    patch.setattr(load, "evict", anew)


@mutant("REC-3", "B24 sgl#33713")
def copies_are_thrown_away_once_one_was_made(patch: Overrides) -> None:
    """After an eviction copied one victim, it deletes later victims with their host copies."""
    copied, evict_leaf = False, evict._evict_leaf

    def forgetting(state: State, node: Node) -> None:
        nonlocal copied
        below = departures.subtree(node)
        backed = node.data[FULL].host is not None
        if copied and backed and not any(each.locked for each in below):
            departures.end_departures(state)
            departures.vacate(state, node, CPU)
            departures.delete(state, node)
            return
        copied = copied or (state.config.write_policy is WritePolicy.WRITE_BACK and not backed)
        evict_leaf(state, node)

    def anew(state: State, counts: Counts) -> Counts:
        nonlocal copied
        copied = False
        return evict.evict(state, counts)

    patch.setattr(evict, "_evict_leaf", forgetting)
    patch.setattr(cache, "evict", anew)
    patch.setattr(load, "evict", anew)
