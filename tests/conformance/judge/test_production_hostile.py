"""Nothing that a cache, an engine or a user's own code does makes the guard in production harm."""

from __future__ import annotations

import gc
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from asyncio import CancelledError
from functools import partial
from typing import Any

import pytest
from attrs import evolve

from in_production import CONFIG, KEY, OTHER, Boasting, is_clean, serve, wrapped
from kvcanon.conformance import UsageError
from kvcanon.conformance.judge import call_gate
from kvcanon.reference import ReferenceCache
from kvcanon.spec.errors import OutOfSlots
from kvcanon.spec.events import Event
from kvcanon.spec.law import Violation
from kvcanon.spec.operations import Evicted, Matched
from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.types import FULL, Counts, Key, Slots, make_key
from kvcanon.spec.views import Step

NOTHING: dict[str, int] = {}


# The cache gets the call that the engine made.


def test_a_judged_call_has_the_arguments_of_the_engine() -> None:
    """An engine's own cache may take fewer arguments than the protocol has, more, or others."""
    made: list[object] = []

    class Narrow(ReferenceCache):
        def insert(self, key: Key, start_pages: int, slots: Slots) -> Any:  # type: ignore[override]  # noqa: ANN401
            made.append((key, start_pages))
            return super().insert(key, start_pages, slots)

        def allocate(self, counts: Counts, *, request: str = "") -> Slots:
            made.append(request)
            return super().allocate(counts)

    cache, guarded = wrapped(Narrow(CONFIG))
    cache.insert(KEY, 0, cache.allocate(Counts(2), request="7"))
    cache.insert(key=OTHER, start_pages=1, slots=cache.allocate(counts=Counts(1)))
    assert made == ["7", (KEY, 0), "", (OTHER, 1)]
    assert guarded.counts.violations == {}


def test_an_iterator_is_read_by_the_cache() -> None:
    """A judge that reads an iterator of the engine must not leave the cache an empty one."""
    settled: list[object] = []

    class Iterating(ReferenceCache):
        def settle(self, completions: Any) -> Any:  # noqa: ANN401  # Anything with elements.
            settled.extend(completions)
            return super().settle(())

    cache, _ = wrapped(Iterating(CONFIG))
    cache.settle(each for each in ("a", "b"))
    assert settled == ["a", "b"]


# What the cache raises and answers.


class Breaking(ReferenceCache):
    """Evicts, and then raises an error of the kind that it is given, with causes."""

    kind: type[BaseException]
    breaks = False

    def evict(self, counts: Counts) -> Evicted:
        answer = super().evict(counts)
        if self.breaks:
            self.fail_deep_inside()
        return answer

    def fail_deep_inside(self) -> None:
        try:
            self.fail_deeper()
        except ValueError as error:
            raise self.kind("mid-call") from error

    def fail_deeper(self) -> None:
        try:
            _ = NOTHING["no such slot"]
        except KeyError:
            raise ValueError("inner") from OSError("disk")


@pytest.mark.parametrize("rate", [1.0, 1e-9])
@pytest.mark.parametrize(
    "kind", [KeyboardInterrupt, SystemExit, GeneratorExit, CancelledError, StopIteration, OSError]
)
def test_whatever_a_cache_raises_is_raised_and_nothing_is_accused(
    kind: type[BaseException], rate: float
) -> None:
    """Also in the middle of its work, with its cause, its context and the frames of the cache."""
    inner = Breaking(CONFIG)
    inner.kind = kind
    cache, guarded = wrapped(inner, rate)
    for number in range(6):
        serve(cache, make_key([number, 2, 3, 4], 2))
    inner.breaks = True
    handled = LookupError("what the engine is in the middle of")

    def handle() -> None:
        try:
            raise handled
        except LookupError:
            cache.evict(Counts(3))

    with pytest.raises(kind) as caught:
        handle()
    cause = caught.value.__cause__
    assert isinstance(cause, ValueError)
    assert caught.value.__context__ is cause
    assert isinstance(cause.__cause__, OSError)
    assert isinstance(cause.__context__, KeyError)
    assert cause.__context__.__context__ is handled
    assert caught.traceback[-1].name == "fail_deep_inside"
    inner.breaks = False
    for number in range(6):
        serve(cache, make_key([number, 2, 3, 4], 2))
    assert is_clean(guarded)


