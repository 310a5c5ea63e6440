"""Evicting: who left, whether they might, and whether somebody else should have left before.

What readers get wrong: an eviction answers with counts. Who left is seen in the free list, and in
what a later match finds; where it cannot be seen, nobody is accused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from kvcanon.conformance.blackbox.tree.pages import (
    ALL_COLUMNS,
    FULL_COLUMN,
    MAMBA_COLUMN,
    SWA_COLUMN,
    Certainty,
    Column,
    PageRecord,
)
from kvcanon.conformance.blackbox.tree.slots import COMPONENTS
from kvcanon.conformance.blackbox.tree.state import ObservedState
from kvcanon.spec.operations import Evict, Evicted, EvictHost
from kvcanon.spec.oracle.eviction import policy_key
from kvcanon.spec.types import Counts

STANDS_ON = ((SWA_COLUMN, FULL_COLUMN), (MAMBA_COLUMN, FULL_COLUMN), (MAMBA_COLUMN, SWA_COLUMN))
"""Components whose data is of no use without that of another."""


def after_evict(state: ObservedState, operation: Evict, outcome: Evicted) -> None:
    """As many slots came free as was said; who left was not locked, and was next."""
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
            f"{COMPONENTS[each[0]]} data of {each[1].describe()} was evicted while it was locked"
        ),
        met=any(locked),
    )
    check_closed(state, victims)
    asked = [operation.counts[component] for component in COMPONENTS]
    state.check(
        "EVICT-2",
        any(asked) or not any(victims),
        "nothing was asked for, and something was evicted",
        met=not any(asked) and bool(leaves),
    )
    _check_freed(state, operation.counts, outcome.freed, leaves, in_use)
    for column in state.columns:
        if asked[column] and asked.count(0) == 2:
            if column == FULL_COLUMN:
                _check_turns(state, [page for page in victims[column] if page not in bare], leaves)
            else:
                _check_order(state, column, victims[column], in_use[column])
    _check_copied(state, victims[FULL_COLUMN])
    after_making_room(state)


def _check_copied(state: ObservedState, victims: list[PageRecord]) -> None:
    """Under write_back what leaves is on the host, where that has room for all that could leave."""
    room = state.room_on_host
    if room is None or not state.hears or not state.writes_back or not victims:
        return
    if any(room[column] < state.slots.capacity[column] for column in state.columns):
        return
    left = [page for page in victims if page.host[FULL_COLUMN] is Certainty.NO]
    state.check(
        "EVICT-8",
        not left,
        f"{left[0].describe() if left else ''} was evicted without a copy on the host, which had "
        f"{room[0]} full, {room[1]} window and {room[2]} state slots free",
    )


def after_making_room(state: ObservedState) -> None:
    """Under write_back, what leaves is copied to the host, where something else may have left."""
    if state.writes_back:
        state.doubt_host(ALL_COLUMNS)
        state.may_have_copied()


def check_closed(state: ObservedState, victims: list[list[PageRecord]]) -> None:
    """With full data goes all that stands on it, and the data of a prefix has no gap."""
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
    """With data of one component goes that of another, which stands on it."""
    state.check_each(
        "EVICT-3",
        len(victims),
        [page for page in victims if page.surely_on_device(what)],
        lambda page: (
            f"{COMPONENTS[on]} data of {page.describe()} was evicted, and its "
            f"{COMPONENTS[what]} data stays"
        ),
        met=what in state.columns,
    )


def _stays(page: PageRecord) -> bool:
    return page.surely_on_device(FULL_COLUMN)


def _is_device_leaf(state: ObservedState, page: PageRecord, in_use: Collection[PageRecord]) -> bool:
    """Whether a page could surely be evicted for its full slot, by its place and its locks."""
    if page in in_use or not page.surely_on_device(FULL_COLUMN):
        return False
    if state.writes_back and page.children:
        return False
    return not any(child.device[FULL_COLUMN] is not None for child in page.children.values())


def _may_be_uncovered(state: ObservedState) -> set[PageRecord]:
    """Pages that may leave out of turn, as tombstones with the last of what is below them."""
    if state.profile.uncovered_tombstones_stay or SWA_COLUMN not in state.columns:
        return set()
    return {page for page in state.pages if page.children and not page.surely_on_device(SWA_COLUMN)}


def _check_freed(
    state: ObservedState,
    asked: Counts,
    freed: Counts,
    leaves: Iterable[PageRecord],
    in_use: list[set[PageRecord]],
) -> None:
    """Where less came free than was asked, nobody is left who could have gone."""
    for column in state.columns:
        component = COMPONENTS[column]
        if freed[component] >= asked[component]:
            state.check("EVICT-1", True, met=asked[component] > 0)
            continue
        left = [
            page
            for page in (leaves if column == FULL_COLUMN else state.pages)
            if page.surely_on_device(column) and page not in in_use[column]
        ]
        text = f"{asked[component]} {component} slots were asked for and {freed[component]} freed"
        text = f"{text}; {left[0].describe() if left else 'nobody'} stays"
        state.check("EVICT-1", not left, text, met=freed[component] > 0)


def _check_turns(state: ObservedState, victims: list[PageRecord], leaves: list[PageRecord]) -> None:
    """No leaf that stayed comes before a victim, by the policy."""
    stayed = [page for page in leaves if page.surely_on_device(FULL_COLUMN) and not page.hazy]
    _check_ranks(state, victims, stayed, "was evicted")


def _check_ranks(
    state: ObservedState, victims: list[PageRecord], stayed: list[PageRecord], what: str
) -> None:
    """Nobody who stayed surely comes before a victim, by the policy."""
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
            f"{each[0].describe()} {what} before {each[1].describe()}, whose turn it was "
            f"under {state.config.eviction_policy}"
        ),
    )


def rank(state: ObservedState, page: PageRecord, *, latest: bool) -> tuple[int, int]:
    """The first or the last place that a page can have in the order of the policy."""
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
    """Nothing that was used less recently, and could have gone, stayed."""
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
            f"{COMPONENTS[column]} data of {each[0].describe()} was evicted, used at "
            f"{each[0].used_from[column]}, before that of {each[1].describe()}, used at "
            f"{each[1].used_to[column]}: the latter was kept alive by something that does not "
            "reach it"
        ),
    )


def after_evict_host(
    state: ObservedState,
    operation: EvictHost,
    outcome: Evicted,
) -> None:
    """Host data leaves, leaves first by the policy; who it was is heard of full data only."""
    state.doubt_host(ALL_COLUMNS)
    asked, leaves = operation.counts, state.leaves_of_host
    if not state.hears or state.writes_back or asked.swa or asked.mamba:
        return
    stayed = [page for page in leaves if page.host[FULL_COLUMN] is Certainty.YES]
    victims = [page for page in leaves if page.host[FULL_COLUMN] is Certainty.NO]
    if outcome.freed.full < asked.full:
        state.check(
            "EVICT-1",
            not stayed,
            f"{asked.full} host slots were asked for and {outcome.freed.full} freed; "
            f"{stayed[0].describe() if stayed else 'nobody'} stays",
            met=bool(outcome.freed),
        )
    surely = [page for page in stayed if not page.hazy]
    _check_ranks(state, victims, surely, "left the host")


def host_leaves(state: ObservedState) -> list[PageRecord]:
    """Pages that surely are on the host only, that nothing hangs below, and that nobody holds."""
    in_use = state.maybe_locked()
    return [
        page
        for page in state.pages
        if page.host[FULL_COLUMN] is Certainty.YES
        and page.device[FULL_COLUMN] is None
        and not page.children
        and page not in in_use
    ]
