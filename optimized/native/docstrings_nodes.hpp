// Signatures and docstrings of `Nodes`, as in docstrings.hpp.
#pragma once

#include "docstrings.hpp"

namespace kvcanon::docs {

constexpr const char* NODES =
    R"(The nodes of a cache by handle, for a caller that keeps tables of slots and copies itself.

A handle is a number that no other node of the cache ever has; a cut leaves it to the lower
part. Slots are rows: indexes into the caller's tables of addresses. docs/engine-api.md
explains the calls.)";

constexpr const char* ROWS =
    R"(Rows of a pool, the first page first, as stretches of consecutive numbers.)";

constexpr Docstring NODES_ROOT{"def root(self) -> int",
                               R"(Return the node above the first page of every prompt.)"};

constexpr Docstring NODES_MATCH{
    "def match(self, tokens: Tokens, namespace: int = 0) -> NodeMatched",
    R"(Find the longest usable prefix of a prompt, and make it the most recently used.

A match does not protect what it found: call `lock` before the next call that may evict.

Raises:
    BadArgument: the tokens or the namespace are not valid.)"};

constexpr Docstring NODES_LOCK{
    "def lock(self, node: int, window: bool = True, state: bool = True, windows_of: "
    "Iterable[int] = ()) -> tuple[int, int, bool]",
    R"(Lock a node: full data up to the root, the nodes of its last window, and its state.

With the window, `windows_of` are nodes above whose windows are held as well, and all window
data below them.

Returns the receipt, the full slots that were evictable before, and whether the window
begins below the first page. It holds whole nodes and never cuts one.

Raises:
    BadArgument: a node is gone.)"};

constexpr Docstring NODES_UNLOCK{"def unlock(self, node: int, receipt: int) -> None",
                                 R"(Release what a receipt still holds.

Raises:
    ReceiptSpent: it holds nothing any more.
    BadArgument: the node is gone, or the receipt was given for another.)"};

constexpr Docstring NODES_UNLOCK_WINDOW{
    "def unlock_window(self, node: int, receipt: int) -> None",
    R"(Release the window data and the state; the full data stays locked.

Raises:
    ReceiptSpent: it holds nothing any more.
    BadArgument: the node is gone, or the receipt was given for another.)"};

constexpr Docstring NODES_UNLOCK_STATE{"def unlock_state(self, node: int, receipt: int) -> None",
                                       R"(Release the state alone.

Raises:
    ReceiptSpent: it holds nothing any more.
    BadArgument: the node is gone, or the receipt was given for another.)"};

constexpr Docstring NODES_SLOTS{
    "def slots(self, end: int, above: int | None = None, component: int = 0, medium: int = 0) -> "
    "Rows",
    R"(Return the slots from below a node `above` down to `end`, the first page first.

Without `above` they are those of `end` alone.

Raises:
    BadArgument: a node is gone or lacks the data, or `above` is not above `end`.)"};

constexpr Docstring NODES_INSERT{
    "def insert(self, tokens: Tokens, namespace: int = 0, owned_pages: int = 0, "
    "window_from: int = 0, state: bool = False, counted_pages: int = 0, priority: int = "
    "0) -> NodeInserted",
    R"(Insert a prompt; the tree takes rows for what it lacks, and the caller fills its tables.

The caller owns the pages from `owned_pages` on, and has their window data from page
`window_from` on, and with `state` the state at the end. `counted_pages` were counted as hit
by an earlier insert of the same request.

Raises:
    PrefixNotCached: the tree lacks pages before `owned_pages`.
    OutOfSlots: a pool has too few rows.
    BadArgument: the tokens, the namespace or a number of pages are not valid.)"};

constexpr Docstring NODES_EVICT_STEP{
    "def evict_step(self, component: int, slots: int = 1) -> EvictStep",
    R"(Evict victims of a component from the device until so many of its slots are free.

Under write_back a victim without a host copy is only named: copy it, then call
`evict_node`. It is the first victim of a step.

Raises:
    BadArgument: the component or the number is not valid.)"};

