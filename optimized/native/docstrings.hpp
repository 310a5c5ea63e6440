// Signatures and docstrings of the calls that Python users see. The stub `_core.pyi` is generated
// from them; optimized/native_types.py has the types that they name.
#pragma once

namespace kvcanon {

struct Docstring {
    // As in a stub, without the colon at its end.
    const char* signature;
    const char* text;
};

namespace docs {

constexpr const char* CACHE_CORE =
    R"(The decisions of a prefix cache: which pages are where, who holds them, and what leaves.

A call that raises a `CacheError` changes nothing. Tokens are a one-dimensional contiguous
array of int32, uint32 or int64, of NumPy or of torch on the CPU; a part page at the end is
ignored. Slots are int32; int64 is accepted, too.)";

// Its defaults are those of bind_core.cpp.
constexpr const char* CACHE_CORE_INIT =
    "def __init__(self, *, page_size: int, unit_words: int, window_tokens: int, mamba: bool, "
    "device_slots: Three, host_slots: Three, write_policy: int, eviction_policy: int, "
    "load_back_threshold_pages: int, events: bool, max_pending_events: int = ..., "
    "engine: Engine | None = None, tag_bits: int = 32, padding_slots: Three = (0, 0, 0), "
    "caller_copies: bool = False, store: int | None = None) -> None";

constexpr const char* MATCHED = R"(The longest usable prefix of a prompt.

`full` has one device slot a page, from page 0 on; `swa` those of the last pages, as far back as
there is window data; `mamba` the one at the end. The arrays are made when they are read.)";

constexpr const char* LOADED_BACK = R"(What a load-back did.

`full`, `swa` and `mamba` are the slots of the whole prompt, as a match returns them once the
transfer has settled; they are empty where nothing was enqueued. A layer may be read as soon as
`wait_layer` returns for it.)";

constexpr const char* EVENT =
    R"(A run of consecutive pages that was stored on a medium or removed from it.)";

constexpr const char* HOST_SLOTS_FOUND = R"(Where a prompt is on the host.

`full` has one host slot a page, from page 0 on; `swa` those of the last pages, as far back as
there is window data; `mamba` the one at the end. The arrays are made when they are read.)";

constexpr Docstring MATCH{
    "def match(self, tokens: Tokens, namespace: int = 0) -> Matched",
    R"(Find the longest usable prefix of a prompt, and make it the most recently used.

A match does not protect what it found: call `lock` before the next call that may evict.

Raises:
    BadArgument: the tokens or the namespace are not valid.)"};

constexpr Docstring LOCK{
    "def lock(self, tokens: Tokens, namespace: int = 0, pages: int | None = None) -> int",
    R"(Lock the first `pages` pages of a cached prompt, or all, against eviction.

Returns the receipt, which is good for one `unlock`. It protects the full data down to the
root, and at the end of the prefix one window and the mamba state.

Raises:
    PrefixNotCached: some of the pages are not in the tree; match again.
    BadArgument: the tokens, the namespace or `pages` are not valid.)"};

constexpr Docstring LOCK_FOUND{
    "def lock_found(self, found: Matched, pages: int | None = None) -> int",
    R"(Lock the first `pages` pages of what a match found, or all, without a look at the tokens.

Does what `lock` does for the same prompt, and takes no longer for a long one.

Raises:
    PrefixNotCached: the end of the prefix has left the tree since; match again.
    BadArgument: `found` is no match of this cache, or `pages` are more than it found.)"};
constexpr Docstring UNLOCK{"def unlock(self, receipt: int) -> None",
                           R"(Release all that a receipt still locks. The receipt is spent then.

Raises:
    ReceiptSpent: the receipt was released before, or another cache gave it.)"};

constexpr Docstring UNLOCK_WINDOW{
    "def unlock_window(self, receipt: int) -> None",
    R"(Release the window data and the mamba state of a receipt; the full data stays locked.

A second call for the same receipt does nothing.

Raises:
    ReceiptSpent: the receipt was released before, or another cache gave it.)"};

constexpr Docstring ALLOCATE{
    "def allocate(self, full: int, swa: int = 0, mamba: int = 0) -> "
    "tuple[NDArray[numpy.int32], NDArray[numpy.int32], NDArray[numpy.int32]]",
    R"(Take free device slots of each component, all or none. Never evicts.

Window slots are paired with the last `swa` of the full slots. The caller holds the slots
until it passes them to `insert` or `free`.

Raises:
    OutOfSlots: a pool has fewer free slots; evict, then try again.
    BadArgument: a count is negative, or larger than the pairing allows.)"};

constexpr Docstring FREE{
    "def free(self, full: SlotArray, swa: SlotArray | None = None, "
    "mamba: SlotArray | None = None) -> None",
    R"(Give allocated slots back, all or none.

Raises:
    SlotNotHeld: a slot is not the caller's: free already, or in the tree.
    BadArgument: an array is not valid, or has a slot twice.)"};

