"""The native core, as bind_*.cpp in optimized/native bind it, with the same docstrings."""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

# --------------------------------------------------------------------------------------------------
# Page hashes (bind_hashing.cpp)
# --------------------------------------------------------------------------------------------------

def hash_ways() -> list[str]:
    """List the implementations of SHA-256 that this processor can run, the fastest first."""

def page_hashes(
    seed: bytes, words: NDArray[np.uint32], words_per_page: int, way: str | None = None
) -> NDArray[np.uint8]:
    """Return the page hashes of one chain: uint8[pages, 32].

    They equal those of `kvcanon.spec.hashing.page_hashes`. The words of a page are its tokens; a
    bigram has two words.
    """

def page_hashes_batch(
    seeds: Sequence[bytes],
    words: Sequence[NDArray[np.uint32]],
    words_per_page: Sequence[int],
    way: str | None = None,
) -> list[NDArray[np.uint8]]:
    """Return the page hashes of several chains.

    Two chains of one page size take little longer than one.
    """

# --------------------------------------------------------------------------------------------------
# The cache (bind_core.cpp). Enum members are numbers: indexes into `ENUMS`.
# --------------------------------------------------------------------------------------------------

ENUMS: Mapping[str, tuple[str, ...]]
"""The values of each enum of kvcanon.spec that the core has too, in the order of its numbers."""
HASH_BYTES: int
"""Bytes of a page hash."""
MAX_IDLE_NAMESPACES: int
MAX_SLOTS: int
"""Of one pool."""
MAX_WINDOW_TOKENS: int

Three: TypeAlias = tuple[int, int, int]
"""A count for each component: full, swa, mamba."""

class Matched:
    """The longest usable prefix of a prompt.

    `full` has one device slot a page, from page 0 on; `swa` those of the last pages, as far back as
    there is window data; `mamba` the one at the end. The arrays are made when they are read.
    """

    @property
    def prefix_pages(self) -> int:
        """Pages of the prefix, on any medium."""
    @property
    def device_pages(self) -> int:
        """Pages of the prefix that can be used on the device now."""
    @property
    def full(self) -> NDArray[np.int32]:
        """Slots, an int32 array that is made when it is read."""
    @property
    def swa(self) -> NDArray[np.int32]:
        """Slots, an int32 array that is made when it is read."""
    @property
    def mamba(self) -> NDArray[np.int32]:
        """Slots, an int32 array that is made when it is read."""
    @property
    def pending(self) -> tuple[int, ...]:
        """Ids of the load-backs in flight along the prefix."""

class Inserted:
    """Where the slots of an insert went, by component."""

    @property
    def present_pages(self) -> int:
        """Pages of the prompt that the tree had before."""
    @property
    def adopted(self) -> list[int]:
        """Slots that the tree took over."""
    @property
    def freed(self) -> list[int]:
        """Slots that came free, because the tree had their pages."""
    @property
    def backups(self) -> tuple[int, ...]:
        """Ids of the backups that the insert enqueued."""
    @property
    def backup_declined_pages(self) -> int:
        """Pages that were not backed up, because the host had too few free slots."""

class LoadedBack:
    """What a load-back did.

    `full`, `swa` and `mamba` are the slots of the whole prompt, as a match returns them once the
    transfer has settled; they are empty where nothing was enqueued. A layer may be read as soon as
    `wait_layer` returns for it.
    """

    @property
    def decision(
        self,
    ) -> Literal["enqueued", "nothing_to_load", "below_threshold", "over_quota", "no_room"]:
        """A value of kvcanon.spec.operations.LoadDecision."""
    @property
    def transfer_id(self) -> int | None:
        """Id of the transfer; None where nothing was enqueued."""
    @property
    def loading(self) -> list[int]:
        """Slots that are being filled, by component."""
    @property
    def evicted(self) -> list[int]:
        """Device slots that were evicted for the load, by component."""
    @property
    def full(self) -> NDArray[np.int32]:
        """Slots, an int32 array that is made when it is read."""
    @property
    def swa(self) -> NDArray[np.int32]:
        """Slots, an int32 array that is made when it is read."""
    @property
    def mamba(self) -> NDArray[np.int32]:
        """Slots, an int32 array that is made when it is read."""

class Event:
    """A run of consecutive pages that was stored on a medium or removed from it."""

    @property
    def kind(self) -> Literal["stored", "removed", "cleared"]:
        """What happened: "stored", "removed", or "cleared" for all pages at once."""
    @property
    def medium(self) -> Literal["GPU", "CPU_PINNED"]:
        """A value of kvcanon.spec.types.Medium."""
    @property
    def namespace(self) -> int:
        """Number of the namespace."""
    @property
    def pages(self) -> int:
        """How many pages."""
    @property
    def parent_hash(self) -> bytes | None:
        """Hash of the page before the first; None where there is none."""
    @property
    def hashes(self) -> bytes:
        """Page hashes, 32 bytes each; of removed pages the last comes first."""
    @property
    def tokens(self) -> NDArray[np.uint32]:
        """Tokens of the pages: uint32[pages, words a page]."""

