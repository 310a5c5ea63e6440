"""Orders to the store below the host, as the fast cache gives them: runs of pages in host memory.

An order copies no page. A fetch fills host slots that are reserved for it. A write reads the slots
in which its pages were when it was given, and these may be evicted before the store comes to them:

- A slot whose page the store may read *now* (`PageOrder.offer`) is given to nobody else until the
  read has ended. So is one that a fetch fills now, also if the order has ended meanwhile.
- A slot that an order has yet to read may be given away. Its page is copied at that moment, and not
  before (`HostReads.keep`). That is rare: most of what leaves the host was stored long ago.

Stores of several ranks read at other times, and free slots must be the same on all ranks. So what
is offered and when it is taken back follows from what the ranks agreed on; what is lent to a call
(`PageOrder.lend`) is a part of it, and each rank's own.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt
from attrs import Factory, define, field

from kvcanon.optimized import _core
from kvcanon.optimized.page_transfer import SlotArray
from kvcanon.optimized.store_stats import StoreStats
from kvcanon.spec.tier import OrderId, OrderKind, OrderProgress
from kvcanon.spec.types import Medium, Namespace

Words = npt.NDArray[np.uint32]

MOST_UNDER_WAY = 2
"""Batches of a kind that the store is given at one time: one that it moves, and the next."""


@define(eq=False)
class HostReads:
    """The host pool of full data, and the writes that still have to read it."""

    pages: npt.NDArray[np.uint8]
    """uint8[slots, page_bytes]."""
    writes: dict[OrderId, PageOrder] = Factory(dict)
    """Those that have not ended."""
    _due: npt.NDArray[np.int64] = field(init=False)
    """The write that has yet to read each slot; 0 if none has."""
    _due_pages: npt.NDArray[np.int32] = field(init=False)
    """Which of its pages is in the slot."""
    _reads: npt.NDArray[np.int32] = field(init=False)
    """How many reads of each slot are under way."""

    def __attrs_post_init__(self) -> None:
        self._due = np.zeros(len(self.pages), dtype=np.int64)
        self._due_pages, self._reads = (np.zeros(len(self.pages), np.int32) for _ in range(2))

    def keep(self, slots: SlotArray) -> None:
        """Copy what writes still have to read of slots that are about to be overwritten.

        It costs what it copies, however many writes are open.
        """
        due = slots[self._due[slots] != 0]
        for order_id, page in zip(
            self._due[due].tolist(), self._due_pages[due].tolist(), strict=True
        ):
            self.writes[order_id].keep(page)
        self.read(due)

    def begin_write(self, order: PageOrder) -> None:
        """Note a write, which has yet to read all of its slots."""
        # Two writes share pages if the store lost some that the first had written, and the second
        # begins with those.
        self.keep(order.slots)
        self.writes[order.order_id] = order
        self._due[order.slots] = order.order_id
        self._due_pages[order.slots] = np.arange(len(order))

    def end_write(self, order: PageOrder) -> None:
        """Note the end of a write."""
        del self.writes[order.order_id]
        self.read(order.slots_of(order.offered, len(order)))

    def read(self, slots: SlotArray) -> None:
        """Note that the writes of these slots need not read them any more."""
        self._due[slots] = 0

    def begin_read(self, slots: SlotArray) -> SlotArray:
        """Note a read of slots; returns those that no other read had begun."""
        self._reads[slots] += 1
        first: SlotArray = slots[self._reads[slots] == 1]
        return first

    def end_read(self, slots: SlotArray) -> SlotArray:
        """Note the end of a read; returns the slots that no other read needs."""
        self._reads[slots] -= 1
        last: SlotArray = slots[self._reads[slots] == 0]
        return last


@define(eq=False)
class PageOrder:
    """An order: to write or to fetch the last pages of a prompt. Pages are counted from 0 in it.

    Only the thread of the cache calls its methods. What `lend` returned, and the fields, any thread
    may read.
    """

    order_id: OrderId
    kind: OrderKind
    run: _core.PageRun
    """The tokens and hashes of its pages."""
    words: Words
    """The tokens of the prompt up to the last page, as the cache has them."""
    namespace: Namespace
    slots: SlotArray
    """The host slot of each page; -1 of a page that was copied when it lost its slot."""
    host: HostReads
    tier: _core.Tier
    offered: int = field(init=False)
    """Leading pages that the store may use now, the same on all ranks: of a fetch all."""
    taken_back: int = 0
    """Leading pages of a write that no rank's store reads any more."""
    end: int = field(init=False)
    """Behind the last page that is to be moved."""
    _kept: dict[int, npt.NDArray[np.uint8]] = Factory(dict)
    """The pages of a write that lost their slots."""
    _lent: int = 0
    """Leading pages that were lent to a call on this rank: nothing reads them later."""
    _lendings: list[tuple[int, int]] = Factory(list)
    """The pages that were lent and not given back: the first, and the one behind the last."""

    @offered.default
    def _at_first(self) -> int:
        return len(self.run) if self.kind is OrderKind.FETCH else 0

    @end.default
    def _behind_all(self) -> int:
        return len(self.run)

    def __len__(self) -> int:
        """The number of pages."""
        return len(self.run)

    @property
    def page_bytes(self) -> int:
        """The bytes of a page."""
        size: int = self.host.pages.shape[1]
        return size

    def batch_pages(self, batch_bytes: int) -> int:
        """The pages of a batch of about so many bytes."""
        return max(1, batch_bytes // self.page_bytes)

    def memory(self, page: int) -> memoryview:
        """The bytes of a page: to be written to the store now, or to be filled from it."""
        kept = self._kept.get(page)
        return (self.host.pages[self.slots[page]] if kept is None else kept).data

    def read(self, page: int) -> bytes:
        """A copy of the bytes of a page of a write, for a queue that may ask for them again."""
        return bytes(self.memory(page))

    def offer(self, pages: int) -> None:
        """Let the store read the next pages of a write. Nobody gets their slots meanwhile."""
        begin, self.offered = self.offered, min(self.offered + pages, len(self))
        slots = self.slots_of(begin, self.offered)
        self.host.read(slots)
        self.tier.begin_read(self.host.begin_read(slots))

    def cut_short(self) -> None:
        """Let a write end with what is offered: it has ended on a rank, and no more will count."""
        self.end = self.offered

    def take_back(self, pages: int) -> None:
        """Note that no rank's store reads the first pages of a write any more."""
        begin, self.taken_back = self.taken_back, min(pages, self.offered)
        self.tier.end_read(self.host.end_read(self.slots_of(begin, self.taken_back)))

    def lend(self, begin: int, end: int) -> list[memoryview]:
        """The bytes of some offered pages, which stay as they are until `give_back`."""
        self._lendings.append((begin, end))
        self._lent = max(self._lent, end)
        return [self.memory(page) for page in range(begin, end)]

    def give_back(self, begin: int, end: int) -> None:
        """Take back lent pages, which the store has read or filled."""
        self._lendings.remove((begin, end))
        if self.kind is OrderKind.WRITE:
            for page in range(begin, end):
                self._kept.pop(page, None)

    def unused_pages(self, *, ended: bool) -> int:
        """How many of its pages have memory that the store of this rank does not use any more.

        Those are the first pages of a write, and the last ones of a fetch that has ended here.
        """
        if self.kind is OrderKind.WRITE:
            done = len(self) if ended else self._lent
            return min((begin for begin, _ in self._lendings), default=done)
        return len(self) - max((end for _, end in self._lendings), default=0) if ended else 0

    def keep(self, page: int) -> None:
        """Copy a page of a write that was not offered yet, and whose slot is given away."""
        self._kept[page] = self.host.pages[self.slots[page]].copy()
        self.slots[page] = -1

    def slots_of(self, begin: int, end: int) -> SlotArray:
        """The slots from which these pages are read."""
        slots = self.slots[begin:end]
        found: SlotArray = slots[slots >= 0]
        return found


class PageQueue(Protocol):
    """Carries out orders on a store, each page by page, as `kvcanon.spec.tier.StoreQueue` does.

    The cache calls it from its own thread. It never raises and never waits. An order may end while
    a call to the store that was given up still uses memory of it: `PageOrder.unused_pages` says so.
    """

    @property
    def medium(self) -> Medium:
        """DISK, or EXTERNAL if the store is on another machine."""

    @property
    def batch_bytes(self) -> int | None:
        """About how much a call to the store moves, the same on all ranks.

        None if the queue reads a page in one step, whenever it likes: then it lends nothing.
        """

    def submit(self, order: PageOrder) -> None:
        """Accept an order; return without waiting for it."""

    def stop(self, order_id: OrderId) -> None:
        """Ask an order to end early. It has not ended before `poll` says so."""

    def poll(self) -> tuple[OrderProgress, ...]:
        """The progress of each order that went on since the last poll."""

    def begin_calls(self) -> None:
        """Begin with what orders have offered since the last call."""

    def stats(self) -> StoreStats | None:
        """What it did, and how its store is; None if it counts nothing. Any thread may call it."""
