"""A default device that an engine sets for its model changes nothing here.

`meta` stands for it: a tensor that is made there by mistake has no bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from cuda_scene import BACKUP, CONFIG, LAYOUTS, LOAD_BACK, SMALL, Device, contents, order
from fake_gpu import InterpretedKernel, build_driver
from kvcanon.lab.bench.gpu.scenes import make_scene
from kvcanon.lab.bench.gpu.transfers import check, measure_kernels
from kvcanon.optimized import calibration
from kvcanon.optimized.cuda_driver import CudaDriver
from kvcanon.optimized.cuda_engine import CudaEngine
from kvcanon.optimized.gpu import Gpu, prove_batches
from kvcanon.optimized.host_slab import HostSlab
from kvcanon.optimized.kernels import pages
from kvcanon.optimized.pools import Pools
from kvcanon.optimized.prefix_cache import PrefixCache
from kvcanon.spec.transfer import Completion, TransferStatus
from kvcanon.spec.types import CPU, FULL, GPU


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Device:
    """A device."""
    monkeypatch.setattr(pages, "MOVE_PAGES", InterpretedKernel())
    monkeypatch.setattr(calibration, "LARGEST_BYTES", LAYOUTS[FULL].page_bytes)
    return Device(CudaDriver(str(build_driver(tmp_path))))


@pytest.fixture(autouse=True)
def default_device(device: Device) -> Iterator[None]:
    """A default device without bytes."""
    torch.set_default_device("meta")
    yield
    torch.set_default_device(None)


def test_pools_and_a_cache_are_on_their_own_device() -> None:
    """Pools are where they were told to be, and a cache over them copies there and back."""
    pools = Pools(CONFIG, LAYOUTS, "cpu")
    assert {each.device.type for each in pools.planes(FULL)} == {"cpu"}
    assert pools.slab(FULL).device.type == "cpu"
    with PrefixCache(CONFIG, pools) as cache:
        full, swa, mamba = cache.allocate(2, 2, 1)
        pools.write(FULL, int(full[0]), bytes(range(240)))
        cache.insert(np.arange(4, dtype=np.int32), 0, full, swa, mamba)
        assert {status for _, status in cache.flush()} == {TransferStatus.DONE}
        assert pools.read(FULL, GPU, int(full[0])) == bytes(range(240))
        assert bytes(range(240)) in {pools.read(FULL, CPU, slot) for slot in range(4)}


def test_an_engine_is_made_calibrated_and_used(device: Device) -> None:
    """The engine of a GPU allocates everything where it belongs."""
    pools = Pools(CONFIG, LAYOUTS, "cpu")
    for component in LAYOUTS:
        for plane in pools.planes(component):
            plane.random_(0, 256)
    before = contents(pools)
    with device.engine(pools, SMALL, None) as engine:
        for at, direction in enumerate((BACKUP, LOAD_BACK)):
            engine.submit(order(pools, at, direction))
            engine.wait(at)
            assert engine.poll() == (Completion(at, ok=True),)
    assert contents(pools) != before
    gpu = Gpu(pools.device, device.runtime, device.driver)
    prove_batches(gpu, HostSlab(1, 4096, pools.device))


def test_the_bench_checks_the_same_bytes(device: Device) -> None:
    """The scenes of the bench are on the GPU's device."""
    gpu = Gpu(torch.device("cpu"), device.runtime, device.driver)
    scene = make_scene(gpu, LAYOUTS[FULL], 1000, scattered=True)
    with CudaEngine(scene.pools, SMALL, direct_bytes=0, gpu=gpu) as engine:
        check(scene, engine, gpu)
    assert measure_kernels(gpu, LAYOUTS[FULL], 1000)
