"""Engines that break off: whatever they raise and whenever, the cache's books agree afterwards."""

from __future__ import annotations

import gc
import logging
import threading
import weakref
from collections.abc import Callable

import numpy as np
import pytest
from attrs import evolve

from array_api import array, insert, new_cache, unchanged
from kvcanon.optimized import PrefixCache, _core
from kvcanon.optimized.threaded_engine import ThreadedEngine
from kvcanon.reference.engine import ManualEngine
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import SpecViolation
from kvcanon.spec.transfer import Completion, TransferOrder, TransferStatus
from kvcanon.spec.types import Counts, Namespace, TransferId

DONE, FAILED = TransferStatus.DONE, TransferStatus.FAILED
CANCELLED = TransferStatus.CANCELLED
THROUGH = CacheConfig(
    device_slots=Counts(full=8), host_slots=Counts(full=8), write_policy="write_through"
)
BACK = evolve(THROUGH, write_policy="write_back")
FIRST = np.arange(4, dtype=np.uint32)
SECOND = FIRST + 10


class Faulty(ManualEngine):
    """An engine that raises at the next call of one of its methods."""

    def __init__(self) -> None:
        super().__init__()
        self.faults: dict[str, BaseException] = {}
        self.taken: set[TransferId] = set()

    def submit(self, order: TransferOrder) -> None:
        """Raise if asked to, else take the order."""
        self._raise("submit")
        self.taken.add(order.transfer_id)
        super().submit(order)

    def poll(self) -> tuple[Completion, ...]:
        """Raise if asked to, else poll."""
        self._raise("poll")
        return super().poll()

    def wait(self, transfer_id: TransferId) -> None:
        """Raise if asked to, else wait. The bridge never asks for an order that was not taken."""
        self._raise("wait")
        assert transfer_id in self.taken
        super().wait(transfer_id)

    def _raise(self, method: str) -> None:
        if fault := self.faults.pop(method, None):
            raise fault


def faulty_cache(config: CacheConfig) -> tuple[PrefixCache, Faulty]:
    """A cache, and the engine that fails it."""
    engine = Faulty()
    return new_cache(config, engine), engine


def counts(cache: PrefixCache) -> tuple[int, ...]:
    """Free slots on both media, open receipts, transfers in flight."""
    counted = cache.tree.counters()
    in_flight, receipts = counted["transfers_in_flight"], counted["receipts"]
    assert isinstance(in_flight, int)
    assert isinstance(receipts, int)
    return (cache.tree.free_counts(0)[0], cache.tree.free_counts(1)[0], receipts, in_flight)


def test_insert_whose_backup_is_not_taken(caplog: pytest.LogCaptureFixture) -> None:
    """An insert whose backup the engine refuses succeeds, and its host slots come free."""
    cache, engine = faulty_cache(THROUGH)
    engine.faults["submit"] = RuntimeError("no stream")
    with caplog.at_level(logging.ERROR):
        (backup,) = insert(cache, FIRST)
    assert f"the engine did not take backup {backup}" in caplog.text
    assert "no stream" in caplog.text
    cache.tree.check()
    assert counts(cache) == (4, 4, 1, 1)
    assert cache.poll() == [(backup, FAILED)]
    assert counts(cache) == (4, 8, 0, 0)
    # The next insert tries again, and a later copy settles in its turn.
    backups = insert(cache, FIRST)
    assert cache.flush() == [(backups[0], DONE)]
    cache.tree.check()


def test_order_that_is_not_taken_settles_in_its_turn() -> None:
    """A refused order settles after earlier copies of its direction."""
    cache, engine = faulty_cache(THROUGH)
    (first,) = insert(cache, FIRST)
    engine.faults["submit"] = RuntimeError()
    (second,) = insert(cache, SECOND)
    assert cache.poll() == []
    engine.acknowledge(first)
    assert cache.poll() == [(first, DONE), (second, FAILED)]


def test_waiting_for_an_order_that_was_not_taken() -> None:
    """Waiting for a refused order waits for the orders before it, and no longer."""
    cache, engine = faulty_cache(BACK)
    insert(cache, FIRST)
    insert(cache, SECOND)
    cache.match(SECOND)
    engine.faults["submit"] = RuntimeError()
    # Nothing has a copy, so that the first is deleted, and the second copied.
    assert cache.evict(4) == [4, 0, 0]
    assert counts(cache) == (4, 8, 0, 0)
    assert cache.match(FIRST).prefix_pages == 0
    assert cache.evict(4) == [4, 0, 0]
    assert counts(cache) == (8, 4, 0, 0)
    assert cache.match(SECOND).prefix_pages == 4
    cache.tree.check()


