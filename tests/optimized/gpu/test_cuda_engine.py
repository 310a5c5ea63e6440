"""The GPU engine, without a GPU: kernels interpreted, a driver compiled here, events by hand.

What is missing is the device's own asynchrony; that its streams may interleave as they like is
shown in `test_late_streams`.
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

from gpu.fake import DriverLibrary, FakeRuntime, InterpretedKernel
from gpu.scene import (
    BACKUP,
    CONFIG,
    LAYOUTS,
    LOAD_BACK,
    SMALL,
    WAYS,
    Device,
    carry_out,
    contents,
    moves,
    order,
    random_pools,
    slots,
    until,
)
from kvcanon.optimized import calibration
from kvcanon.optimized.calibration import Race, largest_won
from kvcanon.optimized.copy_plan import Limits
from kvcanon.optimized.cuda_engine import CudaEngine
from kvcanon.optimized.gpu import prove_batches
from kvcanon.optimized.host_slab import HostSlab
from kvcanon.optimized.kernels import pages
from kvcanon.optimized.page_transfer import Move, page_order
from kvcanon.optimized.pools import Pools
from kvcanon.optimized.prefix_cache import PrefixCache
from kvcanon.optimized.slot_uploads import LEAST_NUMBERS
from kvcanon.optimized.threaded_engine import ThreadedEngine
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.transfer import Completion, Direction, TransferOrder, TransferStatus
from kvcanon.spec.types import CPU, FULL, GPU

CPU_MEMORY = torch.device("cpu")


@pytest.fixture
def pools() -> Pools:
    """Pools with something in every slot."""
    return random_pools(0)


@pytest.fixture
def engine(device: Device, pools: Pools) -> Iterator[CudaEngine]:
    """An engine with a small ring."""
    with device.engine(pools) as made:
        yield made


@pytest.mark.parametrize("first", list(Direction))
@pytest.mark.parametrize(("limits", "direct_bytes"), WAYS.values(), ids=WAYS)
def test_moves_exactly_what_the_plain_copy_does(
    limits: Limits, direct_bytes: int, first: Direction, pools: Pools, device: Device
) -> None:
    """Each way of copying leaves every byte of both media as `Pools.copy` does, order by order."""
    twin = random_pools(0)
    second = LOAD_BACK if first is BACKUP else BACKUP
    before = contents(pools)
    with device.engine(pools, limits, direct_bytes) as engine:
        for at, direction in enumerate((first, second)):
            carry_out(engine, order(pools, at, direction))
            for move in moves(direction):
                twin.copy(move, direction)
            assert contents(pools) == contents(twin) != before


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
    # Orders without pages complete as well.
    engine.submit(page_order(4, LOAD_BACK, (), pools))
    engine.submit(page_order(5, BACKUP, (Move(FULL, slots(), slots()),), pools))
    assert engine.wait_layer(4, 3)
    engine.wait(4)
    engine.wait(5)
    assert {done.transfer_id for done in engine.poll()} == {4, 5}


def test_transfers_wait_for_what_was_submitted_before(
    engine: CudaEngine, pools: Pools, runtime: FakeRuntime
) -> None:
    """Kernels of both directions run after the work that the current stream had at `submit`."""
    for at, direction in enumerate(Direction, 1):
        carry_out(engine, order(pools, 1, direction))
        assert len(runtime.current.recorded) == at
        submitted = runtime.current.recorded[-1]
        assert [submitted in stream.waited for stream in runtime.streams].count(True) == 1


def test_a_layer_is_waited_for_on_the_stream_not_here(
    engine: CudaEngine, pools: Pools, runtime: FakeRuntime
) -> None:
    """While the device is held the caller continues, and its stream waits for the layer's event."""
    with runtime.held():
        engine.submit(order(pools, 1, LOAD_BACK))
        assert engine.wait_layer(1, 0)
        first = runtime.current.waited[-1]
        assert engine.wait_layer(1, 4)
        last = runtime.current.waited[-1]
        assert first is not last
        assert engine.poll() == ()
        kernels = next(stream for stream in runtime.streams if first in stream.recorded)
        assert last in kernels.recorded
    engine.wait(1)
    engine.poll()
    before = len(runtime.current.waited)
    assert engine.wait_layer(1, 0), "the order has ended, and ended well"
    assert len(runtime.current.waited) == before
    # A backup arrives at once: waiting for any layer waits for its end.
    engine.submit(order(pools, 2, BACKUP))
    assert engine.wait_layer(2, 0)
    assert any(runtime.current.waited[-1] in stream.recorded for stream in runtime.streams)


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


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch, engine: CudaEngine) -> Iterator[pytest.MonkeyPatch]:
    """Kernels cannot be launched, until this is undone."""

    class Broken:
        def __getitem__(self, grid: tuple[int]) -> pages.Launch:
            raise RuntimeError("out of registers")

    with monkeypatch.context() as patch:
        patch.setattr(pages, "MOVE_PAGES", Broken())
        yield patch


