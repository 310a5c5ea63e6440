"""Checks of events in black-box mode: each event by itself, and the sum of all.

Events cover full data only. Window data and mamba states come and go without an event, and a copy
emits none until it is acknowledged.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from kvcanon.conformance.judge.explain import key_in_words
from kvcanon.conformance.judge.from_outside.tree.pages import FULL_COLUMN, Certainty, PageRecord
from kvcanon.conformance.judge.from_outside.tree.state import (
    ObservedState,
    Text,
    may_be_one_node,
    words,
)
from kvcanon.spec.config import StoreMoment
from kvcanon.spec.events import AllBlocksCleared, BlockRemoved, BlockStored, Event
from kvcanon.spec.hashing import namespace_seed, page_hash
from kvcanon.spec.operations import (
    Evict,
    EvictHost,
    Flush,
    Insert,
    InsertHost,
    LoadBack,
    Operation,
    Poll,
    Reset,
    Settle,
)
from kvcanon.spec.types import CPU, GPU, Key

SENDERS = (Insert, InsertHost, Evict, EvictHost, LoadBack, Settle, Poll, Flush, Reset)
"""Operations that may move full data, and so may emit events."""
STORES_ON_HOST = (Settle, Poll, Flush, InsertHost)
"""Operations that may put full data on the host; under write_back, evictions too."""


def check_events(
    state: ObservedState, operation: Operation, events: Sequence[Event], refused: bool
) -> None:
    """Check the events of an operation one by one, and note which pages they put on the host."""
    if refused or not isinstance(operation, SENDERS):
        what = "was refused and" if refused else "moved no full data and"
        sent = _event_text(state, events[0]) if events else ""
        text = f"{type(operation).__name__} {what} sent an event: {sent}"
        state.check("EVENT-5", not events, text, met=bool(state.residency))
    cleared = [event for event in events if isinstance(event, AllBlocksCleared)]
    once = isinstance(operation, Reset) and not refused
    if once or cleared:
        state.check(
            "EVENT-8",
            once and len(cleared) == len(events) == 1,
            f"{type(operation).__name__} sent {len(events)} events, {len(cleared)} of them "
            "AllBlocksCleared",
        )
    for event in events:
        if isinstance(event, BlockStored):
            _check_store_of_page(state, operation, event)
        elif isinstance(event, BlockRemoved):
            _check_removal_of_page(state, operation, event)
        else:
            state.residency.fold(event)
    if not state.profile.removes_end_first:
        for event in events:
            if isinstance(event, BlockRemoved):
                _check_children_left(state, event, of_its_node=True)


def check_late_events(state: ObservedState, events: Sequence[Event]) -> None:
    """Check events that clients took late, each by itself and against the events before it."""
    for event in events:
        if isinstance(event, BlockStored):
            _check_store_alone(state, event)
        elif isinstance(event, BlockRemoved):
            _check_removal_alone(state, event, None)
        else:
            state.residency.fold(event)


def check_residency(state: ObservedState) -> None:
    """Check that the events add up to exactly the full data that is on the device."""
    resident = state.residency.on(GPU)
    at_enqueue = state.profile.load_back_announced is StoreMoment.ENQUEUED
    there: set[bytes] = set()
    for page in state.pages:
        if page.device[FULL_COLUMN] is not None and (not page.loading[FULL_COLUMN] or at_enqueue):
            there.add(page.hash)
    state.check(
        "EVENT-4",
        resident == there,
        lambda: _residency_problem(state, resident, there),
        met=bool(resident or there),
    )


def _residency_problem(state: ObservedState, resident: set[bytes], there: set[bytes]) -> str:
    for names, problem in (
        (there - resident, "is on the device, and no event says so"),
        (resident - there, "is not on the device, and an event says that it is"),
    ):
        for name in sorted(names):
            page = state.pages.by_hash.get(name)
            unknown = f"a page that was never inserted (hash {name.hex()[:12]})"
            return f"{page.describe() if page else unknown} {problem}"
    return ""


def _check_one_store(
    state: ObservedState, event: BlockStored, law_id: str, problem: Text, *, holds: bool
) -> None:
    state.check(law_id, holds, lambda: f"{_event_text(state, event)}{words(problem)}")


def _check_store_alone(state: ObservedState, event: BlockStored) -> None:
    """Check a store by itself and against the events before it."""
    config = state.config
    seed = namespace_seed(event.namespace)
    name = page_hash(seed if event.parent_hash is None else event.parent_hash, event.page)
    check = partial(_check_one_store, state, event)
    check("EVENT-6", " under a hash that is not its own", holds=name == event.block_hash)
    units = len(event.page)
    check(
        "EVENT-9",
        lambda: f" with {units} units; a page has {config.page_size}",
        holds=units == config.page_size,
    )
    resident = state.residency.on(event.medium)
    check("EVENT-2", ", where it was already", holds=event.block_hash not in resident)
    if event.parent_hash is not None and (event.medium is GPU or config.backed_parents):
        there = event.parent_hash in resident
        check("EVENT-1", " while its parent was not there", holds=there)
    state.residency.fold(event)


def _check_store_of_page(state: ObservedState, operation: Operation, event: BlockStored) -> None:
    """Check a store against its page and its operation, too."""
    page = state.pages.by_hash.get(event.block_hash)
    check = partial(_check_one_store, state, event)
    _check_store_alone(state, event)
    if page is None:
        check("EVENT-7", ", and no insert handed it over", holds=False)
    else:
        parent = None if page.parent is None else page.parent.hash
        right = (page.units, page.namespace, parent)
        said = (event.page, event.namespace, event.parent_hash)
        check("EVENT-7", lambda: f" {_differing(said, right)}", holds=said == right)
    if event.medium is CPU:
        may = isinstance(operation, STORES_ON_HOST) or (
            state.writes_back and isinstance(operation, Evict | LoadBack)
        )
        by = type(operation).__name__
        check("EVENT-10", f" by {by}, before any copy ended", holds=may)
        state.stored_on_host += 1
        if page is not None:
            page.host[FULL_COLUMN] = Certainty.YES


def _differing(said: tuple[object, ...], right: tuple[object, ...]) -> str:
    """How the tokens, the namespace or the parent hash in an event differ from the page's."""
    parts = zip(("tokens", "namespace", "parent hash"), said, right, strict=True)
    return " and ".join(
        f"with {name} {_shown(ours)}, which should be {_shown(theirs)}"
        for name, ours, theirs in parts
        if ours != theirs
    )


