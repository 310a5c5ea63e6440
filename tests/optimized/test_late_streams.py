"""The engine on a device that executes late, in any order that streams and events permit."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from random import Random
from threading import get_ident

import pytest
import torch
from attrs import frozen

from cuda_scene import BACKUP, LAYOUTS, LOAD_BACK, SMALL, WAYS, slots
from fake_gpu import build_driver
from kvcanon.optimized import calibration, cuda_engine, slot_uploads
from kvcanon.optimized.copy_plan import Limits
from kvcanon.optimized.copy_workers import CopyWorker
from kvcanon.optimized.cuda_engine import CudaEngine
from kvcanon.optimized.gpu import Gpu, prove_batches
from kvcanon.optimized.host_slab import HostSlab
from kvcanon.optimized.kernels import pages
from kvcanon.optimized.page_transfer import Move, page_order
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.transfer import Completion
from kvcanon.spec.types import CPU, FULL, GPU
from late_gpu import LateDevice, LateDriver, LateKernel
from late_scene import Late, random_pools

ACTIONS = 25

LATE_WAYS = WAYS | {
    "through a large ring": (Limits(ring_slot_bytes=1 << 14, least_piece_bytes=1), 0),
}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The driver's stand-in."""
    return build_driver(tmp_path_factory.mktemp("driver"))


@frozen(eq=False)
class Workshop:
    """Makes scenes on late devices."""

    library: Path
    monkeypatch: pytest.MonkeyPatch

    def device(self, seed: int) -> LateDevice:
        """A device, with its kernel in place."""
        device = LateDevice(seed)
        self.monkeypatch.setattr(pages, "MOVE_PAGES", LateKernel(device))
        return device

    def driver(self, device: LateDevice) -> LateDriver:
        """The driver of a device."""
        return LateDriver(str(self.library), device)

    def scene(self, seed: int, limits: Limits = SMALL, direct_bytes: int | None = 0) -> Late:
        """An engine whose threads a test stands in for, so that a seed fixes everything."""
        self.monkeypatch.setattr(CopyWorker, "start", lambda *_: None)
        device = self.device(seed)
        pools, twin = random_pools(seed), random_pools(seed)
        for component in pools.layouts:
            # As pools on a GPU, these are filled by a kernel that has not run.
            for plane in pools.planes(component):
                content = plane.clone()
                plane.fill_(0xAB)
                device.enqueue(device.compute, partial(plane.copy_, content))
        gpu = Gpu(pools.device, device, self.driver(device))
        engine = CudaEngine(pools, limits, direct_bytes=direct_bytes, gpu=gpu)

        def pump() -> None:
            # As the thread of a lane does, which enters the device first.
            with device.beside_captures():
                for worker in engine._workers.values():
                    while worker.waiting:
                        cuda_engine._work_one(worker)

        return Late(device, engine, pools, twin, pump, Random(seed))


@pytest.fixture
def workshop(library: Path, monkeypatch: pytest.MonkeyPatch) -> Workshop:
    """A maker of scenes."""
    return Workshop(library, monkeypatch)


