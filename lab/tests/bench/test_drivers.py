"""Drivers: each calls its cache as an engine would, and all count alike."""

from __future__ import annotations

from array import array
from functools import cache
from importlib import import_module
from itertools import takewhile
from pathlib import Path

import pytest
from attrs import evolve

import kvcanon.optimized  # noqa: F401 # Before torch is another.
from fakes import peers as fake_peers
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.replay.engine import TreeEngine
from kvcanon.conformance.replay.workloads.request import Request
from kvcanon.lab.bench.case import BenchCell, HostSetup, RequestStep, WorkloadSource
from kvcanon.lab.bench.contestants import field
from kvcanon.lab.bench.driver import Driver, EventCounts, MakeDriver, StepTimes
from kvcanon.lab.bench.drivers import sglang_hosted
from kvcanon.reference import ReferenceCache
from kvcanon.spec.types import DEFAULT_NAMESPACE, Counts, WritePolicy

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
HOSTED = ("optimized", "reference", "sglang")
"""The caches that are measured with a host tier."""
ALL_FITS, TIGHT_HOST = 1 << 16, 3072


def hosted(policy: WritePolicy, host_tokens: int, *, window: bool = False) -> BenchCell:
    """Return a small device pool with a host tier."""
    full = BenchCell(16, 2048, host=HostSetup(policy, host_tokens, host_tokens // 2))
    return evolve(full, window_tokens=64, swa_tokens=1536) if window else full


@pytest.fixture(autouse=True)
def _peers(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_peers.install(monkeypatch)
    monkeypatch.setattr(sglang_hosted, "make_world", fake_peers.hosted_world)


def make_driver(name: str, cell: BenchCell) -> Driver[object]:
    """Make the driver of a cache by name."""
    module, options = NAMES[name]
    found = import_module(f"kvcanon.lab.bench.drivers.{module}")
    make: MakeDriver[object] = found.make_driver
    return make(cell, options)


def serve(name: str, cell: BenchCell) -> tuple[list[int], StepTimes, int]:
    """Serve generated chat; returns the hits, the times, and the tokens that were loaded."""
    driver, taken = make_driver(name, cell), StepTimes()
    hits = []
    for request in REQUESTS:
        hits.append(driver.serve(driver.prepare(request), taken))
        if cell.events:
            driver.take_events(taken)
    return hits, taken, driver.loaded_tokens


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
    served, *_ = serve(name, evolve(ROOMY, page_size=page_size))
    assert served == ideal_hits(page_size)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("cell", [TIGHT, WINDOW, evolve(WINDOW, page_size=1)], ids=str)
def test_driver_serves_all_where_pools_overflow(name: str, cell: BenchCell) -> None:
    """Each driver evicts enough for every request, and leaves nothing locked."""
    served, taken, _ = serve(name, cell)
    assert 0 < sum(served) < sum(ideal_hits(cell.page_size))
    if name != "vllm":
        assert taken.evict
    for fake in fake_peers.UnifiedRadixCache.made:
        assert not fake.pages.locked
        assert len(fake.full.free) + len(fake.pages.there) * cell.page_size == cell.pool_tokens
    for manager in fake_peers.KVCacheManager.made:
        assert not manager.pages.locked
        assert not manager.held


PRESSED = [
    hosted(policy, TIGHT_HOST, window=window)
    for policy in (*WritePolicy,)[1:]
    for window in (False, True)
]
"""Small pools on both tiers, under each policy that has a host tier."""


@pytest.mark.parametrize("cell", [TIGHT, WINDOW, *PRESSED], ids=str)
def test_our_drivers_find_what_our_engine_finds(cell: BenchCell) -> None:
    """The bench gets the same hits from a cache, and loads the same, as a replay."""
    config = cell.config()
    assert config.device_slots == Counts(cell.pool_tokens // 16, cell.swa_tokens // 16)
    engine = TreeEngine(ReferenceCache(config), stamped=False)
    for request in REQUESTS:
        engine.serve(request)
    tally = engine.tally
    for name in ("reference", "optimized"):
        served, _, loaded = serve(name, cell)
        assert sum(served) == tally.device_hit_tokens + tally.host_hit_tokens < sum(ideal_hits(16))
        assert loaded == tally.host_hit_tokens
        assert bool(loaded) is config.host_tier


@pytest.mark.parametrize("policy", [WritePolicy.WRITE_THROUGH, WritePolicy.WRITE_BACK])
@pytest.mark.parametrize("name", HOSTED)
def test_driver_loads_what_the_device_had_to_evict(name: str, policy: WritePolicy) -> None:
    """With a host for everything each request hits all that was ever inserted."""
    served, taken, loaded = serve(name, hosted(policy, ALL_FITS))
    assert served == ideal_hits(16)
    assert 0 < loaded < sum(served)
    assert 0 < len(taken.load) < len(REQUESTS)
    assert len(taken.poll) == len(REQUESTS)


@pytest.mark.parametrize("cell", [WINDOW, hosted(WritePolicy.WRITE_BACK, TIGHT_HOST)], ids=str)
def test_our_caches_tell_the_same_events(cell: BenchCell) -> None:
    """Both drivers count events of both tiers by the page."""
    told: dict[str, list[EventCounts]] = {}
    for name in NAMES if cell.host is None else ("reference", "optimized"):
        driver = make_driver(name, evolve(cell, events=True))
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
    served, taken, loaded = serve(name, evolve(TIGHT, events=events))
    calls = {step: len(taken_ns) for step, taken_ns in taken.by_step().items()}
    every = {RequestStep.MATCH, RequestStep.INSERT} | ({RequestStep.EVENTS} if events else set())
    assert {step for step, number in calls.items() if number == len(served)} >= every
    assert (RequestStep.EVENTS in calls) == events
    assert (RequestStep.HASH in calls) == (name == "vllm")
    assert not loaded
    assert not {RequestStep.LOAD, RequestStep.POLL} & set(calls)
    assert calls.get(RequestStep.LOCK) == (None if name == "vllm" else calls[RequestStep.UNLOCK])
    assert all(taken_ns >= 0 for each in taken.by_step().values() for taken_ns in each)


@pytest.mark.parametrize("name", HOSTED)
def test_loads_and_polls_are_timed_once(name: str) -> None:
    """Loads and polls are steps of their own, where there is a host tier."""
    _, taken, _ = serve(name, hosted(WritePolicy.WRITE_BACK, TIGHT_HOST))
    calls = {step: len(times) for step, times in taken.by_step().items()}
    assert calls[RequestStep.POLL] == calls[RequestStep.MATCH] == len(REQUESTS)
    assert 0 < calls[RequestStep.LOAD] < len(REQUESTS)
    assert calls[RequestStep.LOCK] == calls[RequestStep.UNLOCK]


@pytest.mark.parametrize("name", HOSTED)
def test_find_counts_both_tiers(name: str) -> None:
    """A prompt whose end is on the host only is found whole, and nothing is loaded."""
    driver, taken = make_driver(name, hosted(WritePolicy.WRITE_BACK, ALL_FITS)), StepTimes()
    for request in REQUESTS:
        driver.serve(driver.prepare(request), StepTimes())
    loaded = driver.loaded_tokens
    for request in REQUESTS:
        whole_pages = (request.length_tokens - 1) // 16 * 16
        assert driver.find(driver.prepare(request), taken) == whole_pages
    assert driver.loaded_tokens == loaded
    assert set(taken.by_step()) == {RequestStep.MATCH}


def test_sglang_copies_nothing_and_keeps_its_protocol() -> None:
    """Its loads are started and each layer is told; a load without room leaves the device's hit."""
    driver = make_driver("sglang", hosted(WritePolicy.WRITE_BACK, ALL_FITS))
    for request in REQUESTS:
        driver.serve(driver.prepare(request), StepTimes())
    (fake,) = fake_peers.UnifiedRadixCache.made
    assert isinstance(fake, fake_peers.HostedCache)
    assert fake.cache_controller.io_backend == sglang_hosted.BACKEND
    assert fake.layers == [0, 1] * fake.loads
    assert fake.polls == len(REQUESTS)
    assert not fake.pages.locked


def test_load_without_room_is_no_hit(monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be loaded is computed: it counts as no hit, and as not loaded."""
    monkeypatch.setattr(
        fake_peers.HostedCache, "init_load_back", lambda _, params: (0, params.req.last_node)
    )
    served, taken, loaded = serve("sglang", hosted(WritePolicy.WRITE_BACK, ALL_FITS))
    assert taken.load
    assert loaded == 0
    assert sum(served) < sum(ideal_hits(16))


def test_vllm_has_no_host_tier(tmp_path: Path) -> None:
    """The contest leaves it out, and its driver refuses."""
    with pytest.raises(UsageError, match=r"^vLLM is measured without a host tier$"):
        make_driver("vllm", hosted(WritePolicy.WRITE_BACK, ALL_FITS))
    with pytest.raises(UsageError, match=r"^vllm: has no host tier$"):
        field(["vllm"], tmp_path, host_tier=True)


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
