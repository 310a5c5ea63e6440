"""The GPU engine, without a GPU: kernels interpreted, a driver compiled here, events by hand.

What is missing is the device's own asynchrony; that its streams may interleave as they like is
shown in `test_optimized_staging`.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator
from threading import Event, Thread
from threading import enumerate as all_threads
from time import sleep

import numpy as np
import pytest
import torch

from cuda_scene import (
    BACKUP,
    CONFIG,
    LAYOUTS,
    LOAD_BACK,
    SMALL,
    WAYS,
    Device,
    contents,
    moves,
    order,
    slots,
    until,
)
from fake_gpu import FakeRuntime, InterpretedKernel, build_driver
from kvcanon.optimized import calibration
from kvcanon.optimized.copy_plan import Limits
from kvcanon.optimized.cuda_driver import CudaDriver
from kvcanon.optimized.cuda_engine import CudaEngine
from kvcanon.optimized.kernels import pages
from kvcanon.optimized.page_transfer import Move, page_order
from kvcanon.optimized.pools import Pools
from kvcanon.optimized.prefix_cache import PrefixCache
from kvcanon.optimized.slot_uploads import LEAST_NUMBERS
from kvcanon.optimized.threaded_engine import ThreadedEngine
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.transfer import Completion, Direction, TransferOrder, TransferStatus
from kvcanon.spec.types import CPU, FULL, GPU


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> CudaDriver:
    """A driver that copies at once."""
    return CudaDriver(str(build_driver(tmp_path_factory.mktemp("driver"))))


@pytest.fixture(autouse=True)
def kernel(monkeypatch: pytest.MonkeyPatch) -> InterpretedKernel:
    """Interpret kernels on the CPU."""
    kernel = InterpretedKernel()
    monkeypatch.setattr(pages, "MOVE_PAGES", kernel)
    return kernel


@pytest.fixture
def device(driver: CudaDriver) -> Device:
    """A device."""
    return Device(driver)


@pytest.fixture
def runtime(device: Device) -> FakeRuntime:
    """Its streams and events."""
    return device.runtime


@pytest.fixture
def pools() -> Pools:
    """Pools with something in every slot."""
    made = Pools(CONFIG, LAYOUTS)
    for component in LAYOUTS:
        for tensor in (*made.planes(component), made.slab(component)):
            tensor.copy_(torch.randint(0, 256, tensor.shape, dtype=torch.uint8))
    return made


@pytest.fixture
def engine(device: Device, pools: Pools) -> Iterator[CudaEngine]:
    """An engine with a small ring."""
    with device.engine(pools) as made:
        yield made


@pytest.mark.parametrize("direction", list(Direction))
@pytest.mark.parametrize(("limits", "direct_bytes"), WAYS.values(), ids=WAYS)
def test_moves_exactly_what_the_plain_copy_does(
    limits: Limits, direct_bytes: int, direction: Direction, pools: Pools, device: Device
) -> None:
    """Each way of copying leaves every byte of both media as `Pools.copy` does."""
    before = contents(pools)
    with device.engine(pools, limits, direct_bytes) as engine:
        engine.submit(order(pools, 1, direction))
        engine.wait(1)
        assert engine.poll() == (Completion(1, ok=True),)
    moved = contents(pools)
    assert moved != before
    for component in LAYOUTS:
        for tensor in (*pools.planes(component), pools.slab(component)):
            tensor.copy_(
                torch.frombuffer(bytearray(before.pop(0)), dtype=torch.uint8).view_as(tensor)
            )
    for move in moves(direction):
        pools.copy(move, direction)
    assert contents(pools) == moved


def test_nothing_is_complete_before_the_device_is_done(
    engine: CudaEngine, pools: Pools, runtime: FakeRuntime
) -> None:
    """Polling never waits, and reports an order once its last event was reached, and once only."""
    with runtime.held():
        engine.submit(order(pools, 1, BACKUP))
        engine.submit(order(pools, 2, LOAD_BACK))
        sleep(0.05)
        assert engine.poll() == ()
    until(lambda: len(runtime.streams[0].recorded) > 0)
    engine.wait(2)
    engine.wait(1)
    assert engine.poll() == (Completion(1, ok=True), Completion(2, ok=True))
    assert engine.poll() == ()


def test_waiting_for_an_order_covers_those_before_it(engine: CudaEngine, pools: Pools) -> None:
    """After a wait, one poll reports all orders of that direction up to this one."""
    for transfer_id in (1, 2, 3):
        engine.submit(order(pools, transfer_id, BACKUP))
    engine.wait(3)
    assert [done.transfer_id for done in engine.poll()] == [1, 2, 3]
    engine.wait(3)
    engine.wait(99)


def test_transfers_wait_for_what_was_submitted_before(
    engine: CudaEngine, pools: Pools, runtime: FakeRuntime
) -> None:
    """Kernels of both directions run after the work that the current stream had at `submit`."""
    for direction in Direction:
        engine.submit(order(pools, 1, direction))
        submitted = runtime.current.recorded[-1]
        engine.wait(1)
        engine.poll()
        assert [submitted in stream.waited for stream in runtime.streams].count(True) == 1
    assert len(runtime.current.recorded) == 2


def test_a_layer_is_waited_for_on_the_stream_not_here(
    engine: CudaEngine, pools: Pools, runtime: FakeRuntime
) -> None:
    """While the device is held the caller continues, and its stream waits for the layer's event."""
    with runtime.held():
        engine.submit(order(pools, 1, LOAD_BACK))
        assert engine.wait_layer(1, 0)
        first = runtime.current.waited[-1]
        assert engine.wait_layer(1, 4)
        assert runtime.current.waited[-1] is not first
        assert engine.poll() == ()
        kernels = next(stream for stream in runtime.streams if first in stream.recorded)
        arrivals = [runtime.current.waited[at] in kernels.recorded for at in (-1, -2)]
        assert arrivals == [True, True]
    engine.wait(1)
    engine.poll()
    before = len(runtime.current.waited)
    assert engine.wait_layer(1, 0), "the order has ended, and ended well"
    assert len(runtime.current.waited) == before


