// Signatures and docstrings of what SGLang's tree core calls, as in docstrings.hpp.
#pragma once

#include "docstrings.hpp"

namespace kvcanon::docs {

constexpr const char* ROW_TABLE =
    R"(A table from rows to token slots, for a caller whose slots are in the memory of the host.

It takes four bytes a page. A page whose slots are not consecutive takes four bytes a slot besides.

Raises:
    BadArgument: the slots of so many pages could not be numbered with 31 bits.
    ImportError: there is no torch that lends its tensors to C.)";

constexpr Docstring ROW_TABLE_PUT_PARTS{
    "def put_parts(self, parts: Sequence[tuple[int, Rows]], slots: torch.Tensor) -> None",
    R"(Set the token slots of rows, from the whole pages of a tensor of int64 on the CPU.

Each part is the first of its pages there, and the rows.

Raises:
    BadArgument: the tensor is another, has too few pages or numbers out of range, or a row is
        not of the table. The rows of that part have the slots that they had.)"};

constexpr Docstring ROW_TABLE_GET{
    "def get(self, rows: Rows) -> torch.Tensor",
    R"(Return the token slots of rows, in their order: a new tensor of int64.

Raises:
    BadArgument: a row is not of the table.)"};

constexpr const char* ENGINE_NODES =
    R"(The calls of `Nodes` that SGLang makes in every request, with its own objects.

Token slots in tensors take the place of rows, and a match is SGLang's own named tuple. So a
request crosses into this module once a call, and no Python code runs for it here, but for keys
with a namespace or a limit and for slots on a device.)";

constexpr const char* ENGINE_NODES_INIT =
    "def __init__(self, nodes: Nodes, results: ResultTypes, kinds: tuple[object, object, object], "
    "device_slots: SlotsByComponent, host_slots: SlotsByComponent, state_grid: int) -> None";

constexpr Docstring ENGINE_MATCH{
    "def match(self, core: PromptReader, params: object) -> object",
    R"(Find the longest usable prefix of `params.key`, as `Nodes.match`; returns a `results.match`.)"};

constexpr Docstring ENGINE_INSERT{
    "def insert(self, core: PromptReader, params: object, slots: torch.Tensor, "
    "freed_window_tokens: int) -> object",
    R"(Insert `params.key` with its token slots, as `Nodes.insert`.

`freed_window_tokens` is how many tokens of the request have no window slots any more. Returns a
`results.insert_step`; a `PromptInserted` where there is more to do than to free slots that nodes
had before; None for less than a page.

Raises:
    BadArgument: slots out of range, or too few; nothing has changed then.)"};

constexpr Docstring ENGINE_SLOTS{
    "def slots(self, end: int, above: int) -> torch.Tensor",
    R"(Return the full token slots on the device from below a node down to another.)"};

constexpr Docstring ENGINE_EVICT_STEP{
    "def evict_step(self, component: int, amount: int, together: bool = False) -> "
    "object",
    R"(Evict victims until this many tokens, or states, came free, as `Nodes.evict_step`.

Returns a `results.eviction_step`, or the
`VictimToCopy` that must be copied before anything leaves. Where what it
lacks is of this component, others that are needed are named as well if they are copied `together`.)"};

constexpr Docstring ENGINE_EVICT_NODE{
    "def evict_node(self, node: int, component: int) -> SlotsEvicted",
    R"(Evict a component of a node from the device, as `Nodes.evict_node`.)"};

constexpr Docstring ENGINE_MAKE_ROOM{
    "def make_room(self, wanted: Sequence[int], free: Sequence[int]) -> tuple[SlotLists, "
    "SlotLists, Amounts, "
    "list[int], bool]",
    R"(Evict from the host until this many tokens, or states, are free of each component.

`free` is how many are free already. Stops at the first component that stays short: no copy needs
what others would lose. Returns the token slots that came free on the device and on the host, how
many on the host, of each eviction of full data there its first row and how many, and whether all
is free that was wanted.)"};

constexpr Docstring ENGINE_MAKE_ROOM_FOR{
    "def make_room_for(self, nodes: Sequence[int], free: Sequence[int], locks: bool) -> "
    "tuple[SlotLists, SlotLists, Amounts, list[int], bool]",
    R"(As `make_room`, for a copy of all that nodes lack on the host.

Room is made for one node after the other, as for copies of each. One that has room keeps it: a
copy either `locks` its nodes, or what they have on the host stays.)"};

constexpr Docstring ENGINE_READ_FOR_BACKUP{
    "def read_for_backup(self, nodes: Sequence[int]) -> tuple[torch.Tensor | None, torch.Tensor | "
    "None, torch.Tensor | None]",
    R"(The token slots on the device of what nodes have there and not on the host.

Full slots, the full slots of the pages of window data, and the slots of states; None for none.)"};

constexpr Docstring ENGINE_ADD_HOST{
    "def add_host_copy(self, nodes: Sequence[int], full: torch.Tensor | None, swa: torch.Tensor | "
    "None, states: torch.Tensor | None) -> list[int]",
    R"(Give nodes these slots on the host for what they lack there; None leaves a component out.

Returns the nodes that had no full data on the host.

Raises:
    BadArgument: too few slots, or numbers out of range; nothing has changed then.
    OutOfSlots: the tree has too few rows for the host.)"};

constexpr Docstring ENGINE_READ_FOR_LOAD{
    "def read_for_load(self, end: int) -> tuple[torch.Tensor | None, torch.Tensor | None, "
    "torch.Tensor | None]",
    R"(The token slots on the host that a load of the path to a node reads; None for none.)"};

constexpr Docstring ENGINE_ADD_DEVICE{
    "def add_device_copy(self, end: int, full: torch.Tensor | None, swa: torch.Tensor | None, "
    "states: torch.Tensor | None) -> torch.Tensor | None",
    R"(Give the nodes of a path these slots on the device, for what a load brings.

None leaves a component out. Returns the full slots of the pages of window data, or None.

Raises:
    BadArgument: too few slots, or numbers out of range; nothing has changed then.
    OutOfSlots: the tree has too few rows for the device.)"};

}  // namespace kvcanon::docs
