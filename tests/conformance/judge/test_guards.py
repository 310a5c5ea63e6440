"""`guard` judges any cache: by its states, or by its answers and events if it shows no states."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, cast

import pytest
from attrs import evolve

from hash_blocks import ADAPTER, HashBlockCache
from kvcanon.conformance import Adapter, UsageError, ViolationError, guard
from kvcanon.conformance.judge.by_states.guard import GuardedCache
from kvcanon.conformance.judge.from_outside.request.guard import RequestBlackboxGuard
from kvcanon.conformance.judge.from_outside.tree.guard import BlackboxGuard
from kvcanon.conformance.protocol.request import Admitted
from kvcanon.conformance.protocol.tree import TreeCache
from kvcanon.reference import ReferenceCache
from kvcanon.spec.cache import Cache
from kvcanon.spec.config import CacheConfig, Profile
from kvcanon.spec.law import LAWS, Need, Violation
from kvcanon.spec.operations import Matched
from kvcanon.spec.types import Counts, Key, make_key
from kvcanon.spec.views import Step

CONFIG = CacheConfig(page_size=2, device_slots=Counts(full=8))
KEY, OTHER = make_key([1, 2, 3, 4], 2), make_key([1, 2, 9, 9], 2)


class Shut(ReferenceCache):
    """Has no snapshot."""

    snapshot = None  # type: ignore[assignment]


class Least(Shut):
    """Has the methods that every cache has, and no others."""

    free_slots = take_events = read = write = None  # type: ignore[assignment]
    evict = evict_host = load_back = insert_host = poll = flush = None  # type: ignore[assignment]
    unlock_window = reset = None  # type: ignore[assignment]


class Mute(ReferenceCache):
    """Shows its states, and keeps its events to itself."""

    take_events = None  # type: ignore[assignment]

    def snapshot(self):  # type: ignore[no-untyped-def]  # noqa: ANN201
        return evolve(super().snapshot(), events=())


class Lying(Shut):
    """Says of each match that all pages of the key are cached."""

    def match(self, key: Key) -> Matched:
        return evolve(super().match(key), prefix_pages=len(key))


def serve(cache: Cache, key: Key = KEY) -> None:
    """Serve one request."""
    found = cache.match(key)
    receipt = cache.lock(key.prefix(found.device_pages))
    slots = cache.allocate(Counts(len(key) - found.device_pages))
    cache.insert(key, found.device_pages, slots)
    cache.unlock(receipt)


def wrapped(cache: TreeCache, **how: object) -> BlackboxGuard:
    """Guard a cache that must be judged from outside."""
    guarded = guard(cache, **how)  # type: ignore[call-overload]
    assert isinstance(guarded, BlackboxGuard)
    return guarded


@pytest.mark.parametrize("kind", [Shut, Least])
def test_cache_without_snapshot_is_judged_by_its_answers(kind: type[ReferenceCache]) -> None:
    """A sound cache that shows no states passes, and its laws of answers are exercised."""
    guarded = wrapped(kind(CONFIG))
    for key in (KEY, OTHER, KEY):
        serve(cast("Cache", guarded), key)
    assert guarded.judged == guarded.steps > 10
    assert guarded.laws_exercised["MATCH-2"] > 0
    assert bool(guarded.laws_exercised["EVENT-4"]) == (kind is Shut)


def test_fault_of_a_cache_without_snapshot_is_raised() -> None:
    """A match that finds what was never inserted is a violation."""
    with pytest.raises(ViolationError, match="MATCH-1"):
        wrapped(Lying(CONFIG)).match(KEY)


def test_violations_of_a_cache_without_snapshot_are_passed_on() -> None:
    """With `on_violation` the cache goes on; there is no step to pass."""
    noted: list[tuple[str, Step | None]] = []

    def note(violation: Violation, step: Step | None) -> None:
        noted.append((violation.law.law_id, step))

    assert wrapped(Lying(CONFIG), on_violation=note).match(KEY).prefix_pages == len(KEY)
    assert ("MATCH-1", None) in noted


def test_wrong_answer_is_passed_on() -> None:
    """An answer of a wrong type does not stop a cache whose violations are passed on."""

    class Listing(Shut):
        def allocate(self, counts):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
            return list(super().allocate(counts).full)

    noted: list[Violation] = []
    for cache in (
        Listing(CONFIG),
        type("Seen", (Listing,), {"snapshot": ReferenceCache.snapshot})(CONFIG),
    ):
        guarded = guard(cache, on_violation=lambda violation, _: noted.append(violation))
        assert guarded.allocate(Counts(2)) == [0, 1]  # type: ignore[comparison-overlap]
        assert [each.law.law_id for each in noted] == ["REFUSE-4"]
        assert noted.pop().text == "allocate answered [0, 1], a list; it must be a Slots"


def test_cache_without_events_is_not_accused_of_silence() -> None:
    """The laws of events are left out where the cache has no `take_events`."""
    guarded = guard(cast("Cache", Mute(CONFIG)))
    assert isinstance(guarded, GuardedCache)
    for key in (KEY, OTHER):
        serve(guarded, key)
    assert guarded.laws_exercised["TREE-1"] > 0
    assert not [law for law in guarded.laws_exercised if law.startswith("EVENT")]


def test_hidden_needs_leave_out_their_laws() -> None:
    """What the snapshots hide is given by name, or by the adapter."""

    class Ageless(ReferenceCache):
        def snapshot(self):  # type: ignore[no-untyped-def]  # noqa: ANN202
            state = super().snapshot()
            return evolve(state, recency=dict.fromkeys(state.recency, ()))

    with pytest.raises(ViolationError):
        serve(guard(Ageless(CONFIG)))
    hidden = frozenset({Need.RECENCY})
    for guarded in (
        guard(Ageless(CONFIG), hides=hidden),
        guard(Ageless(CONFIG), adapter=Adapter("it", Ageless, hides=hidden)),
    ):
        serve(guarded)
        assert not [law for law in guarded.laws_exercised if Need.RECENCY in LAWS[law].needs]


def test_hidden_snapshots_are_not_read() -> None:
    """A cache whose snapshots are hidden is judged from outside."""
    assert isinstance(guard(ReferenceCache(CONFIG), hides={Need.SNAPSHOT}), BlackboxGuard)


def test_laws_are_chosen_by_id() -> None:
    """Only the named laws are checked, in both ways of judging."""
    wrapped(Lying(CONFIG), laws=["ALLOC-3"]).match(KEY)
    guarded = guard(ReferenceCache(CONFIG), laws=["RES-4", LAWS["TREE-1"]])
    serve(guarded)
    assert guarded.laws_exercised.keys() == {"RES-4", "TREE-1"}
    with pytest.raises(UsageError, match="no law RES-44; near it are RES-4"):
        guard(ReferenceCache(CONFIG), laws=["RES-44"])


def test_profile_of_the_adapter_counts() -> None:
    """Without snapshots the profile is the adapter's."""
    declared = Adapter("it", Shut, profile=Profile(split_keeps_recency=False))
    assert wrapped(Shut(CONFIG), adapter=declared)._state.profile == declared.profile


