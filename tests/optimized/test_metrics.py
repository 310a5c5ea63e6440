"""Statistics of the fast cache, and what Prometheus hears of them."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from attrs import evolve
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from array_api import array, insert, new_cache
from kvcanon.optimized import PrefixCache
from kvcanon.optimized.layout import PageLayout
from kvcanon.optimized.metrics import COUNTERS, GAUGES, CacheCollector
from kvcanon.optimized.pools import Pools
from kvcanon.optimized.stats import PoolStats
from kvcanon.reference.engine import ManualEngine
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import OutOfSlots, ReceiptSpent
from kvcanon.spec.operations import HostPayload
from kvcanon.spec.types import CPU, FULL, GPU, MAMBA, SWA, Counts
from paths import DOCS

CONFIG = CacheConfig(
    page_size=2,
    window_tokens=4,
    mamba=True,
    device_slots=Counts(8, 8, 4),
    host_slots=Counts(8, 8, 4),
    write_policy="write_through",
)
PROMPT = np.arange(8, dtype=np.uint32)
OTHER = PROMPT + 50
PAGE_BYTES = {FULL: 3 * 10, SWA: 2 * 10, MAMBA: 100}
ALL_BYTES = 4 * 30 + 4 * 20 + 100
"""Of the prompt's pages."""


def make_cache() -> tuple[PrefixCache, ManualEngine]:
    """A cache whose pages have different sizes."""
    layouts = {
        FULL: PageLayout(3, (8, 2)),
        SWA: PageLayout(2, (10,)),
        MAMBA: PageLayout(1, (100,)),
    }
    engine = ManualEngine()
    return PrefixCache(CONFIG, Pools(CONFIG, layouts), engine), engine


def test_hits_by_medium() -> None:
    """Hits are counted in tokens, by medium."""
    cache, _ = make_cache()
    insert(cache, PROMPT)
    cache.flush()
    cache.match(PROMPT)
    cache.evict(4)
    cache.match(np.append(PROMPT, OTHER))
    stats = cache.stats()
    assert stats.matches == 3  # The insert's, too.
    assert stats.asked_tokens == 8 + 8 + 16
    assert stats.hit_tokens == {GPU: 8, CPU: 8}


def test_inserts_and_duplicates() -> None:
    """Duplicate tokens are counted apart from inserted ones."""
    cache, _ = make_cache()
    insert(cache, PROMPT)
    cache.insert(PROMPT, 0, *cache.allocate(4, 4, 1))
    stats = cache.stats()
    assert (stats.inserts, stats.inserted_tokens, stats.duplicate_tokens) == (2, 8, 8)


def test_evictions_by_cause() -> None:
    """Evictions for a load-back are counted once, under that cause."""
    cache, _ = make_cache()
    insert(cache, PROMPT)
    cache.flush()
    assert cache.evict(4) == [4, 4, 1]
    insert(cache, OTHER)
    cache.flush()
    cache.allocate(3)
    evicted = cache.load_back(PROMPT).evicted
    assert evicted == [4, 4, 1]
    cache.flush()
    stats = cache.stats()
    assert stats.evicted_asked == stats.evicted_for_load == Counts(4, 4, 1)
    assert stats.evicted_host == Counts()
    assert cache.evict_host(3) == [4, 4, 1]
    # And to make room for what was fetched.
    cache.insert_host(OTHER, 0, HostPayload(full=(bytes(PAGE_BYTES[FULL]),) * 4))
    cache.insert_host(OTHER[:4] + 50, 0, HostPayload(full=(bytes(PAGE_BYTES[FULL]),) * 2))
    stats = cache.stats()
    assert stats.evicted_asked == stats.evicted_for_load == Counts(4, 4, 1)
    assert stats.evicted_host == Counts(8, 4, 1)


def test_bytes_are_those_that_arrived() -> None:
    """Only copies that are done count as moved bytes, with the page size of each component."""
    cache, engine = make_cache()
    (failed,) = insert(cache, PROMPT)[:1]
    for transfer_id in engine.open_transfer_ids:
        engine.fail(transfer_id)
    cache.flush()
    assert failed
    stats = cache.stats()
    assert (stats.transfers_failed + stats.transfers_cancelled, stats.transfers_done) == (
        stats.backups,
        0,
    )
    assert stats.backup_bytes == 0

    backups = insert(cache, PROMPT)
    assert cache.stats().backups == stats.backups + len(backups)
    assert cache.stats().transfers_in_flight == len(backups)
    assert cache.stats().backup_bytes == 0
    cache.flush()
    assert cache.stats().transfers_done == len(backups)
    assert cache.stats().backup_bytes == ALL_BYTES

    cache.evict(4)
    cache.load_back(PROMPT)
    assert cache.stats().load_backs == 1
    cache.flush()
    # Of window data only what is in the window comes back.
    assert cache.stats().load_back_bytes == 4 * 30 + 2 * 20 + 100
    assert cache.stats().backup_bytes == ALL_BYTES


def test_pools() -> None:
    """Each slot is counted in exactly one state."""
    cache, _ = make_cache()
    insert(cache, PROMPT)
    cache.flush()
    cache.allocate(2, 1)
    receipt = cache.lock(PROMPT)
    stats = cache.stats()
    assert stats.pools == {
        (FULL, GPU): PoolStats(8, 2, 2, 4, 4),
        (FULL, CPU): PoolStats(8, 4, 0, 4, 4),
        (SWA, GPU): PoolStats(8, 3, 1, 4, 2),
        (SWA, CPU): PoolStats(8, 4, 0, 4, 2),
        (MAMBA, GPU): PoolStats(4, 3, 0, 1, 1),
        (MAMBA, CPU): PoolStats(4, 3, 0, 1, 1),
    }
    cache.unlock(receipt)
    assert cache.stats().pools[SWA, GPU] == PoolStats(8, 3, 1, 4, 0)
    assert stats.receipts == 1
    assert stats.nodes == 2
    assert stats.events_pending > 0
    cache.take_events()
    assert cache.stats().events_pending == 0
    assert cache.stats().events == stats.events


