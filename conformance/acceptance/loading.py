"""Loading and settling: copies, from the enqueue to the acknowledgement.

What readers get wrong: a load takes slots before anyone is told which. They are known to be taken,
and become those of pages when a match names them.
"""

from __future__ import annotations

from collections import Counter

from kvcanon.conformance.acceptance.books import Books, OpenTransfer
from kvcanon.conformance.acceptance.evicting import after_making_room, check_closed
from kvcanon.conformance.acceptance.pages import (
    ALL_COLUMNS,
    FULL_COLUMN,
    MAMBA_COLUMN,
    SOMEWHERE,
    SWA_COLUMN,
    Column,
    Known,
    PageBook,
)
from kvcanon.conformance.acceptance.slots import COMPONENTS, LOADING
from kvcanon.spec.operations import Flush, LoadBack, LoadDecision, LoadedBack, Poll, Settled
from kvcanon.spec.transfer import Direction, TransferStatus
from kvcanon.spec.types import TransferId


def after_load_back(books: Books, operation: LoadBack, outcome: LoadedBack) -> None:
    """Full data was evicted only for want of full slots; what is loaded has slots now."""
    path = books.pages.path(operation.key)
    loading, evicted = outcome.loading, outcome.evicted
    if outcome.decision is LoadDecision.ENQUEUED:
        short = [
            column in books.slots.blind or loading[component] > books.slots.free_count(column)
            for column, component in enumerate(COMPONENTS)
        ]
        free = [books.slots.free_count(column) for column in ALL_COLUMNS]
        books.check(
            "LOAD-1",
            any(short) or not evicted,
            f"a load of {loading} evicted {evicted}, with {free[0]} full, {free[1]} window and "
            f"{free[2]} state slots free",
            met=bool(loading),
        )
        if short[FULL_COLUMN] and not any(short[1:]):
            largest = loading.full - free[0]
            books.check(
                "LOAD-1",
                evicted.full >= largest,
                f"a load of {loading.full} full slots with {free[0]} free evicted {evicted.full}",
            )
    victims: list[list[PageBook]] = [[], [], []]
    for column in books.columns:
        component = COMPONENTS[column]
        victims[column] = books.reconcile(column, evicted[component], loading[component])
    locked = {page for held in books.receipts.values() for page in held.path}
    for page in victims[FULL_COLUMN]:
        name = page.describe()
        text = f"{name} was evicted by a load while locked"
        books.check("LOCK-4", page not in locked, text, met=bool(locked))
        books.check("LOAD-2", page not in path, f"{name} was evicted by its own load")
    check_closed(books, victims)
    after_making_room(books)
    if books.violations or outcome.decision is not LoadDecision.ENQUEUED:
        return
    loads = [
        (page, column)
        for column in books.columns
        for page in _loaded_pages(books, path, column, loading[COMPONENTS[column]])
    ]
    for page, column in loads:
        blind = column in books.slots.blind
        page.device[column] = SOMEWHERE
        page.loading[column] = not blind and not books.loads_are_of_use
        page.doubtful[column] |= blind
        page.used_to[column] = books.now
    if outcome.transfer_id is not None:
        taken = Counter(
            {c: loading[COMPONENTS[c]] for c in books.columns if loading[COMPONENTS[c]]}
        )
        books.transfers[outcome.transfer_id] = OpenTransfer(Direction.LOAD_BACK, path, loads, taken)
    books.may_cut(path)


def _loaded_pages(books: Books, path: list[PageBook], column: Column, count: int) -> list[PageBook]:
    """The pages whose data is loaded: what the end of the path needs and the device lacks."""
    if not count:
        return []
    begin = {FULL_COLUMN: 0, SWA_COLUMN: books.window_from(len(path)), MAMBA_COLUMN: len(path) - 1}
    concerned = path[begin[column] :]
    lacking = _lacking(concerned, column)
    if len(lacking) < count or not books.profile.window_lock_exact:
        # More may come than the end needs: whole nodes, as some caches load them.
        concerned = path
        lacking = _lacking(path, column)
    in_doubt = [page for page in concerned if page.doubtful[column]]
    for page in in_doubt:
        # It is where it was, or it was gone and comes back somewhere else.
        page.device[column] = SOMEWHERE
        mine = [slot for slot, owner in books.slots.pages_in(column) if owner is page]
        books.slots.give(column, mine, LOADING)
    whole_nodes = column == SWA_COLUMN and not books.profile.window_lock_exact
    if in_doubt or len(lacking) != count or whole_nodes:
        # Which of them are loaded is in doubt; so is what becomes of them.
        for page in lacking:
            page.doubtful[column] = True
    return lacking


def _lacking(pages: list[PageBook], column: Column) -> list[PageBook]:
    """The pages whose data is not on the device, and may be on the host."""
    return [
        page for page in pages if page.device[column] is None and page.host[column] is not Known.NO
    ]