def _shown(value: object) -> str:
    return value.hex()[:12] if isinstance(value, bytes) else str(value)


def _event_text(state: ObservedState, event: Event) -> str:
    """An event as text, with its page as it was inserted, or as the event says."""
    if isinstance(event, AllBlocksCleared):
        return "all pages were cleared"
    page = state.pages.by_hash.get(event.block_hash)
    if isinstance(event, BlockRemoved):
        return _removal_text(page, event)
    said = key_in_words(Key((event.page,), event.namespace))
    unknown = f"a page with the tokens of {said} and hash {event.block_hash.hex()[:12]}"
    return f"{page.describe() if page is not None else unknown} was stored on {event.medium}"


def _check_removal_of_page(state: ObservedState, operation: Operation, event: BlockRemoved) -> None:
    page = state.pages.by_hash.get(event.block_hash)
    _check_removal_alone(state, event, page)
    if page is None:
        return
    _check_children_left(state, event, of_its_node=state.profile.removes_end_first)
    _check_copy_stays(state, operation, event, page)
    if event.medium is CPU:
        state.due.pop(page, None)
        for column in state.columns if state.whole_on_host else (FULL_COLUMN,):
            page.lose_on_host(column)


def _check_removal_alone(
    state: ObservedState, event: BlockRemoved, page: PageRecord | None
) -> None:
    """Check a removal against the events before it."""
    resident = state.residency.on(event.medium)
    state.check(
        "EVENT-2",
        event.block_hash in resident,
        lambda: f"{_removal_text(page, event)}, where it was not",
    )
    state.residency.fold(event)


def _check_children_left(state: ObservedState, event: BlockRemoved, *, of_its_node: bool) -> None:
    """Check that no page below a removed one stays, unless both may be of the same node."""
    page = state.pages.by_hash.get(event.block_hash)
    if page is None or (event.medium is CPU and not state.config.backed_parents):
        return
    resident = state.residency.on(event.medium)
    left = [
        child
        for child in page.children.values()
        if child.hash in resident and (of_its_node or not may_be_one_node(page, child))
    ]
    gone = event.block_hash not in resident
    state.check(
        "EVENT-12",
        not (left and gone),
        lambda: f"{_removal_text(page, event)} before the page after it",
        met=bool(page.children),
    )


def _check_copy_stays(
    state: ObservedState, operation: Operation, event: BlockRemoved, page: PageRecord
) -> None:
    """Check that an eviction from the device leaves host copies, except under write_back."""
    if isinstance(operation, Evict | LoadBack) and not state.writes_back:
        state.check(
            "EVICT-5",
            event.medium is not CPU,
            lambda: f"{_removal_text(page, event)} by an eviction from the device",
            met=page.host[FULL_COLUMN] is Certainty.YES,
        )


def _removal_text(page: PageRecord | None, event: BlockRemoved) -> str:
    unknown = f"a page that was never inserted (hash {event.block_hash.hex()[:12]})"
    what = page.describe() if page is not None else unknown
    return f"{what} was removed from {event.medium}"