class Engine(Protocol):
    """An engine of copies. A move is a component's number with its source and target slots."""

    def submit(
        self,
        transfer_id: int,
        direction: int,
        moves: list[tuple[int, NDArray[np.int32], NDArray[np.int32]]],
    ) -> None: ...
    def poll(self) -> Sequence[tuple[int, bool]]: ...
    def wait(self, transfer_id: int) -> None: ...

Tokens: TypeAlias = NDArray[np.uint32] | NDArray[np.int32] | NDArray[np.int64] | torch.Tensor
SlotArray: TypeAlias = NDArray[np.int32] | NDArray[np.int64] | torch.Tensor

DataTuple: TypeAlias = tuple[
    tuple[int, ...] | None, tuple[int, ...] | None, int, int | None, int | None, int
]
NodeTuple: TypeAlias = tuple[
    int,
    int | None,
    tuple[int, ...],
    int,
    bytes,
    int,
    tuple[DataTuple, ...],
    int,
    int,
    int,
    int,
    bytes | None,
]
TransferTuple: TypeAlias = tuple[
    int,
    int,
    tuple[tuple[int, int], ...],
    tuple[tuple[int, ...] | None, ...],
    tuple[tuple[int, ...] | None, ...],
    bool,
]

class CacheCore:
    """The decisions of a prefix cache: which pages are where, who holds them, and what leaves.

    A call that raises a `CacheError` changes nothing. Tokens are a one-dimensional contiguous
    array of int32, uint32 or int64, of NumPy or of torch on the CPU; a part page at the end is
    ignored. Slots are int32; int64 is accepted, too.
    """

    def __init__(
        self,
        *,
        page_size: int,
        unit_words: int,
        window_tokens: int,
        mamba: bool,
        device_slots: Three,
        host_slots: Three,
        write_policy: int,
        eviction_policy: int,
        load_back_threshold_pages: int,
        events: bool,
        max_pending_events: int = ...,
        engine: Engine | None = None,
        tag_bits: int = 32,
    ) -> None: ...
    def match(self, tokens: Tokens, namespace: int = 0) -> Matched:
        """Find the longest usable prefix of a prompt, and make it the most recently used.

        A match does not protect what it found: call `lock` before the next call that may evict.

        Raises:
            BadArgument: the tokens or the namespace are not valid.
        """
    def lock(self, tokens: Tokens, namespace: int = 0, pages: int | None = None) -> int:
        """Lock the first `pages` pages of a cached prompt, or all, against eviction.

        Returns the receipt, which is good for one `unlock`. It protects the full data down to the
        root, and at the end of the prefix one window and the mamba state.

        Raises:
            PrefixNotCached: some of the pages are not in the tree; match again.
            BadArgument: the tokens, the namespace or `pages` are not valid.
        """
    def unlock(self, receipt: int) -> None:
        """Release all that a receipt still locks. The receipt is spent then.

        Raises:
            ReceiptSpent: the receipt was released before, or another cache gave it.
        """
    def unlock_window(self, receipt: int) -> None:
        """Release the window data and the mamba state of a receipt; the full data stays locked.

        A second call for the same receipt does nothing.

        Raises:
            ReceiptSpent: the receipt was released before, or another cache gave it.
        """
    def allocate(
        self, full: int, swa: int = 0, mamba: int = 0
    ) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
        """Take free device slots of each component, all or none. Never evicts.

        Window slots are paired with the last `swa` of the full slots. The caller holds the slots
        until it passes them to `insert` or `free`.

        Raises:
            OutOfSlots: a pool has fewer free slots; evict, then try again.
            BadArgument: a count is negative, or larger than the pairing allows.
        """
    def free(
        self, full: SlotArray, swa: SlotArray | None = None, mamba: SlotArray | None = None
    ) -> None:
        """Give allocated slots back, all or none.

        Raises:
            SlotNotHeld: a slot is not the caller's: free already, or in the tree.
            BadArgument: an array is not valid, or has a slot twice.
        """
    def insert(
        self,
        tokens: Tokens,
        start_pages: int,
        full: SlotArray,
        swa: SlotArray | None = None,
        mamba: SlotArray | None = None,
        namespace: int = 0,
        counted_pages: int = 0,
        priority: int = 0,
    ) -> Inserted:
        """Hand the slots of a prompt's pages, from page `start_pages` on, over to the tree.

        The tree frees the slots of pages that it has already; match again to see which slots it
        kept. A request that inserts its prompt in parts passes the pages of its earlier inserts as
        `counted_pages`, so that its hits are counted once. `priority` is for the eviction policy
        of that name.

        Effects: may enqueue backups, whose ids are in the answer.

        Raises:
            PrefixNotCached: the pages before `start_pages` are not in the tree.
            SlotNotHeld: a slot is not the caller's.
            TransferPending: a load-back along the path has not settled; poll, then try again.
            BadArgument: the arrays do not fit the tokens or each other.
        """
    def evict(self, full: int, swa: int = 0, mamba: int = 0) -> list[int]:
        """Evict from the device until each count of slots came free, or nothing more can leave.

        Returns how many slots of each component came free; that may be more than the counts. Full
        data leaves leaf by leaf in the order of the eviction policy, other data in LRU order. Under
        write_back this waits for copies to the host.

        Raises:
            BadArgument: a count is negative, or of a component that the cache lacks.
        """
    def evict_host(self, full: int, swa: int = 0, mamba: int = 0) -> list[int]:
        """Evict from the host until each count of slots came free, or nothing more can leave.

        Returns how many slots of each component came free; that may be more than the counts.

        Raises:
            BadArgument: a count is negative, or of a component that the cache lacks.
        """
    def load_back(
        self, tokens: Tokens, quota_pages: int | None = None, namespace: int = 0
    ) -> LoadedBack:
        """Enqueue the copy to the device of all that a cached prompt has only on the host.

        `quota_pages` is the most that this call may load. Effects: may evict from the device.

        Raises:
            PrefixNotCached: the prompt is not in the tree; match again.
            BadArgument: the tokens, the quota or the namespace are not valid.
        """
    def free_slot_counts(self) -> tuple[int, int, int]:
        """Count the free device slots: full, swa, mamba."""
    def take_events(self) -> list[Event]:
        """Return the events since the last call, oldest first, and forget them.

        Where more waited than `max_pending_events`, they are all pages cleared, and then a store of
        each page that is resident. Page hashes are computed here: other calls do not pay for them.
        """
    def _add_namespace(self, encoded: bytes, seed: bytes) -> tuple[int, list[int]]:
        """Return the number of a namespace, and the numbers that were forgotten for it."""
    def _use_namespace(self, number: int) -> bool:
        """Return whether a number is that of a namespace that was not forgotten, and use it."""
    def _insert_host(
        self,
        tokens: Tokens,
        start_pages: int,
        payloads: Three,
        namespace: int = 0,
        write: Callable[[list[tuple[int, int, NDArray[np.int32]]]], None] | None = None,
    ) -> tuple[int, int, int, int]:
        """Place fetched pages; `payloads` counts them by component, `write` gets the slots."""
    def _poll(self) -> tuple[tuple[int, int], ...]:
        """Settle the transfers that have ended: each id with its status."""
    def _reset(self) -> None:
        """Forget the tree, or recover after a failure."""
    def _flush(self) -> tuple[tuple[int, int], ...]:
        """Wait for every transfer in flight, and settle it."""

