"""Checks of load-backs and settled transfers: copies from the enqueue to the acknowledgement.

A load takes slots that its answer does not name. They count as taken, and get their pages when a
match returns them.
"""

from __future__ import annotations

from collections import Counter

from kvcanon.conformance.judge.from_outside.tree.evict import after_making_room, check_closed
from kvcanon.conformance.judge.from_outside.tree.pages import (
    ALL_COLUMNS,
    FULL_COLUMN,
    MAMBA_COLUMN,
    SOMEWHERE,
    SWA_COLUMN,
    Certainty,
    Column,
    PageRecord,
)
from kvcanon.conformance.judge.from_outside.tree.slots import COMPONENTS, LOADING
from kvcanon.conformance.judge.from_outside.tree.state import ObservedState, OpenTransfer
from kvcanon.spec.operations import Flush, LoadBack, LoadDecision, LoadedBack, Poll, Settle, Settled
from kvcanon.spec.transfer import Direction, TransferStatus
from kvcanon.spec.types import TransferId


def after_load_back(state: ObservedState, operation: LoadBack, outcome: LoadedBack) -> None:
    """Check that a load evicted only for lack of free slots, and note the slots that it took."""
    asked_pages, pages = len(operation.key), outcome.pages
    path = state.pages.path(operation.key)[:pages]
    loading, evicted = outcome.loading, outcome.evicted
    enqueued = outcome.decision is LoadDecision.ENQUEUED
    in_part = enqueued and not state.profile.loads_whole_keys
    state.check(
        "LOAD-6",
        pages is None or (in_part and 0 < pages < asked_pages),
        f"the answer to a load of {asked_pages} pages, {outcome.decision}, is for {pages} "
        "leading pages",
        met=enqueued,
    )
    if enqueued:
        short = [
            column in state.slots.unseen or loading[component] > state.slots.free_count(column)
            for column, component in enumerate(COMPONENTS)
        ]
        free = [state.slots.free_count(column) for column in ALL_COLUMNS]
        state.check(
            "LOAD-1",
            any(short) or not evicted,
            f"a load of {loading} evicted {evicted}, with {free[0]} full, {free[1]} window and "
            f"{free[2]} state slots free",
            met=bool(loading),
        )
        if short[FULL_COLUMN] and not any(short[1:]):
            largest = loading.full - free[0]
            state.check(
                "LOAD-1",
                evicted.full >= largest,
                f"a load of {loading.full} full slots with {free[0]} free evicted {evicted.full}",
            )
    victims: list[list[PageRecord]] = [[], [], []]
    for column in state.columns:
        component = COMPONENTS[column]
        victims[column] = state.reconcile(column, evicted[component], loading[component])
    locked = {page for held in state.receipts.values() for page in held.path}
    for page in victims[FULL_COLUMN]:
        name = page.describe()
        text = f"{name} was evicted by a load while locked"
        state.check("LOCK-4", page not in locked, text, met=bool(locked))
        state.check("LOAD-2", page not in path, f"{name} was evicted by its own load")
    check_closed(state, victims)
    after_making_room(state)
    if state.has_failed() or not enqueued:
        return
    loads = [
        (page, column)
        for column in state.columns
        for page in _loaded_pages(state, path, column, loading[COMPONENTS[column]])
    ]
    for page, column in loads:
        unseen = column in state.slots.unseen
        page.device[column] = SOMEWHERE
        page.loading[column] = not unseen and not state.loads_usable_at_once
        page.doubtful[column] |= unseen
        page.used_to[column] = state.now
    if outcome.transfer_id is not None:
        taken = Counter(
            {c: loading[COMPONENTS[c]] for c in state.columns if loading[COMPONENTS[c]]}
        )
        state.transfers[outcome.transfer_id] = OpenTransfer(Direction.LOAD_BACK, path, loads, taken)
    state.may_cut(path)


def _loaded_pages(
    state: ObservedState, path: list[PageRecord], column: Column, count: int
) -> list[PageRecord]:
    """Return the loaded pages: the end of the path needs their data, and the device lacks it."""
    if not count:
        return []
    begin = {
        FULL_COLUMN: 0,
        SWA_COLUMN: state.window_from(len(path)),
        MAMBA_COLUMN: len(path) - 1,
    }
    concerned = path[begin[column] :]
    lacking = _lacking(concerned, column)
    if len(lacking) < count or not state.profile.window_lock_exact:
        # Some caches load whole nodes, which is more than the end of the path needs.
        concerned = path
        lacking = _lacking(path, column)
    in_doubt = [page for page in concerned if page.doubtful[column]]
    for page in in_doubt:
        # The data is in its old slot, or it was evicted and is loaded into another slot.
        page.device[column] = SOMEWHERE
        mine = [slot for slot, owner in state.slots.pages_in(column) if owner is page]
        state.slots.give(column, mine, LOADING)
    whole_nodes = column == SWA_COLUMN and not state.profile.window_lock_exact
    if in_doubt or len(lacking) != count or whole_nodes:
        # It is not known which of these pages are loaded.
        for page in lacking:
            page.doubtful[column] = True
    return lacking


def _lacking(pages: list[PageRecord], column: Column) -> list[PageRecord]:
    """Return the pages whose data is not on the device and may be on the host."""
    return [
        page
        for page in pages
        if page.device[column] is None and page.host[column] is not Certainty.NO
    ]


