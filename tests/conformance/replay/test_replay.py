"""Replays: the calls of an engine on its cache, and its counts."""

import json
from collections.abc import Iterable
from functools import partial

import pytest
from attrs import evolve

from kvcanon.conformance.protocol.adapter import subject_of
from kvcanon.conformance.replay.engine import CHUNK_TOKENS, STATES_SHARE, TreeEngine
from kvcanon.conformance.replay.replay import replay, tree_shape
from kvcanon.conformance.replay.workloads.chat import Chat
from kvcanon.conformance.replay.workloads.request import Request
from kvcanon.reference import ManualEngine, ReferenceCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.transfer import Completion, Direction
from kvcanon.spec.types import CPU, FULL, GPU, SWA, Component, Counts, WritePolicy

CHAT = Chat(conversations=30, seed=1)
REQUESTS = CHAT.requests()
ALL_PAGES = sum(each.length_tokens for each in REQUESTS)

SMALL = CacheConfig(page_size=8, device_slots=Counts(full=200))
WINDOW = evolve(SMALL, window_tokens=64, device_slots=Counts(full=200, swa=60))
HOST = evolve(WINDOW, host_slots=Counts(full=400, swa=120), write_policy=WritePolicy.WRITE_THROUGH)
MAMBA = evolve(
    HOST,
    mamba=True,
    device_slots=Counts(full=200, swa=60, mamba=6),
    host_slots=Counts(full=400, swa=120, mamba=12),
)
CONFIGS = {
    "full": SMALL,
    "window": WINDOW,
    "host": HOST,
    "mamba": MAMBA,
    "selective": evolve(MAMBA, write_policy=WritePolicy.WRITE_THROUGH_SELECTIVE),
    "write_back": evolve(MAMBA, write_policy=WritePolicy.WRITE_BACK),
    "one state": evolve(SMALL, mamba=True, device_slots=Counts(full=200, mamba=1)),
}


def prompt(*tokens: int) -> Request:
    """Return the request of these tokens."""
    return Request(len(tokens), partial(tuple, tokens))


def ideal_hit_tokens(requests: Iterable[Request], page_size: int) -> int:
    """Count the tokens that an unlimited cache finds, from the prompts alone.

    A request finds the longest run of whole pages, within its first n - 1 tokens, with which an
    earlier prompt of its namespace began.
    """
    numbers: dict[object, int] = {}
    hit_tokens = 0
    for request in requests:
        tokens = request.make_tokens()
        place: object = request.namespace
        known = True
        for end in range(page_size, len(tokens) + 1, page_size):
            step = (place, tokens[end - page_size : end])
            known = known and step in numbers
            hit_tokens += page_size if known and end < len(tokens) else 0
            place = numbers.setdefault(step, len(numbers))
    return hit_tokens


@pytest.mark.parametrize("page_size", [1, 8, 64])
@pytest.mark.parametrize("window_tokens", [None, 100])
def test_unlimited_replay_finds_all_there_is(page_size: int, window_tokens: int | None) -> None:
    """With an unlimited pool a replay hits exactly the cached pages of earlier prompts."""
    unlimited = Counts(full=ALL_PAGES, swa=ALL_PAGES)
    config = CacheConfig(
        page_size=page_size, window_tokens=window_tokens, device_slots=unlimited, events=False
    )
    result = replay(subject_of(ReferenceCache(config)), REQUESTS)
    assert result.device_hit_tokens == ideal_hit_tokens(REQUESTS, page_size) > 0
    assert result.host_hit_tokens == 0
    assert not result.evicted


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_engine_holds_nothing_between_requests(config: CacheConfig) -> None:
    """Between requests no slot and no lock is held, and the engine's counts match the pools."""
    cache = ReferenceCache(config)
    engine = TreeEngine(cache, stamped=False)
    for request in REQUESTS:
        engine.serve(request)
        state = cache.snapshot()
        assert not state.holds
        assert not state.transfers
        for component in config.components:
            pool = state.pools[component, GPU]
            assert not pool.held
            assert engine._free[component] == len(pool.free)
    assert engine.tally.rejected == 0


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_replay_counts_what_events_say(config: CacheConfig) -> None:
    """Stores minus removes are the pages in the tree."""
    result = replay(subject_of(ReferenceCache(config)), REQUESTS)
    on_device = result.events["stored GPU"] - result.events["removed GPU"]
    assert result.tree is not None
    assert on_device == result.tree.device_pages
    assert result.evicted.full == result.events["removed GPU"]
    if config.host_tier:
        assert result.events["stored CPU_PINNED"] > 0


