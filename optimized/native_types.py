"""Arguments and results of the native core, for its stub and its callers.

The stub is generated when the core is built (`nanobind_add_stub` in CMakeLists.txt), from the
signatures in optimized/native; these name the types here. The named tuples are also made by the
core: it fills them in the order of their fields.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

if TYPE_CHECKING:
    from kvcanon.optimized._core import Rows, RowTable

Three: TypeAlias = tuple[int, int, int]
"""A count for each component: full, swa, mamba."""
Tokens: TypeAlias = (
    "NDArray[np.uint32] | NDArray[np.int32] | NDArray[np.int64] | torch.Tensor | array[int]"
)
SlotArray: TypeAlias = NDArray[np.int32] | NDArray[np.int64] | torch.Tensor
Moves: TypeAlias = list[tuple[int, NDArray[np.int32], NDArray[np.int32]]]
"""Of each: a component's number, and its source and target slots."""
Placements: TypeAlias = list[tuple[int, int, NDArray[np.int32]]]
"""Of each: a component's number, the first page, and the slots."""
PackedPart: TypeAlias = tuple[int, int, int, int | None, bytes, bytes]
"""What happened, namespace, medium, the hash of the page before, hashes and tokens."""
Settled: TypeAlias = tuple[tuple[int, int], ...]
"""Transfers that have ended: the id and the status of each."""

SlotTuple: TypeAlias = tuple[int, ...] | None
DataTuple: TypeAlias = tuple[SlotTuple, SlotTuple, int, int | None, int | None, int]
"""Slots on the device and on the host, locks, what fills either, and the time of the last use."""
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
"""Number, parent, children, namespace, words, first page, data, hits, priority, times, hashes."""
TransferTuple: TypeAlias = tuple[
    int, int, tuple[tuple[int, int], ...], tuple[SlotTuple, ...], tuple[SlotTuple, ...], bool
]
"""Id, direction, parts (node and component), sources and targets, and if it was cancelled."""

Presence: TypeAlias = tuple[bool, bool, bool]
"""Whether there is full data, window data and a state."""
RowsByComponent: TypeAlias = "tuple[Rows | None, Rows | None, Rows | None]"
"""Slots of full data, window data and states; None for none."""
NodeCuts: TypeAlias = list[tuple[int, int, int]]
"""Nodes that were cut: the new upper node, the lower one, and the pages of the upper."""
SlotLists: TypeAlias = dict[Any, list[torch.Tensor]]
"""Token slots, by SGLang's component."""
Amounts: TypeAlias = dict[Any, int]
"""Tokens, or states, by SGLang's component."""
SlotsByComponent: TypeAlias = "tuple[EngineSlots | None, EngineSlots | None, EngineSlots | None]"
"""SGLang's slots of full data, window data and states on a medium; None where it has none there."""


class Engine(Protocol):
    """An engine of copies.

    An engine with streams has `event_after(point)`, too, whose answer `submit` takes as `after`.
    """

    def submit(self, transfer_id: int, direction: int, moves: Moves) -> bool:
        """Begin a transfer; returns whether `poll` will report its end. If not, it has failed."""

    def keep_unread(self, slots: NDArray[np.int32]) -> None:
        """Keep what a store below has yet to read of host slots, which are about to be overwritten.

        Only a cache with a store calls it.
        """

    def give_up(self, transfer_id: int) -> bool:
        """Whether a transfer never begins, as its `submit` was interrupted; else `poll` ends it."""

    def poll(self) -> Sequence[tuple[int, bool]]:
        """The transfers that have ended since the last call, and whether each is done."""

    def wait(self, transfer_id: int) -> None:
        """Wait until a transfer has ended."""


class EngineSlots(Protocol):
    """SGLang's token slots of one component on one medium, by row."""

    table: RowTable | None
    """The table that has them, where they are in the memory of the host."""

    def get(self, rows: Rows) -> torch.Tensor:
        """The token slots of rows, in their order: a new tensor."""

    def put_parts(self, parts: list[tuple[int, Rows]], tokens: torch.Tensor) -> None:
        """Set the token slots of several rows, each with the first of its pages in `tokens`."""