@pytest.mark.parametrize(("limits", "direct_bytes"), LATE_WAYS.values(), ids=LATE_WAYS)
@pytest.mark.parametrize("seed", range(6))
def test_late_work_moves_the_same_bytes(
    limits: Limits,
    direct_bytes: int,
    seed: int,
    workshop: Workshop,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Copies and compute on two streams are, in any legal order, as if each happened at once."""
    # So few that uploads come round to numbers which no kernel has read.
    monkeypatch.setattr(slot_uploads, "LEAST_NUMBERS", 1)
    late = workshop.scene(seed, limits, direct_bytes)
    for _ in range(ACTIONS):
        late.act()
    late.end()


@pytest.mark.parametrize("seed", range(20))
def test_a_trial_of_batches_waits_for_the_owner_of_its_memory(
    seed: int, workshop: Workshop
) -> None:
    """Memory of the current stream's pool is written only after the work that still uses it."""
    device = workshop.device(seed)
    slab = HostSlab(1, 4096, torch.device("cpu"))
    prove_batches(Gpu(slab.pages.device, device, workshop.driver(device)), slab)
    device.synchronize()
    assert device.complaints == []


@pytest.mark.parametrize("seed", range(3))
def test_an_engine_is_calibrated_and_closed_in_any_order(
    seed: int, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calibration and its scratch pools leave all bytes as they were, and so does the end."""
    monkeypatch.setattr(calibration, "LARGEST_BYTES", 2 * LAYOUTS[FULL].page_bytes)
    monkeypatch.setattr(calibration, "REPEATS", 1)
    late = workshop.scene(seed, SMALL, None)
    for _ in range(5):
        late.act()
    late.pump()
    for worker in late.engine._workers.values():
        worker.close()
        worker.work()
    assert late.engine.memory_bytes == {GPU: 0, CPU: 0}
    late.end()


@pytest.mark.parametrize("seed", range(3))
def test_a_load_runs_beside_a_forward_that_does_not_use_its_slots(
    seed: int, workshop: Workshop
) -> None:
    """With the last use of its slots as its point, a load ends while later compute still runs.

    A backup that was submitted before it, with the running compute as its point, changes nothing.
    """
    late = workshop.scene(seed)
    compute = late.device.compute
    last_use = late.device.event()
    last_use.record(compute)
    late.device.run_until(last_use.query)
    late.device.held.add(compute.cuda_stream)
    forward = late.device.event()
    late.device.enqueue(compute, lambda: None)
    forward.record(compute)
    for at, (direction, event) in enumerate(((BACKUP, forward), (LOAD_BACK, last_use))):
        after = late.engine.event_after(event)
        move = Move(FULL, slots(at), slots(at + 5))
        late.engine.submit(page_order(at, direction, (move,), late.pools, after))
    late.pump()
    while late.device.step():
        pass
    assert late.engine.poll() == (Completion(1, ok=True),)
    late.device.held.clear()
    late.device.synchronize()
    assert late.engine.poll() == (Completion(0, ok=True),)


@pytest.mark.parametrize("seed", range(3))
def test_copies_break_no_capture(seed: int, workshop: Workshop) -> None:
    """While another thread captures a graph, no call of the engine breaks the capture.

    Lanes allocate nothing, and the threads that enqueue, poll and wait say that they are apart.
    """
    late = workshop.scene(seed)
    late.device.captured_by = -1
    for _ in range(10):
        late.act()
    late.pump()
    late.device.captured_by = None
    late.end()


def test_a_capture_is_told_from_work(workshop: Workshop) -> None:
    """A stream that is captured is no point for a copy, and waits for no layer."""
    late = workshop.scene(0)
    late.engine.submit(page_order(1, LOAD_BACK, (Move(FULL, slots(1), slots(2)),), late.pools))
    late.pump()
    late.device.captured_by = get_ident()
    with pytest.raises(BadArgument, match="after: is a stream that is being captured"):
        late.engine.event_after(None)
    with pytest.raises(BadArgument, match="stream: is being captured; wait for layers before"):
        late.engine.wait_layer(1, 0)
    assert late.engine.poll() in {(), (Completion(1, ok=True),)}
    assert late.device.complaints == []


@pytest.mark.parametrize("point", [3, "now", object()], ids=["number", "text", "object"])
def test_a_point_is_a_stream_or_an_event(point: object, workshop: Workshop) -> None:
    """Anything else is refused, also where an event of the engine is expected."""
    late = workshop.scene(0)
    with pytest.raises(BadArgument, match=r"after: is a .*; give a CUDA stream, an event, or None"):
        late.engine.event_after(point)
    order = page_order(1, LOAD_BACK, (Move(FULL, slots(1), slots(2)),), late.pools, point)
    with pytest.raises(BadArgument, match=r"after: is a .*; give what `event_after` returns"):
        late.engine.submit(order)