def test_compute_can_begin_before_all_is_enqueued(
    engine: CudaEngine, pools: Pools, monkeypatch: pytest.MonkeyPatch, kernel: InterpretedKernel
) -> None:
    """The first layer can be waited for while the thread is still busy with the last."""
    may_go_on, launches = Event(), []

    class Slow:
        def __getitem__(self, grid: tuple[int]) -> pages.Launch:
            launches.append(grid)
            if len(launches) > 10:
                assert may_go_on.wait(20)
            return kernel[grid]

    monkeypatch.setattr(pages, "MOVE_PAGES", Slow())
    engine.submit(order(pools, 1, LOAD_BACK))
    assert engine.wait_layer(1, 0)
    assert not may_go_on.is_set()
    last = Thread(target=engine.wait_layer, args=(1, 4))
    last.start()
    sleep(0.02)
    assert last.is_alive(), "the last layer cannot be waited for yet"
    may_go_on.set()
    last.join(20)
    assert not last.is_alive()


def test_a_backup_arrives_at_once(engine: CudaEngine, pools: Pools, runtime: FakeRuntime) -> None:
    """Waiting for any layer of a backup waits for its end."""
    engine.submit(order(pools, 1, BACKUP))
    assert engine.wait_layer(1, 0)
    assert any(runtime.current.waited[-1] in stream.recorded for stream in runtime.streams)


class Broken:
    """A kernel that cannot be launched."""

    def __getitem__(self, grid: tuple[int]) -> pages.Launch:
        raise RuntimeError("out of registers")


