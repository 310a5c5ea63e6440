"""Nobody waits for ever: threads that cannot start or die, forks, and interrupts at every step."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import numpy as np
import pytest
from attrs import evolve

from array_api import counted, insert
from gated_copies import PATIENCE_S, Log, soon
from kvcanon.optimized import PrefixCache, copy_workers, threaded_engine, transfer_bridge
from kvcanon.optimized.layout import PageLayout
from kvcanon.optimized.pools import Pools
from kvcanon.optimized.threaded_engine import ThreadedEngine
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import CacheUnusable
from kvcanon.spec.transfer import Direction
from kvcanon.spec.types import FULL, Counts, TransferId

CONFIG = CacheConfig(
    device_slots=Counts(full=16),
    host_slots=Counts(full=16),
    write_policy="write_through",
    events=False,
)
TOKENS = np.arange(4, dtype=np.uint32)
pytestmark = pytest.mark.usefixtures("no_thread_is_left")


@pytest.fixture
def cache() -> Iterator[PrefixCache]:
    """A cache whose copies run in threads."""
    with ThreadedEngine() as engine:
        yield PrefixCache(CONFIG, Pools(CONFIG, {FULL: PageLayout(2, (8,))}), engine)


# Threads that cannot start.


@pytest.mark.parametrize("started", [0, 1])
def test_threads_that_cannot_start(monkeypatch: pytest.MonkeyPatch, started: int) -> None:
    """An engine without its threads is refused in one line, and leaves none of them behind."""
    before = threading.active_count()
    start = threading.Thread.start
    left = [started]

    def limited(thread: threading.Thread) -> None:
        if left[0] == 0:
            raise RuntimeError("can't start new thread")
        left[0] -= 1
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    with pytest.raises(CacheUnusable) as refused:
        ThreadedEngine()
    name = ("kvcanon-backup", "kvcanon-load_back")[started]
    assert str(refused.value) == (
        f"the thread {name} cannot start (can't start new thread); "
        "raise the limit of threads of this user or container"
    )
    assert threading.active_count() == before


def test_thread_that_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that cannot prepare itself refuses the engine."""

    def fail(_: object) -> None:
        raise RuntimeError("CUDA error: out of memory")

    monkeypatch.setattr(threaded_engine._MemcpyWorker, "enter", fail)
    with pytest.raises(CacheUnusable, match="ended with RuntimeError: CUDA error: out of memory"):
        soon_or_error(ThreadedEngine)


# Threads that die.


def soon_or_error(ask: Callable[[], object]) -> object:
    """The result or the error of a call in another thread; fails if it does not return."""

    def caught() -> tuple[object, BaseException | None]:
        try:
            return ask(), None
        except BaseException as error:  # noqa: BLE001
            return None, error

    answer, error = soon(caught)
    if error is not None:
        raise error
    return answer


class Dying(ThreadedEngine):
    """An engine whose thread for backups ends when an order comes to it."""

    def __init__(self) -> None:
        workers = {each: DyingWorker(direction=each, group_bytes=1) for each in Direction}
        super(ThreadedEngine, self).__init__(workers)
        self.start()

    def arm(self) -> None:
        """End the thread at its next order."""
        worker = self._workers[Direction.BACKUP]
        assert isinstance(worker, DyingWorker)
        worker.dying = True


class DyingWorker(threaded_engine._MemcpyWorker):
    """A worker whose thread may end at the end of an order."""

    dying = False

    def end(self, transfer_id: TransferId, *, ok: bool) -> None:
        """End the thread, or the order."""
        if self.dying:
            self.dying = False
            raise MemoryError("no room")
        super().end(transfer_id, ok=ok)


