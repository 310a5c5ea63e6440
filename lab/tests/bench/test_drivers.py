"""Drivers: each calls its cache as an engine would, and all count alike."""

from __future__ import annotations

from array import array
from functools import cache
from importlib import import_module
from itertools import takewhile

import pytest
from attrs import evolve

import fake_peers
import kvcanon.optimized  # noqa: F401 # Before torch is another.
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.replay.engine import TreeEngine
from kvcanon.conformance.replay.workloads.request import Request
from kvcanon.lab.bench.case import BenchCell, RequestStep, WorkloadSource
from kvcanon.lab.bench.driver import Driver, EventCounts, MakeDriver, StepTimes
from kvcanon.reference import ReferenceCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import DEFAULT_NAMESPACE, Counts

ROOMY = BenchCell(page_size=16, pool_tokens=1 << 15)
TIGHT = BenchCell(page_size=16, pool_tokens=2048)
WINDOW = evolve(TIGHT, window_tokens=64, swa_tokens=1536)
REQUESTS = [
    # Some come twice, so that even their last page was cached.
    again
    for number, request in enumerate(WorkloadSource(conversations=25, seed=3).requests())
    for again in [request] * (2 if number % 4 == 0 else 1)
]
NAMES = {
    "optimized": ("optimized", {}),
    "reference": ("tree", {"cache": "reference"}),
    "sglang": ("sglang", {"core": "rust"}),
    "vllm": ("vllm", {}),
}


