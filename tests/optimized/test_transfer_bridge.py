"""Engines that break off: whatever they raise and whenever, the cache's books agree afterwards."""

from __future__ import annotations

import gc
import logging
import threading
import weakref
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from attrs import evolve

from fast.caches import (
    CALLS,
    IN_THE_TREE,
    OF_A_STORE,
    counted,
    insert,
    new_cache,
    tiered,
    unchanged,
)
from fast.nodes import bare_core
from kvcanon.optimized import PrefixCache, _core
from kvcanon.optimized.layout import PageLayout
from kvcanon.optimized.pools import Pools
from kvcanon.optimized.threaded_engine import ThreadedEngine
from kvcanon.optimized.transfer_bridge import TransferBridge
from kvcanon.reference.engine import ManualEngine
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import SpecViolation
from kvcanon.spec.transfer import Completion, TransferOrder, TransferStatus
from kvcanon.spec.types import CPU, FULL, Counts, TransferId, WritePolicy

DONE, FAILED, CANCELLED = TransferStatus.DONE, TransferStatus.FAILED, TransferStatus.CANCELLED
THROUGH = tiered(8)
BACK = tiered(8, WritePolicy.WRITE_BACK)
FIRST = np.arange(4, dtype=np.uint32)
SECOND = FIRST + 10


class Faulty(ManualEngine):
    """An engine that raises at the next call of one of its methods."""

    def __init__(self) -> None:
        super().__init__()
        self.faults: dict[str, BaseException] = {}
        self.taken: set[TransferId] = set()

    def submit(self, order: TransferOrder) -> None:
        self._raise("submit")
        self.taken.add(order.transfer_id)
        super().submit(order)
        self._raise("taken")
        if "copied" in self.faults:
            self.acknowledge(order.transfer_id)
            self._raise("copied")

    def poll(self) -> tuple[Completion, ...]:
        self._raise("poll")
        return super().poll()

    def wait(self, transfer_id: TransferId) -> None:
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
    """Free slots on both media, open receipts, transfers in flight; all that is kept twice agrees.

    The tree is checked as well.
    """
    cache.tree.check()
    free = cache.tree.free_counts(0)[0], cache.tree.free_counts(1)[0]
    return (*free, counted(cache, "receipts"), counted(cache, "transfers_in_flight"))


# Orders that are not taken


def test_insert_whose_backup_is_not_taken(caplog: pytest.LogCaptureFixture) -> None:
    """An insert whose backup the engine refuses succeeds, and its host slots come free."""
    cache, engine = faulty_cache(THROUGH)
    engine.faults["submit"] = RuntimeError("no stream")
    with caplog.at_level(logging.ERROR):
        (backup,) = insert(cache, FIRST)
    assert f"the engine did not take backup {backup}" in caplog.text
    assert "no stream" in caplog.text
    assert counts(cache) == (4, 4, 1, 1)
    assert cache.poll() == [(backup, FAILED)]
    assert counts(cache) == (4, 8, 0, 0)
    # The next insert tries again, and a later copy settles in its turn.
    backups = insert(cache, FIRST)
    assert cache.flush() == [(backups[0], DONE)]
    assert counts(cache) == (4, 4, 0, 0)


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


# Calls that are broken off


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
    assert counts(cache) == (0, 0, 1, 1)
    assert cache.match(SECOND).device_pages == 4
    assert cache.flush()[0][1] is CANCELLED
    cache.tree.check()
    assert cache.load_back(FIRST).evicted == [4, 0, 0]
    assert cache.flush()[0][1] is DONE
    assert counts(cache) == (0, 0, 0, 0)
    assert cache.match(FIRST).device_pages == 4


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