def test_sample_of_a_cache_without_snapshot_is_refused() -> None:
    """Answers are compared with all earlier answers, so each call is judged."""
    with pytest.raises(UsageError, match=r"rate is 0\.1; a cache without `snapshot`"):
        guard(cast("TreeCache", Shut(CONFIG)), rate=0.1)


def test_used_cache_without_snapshot_is_refused() -> None:
    """What is cached already cannot be known."""
    cache = Shut(CONFIG)
    serve(cast("Cache", cache))
    with pytest.raises(UsageError, match="the cache is in use: 2 full slots on GPU"):
        guard(cast("TreeCache", cache))


def test_cache_of_requests_is_judged() -> None:
    """A cache that is used by requests is known by its methods, or by its adapter."""
    config = CacheConfig(page_size=2, device_slots=Counts(full=8))
    guarded = guard(HashBlockCache(config), adapter=ADAPTER)
    assert isinstance(guarded, RequestBlackboxGuard)
    assert guarded.admit(1, KEY).reused_pages == 0
    guarded.finish(1)
    assert guarded.admit(2, KEY).reused_pages > 0
    assert guarded.laws_exercised["MATCH-6"] > 0
    assert guarded.judged == 3

    class Boasting(HashBlockCache):
        def admit(self, request_id: int, key: Key) -> Admitted:
            return evolve(super().admit(request_id, key), reused_pages=len(key))

    with pytest.raises(ViolationError):
        guard(Boasting(config)).admit(1, KEY)
    noted: list[Violation] = []
    passing = guard(Boasting(config), on_violation=lambda violation, _: noted.append(violation))
    assert passing.admit(1, KEY).reused_pages == len(KEY)
    assert noted


@pytest.mark.parametrize("kind", ["states", "answers", "requests"])
def test_two_threads_at_one_time_are_refused(kind: str) -> None:
    """A guard of tests judges one call after the other; calls of threads in turn are judged."""
    begun, may_end = threading.Event(), threading.Event()

    def waits(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:  # noqa: ANN401  # As the method.
            begun.set()
            assert may_end.wait(20)
            return method(*args)

        return call

    base = {"states": ReferenceCache, "answers": Shut, "requests": HashBlockCache}[kind]
    first, second = ("admit", "abort") if kind == "requests" else ("match", "allocate")
    inner = type("Slow", (base,), {})(CONFIG)
    setattr(inner, first, waits(getattr(inner, first)))
    cache = cast("Any", guard(inner))
    args: tuple[Any, ...] = (1, KEY) if kind == "requests" else (KEY,)
    other = threading.Thread(target=getattr(cache, first), args=args)
    other.start()
    assert begun.wait(20)
    with pytest.raises(UsageError, match="two threads called a guarded cache at one time"):
        getattr(cache, second)(1 if kind == "requests" else Counts(1))
    may_end.set()
    other.join(20)
    getattr(cache, second)(1 if kind == "requests" else Counts(1))
    assert cache.steps == 2