class ResultTypes(NamedTuple):
    """What makes SGLang's results, from values in the order of its fields."""

    match: type
    eviction_step: Callable[..., object]
    insert: Callable[..., object]
    insert_step: Callable[..., object]
    free_slots: Callable[..., object]


class PromptReader(Protocol):
    """What `EngineNodes` asks where a key has a namespace or a limit, or a match cut nodes."""

    def prompt(self, key: Any) -> tuple[array[int], int]:  # noqa: ANN401 # SGLang's `RadixKey`.
        """The tokens of a key, and the number of its namespace."""

    def follow_cuts(self, cuts: NodeCuts) -> list[object]:
        """Let copies in flight follow where the tree cut nodes; returns SGLang's actions."""


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
    host_only: Three
    """Slots that a load of the prefix would fill, by component."""
    cuts: NodeCuts


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
    cuts: NodeCuts


class PromptInserted(NamedTuple):
    """Where the pages of an insert of SGLang went; the token slots of what was taken are set.

    Pages are given as the first and one past the last.
    """

    end: int
    """The node at which the prompt ends."""
    walked_pages: int
    """Pages of the prompt that the tree had before, on any medium."""
    adopted: tuple[list[tuple[int, int]], list[tuple[int, int]]] | None
    """Pages whose full slots the tree took, and those of window data; None if nobody asked."""
    replaced: torch.Tensor | None
    """Full slots that nodes had before they took those of the request with its window data."""
    locked: Sequence[tuple[int, torch.Tensor, int, int]]
    """Window data that came back where a lock holds full data: the end, its full slots, pages."""
    state: int | None
    """The row of the state; None where the tree did not take it."""
    duplicates: Sequence[tuple[int, int]]
    """Pages of the caller that were there, but those of window data."""
    wanted: Sequence[int]
    """The nodes to copy to the host, in this order."""
    wanted_end: int
    """The lowest of them, which the others are above; 0 for none."""
    cuts: Sequence[tuple[int, int, int]]
    """Nodes that were cut, where there is a host: as `NodeCuts`."""


class EvictStep(NamedTuple):
    """Victims, and the slots that they freed."""

    node: int
    """The last victim; 0 where nothing more can leave."""
    copy_first: bool
    """Whether the caller copies it first; nothing has changed then."""
    whole: bool
    """Whether the node leaves the device as a whole."""
    lost: int
    """Full slots that left and have no copy on the host."""
    lacks: Three
    """Slots that the victim needs on the host, by component."""
    device: RowsByComponent
    """Device slots that came free; window slots by the full slots of their pages."""
    host: RowsByComponent
    """Host slots that came free, by component, or None."""


class VictimToCopy(NamedTuple):
    """A victim that must be copied to the host before it leaves; nothing has changed yet."""

    node: int
    as_leaf: bool
    """Whether it is copied as a whole: it is a leaf, and the host lacks its full data."""
    with_it: Sequence[int]
    """The victims after it that are copied with it."""
    needed: Three
    """Tokens, or states, that the copy needs on the host, of components with a pool there."""


class SlotsEvicted(NamedTuple):
    """SGLang's token slots that came free as a component, or a node, left the device."""

    device: SlotLists
    """Those on the device; of window data the full slots."""
    host: SlotLists
    tokens: Amounts
    """How many came free on the device."""
    lost: int
    """Tokens of full data that left and have no copy on the host."""


class FetchedTaken(NamedTuple):
    """What the tree took of pages that were fetched from storage; pages count from the first."""

    end: int
    """The node with the last page, where the host has it; 0 for none."""
    present_pages: int
    """Leading pages that stay the caller's: the host, or under write_back the tree, had them."""
    dropped: bool
    """Whether pages were left over, since the host would lack the page before them."""
    taken: list[tuple[int, Rows]]
    """Full data that the tree took: the first page, and the rows on the host."""
    cuts: NodeCuts
