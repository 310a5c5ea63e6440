// Signatures and docstrings of what SGLang's tree core calls, as in docstrings.hpp.
#pragma once

#include "docstrings.hpp"

namespace kvcanon::docs {

constexpr const char* ROW_TABLE =
    R"(A table from rows to token slots, for a caller whose slots are in the memory of the host.

It takes four bytes a block, which is a page of 16 tokens or more, or as many pages as have 16.
A block whose slots are not consecutive takes four bytes a slot besides.

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
    "def __init__(self, nodes: Nodes, match_result: type, kinds: tuple[object, object, object], "
    "device_slots: SlotsByComponent, host_slots: SlotsByComponent, state_grid: int) -> None";

constexpr Docstring ENGINE_MATCH{
    "def match(self, core: PromptReader, params: object) -> object",
    R"(Find the longest usable prefix of `params.key`, as `Nodes.match`; returns a `match_result`.)"};

constexpr Docstring ENGINE_INSERT{
    "def insert(self, core: PromptReader, params: object, slots: torch.Tensor, "
    "freed_window_tokens: int) -> PromptInserted | None",
    R"(Insert `params.key` with its token slots, as `Nodes.insert`; None for less than a page.

`freed_window_tokens` is how many tokens of the request have no window slots any more.

Raises:
    BadArgument: slots out of range, or too few; nothing has changed then.)"};

constexpr Docstring ENGINE_SLOTS{
    "def slots(self, end: int, above: int) -> torch.Tensor",
    R"(Return the full token slots on the device from below a node down to another.)"};

constexpr Docstring ENGINE_EVICT_STEP{
    "def evict_step(self, component: int, amount: int) -> SlotsEvicted",
    R"(Evict victims until this many tokens, or states, came free, as `Nodes.evict_step`.)"};

constexpr Docstring ENGINE_EVICT_NODE{
    "def evict_node(self, node: int, component: int) -> SlotsEvicted",
    R"(Evict a component of a node from the device, as `Nodes.evict_node`.)"};

constexpr Docstring ENGINE_EVICT_HOST{
    "def evict_host(self, component: int, slots: int) -> tuple[SlotLists, SlotLists, Amounts, Rows "
    "| None]",
    R"(Free host slots, as `Nodes.evict_host`.

Returns the token slots that came free on the device and on the host, how many on the host, and
the rows of full data there.)"};

}  // namespace kvcanon::docs
