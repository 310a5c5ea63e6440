"""The guard in production judges a sample, and each caller gets what the cache answered."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from random import Random
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from in_production import CONFIG, KEY, OTHER, Boasting, serve, wrapped
from kvcanon.conformance import ProductionGuard, UsageError, guard_collector, production_guard
from kvcanon.conformance.judge import sampling
from kvcanon.conformance.judge.by_states.guard import GuardedCache, guard_states
from kvcanon.conformance.judge.guards import OnViolation
from kvcanon.conformance.judge.production import standing_for
from kvcanon.conformance.judge.sampling import CallSampler
from kvcanon.conformance.protocol.tree import TreeCache
from kvcanon.reference import ReferenceCache
from kvcanon.spec.cache import Cache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import OutOfSlots
from kvcanon.spec.events import Event
from kvcanon.spec.law import Violation
from kvcanon.spec.operations import Matched
from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.types import Counts, Key, Slots, make_key
from kvcanon.spec.views import Step


class Clock:
    """A clock that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def timed(cache: ReferenceCache, clock: Clock, **how: Any) -> ProductionGuard:  # noqa: ANN401  # Options.
    """A guard that goes by a clock of the test."""

    def make(heard: Cache, note: OnViolation) -> GuardedCache:
        return guard_states(heard, on_violation=note)

    return standing_for(CallSampler(cache, make, clock=clock, **how))


def test_a_sample_of_a_sound_cache_is_judged() -> None:
    """About as many calls are judged as the rate says, by the laws of states, events and data."""
    cache, guarded = wrapped(ReferenceCache(CONFIG), 0.2)
    for number in range(100):
        serve(cache, make_key([number % 7, 2, number % 3, 4], 2))
    counts = guarded.counts
    assert counts.calls == 700
    assert 90 < counts.judged < 190
    assert (counts.errors, counts.violations, counts.postponed) == (0, {}, 0)
    assert {"TREE-1", "EVENT-4", "REC-3"} <= guarded.laws_exercised.keys()


def test_equal_seeds_judge_equal_calls() -> None:
    """The seed decides which calls are judged."""
    judged = set()
    for seed in (0, 0, 1):
        cache, guarded = wrapped(ReferenceCache(CONFIG), 0.3, seed=seed)
        for _ in range(20):
            serve(cache)
        judged.add((seed, guarded.counts.judged))
    assert len(judged) == 2


def test_a_violation_reaches_nobody_but_who_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """The caller gets the answer; the violation is counted, and logged or passed on."""
    cache, guarded = wrapped(Boasting(CONFIG))
    with caplog.at_level(logging.ERROR):
        assert cache.match(KEY).prefix_pages == len(KEY)
    assert "MATCH-1" in caplog.text
    assert guarded.counts.violations["MATCH-1"] == 1
    noted: list[Violation] = []
    cache, _ = wrapped(Boasting(CONFIG), on_violation=lambda violation, _: noted.append(violation))
    cache.match(KEY)
    assert "MATCH-1" in {each.law.law_id for each in noted}


def test_what_the_cache_raises_is_raised() -> None:
    """A refusal and an error of the cache reach the caller as they are, judged or not."""

    class Failing(ReferenceCache):
        def evict(self, counts: Counts) -> Any:  # noqa: ANN401  # It never returns.
            raise RuntimeError(f"no {counts.full}")

    for rate in (1.0, 1e-9):
        cache, guarded = wrapped(Failing(CONFIG), rate)
        with pytest.raises(OutOfSlots):
            cache.allocate(Counts(17))
        with pytest.raises(RuntimeError, match="no 3"):
            cache.evict(Counts(3))
        assert guarded.counts.errors == 0
        serve_without_evictions(cache)


def serve_without_evictions(cache: Cache) -> None:
    """Insert a prompt, and find it."""
    cache.insert(KEY, 0, cache.allocate(Counts(2)))
    assert cache.match(KEY).device_pages == 2


