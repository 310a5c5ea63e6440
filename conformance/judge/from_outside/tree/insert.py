"""Checks of inserts: each inserted slot becomes its page's slot, or is free.

The cache may choose which of two slots a page keeps. No page has two slots.
"""

from __future__ import annotations

from collections.abc import Mapping

from kvcanon.conformance.judge.from_outside.tree.pages import (
    ALL_COLUMNS,
    FULL_COLUMN,
    MAMBA_COLUMN,
    SOMEWHERE,
    SWA_COLUMN,
    Certainty,
    Column,
    PageRecord,
    present_pages,
)
from kvcanon.conformance.judge.from_outside.tree.slots import COMPONENTS, LOADING
from kvcanon.conformance.judge.from_outside.tree.state import Batch, ObservedState, OpenTransfer
from kvcanon.spec.config import Choosing
from kvcanon.spec.operations import HostInserted, Insert, Inserted, InsertHost
from kvcanon.spec.transfer import Direction
from kvcanon.spec.types import Slot


def after_insert(state: ObservedState, operation: Insert, outcome: Inserted) -> None:
    """Check the slots and the key's presence on the device, and note the copies enqueued."""
    path = state.pages.path_made(operation.key, state.now)
    _check_held(state, operation)
    if state.has_failed():
        return
    _check_present(state, path, outcome)
    for column in state.columns:
        component = COMPONENTS[column]
        handed = operation.slots[component]
        adopted, freed = outcome.adopted[component], outcome.freed[component]
        state.check(
            "ALLOC-3",
            adopted + freed == len(handed),
            f"of {len(handed)} {component} slots an insert adopted {adopted} and freed {freed}",
            met=bool(handed),
        )
        if not state.has_failed():
            pages = [path[at] for at in operation.pages_of(component)]
            _place(state, column, pages, handed, freed)
    if state.has_failed():
        return
    _check_found(state, path, operation)
    if all(page.device[FULL_COLUMN] is not None for page in path):
        state.use_prefix(path, len(path))
    else:
        # A leaf was dropped, so its window may not have become recent.
        state.may_use(path)
    _count_hits(state, path, operation)
    _follow_backups(state, path, outcome)


def _check_held(state: ObservedState, operation: Insert) -> None:
    """Check that requests hold all of the slots, and that each is given once."""
    for column, component in enumerate(COMPONENTS):
        some = operation.slots[component]
        if not some:
            continue
        text = f"{component} slots {some} were taken over, one of them twice"
        state.check("ALLOC-1", len(set(some)) == len(some), text, met=False)
        state.check_held(column, some, "taken over")


def _check_present(state: ObservedState, path: list[PageRecord], outcome: Inserted) -> None:
    counts = [
        present_pages(path, has)
        for has in (PageRecord.surely_on_device, PageRecord.maybe_on_device)
    ]
    state.check(
        "MATCH-6",
        counts[0] <= outcome.present_pages <= counts[1],
        f"an insert found {outcome.present_pages} pages of its {len(path)} on the device; "
        f"{counts[0]} were there",
        met=counts[0] > 0,
    )


def _place(
    state: ObservedState,
    column: Column,
    pages: list[PageRecord],
    handed: tuple[Slot, ...],
    freed: int,
) -> None:
    """Find the slots that came free, and assign the others to their pages."""
    component, slots = COMPONENTS[column], state.slots
    if column in slots.unseen:
        _place_unseen(state, column, pages, handed)
        return
    expected = slots.free_count(column) + freed
    seen = slots.free_list(column, expected)
    freed_text = f"an insert freed {freed} {component} slots"
    text = f"{freed_text}, so that {expected} should be free; {seen.in_words}"
    state.check("ALLOC-3", seen.right, text, met=bool(handed))
    _check_locked_stay(state, column, seen.slots)
    for page, slot in zip(pages, handed, strict=True):
        if slot in seen.slots:
            slots.free(column, (slot,))
        else:
            _give_up_replaced(state, column, page, seen.slots)
            _adopt(state, column, page, slot)
    for slot, page in slots.pages_in(column):
        if slot in seen.slots:
            state.lost(column, slot, page)


def _check_locked_stay(state: ObservedState, column: Column, free: frozenset[Slot]) -> None:
    """Check that an insert frees no slot that a request reads, also where new slots heal pages."""
    locked = [page for page in state.surely_locked(column) if page.device[column] in free]
    state.check_each(
        "LOCK-4",
        len(state.receipts),
        [page for page in locked if not page.doubtful[column]],
        lambda page: (
            f"an insert freed the {COMPONENTS[column]} slot of {page.describe(column)}, which a "
            "request has locked"
        ),
        met=False,
    )