constexpr Docstring NODES_EVICT_NODE{
    "def evict_node(self, node: int, component: int) -> EvictStep",
    R"(Evict a node from the device: as a whole if it is a leaf, otherwise one component.

Raises:
    BadArgument: the node is gone or locked, or has no such data.)"};

constexpr Docstring NODES_EVICT_HOST{
    "def evict_host(self, component: int, slots: int) -> tuple[RowsByComponent, RowsByComponent]",
    R"(Evict from the host until so many slots of a component came free, if they can.

Returns the slots that came free on the device and on the host, by component, or None.)"};

constexpr Docstring NODES_TO_BACK_UP{
    "def slots_to_back_up(self, nodes: Iterable[int]) -> tuple[RowsByComponent, Rows | None]",
    R"(Return the device slots of what nodes have on the device alone, by component.

They are in the order of the nodes. Second come the full slots of the pages of window slots,
for a caller that knows the latter by the former.)"};

constexpr Docstring NODES_ADD_HOST{
    "def add_host_copy(self, nodes: Iterable[int], components: Iterable[int]) -> "
    "tuple[RowsByComponent, list[int]]",
    R"(Give nodes host slots for the components that they lack there, all or none.

Returns the slots by component, in the order of the nodes, and the nodes that had no full
data on the host. The data counts as being on the host at once: keep the nodes locked until
it is.

Raises:
    BadArgument: the host would have data without the full data of its pages, or, but under
        write_back, without the pages before.
    OutOfSlots: the host has too few slots; call `evict_host` first.)"};

constexpr Docstring NODES_EMIT_HOST{
    "def emit_host_store(self, node: int) -> None",
    R"(Emit that the pages of a node are on the host, once their bytes are.)"};

constexpr Docstring NODES_TO_LOAD{
    "def slots_to_load(self, end: int) -> RowsByComponent",
    R"(Return the host slots that a load of the path to a node reads, by component, root first.

They are what the path has on the host alone and its end needs.)"};

constexpr Docstring NODES_ADD_DEVICE{
    "def add_device_copy(self, end: int, components: Iterable[int]) -> tuple[RowsByComponent, "
    "Rows | None]",
    R"(Give this data of the path to a node device slots, and emit the stores of full data.

Returns the slots by component, root first, and the full slots of the pages that got window
slots. The data counts as being on the device at once: keep the node locked until it is.

Raises:
    BadArgument: the device would have data without the full data of its pages.
    OutOfSlots: a pool has too few rows.)"};

constexpr Docstring NODES_ADD_DATA{
    "def add_device_data(self, node: int, component: int) -> Rows",
    R"(Give a node device slots of a component that it lacks; returns them.

Raises:
    BadArgument: the node has them, is the root, or lacks full data on the device.
    OutOfSlots: the pool has too few rows.)"};

constexpr Docstring NODES_PARENT{"def parent(self, node: int) -> int | None",
                                 R"(Return the node above; None for the root.)"};

constexpr Docstring NODES_CHILDREN{
    "def children(self, node: int) -> list[int]",
    R"(Return the nodes below, in the order in which they were added.)"};

constexpr Docstring NODES_DESCRIBE{
    "def describe(self, node: int) -> tuple[int, int, Presence, Presence]",
    R"(Return the first page of a node, one past its last, and what both media have of it.)"};

constexpr Docstring NODES_HAS{"def has(self, node: int, component: int, medium: int = 0) -> bool",
                              R"(Return whether a node has data of a component on a medium.)"};

constexpr Docstring NODES_ALL{"def all(self) -> list[int]",
                              R"(Return every node, each before those below it.)"};

constexpr Docstring NODES_WANTED_HITS{
    "def set_wanted_hits(self, hits: int) -> None",
    R"(Set after how many hits an insert wants a node copied, whatever the write policy.)"};