def test_wait_behind_an_open_order_of_the_same_direction() -> None:
    """An order that is waited for settles after all earlier ones."""
    cache, engine = faulty_cache(evolve(BACK, device_slots=Counts(full=12)))
    insert(cache, FIRST)
    insert(cache, SECOND)
    engine.faults["wait"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        cache.evict(4)
    assert counts(cache) == (4, 4, 1, 1)
    engine.faults["submit"] = RuntimeError()
    # The first copy was given up. The second is not taken, and ends after the first.
    assert cache.evict(4) == [4, 0, 0]
    assert counts(cache) == (8, 8, 0, 0)
    assert cache.match(FIRST).prefix_pages == 0
    assert cache.match(SECOND).device_pages == 4
    cache.tree.check()


def test_load_that_is_not_taken() -> None:
    """A refused load frees the slots that it was to fill."""
    cache, engine = faulty_cache(THROUGH)
    insert(cache, FIRST)
    cache.flush()
    cache.evict(4)
    engine.faults["submit"] = RuntimeError()
    load = cache.load_back(FIRST).transfer_id
    assert cache.match(FIRST).pending == (load,)
    assert cache.flush() == [(load, FAILED)]
    assert counts(cache) == (8, 4, 0, 0)
    assert cache.load_back(FIRST).transfer_id is not None
    cache.flush()
    assert cache.match(FIRST).device_pages == 4


def test_closed_engine(caplog: pytest.LogCaptureFixture) -> None:
    """A closed engine fails transfers; the insert itself is not refused."""
    engine = ThreadedEngine()
    cache = new_cache(THROUGH, engine)
    insert(cache, FIRST)
    cache.flush()
    engine.close()
    with caplog.at_level(logging.ERROR):
        (backup,) = insert(cache, SECOND)
    assert "comes to an engine that was closed" in caplog.text
    assert cache.flush() == [(backup, FAILED)]
    assert cache.match(SECOND).device_pages == 4
    cache.tree.check()


@pytest.mark.parametrize("method", ["poll", "wait"])
@pytest.mark.parametrize("fault", [RuntimeError, KeyboardInterrupt])
def test_engine_that_breaks_off(method: str, fault: type[BaseException]) -> None:
    """A call that the engine interrupts leaves a consistent cache, and gives its copy up."""
    cache, engine = faulty_cache(BACK)
    insert(cache, FIRST)
    cache.evict(4)
    insert(cache, SECOND)
    insert(cache, FIRST + 20)
    # The room for the first has to be made, and for that the second is to be copied.
    engine.faults[method] = fault()
    with pytest.raises(fault):
        cache.load_back(FIRST)
    cache.tree.check()
    assert counts(cache) == (0, 0, 1, 1)
    assert cache.match(SECOND).device_pages == 4
    assert cache.flush()[0][1] is CANCELLED
    cache.tree.check()
    assert cache.load_back(FIRST).evicted == [4, 0, 0]
    assert cache.flush()[0][1] is DONE
    assert counts(cache) == (0, 0, 0, 0)
    assert cache.match(FIRST).device_pages == 4
    cache.tree.check()


def test_flush_that_breaks_off() -> None:
    """Ctrl-C during `flush` loses no completion."""
    cache, engine = faulty_cache(THROUGH)
    (first,) = insert(cache, FIRST)
    (second,) = insert(cache, SECOND)
    engine.acknowledge(first)
    engine.faults["wait"] = KeyboardInterrupt()
    with unchanged(cache, KeyboardInterrupt):
        cache.flush()
    engine.acknowledge(second)
    assert cache.poll() == [(first, DONE), (second, DONE)]


def test_interrupt_while_an_order_is_given() -> None:
    """If `submit` is interrupted before the engine took the order, the copy fails."""
    cache, engine = faulty_cache(THROUGH)
    engine.faults["submit"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        insert(cache, FIRST)
    cache.tree.check()
    # The insert was made, and the copy counts as one in flight until it is settled.
    assert cache.match(FIRST).device_pages == 4
    assert counts(cache) == (4, 4, 1, 1)
    ((_, status),) = cache.poll()
    assert status is FAILED
    assert counts(cache) == (4, 8, 0, 0)
    assert cache.flush() == []
    cache.tree.check()


def test_completion_of_nothing() -> None:
    """An unexpected completion raises after the others were recorded."""
    cache, engine = faulty_cache(THROUGH)
    (first,) = insert(cache, FIRST)
    engine.acknowledge(first)
    engine._completions[:0] = [Completion(0, ok=True), Completion(99, ok=False)]
    with pytest.raises(SpecViolation, match="the engine completed 99, for which nothing waits"):
        cache.poll()
    cache.tree.check()
    assert cache.poll() == [(first, DONE)]


def test_engine_that_answers_with_something_else() -> None:
    """A wrong result of `poll` raises a SpecViolation that says what it must be."""

    class Odd:
        def submit(self, *order: object) -> None: ...
        def wait(self, transfer_id: int) -> None: ...
        def event_after(self, point: object) -> object: ...
        def poll(self) -> list[tuple[int, bool]]:
            return ["done"]  # type: ignore[list-item]

    tree = _core.CacheCore(
        page_size=1,
        unit_words=1,
        window_tokens=0,
        mamba=False,
        device_slots=(4, 0, 0),
        host_slots=(4, 0, 0),
        write_policy=1,
        eviction_policy=0,
        load_back_threshold_pages=0,
        events=False,
        engine=Odd(),
    )
    tree._add_namespace(b"", b"")
    tree.insert(FIRST, 0, *tree.allocate(4))
    with pytest.raises(SpecViolation, match="the engine's poll must return pairs"):
        tree._poll()
    _core.Tree(tree).check()


# Calls in the middle of others.

MIDDLE = "called in the middle of another call, by its engine or from a second thread"


class Calling(ManualEngine):
    """An engine that calls its cache."""

    def __init__(self) -> None:
        super().__init__()
        self.call: Callable[[], object] | None = None

    def wait(self, transfer_id: TransferId) -> None:
        """Call the cache during a wait."""
        if self.call is not None:
            self.call()
        super().wait(transfer_id)


def test_engine_that_calls_its_cache() -> None:
    """A call inside another call is refused."""
    engine = Calling()
    cache = new_cache(THROUGH, engine)
    insert(cache, FIRST)
    calls: tuple[Callable[[], object], ...] = (
        lambda: cache.match(FIRST),
        lambda: cache.lock(FIRST),
        lambda: cache.unlock(1),
        lambda: cache.unlock_window(1),
        lambda: cache.allocate(1),
        lambda: cache.free(array()),
        lambda: cache.insert(SECOND, 4, array()),
        lambda: cache.evict(1),
        lambda: cache.evict_host(1),
        lambda: cache.load_back(FIRST),
        lambda: cache._insert_host(SECOND, 4, (0, 0, 0)),
        lambda: cache.namespace(Namespace(lora="other")),
        cache.tree.pending_events,
        cache.tree.check,
        cache.tree.nodes,
        cache.poll,
        cache.flush,
        cache.reset,
        cache.take_events,
    )
    for call in calls:
        engine.call = call
        with unchanged(cache, SpecViolation, MIDDLE):
            cache.flush()
    engine.call = None
    assert cache.flush()[0][1] is DONE


def test_second_thread() -> None:
    """A call of a second thread during a call is refused."""
    waiting, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        waiting.set()
        assert go_on.wait(10)

    engine = Calling()
    engine.call = wait
    cache = new_cache(THROUGH, engine)
    insert(cache, FIRST)
    flushing = threading.Thread(target=cache.flush)
    flushing.start()
    assert waiting.wait(10)
    try:
        with pytest.raises(SpecViolation, match=MIDDLE):
            cache.match(FIRST)
        # Calls that only read state work at any time.
        assert cache.tree.counters()["transfers_in_flight"] == 1
    finally:
        go_on.set()
        flushing.join()
    assert cache.match(FIRST).device_pages == 4
    assert cache.tree.counters()["transfers_in_flight"] == 0


def test_circle_through_the_engine_is_collected() -> None:
    """A cache and an engine that refer to each other are collected."""
    engine = Calling()
    cache = new_cache(THROUGH, engine)
    engine.call = cache.poll
    pools = weakref.ref(cache.pools)
    del cache, engine
    gc.collect()
    assert pools() is None