def test_an_error_of_the_cache_keeps_its_cause_where_the_judge_fails_too() -> None:
    """The judge's own error is none of the caller's."""

    class Broken(ReferenceCache):
        broken = False

        def allocate(self, counts: Counts) -> Slots:
            self.broken = True
            try:
                _ = NOTHING["slot"]
            except KeyError as error:
                raise OutOfSlots(FULL, 1, 0) from error
            return super().allocate(counts)

        def snapshot(self) -> Snapshot:
            if self.broken:
                raise RuntimeError("no state today")
            return super().snapshot()

    cache, guarded = wrapped(Broken(CONFIG))
    with pytest.raises(OutOfSlots) as caught:
        cache.allocate(Counts(2))
    assert isinstance(caught.value.__cause__, KeyError)
    assert guarded.counts.errors == 1


def test_nothing_of_a_call_is_kept_after_it() -> None:
    """An answer, or an error with its frames, would hold what the engine has let go."""

    class Answer(Matched):
        __slots__ = ()

    class Held(ReferenceCache):
        def match(self, key: Key) -> Matched:
            found = super().match(key)
            return Answer(found.prefix_pages, found.device_pages, found.slots)

        def allocate(self, counts: Counts) -> Slots:
            raise MemoryError(counts)

    cache, _ = wrapped(Held(CONFIG))
    answer = weakref.ref(cache.match(KEY))
    gc.collect()
    assert answer() is None

    def fail() -> weakref.ref[Any]:
        local = type("Local", (), {})()
        with pytest.raises(MemoryError):
            cache.allocate(Counts(full=1) if local else Counts(0))
        return weakref.ref(local)

    kept = fail()
    gc.collect()
    assert kept() is None


@pytest.mark.parametrize("how", ["partial", "callable", "awaitable", "method"])
def test_a_call_that_has_not_ended_is_not_judged(how: str) -> None:
    """Where a wrapper hides that a method is a coroutine, its answer says it."""

    async def found(key: Key) -> int:
        return len(key)

    class Awaiting:
        async def __call__(self, key: Key) -> int:
            return len(key)

    def plain(key: Key) -> Any:  # noqa: ANN401  # A coroutine.
        return found(key)

    inner: Any = ReferenceCache(CONFIG)
    hidden = {"partial": partial(found), "callable": Awaiting(), "method": found}
    inner.match = hidden.get(how, plain)
    if how in hidden:
        with pytest.raises(UsageError, match="match is a coroutine"):
            wrapped(inner)
        return
    cache, guarded = wrapped(inner)
    with pytest.raises(StopIteration) as ended:
        cache.match(KEY).send(None)
    assert ended.value.value == len(KEY)
    assert guarded.counts.violations == {}
    assert guarded.counts.errors == 1


# What the user's own code does.


@pytest.mark.parametrize("kind", [RuntimeError, RecursionError, CancelledError])
def test_an_error_of_a_handler_is_counted_and_the_judge_goes_on(kind: type[BaseException]) -> None:
    """It is no error of the judge, which keeps what it knows; the next violation is passed on."""
    noted: list[str] = []

    def failing(violation: Violation, _: Step | None) -> None:
        noted.append(violation.law.law_id)
        raise kind("no pager today")

    cache, guarded = wrapped(Boasting(CONFIG), on_violation=failing, laws=["MATCH-1"])
    for _ in range(3):
        assert cache.match(KEY).prefix_pages == len(KEY)
    assert noted == ["MATCH-1"] * 3
    assert (guarded.counts.errors, guarded.counts.judged) == (3, 3)


def test_a_handler_may_end_the_process() -> None:
    """`sys.exit` in a handler is meant."""
    cache, _ = wrapped(Boasting(CONFIG), on_violation=lambda *_: sys.exit(3))
    with pytest.raises(SystemExit):
        cache.match(KEY)


