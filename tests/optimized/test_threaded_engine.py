"""The threaded engine: order of copies, completions, layers, and the end of its threads.

Nothing here is timed. A copy that must still be under way waits for the test at a gate, and a test
that would wait for ever gives up after PATIENCE_S.
"""

from __future__ import annotations

import gc
import logging
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterable
from threading import Event

import numpy as np
import pytest

from fast.copies import (
    BACKUP,
    LOAD_BACK,
    PATIENCE_S,
    Gate,
    GatedPools,
    Log,
    Patient,
    is_stuck,
    slots,
)
from kvcanon.optimized import copy_workers
from kvcanon.optimized.layout import PageLayout
from kvcanon.optimized.page_transfer import Move, page_order
from kvcanon.optimized.pools import Pools
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.transfer import Completion, Direction, TransferEngine, TransferOrder
from kvcanon.spec.types import CPU, FULL, GPU, SWA, Component, Counts, TransferId

pytestmark = pytest.mark.usefixtures("no_thread_is_left")


def done(*transfer_ids: TransferId) -> tuple[Completion, ...]:
    """Orders that were performed."""
    return tuple(Completion(each, ok=True) for each in transfer_ids)


# Completions


def test_each_order_completes_once_and_in_order(engine: Patient) -> None:
    """Orders of a direction run in order, and each completes exactly once."""
    as_cache_sees_it: TransferEngine = engine
    assert as_cache_sees_it.poll() == ()
    log = Log()
    for transfer_id in range(50):
        engine.submit(log.make(transfer_id, BACKUP if transfer_id % 2 else LOAD_BACK))
    told: list[Completion] = []
    for transfer_id in (48, 49):
        engine.wait(transfer_id)
        told += engine.poll()
    assert sorted(told, key=lambda each: each.transfer_id) == [*done(*range(50))]
    for odd in (0, 1):
        assert [each for each in log.performed if each % 2 == odd] == [*range(odd, 50, 2)]
    assert engine.poll() == ()


def test_an_order_completes_only_when_it_ended(engine: Patient) -> None:
    """A poll never waits, and reports an order only after its copy has ended.

    Neither does the other direction wait for it.
    """
    log, gate = Log(), Gate()
    engine.submit(log.make(1, BACKUP, gate))
    engine.submit(log.make(2, BACKUP))
    assert gate.reached.wait(PATIENCE_S)
    engine.submit(log.make(3, LOAD_BACK))
    engine.wait(3)
    assert engine.poll() == done(3)
    assert log.performed == [3]
    gate.opened.set()
    engine.wait(2)
    assert engine.poll() == done(1, 2)