def _place_unseen(
    state: ObservedState, column: Column, pages: list[PageRecord], handed: tuple[Slot, ...]
) -> None:
    """Note that pages have data, in these slots or in those they had before."""
    for page, slot in zip(pages, handed, strict=True):
        state.slots.free(column, (slot,))
        new = page.device[column] is None and page.host[column] is Certainty.NO
        page.device[column], page.doubtful[column] = SOMEWHERE, True
        page.use(column, state.now, surely=False)
        data = state.written[column].pop(slot, None)
        # A page that had unknown bytes may keep them.
        known = data is not None and (new or page.content[column])
        page.content[column] = page.content[column] | {data} if known and data else set()


def _give_up_replaced(
    state: ObservedState, column: Column, page: PageRecord, free: frozenset[Slot]
) -> None:
    """Note that a page's old full slot is free, if the cache heals pages with new slots."""
    had = page.device[column]
    if column != FULL_COLUMN or state.profile.heals_in_place or had is None:
        return
    owners = state.slots.owners[column]
    if had == SOMEWHERE:
        # It is not known which slot it was, only that a load took it.
        had = next((slot for slot in sorted(free) if owners.get(slot) is LOADING), had)
    if had in free and owners.get(had) in (page, LOADING):
        page.device[column] = None
        state.slots.free(column, (had,))


def _adopt(state: ObservedState, column: Column, page: PageRecord, slot: Slot) -> None:
    earlier = page.device[column]
    state.check(
        "ALLOC-1",
        earlier is None or page.doubtful[column],
        lambda: (
            f"an insert took {COMPONENTS[column]} slot {slot} for {page.describe(column)}, which "
            "has a slot already"
        ),
    )
    if earlier is not None and earlier != SOMEWHERE:
        # The page lost that slot without an answer, and a load took it since.
        state.slots.give(column, (earlier,), LOADING)
    new = page.host[column] is Certainty.NO
    page.device[column] = slot
    state.is_not_loading(column, page)
    state.slots.give(column, (slot,), page)
    page.use(column, state.now, surely=new)
    data = state.written[column].pop(slot, None)
    if data is None:
        page.content[column].clear()
    elif new or page.content[column]:
        page.content[column].add(data)


def _check_found(state: ObservedState, path: list[PageRecord], operation: Insert) -> None:
    """Check that the key's full data and the other inserted data are on the device."""
    handed = {column: list(operation.pages_of(COMPONENTS[column])) for column in state.columns}
    handed[FULL_COLUMN] = list(range(len(path)))
    if SWA_COLUMN in handed and not state.profile.unreachable_windows_kept:
        reached = state.window_from(len(path))
        handed[SWA_COLUMN] = [at for at in handed[SWA_COLUMN] if at >= reached]
    if _may_drop_leaf(state, operation) or state.profile.admission is Choosing.OWN:
        return
    inner = [at for at in handed.get(MAMBA_COLUMN, ()) if at < len(path) - 1]
    if inner:
        handed[MAMBA_COLUMN] = [at for at in handed[MAMBA_COLUMN] if at not in inner]
        _check_kept(state, {MAMBA_COLUMN: _due_states(state, inner)}, path, "MATCH-8")
    _check_kept(state, handed, path, "MATCH-6")


def _check_kept(
    state: ObservedState, due: Mapping[Column, list[int]], path: list[PageRecord], law_id: str
) -> None:
    """Check that pages of an inserted key have data on the device."""
    lacking = [
        (column, path[at])
        for column, pages in due.items()
        for at in pages
        if path[at].device[column] is None
    ]
    state.check_each(
        law_id,
        sum(map(len, due.values())),
        lacking,
        lambda each: (
            f"after an insert {each[1].describe()} has no {COMPONENTS[each[0]]} data on the device"
        ),
    )


def _due_states(state: ObservedState, inner: list[int]) -> list[int]:
    """The pages before the end at which an insert must keep the states that it is handed."""
    return [] if state.profile.path_states else inner


def _may_drop_leaf(state: ObservedState, operation: Insert) -> bool:
    """Whether a cache may free the slots of a leaf because it has no window data."""
    windows = SWA_COLUMN in state.columns and not operation.slots.swa
    return windows and not state.profile.tombstone_leaves


def _count_hits(state: ObservedState, path: list[PageRecord], operation: Insert) -> None:
    # A cache that does not check the number may serve a negative one.
    counted = max(0, operation.counted_pages) if state.profile.hits_once_a_request else 0
    run = path[counted].run if counted < len(path) else None
    for page in path:
        new = page.run == state.now
        page.priority = operation.priority if new else max(page.priority, operation.priority)
        if state.profile.hits_counted_at_match:
            continue
        if state.profile.admission is Choosing.OWN:
            # It may not have counted as a use.
            page.hits_at_most, page.hazy = page.hits_at_most + 1, True
        elif page.depth >= counted:
            page.hits += 1
            page.hits_at_most += 1
        elif page.run == run:
            page.hits_at_most += 1


