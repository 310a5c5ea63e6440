"""Statistics of the fast cache, and what Prometheus hears of them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping

import numpy as np
import pytest
from attrs import evolve
from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from fast.caches import array, hybrid, insert, new_cache
from fast.slow_store import over_slow
from kvcanon.optimized import PrefixCache
from kvcanon.optimized.layout import PageLayout
from kvcanon.optimized.metrics import COUNTERS, GAUGES, CacheCollector
from kvcanon.optimized.pools import Pools
from kvcanon.optimized.stats import PoolStats
from kvcanon.reference.engine import ManualEngine
from kvcanon.spec.errors import OutOfSlots, ReceiptSpent
from kvcanon.spec.operations import HostPayload
from kvcanon.spec.types import CPU, FULL, GPU, MAMBA, SWA, Counts
from paths import DOCS

CONFIG = hybrid(Counts(8, 8, 4), page_size=2, window_tokens=4)
PROMPT = np.arange(8, dtype=np.uint32)
OTHER = PROMPT + 50
PAGE_BYTES = {FULL: 3 * 10, SWA: 2 * 10, MAMBA: 100}
ALL_BYTES = 4 * 30 + 4 * 20 + 100
"""Of the prompt's pages."""


@pytest.fixture
def engine() -> ManualEngine:
    """The cache's engine."""
    return ManualEngine()


@pytest.fixture
def cache(engine: ManualEngine) -> PrefixCache:
    """A cache whose pages have different sizes."""
    layouts = {FULL: PageLayout(3, (8, 2)), SWA: PageLayout(2, (10,)), MAMBA: PageLayout(1, (100,))}
    return PrefixCache(CONFIG, Pools(CONFIG, layouts), engine)


def test_hits_and_inserts(cache: PrefixCache) -> None:
    """Hits are counted in tokens by medium, and duplicates apart from inserted tokens."""
    insert(cache, PROMPT)
    cache.flush()
    cache.match(PROMPT)
    cache.evict(4)
    cache.match(np.append(PROMPT, OTHER))
    stats = cache.stats()
    assert stats.matches == 3  # The insert's, too.
    assert stats.asked_tokens == 8 + 8 + 16
    assert stats.hit_tokens == {GPU: 8, CPU: 8}
    insert(cache, OTHER)
    cache.insert(OTHER, 0, *cache.allocate(4, 4, 1))
    stats = cache.stats()
    assert (stats.inserts, stats.inserted_tokens, stats.duplicate_tokens) == (3, 16, 8)


def test_evictions_by_cause(cache: PrefixCache) -> None:
    """Evictions for a load-back are counted once, under that cause."""
    insert(cache, PROMPT)
    cache.flush()
    assert cache.evict(4) == [4, 4, 1]
    insert(cache, OTHER)
    cache.flush()
    cache.allocate(3)
    assert cache.load_back(PROMPT).evicted == [4, 4, 1]
    cache.flush()
    assert cache.stats().evicted_host == Counts()
    assert cache.evict_host(3) == [4, 4, 1]
    # And to make room for what was fetched.
    cache.insert_host(OTHER, 0, HostPayload(full=(bytes(PAGE_BYTES[FULL]),) * 4))
    cache.insert_host(OTHER[:4] + 50, 0, HostPayload(full=(bytes(PAGE_BYTES[FULL]),) * 2))
    stats = cache.stats()
    assert stats.evicted_asked == stats.evicted_for_load == Counts(4, 4, 1)
    assert stats.evicted_host == Counts(8, 4, 1)


def test_bytes_are_those_that_arrived(cache: PrefixCache, engine: ManualEngine) -> None:
    """Only copies that are done count as moved bytes, with the page size of each component."""
    assert insert(cache, PROMPT)
    for transfer_id in engine.open_transfer_ids:
        engine.fail(transfer_id)
    cache.flush()
    stats = cache.stats()
    assert stats.transfers_failed + stats.transfers_cancelled == stats.backups
    assert stats.transfers_done == stats.backup_bytes == 0

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


def test_pools(cache: PrefixCache) -> None:
    """Each slot is counted in exactly one state; a cache without a host tier has no host pools."""
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
    assert (stats.receipts, stats.nodes) == (1, 2)
    assert stats.events_pending > 0
    cache.take_events()
    assert cache.stats().events_pending == 0
    assert cache.stats().events == stats.events
    hostless = PrefixCache(evolve(CONFIG, host_slots=Counts(), write_policy="none"))
    insert(hostless, PROMPT)
    stats = hostless.stats()
    assert set(stats.pools) == {(FULL, GPU), (SWA, GPU), (MAMBA, GPU)}
    assert stats.backup_bytes == stats.load_back_bytes == 0


def test_operations(cache: PrefixCache) -> None:
    """Calls, refusals and time are counted by operation."""
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


def scraped(caches: Mapping[str, PrefixCache]) -> list[Metric]:
    """What a scrape tells of caches that came after the collector."""
    registry, collected = CollectorRegistry(), dict[str, PrefixCache]()
    registry.register(CacheCollector(collected))
    collected.update(caches)
    return list(text_string_to_metric_families(generate_latest(registry).decode()))


def test_scrape(cache: PrefixCache) -> None:
    """A scrape has the documented names, labels and values, of several caches."""
    insert(cache, PROMPT)
    cache.flush()
    cache.match(PROMPT)
    with pytest.raises(ReceiptSpent):
        cache.unlock(1)
    later = new_cache(evolve(CONFIG, mamba=False))
    later.free(array())
    told = {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in scraped({"rank 0": cache, "rank 1": later})
        for sample in family.samples
    }

    def value(name: str, rank: int = 0, **labels: str) -> float:
        return told[f"kvcanon_{name}", frozenset({"cache": f"rank {rank}", **labels}.items())]

    assert value("matches_total") == 2
    assert value("matches_total", 1) == 0
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
    assert value("operation_seconds_count", 1, operation="free") == 1


def test_every_metric_is_collected_and_explained(cache: PrefixCache) -> None:
    """Every statistic has a metric with a help text and a valid name, and is in the docs."""
    with over_slow() as (server, _):
        families = scraped({"with windows": cache, "over a store": server.cache})
    told = {f"kvcanon_{each.name}" for each in COUNTERS + GAUGES} | {"kvcanon_operation_seconds"}
    assert {family.name for family in families} == told
    for family in families:
        assert family.documentation.endswith(".")
        assert family.samples
    page = (DOCS / "optimized.md").read_text("utf-8")
    counters = {f"kvcanon_{each.name}" for each in COUNTERS}
    named = {f"{name}_total" if name in counters else name for name in told}
    assert {name for name in named if f"`{name}`" not in page} == set()


@pytest.mark.parametrize(
    ("script", "status", "said"),
    [
        ("import kvcanon.optimized; print('prometheus_client' in sys.modules)", 0, "False\n"),
        (
            "sys.modules['prometheus_client.core'] = None; import kvcanon.optimized.metrics",
            1,
            "run `pip install 'kvcanon[metrics]'`",
        ),
    ],
    ids=["without metrics", "without the client"],
)
def test_the_client_is_imported_where_it_is_used(script: str, status: int, said: str) -> None:
    """The fast cache does not import the client; where it is missing, the error says so."""
    command = [sys.executable, "-c", f"import sys; {script}"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == status
    assert said in ran.stdout + ran.stderr
