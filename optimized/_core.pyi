"""The native core, as bind_*.cpp in optimized/native bind it, with the same docstrings."""

from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from kvcanon.optimized._core_nodes import EvictStep as EvictStep
from kvcanon.optimized._core_nodes import NodeInserted as NodeInserted
from kvcanon.optimized._core_nodes import NodeMatched as NodeMatched
from kvcanon.optimized._core_nodes import Nodes as Nodes
from kvcanon.optimized._core_nodes import Rows as Rows
from kvcanon.optimized._core_nodes import RowsByComponent as RowsByComponent
from kvcanon.optimized._core_nodes import RowTable as RowTable
from kvcanon.optimized._core_results import Event as Event
from kvcanon.optimized._core_results import HostSlots as HostSlots
from kvcanon.optimized._core_results import Inserted as Inserted
from kvcanon.optimized._core_results import LoadedBack as LoadedBack
from kvcanon.optimized._core_results import Matched as Matched
from kvcanon.optimized._core_results import PackedEvents as PackedEvents
from kvcanon.optimized._core_results import PackedPart as PackedPart

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

class Engine(Protocol):
    """An engine of copies. A move is a component's number with its source and target slots.

    An engine with streams has `event_after(point)`, too, whose answer `submit` takes as `after`.
    """

    def submit(
        self,
        transfer_id: int,
        direction: int,
        moves: list[tuple[int, NDArray[np.int32], NDArray[np.int32]]],
    ) -> None: ...
    def poll(self) -> Sequence[tuple[int, bool]]: ...
    def wait(self, transfer_id: int) -> None: ...

Tokens: TypeAlias = (
    NDArray[np.uint32] | NDArray[np.int32] | NDArray[np.int64] | torch.Tensor | array[int]
)
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
        padding_slots: Three = (0, 0, 0),
        caller_copies: bool = False,
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
    def lock_found(self, found: Matched, pages: int | None = None) -> int:
        """Lock the first `pages` pages of what a match found, or all, without a look at the tokens.

        Does what `lock` does for the same prompt, and takes no longer for a long one.

        Raises:
            PrefixNotCached: the end of the prefix has left the tree since; match again.
            BadArgument: `found` is no match of this cache, or `pages` are more than it found.
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
        after: object = None,
    ) -> Inserted:
        """Hand the slots of a prompt's pages, from page `start_pages` on, over to the tree.

        The tree frees the slots of pages that it has already; match again to see which slots it
        kept. A request that inserts its prompt in parts passes the pages of its earlier inserts as
        `counted_pages`, so that its hits are counted once. `priority` is for the eviction policy
        of that name.

        `after` is a stream or an event of a GPU: backups read after its work until now. None means
        the current stream.

        Effects: may enqueue backups, whose ids are in the answer.

        Raises:
            PrefixNotCached: the pages before `start_pages` are not in the tree.
            SlotNotHeld: a slot is not the caller's.
            TransferPending: a load-back along the path has not settled; poll, then try again.
            BadArgument: the arrays do not fit the tokens or each other.
        """
    def evict(self, full: int, swa: int = 0, mamba: int = 0, after: object = None) -> list[int]:
        """Evict from the device until each count of slots came free, or nothing more can leave.

        Returns how many slots of each component came free; that may be more than the counts. Full
        data leaves leaf by leaf in the order of the eviction policy, other data in LRU order. Under
        write_back this waits for copies to the host.

        `after` is a stream or an event of a GPU: the copies of write_back read after its work until
        now. None means the current stream.

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
        self,
        tokens: Tokens,
        quota_pages: int | None = None,
        namespace: int = 0,
        after: object = None,
    ) -> LoadedBack:
        """Enqueue the copy to the device of all that a cached prompt has only on the host.

        `quota_pages` is the most that this call may load. Effects: may evict from the device.

        `after` is a stream or an event of a GPU: the load writes after its work until now. None
        means the current stream.

        Raises:
            PrefixNotCached: the prompt is not in the tree; match again.
            BadArgument: the tokens, the quota or the namespace are not valid.
        """
    def reserve_host(
        self, full: int, swa: int = 0, mamba: int = 0
    ) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
        """Take free host slots of each component for a caller that writes their bytes itself.

        All or none; never evicts. A reserved slot is neither free nor in the tree until the caller
        passes it to `commit_host` or `abort_host`, also over a `reset`.

        Raises:
            OutOfSlots: a pool has fewer free slots; call `evict_host`, then try again.
            BadArgument: there is no host tier, or a count is negative.
        """
    def abort_host(
        self, full: SlotArray, swa: SlotArray | None = None, mamba: SlotArray | None = None
    ) -> None:
        """Give reserved host slots back, all or none.

        Raises:
            SlotNotHeld: a slot is not reserved.
            BadArgument: an array is not valid, or has a slot twice.
        """
    def host_slots(self, tokens: Tokens, namespace: int = 0) -> HostSlots:
        """Find the host slots of a prompt, as far as settled copies reach from its first page.

        Changes nothing. The slots stay as they are while a receipt locks the prompt.

        Raises:
            BadArgument: the tokens or the namespace are not valid.
        """
    def free_slot_counts(self) -> tuple[int, int, int]:
        """Count the free device slots: full, swa, mamba."""
    def take_events(self) -> list[Event]:
        """Return the events since the last call, oldest first, and forget them.

        Where more waited than `max_pending_events`, they are all pages cleared, and then a store of
        each page that is resident. Page hashes are computed here: other calls do not pay for them.
        """
    def take_packed_events(self) -> PackedEvents:
        """Return the events since the last call for the wire, and forget them.

        They are those of `take_events`, in a form that another thread can encode.
        """
    def take_event_parts(self) -> list[PackedPart]:
        """Return the events since the last call, each as a tuple, and forget them.

        They are those of `take_events`, with their lists encoded already, so that an engine's own
        event needs only their bytes. A tuple has what happened (0 stored, 1 removed, 2 cleared),
        the number of the namespace, the medium, the hash of the page before or None, and as
        MessagePack the list of hashes and the list of tokens. Hashes are SGLang's.
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
    def _arrived(self) -> tuple[tuple[int, bool], ...]:
        """The transfers that can settle: each id, and whether done."""
    def _settle(self, completions: list[tuple[int, bool]]) -> tuple[tuple[int, int], ...]:
        """Settle exactly these transfers: each id with its status."""
    def _commit_host(
        self,
        tokens: Tokens,
        start_pages: int,
        full: SlotArray,
        swa: SlotArray | None = None,
        mamba: SlotArray | None = None,
        namespace: int = 0,
    ) -> tuple[int, int, int, int]:
        """Place host slots that a client reserved and filled."""
    def _close(self) -> None:
        """Refuse all later calls."""
    def _detach(self, detached: bool) -> None:
        """Refuse calls that give or fill device slots, or accept them again."""
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