constexpr Docstring NODES_ADD_NAMESPACE{
    "def add_namespace(self, encoded: bytes, seed: bytes, storage_seed: bytes = b'') -> tuple[int, "
    "list[int]]",
    R"(Return the number of a namespace, and the numbers that were forgotten for it.

The seeds, of 32 bytes or none, are what hashes of its first pages begin with: those of events,
and those by which storage below the host names pages.)"};

constexpr Docstring NODES_USE_NAMESPACE{
    "def use_namespace(self, number: int) -> bool",
    R"(Return whether a number is that of a namespace that was not forgotten, and use it.)"};

constexpr Docstring NODES_WRITE_BACK{
    "def set_write_back(self, write_back: bool) -> None",
    R"(Set whether data is copied to the host when it leaves the device, or once it is used enough.

Raises:
    BadArgument: there is no host tier, or a host copy would lack one above it.)"};

constexpr Docstring NODES_STORAGE_HASHES{
    "def storage_hashes(self, end: int, above: int | None = None) -> list[str]",
    R"(Return the hashes by which storage names pages, from below `above` down to a node.

In hexadecimal, the first page first; of the node alone where `above` is left out. They are
computed where they are asked for.

Raises:
    BadArgument: `above` is not above the node.)"};

constexpr Docstring NODES_LAST_STORAGE_HASH{
    "def last_storage_hash(self, node: int) -> str | None",
    R"(Return the hash by which storage names a node's last page; None for the root.)"};

constexpr Docstring NODES_TOKENS{
    "def tokens(self, node: int) -> bytes",
    R"(Return the tokens of a node as 64-bit integers; of bigrams, one more than there are units.)"};

constexpr Docstring NODES_NAMESPACE_OF{
    "def namespace_of(self, node: int) -> int",
    R"(Return the number of a node's namespace; that of the default one for the root.)"};

constexpr Docstring NODES_HOLD_HOST{
    "def hold_host(self, node: int) -> int",
    R"(Keep a node, what the host has of it, and the full and window data of its last window there.

Returns a receipt. The device may lose what it has of them, and the host the states above the node.)"};

constexpr Docstring NODES_RELEASE_HOST{"def release_host(self, node: int, receipt: int) -> None",
                                       R"(End what `hold_host` began.

Raises:
    ReceiptSpent: it was ended before.
    BadArgument: the receipt was given for another node.)"};

constexpr Docstring NODES_TAKE_FETCHED{
    "def take_fetched(self, above: int, tokens: Tokens, namespace: int = 0) -> FetchedTaken",
    R"(Take pages that were fetched from storage and follow a node, on the host.

The tree takes those that the host lacks: new ones, and except under write_back also those that
the device alone has. It emits their stores, and makes the path recent.

Raises:
    BadArgument: there is no host tier, or the namespace is not that of the node.
    OutOfSlots: the host has too few rows.)"};

constexpr Docstring NODES_TAKE_WINDOW{
    "def take_fetched_window(self, above: int, end: int, pages: int) -> tuple[list[tuple[int, "
    "Rows]], list[tuple[int, int]], NodeCuts]",
    R"(Take the window data of the last pages down to a node, where the host lacks it below `above`.

Returns what the tree took (the first page and the rows), the pages that stay the caller's (the
first and one past the last), and cuts. Pages count from the first that is given.

Raises:
    BadArgument: `above` is not above the node, there is no window, or there are fewer pages.
    OutOfSlots: the host has too few rows.)"};

constexpr Docstring NODES_TAKE_STATE{
    "def take_fetched_state(self, end: int) -> Rows | None",
    R"(Take the state at the end of a node, where the host lacks it; returns its row, or None.

Raises:
    BadArgument: the node is the root, or there are no states.
    OutOfSlots: the host has too few rows.)"};

constexpr Docstring NODES_FORGET{
    "def forget(self) -> None",
    R"(Forget the tree and all receipts. No handle of a node is given out again.)"};

}  // namespace kvcanon::docs
