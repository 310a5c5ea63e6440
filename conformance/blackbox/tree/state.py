"""Observed state of a tree cache: what its answers, events and bytes have shown so far.

The checks of one operation read this state, report what cannot be true, and update it.

It holds no expectation of what the cache should have chosen. It holds what the cache did choose,
and bounds where that was not visible.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TypeAlias, TypeVar

from attrs import Factory, define, field

from kvcanon.conformance.blackbox.checks import Checks
from kvcanon.conformance.blackbox.tree.pages import (
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
from kvcanon.conformance.blackbox.tree.slots import COMPONENTS, HELD, LOADING, SlotRecords
from kvcanon.spec.config import CacheConfig, MambaRefresh, Profile, StoreMoment
from kvcanon.spec.law import Violation
from kvcanon.spec.operations import Receipt
from kvcanon.spec.oracle.window import window_start
from kvcanon.spec.transfer import Direction
from kvcanon.spec.types import CPU, GPU, Component, Medium, ReceiptId, Slot, TransferId, WritePolicy

Read: TypeAlias = Callable[[Component, Medium, Slot], bytes]

Text: TypeAlias = str | Callable[[], str]
"""A sentence, or how to make it: most are never needed."""

Wrong = TypeVar("Wrong")


def words(text: Text) -> str:
    """The sentence."""
    return text if isinstance(text, str) else text()


@define(eq=False)
class OpenReceipt:
    """A lock that a request holds."""

    receipt: Receipt
    path: list[PageRecord]
    window_from: int
    """First page whose window data it holds; the length of the path where it holds none."""
    state_held: bool


@define(eq=False)
class Batch:
    """The copies that one insert enqueued, and what must be on the host when all are done."""

    open_copies: int
    items: list[tuple[PageRecord, Column]]
    is_chain: bool
    """Whether each of them is surely of nodes below those of the one before."""


@define(eq=False)
class OpenTransfer:
    """A copy in flight, and what it may hold."""

    direction: Direction
    path: list[PageRecord]
    """Its pages are among these; all of them may be locked by it."""
    loads: list[tuple[PageRecord, Column]] = Factory(list)
    """Device data that it will fill, if it is done."""
    slots_taken: Counter[Column] = Factory(Counter)
    """Device slots that it was given."""
    batch: Batch | None = None
    """The copies to the host that it was enqueued with."""
    may_be_cancelled: bool = False
    """Whether a copy on whose pages it may build has failed."""


@define(eq=False)
class ObservedState:
    """All that is known of a cache."""

    config: CacheConfig
    profile: Profile
    slots: SlotRecords
    checks: Checks
    hears: bool
    """Whether events are heard."""
    read: Read | None
    """Reads the bytes behind a slot; None where the cache shows none."""
    pages: PageRecords = Factory(PageRecords)
    receipts: dict[ReceiptId, OpenReceipt] = Factory(dict)
    transfers: dict[TransferId, OpenTransfer] = Factory(dict)
    due: dict[PageRecord, None] = Factory(dict)
    """Pages that were hit often enough, and that no insert said the host had no room for."""
    told: dict[Medium, set[bytes]] = Factory(lambda: {GPU: set(), CPU: set()})
    """The names of the pages that are on each medium, as the events say."""
    written: tuple[dict[Slot, bytes], ...] = Factory(lambda: ({}, {}, {}))
    """What requests wrote into their slots, by column."""
    compared: set[tuple[PageRecord, Column]] = Factory(set)
    """Data whose bytes were read since the last operation that was no match."""
    room_on_host: list[int] | None = None
    """Free host slots before an eviction; None where they are not shown."""
    leaves_of_host: list[PageRecord] = Factory(list)
    """What an eviction from the host may choose from, as it was before it."""
    stored_on_host: int = 0
    """How many pages this operation said are on the host now."""
    now: int = 0
    """Counts operations."""
    columns: tuple[Column, ...] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.columns = columns_of(self.config.components)

    @property
    def violations(self) -> list[Violation]:
        """What this operation has broken so far."""
        return self.checks.broken

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
        """Note whether a law holds of each of so many, and of which it does not."""
        if count:
            self.checks.note(law_id, None, met=met)
        for each in wrong:
            self.checks.note(law_id, text(each), met=met)

    def check_held(self, column: Column, slots: Sequence[Slot], done: str) -> None:
        """See that requests have the slots with which something was done."""
        owners = self.slots.owners[column]
        self.check_each(
            "ALLOC-1",
            len(slots),
            [slot for slot in slots if owners.get(slot) is not HELD],
            lambda slot: (
                f"{COMPONENTS[column]} slot {slot} was {done}, which is "
                f"{self.slots.owner_in_words(column, slot)}"
            ),
            met=False,
        )

    def check_free(self, law_id: str, said: str, *, met: bool = True) -> None:
        """See that as many slots are free as were said to be, and none that requests have."""
        for column in self.columns:
            if column in self.slots.blind:
                continue
            component, expected = COMPONENTS[column], self.slots.free_count(column)
            seen = self.slots.look(column, expected)
            text = f"{said}, which leaves {expected} {component} slots free; that is not so"
            self.check(law_id, seen.right, text, met=met)
            for slot in self.slots.owned(column, seen.slots):
                held = self.slots.owners[column][slot] is HELD
                text = f"{said}, and a request's {component} slot {slot} is free"
                self.check(law_id, not held, text, met=met)

    @property
    def loads_are_of_use(self) -> bool:
        """Whether what is loaded counts as there once the load is enqueued."""
        return self.profile.load_back_usable is StoreMoment.ENQUEUED

    @property
    def writes_back(self) -> bool:
        """Whether evictions copy to the host before they take."""
        return self.config.write_policy is WritePolicy.WRITE_BACK

    @property
    def whole_on_host(self) -> bool:
        """Whether window data and states are on the host only where full data is."""
        return not self.writes_back or self.profile.whole_nodes_on_host

    def window_from(self, end: int) -> int:
        """The first page of the window that ends at a page."""
        if SWA_COLUMN not in self.columns:
            return end
        return window_start(end, self.config.window_tokens or 1, self.config.page_size)

    # What is locked.

    def surely_locked(self, column: Column) -> set[PageRecord]:
        """Pages whose data of a component some request holds for sure."""
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
        """Pages whose data some lock or copy may hold, as far as one can know; copies hold all."""
        locked = self.surely_locked(column)
        if column == SWA_COLUMN and not self.profile.window_lock_exact:
            for held in self.receipts.values():
                locked.update(held.path if held.window_from < len(held.path) else ())
        locked.update(page for transfer in self.transfers.values() for page in transfer.path)
        if column == MAMBA_COLUMN:
            return locked
        return locked | {below for page in locked for below in same_node_below(page)}

    # What is used.

    def use_prefix(self, path: list[PageRecord], end: int) -> None:
        """The end of a match or an insert: full data of the prefix is used, and its window."""
        for page in path[:end]:
            page.use(FULL_COLUMN, self.now)
        for page in same_node_below(path[end - 1]) if end else ():
            # A node that is used in part, and is not cut for it, is used as a whole.
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
        """Any data of a path may be used now."""
        for page in path:
            for column in self.columns:
                page.use(column, self.now, surely=False)
        self.may_cut(path)

    def _use_window(self, path: list[PageRecord], end: int) -> None:
        """All of the window is used; a page more may be, and what is one node with what may be."""
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
        """Nodes on a path may be cut now; where that refreshes a part, it may be any part."""
        if self.profile.split_keeps_recency:
            return
        touched = [*path, *(below for page in path for below in same_node_below(page))]
        for page in touched:
            for column in self.columns:
                page.use(column, self.now, surely=False)

    # What is lost, or was never loaded.

    def is_not_loading(self, column: Column, page: PageRecord) -> None:
        """A page has data, so that it is not it that some load in flight brings."""
        page.loading[column] = page.doubtful[column] = False
        for transfer in self.transfers.values():
            if (page, column) in transfer.loads:
                transfer.loads.remove((page, column))

    def lost(self, column: Column, slot: Slot, page: PageRecord) -> None:
        """A slot that a page had is free now."""
        self.slots.free(column, (slot,))
        if page.device[column] not in (slot, SOMEWHERE):
            return
        page.lose(column)

    def reconcile(self, column: Column, came_free: int, taken: int = 0) -> list[PageRecord]:
        """See which slots are free, after some came free and some were taken for a load.

        Returns the pages that lost theirs.
        """
        component, slots = COMPONENTS[column], self.slots
        if column in slots.blind:
            return []
        expected = slots.free_count(column) + came_free - taken
        seen = slots.look(column, expected)
        self.check(
            "ALLOC-3",
            seen.right,
            f"{came_free} {component} slots were said to come free and {taken} to be taken, which "
            f"leaves {expected} free; that is not so",
            met=came_free + taken > 0,
        )
        found: list[PageRecord] = []
        freed, ambiguous = 0, False
        for slot in slots.owned(column, seen.slots):
            owner = slots.owners[column][slot]
            freed += 1
            ambiguous |= owner is LOADING
            if isinstance(owner, PageRecord):
                # Who was in doubt may have lost it long ago, to someone who was not told.
                ambiguous |= owner.doubtful[column]
                found += [] if owner.doubtful[column] else [owner]
                self.lost(column, slot, owner)
            else:
                text = f"a request's {component} slot {slot} is free"
                self.check("ALLOC-1", owner is LOADING, text, met=False)
                slots.free(column, (slot,))
        if taken and freed < came_free:
            # The slots of the others were taken again at once.
            found += self.doubt_unlocked(column)
        elif ambiguous:
            # The slot may have been that of a page of which nobody was told the slot.
            found += self.doubt_unlocked(column, only=SOMEWHERE)
        slots.mark_loading(column, seen.slots, taken)
        return found

    def doubt_unlocked(self, column: Column, only: Slot | None = None) -> list[PageRecord]:
        """Any page that is not locked may have lost its data unseen, or those in a certain slot.

        Of full data the events tell who did. Returns the pages that did.
        """
        locked = self.surely_locked(column)
        concerned = [
            page
            for page in self.pages
            if page.maybe_on_device(column) and only in (None, page.device[column])
        ]
        if column != FULL_COLUMN or not self.hears:
            for page in concerned:
                page.doubtful[column] = page.doubtful[column] or page not in locked
            return []
        gone = {page for page in concerned if page.name not in self.told[GPU]}
        for slot, owner in self.slots.pages_in(column):
            if owner in gone:
                self.slots.give(column, (slot,), LOADING)
        for page in gone:
            page.lose(column)
        return list(gone)

    def doubt_host(self, columns: Collection[Column]) -> None:
        """Host data of these components may have been evicted unseen."""
        for transfer in self.transfers.values():
            if transfer.batch is not None:
                transfer.batch.items.clear()
        for page in self.pages:
            for column in columns:
                if page.host[column] is Certainty.YES and not (
                    column == FULL_COLUMN and self.hears
                ):
                    page.host[column] = Certainty.MAYBE

    def may_have_copied(self) -> None:
        """Under write_back whatever was on the device may have been copied to the host unseen."""
        for page in self.pages if self.writes_back else ():
            for column in self.columns:
                heard = column == FULL_COLUMN and self.hears
                alone = column == FULL_COLUMN or not self.whole_on_host
                above = alone or page.host[FULL_COLUMN] is not Certainty.NO
                if above and not heard and page.host[column] is Certainty.NO:
                    page.host[column] = Certainty.MAYBE


def may_be_one_node(page: PageRecord, below: PageRecord) -> bool:
    """Whether a page and one after it may lie in one node: they came at once, or nobody knows."""
    return page.run == below.run or page.hazy or below.hazy


def same_node_below(page: PageRecord) -> list[PageRecord]:
    """The pages below that may be of one node with a page."""
    found: list[PageRecord] = []
    below = [page]
    for each in below:
        same = [child for child in each.children.values() if may_be_one_node(each, child)]
        found += same
        below += same
    return found