@pytest.mark.parametrize("fails", ["snapshot", "on_violation", "shape", "judge"])
def test_an_error_of_the_judge_reaches_no_caller(
    fails: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever fails in judging, each call is made once and answered, and the error is counted."""
    made: list[str] = []

    class Counted(Boasting):
        broken = False

        def match(self, key: Key) -> Matched:
            lies = self.broken and fails == "on_violation"
            return super().match(key) if lies else ReferenceCache.match(self, key)

        def allocate(self, counts: Counts) -> Slots:
            made.append("allocate")
            return super().allocate(counts)

        def snapshot(self) -> Snapshot:
            if self.broken and fails == "snapshot":
                raise RuntimeError("no state today")
            if self.broken and fails == "shape":
                return "a state"  # type: ignore[return-value]
            return super().snapshot()

    def failing(violation: Violation, step: Step | None) -> None:
        raise KeyError(violation.law.law_id)

    inner = Counted(CONFIG)
    cache, guarded = wrapped(inner, on_violation=failing if fails == "on_violation" else None)
    serve_without_evictions(cache)
    inner.broken = True
    if fails == "judge":
        monkeypatch.setattr(GuardedCache, "_judge", lambda *_, **__: 1 / 0)
    made.clear()
    with caplog.at_level(logging.WARNING):
        slots = cache.allocate(Counts(2))
        assert cache.match(OTHER).prefix_pages in {1, 2}
        with pytest.raises(OutOfSlots):
            cache.allocate(Counts(99))
    assert made == ["allocate", "allocate"]
    assert guarded.counts.errors > 0
    assert "the guard failed, and the call did not (1)" in caplog.text
    # Once nothing fails, it judges again, from the state that is there.
    inner.broken = False
    monkeypatch.undo()
    judged, errors = guarded.counts.judged, guarded.counts.errors
    cache.free(slots)
    assert (guarded.counts.judged, guarded.counts.errors) == (judged + 1, errors)


def test_an_interrupt_reaches_the_caller_and_the_judge_begins_anew() -> None:
    """Ctrl-C in the middle of a judged call is no error of the judge, and nothing is accused."""

    class Interrupted(ReferenceCache):
        at = 0

        def snapshot(self) -> Snapshot:
            self.at -= 1
            if self.at == 0:
                raise KeyboardInterrupt
            return super().snapshot()

    inner = Interrupted(CONFIG)
    cache, guarded = wrapped(inner)
    serve(cache)
    for at in (1, 2):
        inner.at = at
        with pytest.raises(KeyboardInterrupt):
            serve(cache)
        for _ in range(3):
            serve(cache)
    assert (guarded.counts.errors, guarded.counts.violations) == (0, {})


class Slow(ReferenceCache):
    """A cache whose snapshot takes a second of the test's clock."""

    clock: Clock

    def snapshot(self) -> Snapshot:
        self.clock.now += 1.0
        return super().snapshot()


def test_judging_takes_no_more_time_than_its_budget(caplog: pytest.LogCaptureFixture) -> None:
    """After a judged call none is judged until its time is a small share; that is said once."""
    clock, cache = Clock(), Slow(CONFIG)
    cache.clock = clock
    guarded = timed(cache, clock, rate=1.0, budget=0.1)
    begin = clock.now
    with caplog.at_level(logging.WARNING):
        for _ in range(2000):
            clock.now += 0.1
            guarded.match(KEY)
    counts = guarded.counts
    assert counts.judged > 3
    assert counts.postponed > 1000
    assert counts.seconds <= 0.1 * (clock.now - begin) + counts.longest_seconds
    assert counts.longest_seconds >= 2
    assert caplog.text.count("judging takes more than 10.0 % of the time") == 1


class Locked(ReferenceCache):
    """A cache that threads may share."""

    def __init__(self, config: CacheConfig) -> None:
        super().__init__(config)
        self.lock_of_all = threading.RLock()

    def __getattribute__(self, name: str) -> Any:  # noqa: ANN401  # Whatever the cache has there.
        found = super().__getattribute__(name)
        if name.startswith("_") or not callable(found) or name == "lock_of_all":
            return found

        def call(*args: object, **kwargs: object) -> object:
            with self.lock_of_all:
                return found(*args, **kwargs)

        return call


def test_two_threads_of_a_cache_with_a_lock_accuse_nobody() -> None:
    """Each judged call is alone in the cache: nothing is accused, and no call is lost."""
    cache, guarded = wrapped(Locked(CONFIG), 0.5)
    failed: list[BaseException] = []
    ready = threading.Barrier(2)

    def work(seed: int) -> None:
        random = Random(seed)
        ready.wait()
        try:
            for _ in range(150):
                key = make_key([random.randrange(3) for _ in range(6)], 2)
                found = cache.match(key)
                cache.evict(Counts(4))
                assert found.prefix_pages <= len(key)
                slots = cache.allocate(Counts(1))
                cache.free(slots)
        except BaseException as error:  # noqa: BLE001  # The test must see it.
            failed.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    counts = guarded.counts
    assert (failed, counts.violations, counts.errors) == ([], {}, 0)
    assert counts.calls == 2 * 150 * 4
    # How many run at the same time, and are not judged, the scheduler decides.
    assert counts.judged


def test_an_engine_of_coroutines_is_served() -> None:
    """Tasks that share a cache make whole calls, between which others run."""
    cache, guarded = wrapped(ReferenceCache(CONFIG), 0.5)

    async def request(number: int) -> None:
        key = make_key([number % 3, 2, 3, 4], 2)
        for _ in range(10):
            cache.match(key)
            await asyncio.sleep(0)
            cache.evict(Counts(2))
            slots = cache.allocate(Counts(1))
            await asyncio.sleep(0)
            cache.free(slots)

    async def serve_all() -> None:
        await asyncio.gather(*[request(number) for number in range(6)])

    asyncio.run(serve_all())
    counts = guarded.counts
    assert (counts.calls, counts.violations, counts.errors) == (240, {}, 0)


def test_a_cache_of_coroutines_is_refused() -> None:
    """A call that has not ended when it returns cannot be judged."""

    class Awaited(ReferenceCache):
        async def match(self, key: Key) -> Matched:  # type: ignore[override]
            return super().match(key)

    with pytest.raises(UsageError, match="match is a coroutine; guard the cache that it calls"):
        production_guard(cast("TreeCache", Awaited(CONFIG)))


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"rate": 0.0}, "rate is 0; it is a share of more than 0"),
        ({"rate": 1.5}, r"rate is 1\.5"),
        ({"budget": 0.0}, "budget is 0"),
        ({"laws": ["RES-44"]}, "no law RES-44"),
    ],
)
def test_a_wrong_option_is_refused(how: dict[str, Any], says: str) -> None:
    """Each wrong option has one line."""
    with pytest.raises(UsageError, match=says):
        production_guard(ReferenceCache(CONFIG), **how)


