"""Order: copies beside two streams of compute, as a scheduler that overlaps steps has them.

Compute writes or reads pages on a stream that is not the scheduler's, long after the scheduler has
submitted the copies of those pages. Every byte is compared. A control is submitted without its
point; it should be wrong, or the compute was too short to show anything.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from attrs import define, field, frozen

from kvcanon.lab.bench.gpu.scenes import Scene, WrongBytes, make_scene, on_device, pages_of
from kvcanon.lab.bench.gpu.transfers import require_all_well
from kvcanon.optimized.copy_plan import Limits
from kvcanon.optimized.cuda_engine import CudaEngine
from kvcanon.optimized.cuda_runtime import CudaStream, Event
from kvcanon.optimized.gpu import Gpu
from kvcanon.optimized.kernels.pages import PagedPool, PageRows, gather, paged_pool, scatter
from kvcanon.optimized.layout import PageLayout
from kvcanon.optimized.page_transfer import page_order
from kvcanon.spec.transfer import Direction
from kvcanon.spec.types import FULL, TransferId

ROUNDS = 8
PRODUCTS = 20
"""Products of matrices before each use of the pages: compute that lasts longer than a submit."""


@frozen
class OrderFound:
    """What the rounds showed; wrong bytes raise."""

    rounds: int
    loads_beside_compute: int
    """Loads that ended while later compute, which does not use their slots, still ran."""
    controls_wrong: int
    """Backups without a point that were wrong, as they should be."""


@define(eq=False)
class _Overlap:
    """A scheduler's stream, which is the current one, and a stream of compute."""

    gpu: Gpu
    scene: Scene
    engine: CudaEngine
    pool: PagedPool
    delay: Callable[[], None]
    """Enqueues something long on the current stream."""
    pages: torch.Tensor
    """Memory of the device for all pages of a transfer, in the order of the host."""
    compute: CudaStream = field(init=False)
    submitted: TransferId = 0

    def __attrs_post_init__(self) -> None:
        self.compute = self.gpu.runtime.stream()

    def forward(self, kernel: Callable[..., None], index: torch.Tensor) -> None:
        """Let compute write the pages to slots (`scatter`) or read them (`gather`), late."""
        layers = slice(0, self.scene.layout.layers)
        rows = PageRows(self.pages.data_ptr(), self.scene.layout.page_bytes)
        with self.gpu.runtime.running_on(self.compute):
            self.delay()
            kernel(self.pool, index, rows, layers)

    def point(self, stream: CudaStream, *, by_event: bool) -> object:
        """All work of a stream; an event is recorded again at once, as engines do."""
        if not by_event:
            return self.engine.event_after(stream)
        event = self.gpu.runtime.event()
        event.record(stream)
        after = self.engine.event_after(event)
        event.record(self.gpu.runtime.current_stream())
        return after

    def submit(self, direction: Direction, after: object) -> TransferId:
        """Submit a copy of all pages."""
        self.submitted += 1
        moves = (self.scene.move(direction),)
        self.engine.submit(page_order(self.submitted, direction, moves, self.scene.pools, after))
        return self.submitted

    def finish(self, transfer_id: TransferId) -> None:
        """Wait for the copy alone."""
        self.engine.wait(transfer_id)
        require_all_well(self.engine.poll(), 1)

    def fresh_pages(self) -> torch.Tensor:
        """Fill the pages with new bytes; return them on the CPU."""
        self.gpu.runtime.synchronize()
        self.pages.random_(0, 256)
        self.gpu.runtime.synchronize()
        return self.pages.cpu().view(len(self.scene.device_slots), -1)

    def on_host(self) -> torch.Tensor:
        """The pages on the host."""
        return self.scene.pools.slab(FULL)[torch.from_numpy(self.scene.host_slots).long()]


def measure_order(
    gpu: Gpu, layout: PageLayout, size_bytes: int, side: int, limits: Limits
) -> OrderFound:
    """Play some rounds of both directions. Raises: WrongBytes."""
    scene = make_scene(gpu, layout, size_bytes, scattered=True)
    matrices = [
        torch.zeros((side, side), device=gpu.device, dtype=torch.bfloat16) for _ in range(3)
    ]

    def delay() -> None:
        for _ in range(PRODUCTS):
            torch.mm(matrices[0], matrices[1], out=matrices[2])

    pool = paged_pool(scene.pools.device_planes(FULL), layout)
    pages = gpu.runtime.buffer(scene.size_bytes)
    with CudaEngine(scene.pools, limits, direct_bytes=0, gpu=gpu) as engine:
        overlap = _Overlap(gpu, scene, engine, pool, delay, pages)
        beside, wrong = 0, 0
        for at in range(ROUNDS):
            _backup(overlap, by_event=bool(at % 2))
            beside += _load(overlap, by_event=bool(at % 2))
            wrong += _control(overlap)
    scene.pools.close()
    return OrderFound(ROUNDS, beside, wrong)


def _backup(overlap: _Overlap, *, by_event: bool) -> None:
    """Back pages up that compute writes late."""
    slots = overlap.scene.device_slots
    written = overlap.fresh_pages()
    overlap.forward(scatter, on_device(slots, overlap.gpu))
    after = overlap.point(overlap.compute, by_event=by_event)
    overlap.finish(overlap.submit(Direction.BACKUP, after))
    if not torch.equal(overlap.on_host(), written):
        raise WrongBytes("a backup read pages before another stream had written them")


def _load(overlap: _Overlap, *, by_event: bool) -> bool:
    """Load over pages that compute reads late; whether that ends before later compute does."""
    runtime, slots = overlap.gpu.runtime, overlap.scene.other_device_slots
    before = pages_of(overlap.scene, slots).cpu()
    overlap.forward(gather, on_device(slots, overlap.gpu))
    after = overlap.point(overlap.compute, by_event=by_event)
    later = _later_compute(overlap)
    overlap.finish(overlap.submit(Direction.LOAD_BACK, after))
    with runtime.beside_captures():
        beside = not later.query()
    runtime.synchronize()
    if not torch.equal(overlap.pages.cpu().view(len(slots), -1), before):
        raise WrongBytes("a load overwrote pages that another stream still read")
    if not torch.equal(pages_of(overlap.scene, slots).cpu(), overlap.on_host()):
        raise WrongBytes("a load beside compute moved wrong bytes")
    return beside


def _later_compute(overlap: _Overlap) -> Event:
    """Enqueue compute that uses none of the slots; return its end."""
    with overlap.gpu.runtime.running_on(overlap.compute):
        for _ in range(4):
            overlap.delay()
    end = overlap.gpu.runtime.event()
    end.record(overlap.compute)
    return end


def _control(overlap: _Overlap) -> bool:
    """Back pages up that compute writes late, without waiting for it; whether that was wrong."""
    slots = overlap.scene.device_slots
    written = overlap.fresh_pages()
    index = on_device(slots, overlap.gpu)
    reached = overlap.engine.event_after(None)
    overlap.forward(scatter, index)
    overlap.finish(overlap.submit(Direction.BACKUP, reached))
    wrong = not torch.equal(overlap.on_host(), written)
    overlap.gpu.runtime.synchronize()
    return wrong