def after_settling(
    state: ObservedState, operation: Settle | Poll | Flush, outcome: Settled
) -> None:
    """Check that copies end once, and after those that they build on; undo those that failed."""
    came_free: Counter[Column] = Counter()
    there_were = bool(state.transfers)
    for transfer_id, status in outcome.transfers:
        enqueued = list(state.transfers)
        transfer = state.transfers.pop(transfer_id, None)
        state.check(
            "ASYNC-1",
            transfer is not None or state.writes_back,
            f"transfer {transfer_id} settled, which was not in flight",
            met=False,
        )
        if transfer is None:
            continue
        earlier = [
            other_id
            for other_id in enqueued[: enqueued.index(transfer_id)]
            if status is not TransferStatus.CANCELLED
            and _surely_builds_on(state, transfer, state.transfers[other_id])
        ]
        beside = any(each.direction is transfer.direction for each in state.transfers.values())
        text = f"transfer {transfer_id} settled before {earlier[:1]}, on which it builds"
        state.check("ASYNC-1", not earlier, text, met=beside)
        came_free += _settle(state, transfer_id, transfer, status)
        if not state.profile.loads_keep_host_copies and transfer.direction is Direction.LOAD_BACK:
            state.doubt_host(ALL_COLUMNS)
    for column in state.columns if came_free.total() else ():
        state.reconcile(column, came_free[column])
    if isinstance(operation, Flush):
        state.broken_off = False
        state.check(
            "ASYNC-6",
            not state.transfers,
            f"after a flush {len(state.transfers)} transfers are in flight",
            met=there_were,
        )


def _surely_builds_on(state: ObservedState, later: OpenTransfer, earlier: OpenTransfer) -> bool:
    """Whether a copy surely is of pages at or below those of an earlier copy in its direction.

    Answers do not show which nodes of a path are backed up. Of the copies of one insert to an empty
    host each is below the one before. With full data alone, every copy is below earlier backups on
    the same path.
    """
    if later.direction is not earlier.direction or earlier.may_be_cancelled:
        return False
    if later.direction is Direction.BACKUP:
        if not state.config.backed_parents:
            return False
        batch, only_full = later.batch, state.columns == (FULL_COLUMN,)
        is_chain = batch is not None and batch is earlier.batch and batch.is_chain
        return is_chain or (only_full and set(earlier.path) <= set(later.path))
    filled = {page for page, column in earlier.loads if column == FULL_COLUMN}
    surely = {page for page in filled if not page.doubtful[FULL_COLUMN]}
    return any(
        not surely.isdisjoint(later.path[: page.depth + 1])
        for page, column in later.loads
        if not page.doubtful[column]
    )


def _settle(
    state: ObservedState, transfer_id: TransferId, transfer: OpenTransfer, status: TransferStatus
) -> Counter[Column]:
    """Note the end of a copy; returns how many slots of each component a failed load frees."""
    if status is TransferStatus.CANCELLED:
        state.check(
            "ASYNC-5",
            transfer.may_be_cancelled,
            f"transfer {transfer_id} was cancelled, and none on which it builds has failed",
        )
    if status is TransferStatus.FAILED:
        _cancel_what_builds_on(state, transfer)
    if transfer.direction is Direction.BACKUP:
        _settle_backup(state, transfer, done=status is TransferStatus.DONE)
        return Counter()
    for page, column in transfer.loads:
        page.loading[column] = False
        # A doubtful page may have been loaded by another load.
        if status is not TransferStatus.DONE and not page.doubtful[column]:
            page.lose(column)
    return Counter() if status is TransferStatus.DONE else transfer.slots_taken


def _settle_backup(state: ObservedState, transfer: OpenTransfer, *, done: bool) -> None:
    """Note a backup's end. After the last of an insert, all data of its pages is on the host."""
    batch = transfer.batch
    if not done:
        for page in transfer.path:
            state.due.pop(page, None)
        if batch is not None:
            batch.items.clear()
    elif batch is not None:
        batch.open_copies -= 1
        for page, column in batch.items if not batch.open_copies else ():
            if page.host[FULL_COLUMN] is Certainty.YES:
                page.host[column] = Certainty.YES


def _cancel_what_builds_on(state: ObservedState, failed: OpenTransfer) -> None:
    """Note that copies further down may be cancelled, and that these loads bring no data."""
    filled = {page for page, column in failed.loads if column == FULL_COLUMN}
    for other in state.transfers.values():
        if other.direction is failed.direction and not set(failed.path).isdisjoint(other.path):
            other.may_be_cancelled = True
            deepest = max((page.depth for page, _ in other.loads), default=-1)
            if not filled.isdisjoint(other.path[: deepest + 1]):
                for page, column in other.loads:
                    page.loading[column] = False
                    if not page.doubtful[column]:
                        page.lose(column)
                other.loads = []


def check_due(state: ObservedState) -> None:
    """Check that pages with enough hits have a host copy, once no copy is in flight."""
    if state.transfers or not state.due:
        return
    for page in state.due:
        state.check(
            "RES-5",
            page.host[FULL_COLUMN] is Certainty.YES,
            f"{page.describe()} was hit {page.hits} times and has no host copy, no copy is in "
            "flight, and no insert said that the host had no room for it",
        )
    state.due.clear()