@pytest.mark.parametrize("direction", list(Direction))
def test_what_cannot_be_enqueued_fails_alone(
    engine: CudaEngine,
    pools: Pools,
    direction: Direction,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The order fails, waiters return, the log says why, and the next order succeeds."""
    with monkeypatch.context() as patched, caplog.at_level(logging.ERROR):
        patched.setattr(pages, "MOVE_PAGES", Broken())
        engine.submit(order(pools, 1, direction))
        engine.wait(1)
        assert not engine.wait_layer(1, 0)
        assert engine.poll() == (Completion(1, ok=False),)
    assert "out of registers" in caplog.text
    assert not engine.wait_layer(1, 0)
    engine.submit(order(pools, 2, direction))
    engine.wait(2)
    assert engine.poll() == (Completion(2, ok=True),)


def test_a_failure_completes_once_nothing_of_it_moves(
    engine: CudaEngine, pools: Pools, runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed order completes only after its enqueued copies have ended."""
    monkeypatch.setattr(pages, "MOVE_PAGES", Broken())
    with runtime.held():
        engine.submit(order(pools, 1, LOAD_BACK))
        until(lambda: any(stream.recorded for stream in runtime.streams))
        sleep(0.02)
        assert engine.poll() == ()
    engine.wait(1)
    assert engine.poll() == (Completion(1, ok=False),)


def test_a_lost_device_fails_what_was_under_way(
    engine: CudaEngine, pools: Pools, runtime: FakeRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    """Every order completes, even if the device is lost."""
    engine.submit(order(pools, 1, BACKUP))
    engine.wait(1)
    runtime.lost = True
    with caplog.at_level(logging.ERROR):
        engine.wait(1)
        assert engine.poll() == (Completion(1, ok=False),)
    assert "the device is lost" in caplog.text


def test_an_empty_order_completes(engine: CudaEngine, pools: Pools) -> None:
    """An order without pages completes, and waiting for it returns."""
    engine.submit(page_order(1, LOAD_BACK, (), pools))
    engine.submit(page_order(2, BACKUP, (Move(FULL, slots(), slots()),), pools))
    assert engine.wait_layer(1, 3)
    engine.wait(1)
    engine.wait(2)
    assert {done.transfer_id for done in engine.poll()} == {1, 2}


def test_orders_that_it_cannot_take_are_refused(pools: Pools, device: Device) -> None:
    """Each error line says what is wrong with the order."""
    engine = device.engine(pools)
    with pytest.raises(BadArgument, match="order: performs a function; a GPU needs a PageTransfer"):
        engine.submit(TransferOrder(1, BACKUP, (), lambda: None))
    with pytest.raises(BadArgument, match="order: is of other pools"):
        engine.submit(order(Pools(CONFIG, LAYOUTS), 1, BACKUP))
    with pytest.raises(BadArgument, match="layer: is -1; the first layer is 0"):
        engine.wait_layer(1, -1)
    engine.close()
    with pytest.raises(BadArgument, match="comes to an engine that was closed"):
        engine.submit(order(pools, 1, BACKUP))
    with pytest.raises(BadArgument, match="pools: are on cpu; a CudaEngine needs a GPU's"):
        CudaEngine(pools)


def test_closing_performs_what_was_submitted(pools: Pools, device: Device) -> None:
    """After `close`, completions can still be polled, and the threads have ended."""
    threads = set(all_threads())
    with device.engine(pools) as engine:
        for transfer_id in range(5):
            engine.submit(order(pools, transfer_id, BACKUP))
    assert [done.transfer_id for done in engine.poll()] == list(range(5))
    assert set(all_threads()) == threads


def test_an_engine_that_is_dropped_ends_its_threads(pools: Pools, device: Device) -> None:
    """The threads of an engine end when it is collected without `close`."""
    threads = set(all_threads())
    engine = device.engine(pools)
    del engine
    gc.collect()
    until(lambda: set(all_threads()) <= threads)


def test_two_engines_agree_byte_for_byte(engine: CudaEngine, pools: Pools) -> None:
    """After a backup and a load, the pools equal those of an engine on the CPU."""
    twin = Pools(CONFIG, LAYOUTS)
    for component in LAYOUTS:
        for mine, theirs in zip(
            (*twin.planes(component), twin.slab(component)),
            (*pools.planes(component), pools.slab(component)),
            strict=True,
        ):
            mine.copy_(theirs)
    with ThreadedEngine() as threaded:
        for at, direction in enumerate((BACKUP, LOAD_BACK, BACKUP)):
            for each, its_pools in ((engine, pools), (threaded, twin)):
                each.submit(order(its_pools, at, direction))
                each.wait(at)
                assert each.poll() == (Completion(at, ok=True),)
    assert contents(pools) == contents(twin)


def test_a_cache_moves_its_pages_with_it(engine: CudaEngine, pools: Pools) -> None:
    """Pages that were backed up and loaded into other slots have the bytes that a request wrote."""
    cache = PrefixCache(CONFIG, pools, engine)
    tokens = np.arange(12, dtype=np.int32)
    full, swa, mamba = cache.allocate(6, 6, 1)
    layout, written = LAYOUTS[FULL], [bytes([page] * 240) for page in range(6)]
    assert layout.page_bytes == 240
    for slot, page in zip(full.tolist(), written, strict=True):
        pools.write(FULL, slot, page)
    cache.insert(tokens, 0, full, swa, mamba)
    assert {status for _, status in cache.flush()} == {TransferStatus.DONE}
    cache.evict(6, 6, 1)
    assert cache.match(tokens).device_pages == 0
    others, *_ = cache.allocate(2)
    loaded = cache.load_back(tokens)
    assert loaded.transfer_id is not None
    assert cache.wait_layer(loaded.transfer_id, layout.layers - 1)
    assert {status for _, status in cache.flush()} == {TransferStatus.DONE}
    found = cache.match(tokens)
    assert found.device_pages == 6
    assert [pools.read(FULL, GPU, slot) for slot in found.full.tolist()] == written
    assert not set(found.full.tolist()) & set(others.tolist())


def test_calibration_tries_both_ways_and_leaves_the_pools_alone(
    pools: Pools, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without `direct_bytes` an engine measures the size, on scratch memory."""
    monkeypatch.setattr(calibration, "LARGEST_BYTES", 3 * LAYOUTS[FULL].page_bytes)
    monkeypatch.setattr(calibration, "REPEATS", 1)
    before = contents(pools)
    with device.engine(pools, direct_bytes=None) as engine:
        measured = engine.direct_bytes
    assert contents(pools) == before
    sizes = {0, *(LAYOUTS[FULL].page_bytes * count for count in (1, 3))}
    assert set(measured.values()) <= sizes


def test_statistics_show_the_memory_beside_the_pools(engine: CudaEngine, pools: Pools) -> None:
    """Rings and slot numbers are counted on both media, and are given back by `close`."""
    cache = PrefixCache(CONFIG, pools, engine)
    layer_bytes = max(layout.layer_bytes for layout in LAYOUTS.values())
    ring = SMALL.ring_slots * -(-layer_bytes // 512) * 512
    numbers = 4 * LEAST_NUMBERS
    assert cache.stats().staging_bytes == {GPU: 2 * (ring + numbers), CPU: 2 * numbers}
    engine.close()
    assert cache.stats().staging_bytes == {GPU: 0, CPU: 0}
    assert PrefixCache(CONFIG, pools, ThreadedEngine()).stats().staging_bytes == {GPU: 0, CPU: 0}
