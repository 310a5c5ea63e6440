"""Replays over a store: the hits of each run are what the media have of each prompt."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from attrs import define, evolve, field

from kvcanon.conformance.protocol.adapter import Adapter, make_stored_subject
from kvcanon.conformance.protocol.cache_names import REFERENCE, load_adapter
from kvcanon.conformance.replay.engine import ReplayStats
from kvcanon.conformance.replay.replay import Replay, replay
from kvcanon.conformance.replay.store import ReplayStore
from kvcanon.conformance.replay.workloads.chat import Chat
from kvcanon.conformance.replay.workloads.request import Request
from kvcanon.spec.cache import Cache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import CPU, DISK, EXTERNAL, GPU, Counts, Key, Medium, WritePolicy, make_key
from kvcanon.spec.views import path_of

REQUESTS = Chat(conversations=20, seed=3).requests()
PAGE_SIZE = 8
CONFIG = CacheConfig(
    page_size=PAGE_SIZE,
    device_slots=Counts(full=200),
    host_slots=Counts(full=300),
    write_policy=WritePolicy.WRITE_THROUGH,
)
ALL_PAGES = sum(each.length_tokens for each in REQUESTS) // PAGE_SIZE
RUNS = 3


def runs_over(
    disk: ReplayStore, adapter: Adapter = REFERENCE, config: CacheConfig = CONFIG, guard: float = 0
) -> list[Replay]:
    """The results of a replay and of two more, each after a restart."""
    results = []
    for run in range(RUNS):
        if run:
            disk.restart()
        subject = make_stored_subject(adapter, config, disk.queue)
        results.append(replay(subject, REQUESTS, guard, store=disk))
    return results


def reusable_of(request: Request) -> Key:
    """The pages of a request that may be hits: its last token is always computed."""
    return make_key(request.make_tokens()[:-1], PAGE_SIZE, request.namespace)


def test_a_disk_without_limit_forgets_nothing() -> None:
    """Every page that was there before is a hit, and after a restart every page."""
    seen: set[Key] = set()
    first = 0
    for request in REQUESTS:
        key = reusable_of(request)
        ends = range(1, len(key) + 1)
        first += next((end - 1 for end in ends if key.prefix(end) not in seen), len(key))
        whole = make_key(request.make_tokens(), PAGE_SIZE, request.namespace)
        seen |= {whole.prefix(end) for end in range(1, len(whole) + 1)}
    again = sum(len(reusable_of(request)) for request in REQUESTS)
    results = runs_over(ReplayStore())
    hits = [(each.device_hit_tokens + each.host_hit_tokens) // PAGE_SIZE for each in results]
    assert hits == [first, again, again]
    assert not any(each.rejected for each in results)


@define
class Residency:
    """Sees each request before it is served: what of it is in memory, and what on the disk."""

    disk: ReplayStore
    cache: Cache | None = None
    expected: list[int] = field(factory=list)
    """Pages of each request that are hits."""
    found: list[int] = field(factory=list)
    resident: int = 0
    """The pages that the replay counts as resident before their requests."""
    requests: Sequence[Request] = REQUESTS

    def around(self, cache: Cache) -> Cache:
        """The same cache."""
        self.cache = cache
        self._expect()
        return cache

    def around_requests(self, cache: object) -> object:
        """Never called."""
        raise AssertionError(cache)

    def served(self, tally: ReplayStats) -> None:
        """Note the hits so far, and look at the next request."""
        self.found.append((tally.device_hit_tokens + tally.host_hit_tokens) // PAGE_SIZE)
        self.resident = tally.resident_tokens // PAGE_SIZE
        if len(self.found) < len(self.requests):
            self._expect()

    def _expect(self) -> None:
        key = reusable_of(self.requests[len(self.found)])
        assert self.cache is not None
        in_memory, on_host = self.cache.match(key).prefix_pages, 0
        for node, shared in path_of(self.cache.snapshot(), key):
            backed = self.cache.config.backed_parents
            if not node.full.resident(CPU) and (backed or not node.full.resident(GPU)):
                break
            on_host += shared
        self.expected.append(max(in_memory, self.disk.run_of(key, on_host)))


@pytest.mark.parametrize("policy", [each for each in WritePolicy if each is not WritePolicy.NONE])
@pytest.mark.parametrize("capacity", [40, 150, 600])
@pytest.mark.parametrize(("medium", "sharers"), [(DISK, 0), (EXTERNAL, 0), (EXTERNAL, 2)])
def test_hits_are_what_the_media_have(
    capacity: int, policy: WritePolicy, medium: Medium, sharers: int
) -> None:
    """Each request finds the longest prefix that memory has, or the host and the store together.

    Without holes in the store that is the longer of what memory has and what the store has.
    """
    disk = ReplayStore(capacity, medium, sharers)
    for run in range(RUNS):
        if run:
            disk.restart()
        subject = make_stored_subject(REFERENCE, evolve(CONFIG, write_policy=policy), disk.queue)
        seen = Residency(disk)
        replay(subject, REQUESTS, watch=seen, store=disk)  # type: ignore[arg-type]  # By its use.
        hits = [now - before for before, now in zip([0, *seen.found], seen.found, strict=False)]
        assert hits == seen.expected
        assert seen.resident == sum(seen.expected)
        assert disk.pages <= capacity


def test_a_larger_disk_has_more_hits_after_a_restart() -> None:
    """Hits grow with the disk, up to all that there is."""
    rates = [runs_over(ReplayStore(pages))[-1].hit_rate for pages in (0, 300, ALL_PAGES)]
    assert rates == sorted(set(rates))


def test_a_shared_store_has_fewer_hits() -> None:
    """A disk keeps the beginnings of prompts; an external store does not, and has other users."""
    stores = ReplayStore(400), ReplayStore(400, EXTERNAL), ReplayStore(400, EXTERNAL, sharers=3)
    rates = [runs_over(each)[-1].hit_rate for each in stores]
    assert rates == sorted(set(rates), reverse=True)


def test_an_external_store_may_lack_the_beginning_of_a_prompt() -> None:
    """Its pages leave in the order of their reads, and what follows a hole is of no use."""
    prompt = REQUESTS[0].key(PAGE_SIZE)
    for medium, leading in ((DISK, len(prompt) - 1), (EXTERNAL, 0)):
        store = ReplayStore(len(prompt) - 1, medium)
        subject = make_stored_subject(REFERENCE, CONFIG, store.queue)
        replay(subject, REQUESTS[:1], store=store)
        assert store.pages == len(prompt) - 1
        assert store.run_of(prompt) == leading


def test_the_fast_cache_has_the_same_hits() -> None:
    """Each run of it counts what that of the plain cache does."""
    plain, fast = (
        [
            (each.device_hit_tokens, each.host_hit_tokens, each.store_hit_tokens, dict(each.events))
            for each in runs_over(ReplayStore(400), adapter)
        ]
        for adapter in (REFERENCE, load_adapter("optimized"))
    )
    assert fast == plain


@pytest.mark.parametrize("rate", [1.0, 0.2])
def test_a_replay_over_a_disk_is_judged(rate: float) -> None:
    """Every step holds, also where only a share of them is judged."""
    disk = ReplayStore(100)
    subject = make_stored_subject(REFERENCE, CONFIG, disk.queue)
    judgement = replay(subject, REQUESTS[:30], rate, store=disk).judgement
    assert judgement is not None
    assert not judgement.broken, judgement.words
    assert judgement.laws["TIER-1"]
