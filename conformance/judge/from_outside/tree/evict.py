"""Checks of evictions: the victims were not locked, and were next in the policy's order.

An eviction answers with counts. The free list and later matches show which pages were evicted;
where they do not, the order is not judged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from kvcanon.conformance.judge.from_outside.tree.pages import (
    ALL_COLUMNS,
    FULL_COLUMN,
    MAMBA_COLUMN,
    SWA_COLUMN,
    Certainty,
    Column,
    PageRecord,
)
from kvcanon.conformance.judge.from_outside.tree.slots import COMPONENTS
from kvcanon.conformance.judge.from_outside.tree.state import ObservedState
from kvcanon.spec.operations import Evict, Evicted, EvictHost
from kvcanon.spec.oracle.eviction import policy_key
from kvcanon.spec.types import Counts

STANDS_ON = ((SWA_COLUMN, FULL_COLUMN), (MAMBA_COLUMN, FULL_COLUMN), (MAMBA_COLUMN, SWA_COLUMN))
"""Pairs of components: the data of the first is useless without that of the second."""


def after_evict(state: ObservedState, operation: Evict, outcome: Evicted) -> None:
    """Check the count of freed slots, and that the victims were not locked and were next."""
    locked = [state.surely_locked(column) for column in ALL_COLUMNS]
    in_use = [state.maybe_locked(column) for column in ALL_COLUMNS]
    leaves = [page for page in state.pages if _is_device_leaf(state, page, in_use[FULL_COLUMN])]
    bare = _may_be_uncovered(state)
    victims: list[list[PageRecord]] = [[], [], []]
    for column in state.columns:
        victims[column] = state.reconcile(column, outcome.freed[COMPONENTS[column]])
    evicted = [(column, page) for column in state.columns for page in victims[column]]
    state.check_each(
        "LOCK-4",
        len(evicted),
        [(column, page) for column, page in evicted if page in locked[column]],
        lambda each: (
            f"{COMPONENTS[each[0]]} data of {each[1].describe(each[0])} was evicted while it was "
            "locked"
        ),
        met=any(locked),
    )
    check_closed(state, victims)
    wanted = [operation.counts[component] for component in COMPONENTS]
    state.check(
        "EVICT-2",
        any(wanted) or not any(victims),
        "an eviction of no slots evicted a page",
        met=not any(wanted) and bool(leaves),
    )
    _check_freed(state, operation.counts, outcome.freed, leaves, in_use)
    for column in state.columns:
        if wanted[column] and wanted.count(0) == 2:
            if column == FULL_COLUMN:
                _check_turns(state, [page for page in victims[column] if page not in bare], leaves)
            else:
                _check_order(state, column, victims[column], in_use[column])
    _check_copied(state, victims[FULL_COLUMN])
    after_making_room(state)


def _check_copied(state: ObservedState, victims: list[PageRecord]) -> None:
    """Check that victims have a host copy under write_back, if the host was empty before."""
    room = state.free_host_slots
    if room is None or not state.takes_events or not state.writes_back or not victims:
        return
    if any(room[column] < state.slots.capacity[column] for column in state.columns):
        return
    if state.copies_failed:
        return
    left = [page for page in victims if page.host[FULL_COLUMN] is Certainty.NO]
    state.check(
        "EVICT-8",
        not left,
        f"{left[0].describe() if left else ''} was evicted without a copy on the host, which had "
        f"{room[0]} full, {room[1]} window and {room[2]} state slots free",
    )


def after_broken_eviction(state: ObservedState) -> None:
    """Note what left before the engine raised; no answer says how much."""
    state.broken_off = True
    for column in state.columns:
        if column in state.slots.unseen:
            state.doubt_unlocked(column)
            continue
        expected = state.slots.free_count(column)
        came_free = len(state.slots.free_list(column, expected).slots) - expected
        text = f"{-came_free} {COMPONENTS[column]} slots fewer are free after the engine raised"
        state.check("ASYNC-16", came_free >= 0, text)
        state.reconcile(column, max(0, came_free))
    after_making_room(state)


def after_making_room(state: ObservedState) -> None:
    """Note that under write_back evictions copy to the host, and may evict there unseen."""
    if state.writes_back:
        state.doubt_host(ALL_COLUMNS)
        state.may_have_copied()


def check_closed(state: ObservedState, victims: list[list[PageRecord]]) -> None:
    """Check that data that needs evicted data is evicted too, and that no prefix has a gap."""
    for what, on in STANDS_ON:
        _check_cascade(state, what, on, victims[on])
    state.check_each(
        "RES-3",
        len(victims[FULL_COLUMN]),
        [page for page in victims[FULL_COLUMN] if any(map(_stays, page.children.values()))],
        lambda page: f"full data of {page.describe()} was evicted, and a page below stays",
        met=any(page.children for page in victims[FULL_COLUMN]),
    )


def _check_cascade(
    state: ObservedState, what: Column, on: Column, victims: list[PageRecord]
) -> None:
    """Check that data of `what` is evicted with the data of `on` that it needs."""
    state.check_each(
        "EVICT-3",
        len(victims),
        [page for page in victims if page.surely_on_device(what)],
        lambda page: (
            f"{COMPONENTS[on]} data of {page.describe(on)} was evicted, and its "
            f"{COMPONENTS[what]} data stays"
        ),
        met=what in state.columns,
    )


def _stays(page: PageRecord) -> bool:
    return page.surely_on_device(FULL_COLUMN)


def _is_device_leaf(state: ObservedState, page: PageRecord, in_use: Collection[PageRecord]) -> bool:
    """Whether a page surely could be evicted for its full slot: an unlocked leaf."""
    if page in in_use or not page.surely_on_device(FULL_COLUMN):
        return False
    if state.writes_back and page.children:
        return False
    return not any(child.device[FULL_COLUMN] is not None for child in page.children.values())


def _may_be_uncovered(state: ObservedState) -> set[PageRecord]:
    """Pages that may be evicted out of order: tombstones that lose the last page below them."""
    if state.profile.uncovered_tombstones_stay or SWA_COLUMN not in state.columns:
        return set()
    return {page for page in state.pages if page.children and not page.surely_on_device(SWA_COLUMN)}


def _check_freed(
    state: ObservedState,
    wanted: Counts,
    freed: Counts,
    leaves: Iterable[PageRecord],
    in_use: list[set[PageRecord]],
) -> None:
    """Check that an eviction that frees fewer slots than requested leaves no evictable page."""
    for column in state.columns:
        component = COMPONENTS[column]
        if freed[component] >= wanted[component]:
            state.check("EVICT-1", True, met=wanted[component] > 0)
            continue
        left = [
            page
            for page in (leaves if column == FULL_COLUMN else state.pages)
            if page.surely_on_device(column) and page not in in_use[column]
        ]
        stays = left[0].describe(column) if left else "no page"
        text = f"{wanted[component]} {component} slots were asked for and {freed[component]} freed"
        text = f"{text}, but {stays} can be evicted, and stays"
        state.check("EVICT-1", not left, text, met=freed[component] > 0)


def _check_turns(state: ObservedState, victims: list[PageRecord], leaves: list[PageRecord]) -> None:
    """Check that no leaf that stayed comes before a victim in the policy's order."""
    stayed = [page for page in leaves if page.surely_on_device(FULL_COLUMN) and not page.hazy]
    _check_ranks(state, victims, stayed, "was evicted")