def test_pools_without_a_host() -> None:
    """A cache without a host tier has no host pools in its statistics."""
    cache = PrefixCache(evolve(CONFIG, host_slots=Counts(), write_policy="none"))
    insert(cache, PROMPT)
    stats = cache.stats()
    assert set(stats.pools) == {(FULL, GPU), (SWA, GPU), (MAMBA, GPU)}
    assert (stats.backup_bytes, stats.load_back_bytes) == (0, 0)


def test_operations() -> None:
    """Calls, refusals and time are counted by operation."""
    cache, _ = make_cache()
    slots = cache.allocate(4, 4)
    with pytest.raises(OutOfSlots):
        cache.allocate(100)
    with pytest.raises(ReceiptSpent):
        cache.unlock(1)
    cache.free(*slots)
    cache.insert_host(PROMPT[:0], 0, HostPayload())
    operations = cache.stats().operations
    counted = {name: (each.calls, each.refused) for name, each in operations.items() if each.calls}
    assert counted == {"allocate": (2, 1), "unlock": (1, 1), "free": (1, 0), "insert_host": (1, 0)}
    for name, each in operations.items():
        assert (each.seconds > 0) == (name in counted)
        assert each.seconds < 60
        assert hasattr(cache, name)


# Prometheus.


def scraped(registry: CollectorRegistry) -> dict[str, dict[frozenset[tuple[str, str]], float]]:
    """The samples of a scrape: values by label."""
    text = generate_latest(registry).decode()
    samples: dict[str, dict[frozenset[tuple[str, str]], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = frozenset(sample.labels.items())
            samples.setdefault(sample.name, {})[labels] = sample.value
    return samples


def test_scrape() -> None:
    """A scrape has the documented names, labels and values."""
    cache, _ = make_cache()
    registry = CollectorRegistry()
    registry.register(CacheCollector({"rank 0": cache}))
    insert(cache, PROMPT)
    cache.flush()
    cache.match(PROMPT)
    with pytest.raises(ReceiptSpent):
        cache.unlock(1)
    samples = scraped(registry)

    def value(name: str, **labels: str) -> float:
        return samples[f"kvcanon_{name}"][frozenset({"cache": "rank 0", **labels}.items())]

    assert value("matches_total") == 2
    assert value("hit_tokens_total", medium="GPU") == 8
    assert value("hit_tokens_total", medium="CPU_PINNED") == 0
    assert value("evicted_slots_total", component="swa", cause="load_back") == 0
    assert value("transfers_total", direction="backup") == cache.stats().backups
    assert value("settled_transfers_total", status="done") == cache.stats().backups
    assert value("transferred_bytes_total", direction="backup") == ALL_BYTES
    assert value("refused_calls_total", operation="unlock") == 1
    assert value("slots", component="full", medium="GPU", state="evictable") == 4
    assert value("slots", component="mamba", medium="CPU_PINNED", state="free") == 3
    assert value("capacity_slots", component="swa", medium="GPU") == 8
    assert value("transfers_in_flight") == 0
    assert value("operation_seconds_count", operation="match") == 2
    assert value("operation_seconds_sum", operation="match") > 0


def test_every_metric_is_collected_and_explained() -> None:
    """Every statistic has a metric with a help text and a valid name."""
    registry = CollectorRegistry()
    registry.register(CacheCollector({"only": make_cache()[0]}))
    families = list(text_string_to_metric_families(generate_latest(registry).decode()))
    told = {f"kvcanon_{each.name}" for each in COUNTERS + GAUGES} | {"kvcanon_operation_seconds"}
    assert {family.name for family in families} == told
    for family in families:
        assert family.documentation.endswith(".")
        assert family.samples
    page = (DOCS / "optimized.md").read_text("utf-8")
    counters = {f"kvcanon_{each.name}" for each in COUNTERS}
    named = {f"{name}_total" if name in counters else name for name in told}
    assert {name for name in named if f"`{name}`" not in page} == set()


def test_several_caches_and_those_that_come_later() -> None:
    """Several caches are collected, also those that are added later."""
    caches = {"rank 0": make_cache()[0]}
    registry = CollectorRegistry()
    registry.register(CacheCollector(caches))
    caches["rank 1"] = new_cache(evolve(CONFIG, mamba=False))
    caches["rank 1"].free(array())
    matches = scraped(registry)["kvcanon_matches_total"]
    assert matches == {
        frozenset({("cache", "rank 0")}): 0,
        frozenset({("cache", "rank 1")}): 0,
    }
    calls = scraped(registry)["kvcanon_operation_seconds_count"]
    assert calls[frozenset({("cache", "rank 1"), ("operation", "free")})] == 1


def test_cost_of_a_cache_without_metrics() -> None:
    """Importing the fast cache does not import the Prometheus client."""
    script = "import sys, kvcanon.optimized; print('prometheus_client' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"


def test_missing_client() -> None:
    """Without the client the import error says what to install."""
    script = (
        "import sys; sys.modules['prometheus_client.core'] = None\nimport kvcanon.optimized.metrics"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 1
    assert "run `pip install 'kvcanon[metrics]'`" in ran.stderr