def test_replay_with_host_tier_loads_back_what_it_finds_there() -> None:
    """A prefix on the host is loaded back, and counted as a host hit."""
    result = replay(subject_of(ReferenceCache(HOST)), REQUESTS)
    assert result.load_backs > 0
    assert result.host_hit_tokens > 0
    assert result.loaded.swa > 0
    assert result.backups > 0
    assert result.failed_transfers == 0


def test_replay_makes_the_tree_that_it_should() -> None:
    """Prompts that diverge cut nodes, and evicted windows leave tombstones."""
    result = replay(subject_of(ReferenceCache(WINDOW)), REQUESTS)
    assert result.tree is not None
    assert result.tree.branches > 0
    assert 0 < result.tree.tombstones < result.tree.nodes
    assert result.evicted.swa > 0


def test_request_leaves_one_token_to_compute() -> None:
    """A repeated prompt hits all but its last token's page."""
    for length, hit in ((8, 4), (9, 8)):
        cache = ReferenceCache(evolve(SMALL, page_size=4))
        result = replay(subject_of(cache), [prompt(*range(length))] * 2)
        assert result.device_hit_tokens == hit


def test_prompt_shorter_than_a_page_passes() -> None:
    """A request without a whole page is served."""
    result = replay(subject_of(ReferenceCache(SMALL)), [prompt(1, 2, 3), prompt(1, 2, 3)])
    assert (result.requests, result.rejected, result.hit_rate) == (2, 0, 0.0)
    assert result.prompt_tokens == 6


def test_prompt_larger_than_the_pool_is_rejected_and_evicts_nothing() -> None:
    """A request that cannot fit is rejected before anything is evicted."""
    cache = ReferenceCache(evolve(SMALL, page_size=1, device_slots=Counts(full=10)))
    result = replay(subject_of(cache), [prompt(*range(10)), prompt(*range(11)), prompt(*range(10))])
    assert (result.requests, result.rejected) == (3, 1)
    assert result.device_hit_tokens == 9
    assert result.prompt_tokens == 31


def test_request_that_does_not_fit_gives_everything_back() -> None:
    """A request that is rejected while a copy locks the slots releases its lock."""
    transfers = ManualEngine()
    config = evolve(
        SMALL,
        page_size=1,
        device_slots=Counts(full=10),
        host_slots=Counts(full=10),
        write_policy=WritePolicy.WRITE_THROUGH,
    )
    cache = ReferenceCache(config, transfers)
    result = replay(subject_of(cache), [prompt(*range(6)), prompt(*range(3), *range(50, 57))])
    assert (result.requests, result.rejected) == (2, 1)
    assert result.device_hit_tokens == 0
    state = cache.snapshot()
    assert [hold.transfer_id for hold in state.holds] == [t.transfer_id for t in state.transfers]
    assert not state.pools[FULL, GPU].held


class OddLoads(ManualEngine):
    """Performs backups when polled; every load fails, or comes only in a wait."""

    def __init__(self, *, fails: bool) -> None:
        super().__init__()
        self.fails = fails

    def poll(self) -> tuple[Completion, ...]:
        for order in self.open_orders:
            if order.direction is Direction.BACKUP:
                self.acknowledge(order.transfer_id)
            elif self.fails:
                self.fail(order.transfer_id)
        return super().poll()


