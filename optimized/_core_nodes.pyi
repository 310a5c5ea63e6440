"""The nodes of a cache by handle: a part of `_core`, which has no module of its own."""

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kvcanon.optimized._core import CacheCore, Tokens

RowsByComponent: TypeAlias = tuple[Rows | None, Rows | None, Rows | None]
"""Slots of full data, window data and states; None for none."""
Presence: TypeAlias = tuple[bool, bool, bool]

class Rows:
    """Rows of a pool, the first page first, as stretches of consecutive numbers."""

    def __len__(self) -> int: ...
    def runs(self) -> list[tuple[int, int]]:
        """Return stretches of consecutive rows: the first row, and how many."""
    def tolist(self) -> list[int]:
        """Return each row, the first page first."""
    def array(self) -> NDArray[np.int32]:
        """Return each row as an array, the first page first."""

class RowTable:
    """A table from rows to token slots, for a caller whose slots are in the memory of the host.

    It takes four bytes a block, which is a page of 16 tokens or more, or as many pages as have 16.
    A block whose slots are not consecutive takes four bytes a slot besides.

    Raises:
        BadArgument: the slots of so many pages could not be numbered with 31 bits.
    """

    def __init__(self, rows: int, page_size: int) -> None: ...
    def put(
        self, rows: Rows, slots: NDArray[np.int32] | NDArray[np.int64], first_page: int = 0
    ) -> None:
        """Set the token slots of rows: those of the whole pages in `slots` from `first_page` on.

        Raises:
            BadArgument: the array is none of integers of 32 or 64 bits, has too few pages or
                numbers out of range, or a row is not of the table.
        """
    @property
    def scattered_blocks(self) -> int:
        """Blocks of a page, or of 16 tokens, of which the table has every slot."""
    def put_at(self, rows: Rows, address: int, count: int, first_page: int = 0) -> None:
        """As `put`, of `count` consecutive 64-bit integers that begin at an address.

        A tensor's own address takes a few calls less than an array that shares its memory. The
        caller answers for the memory.

        Raises:
            BadArgument: there are too few pages, or numbers out of range, or a row is not of the
                table.
        """
    def get(self, rows: Rows) -> object:
        """Return the token slots of rows, in their order: a DLPack capsule of 64-bit integers.

        Raises:
            BadArgument: a row is not of the table.
        """

class Nodes:
    """The nodes of a cache by handle, for a caller that keeps tables of slots and copies itself.

    A handle is a number that no other node of the cache ever has; a cut leaves it to the lower
    part. Slots are rows: indexes into the caller's tables of addresses. docs/engine-api.md
    explains the calls.
    """

    def __init__(self, cache: CacheCore) -> None: ...
    def root(self) -> int:
        """Return the node above the first page of every prompt."""
    def match(self, tokens: Tokens, namespace: int = 0) -> NodeMatched:
        """Find the longest usable prefix of a prompt, and make it the most recently used.

        A match does not protect what it found: call `lock` before the next call that may evict.

        Raises:
            BadArgument: the tokens or the namespace are not valid.
        """
    def lock(
        self, node: int, window: bool = True, state: bool = True, windows_of: Iterable[int] = ()
    ) -> tuple[int, int, bool]:
        """Lock a node: full data up to the root, the nodes of its last window, and its state.

        With the window, `windows_of` are nodes above whose windows are held as well, and all window
        data below them.

        Returns the receipt, the full slots that were evictable before, and whether the window
        begins below the first page. It holds whole nodes and never cuts one.

        Raises:
            BadArgument: a node is gone.
        """
    def unlock(self, node: int, receipt: int) -> None:
        """Release what a receipt still holds.

        Raises:
            ReceiptSpent: it holds nothing any more.
            BadArgument: the node is gone, or the receipt was given for another.
        """
    def unlock_window(self, node: int, receipt: int) -> None:
        """Release the window data and the state; the full data stays locked.

        Raises:
            ReceiptSpent: it holds nothing any more.
            BadArgument: the node is gone, or the receipt was given for another.
        """
    def unlock_state(self, node: int, receipt: int) -> None:
        """Release the state alone.

        Raises:
            ReceiptSpent: it holds nothing any more.
            BadArgument: the node is gone, or the receipt was given for another.
        """
    def slots(
        self, end: int, above: int | None = None, component: int = 0, medium: int = 0
    ) -> Rows:
        """Return the slots from below a node `above` down to `end`, the first page first.

        Without `above` they are those of `end` alone.

        Raises:
            BadArgument: a node is gone or lacks the data, or `above` is not above `end`.
        """
    def insert(
        self,
        tokens: Tokens,
        namespace: int = 0,
        owned_pages: int = 0,
        window_from: int = 0,
        state: bool = False,
        counted_pages: int = 0,
        priority: int = 0,
    ) -> NodeInserted:
        """Insert a prompt; the tree takes rows for what it lacks, and the caller fills its tables.

        The caller owns the pages from `owned_pages` on, and has their window data from page
        `window_from` on, and with `state` the state at the end. `counted_pages` were counted as hit
        by an earlier insert of the same request.

        Raises:
            PrefixNotCached: the tree lacks pages before `owned_pages`.
            OutOfSlots: a pool has too few rows.
            BadArgument: the tokens, the namespace or a number of pages are not valid.
        """
    def evict_step(self, component: int, slots: int = 1) -> EvictStep:
        """Evict victims of a component from the device until so many of its slots are free.

        Under write_back a victim without a host copy is only named: copy it, then call
        `evict_node`. It is the first victim of a step.

        Raises:
            BadArgument: the component or the number is not valid.
        """
    def evict_node(self, node: int, component: int) -> EvictStep:
        """Evict a node from the device: as a whole if it is a leaf, otherwise one component.

        Raises:
            BadArgument: the node is gone or locked, or has no such data.
        """
    def evict_host(self, component: int, slots: int) -> tuple[RowsByComponent, RowsByComponent]:
        """Evict from the host until so many slots of a component came free, if they can.

        Returns the slots that came free on the device and on the host, by component, or None.
        """
    def slots_to_back_up(self, nodes: Iterable[int]) -> tuple[RowsByComponent, Rows | None]:
        """Return the device slots of what nodes have on the device alone, by component.

        They are in the order of the nodes. Second come the full slots of the pages of window slots,
        for a caller that knows the latter by the former.
        """
    def add_host_copy(
        self, nodes: Iterable[int], components: Iterable[int]
    ) -> tuple[RowsByComponent, list[int]]:
        """Give nodes host slots for the components that they lack there, all or none.

        Returns the slots by component, in the order of the nodes, and the nodes that had no full
        data on the host. The data counts as being on the host at once: keep the nodes locked until
        it is.

        Raises:
            OutOfSlots: the host has too few slots; call `evict_host` first.
        """
    def emit_host_store(self, node: int) -> None:
        """Emit that the pages of a node are on the host, once their bytes are."""
    def slots_to_load(self, end: int) -> RowsByComponent:
        """Return the host slots that a load of the path to a node reads, by component, root first.

        They are what the path has on the host alone and its end needs.
        """
    def add_device_copy(
        self, end: int, components: Iterable[int]
    ) -> tuple[RowsByComponent, Rows | None]:
        """Give this data of the path to a node device slots, and emit the stores of full data.

        Returns the slots by component, root first, and the full slots of the pages that got window
        slots. The data counts as being on the device at once: keep the node locked until it is.

        Raises:
            OutOfSlots: a pool has too few rows.
        """
    def add_device_data(self, node: int, component: int) -> Rows:
        """Give a node device slots of a component that it lacks; returns them.

        Raises:
            BadArgument: the node has them, is the root, or lacks full data for its window data.
            OutOfSlots: the pool has too few rows.
        """
    def parent(self, node: int) -> int | None:
        """Return the node above; None for the root."""
    def children(self, node: int) -> list[int]:
        """Return the nodes below, in the order in which they were added."""
    def describe(self, node: int) -> tuple[int, int, Presence, Presence]:
        """Return the first page of a node, one past its last, and what both media have of it."""
    def has(self, node: int, component: int, medium: int = 0) -> bool:
        """Return whether a node has data of a component on a medium."""
    def all(self) -> list[int]:
        """Return every node, each before those below it."""
    def set_wanted_hits(self, hits: int) -> None:
        """Set after how many hits an insert wants a node copied, whatever the write policy."""
    def forget(self) -> None:
        """Forget the tree and all receipts. No handle of a node is given out again."""

