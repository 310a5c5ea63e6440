"""Observed state of a tree cache: what its answers, events and bytes have shown so far.

The checks of one operation read this state, report contradictions, and update it.

It does not predict what the cache should choose. It records what the cache did choose, and bounds
where the choice was not visible.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TypeAlias, TypeVar

from attrs import Factory, define, field

from kvcanon.conformance.judge.answers import Read
from kvcanon.conformance.judge.from_outside.checks import Checks
from kvcanon.conformance.judge.from_outside.tree.pages import (
    ALL_COLUMNS,
    FULL_COLUMN,
    MAMBA_COLUMN,
    SOMEWHERE,
    SWA_COLUMN,
    Certainty,
    Column,
    PageRecord,
    PageRecords,
    columns_of,
)
from kvcanon.conformance.judge.from_outside.tree.slots import COMPONENTS, HELD, LOADING, SlotRecords
from kvcanon.spec.config import CacheConfig, Choosing, MambaRefresh, Profile, StoreMoment
from kvcanon.spec.events import Residency
from kvcanon.spec.operations import Receipt
from kvcanon.spec.oracle.window import window_start
from kvcanon.spec.transfer import Direction
from kvcanon.spec.types import GPU, ReceiptId, Slot, TransferId, WritePolicy

Text: TypeAlias = str | Callable[[], str]
"""A text, or a function that makes it: most texts are never needed."""

Wrong = TypeVar("Wrong")


def words(text: Text) -> str:
    """Return the text itself."""
    return text if isinstance(text, str) else text()


@define(eq=False)
class OpenReceipt:
    """A lock that a request holds."""

    receipt: Receipt
    path: list[PageRecord]
    window_from: int
    """The first page whose window data it holds; the length of the path if it holds none."""
    state_held: bool


@define(eq=False)
class Batch:
    """The copies that one insert enqueued, and the data that is on the host when all are done."""

    open_copies: int
    items: list[tuple[PageRecord, Column]]
    is_chain: bool
    """Whether each copy surely is of nodes below those of the copy before."""


@define(eq=False)
class OpenTransfer:
    """A copy in flight, and the pages that it may lock."""

    direction: Direction
    path: list[PageRecord]
    """Includes the copied pages; any of these pages may be locked."""
    loads: list[tuple[PageRecord, Column]] = Factory(list)
    """Data that is on the device when the load is done."""
    slots_taken: Counter[Column] = Factory(Counter)
    """How many device slots it took."""
    batch: Batch | None = None
    """The copies to the host that it was enqueued with."""
    may_be_cancelled: bool = False
    """Whether a copy of pages that it may build on has failed."""


@define(eq=False)
class ObservedState:
    """All that is known of a cache."""

    config: CacheConfig
    profile: Profile
    slots: SlotRecords
    checks: Checks
    takes_events: bool
    """Whether the guard takes events after each operation."""
    read: Read | None
    """Reads the bytes of a slot; None if the cache lacks reads."""
    pages: PageRecords = Factory(PageRecords)
    receipts: dict[ReceiptId, OpenReceipt] = Factory(dict)
    transfers: dict[TransferId, OpenTransfer] = Factory(dict)
    due: dict[PageRecord, None] = Factory(dict)
    """Pages with enough hits for a backup that no insert declined."""
    residency: Residency = Factory(Residency)
    """The hashes of the pages on each medium, by the events."""
    written: tuple[dict[Slot, bytes], ...] = Factory(lambda: ({}, {}, {}))
    """The bytes that requests wrote into their slots, by column."""
    compared: set[tuple[PageRecord, Column]] = Factory(set)
    """Data whose bytes were compared since the last operation other than a match."""
    free_host_slots: list[int] | None = None
    """Free host slots before an eviction; None if the cache does not show them."""
    copies_failed: bool = False
    """Whether a copy failed that this operation waited for."""
    broken_off: bool = False
    """Whether the engine raised while an eviction waited for a copy.

    No answer names the copy, and until a flush it may be in flight.
    """
    host_leaves: list[PageRecord] = Factory(list)
    """The pages that an eviction from the host may choose from, recorded before it."""
    stored_on_host: int = 0
    """How many pages this operation stored on the host, by its events."""
    now: int = 0
    """The number of the operation, counted from the start."""
    columns: tuple[Column, ...] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.columns = columns_of(self.config.components)

    def has_failed(self) -> bool:
        """Whether this operation broke a law so far, also one that is not checked."""
        return self.checks.failed

    def open_receipt(self, receipt: Receipt) -> OpenReceipt | None:
        """The open lock of a receipt; None if it is not open, or not of that key."""
        found = self.receipts.get(receipt.receipt_id)
        return found if found is not None and found.receipt == receipt else None

    def check(self, law_id: str, holds: bool, text: Text = "", *, met: bool = True) -> None:
        """Note whether a law holds, and whether a faulty cache could have broken it here."""
        self.checks.note(law_id, None if holds else words(text), met=met)

    def check_each(
        self,
        law_id: str,
        count: int,
        wrong: Iterable[Wrong],
        text: Callable[[Wrong], str],
        *,
        met: bool = True,
    ) -> None:
        """Check a law of `count` items, of which those in `wrong` break it."""
        if count:
            self.checks.note(law_id, None, met=met)
        for each in wrong:
            self.checks.note(law_id, text(each), met=met)

    def check_held(self, column: Column, slots: Sequence[Slot], done: str) -> None:
        """Check that requests hold the slots that a call frees or inserts."""
        owners = self.slots.owners[column]
        self.check_each(
            "ALLOC-1",
            len(slots),
            [slot for slot in slots if owners.get(slot) is not HELD],
            lambda slot: (
                f"{COMPONENTS[column]} slot {slot} was {done}, which is "
                f"{self.slots.describe_owner(column, slot)}"
            ),
            met=False,
        )

    def check_free(self, law_id: str, said: str, *, met: bool = True) -> None:
        """Check that as many slots are free as expected, and that none of them is a request's."""
        for column in self.columns:
            if column in self.slots.unseen:
                continue
            component, expected = COMPONENTS[column], self.slots.free_count(column)
            seen = self.slots.free_list(column, expected)
            should = f"so that {expected} {component} slots should be free"
            text = f"{said}, {should}; {seen.in_words}"
            self.check(law_id, seen.right, text, met=met)
            for slot in self.slots.owned(column, seen.slots):
                held = self.slots.owners[column][slot] is HELD
                text = f"{said}, and a request's {component} slot {slot} is free"
                self.check(law_id, not held, text, met=met)

    @property
    def loads_usable_at_once(self) -> bool:
        """Whether loaded data is usable once the load is enqueued."""
        return self.profile.load_back_usable is StoreMoment.ENQUEUED

    @property
    def writes_back(self) -> bool:
        """Whether evictions copy data to the host before they free its slots."""
        return self.config.write_policy is WritePolicy.WRITE_BACK

    @property
    def whole_on_host(self) -> bool:
        """Whether window data and mamba states are on the host only where full data is."""
        return not self.writes_back or self.profile.whole_nodes_on_host

    def window_from(self, end: int) -> int:
        """Return the first page of the window that ends at a page."""
        if SWA_COLUMN not in self.columns:
            return end
        return window_start(end, self.config.window_tokens or 1, self.config.page_size)

    # Locks.

    def surely_locked(self, column: Column) -> set[PageRecord]:
        """Return pages whose data of a component is surely locked by a request."""
        locked: set[PageRecord] = set()
        for held in self.receipts.values():
            if column == FULL_COLUMN:
                locked.update(held.path)
            elif column == SWA_COLUMN:
                locked.update(held.path[held.window_from :])
            elif held.state_held:
                locked.update(held.path[-1:])
        return locked

    def maybe_locked(self, column: Column = FULL_COLUMN) -> set[PageRecord]:
        """Return pages that a request may have locked, or a copy, which locks all components."""
        locked = self.surely_locked(column)
        if column == SWA_COLUMN and not self.profile.window_lock_exact:
            for held in self.receipts.values():
                locked.update(held.path if held.window_from < len(held.path) else ())
        locked.update(page for transfer in self.transfers.values() for page in transfer.path)
        if column == MAMBA_COLUMN:
            return locked
        return locked | {below for page in locked for below in same_node_below(page)}

    # Recency.

    def use_prefix(self, path: list[PageRecord], end: int) -> None:
        """Record that a match or an insert used a prefix: its full data, window and mamba state."""
        for page in path[:end]:
            page.use(FULL_COLUMN, self.now)
        for page in same_node_below(path[end - 1]) if end else ():
            # A node that is used in part without being cut is used as a whole.
            page.use(FULL_COLUMN, self.now, surely=False)
            page.use(SWA_COLUMN, self.now, surely=False)
        if SWA_COLUMN in self.columns:
            self._use_window(path, end)
        if MAMBA_COLUMN in self.columns and end:
            path[end - 1].use(MAMBA_COLUMN, self.now)
            if self.profile.mamba_refresh is MambaRefresh.PATH:
                for page in path[: end - 1]:
                    page.use(MAMBA_COLUMN, self.now, surely=False)
        self.may_cut(path)

    def may_use(self, path: list[PageRecord]) -> None:
        """Record that any data of a path may have been used."""
        for page in path:
            for column in self.columns:
                page.use(column, self.now, surely=False)
        self.may_cut(path)

    def _use_window(self, path: list[PageRecord], end: int) -> None:
        """Record a use of the window, and a possible use of the page before it and of its node."""
        window_from = self.window_from(end)
        for page in path[window_from:end]:
            page.use(SWA_COLUMN, self.now)
        above = window_from - 1
        while above >= 0 and (
            above == window_from - 1 or may_be_one_node(path[above], path[above + 1])
        ):
            path[above].use(SWA_COLUMN, self.now, surely=False)
            above -= 1

    def may_cut(self, path: list[PageRecord]) -> None:
        """Record that nodes on a path may have been cut, which may make any part of them recent."""
        if self.profile.split_keeps_recency:
            return
        touched = [*path, *(below for page in path for below in same_node_below(page))]
        for page in touched:
            for column in self.columns:
                page.use(column, self.now, surely=False)

    # Evictions and loads.

    def is_not_loading(self, column: Column, page: PageRecord) -> None:
        """Record that a page has data, so that no load in flight is of it."""
        page.loading[column] = page.doubtful[column] = False
        for transfer in self.transfers.values():
            if (page, column) in transfer.loads:
                transfer.loads.remove((page, column))

    def lost(self, column: Column, slot: Slot, page: PageRecord) -> None:
        """Record that a page's slot is free now."""
        self.slots.free(column, (slot,))
        if page.device[column] not in (slot, SOMEWHERE):
            return
        page.lose(column)

    def reconcile(self, column: Column, came_free: int, taken: int = 0) -> list[PageRecord]:
        """Compare the free list after `came_free` slots came free and `taken` went to a load.

        Returns the pages that lost their slots.
        """
        component, slots = COMPONENTS[column], self.slots
        if column in slots.unseen:
            return []
        expected = slots.free_count(column) + came_free - taken
        seen = slots.free_list(column, expected)
        self.check(
            "ALLOC-3",
            seen.right,
            f"{came_free} {component} slots were said to come free and {taken} to be taken, so "
            f"that {expected} should be free; {seen.in_words}",
            met=came_free + taken > 0,
        )
        found: list[PageRecord] = []
        freed, ambiguous = 0, False
        for slot in slots.owned(column, seen.slots):
            owner = slots.owners[column][slot]
            freed += 1
            ambiguous |= owner is LOADING
            if isinstance(owner, PageRecord):
                # A doubtful page may have lost its slot earlier, without an answer.
                ambiguous |= owner.doubtful[column]
                found += [] if owner.doubtful[column] else [owner]
                self.lost(column, slot, owner)
            else:
                text = f"a request's {component} slot {slot} is free"
                self.check("ALLOC-1", owner is LOADING, text, met=False)
                slots.free(column, (slot,))
        if taken and freed < came_free:
            # Other victims' slots were allocated again at once.
            found += self.doubt_unlocked(column)
        elif ambiguous:
            # It may be the slot of a page whose slot is unknown.
            found += self.doubt_unlocked(column, only=SOMEWHERE)
        slots.mark_loading(column, seen.slots, taken)
        return found

    def doubt_unlocked(self, column: Column, only: Slot | None = None) -> list[PageRecord]:
        """Record that unlocked pages may have lost their data, or only those whose slot is `only`.

        Events show which pages lost full data. Returns the pages that did.
        """
        locked = self.surely_locked(column)
        concerned = [
            page
            for page in self.pages
            if page.maybe_on_device(column) and only in (None, page.device[column])
        ]
        if column != FULL_COLUMN or not self.takes_events:
            for page in concerned:
                page.doubtful[column] = page.doubtful[column] or page not in locked
            return []
        gone = {page for page in concerned if page.hash not in self.residency.on(GPU)}
        for slot, owner in self.slots.pages_in(column):
            if owner in gone:
                self.slots.give(column, (slot,), LOADING)
        for page in gone:
            page.lose(column)
        return list(gone)

    def doubt_all(self) -> None:
        """Record that the cache may have done anything on its own to what no request holds."""
        locked = [self.surely_locked(column) for column in ALL_COLUMNS]
        for page in self.pages:
            for column in self.columns:
                if page.device[column] is None and self.profile.loads is Choosing.OWN:
                    page.device[column] = SOMEWHERE
                page.doubtful[column] |= page not in locked[column]
                if self.config.host_tier:
                    page.host[column] = Certainty.MAYBE

    def doubt_host(self, columns: Collection[Column]) -> None:
        """Record that host data of these components may have been evicted without an answer."""
        for transfer in self.transfers.values():
            if transfer.batch is not None:
                transfer.batch.items.clear()
        for page in self.pages:
            for column in columns:
                if page.host[column] is Certainty.YES and not (
                    column == FULL_COLUMN and self.takes_events
                ):
                    page.host[column] = Certainty.MAYBE

    def may_have_copied(self) -> None:
        """Record that under write_back any device data may have been copied to the host."""
        for page in self.pages if self.writes_back else ():
            for column in self.columns:
                alone = column == FULL_COLUMN or not self.whole_on_host
                if alone or page.host[FULL_COLUMN] is not Certainty.NO:
                    self.may_be_on_host(column, page)

    def may_be_on_host(self, column: Column, page: PageRecord) -> None:
        """Record that data may be on the host, unless events would have shown it."""
        by_event = column == FULL_COLUMN and self.takes_events
        if not by_event and page.host[column] is Certainty.NO:
            page.host[column] = Certainty.MAYBE


def may_be_one_node(page: PageRecord, below: PageRecord) -> bool:
    """Whether a page and the next may be in one node: inserted at once, or unknown."""
    return page.run == below.run or page.hazy or below.hazy


def same_node_below(page: PageRecord) -> list[PageRecord]:
    """Return the pages below a page that may be in the same node."""
    found: list[PageRecord] = []
    below = [page]
    for each in below:
        same = [child for child in each.children.values() if may_be_one_node(each, child)]
        found += same
        below += same
    return found
