"""Transfers of the engine, checked and then timed, for pages of several shapes.

A load has two times: until compute may begin on the first layer, and until all layers have arrived.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter

from attrs import frozen

from kvcanon.lab.bench.gpu.link import Link
from kvcanon.lab.bench.gpu.scenes import (
    Model,
    Scene,
    WrongBytes,
    make_scene,
    on_device,
    poison_device,
    require_same,
)
from kvcanon.lab.bench.gpu.timing import Timing, timed, timing_of
from kvcanon.optimized.calibration import Race, races
from kvcanon.optimized.copy_plan import Limits
from kvcanon.optimized.cuda_engine import CudaEngine
from kvcanon.optimized.gpu import Gpu
from kvcanon.optimized.kernels.pages import PageRows, gather, paged_pool, scatter
from kvcanon.optimized.layout import PageLayout
from kvcanon.optimized.mover import movers
from kvcanon.optimized.page_transfer import page_order
from kvcanon.spec.transfer import Completion, Direction
from kvcanon.spec.types import FULL

BACKUP, LOAD_BACK = Direction.BACKUP, Direction.LOAD_BACK

REPEATS = 15

PROGRAMS = (8, 16, 32, 64, 128, 256)


@frozen
class MeasuredTransfer:
    """Results for one shape of pages. Bandwidth is in GB/s."""

    model: Model
    scattered: bool
    """Whether host slots are in random order; else they are consecutive."""
    size_bytes: int
    backup: float
    backup_timing: Timing
    load: float
    load_timing: Timing
    both_in_all: float
    """A backup and a load at the same time, in total."""
    first_layer: Timing
    """From submitting a load until compute may begin on layer 0."""
    submit: Timing
    """How long `submit` blocks its caller."""

    def shares(self, link: Link) -> dict[str, float]:
        """The parts of one large copy's bandwidth that were reached."""
        return {
            "backup": self.backup / link.to_host,
            "load": self.load / link.to_device,
            "both": self.both_in_all / link.both_in_all,
        }


@frozen
class KernelSpeed:
    """What the kernels reach alone with so many programs, in GB/s of pages moved."""

    programs: int
    gather: float
    scatter: float
    gather_to_host: float | None
    """None where kernels cannot reach the host's memory."""
    scatter_from_host: float | None


@frozen
class Run:
    """Seconds from the submission of some transfers."""

    submit: float
    """Until they were all submitted."""
    first_layer: float
    """Until compute may begin; the same as `whole` where nothing is loaded."""
    whole: float


def measure_transfer(
    gpu: Gpu, model: Model, size_bytes: int, limits: Limits, *, scattered: bool
) -> MeasuredTransfer:
    """Check both directions byte by byte, then time them. Raises: WrongBytes."""
    scene = make_scene(gpu, model.layout, size_bytes, scattered=scattered)
    # Small transfers are measured on their own; here all go through the ring.
    with CudaEngine(scene.pools, limits, direct_bytes=0, gpu=gpu) as engine:
        check(scene, engine, gpu)
        backups, loads, pairs = (
            [run(scene, engine, gpu, *directions) for _ in range(REPEATS)]
            for directions in ((BACKUP,), (LOAD_BACK,), (BACKUP, LOAD_BACK))
        )
    scene.pools.close()
    backup, load, pair = (
        timing_of([each.whole for each in runs]) for runs in (backups, loads, pairs)
    )
    return MeasuredTransfer(
        model,
        scattered,
        scene.size_bytes,
        backup.gigabytes_per_second(scene.size_bytes),
        backup,
        load.gigabytes_per_second(scene.size_bytes),
        load,
        pair.gigabytes_per_second(2 * scene.size_bytes),
        timing_of([each.first_layer for each in loads]),
        timing_of([each.submit for each in backups + loads]),
    )


def run(scene: Scene, engine: CudaEngine, gpu: Gpu, *directions: Direction) -> Run:
    """Submit a transfer in each of these directions to an idle device, and wait for them.

    Raises:
        WrongBytes: a transfer failed.
    """
    orders = [
        page_order(at, direction, (scene.move(direction),), scene.pools)
        for at, direction in enumerate(directions)
    ]
    gpu.runtime.synchronize()
    start = perf_counter()
    for order in orders:
        engine.submit(order)
    submitted = perf_counter()
    for order in orders:
        if order.direction is LOAD_BACK:
            engine.wait_layer(order.transfer_id, 0)
            arrived = gpu.runtime.event()
            arrived.record(gpu.runtime.current_stream())
            arrived.synchronize()
    first_layer = perf_counter()
    for order in orders:
        engine.wait(order.transfer_id)
    whole = perf_counter()
    require_all_well(engine.poll(), len(orders))
    first = first_layer if LOAD_BACK in directions else whole
    return Run(submitted - start, first - start, whole - start)


def require_all_well(completions: Sequence[Completion], count: int) -> None:
    """Check that so many transfers ended well. Raises: WrongBytes."""
    if len(completions) != count or not all(done.ok for done in completions):
        raise WrongBytes(f"of {count} transfers these completed: {completions}; the log says why")


def check(scene: Scene, engine: CudaEngine, gpu: Gpu) -> None:
    """Back up all pages, erase and load them; compare every byte. Raises: WrongBytes."""
    run(scene, engine, gpu, BACKUP)
    require_same(scene, BACKUP)
    poison_device(scene)
    run(scene, engine, gpu, LOAD_BACK)
    require_same(scene, LOAD_BACK)


def measure_small(
    gpu: Gpu, layout: PageLayout, limits: Limits
) -> dict[Direction, tuple[Race, ...]]:
    """Time small transfers with the ring and without it: what calibration would find."""
    scene = make_scene(gpu, layout, layout.page_bytes, scattered=False)
    found = {}
    for direction, mover in movers(scene.pools, limits, gpu).items():
        gpu.runtime.synchronize()
        found[direction] = races(layout, mover)
        mover.lane.release()
    scene.pools.close()
    return found


def measure_kernels(gpu: Gpu, layout: PageLayout, size_bytes: int) -> tuple[KernelSpeed, ...]:
    """Time the kernels alone, with different numbers of programs, on the device and across."""
    scene = make_scene(gpu, layout, size_bytes, scattered=True)
    pool = paged_pool(scene.pools.device_planes(FULL), layout)
    ring = gpu.runtime.buffer(scene.size_bytes)
    slots = on_device(scene.device_slots, gpu)
    slab = gpu.driver.device_address(scene.pools.slab(FULL).data_ptr())
    near = PageRows(ring.data_ptr(), layout.page_bytes)
    across = None
    if slab is not None:
        host_slots = on_device(scene.host_slots, gpu)
        across = PageRows(slab, layout.page_bytes, host_slots)

    def speed(kernel: Callable[..., None], rows: PageRows, programs: int) -> float:
        layers = slice(0, layout.layers)
        took = timed(
            lambda: kernel(pool, slots, rows, layers, programs=programs), gpu.runtime, REPEATS
        )
        return took.gigabytes_per_second(scene.size_bytes)

    found = tuple(
        KernelSpeed(
            programs,
            speed(gather, near, programs),
            speed(scatter, near, programs),
            None if across is None else speed(gather, across, programs),
            None if across is None else speed(scatter, across, programs),
        )
        for programs in PROGRAMS
    )
    scene.pools.close()
    return found