class Tree:
    """What snapshots, metrics and tests read of a cache."""

    def __init__(self, cache: CacheCore) -> None: ...
    def pending_events(self) -> list[Event]:
        """Return the events that `take_events` would, without taking them."""
    def nodes(self) -> list[NodeTuple]:
        """Return every node as a tuple, the root first."""
    def pool(self, component: int, medium: int) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
        """Return the capacity of a pool, its free slots and those that requests hold."""
    def holds_slot(self, component: int, slot: int) -> bool:
        """Return whether a request holds this device slot."""
    def holds(self) -> list[tuple[int, int, int | None, bool, int | None]]:
        """Return every open receipt as a tuple, the oldest first."""
    def transfers(self) -> list[TransferTuple]:
        """Return every transfer in flight as a tuple."""
    def pairs(self) -> dict[int, int]:
        """Return the window slot of each full slot that has one."""
    def usage(self, component: int) -> tuple[int, int]:
        """Return how many device slots of the tree are evictable, and how many locked."""
    def free_counts(self, medium: int) -> tuple[int, int, int]:
        """Return the free slots of each component."""
    def pool_counts(self, component: int, medium: int) -> tuple[int, int, int, int, int]:
        """Return slot counts: capacity, free, held by requests, in the tree, locked there."""
    def counters(self) -> dict[str, int | Three]:
        """Return all counters of the core by name."""
    def calls(self) -> dict[str, tuple[int, int, int]]:
        """Return calls, refusals and nanoseconds of each operation by name."""
    def check(self) -> None:
        """Check that redundant state agrees. Raises: SpecViolation."""