def test_a_log_that_raises_reaches_no_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    """A filter or a handler of the engine's log may raise, in each of the guard's lines."""

    class Raising(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            raise OSError(28, f"No space left on device: {record.msg}")

    raising = Raising()
    for name in ("kvcanon.conformance.judge.production", "kvcanon.conformance.judge.sampling"):
        monkeypatch.setattr(logging.getLogger(name), "filters", [raising])
    lying, _ = wrapped(Boasting(CONFIG))
    assert lying.match(KEY).prefix_pages == len(KEY)

    class Stateless(ReferenceCache):
        def snapshot(self) -> Snapshot:
            raise RuntimeError("no state today")

    silent, guarded = wrapped(Stateless(CONFIG), budget=1e-9)
    for _ in range(3):
        silent.allocate(Counts(1))
    assert guarded.counts.errors == 1
    assert guarded.counts.postponed == 2


def test_a_fault_that_stays_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Each law is logged the first, second, fourth, eighth time, with how often it was broken."""
    cache, guarded = wrapped(Boasting(CONFIG), laws=["MATCH-1"])
    with caplog.at_level(logging.ERROR):
        for _ in range(100):
            cache.match(KEY)
    assert guarded.counts.violations == {"MATCH-1": 100}
    assert len(caplog.records) == 7
    assert "(64 times)" in caplog.text


# Calls from inside of calls, and from other threads.


@pytest.mark.parametrize("rate", [1.0, 0.3])
def test_calls_from_inside_of_a_call_accuse_nobody(rate: float) -> None:
    """A callback of the cache may call it through the guard, and take its events."""

    class Calling(ReferenceCache):
        outer: Any = None
        taken = 0

        def evict(self, counts: Counts) -> Evicted:
            answer = super().evict(counts)
            if self.outer is not None:
                self.taken += len(self.outer.take_events())
                self.outer.free(self.outer.allocate(Counts(1)))
                self.outer.insert(OTHER, 0, self.outer.allocate(Counts(2)))
            return answer

    inner = Calling(evolve(CONFIG, device_slots=Counts(full=64)))
    cache, guarded = wrapped(inner, rate)
    inner.outer = cache
    for number in range(60):
        serve(cache, make_key([number % 7, 2, number % 3, 4], 2))
    assert inner.taken > 0
    assert is_clean(guarded)
    assert guarded.counts.calls > guarded.counts.judged > 0
    assert guarded.counts.overlapped > 0


def test_a_call_that_waits_for_another_thread_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache may wait for a thread that calls it: neither waits for the other for ever."""
    monkeypatch.setattr(call_gate, "MOST_WAIT_SECONDS", 0.05)

    class Waiting(ReferenceCache):
        outer: Any = None

        def flush(self) -> Any:  # noqa: ANN401  # As the cache's.
            other = threading.Thread(target=self.outer.take_events, daemon=True)
            other.start()
            other.join(20)
            assert not other.is_alive()
            return super().flush()

    for rate in (1.0, 1e-9):
        inner = Waiting(CONFIG)
        cache, guarded = wrapped(inner, rate)
        inner.outer = cache
        serve(cache)
        cache.flush()
        for number in range(5):
            serve(cache, make_key([number, 5], 2))
        assert is_clean(guarded)


def test_a_long_call_holds_up_no_other_thread() -> None:
    """Calls that are not judged run beside each other, as without the guard."""
    begun, may_end = threading.Event(), threading.Event()

    class Long(ReferenceCache):
        def flush(self) -> Any:  # noqa: ANN401  # As the cache's.
            begun.set()
            assert may_end.wait(20)
            return super().flush()

    cache, guarded = wrapped(Long(CONFIG), 1e-9)
    cache._kvcanon_sampler._skips = 2  # Of three calls the third is drawn.
    flushing = threading.Thread(target=cache.flush)
    flushing.start()
    assert begun.wait(20)
    cache.match(KEY)
    assert guarded.counts.calls == 2
    assert guarded.counts.overlapped == 0
    cache._kvcanon_sampler._skips = 0
    cache.match(KEY)
    assert (guarded.counts.judged, guarded.counts.overlapped) == (0, 1)
    may_end.set()
    flushing.join(20)


def test_a_signal_handler_may_use_the_guard() -> None:
    """It runs between two steps of whatever runs, the guard's own included."""
    cache, guarded = wrapped(ReferenceCache(CONFIG), 0.5)
    handled = 0

    def handle(*_: object) -> None:
        nonlocal handled
        handled += 1
        assert guarded.counts.calls >= 0
        cache.match(KEY)

    before = signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    try:
        ends = time.monotonic() + 20
        while handled < 30 and time.monotonic() < ends:
            serve(cache, make_key([handled % 5, 2, 3, 4], 2))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert handled >= 30
    assert is_clean(guarded)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_fork_in_the_middle_of_a_judged_call_leaves_a_guard_that_works() -> None:
    """The thread that judged is not in the child, and nobody there waits for it."""
    inside, may_end = threading.Event(), threading.Event()

    class Slow(ReferenceCache):
        slow = False

        def match(self, key: Key) -> Matched:
            if self.slow:
                inside.set()
                assert may_end.wait(20)
            return super().match(key)

    inner = Slow(CONFIG)
    cache, guarded = wrapped(inner)
    serve(cache)
    inner.slow = True
    judging = threading.Thread(target=cache.match, args=(KEY,))
    judging.start()
    assert inside.wait(20)
    child = os.fork()
    if child == 0:
        inner.slow = False
        begin = time.monotonic()
        for number in range(10):
            serve(cache, make_key([number, 5], 2))
        ok = is_clean(guarded) and guarded.counts.judged > 50 and time.monotonic() - begin < 15
        os._exit(0 if ok else 1)
    may_end.set()
    judging.join(20)
    assert os.waitpid(child, 0)[1] == 0
    assert is_clean(guarded)


def test_calls_while_the_interpreter_ends_are_answered() -> None:
    """An engine frees its pages in finalizers and at exit."""
    script = """
import atexit
from kvcanon.conformance import production_guard
from kvcanon.reference import ReferenceCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import Counts

cache = production_guard(ReferenceCache(CacheConfig(device_slots=Counts(full=9))), 1.0, budget=None)
cache.allocate(Counts(1))

class Engine:
    def __del__(self):
        print(len(cache.allocate(Counts(2)).full), cache.counts.errors)

engine = Engine()
engine.itself = engine
atexit.register(lambda: print(len(cache.allocate(Counts(3)).full)))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split()[0] == "3"


# Rates, time and bytes.


@pytest.mark.parametrize("rate", [5e-324, 1e-300, 1e-17, 1e-9])
def test_a_rate_may_be_as_small_as_a_number_is(rate: float) -> None:
    """It judges nothing, and says nothing."""
    cache, guarded = wrapped(ReferenceCache(CONFIG), rate, budget=5e-324)
    for _ in range(10):
        serve(cache)
    assert (guarded.counts.calls, guarded.counts.judged) == (70, 0)


def test_bytes_that_were_written_unjudged_accuse_nobody() -> None:
    """Bytes are not compared, since most writes of a sample are not seen."""
    config = evolve(CONFIG, device_slots=Counts(full=2), slot_bytes=4)
    cache, guarded = wrapped(ReferenceCache(config))
    for judged in ((True, False, True), (False, True, True), (True, True, True)) * 4:
        for number, letter in enumerate((b"aaaa", b"bbbb")):
            sampler = cache._kvcanon_sampler
            key = make_key([number, letter[0]], 2)
            cache.evict(Counts(1))
            slots = cache.allocate(Counts(1))
            sampler._skips = 0 if judged[0] else 1
            cache.write(FULL, slots.full[0], letter)
            sampler._skips = 0 if judged[1] else 1
            cache.insert(key, 0, slots)
            sampler._skips = 0 if judged[2] else 1
            cache.match(key)
    assert is_clean(guarded)


# What a sample finds.


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("fault", ["answers", "events"])
def test_a_sample_of_a_hundredth_finds_a_fault_as_soon_as_the_page_says(
    fault: str, seed: int
) -> None:
    """Within 460 calls: of the faulty operation, or of any where it is in the events."""

    class Faulty(ReferenceCache):
        begun = False
        faulty = 0

        def match(self, key: Key) -> Matched:
            found = super().match(key)
            if fault == "events":
                return found
            self.faulty += 1
            return evolve(found, prefix_pages=found.prefix_pages + 1)

        def take_events(self) -> tuple[Event, ...]:
            events = super().take_events()
            if fault == "answers" or self.faulty or not (self.begun and events):
                return events
            self.faulty = 1
            return events[1:]

    inner = Faulty(CONFIG)
    cache, guarded = wrapped(inner, 0.01, seed=seed)
    number = left = 0
    while left < (460 if fault == "answers" else 460 // 7):
        serve(cache, make_key([number * 7 % 13, 2, number * 5 % 11, 4], 2))
        inner.begun = guarded.counts.judged > 0
        number += 1
        left += bool(inner.faulty)
    assert inner.faulty
    found = set(guarded.counts.violations)
    assert found == ({"MATCH-1"} if fault == "answers" else {"EVENT-4"})
