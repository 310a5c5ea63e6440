"""Replay: real requests through a cache, counted, timed and, on request, judged step by step.

A hit rate is not a verdict. Sound caches differ in what they keep; only the guard finds a broken
law.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from time import process_time
from typing import Protocol, TypeAlias

from attrs import asdict, evolve, frozen

from kvcanon.conformance.errors import OnShould, ViolationError
from kvcanon.conformance.judge import (
    BlackboxGuard,
    GuardedCache,
    RequestBlackboxGuard,
    guard_subject,
    require_all,
)
from kvcanon.conformance.protocol.adapter import RequestSubject, Subject
from kvcanon.conformance.replay.engine import ReplayStats, TreeEngine, counts_of
from kvcanon.conformance.replay.latency import Latency, TimedCache
from kvcanon.conformance.replay.request_engine import (
    RequestEngine,
    ServedByRequests,
    TimedRequestCache,
)
from kvcanon.conformance.replay.store import ReplayStore
from kvcanon.conformance.replay.workloads.request import Request
from kvcanon.spec.cache import Cache
from kvcanon.spec.config import CANON, Profile
from kvcanon.spec.law import LAWS, Need
from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.types import CPU, FULL, GPU, SWA, Counts

Judge: TypeAlias = GuardedCache | BlackboxGuard | RequestBlackboxGuard


@frozen
class TreeShape:
    """The tree at the end of a replay."""

    nodes: int
    """Nodes without the root."""
    branches: int
    """Nodes below the root with several children: each was cut where prompts diverge."""
    tombstones: int
    """Nodes with full data on the device that have lost their window data there."""
    device_pages: int
    host_only_pages: int


@frozen
class Judgement:
    """The results of the guard."""

    rate: float
    steps: int
    judged: int
    """Steps after which laws were checked."""
    laws: Mapping[str, int]
    """How often each law was exercised."""
    broken: tuple[str, ...]
    """The broken laws, by id; the replay ended there."""
    words: str
    """The violations as text; empty if there are none."""
    unkept: tuple[str, ...] = ()
    """Broken SHOULD laws; the replay went on."""


@frozen
class Replay:
    """The results of a replay."""

    requests: int
    rejected: int
    prompt_tokens: int
    """Prompt tokens of all requests, rejected ones included."""
    device_hit_tokens: int
    host_hit_tokens: int
    """Tokens that were usable only after a load-back, which may have loaded window data only."""
    store_hit_tokens: int
    """Of these, tokens whose pages came from the store for the request."""
    resident_tokens: int
    """Tokens that memory had before their request, or the store; 0 without a store."""
    load_backs: int
    loaded: Counts
    backups: int
    """Copies enqueued by inserts; copies by evictions under write_back show only in the events."""
    backup_declined_pages: int
    failed_transfers: int
    evicted: Counts
    """Device slots."""
    events: Mapping[str, int]
    """By kind and medium."""
    operations: Mapping[str, Latency]
    processor_seconds: float
    """Of this process, for the requests and the judge; without what reading the requests took."""
    tree: TreeShape | None
    """None if the cache does not show its state."""
    judgement: Judgement | None
    """None if the replay was not judged."""

    @property
    def hit_rate(self) -> float:
        """The share of prompt tokens that were not computed again."""
        hit_tokens = self.device_hit_tokens + self.host_hit_tokens
        return hit_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    @property
    def cache_seconds(self) -> float:
        """Time inside the cache's operations, without the workload and the judge."""
        return sum(each.seconds for each in self.operations.values())

    @property
    def requests_per_second(self) -> float:
        """Requests per second of `cache_seconds`."""
        return self.requests / self.cache_seconds if self.cache_seconds else 0.0

    def to_json(self) -> dict[str, object]:
        """Return all fields as JSON values."""
        derived = {
            "hit_rate": self.hit_rate,
            "cache_seconds": self.cache_seconds,
            "requests_per_second": self.requests_per_second,
        }
        return asdict(self) | derived


class ReplayWatch(Protocol):
    """Sees the calls of a replay."""

    def around(self, cache: Cache) -> Cache:
        """A cache whose calls it sees."""

    def around_requests(self, cache: ServedByRequests) -> ServedByRequests:
        """A cache of requests whose calls it sees."""

    def served(self, tally: ReplayStats) -> None:
        """A request was served, or rejected; the counts are those of all requests so far."""