@pytest.mark.parametrize("fails", [True, False], ids=["failed", "late"])
def test_failed_loads_are_no_hits_and_late_ones_are_waited_for(fails: bool) -> None:
    """Of a failed load the slots are free again; a late load's prefix hits."""
    config = evolve(HOST, page_size=1, window_tokens=None, device_slots=Counts(full=10))
    cache = ReferenceCache(config, OddLoads(fails=fails))
    engine = TreeEngine(cache, stamped=False)
    for request in (prompt(*range(8)), prompt(*range(50, 58)), prompt(*range(8))):
        engine.serve(request)
    tally = engine.tally
    assert (tally.failed_transfers, tally.load_backs) == (int(fails), 1)
    assert tally.host_hit_tokens == tally.loaded[FULL] == (0 if fails else 7)
    assert engine._free[FULL] == len(cache.snapshot().pools[FULL, GPU].free)


def test_prompt_longer_than_the_window_pool_gets_window_slots_at_its_end() -> None:
    """A long prompt is served with window slots for its last pages."""
    config = evolve(WINDOW, page_size=1, window_tokens=4, device_slots=Counts(full=100, swa=10))
    cache = ReferenceCache(config)
    result = replay(subject_of(cache), [prompt(*range(60)), prompt(*range(80))])
    assert result.rejected == 0
    assert result.device_hit_tokens == 60
    usage = cache.snapshot().usage[SWA]
    assert usage.evictable + usage.protected == 10


def test_tree_shape_counts_host_only_pages() -> None:
    """A page on both media is not counted as host-only."""
    cache = ReferenceCache(evolve(HOST, window_tokens=None))
    replay(subject_of(cache), REQUESTS)
    state = cache.snapshot()
    shape = tree_shape(state)
    on_host = sum(len(node.pages) for node in state.below_root() if node[FULL].resident(CPU))
    assert 0 < shape.host_only_pages < on_host
    assert shape.nodes == len(state.nodes) - 1


def test_result_is_json() -> None:
    """A result holds only values that JSON has."""
    result = replay(subject_of(ReferenceCache(HOST)), REQUESTS[:20])
    read = json.loads(json.dumps(result.to_json()))
    assert read["requests"] == 20
    assert read["operations"]["match"]["calls"] >= 20
    assert read["evicted"].keys() == {"full", "swa", "mamba"}
    assert 0 < read["hit_rate"] < 1
    assert read["judgement"] is None


@pytest.mark.parametrize("shared_tokens", [1_536, 1_500])
def test_prompts_that_part_find_what_they_share(shared_tokens: int) -> None:
    """With states where prompts part, a replay misses at most a chunk of what it finds without."""
    requests = [
        prompt(*range(shared_tokens), *range(at * 10_000, at * 10_000 + 864)) for at in range(1, 13)
    ]
    config = CacheConfig(page_size=16, mamba=True, device_slots=Counts(full=2_000, mamba=64))
    found = {
        within: replay(
            evolve(subject_of(ReferenceCache(config)), states_within=within), requests, 0.1
        )
        for within in (True, False)
    }
    without = replay(subject_of(ReferenceCache(evolve(config, mamba=False))), requests)
    lost = without.device_hit_tokens - found[True].device_hit_tokens
    assert 0 <= lost <= CHUNK_TOKENS * len(requests)
    assert without.hit_rate > 0.55
    assert found[True].hit_rate > 0.55
    assert found[False].hit_rate == 0.0
    assert all(each.judgement and not each.judgement.broken for each in found.values())


def test_states_at_several_pages_are_few() -> None:
    """A request takes the state of its end, and no more than its share of the pool."""
    config = evolve(SMALL, mamba=True, device_slots=Counts(full=400, mamba=16))
    cache = ReferenceCache(config)
    engine = TreeEngine(cache, stamped=True, states_within=True)
    engine.serve(prompt(*range(3_000)))
    assert cache.snapshot().usage[Component.MAMBA].evictable == 16 // STATES_SHARE
    assert engine._state_pages(0, 0, 0) == ()
    assert engine._state_pages(375, 0, 300) == (300, 375)


def test_latencies_add_up() -> None:
    """Every call is counted, and percentiles lie within the measured times."""
    result = replay(subject_of(ReferenceCache(SMALL)), REQUESTS)
    assert result.operations["insert"].calls == len(REQUESTS)
    for latency in result.operations.values():
        assert 0 < latency.p50_us <= latency.p99_us
        assert latency.p50_us <= latency.seconds * 1e6
    assert result.cache_seconds == pytest.approx(sum(x.seconds for x in result.operations.values()))