def test_no_failed_order_is_ever_said_to_be_there(
    engine: Patient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where too many failed for each to be remembered, all orders up to those count as failed."""
    monkeypatch.setattr(copy_workers, "MOST_FAILED", 2)
    log = Log()

    def broken() -> None:
        raise OSError("no copy")

    engine.submit(log.make(0, BACKUP))
    for transfer_id in (1, 2, 3):
        engine.submit(TransferOrder(transfer_id, BACKUP, (), broken))
    engine.submit(log.make(4, BACKUP))
    engine.wait(4)
    assert [each.ok for each in engine.poll()] == [True, False, False, False, True]
    assert [engine.wait_layer(each, 0) for each in range(5)] == [False] * 4 + [True]


def test_waiting_is_for_orders_that_are_open(engine: Patient) -> None:
    """Waiting blocks for open orders only, and returns at once for ended and unknown ones."""
    log, gate = Log(), Gate()
    engine.submit(log.make(1, LOAD_BACK, gate))
    with is_stuck(lambda: engine.wait(1)):
        gate.opened.set()
    for transfer_id in (1, 99):
        engine.wait(transfer_id)


def test_a_copy_that_raises_fails_and_is_logged_once(
    engine: Patient, caplog: pytest.LogCaptureFixture
) -> None:
    """A copy that raises completes as failed and is logged once, and later orders run."""
    log = Log()

    def broken() -> None:
        raise MemoryError("no room for the piece")

    with caplog.at_level(logging.WARNING):
        engine.submit(log.make(1, LOAD_BACK, broken))
        engine.submit(log.make(2, LOAD_BACK))
        engine.wait(2)
    assert engine.poll() == (Completion(1, ok=False), *done(2))
    (record,) = caplog.records
    assert record.getMessage() == "load_back 1 failed"
    assert record.exc_info is not None
    assert "no room for the piece" in str(record.exc_info[1])


@pytest.mark.parametrize("group_bytes", [1, 600, 1 << 20])
def test_bytes_are_those_of_copies_without_threads(group_bytes: int) -> None:
    """Pages that are copied in the background have the same bytes as with `perform`."""
    config = CacheConfig(
        device_slots=Counts(32), host_slots=Counts(32), write_policy="write_through"
    )
    made = [Pools(config, {FULL: PageLayout(4, (16, 24))}) for _ in range(2)]
    random = np.random.default_rng(3)
    for slot in range(32):
        page = random.bytes(160)
        for each in made:
            each.write(FULL, slot, page)
    with Patient(group_bytes) as engine:
        for transfer_id, direction in enumerate([BACKUP, LOAD_BACK] * 10):
            sources, targets = (random.permutation(32)[:8].astype(np.int32) for _ in range(2))
            move = Move(FULL, sources, targets)
            page_order(transfer_id, direction, (move,), made[0]).perform()
            engine.submit(page_order(transfer_id, direction, (move,), made[1]))
            # As the tree does: what the next copy reads is settled before.
            engine.wait(transfer_id)
    for medium in (GPU, CPU):
        pages = [[each.read(FULL, medium, slot) for slot in range(32)] for each in made]
        assert pages[0] == pages[1]


# Layers


def load(
    engine: Patient,
    transfer_id: TransferId,
    pools: GatedPools,
    components: Iterable[Component] = (FULL,),
) -> None:
    """Submit a load of two pages of each component."""
    moves = tuple(Move(component, slots(2), slots(2)) for component in components)
    engine.submit(page_order(transfer_id, LOAD_BACK, moves, pools))


def test_layers_arrive_one_after_the_other(engine: Patient) -> None:
    """Waiting for a layer returns when that layer is there, before later layers."""
    gates = {1: Gate(), 2: Gate()}
    pools = GatedPools(3, gates=gates)
    load(engine, 7, pools)
    assert engine.wait_layer(7, 0)
    assert pools.moved == [(FULL, 0)]
    with is_stuck(lambda: engine.wait_layer(7, 1)):
        gates[1].opened.set()
    assert engine.wait_layer(7, 1)
    assert engine.wait_layer(7, 0)
    assert engine.poll() == ()
    assert gates[2].reached.wait(PATIENCE_S)
    gates[2].opened.set()
    assert engine.wait_layer(7, 2)
    engine.wait(7)
    assert engine.poll() == done(7)
    assert pools.moved == [(FULL, 0), (FULL, 1), (FULL, 2)]
    assert engine.wait_layer(7, 2)


def test_a_layer_is_there_when_every_component_has_it(engine: Patient) -> None:
    """A layer is reported only when the data of all its components is there."""
    gate = Gate()
    pools = GatedPools(3, gates={2: gate})
    load(engine, 7, pools, (FULL, SWA))
    assert engine.wait_layer(7, 1)
    assert pools.moved == [(FULL, 0), (SWA, 0), (FULL, 1), (SWA, 1)]
    gate.opened.set()
    # Beyond the last layer, which is that of the whole order.
    assert engine.wait_layer(7, 5)
    assert pools.moved[4:] == [(FULL, 2)]


def test_layers_go_in_groups_that_are_worth_it() -> None:
    """Layers arrive in groups of at least `group_bytes`."""
    gate = Gate()
    with Patient(group_bytes=4) as engine:
        load(engine, 1, GatedPools(4, gates={3: gate}))
        assert gate.reached.wait(PATIENCE_S)
        assert engine.wait_layer(1, 1)
        # The group of layers 2 and 3 is under way.
        with is_stuck(lambda: engine.wait_layer(1, 2)):
            gate.opened.set()
        assert engine.wait_layer(1, 2)


def test_layers_of_a_failed_copy_are_reported_missing(engine: Patient) -> None:
    """Waiting for a layer of a failed copy returns False."""
    gate = Gate()
    pools = GatedPools(3, gates={1: gate})
    load(engine, 7, pools)
    assert engine.wait_layer(7, 0)
    pools.moved = None  # type: ignore[assignment]
    gate.opened.set()
    assert not engine.wait_layer(7, 1)
    engine.wait(7)
    assert engine.poll() == (Completion(7, ok=False),)
    assert not engine.wait_layer(7, 2)
    assert engine.wait_layer(8, 0)


def test_layers_of_a_plain_order_come_together(engine: Patient) -> None:
    """The layers of a plain order arrive when the order ends, not before."""
    log, gate = Log(), Gate()
    engine.submit(log.make(1, LOAD_BACK, gate))
    with is_stuck(lambda: engine.wait_layer(1, 0)):
        gate.opened.set()
    assert engine.wait_layer(1, 0)
    assert log.performed == [1]
    # Orders without pages have no layers to wait for.
    pools = GatedPools(3)
    load(engine, 2, pools, ())
    engine.submit(page_order(3, LOAD_BACK, (Move(FULL, slots(0), slots(0)),), pools))
    engine.wait(3)
    assert engine.poll() == done(1, 2, 3)
    with pytest.raises(BadArgument, match="layer: is -1"):
        engine.wait_layer(1, -1)
    with pytest.raises(BadArgument, match="group_bytes: is 0"):
        Patient(group_bytes=0)


# Threads


def test_closing_performs_what_was_submitted() -> None:
    """Closing performs all submitted orders, and their completions can still be polled."""
    log, gate = Log(), Gate()
    engine = Patient()
    engine.submit(log.make(1, BACKUP, gate))
    engine.submit(log.make(2, BACKUP))
    with is_stuck(engine.close):
        gate.opened.set()
    assert log.performed == [1, 2]
    assert engine.poll() == done(1, 2)
    engine.close()
    with pytest.raises(BadArgument, match="closed; make a new one"):
        engine.submit(log.make(3))
    engine.wait(3)


def test_engine_has_a_thread_a_direction() -> None:
    """There is one thread for each direction, from the beginning to the end of the engine."""
    before = threading.active_count()
    log = Log()
    with Patient() as engine:
        for transfer_id in range(20):
            assert threading.active_count() == before + 2
            engine.submit(log.make(transfer_id, LOAD_BACK if transfer_id < 10 else BACKUP))
        assert threading.active_count() == before + 2
    assert threading.active_count() == before


def test_threads_end_with_an_engine_that_was_not_closed() -> None:
    """The threads of an engine end when it is collected without `close`."""
    log = Log()
    engine = Patient()
    for transfer_id, direction in enumerate(Direction):
        engine.submit(log.make(transfer_id, direction))
        engine.wait(transfer_id)
    threads = [worker.thread for worker in engine._workers.values()]
    del engine
    gc.collect()
    for thread in threads:
        assert thread is not None
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def test_an_idle_engine_keeps_no_pools(engine: Patient) -> None:
    """An idle thread keeps no reference to the pools of the last order."""
    pools = GatedPools(2)
    gone = Event()
    weakref.finalize(pools, gone.set)
    load(engine, 1, pools)
    engine.wait(1)
    engine.poll()
    del pools
    # The thread lets go of the order a moment after it told of it.
    assert gone.wait(PATIENCE_S)


def test_an_open_engine_does_not_block_the_end_of_python() -> None:
    """A program with an open engine finishes the running copy and exits."""
    program = """
from threading import Event
from kvcanon.optimized.threaded_engine import ThreadedEngine
from kvcanon.spec.transfer import Direction, TransferOrder
engine, begun = ThreadedEngine(), Event()
def copy():
    begun.set()
    for _ in range(1_000_000):
        pass
    print("copied", flush=True)
engine.submit(TransferOrder(1, Direction.BACKUP, (), copy))
begun.wait()
"""
    ran = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert (ran.stdout, ran.stderr) == ("copied\n", "")