def _check_ranks(
    state: ObservedState, victims: list[PageRecord], stayed: list[PageRecord], what: str
) -> None:
    """Check that no page that stayed surely comes before a victim in the policy's order."""
    earliest = [(rank(state, page, latest=False), page) for page in victims if not page.hazy]
    latest = [(rank(state, page, latest=True), page) for page in stayed if earliest]
    wrong = [
        (victim, page) for ours, victim in earliest for theirs, page in latest if ours > theirs
    ]
    state.check_each(
        "REC-3",
        len(earliest) * len(latest),
        wrong,
        lambda each: (
            f"{each[0].describe()} {what}; {each[1].describe()} stays, and should have left "
            f"first under {state.config.eviction_policy}"
        ),
    )


def rank(state: ObservedState, page: PageRecord, *, latest: bool) -> tuple[int, int]:
    """Return the first or the last place that a page can have in the policy's order."""
    policy = state.config.eviction_policy
    used = page.used_to[FULL_COLUMN], page.used_from[FULL_COLUMN]
    hits = page.hits_at_most, page.hits
    places = [
        policy_key(policy, hit, access, page.run, page.priority) for hit in hits for access in used
    ]
    return max(places) if latest else min(places)


def _check_order(
    state: ObservedState,
    column: Column,
    victims: list[PageRecord],
    in_use: Collection[PageRecord],
) -> None:
    """Check that no evictable page that was used less recently than a victim stayed."""
    stayed = [page for page in state.pages if page not in in_use and page.surely_on_device(column)]
    wrong = [
        (victim, page)
        for victim in victims
        for page in stayed
        if victim.used_from[column] > page.used_to[column]
    ]
    state.check_each(
        "REC-3",
        len(victims) * len(stayed),
        wrong,
        lambda each: (
            f"{COMPONENTS[column]} data of {each[0].describe(column)} was evicted, last used by "
            f"operation {each[0].used_from[column]}; that of {each[1].describe(column)} stays, "
            f"last used by operation {each[1].used_to[column]}, and should have left first"
        ),
    )


def after_evict_host(
    state: ObservedState,
    operation: EvictHost,
    outcome: Evicted,
) -> None:
    """Check that host leaves are evicted in the policy's order. Events show full data only."""
    state.doubt_host(ALL_COLUMNS)
    wanted, leaves = operation.counts, state.host_leaves
    if not state.takes_events or state.writes_back or wanted.swa or wanted.mamba:
        return
    stayed = [page for page in leaves if page.host[FULL_COLUMN] is Certainty.YES]
    victims = [page for page in leaves if page.host[FULL_COLUMN] is Certainty.NO]
    if outcome.freed.full < wanted.full:
        state.check(
            "EVICT-1",
            not stayed,
            f"{wanted.full} host slots were asked for and {outcome.freed.full} freed, but "
            f"{stayed[0].describe() if stayed else 'no page'} can be evicted, and stays",
            met=bool(outcome.freed),
        )
    surely = [page for page in stayed if not page.hazy]
    _check_ranks(state, victims, surely, "left the host")


def find_host_leaves(state: ObservedState) -> list[PageRecord]:
    """Return pages that surely are on the host only, unlocked and without a page below."""
    in_use = state.maybe_locked()
    return [
        page
        for page in state.pages
        if page.host[FULL_COLUMN] is Certainty.YES
        and page.device[FULL_COLUMN] is None
        and not page.children
        and page not in in_use
    ]