def test_a_cache_without_snapshot_is_refused() -> None:
    """A sample needs states."""
    with pytest.raises(UsageError, match="the cache has no `snapshot`"):
        production_guard(type("Shut", (ReferenceCache,), {"snapshot": None})(CONFIG))


def test_an_engine_that_calls_the_cache_in_a_call_gets_the_cache() -> None:
    """A call from inside another is the cache's own affair, and is not judged."""

    class Reentrant(ReferenceCache):
        outer: Any = None

        def evict(self, counts: Counts) -> Any:  # noqa: ANN401  # As the cache's.
            assert self.outer.take_events() == ()
            return super().evict(counts)

    inner = Reentrant(CONFIG)
    cache, guarded = wrapped(inner)
    inner.outer = cache
    cache.take_events()
    cache.evict(Counts(1))
    assert (guarded.counts.calls, guarded.counts.errors) == (2, 0)


def test_nothing_only_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Receipts of long ago and events that nobody judged are forgotten, and nothing is accused."""
    monkeypatch.setattr(sampling, "MOST_RECEIPTS", 10)
    monkeypatch.setattr(sampling, "MOST_TAKEN", 50)
    cache, guarded = wrapped(ReferenceCache(CONFIG))
    for number in range(60):
        serve(cache, make_key([number % 5, 2, number % 9, 4], 2))
    sampler = guarded._kvcanon_sampler
    judge = sampler._judge
    assert judge is not None
    assert len(judge._given) <= 11
    # Then nothing is judged for long.
    sampler._skips = 3000
    taken = 0
    for number in range(400):
        serve(cache, make_key([number % 11, 2, number % 7, 4], 2))
        kept: list[Event] = [] if sampler._judge is None else sampler._judge._taken
        taken = max(taken, len(kept))
    assert 0 < taken <= 50
    sampler._skips = 0
    serve(cache)
    counts = guarded.counts
    assert counts.violations == {}
    assert counts.errors == 0


def test_what_is_no_operation_passes() -> None:
    """Configuration, states and slots are the cache's own."""
    cache, guarded = wrapped(ReferenceCache(CONFIG))
    assert cache.config == CONFIG
    assert isinstance(cache.snapshot(), Snapshot)
    assert guarded.counts.calls == 0
    with pytest.raises(AttributeError):
        cache.no_such_method()


def test_a_scrape_tells_what_the_guard_did(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each count is a metric; without prometheus-client one line says what to install."""
    cache, guarded = wrapped(Boasting(CONFIG))
    registry = CollectorRegistry()
    registry.register(guard_collector(guarded))

    def told(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"kvcanon_guard_{name}", {"cache": "", **labels})

    # A series that began with its first violation would never rise.
    assert told("violations_total", law="MATCH-1") == 0
    cache.match(KEY)
    cache.allocate(Counts(1))
    assert told("calls_total") == told("judged_total") == 2
    assert told("violations_total", law="MATCH-1") == 1
    assert (told("errors_total"), told("postponed_total"), told("overlapped_total")) == (0, 0, 0)
    assert told("seconds_total") == guarded.counts.seconds > 0
    assert told("longest_seconds") == guarded.counts.longest_seconds > 0
    monkeypatch.setitem(sys.modules, "prometheus_client.core", None)
    with pytest.raises(UsageError, match="pip install 'kvcanon\\[metrics\\]'"):
        guard_collector(guarded)


def test_a_scrape_tells_the_guards_of_a_process_apart() -> None:
    """A process of two ranks has two caches, and a registry takes one collector."""
    caches = {name: wrapped(ReferenceCache(CONFIG)) for name in ("rank 0", "rank 1")}
    registry = CollectorRegistry()
    registry.register(guard_collector({name: guarded for name, (_, guarded) in caches.items()}))
    caches["rank 1"][0].match(KEY)
    calls = [
        registry.get_sample_value("kvcanon_guard_calls_total", {"cache": name}) for name in caches
    ]
    assert calls == [0, 1]


def test_a_clock_that_is_set_back_does_not_end_the_judging() -> None:
    """The time of the last judged call is then none that will come again soon."""
    clock, cache = Clock(), Slow(CONFIG)
    cache.clock = clock
    clock.now = 1e6
    guarded = timed(cache, clock, rate=1.0, budget=0.5)
    guarded.match(KEY)
    clock.now = 10.0
    guarded.match(KEY)
    assert guarded.counts.judged == 2