@pytest.mark.parametrize("direction", list(Direction))
def test_what_cannot_be_enqueued_fails_alone(
    engine: CudaEngine,
    pools: Pools,
    direction: Direction,
    broken: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The order fails, waiters return, the log says why, and the next order succeeds."""
    with caplog.at_level(logging.ERROR):
        engine.submit(order(pools, 1, direction))
        engine.wait(1)
        assert not engine.wait_layer(1, 0)
        assert engine.poll() == (Completion(1, ok=False),)
    assert "out of registers" in caplog.text
    assert not engine.wait_layer(1, 0)
    broken.undo()
    carry_out(engine, order(pools, 2, direction))


@pytest.mark.usefixtures("broken")
def test_a_failure_completes_once_nothing_of_it_moves(
    engine: CudaEngine, pools: Pools, runtime: FakeRuntime
) -> None:
    """A failed order completes only after its enqueued copies have ended."""
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


@pytest.mark.parametrize("refused", [1, 2])
def test_an_error_of_one_call_frees_no_slot_before_its_copy_ends(
    refused: int, engine: CudaEngine, pools: Pools, runtime: FakeRuntime
) -> None:
    """An event cannot be asked, nor perhaps waited for: the order ends once the device is done."""
    found: list[Completion] = []
    with runtime.held():
        engine.submit(order(pools, 1, BACKUP))
        until(lambda: bool(engine._workers[BACKUP].open[1].enqueued))
        runtime.refused_queries = refused
        asks = Thread(target=lambda: found.extend(engine.poll()))
        asks.start()
        until(lambda: runtime.refused_queries < refused)
        sleep(0.02)
        assert asks.is_alive()
        assert not found
    asks.join()
    assert found == [Completion(1, ok=False)]
    carry_out(engine, order(pools, 2, BACKUP))


def test_a_wait_that_fails_goes_on_until_its_copy_ends(
    engine: CudaEngine, pools: Pools, runtime: FakeRuntime
) -> None:
    """An order that was waited for can be polled, whatever the first wait raised."""
    engine.submit(order(pools, 1, BACKUP))
    until(lambda: bool(engine._workers[BACKUP].open[1].enqueued))
    runtime.refused_queries = 1
    engine.wait(1)
    assert runtime.refused_queries == 0
    assert engine.poll() == (Completion(1, ok=True),)


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


def test_threads_end_with_their_engine(pools: Pools, device: Device) -> None:
    """`close` performs what was submitted, to be polled later; a collected engine ends, too."""
    threads = set(all_threads())
    with device.engine(pools) as engine:
        for transfer_id in range(5):
            engine.submit(order(pools, transfer_id, BACKUP))
    assert [done.transfer_id for done in engine.poll()] == list(range(5))
    assert set(all_threads()) == threads
    engine = device.engine(pools)
    del engine
    gc.collect()
    until(lambda: set(all_threads()) <= threads)


def test_a_cache_moves_its_pages_with_it(engine: CudaEngine, pools: Pools) -> None:
    """Pages that were backed up and loaded into other slots have the bytes that a request wrote."""
    cache = PrefixCache(CONFIG, pools, engine)
    tokens = np.arange(12, dtype=np.int32)
    full, swa, mamba = cache.allocate(6, 6, 1)
    written = [bytes([page] * LAYOUTS[FULL].page_bytes) for page in range(6)]
    for slot, page in zip(full.tolist(), written, strict=True):
        pools.write(FULL, slot, page)
    cache.insert(tokens, 0, full, swa, mamba)
    assert {status for _, status in cache.flush()} == {TransferStatus.DONE}
    cache.evict(6, 6, 1)
    assert cache.match(tokens).device_pages == 0
    others, *_ = cache.allocate(2)
    loaded = cache.load_back(tokens)
    assert loaded.transfer_id is not None
    assert cache.wait_layer(loaded.transfer_id, LAYOUTS[FULL].layers - 1)
    assert {status for _, status in cache.flush()} == {TransferStatus.DONE}
    found = cache.match(tokens)
    assert found.device_pages == 6
    assert [pools.read(FULL, GPU, slot) for slot in found.full.tolist()] == written
    assert not set(found.full.tolist()) & set(others.tolist())


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


# Calibration


@pytest.mark.parametrize(
    ("seconds", "won"),
    [
        ([(1.0, 2.0), (2.0, 3.0), (4.0, 3.5)], 2),
        ([(3.0, 2.0), (2.0, 3.0), (4.0, 5.0)], 0),
        ([(1.0, 2.0), (2.0, 2.0), (3.0, 4.0)], 3),
        ([], 0),
    ],
)
def test_the_ring_is_left_out_up_to_where_it_first_wins(
    seconds: list[tuple[float, float]], won: int
) -> None:
    """A larger size that wins after a lost one does not count."""
    races = [Race(at + 1, direct, staged) for at, (direct, staged) in enumerate(seconds)]
    assert largest_won(races[::-1]) == won


def test_calibration_tries_both_ways_and_leaves_the_pools_alone(
    pools: Pools, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without `direct_bytes` an engine measures the size, on scratch memory."""
    monkeypatch.setattr(calibration, "LARGEST_BYTES", 3 * LAYOUTS[FULL].page_bytes)
    monkeypatch.setattr(calibration, "REPEATS", 1)
    with device.engine(pools, direct_bytes=None) as engine:
        measured = engine.direct_bytes
    assert contents(pools) == contents(random_pools(0))
    sizes = {0, *(LAYOUTS[FULL].page_bytes * count for count in (1, 3))}
    assert set(measured.values()) <= sizes


@pytest.mark.parametrize("error", [0, 801])
def test_batches_are_tried_before_they_are_relied_on(
    error: int, library: DriverLibrary, device: Device, caplog: pytest.LogCaptureFixture
) -> None:
    """If the driver refuses batches, copies go one by one, and the log says so."""
    library.refuse_with(error)
    with caplog.at_level(logging.WARNING):
        prove_batches(device.gpu, HostSlab(1, 4096, CPU_MEMORY))
    assert device.driver.has_batches is (error == 0)
    assert ("copies go one by one" in caplog.text) is (error != 0)


# A default device that an engine sets for its model; a tensor that is made on `meta` has no bytes.


@pytest.fixture
def _on_meta(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(calibration, "LARGEST_BYTES", LAYOUTS[FULL].page_bytes)
    torch.set_default_device("meta")
    yield
    torch.set_default_device(None)


@pytest.mark.usefixtures("_on_meta")
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


@pytest.mark.usefixtures("_on_meta")
def test_an_engine_is_made_calibrated_and_used_on_its_own_device(device: Device) -> None:
    """The engine of a GPU allocates everything where it belongs."""
    pools = random_pools(0)
    with device.engine(pools, SMALL, None) as engine:
        for direction in (BACKUP, LOAD_BACK):
            carry_out(engine, order(pools, 1, direction))
    assert contents(pools) != contents(random_pools(0))
    prove_batches(device.gpu, HostSlab(1, 4096, CPU_MEMORY))