@pytest.fixture(autouse=True)
def _peers(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_peers.install(monkeypatch)


def make_driver(name: str, cell: BenchCell) -> Driver[object]:
    """Make the driver of a cache by name."""
    module, options = NAMES[name]
    found = import_module(f"kvcanon.lab.bench.drivers.{module}")
    make: MakeDriver[object] = found.make_driver
    return make(cell, options)


def serve(name: str, cell: BenchCell) -> tuple[list[int], StepTimes]:
    """Serve generated chat."""
    driver, taken = make_driver(name, cell), StepTimes()
    hits = []
    for request in REQUESTS:
        hits.append(driver.serve(driver.prepare(request), taken))
        if cell.events:
            driver.take_events(taken)
    return hits, taken


@cache
def ideal_hits(page_size: int) -> list[int]:
    """Return the hits of each request in a cache that evicts nothing."""
    seen: set[fake_peers.Page] = set()
    hits = []
    for request in REQUESTS:
        pages = fake_peers.pages_of(request.make_tokens(), request.namespace, page_size)
        reusable = pages[: (request.length_tokens - 1) // page_size]
        found = list(takewhile(seen.__contains__, reusable))
        hits.append(len(found) * page_size)
        seen.update(pages)
    return hits


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("page_size", [1, 16])
def test_driver_finds_all_that_was_there(name: str, page_size: int) -> None:
    """Each driver hits exactly the cached pages of earlier prompts of the tenant."""
    served, _ = serve(name, evolve(ROOMY, page_size=page_size))
    assert served == ideal_hits(page_size)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("cell", [TIGHT, WINDOW, evolve(WINDOW, page_size=1)], ids=str)
def test_driver_serves_all_where_pools_overflow(name: str, cell: BenchCell) -> None:
    """Each driver evicts enough for every request, and leaves nothing locked."""
    served, taken = serve(name, cell)
    assert 0 < sum(served) < sum(ideal_hits(cell.page_size))
    if name != "vllm":
        assert taken.evict
    for fake in fake_peers.UnifiedRadixCache.made:
        assert not fake.pages.locked
        assert len(fake.full.free) + len(fake.pages.there) * cell.page_size == cell.pool_tokens
    for manager in fake_peers.KVCacheManager.made:
        assert not manager.pages.locked
        assert not manager.held


@pytest.mark.parametrize("cell", [TIGHT, WINDOW], ids=str)
def test_our_drivers_find_what_our_engine_finds(cell: BenchCell) -> None:
    """The bench gets the same hits from a cache as a replay."""
    slots = Counts(cell.pool_tokens // cell.page_size, cell.swa_tokens // cell.page_size)
    window = cell.window_tokens or None
    config = CacheConfig(page_size=cell.page_size, window_tokens=window, device_slots=slots)
    engine = TreeEngine(ReferenceCache(config), stamped=False)
    for request in REQUESTS:
        engine.serve(request)
    for name in ("reference", "optimized"):
        served, _ = serve(name, cell)
        assert sum(served) == engine.tally.device_hit_tokens


def test_our_caches_tell_the_same_events() -> None:
    """Both drivers count events by the page."""
    told: dict[str, list[EventCounts]] = {}
    for name in NAMES:
        driver = make_driver(name, evolve(WINDOW, events=True))
        told[name] = []
        for request in REQUESTS:
            driver.serve(driver.prepare(request), StepTimes())
            told[name].append(driver.take_events(StepTimes()))
    assert told["reference"] == told["optimized"]
    for each in told.values():
        assert 0 < sum(one.removed_pages for one in each) < sum(one.stored_pages for one in each)


@pytest.mark.parametrize("name", NAMES)
def test_find_only_looks(name: str) -> None:
    """A find inserts nothing, locks nothing, and is timed as a match."""
    driver, taken = make_driver(name, ROOMY), StepTimes()
    request = Request(100, lambda: tuple(range(100)))
    prompt = driver.prepare(request)
    assert driver.find(prompt, taken) == 0
    assert driver.serve(prompt, StepTimes()) == 0
    assert driver.find(prompt, taken) == 96
    calls = {step: len(taken_ns) for step, taken_ns in taken.by_step().items()}
    assert calls == {RequestStep.MATCH: 2} | ({RequestStep.HASH: 2} if name == "vllm" else {})


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("events", [False, True], ids=["no events", "events"])
def test_each_call_is_timed_once(name: str, events: bool) -> None:
    """Every step of a request is timed around the cache's call."""
    served, taken = serve(name, evolve(TIGHT, events=events))
    calls = {step: len(taken_ns) for step, taken_ns in taken.by_step().items()}
    every = {RequestStep.MATCH, RequestStep.INSERT} | ({RequestStep.EVENTS} if events else set())
    assert {step for step, number in calls.items() if number == len(served)} >= every
    assert (RequestStep.EVENTS in calls) == events
    assert (RequestStep.HASH in calls) == (name == "vllm")
    assert calls.get(RequestStep.LOCK) == (None if name == "vllm" else calls[RequestStep.UNLOCK])
    assert all(taken_ns >= 0 for each in taken.by_step().values() for taken_ns in each)


@pytest.mark.parametrize("name", NAMES)
def test_prompt_of_less_than_a_page_is_served(name: str) -> None:
    """A prompt without a whole page is served without a hit."""
    driver = make_driver(name, ROOMY)
    request = Request(3, lambda: (1, 2, 3))
    assert driver.serve(driver.prepare(request), StepTimes()) == 0


def test_sglang_that_falls_back_to_another_core_is_refused() -> None:
    """A core other than the named one is refused, not measured."""
    found = import_module("kvcanon.lab.bench.drivers.sglang")
    with pytest.raises(UsageError, match="RustUnifiedTreeCore where its python core was asked for"):
        found.make_driver(TIGHT, {"core": "python"})


def test_sglang_gets_its_page_size_tokens_and_pools() -> None:
    """SGLang gets the sizes of the cell."""
    make_driver("sglang", evolve(WINDOW, page_size=48))
    (fake,) = fake_peers.UnifiedRadixCache.made
    assert fake.params.page_size == 48
    assert fake.params.sliding_window_size == 64
    assert fake.params.tree_components == ("full", "swa")
    # Whole pages, as in our caches.
    assert (len(fake.full.free), len(fake.swa.free)) == (2016, 1536)


def test_vllm_gets_the_blocks_of_both_pools() -> None:
    """The block pool of vLLM has as many blocks as both pools have pages."""
    make_driver("vllm", WINDOW)
    (manager,) = fake_peers.KVCacheManager.made
    assert manager.config.num_blocks == (2048 + 1536) // 16 + 1


def test_vllm_without_room_is_a_fault() -> None:
    """A request that vLLM cannot serve is a usage error."""
    driver = make_driver("vllm", evolve(TIGHT, pool_tokens=64))
    request = Request(100, lambda: tuple(range(100)))
    with pytest.raises(UsageError, match="vLLM has no room for 96 tokens"):
        driver.serve(driver.prepare(request), StepTimes())


def test_tokens_are_prepared_as_each_cache_likes_them() -> None:
    """Tokens are converted before the timed part."""
    request = Request(40, lambda: tuple(range(40)))
    ours = make_driver("optimized", TIGHT).prepare(request)
    assert (ours.whole.dtype.itemsize, ours.whole.tolist()) == (4, list(range(32)))  # type: ignore[attr-defined]
    theirs = make_driver("sglang", TIGHT).prepare(request)
    assert theirs.whole == array("q", range(32))  # type: ignore[attr-defined]
    blocks = make_driver("vllm", TIGHT).prepare(request)
    assert blocks.whole == list(range(32))  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "cell", "said"),
    [
        ("hash_blocks:ADAPTER", TIGHT, "is used by requests, and this times operations on prefix"),
        ("faulty:ONLY_SMALL_PAGES", TIGHT, "does not offer page_size 16; it offers 1, 2"),
        ("faulty:PLAIN_ONLY", WINDOW, "does not offer page_size 16; it offers 1"),
        ("faulty:WITHOUT_EVICT", TIGHT, "lacks evict, which this times; `kvcanon replay"),
        ("faulty:WITHOUT_EVENTS", evolve(TIGHT, events=True), "lacks take_events"),
    ],
)
def test_cache_that_cannot_be_timed_is_named(name: str, cell: BenchCell, said: str) -> None:
    """A cache that lacks what is timed is refused in one line."""
    found = import_module("kvcanon.lab.bench.drivers.tree")
    with pytest.raises(UsageError, match=said):
        found.make_driver(cell, {"cache": name})


def test_cache_without_namespaces_gets_the_default_one() -> None:
    """Prompts of other namespaces are served in the default one."""
    found = import_module("kvcanon.lab.bench.drivers.tree")
    driver = found.make_driver(TIGHT, {"cache": "faulty:ONE_NAMESPACE"})
    assert {driver.prepare(request).namespace for request in REQUESTS} == {DEFAULT_NAMESPACE}
    assert {request.namespace for request in REQUESTS} != {DEFAULT_NAMESPACE}
