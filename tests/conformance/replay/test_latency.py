"""Timing: each call of an operation is counted once, and the judge's own calls are not."""

from collections import Counter

import pytest

from kvcanon.conformance.replay.latency import TimedCache
from kvcanon.reference import ReferenceCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import CacheError
from kvcanon.spec.operations import HostPayload, Receipt
from kvcanon.spec.types import FULL, GPU, Counts, Slots, WritePolicy, make_key

CONFIG = CacheConfig(
    page_size=2,
    device_slots=Counts(full=8),
    host_slots=Counts(full=8),
    write_policy=WritePolicy.WRITE_THROUGH,
)
KEY = make_key(range(6), 2)


def test_each_operation_is_passed_on_and_timed() -> None:
    """Every operation is passed on and timed."""
    plain, timed = ReferenceCache(CONFIG), TimedCache(ReferenceCache(CONFIG))
    for cache in (plain, timed):
        slots = cache.allocate(Counts(full=3))
        assert slots == Slots(full=(0, 1, 2))
        assert cache.insert(KEY, 0, slots, counted_pages=1, priority=2).adopted.full == 3
        assert len(cache.flush().transfers) == 1
        assert cache.match(KEY).device_pages == 3
        receipt = cache.lock(KEY)
        cache.unlock_window(receipt)
        cache.unlock(receipt)
        assert cache.evict(Counts(full=3)).freed.full == 3
        assert cache.load_back(KEY, 3).loading.full == 3
        assert len(cache.poll().transfers) == 1
        cache.free(cache.allocate(Counts(full=1)))
        assert cache.evict(Counts(full=3)).freed.full == 3
        assert cache.evict_host(Counts(full=3)).freed.full == 3
        assert cache.insert_host(KEY, 0, HostPayload(full=(b"8 bytes.",) * 3)).placed_pages == 3
        cache.reset()
    assert timed.config is CONFIG
    assert timed.snapshot() == plain.snapshot()
    assert timed.take_events() == plain.take_events()
    calls = {name: latency.calls for name, latency in timed.latencies().items()}
    once = "insert flush match lock unlock_window unlock load_back poll free evict_host insert_host"
    assert calls == Counter(f"{once} reset take_events allocate allocate evict evict".split())


def test_the_judges_calls_are_not_timed() -> None:
    """Snapshots, reads and writes are not timed."""
    timed = TimedCache(ReferenceCache(CONFIG))
    (slot,) = timed.allocate(Counts(full=1)).full
    timed.write(FULL, slot, b"8 bytes.")
    assert timed.read(FULL, GPU, slot) == b"8 bytes."
    timed.snapshot()
    assert timed.latencies().keys() == {"allocate"}


def test_a_refused_call_is_timed_too() -> None:
    """A refused call is timed, too."""
    timed = TimedCache(ReferenceCache(CONFIG))
    with pytest.raises(CacheError):
        timed.unlock(Receipt(99, KEY))
    assert timed.latencies()["unlock"].calls == 1


def test_percentiles_are_measured_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Percentiles are exact, in microseconds."""
    moments = iter(moment for call in range(1, 1001) for moment in (0, call * 1000))
    monkeypatch.setattr("kvcanon.conformance.replay.latency.perf_counter_ns", lambda: next(moments))
    timed = TimedCache(ReferenceCache(CONFIG))
    for _ in range(1000):
        timed.match(KEY)
    latency = timed.latencies()["match"]
    assert (latency.p50_us, latency.p99_us) == (500.0, 990.0)
    assert (latency.p999_us, latency.max_us) == (999.0, 1000.0)
    assert latency.seconds == pytest.approx(500_500e-6)
