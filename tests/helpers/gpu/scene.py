"""A fake GPU device, and pools and orders for it, for tests of the CUDA engine."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic, sleep

import numpy as np
import torch
from attrs import field, frozen

from fast.caches import hybrid
from gpu.fake import FakeRuntime
from kvcanon.optimized.copy_plan import Limits
from kvcanon.optimized.cuda_driver import CudaDriver
from kvcanon.optimized.cuda_engine import CudaEngine
from kvcanon.optimized.gpu import Gpu
from kvcanon.optimized.layout import PageLayout
from kvcanon.optimized.page_transfer import Move, SlotArray, page_order
from kvcanon.optimized.pools import Pools
from kvcanon.spec.transfer import Completion, Direction, TransferEngine, TransferOrder
from kvcanon.spec.types import FULL, MAMBA, SWA, Counts, TransferId

BACKUP, LOAD_BACK = Direction.BACKUP, Direction.LOAD_BACK

CONFIG = hybrid(Counts(24, 12, 4), Counts(30, 14, 6), page_size=2, window_tokens=4)
LAYOUTS = {FULL: PageLayout(5, (32, 16)), SWA: PageLayout(3, (20,)), MAMBA: PageLayout(2, (7, 64))}

SMALL = Limits(
    ring_slots=2,
    ring_slot_bytes=1,  # Then it is exactly as large as a layer of the largest page.
    piece_bytes=1,
    least_piece_bytes=1,
    group_bytes=1,
    rectangle_pages=2,
    batch_pieces=3,
)
WAYS = {
    "through a small ring": (SMALL, 0),
    "through a large ring": (Limits(least_piece_bytes=1), 0),
    "without the ring": (SMALL, 10**9),
    "some of each": (SMALL, 400),
}


@frozen(eq=False)
class Device:
    """A device that finishes all work at once, unless it is held."""

    driver: CudaDriver
    runtime: FakeRuntime = field(factory=FakeRuntime)

    @property
    def gpu(self) -> Gpu:
        """The device as an engine opens it."""
        return Gpu(torch.device("cpu"), self.runtime, self.driver)

    def engine(
        self, pools: Pools, limits: Limits = SMALL, direct_bytes: int | None = 0
    ) -> CudaEngine:
        """An engine on this device."""
        return CudaEngine(pools, limits, direct_bytes=direct_bytes, gpu=self.gpu)


def slots(*numbers: int) -> SlotArray:
    """Slots as an array."""
    return np.array(numbers, np.int32)


def moves(direction: Direction) -> tuple[Move, ...]:
    """Moves of every component, with runs and without."""
    pairs = {
        FULL: (slots(3, 17, 4, 5, 6, 20, 0, 23), slots(7, 8, 9, 2, 11, 12, 29, 0)),
        SWA: (slots(1, 2, 11), slots(13, 4, 5)),
        MAMBA: (slots(3), slots(5)),
    }
    return tuple(
        Move(component, *(pair if direction is BACKUP else pair[::-1]))
        for component, pair in pairs.items()
    )


def order(pools: Pools, transfer_id: TransferId, direction: Direction) -> TransferOrder:
    """An order of all `moves`."""
    return page_order(transfer_id, direction, moves(direction), pools)


def tensors_of(pools: Pools) -> list[torch.Tensor]:
    """All that the pools allocated."""
    return [
        tensor
        for component in LAYOUTS
        for tensor in (*pools.planes(component), pools.slab(component))
    ]


def carry_out(engine: TransferEngine, order: TransferOrder) -> None:
    """Submit an order and wait for it; it is reported once, as done."""
    engine.submit(order)
    engine.wait(order.transfer_id)
    assert engine.poll() == (Completion(order.transfer_id, ok=True),)


def random_pools(seed: int) -> Pools:
    """Pools with something in every slot, the same for one seed."""
    made, numbers = Pools(CONFIG, LAYOUTS, "cpu"), torch.Generator("cpu").manual_seed(seed)
    for tensor in tensors_of(made):
        tensor.random_(0, 256, generator=numbers)
    return made


def contents(pools: Pools) -> list[bytes]:
    """Every byte of the pools."""
    return [tensor.numpy().tobytes() for tensor in tensors_of(pools)]


def until(condition: Callable[[], bool]) -> None:
    """Wait until other threads make a condition true."""
    deadline = monotonic() + 20
    while not condition():
        assert monotonic() < deadline, "it never came"
        sleep(0.001)