def replay(
    subject: Subject | RequestSubject,
    requests: Iterable[Request],
    guard_rate: float = 0.0,
    seed: int = 0,
    profile: Profile = CANON,
    *,
    watch: ReplayWatch | None = None,
    store: ReplayStore | None = None,
) -> Replay:
    """Serve the requests in order from an empty cache, with a share of the steps judged.

    `watch` sees every call and its answer, and the counts after each request. `store` is below the
    host tier of the subject. The replay ends early
    only if a law is broken. Operations that the cache lacks are left out.

    Raises:
        CacheError: the cache refused a call that a sound cache cannot refuse.
        UsageError: a sample of the steps cannot be judged, as the cache shows no states.
    """
    unkept: set[str] = set()

    def note(found: ViolationError) -> None:
        unkept.update(each.law.law_id for each in found.violations)

    timed: TimedCache | TimedRequestCache
    judge: Judge | None
    engine: TreeEngine | RequestEngine
    if isinstance(subject, RequestSubject):
        timed = TimedRequestCache(subject.cache)
        judge = _request_judge(subject, timed, guard_rate, profile, note)
        served = timed if judge is None else judge
        engine = RequestEngine(
            served if watch is None else watch.around_requests(served), can=subject.can
        )
    else:
        timed = TimedCache(subject.cache)
        judge = _tree_judge(subject, timed, guard_rate, seed, profile=profile, on_should=note)
        called = timed if judge is None else judge
        engine = TreeEngine(
            called if watch is None else watch.around(called),
            stamped=judge is not None,
            can=subject.can,
            copies=subject.copies,
            states_within=subject.states_within,
            store=store,
        )
    broken: tuple[str, ...] = ()
    words = ""
    began = process_time()
    try:
        for request in requests:
            engine.serve(request)
            if watch is not None:
                watch.served(engine.tally)
    except ViolationError as violation:
        broken = tuple(dict.fromkeys(each.law.law_id for each in violation.violations))
        words = str(violation)
    processor_seconds = process_time() - began
    judgement = None
    if judge is not None:
        judgement = _judgement(judge, guard_rate, broken, words, unkept)
    shows_tree = Need.SNAPSHOT in subject.shows
    tree = tree_shape(subject.cache.snapshot()) if shows_tree else None
    return _replay(engine.tally, timed.latencies(), processor_seconds, tree, judgement)


def _judgement(
    judge: Judge, rate: float, broken: tuple[str, ...], words: str, unkept: Collection[str]
) -> Judgement:
    return Judgement(
        rate,
        judge.steps,
        judge.judged,
        dict(judge.laws_exercised),
        broken,
        words,
        tuple(law_id for law_id in LAWS if law_id in unkept),
    )


def _tree_judge(
    subject: Subject,
    timed: TimedCache,
    rate: float,
    seed: int,
    *,
    profile: Profile,
    on_should: OnShould,
) -> GuardedCache | BlackboxGuard | None:
    """The judge of a replay; None at a rate of 0. Copies end by themselves in a replay."""
    if not rate:
        return None
    watched = evolve(subject, cache=timed, copies=None, shows=subject.shows - {Need.ENDS})
    laws = tuple(LAWS.values())
    return guard_subject(watched, rate, seed, laws, profile=profile, on_should=on_should)


def _request_judge(
    subject: RequestSubject,
    timed: TimedRequestCache,
    rate: float,
    profile: Profile,
    on_should: OnShould,
) -> RequestBlackboxGuard | None:
    """The judge of a replay by requests; None at a rate of 0."""
    if not rate:
        return None
    require_all(rate)
    watched = evolve(subject, cache=timed)
    laws = tuple(LAWS.values())
    return RequestBlackboxGuard(watched, profile, laws, on_should, black_box=False)


def tree_shape(state: Snapshot) -> TreeShape:
    """Return the shape of the tree in a state."""
    nodes = list(state.below_root())
    has_window = SWA in state.config.components
    return TreeShape(
        nodes=len(nodes),
        branches=sum(len(node.child_ids) > 1 for node in nodes),
        tombstones=sum(
            has_window and node[FULL].device is not None and node[SWA].device is None
            for node in nodes
        ),
        device_pages=sum(len(node.pages) for node in nodes if node[FULL].resident(GPU)),
        host_only_pages=sum(
            len(node.pages)
            for node in nodes
            if node[FULL].resident(CPU) and not node[FULL].resident(GPU)
        ),
    )


def _replay(
    tally: ReplayStats,
    operations: Mapping[str, Latency],
    processor_seconds: float,
    tree: TreeShape | None,
    judgement: Judgement | None,
) -> Replay:
    return Replay(
        requests=tally.requests,
        rejected=tally.rejected,
        prompt_tokens=tally.prompt_tokens,
        device_hit_tokens=tally.device_hit_tokens,
        host_hit_tokens=tally.host_hit_tokens,
        store_hit_tokens=tally.store_hit_tokens,
        resident_tokens=tally.resident_tokens,
        load_backs=tally.load_backs,
        loaded=counts_of(tally.loaded),
        backups=tally.backups,
        backup_declined_pages=tally.backup_declined_pages,
        failed_transfers=tally.failed_transfers,
        evicted=counts_of(tally.evicted),
        events=dict(tally.events),
        operations=operations,
        processor_seconds=processor_seconds,
        tree=tree,
        judgement=judgement,
    )
