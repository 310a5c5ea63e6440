"""Black-box checks: a law is exercised where a faulty cache could have failed it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

import pytest

import kvcanon.spec.laws  # noqa: F401  # Importing the laws registers them.
from kvcanon.conformance.judge.from_outside.checks import Checks
from kvcanon.conformance.judge.from_outside.request.guard import RequestBlackboxGuard
from kvcanon.conformance.judge.from_outside.tree.guard import BlackboxGuard
from kvcanon.conformance.protocol.adapter import (
    Adapter,
    CacheKind,
    make_request_subject,
    make_subject,
)
from kvcanon.reference import ReferenceCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import CacheError
from kvcanon.spec.law import LAWS
from kvcanon.spec.types import Counts, Key, make_key
from serving import ServingCache

CONFIG = CacheConfig(device_slots=Counts(full=6))
KEY = make_key([1, 2], 1)
Use: TypeAlias = Callable[[BlackboxGuard], object]


def acceptor() -> BlackboxGuard:
    """Return an empty plain cache under a guard."""
    adapter = Adapter("plain", ReferenceCache)
    return BlackboxGuard(make_subject(adapter, CONFIG), adapter.profile, LAWS.values())


def serve(cache: BlackboxGuard, key: Key) -> None:
    """Insert a key that shares nothing with the cache."""
    cache.insert(key, 0, cache.allocate(Counts(len(key))))


def exercised_by(use: Use, *, after: Use = lambda _: None) -> set[str]:
    """Return the laws that some calls exercise, or one refused call, after others."""
    cache = acceptor()
    after(cache)
    before = cache.laws_exercised.copy()
    with suppress(CacheError):
        use(cache)
    return set(cache.laws_exercised - before)


def test_a_law_counts_once_an_operation() -> None:
    """An operation with many pages counts once."""
    checks = Checks(["MATCH-3"])
    for _ in range(5):
        checks.note("MATCH-3", None, met=True)
    assert not checks.close()
    assert checks.laws_exercised == {"MATCH-3": 1}


def test_an_operation_that_breaks_a_law_is_evidence_of_none() -> None:
    """An operation that broke a law exercises no law."""
    checks = Checks(["MATCH-1", "MATCH-3"])
    checks.note("MATCH-1", None, met=True)
    checks.note("MATCH-3", "wrong", met=True)
    assert [each.law.law_id for each in checks.close()] == ["MATCH-3"]
    assert not checks.close()
    assert not checks.laws_exercised


def test_a_check_without_substance_still_accuses() -> None:
    """A fault is reported even by a check that exercises no law."""
    checks = Checks(["LOCK-10"])
    checks.note("LOCK-10", "released twice", met=False)
    assert [each.text for each in checks.close()] == ["released twice"]


def test_a_law_that_is_not_asked_is_not_noted() -> None:
    """A check of a law that is not judged counts nothing and reports nothing."""
    checks = Checks(["MATCH-1"])
    checks.note("LOCK-10", "released twice", met=True)
    assert not checks.close()
    assert not checks.laws_exercised


def fill(cache: BlackboxGuard) -> None:
    """Insert a prompt."""
    serve(cache, KEY)


@pytest.mark.parametrize(
    "use",
    [
        lambda cache: cache.match(KEY),
        lambda cache: cache.lock(Key(())),
        lambda cache: cache.allocate(Counts()),
        lambda cache: cache.evict(Counts(full=3)),
        lambda cache: cache.take_events(),
    ],
    ids=["match", "lock", "allocate", "evict", "take_events"],
)
def test_a_call_that_comes_to_nothing_exercises_no_law(use: Use) -> None:
    """Calls on an empty cache exercise no law."""
    assert not exercised_by(use)


@pytest.mark.parametrize(
    ("use", "law_ids"),
    [
        (lambda cache: cache.match(KEY), {"MATCH-1", "MATCH-2", "MATCH-3", "EVENT-5"}),
        (lambda cache: cache.lock(KEY), {"LOCK-9", "EVENT-5"}),
        (lambda cache: cache.allocate(Counts(1)), {"ALLOC-1", "ALLOC-5", "EVENT-5"}),
        (lambda cache: cache.allocate(Counts(7)), {"REFUSE-1", "ALLOC-6", "EVENT-5"}),
        (lambda cache: cache.evict(Counts()), {"EVICT-2", "EVENT-4"}),
        (lambda cache: cache.reset(), {"ALLOC-7", "EVENT-8"}),
    ],
    ids=["match", "lock", "allocate", "refused", "evict nothing", "reset"],
)
def test_a_call_exercises_the_laws_that_it_could_have_broken(use: Use, law_ids: set[str]) -> None:
    """Each call exercises exactly the laws that it could break."""
    assert exercised_by(use, after=fill) == law_ids


def test_an_insert_and_an_eviction_are_evidence() -> None:
    """An insert and an eviction exercise their laws."""
    assert exercised_by(lambda cache: serve(cache, KEY)) >= {"MATCH-6", "ALLOC-3", "EVENT-1"}
    evicted = exercised_by(lambda cache: cache.evict(Counts(full=1)), after=fill)
    assert evicted >= {"EVICT-1", "EVENT-2", "ALLOC-3"}
    assert "EVICT-3" not in evicted
    # There is no other leaf that could have been next.
    assert "REC-3" not in evicted


def requests() -> RequestBlackboxGuard:
    """Return an empty request cache under a guard."""
    adapter = Adapter("serving", ServingCache, kind=CacheKind.REQUEST)
    subject = make_request_subject(adapter, CONFIG)
    return RequestBlackboxGuard(subject, adapter.profile, LAWS.values(), black_box=True)


def test_a_request_exercises_reuse_only_where_something_is_reused() -> None:
    """A cache that reuses nothing does not exercise the laws of reuse."""
    cache = requests()
    cache.admit(1, KEY)
    cache.finish(1)
    of_reuse = {"MATCH-2", "MATCH-3", "MATCH-6", "ALLOC-1"}
    assert not of_reuse & set(cache.laws_exercised)
    cache.admit(2, make_key([1, 2, 3], 1))
    assert of_reuse - {"ALLOC-1"} <= set(cache.laws_exercised)
    cache.admit(3, make_key([5], 1))
    assert "ALLOC-1" in cache.laws_exercised