constexpr Docstring INSERT{
    "def insert(self, tokens: Tokens, start_pages: int, full: SlotArray, "
    "swa: SlotArray | None = None, mamba: SlotArray | None = None, namespace: int = 0, "
    "counted_pages: int = 0, priority: int = 0, after: object = None, "
    "state_pages: Sequence[int] = ()) -> Inserted",
    R"(Hand the slots of a prompt's pages, from page `start_pages` on, over to the tree.

The tree frees the slots of pages that it has already; match again to see which slots it
kept. A request that inserts its prompt in parts passes the pages of its earlier inserts as
`counted_pages`, so that its hits are counted once. `priority` is for the eviction policy
of that name.

`mamba` has the state at the end of the prompt, or as many as `state_pages` has numbers: each is
at the end of so many pages, ascending. Other prompts that part there go on from it.

`after` is a stream or an event of a GPU: backups read after its work until now. None means
the current stream.

Effects: may enqueue backups, whose ids are in the answer.

Raises:
    PrefixNotCached: the pages before `start_pages` are not in the tree.
    SlotNotHeld: a slot is not the caller's.
    TransferPending: a load-back along the path has not settled; poll, then try again.
    BadArgument: the arrays do not fit the tokens or each other.)"};

constexpr Docstring EVICT{
    "def evict(self, full: int, swa: int = 0, mamba: int = 0, after: object = None) -> list[int]",
    R"(Evict from the device until each count of slots came free, or nothing more can leave.

Returns how many slots of each component came free; that may be more than the counts. Full
data leaves leaf by leaf in the order of the eviction policy, other data in LRU order. Under
write_back this waits for copies to the host.

`after` is a stream or an event of a GPU: the copies of write_back read after its work until
now. None means the current stream.

Raises:
    BadArgument: a count is negative, or of a component that the cache lacks.)"};

constexpr Docstring EVICT_HOST{
    "def evict_host(self, full: int, swa: int = 0, mamba: int = 0) -> list[int]",
    R"(Evict from the host until each count of slots came free, or nothing more can leave.

Returns how many slots of each component came free; that may be more than the counts.

Raises:
    BadArgument: a count is negative, or of a component that the cache lacks.)"};

constexpr Docstring LOAD_BACK{
    "def load_back(self, tokens: Tokens, quota_pages: int | None = None, namespace: int = 0, "
    "after: object = None) -> LoadedBack",
    R"(Enqueue the copy to the device of all that a cached prompt has only on the host.

`quota_pages` is the most that this call may load. Effects: may evict from the device.

`after` is a stream or an event of a GPU: the load writes after its work until now. None
means the current stream.

Raises:
    PrefixNotCached: the prompt is not in the tree; match again.
    BadArgument: the tokens, the quota or the namespace are not valid.)"};

constexpr Docstring RESERVE_HOST{
    "def reserve_host(self, full: int, swa: int = 0, mamba: int = 0) -> "
    "tuple[NDArray[numpy.int32], NDArray[numpy.int32], NDArray[numpy.int32]]",
    R"(Take free host slots of each component for a caller that writes their bytes itself.

All or none; never evicts. A reserved slot is neither free nor in the tree until the caller
passes it to `commit_host` or `abort_host`, also over a `reset`.

Raises:
    OutOfSlots: a pool has fewer free slots; call `evict_host`, then try again.
    BadArgument: there is no host tier, or a count is negative.)"};

constexpr Docstring ABORT_HOST{
    "def abort_host(self, full: SlotArray, swa: SlotArray | None = None, "
    "mamba: SlotArray | None = None) -> None",
    R"(Give reserved host slots back, all or none.

Raises:
    SlotNotHeld: a slot is not reserved.
    BadArgument: an array is not valid, or has a slot twice.)"};

constexpr Docstring HOST_SLOTS{
    "def host_slots(self, tokens: Tokens, namespace: int = 0) -> HostSlots",
    R"(Find the host slots of a prompt, as far as settled copies reach from its first page.

Changes nothing. The slots stay as they are while a receipt locks the prompt.

Raises:
    BadArgument: the tokens or the namespace are not valid.)"};

constexpr Docstring FREE_SLOT_COUNTS{"def free_slot_counts(self) -> tuple[int, int, int]",
                                     R"(Count the free device slots: full, swa, mamba.)"};

constexpr Docstring TAKE_EVENTS{
    "def take_events(self) -> list[Event]",
    R"(Return the events since the last call, oldest first, and forget them.

Where more waited than `max_pending_events`, they are all pages cleared, and then a store of
each page that is resident. Page hashes are computed here: other calls do not pay for them.)"};

}  // namespace docs

}  // namespace kvcanon