class NodeMatched(NamedTuple):
    """The longest usable prefix of a prompt, by nodes."""

    prefix_pages: int
    """Pages of the prefix, on any medium."""
    device_pages: int
    """Pages of the prefix that can be used on the device now."""
    walked_pages: int
    """Pages of the prompt that the tree has, usable or not."""
    end: int
    """The node at which the prefix ends."""
    device_end: int
    """The node at which its part on the device ends."""
    last: int
    """The lowest node that has a page of the prompt."""
    host_only: tuple[int, int, int]
    """Slots that a load of the prefix would fill, by component."""
    cuts: list[tuple[int, int, int]]
    """Nodes that were cut: the new upper node, the lower one, and the pages of the upper."""

class NodeInserted(NamedTuple):
    """Where the pages of an insert went."""

    end: int
    """The node at which the prompt ends."""
    walked_pages: int
    """Pages of the prompt that the tree had before, on any medium."""
    full: list[tuple[int, Rows]]
    """Full data that the tree took: the first page, and the rows."""
    healed: list[tuple[int, Rows]]
    """Full data that got window data, where no lock holds it: the first page, and the rows."""
    windows: list[tuple[int, int, int, int, bool]]
    """Window data: end, above, first page, one past the last, and if full is locked."""
    state: int | None
    """The row of the state; None where the tree did not take it."""
    duplicates: list[tuple[int, int]]
    """Pages of the caller that were there, but those of window data: first, one past the last."""
    wanted: list[int]
    """The nodes to copy to the host, in this order, where the caller copies."""
    wanted_end: int
    """The lowest of them, which the others are above; 0 for none."""
    cuts: list[tuple[int, int, int]]
    """Nodes that were cut: the new upper node, the lower one, and the pages of the upper."""

class EvictStep(NamedTuple):
    """Victims, and what came free with them."""

    node: int
    """The last victim; 0 where nothing more can leave."""
    copy_first: bool
    """Whether the caller copies it first; nothing has changed then."""
    whole: bool
    """Whether the node leaves the device as a whole."""
    lost: int
    """Full slots that left and have no copy on the host."""
    lacks: tuple[int, int, int]
    """Slots that the victim needs on the host, by component."""
    device: RowsByComponent
    """Device slots that came free; window slots by the full slots of their pages."""
    host: RowsByComponent
    """Host slots that came free, by component, or None."""