def after_settling(books: Books, operation: Poll | Flush, outcome: Settled) -> None:
    """Copies end after those that they build on, each once; what failed is where it was before."""
    came_free: Counter[Column] = Counter()
    there_were = bool(books.transfers)
    for transfer_id, status in outcome.transfers:
        enqueued = list(books.transfers)
        transfer = books.transfers.pop(transfer_id, None)
        books.check(
            "ASYNC-1",
            transfer is not None or books.writes_back,
            f"transfer {transfer_id} settled, which was not in flight",
            met=False,
        )
        if transfer is None:
            continue
        earlier = [
            other_id
            for other_id in enqueued[: enqueued.index(transfer_id)]
            if status is not TransferStatus.CANCELLED
            and _surely_builds_on(books, transfer, books.transfers[other_id])
        ]
        beside = any(each.direction is transfer.direction for each in books.transfers.values())
        text = f"transfer {transfer_id} settled before {earlier[:1]}, on which it builds"
        books.check("ASYNC-1", not earlier, text, met=beside)
        came_free += _settle(books, transfer_id, transfer, status)
        if not books.profile.loads_keep_host_copies and transfer.direction is Direction.LOAD_BACK:
            books.doubt_host(ALL_COLUMNS)
    for column in books.columns if came_free.total() else ():
        books.reconcile(column, came_free[column])
    if isinstance(operation, Flush):
        books.check(
            "ASYNC-6",
            not books.transfers,
            f"after a flush {len(books.transfers)} transfers are in flight",
            met=there_were,
        )


def _surely_builds_on(books: Books, later: OpenTransfer, earlier: OpenTransfer) -> bool:
    """Whether a copy is of data at or below what another of its direction copies in full.

    Which nodes of a path are backed up is not seen. Of the copies of one insert to an empty host
    each is below the one before; and where there is full data alone, all are below those that were
    backed up before on the same path.
    """
    if later.direction is not earlier.direction or earlier.may_be_cancelled:
        return False
    if later.direction is Direction.BACKUP:
        if not books.config.backed_parents:
            return False
        batch, only_full = later.batch, books.columns == (FULL_COLUMN,)
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
    books: Books, transfer_id: TransferId, transfer: OpenTransfer, status: TransferStatus
) -> Counter[Column]:
    """What a copy brought is there, or its slots come free again; how many, by component."""
    if status is TransferStatus.CANCELLED:
        books.check(
            "ASYNC-5",
            transfer.may_be_cancelled,
            f"transfer {transfer_id} was cancelled, and none on which it builds has failed",
        )
    if status is TransferStatus.FAILED:
        _cancel_what_builds_on(books, transfer)
    if transfer.direction is Direction.BACKUP:
        _settle_backup(books, transfer, done=status is TransferStatus.DONE)
        return Counter()
    for page, column in transfer.loads:
        page.loading[column] = False
        # Where it is in doubt which pages were loaded, another load may have brought this one.
        if status is not TransferStatus.DONE and not page.doubtful[column]:
            page.lose(column)
    return Counter() if status is TransferStatus.DONE else transfer.slots_taken


def _settle_backup(books: Books, transfer: OpenTransfer, *, done: bool) -> None:
    """Once all copies of an insert are done, all that its new host pages had is on the host."""
    batch = transfer.batch
    if not done:
        for page in transfer.path:
            books.due.pop(page, None)
        if batch is not None:
            batch.items.clear()
    elif batch is not None:
        batch.open_copies -= 1
        for page, column in batch.items if not batch.open_copies else ():
            if page.host[FULL_COLUMN] is Known.YES:
                page.host[column] = Known.YES


def _cancel_what_builds_on(books: Books, failed: OpenTransfer) -> None:
    """Copies further down forget their pages at once; their slots come free when they end."""
    filled = {page for page, column in failed.loads if column == FULL_COLUMN}
    for other in books.transfers.values():
        if other.direction is failed.direction and not set(failed.path).isdisjoint(other.path):
            other.may_be_cancelled = True
            deepest = max((page.depth for page, _ in other.loads), default=-1)
            if not filled.isdisjoint(other.path[: deepest + 1]):
                for page, column in other.loads:
                    page.loading[column] = False
                    if not page.doubtful[column]:
                        page.lose(column)
                other.loads = []


def check_due(books: Books) -> None:
    """Once nothing is in flight, all that was hit often enough is on the host, or was declined."""
    if books.transfers or not books.due:
        return
    for page in books.due:
        books.check(
            "RES-5",
            page.host[FULL_COLUMN] is Known.YES,
            f"{page.describe()} was hit {page.hits} times and has no host copy, no copy is in "
            "flight, and no insert said that the host had no room for it",
        )
    books.due.clear()
