"""The orders that a cache gives to its copy engine: pages, from slots on one medium to the other.

**A slot is not reused while a copy reads or writes it.** The tree ensures that, and engines lock no
slot: from the enqueue until it is settled, a transfer holds a lock on the slots that it reads, and
owns those that it writes. It is settled after the engine has reported its end. So an engine must
never report an order as complete while a byte of it may still move.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias, overload, runtime_checkable

import numpy as np
import numpy.typing as npt
from attrs import field, frozen

from kvcanon.optimized.layout import PageLayout
from kvcanon.spec.transfer import Copy, Direction, TransferEngine, TransferOrder
from kvcanon.spec.types import Component, Medium, TransferId

SlotArray: TypeAlias = npt.NDArray[np.int32]

ALL_LAYERS = slice(None)


@frozen(eq=False)
class Move:
    """Slot by slot, within one component's pools on two media."""

    component: Component
    sources: SlotArray
    targets: SlotArray
    """As many as sources, without repeats."""


class PageCopier(Protocol):
    """What an order needs of pools."""

    @property
    def layouts(self) -> Mapping[Component, PageLayout]:
        """The layout of a page of each component."""

    def copy(self, move: Move, direction: Direction, layers: slice = ALL_LAYERS) -> None:
        """Copy the bytes of some layers; returns when the copy is done."""


@frozen(eq=False, repr=False)
class PageTransfer:
    """What a `TransferOrder` of the fast cache performs: moves of pages, in some layers or in all.

    Layers are counted from 0 in each component. A component with fewer layers than another has
    nothing to move in the upper ones.
    """

    direction: Direction
    moves: tuple[Move, ...]
    pools: PageCopier
    after: object = None
    """An event of `CudaEngine.event_after`, after which device slots may be read or written; None
    for the work that the current stream has at `submit`. Engines without streams ignore it."""
    _fate: dict[str, bool] = field(factory=dict, init=False)
    """Whether it runs; empty until that is decided, once and for all."""

    def begin(self) -> bool:
        """Decide that it runs: False if it was revoked, and must not. An engine calls this first.

        The first of `begin` and `revoke` wins, in whichever threads they are called.
        """
        return self._fate.setdefault("runs", True)

    def revoke(self) -> bool:
        """Decide that it never runs: False if it has begun.

        If `TransferEngine.submit` is interrupted, nobody knows whether the engine took the order. A
        revoked one moves no bytes, whenever the engine comes to it.
        """
        return not self._fate.setdefault("runs", False)

    def __repr__(self) -> str:
        pages = ", ".join(f"{len(move.sources)} {move.component}" for move in self.moves)
        return f"PageTransfer({self.direction}: {pages or 'nothing'})"

    @property
    def layers(self) -> int:
        """Layers of the component with the most layers; 0 where nothing is moved."""
        return max((self.pools.layouts[move.component].layers for move in self.moves), default=0)

    @property
    def layer_bytes(self) -> int:
        """Bytes of all pages in one layer that every component has."""
        return sum(
            len(move.sources) * self.pools.layouts[move.component].layer_bytes
            for move in self.moves
        )

    def __call__(self) -> None:
        """Move all bytes, from where they are when it is called, unless it was revoked."""
        if self.begin():
            self.perform_layers(ALL_LAYERS)

    def perform_layers(self, layers: slice) -> None:
        """Move the bytes of some layers."""
        for move in self.moves:
            self.pools.copy(move, self.direction, layers)


@frozen(eq=False)
class _LazyCopies(Sequence[Copy]):
    """Moves as copies, made when they are read.

    A large order has thousands of slots, and the engines of this package read none as numbers.
    """

    moves: tuple[Move, ...]

    def __len__(self) -> int:
        return len(self.moves)

    @overload
    def __getitem__(self, index: int) -> Copy: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Copy]: ...
    def __getitem__(self, index: int | slice) -> Copy | Sequence[Copy]:
        if isinstance(index, slice):
            return _LazyCopies(self.moves[index])
        move = self.moves[index]
        return Copy(move.component, tuple(move.sources.tolist()), tuple(move.targets.tolist()))


def page_order(
    transfer_id: TransferId,
    direction: Direction,
    moves: tuple[Move, ...],
    pools: PageCopier,
    after: object = None,
) -> TransferOrder:
    """An order for any engine. One that knows `PageTransfer` finds it in `perform`."""
    transfer = PageTransfer(direction, moves, pools, after)
    return TransferOrder(transfer_id, direction, _LazyCopies(moves), transfer)


@runtime_checkable
class LayerwiseEngine(TransferEngine, Protocol):
    """An engine that can wait for single layers before an order has ended."""

    def wait_layer(self, transfer_id: TransferId, layer: int) -> bool:
        """Wait for this layer and those below: True once they are there, False if the copy failed.

        Layers count as in `PageTransfer`. On a GPU the current stream waits, not the thread.
        """


@runtime_checkable
class StreamEngine(TransferEngine, Protocol):
    """An engine whose copies run in the order of streams, beside work that is enqueued there."""

    def event_after(self, point: object) -> object:
        """Return the `after` of transfers that run after a stream's or an event's work until now.

        Raises:
            BadArgument: `point` is neither a stream nor a recorded event.
        """


@runtime_checkable
class StagingEngine(TransferEngine, Protocol):
    """An engine that holds memory beside the pools."""

    @property
    def memory_bytes(self) -> Mapping[Medium, int]:
        """Bytes on each medium; none once it is closed."""


@runtime_checkable
class PoolsEngine(TransferEngine, Protocol):
    """An engine that keeps addresses of the pools."""

    def use_pools(self) -> None:
        """Read the addresses again: the pools have other device memory now. No copy is running."""