def _follow_backups(state: ObservedState, path: list[PageRecord], outcome: Inserted) -> None:
    """Note which copies are in flight, and which pages must be on the host afterwards."""
    if outcome.backups or outcome.backup_declined_pages:
        # Host data may have been evicted for the copies, without an answer.
        state.doubt_host(ALL_COLUMNS)
    aux = [column for column in state.columns if column != FULL_COLUMN]
    items = [
        (page, column)
        for page in path
        for column in aux
        if page.host[FULL_COLUMN] is Certainty.NO and page.surely_on_device(column)
    ]
    # Where copies were declined or are in flight already, an insert need not copy all data.
    busy = any(each.direction is Direction.BACKUP for each in state.transfers.values())
    whole = state.takes_events and not outcome.backup_declined_pages and not busy
    # Where nothing was on the host before, there was no window data to be copied later.
    is_chain = not busy and all(page.host[FULL_COLUMN] is Certainty.NO for page in path)
    batch = Batch(len(outcome.backups), items if whole else [], is_chain)
    for transfer_id in outcome.backups:
        state.check(
            "ASYNC-1",
            transfer_id not in state.transfers,
            f"transfer {transfer_id} was enqueued twice",
            met=False,
        )
        state.transfers[transfer_id] = OpenTransfer(Direction.BACKUP, path, batch=batch)
    for page in path if outcome.backups else ():
        for column in state.columns:
            if page.device[column] is not None:
                state.may_be_on_host(column, page)
    if outcome.backup_declined_pages:
        _check_declined(state, path, outcome.backup_declined_pages)
    _note_due(state, path, outcome)


def _note_due(state: ObservedState, path: list[PageRecord], outcome: Inserted) -> None:
    """Note the pages that must have a host copy once all copies settled, unless declined."""
    threshold = state.config.backup_hits
    if threshold is None or not state.takes_events:
        return
    for page in path:
        if outcome.backup_declined_pages:
            state.due.pop(page, None)
        elif page.device[FULL_COLUMN] is None:
            continue  # It was dropped.
        elif page.hits >= threshold and page.host[FULL_COLUMN] is not Certainty.YES:
            state.due[page] = None


def _check_declined(state: ObservedState, path: list[PageRecord], declined: int) -> None:
    """Check that copies are declined only where the path does not fit into free host slots."""
    free = state.slots.free_on_host()
    if free is None:
        return
    needed = [sum(page.maybe_on_device(column) for page in path) for column in ALL_COLUMNS]
    state.check(
        "RES-5",
        any(free[column] < needed[column] for column in state.columns),
        f"{declined} pages were declined a host copy, while the host has {free[0]} full, {free[1]} "
        f"window and {free[2]} state slots free, and all of the path needs {needed}",
    )


def after_insert_host(state: ObservedState, operation: InsertHost, outcome: HostInserted) -> None:
    """Check that the counts cover every page given, and note which may be on the host now."""
    path = state.pages.path_made(operation.key, state.now)
    given = len(path) - operation.start_pages
    counts = (
        outcome.placed_pages,
        outcome.refilled_pages,
        outcome.present_pages,
        outcome.dropped_pages,
    )
    state.check(
        "RES-9",
        sum(counts) == given and min(counts) >= 0,
        f"of {given} pages {counts[0]} were placed, {counts[1]} refilled, {counts[2]} present and "
        f"{counts[3]} dropped",
        met=given > 0,
    )
    if state.takes_events:
        state.check(
            "RES-9",
            counts[0] + counts[1] == state.stored_on_host,
            f"{counts[0]} pages were placed and {counts[1]} refilled, and events "
            f"put {state.stored_on_host} on the host",
            met=given > 0,
        )
    # Host data may have been evicted for these pages; events show full data only.
    state.doubt_host(ALL_COLUMNS)
    payloads = (operation.payload.full, operation.payload.swa, operation.payload.mamba)
    for column in state.columns:
        some = payloads[column]
        for page, data in zip(path[len(path) - len(some) :], some, strict=True):
            known = page.content[column] or not page.maybe_anywhere(column)
            if page.run == state.now:
                page.use(FULL_COLUMN, state.now)
            if column == FULL_COLUMN or page.host[FULL_COLUMN] is not Certainty.NO:
                state.may_be_on_host(column, page)
            if known:
                page.content[column].add(data)
            if column != FULL_COLUMN:
                page.use(column, state.now, surely=False)
    state.may_cut(path)
