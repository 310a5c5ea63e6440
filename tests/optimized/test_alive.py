"""Nobody waits for ever: threads that cannot start or die, forks, and interrupts at every step."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from functools import partial
from itertools import count
from threading import Event, Thread
from types import FrameType, ModuleType
from typing import TypeAlias

import pytest
from attrs import evolve

from fast.caches import PROMPT, counted, insert, tiered
from fast.copies import BACKUP, PATIENCE_S, Gate, Log, soon
from kvcanon.optimized import PrefixCache, changes, copy_workers, threaded_engine, transfer_bridge
from kvcanon.optimized.changes import Changes
from kvcanon.optimized.layout import PageLayout
from kvcanon.optimized.pools import Pools
from kvcanon.optimized.threaded_engine import ThreadedEngine
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import CacheUnusable
from kvcanon.spec.types import FULL, TransferId

CONFIG = tiered(16)
pytestmark = pytest.mark.usefixtures("no_thread_is_left")


def cache_with(engine: ThreadedEngine, config: CacheConfig = CONFIG) -> PrefixCache:
    """A cache whose copies run in threads."""
    return PrefixCache(config, Pools(config, {FULL: PageLayout(2, (8,))}), engine)


# Threads that cannot start.


@pytest.mark.parametrize(("started", "name"), [(0, "kvcanon-backup"), (1, "kvcanon-load_back")])
def test_threads_that_cannot_start(
    monkeypatch: pytest.MonkeyPatch, started: int, name: str
) -> None:
    """An engine without its threads is refused in one line, and leaves none of them behind."""
    before = threading.active_count()
    start, left = threading.Thread.start, [started]

    def limited(thread: threading.Thread) -> None:
        if left[0] == 0:
            raise RuntimeError("can't start new thread")
        left[0] -= 1
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    with pytest.raises(CacheUnusable) as refused:
        ThreadedEngine()
    assert str(refused.value) == (
        f"the thread {name} cannot start (can't start new thread); "
        "raise the limit of threads of this user or container"
    )
    assert threading.active_count() == before


# Threads that die.


def test_thread_that_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that cannot prepare itself refuses the engine."""

    def fail(_: object) -> None:
        raise RuntimeError("CUDA error: out of memory")

    monkeypatch.setattr(threaded_engine._MemcpyWorker, "enter", fail)
    with pytest.raises(CacheUnusable, match="ended with RuntimeError: CUDA error: out of memory"):
        soon(ThreadedEngine)


Dying = tuple[ThreadedEngine, Callable[[], None]]


@pytest.fixture
def dying(monkeypatch: pytest.MonkeyPatch) -> Iterator[Dying]:
    """An engine, and what ends its thread for backups at the end of the next order."""
    end, armed = threaded_engine._MemcpyWorker.end, list[bool]()

    def dies(worker: threaded_engine._MemcpyWorker, transfer_id: TransferId, *, ok: bool) -> None:
        if armed:
            armed.clear()
            raise MemoryError("no room")
        end(worker, transfer_id, ok=ok)

    monkeypatch.setattr(threaded_engine._MemcpyWorker, "end", dies)
    with ThreadedEngine() as engine:
        yield engine, lambda: armed.append(True)


def test_a_dead_thread_ends_every_wait_and_reset_recovers(dying: Dying) -> None:
    """Calls that wait for a dead thread end in an error, later ones are refused, reset recovers."""
    engine, arm = dying
    cache = cache_with(engine)
    arm()
    (backup,) = insert(cache, PROMPT)
    with pytest.raises(CacheUnusable, match="the thread kvcanon-backup ended with MemoryError"):
        soon(cache.flush)
    with pytest.raises(CacheUnusable):
        soon(lambda: cache.wait_layer(backup, 2))
    for refused in (cache.poll, cache.flush, lambda: cache.match(PROMPT), cache.take_events):
        with pytest.raises(CacheUnusable, match=r"ended with MemoryError.*; call `reset`"):
            soon(refused)
    soon(cache.reset)
    cache.tree.check()
    insert(cache, PROMPT)
    assert [status.value for _, status in soon(cache.flush)] == ["done"]


def test_an_evict_that_waits_for_a_dead_thread(dying: Dying) -> None:
    """Under write_back, an eviction that waits for its copy ends in an error."""
    engine, arm = dying
    cache = cache_with(engine, evolve(CONFIG, write_policy="write_back"))
    insert(cache, PROMPT)
    arm()
    with pytest.raises(CacheUnusable, match="kvcanon-backup ended"):
        soon(lambda: cache.evict(4))
    soon(cache.reset)
    insert(cache, PROMPT)
    assert soon(lambda: cache.evict(4)) == [4, 0, 0]


# Forks.

FORK = """
import os, signal, sys
import numpy as np
from kvcanon.optimized import PrefixCache
from kvcanon.optimized.layout import PageLayout
from kvcanon.optimized.pools import Pools
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import FULL, Counts, TransferId

config = CacheConfig(
    device_slots=Counts(full=8), host_slots=Counts(full=8), write_policy="write_through"
)
cache = PrefixCache(config, Pools(config, {FULL: PageLayout(2, (8,))}))
cache.insert(np.arange(2), 0, cache.allocate(2)[0])
number = cache.flush()[0][0]
child = os.fork()
if child == 0:
    signal.alarm(20)
    for call in (
        lambda: cache.match(np.arange(2)),
        lambda: cache.allocate(1),
        cache.flush,
        cache.poll,
        cache.reset,
        cache.take_events,
        lambda: cache.wait_layer(number, 0),
        lambda: cache.engine.wait(number),
        cache.tree.check,
    ):
        try:
            call()
        except Exception as error:
            print(type(error).__name__, error)
    print("statistics", cache.stats().inserts)
    own = PrefixCache(config, Pools(config, {FULL: PageLayout(2, (8,))}))
    own.insert(np.arange(2), 0, own.allocate(2)[0])
    print("own", own.flush()[0][1])
    sys.exit(0)
_, status = os.waitpid(child, 0)
print("child", status)
cache.insert(np.arange(5, 7), 0, cache.allocate(2)[0])
print("parent", cache.flush()[0][1], cache.match(np.arange(5, 7)).device_pages)
"""


