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
from threading import Event

import numpy as np
import pytest

from gated_copies import PATIENCE_S, Gate, GatedPools, Log, is_stuck, slots, wait
from kvcanon.optimized.layout import PageLayout
from kvcanon.optimized.page_transfer import Move, page_order
from kvcanon.optimized.pools import Pools
from kvcanon.optimized.threaded_engine import ThreadedEngine
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.transfer import Completion, Direction, TransferEngine
from kvcanon.spec.types import CPU, FULL, GPU, Counts

BACKUP, LOAD_BACK = Direction.BACKUP, Direction.LOAD_BACK


pytestmark = pytest.mark.usefixtures("no_thread_is_left")


# Completions


def test_engine_is_a_transfer_engine(engine: ThreadedEngine) -> None:
    """The engine implements the protocol that the cache needs."""
    as_cache_sees_it: TransferEngine = engine
    assert as_cache_sees_it.poll() == ()


def test_each_order_completes_once_and_in_order(engine: ThreadedEngine) -> None:
    """Orders of a direction run in order, and each completes exactly once."""
    log = Log()
    for transfer_id in range(50):
        engine.submit(log.make(transfer_id, BACKUP if transfer_id % 2 else LOAD_BACK))
    told: list[Completion] = []
    for transfer_id in (48, 49):
        wait(engine, transfer_id)
        told += engine.poll()
    assert sorted(told, key=lambda each: each.transfer_id) == [
        Completion(transfer_id, ok=True) for transfer_id in range(50)
    ]
    for odd in (0, 1):
        performed = [each for each in log.performed if each % 2 == odd]
        assert performed == list(range(odd, 50, 2))
    assert engine.poll() == ()


def test_an_order_completes_only_when_it_ended(engine: ThreadedEngine) -> None:
    """A poll never waits, and reports an order only after its copy has ended."""
    log, gate = Log(), Gate()
    engine.submit(log.make(1, BACKUP, gate))
    engine.submit(log.make(2, BACKUP))
    assert gate.reached.wait(PATIENCE_S)
    assert engine.poll() == ()
    assert log.performed == []
    gate.opened.set()
    wait(engine, 2)
    assert engine.poll() == (Completion(1, ok=True), Completion(2, ok=True))


def test_the_directions_do_not_wait_for_each_other(engine: ThreadedEngine) -> None:
    """A load completes while a backup is blocked."""
    log, gate = Log(), Gate()
    engine.submit(log.make(1, BACKUP, gate))
    engine.submit(log.make(2, LOAD_BACK))
    wait(engine, 2)
    assert engine.poll() == (Completion(2, ok=True),)
    gate.opened.set()
    wait(engine, 1)
    assert engine.poll() == (Completion(1, ok=True),)


def test_waiting_is_for_orders_that_are_open(engine: ThreadedEngine) -> None:
    """Waiting blocks for open orders only, and returns at once for ended and unknown ones."""
    log, gate = Log(), Gate()
    engine.submit(log.make(1, LOAD_BACK, gate))
    waiting = is_stuck(lambda: engine.wait(1))
    gate.opened.set()
    waiting.join(PATIENCE_S)
    for transfer_id in (1, 99):
        wait(engine, transfer_id)


def test_a_copy_that_raises_fails_and_is_logged_once(
    engine: ThreadedEngine, caplog: pytest.LogCaptureFixture
) -> None:
    """A copy that raises completes as failed and is logged once, and later orders run."""
    log = Log()

    def broken() -> None:
        raise MemoryError("no room for the piece")

    with caplog.at_level(logging.WARNING):
        engine.submit(log.make(1, LOAD_BACK, broken))
        engine.submit(log.make(2, LOAD_BACK))
        wait(engine, 2)
    assert engine.poll() == (Completion(1, ok=False), Completion(2, ok=True))
    (record,) = caplog.records
    assert record.getMessage() == "load_back 1 failed"
    assert record.exc_info is not None
    assert "no room for the piece" in str(record.exc_info[1])


# Bytes


@pytest.mark.parametrize("group_bytes", [1, 600, 1 << 20])
def test_bytes_are_those_of_copies_without_threads(group_bytes: int) -> None:
    """Pages that are copied in the background have the same bytes as with `perform`."""
    config = CacheConfig(
        device_slots=Counts(32), host_slots=Counts(32), write_policy="write_through"
    )
    layouts = {FULL: PageLayout(4, (16, 24))}
    made = [Pools(config, layouts) for _ in range(2)]
    random = np.random.default_rng(3)
    for slot in range(32):
        page = random.bytes(160)
        for each in made:
            each.write(FULL, slot, page)
    steps = [
        (direction, random.permutation(32)[:8].astype(np.int32), random.permutation(32)[:8])
        for direction in [BACKUP, LOAD_BACK] * 10
    ]
    with ThreadedEngine(group_bytes) as engine:
        for transfer_id, (direction, sources, targets) in enumerate(steps):
            move = Move(FULL, sources, targets.astype(np.int32))
            page_order(transfer_id, direction, (move,), made[0]).perform()
            engine.submit(page_order(transfer_id, direction, (move,), made[1]))
            # As the tree does: what the next copy reads is settled before.
            wait(engine, transfer_id)
    for medium in (GPU, CPU):
        pages = [[each.read(FULL, medium, slot) for slot in range(32)] for each in made]
        assert pages[0] == pages[1]


# Threads


def test_closing_performs_what_was_submitted() -> None:
    """Closing performs all submitted orders, and their completions can still be polled."""
    log, gate = Log(), Gate()
    engine = ThreadedEngine()
    engine.submit(log.make(1, BACKUP, gate))
    engine.submit(log.make(2, BACKUP))
    closing = is_stuck(engine.close)
    gate.opened.set()
    closing.join(PATIENCE_S)
    assert log.performed == [1, 2]
    assert engine.poll() == (Completion(1, ok=True), Completion(2, ok=True))
    engine.close()
    with pytest.raises(BadArgument, match="closed; make a new one"):
        engine.submit(log.make(3))
    wait(engine, 3)


def test_engine_has_a_thread_a_direction() -> None:
    """There is one thread for each direction, from the beginning to the end of the engine."""
    before = threading.active_count()
    log = Log()
    with ThreadedEngine() as engine:
        assert threading.active_count() == before + 2
        for transfer_id in range(10):
            engine.submit(log.make(transfer_id, LOAD_BACK))
        for transfer_id in range(10, 20):
            engine.submit(log.make(transfer_id, BACKUP))
        assert threading.active_count() == before + 2
    assert threading.active_count() == before


def test_threads_end_with_an_engine_that_was_not_closed() -> None:
    """The threads of an engine end when it is collected without `close`."""
    log = Log()
    engine = ThreadedEngine()
    for transfer_id, direction in enumerate(Direction):
        engine.submit(log.make(transfer_id, direction))
        wait(engine, transfer_id)
    threads = [worker.thread for worker in engine._workers.values()]
    del engine
    gc.collect()
    for thread in threads:
        assert thread is not None
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def test_an_idle_engine_keeps_no_pools(engine: ThreadedEngine) -> None:
    """An idle thread keeps no reference to the pools of the last order."""
    pools = GatedPools(2)
    gone = Event()
    weakref.finalize(pools, gone.set)
    order = page_order(1, LOAD_BACK, (Move(FULL, slots(1), slots(1)),), pools)
    engine.submit(order)
    wait(engine, 1)
    engine.poll()
    del pools, order
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
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.stdout == "copied\n"
    assert done.stderr == ""