@pytest.mark.parametrize(
    ("when", "status", "host_slots"),
    [("submit", FAILED, 8), ("taken", FAILED, 8), ("copied", DONE, 4)],
)
def test_interrupt_while_an_order_is_given(
    when: str, status: TransferStatus, host_slots: int
) -> None:
    """An order moves no bytes if `submit` is interrupted, unless its copy has begun."""
    cache, engine = faulty_cache(THROUGH)
    engine.faults[when] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        insert(cache, FIRST)
    # The insert was made, and the copy counts as one in flight until it is settled.
    assert cache.match(FIRST).device_pages == 4
    assert counts(cache) == (4, 4, 1, 1)
    assert [ended for _, ended in (cache.flush if when == "taken" else cache.poll)()] == [status]
    assert counts(cache) == (4, host_slots, 0, 0)
    if when != "copied":
        assert cache.pools is not None
        # The host slots have another owner when the engine comes to the order.
        for slot in range(8):
            cache.pools.write_host(FULL, [slot], [bytes([slot])])
        for taken in engine.taken:
            engine.acknowledge(taken)
        assert [cache.pools.read(FULL, CPU, slot)[0] for slot in range(8)] == [*range(8)]
    assert cache.poll() == cache.flush() == []


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
        def submit(self, *order: object) -> bool:
            return True

        def give_up(self, transfer_id: int) -> bool: ...  # type: ignore[empty-body]
        def wait(self, transfer_id: int) -> None: ...
        def event_after(self, point: object) -> object: ...
        def poll(self) -> list[tuple[int, bool]]:
            return ["done"]  # type: ignore[list-item]

    core = bare_core(host_slots=(4, 0, 0), write_policy=1, engine=Odd())
    core.insert(FIRST, 0, *core.allocate(4))
    with pytest.raises(SpecViolation, match="the engine's poll must return pairs"):
        core._poll()
    _core.Tree(core).check()


@pytest.mark.parametrize("method", ["submit", "give_up"])
def test_engine_that_does_not_say_whether_it_has_an_order(method: str) -> None:
    """An engine that answers neither True nor False raises a SpecViolation that says so."""

    class Silent(ManualEngine):
        interrupted = method == "give_up"

        def submit(self, *_: object) -> None:
            if self.interrupted:
                self.interrupted = False
                raise KeyboardInterrupt

        def give_up(self, _: int) -> None: ...

    core = bare_core(host_slots=(4, 0, 0), write_policy=1, engine=Silent())
    if method == "give_up":
        with pytest.raises(KeyboardInterrupt):
            core.insert(FIRST, 0, *core.allocate(4))
    with pytest.raises(SpecViolation, match=f"the engine's {method} must return True or False"):
        core._poll() if method == "give_up" else core.insert(FIRST, 0, *core.allocate(4))


def test_an_order_is_given_up_only_if_the_engine_does_not_have_it() -> None:
    """Who gives up an order that was submitted, hears that the engine will complete it."""
    engine = ManualEngine()
    bridge = TransferBridge(engine, Pools(THROUGH, {FULL: PageLayout(1, (1,))}))
    rows = np.arange(1, dtype=np.int32)
    assert bridge.give_up(7)
    assert bridge.submit(8, 0, [(0, rows, rows)])
    assert not bridge.give_up(8)
    assert bridge.submit(9, 0, [(0, rows, rows)])
    assert not bridge.give_up(9)
    engine.acknowledge(8)
    engine.acknowledge(9)
    assert bridge.poll() == [(8, True), (9, True)]


# Calls in the middle of others.

MIDDLE = "called in the middle of another call, by its engine or from a second thread"


ELSEWHERE = {"wait", "wait_layer", "detach", "attach"} | OF_A_STORE
"""Calls that never reach the tree, or are refused before they do."""


class Calling(ManualEngine):
    """An engine that calls its cache during a wait."""

    call: Callable[[], object] = staticmethod(lambda: None)

    def wait(self, transfer_id: TransferId) -> None:
        self.call()
        super().wait(transfer_id)


def test_engine_that_calls_its_cache() -> None:
    """A call inside another call is refused."""
    engine = Calling()
    cache = new_cache(THROUGH, engine)
    insert(cache, FIRST)
    for call in [each for name, each in (CALLS | IN_THE_TREE).items() if name not in ELSEWHERE]:
        engine.call = partial(call, cache)
        with unchanged(cache, SpecViolation, MIDDLE):
            cache.flush()
    del engine.call
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
        assert counted(cache, "transfers_in_flight") == 1
    finally:
        go_on.set()
        flushing.join()
    assert cache.match(FIRST).device_pages == 4
    assert counted(cache, "transfers_in_flight") == 0


def test_circle_through_the_engine_is_collected() -> None:
    """A cache and an engine that refer to each other are collected."""
    engine = Calling()
    cache = new_cache(THROUGH, engine)
    engine.call = cache.poll
    pools = weakref.ref(cache.pools)
    del cache, engine
    gc.collect()
    assert pools() is None