def test_a_fork_cannot_use_the_cache_of_its_parent() -> None:
    """Each call of a child is refused at once in one line; the parent goes on."""
    done = subprocess.run(
        [sys.executable, "-c", FORK], check=True, capture_output=True, text=True, timeout=60
    )
    *refused, statistics, own, child, parent = done.stdout.splitlines()
    assert len(refused) == 9
    for line in refused:
        assert line.startswith("CacheUnusable ")
        assert "belongs to the process that this one was forked from" in line
    assert (statistics, own, child) == ("statistics 1", "own done", "child 0")
    assert parent == "parent done 2"


# Interrupts.

Tracer: TypeAlias = Callable[[FrameType, str, object], "Tracer | None"]


def interrupted_at(
    step: int, work: Callable[[], object], modules: Collection[ModuleType], *, by: str = "line"
) -> bool:
    """Do some work, interrupted before a line or opcode of modules; False if it ended before."""
    files, left = {each.__file__ for each in modules}, [step]

    def trace(frame: FrameType, event: str, _: object) -> Tracer | None:
        if frame.f_code.co_filename not in files:
            return None
        frame.f_trace_opcodes = by == "opcode"
        if event == by:
            left[0] -= 1
            if left[0] < 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    earlier = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(earlier)
    return False


@pytest.mark.parametrize("call", ["insert", "load_back", "poll", "flush"])
def test_an_interrupt_at_any_line(call: str) -> None:
    """Wherever an interrupt comes, no copy stays in flight, and no slot is lost."""
    with ThreadedEngine() as engine:
        cache = cache_with(engine)
        calls: dict[str, Callable[[], object]] = {
            "insert": lambda: insert(cache, PROMPT),
            "load_back": lambda: cache.load_back(PROMPT),
            "poll": cache.poll,
            "flush": cache.flush,
        }
        for line in count():
            soon(cache.flush)
            cache.evict(16)
            if call != "load_back":
                cache.evict_host(16)
            elif cache.match(PROMPT).prefix_pages != 4:
                insert(cache, PROMPT)
                soon(cache.flush)
                cache.evict(16)
            if call in {"poll", "flush"}:
                insert(cache, PROMPT)
            modules = (copy_workers, threaded_engine, transfer_bridge, changes)
            is_over = not interrupted_at(line, calls[call], modules)
            soon(cache.flush)
            assert counted(cache, "transfers_in_flight") == 0, line
            assert counted(cache, "receipts") == 0, line
            cache.tree.check()
            if is_over:
                break
        assert line > 5
        held = cache.free_slot_counts()[0] + counted(cache, "nodes") * 4
        assert held + cache.tree.pool_counts(0, 0)[2] == 16


@pytest.fixture
def _ctrl_c_interrupts() -> Iterator[None]:
    """Python's own handler: a process that a script starts in the background ignores Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_ctrl_c_interrupts")
def test_ctrl_c_ends_a_wait() -> None:
    """A real signal ends a flush whose copy does not end; the copy settles later."""
    gate = Gate()
    with ThreadedEngine() as engine:
        engine.submit(Log().make(1, BACKUP, gate))
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            engine.wait(1)
        gate.opened.set()
        soon(lambda: engine.wait(1))
        assert [each.transfer_id for each in engine.poll()] == [1]
        timer.join()


# Waiting, which an interrupt between any two steps of Python does not break.

MOST_STEPS = 200


class Waiter:
    """A thread that waits until a value is set."""

    def __init__(self, made: Changes) -> None:
        self.is_set, self.looked = False, Event()
        self.thread = Thread(target=made.wait_for, args=(self.look,), daemon=True)
        self.thread.start()
        assert self.looked.wait(PATIENCE_S)

    def look(self) -> bool:
        """Say whether the value is set, and that somebody looked."""
        self.looked.set()
        return self.is_set


def waiting(made: Changes) -> Waiter:
    """A waiter that has its bell, and sleeps or is about to."""
    waiter = Waiter(made)
    while not made._bells:  # Nothing else shows that it waits.
        pass
    return waiter


@pytest.mark.parametrize("interrupted", ["ring", "wait"])
def test_an_interrupted_ring_or_wait_leaves_others_alone(interrupted: str) -> None:
    """Wherever an interrupt comes, the next ring wakes all who wait, and nobody gets an error."""
    for step in range(MOST_STEPS):
        made = Changes()
        waiter = waiting(made)
        call = partial(made.wait_for, iter([False, True]).__next__)
        if interrupted == "ring":
            call = partial(made.notify_all)
        is_over = not interrupted_at(step, call, [changes], by="opcode")
        waiter.is_set = True
        made.notify_all()
        waiter.thread.join(PATIENCE_S)
        assert not waiter.thread.is_alive(), f"interrupted before step {step}"
        if is_over:
            break
    assert 5 < step < MOST_STEPS - 1


def test_who_waits_rings_for_changes_that_rang_no_bell() -> None:
    """A change whose ring was interrupted is seen as soon as anybody else waits."""
    made = Changes()
    waiter = waiting(made)
    waiter.is_set = True
    made.wait_for(lambda: True)
    waiter.thread.join(PATIENCE_S)
    assert not waiter.thread.is_alive()