def test_a_dead_thread_ends_every_wait_and_reset_recovers() -> None:
    """Calls that wait for a dead thread end in an error, later ones are refused, reset recovers."""
    engine = Dying()
    cache = PrefixCache(CONFIG, Pools(CONFIG, {FULL: PageLayout(2, (8,))}), engine)
    engine.arm()
    (backup,) = insert(cache, TOKENS)
    with pytest.raises(CacheUnusable, match="the thread kvcanon-backup ended with MemoryError"):
        soon_or_error(cache.flush)
    with pytest.raises(CacheUnusable):
        soon_or_error(lambda: cache.wait_layer(backup, 2))
    for refused in (cache.poll, cache.flush, lambda: cache.match(TOKENS), cache.take_events):
        with pytest.raises(CacheUnusable, match=r"ended with MemoryError.*; call `reset`"):
            soon_or_error(refused)
    soon_or_error(cache.reset)
    cache.tree.check()
    insert(cache, TOKENS)
    assert [status.value for _, status in soon(cache.flush)] == ["done"]
    engine.close()


def test_an_evict_that_waits_for_a_dead_thread() -> None:
    """Under write_back, an eviction that waits for its copy ends in an error."""
    config = evolve(CONFIG, write_policy="write_back")
    engine = Dying()
    cache = PrefixCache(config, Pools(config, {FULL: PageLayout(2, (8,))}), engine)
    insert(cache, TOKENS)
    engine.arm()
    with pytest.raises(CacheUnusable, match="kvcanon-backup ended"):
        soon_or_error(lambda: cache.evict(4))
    soon_or_error(cache.reset)
    insert(cache, TOKENS)
    assert soon(lambda: cache.evict(4)) == [4, 0, 0]
    engine.close()


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

Trace = Callable[[FrameType, str, Any], Any]


def interrupting_at(line: int) -> Trace:
    """A trace function that raises KeyboardInterrupt at the n-th line of the engine's code."""
    left = [line]
    files = {each.__file__ for each in (copy_workers, threaded_engine, transfer_bridge)}
    files.add(copy_workers.__file__.replace("copy_workers", "changes"))

    def trace(frame: FrameType, event: str, _: object) -> Trace | None:
        if frame.f_code.co_filename not in files:
            return None
        if event == "line":
            left[0] -= 1
            if left[0] == 0:
                raise KeyboardInterrupt
        return trace

    return trace


def interrupted(work: Callable[[], object], line: int) -> bool:
    """Do some work that is interrupted at a line; whether the line was reached."""
    earlier = sys.gettrace()
    sys.settrace(interrupting_at(line))
    try:
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(earlier)
    return False


@pytest.mark.parametrize("call", ["insert", "load_back", "poll", "flush"])
def test_an_interrupt_at_any_line(cache: PrefixCache, call: str) -> None:
    """Wherever an interrupt comes, no copy stays in flight, and no slot is lost."""

    def work() -> None:
        if call == "insert":
            insert(cache, TOKENS)
        elif call == "load_back":
            cache.load_back(TOKENS)
        elif call == "poll":
            cache.poll()
        else:
            cache.flush()

    line, reached = 0, True
    while reached:
        line += 1
        soon(cache.flush)
        cache.evict(16)
        if call == "load_back":
            if cache.match(TOKENS).prefix_pages != 4:
                insert(cache, TOKENS)
                soon(cache.flush)
                cache.evict(16)
        else:
            cache.evict_host(16)
        if call in {"poll", "flush"}:
            insert(cache, TOKENS)
        reached = interrupted(work, line)
        soon(cache.flush)
        assert counted(cache, "transfers_in_flight") == 0, line
        assert counted(cache, "receipts") == 0, line
        cache.tree.check()
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
    gate = threading.Event()

    def hold() -> None:
        assert gate.wait(PATIENCE_S)

    with ThreadedEngine() as engine:
        engine.submit(Log().make(1, Direction.BACKUP, hold))
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            engine.wait(1)
        gate.set()
        soon(lambda: engine.wait(1))
        assert [each.transfer_id for each in engine.poll()] == [1]
        timer.join()
