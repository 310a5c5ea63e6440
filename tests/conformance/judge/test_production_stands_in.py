"""The guard in production is taken for its cache, and its copies are copies of the cache."""

from __future__ import annotations

import copy
import pickle
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from inspect import signature
from typing import Any, Self, cast

import pytest

from in_production import CONFIG, KEY, OTHER, Boasting, is_clean, serve, wrapped
from kvcanon.conformance import ProductionGuard, UsageError, production_guard
from kvcanon.reference import ReferenceCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.operations import Matched
from kvcanon.spec.types import Slots


class Fancy(ReferenceCache):
    """A cache with what an engine's own may have besides the protocol."""

    page_budget = 7
    Policy = dict

    def __init__(self, config: CacheConfig) -> None:
        super().__init__(config)
        self._private = "the cache's"
        self._lock = self._cache = self._judge = self._rate = "the cache's, too"
        self.policy: Callable[[], str] = partial(str, "fifo")
        self.closed = False

    def __len__(self) -> int:
        return 0

    def __contains__(self, key: object) -> bool:
        return key == KEY

    def __iter__(self) -> Iterator[int]:
        return iter((1, 2))

    def __getitem__(self, at: int) -> int:
        return at

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True

    @property
    def pressure(self) -> float:
        return 0.5

    @classmethod
    def kind(cls) -> str:
        return cls.__name__

    @staticmethod
    def twice(number: int) -> int:
        return 2 * number

    def tune(self) -> Fancy:
        return self


def test_the_guard_is_taken_for_the_cache() -> None:
    """By type, by attributes of every kind, by private names, by operators, in both directions."""
    inner = Fancy(CONFIG)
    cache, guarded = wrapped(inner)
    assert isinstance(cache, Fancy)
    assert isinstance(guarded, ProductionGuard)
    assert cache._private == "the cache's"
    assert cache._lock == cache._cache == cache._judge == cache._rate == "the cache's, too"
    assert (cache.page_budget, cache.pressure, cache.kind(), cache.twice(2)) == (7, 0.5, "Fancy", 4)
    assert cache.Policy is dict
    assert isinstance(cache.policy, partial)
    assert (len(cache), KEY in cache, OTHER in cache, list(cache), cache[3]) == (
        *(0, True, False),
        *([1, 2], 3),
    )
    assert not cache
    assert cache == inner
    assert inner == cache
    assert cache != Fancy(CONFIG)
    assert {inner: 1}[cache] == {cache: 1}[inner] == 1
    assert vars(cache) is vars(inner)
    assert set(dir(inner)) <= set(dir(cache))
    assert signature(cache.match) == signature(inner.match)
    assert cache.match.__name__ == "match"
    assert cache.match == cache.match
    with pytest.raises(AttributeError, match="no_such"):
        cast("Any", cache).no_such  # noqa: B018  # It raises.
    assert not hasattr(cache, "__fspath__")


def test_what_an_engine_sets_is_set_on_the_cache() -> None:
    """Also a method that it replaces, whose calls are judged as those of the one before."""
    inner: Any = Fancy(CONFIG)
    cache, guarded = wrapped(inner)
    serve(cache)
    cache.page_budget = 9
    cache._rate = 5
    assert (inner.page_budget, inner._rate) == (9, 5)
    del cache._rate
    assert not hasattr(inner, "_rate")
    cache.match = Boasting(CONFIG).match
    assert cache.match(KEY).prefix_pages == 2
    assert "MATCH-1" not in guarded.counts.violations
    cache.match = lambda key: Matched(9, 0, Slots())
    assert cache.match(OTHER).prefix_pages == 9
    assert guarded.counts.violations


def test_a_cache_that_answers_itself_answers_its_guard() -> None:
    """Else the engine would go on past the guard, which would accuse it."""
    inner = Fancy(CONFIG)
    cache, guarded = wrapped(inner)
    assert cache.tune() is cache
    with cast("AbstractContextManager[Any]", cache) as entered:
        assert entered is cache
        serve(entered)
    assert inner.closed
    assert is_clean(guarded)


def test_a_copy_of_the_guard_is_a_copy_of_the_cache() -> None:
    """By copy or pickle: a judge knows one cache only."""
    cache, guarded = wrapped(ReferenceCache(CONFIG))
    serve(cache)
    for copied in (copy.copy(cache), copy.deepcopy(cache), pickle.loads(pickle.dumps(cache))):  # noqa: S301  # Just made.
        assert type(copied) is ReferenceCache
        assert copied.match(KEY).device_pages == 2
    deep = copy.deepcopy({"cache": cache, "again": cache})
    assert deep["cache"] is deep["again"]
    serve(deep["cache"], OTHER)
    serve(cache, OTHER)
    assert is_clean(guarded)
    assert weakref.ref(cache)() is cache


def test_a_cache_with_names_of_the_guard_is_refused() -> None:
    """The engine would get the guard's counts for its own."""

    class Counting(ReferenceCache):
        counts = 5

    with pytest.raises(UsageError, match="the cache has a `counts` of its own"):
        production_guard(Counting(CONFIG))
