"""The engine on a device that executes late, in any order that streams and events permit."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from attrs import evolve, frozen

from cuda_scene import SMALL, WAYS
from fake_gpu import build_driver
from kvcanon.optimized import calibration, cuda_engine, slot_uploads
from kvcanon.optimized.copy_plan import Limits
from kvcanon.optimized.copy_workers import CopyWorker
from kvcanon.optimized.cuda_engine import CudaEngine
from kvcanon.optimized.gpu import Gpu, prove_batches
from kvcanon.optimized.host_slab import HostSlab
from kvcanon.optimized.kernels import pages
from late_gpu import LateDevice, LateDriver, LateKernel
from late_scene import Late, random_pools

ACTIONS = 25


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
                device.enqueue(
                    device.compute, lambda plane=plane, content=content: plane.copy_(content)
                )
        gpu = Gpu(pools.device, device, LateDriver(str(self.library), device))
        engine = CudaEngine(pools, limits, direct_bytes=direct_bytes, gpu=gpu)

        def pump() -> None:
            for worker in engine._workers.values():
                while worker.waiting:
                    cuda_engine._work_one(worker)

        return Late(device, engine, pools, twin, pump, Random(seed))


@pytest.fixture
def workshop(library: Path, monkeypatch: pytest.MonkeyPatch) -> Workshop:
    """A maker of scenes."""
    return Workshop(library, monkeypatch)


@pytest.mark.parametrize(("limits", "direct_bytes"), WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("seed", range(12))
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
