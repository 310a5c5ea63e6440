"""mini-sglang's radix cache behind its adapter: what it breaks, and planted faults are found."""

from __future__ import annotations

from importlib import import_module
from typing import Any, cast

import pytest

from engine_here import adapter_here, broken_laws
from kvcanon.spec.cache import Cache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.operations import Inserted
from kvcanon.spec.types import Counts, make_key

MINI = adapter_here("mini-sglang")
CASES = 60


def radix() -> Any:  # noqa: ANN401 # mini-sglang's module.
    """Return mini-sglang's module."""
    return import_module("minisgl.kvcache.radix_cache")


def made() -> Cache:
    """Make a cache with pages of two tokens and six slots."""
    return cast("Cache", MINI.make(CacheConfig(page_size=2, device_slots=Counts(full=6))))


def test_duplicates_are_freed() -> None:
    """An insert keeps the slots of the tree, and the scheduler frees the others."""
    cache = made()
    cache.insert(make_key([1, 2, 3, 4], 2), 0, cache.allocate(Counts(full=2)))
    longer = make_key([1, 2, 3, 4, 5, 6], 2)
    answer = cache.insert(longer, 0, cache.allocate(Counts(full=3)))
    assert answer == Inserted(2, Counts(full=1), Counts(full=2))
    assert cache.allocate(Counts(full=3)).counts() == Counts(full=3)


def test_lock_inside_a_node_is_refused() -> None:
    """A key that ends inside a node has no handle, until a match has cut the node."""
    cache = made()
    cache.insert(make_key([1, 2, 3, 4], 2), 0, cache.allocate(Counts(full=2)))
    upper = make_key([1, 2], 2)
    with pytest.raises(BadArgument, match="ends inside a node"):
        cache.lock(upper)
    cache.match(upper)
    cache.unlock(cache.lock(upper))


def test_only_the_partial_hit_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a cut makes its upper part recent, nothing is found."""
    assert broken_laws(MINI, CASES) <= {"REC-3"}
    node, cache = radix().RadixTreeNode, radix().RadixPrefixCache
    original, walk = node.split_at, cache._tree_walk

    def split(self: Any, at: int) -> Any:  # noqa: ANN401 # mini-sglang's.
        """Cut a node, and mark the upper part."""
        upper = original(self, at)
        upper.timestamp = radix().time.monotonic_ns()
        return upper

    def walked(self: Any, tokens: Any) -> Any:  # noqa: ANN401 # mini-sglang's.
        """Walk, and give the whole path the time of its end."""
        found = walk(self, tokens)
        above = found[0]
        while not above.is_root():
            above.timestamp = found[0].timestamp
            above = above.parent
        return found

    monkeypatch.setattr(node, "split_at", split)
    monkeypatch.setattr(cache, "_tree_walk", walked)
    assert broken_laws(MINI, CASES) == set()


def test_lock_that_does_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Locked data is evicted."""
    monkeypatch.setattr(radix().RadixPrefixCache, "lock_handle", lambda *_, **__: None)
    assert "LOCK-4" in broken_laws(MINI, CASES)


def test_cut_that_forgets_its_locks_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The upper part of a locked node that is cut is not locked."""
    node = radix().RadixTreeNode
    original = node.split_at

    def split(self: Any, at: int) -> Any:  # noqa: ANN401 # mini-sglang's.
        """Cut a node without its references."""
        upper = original(self, at)
        upper.ref_count = 0
        return upper

    monkeypatch.setattr(node, "split_at", split)
    assert broken_laws(MINI, CASES) - {"REC-3"}


def test_wrong_slots_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cut that gives both parts the wrong slots is found."""
    node = radix().RadixTreeNode
    original = node.split_at

    def split(self: Any, at: int) -> Any:  # noqa: ANN401 # mini-sglang's.
        """Cut a node, and exchange the slots of two parts of the same length."""
        upper = original(self, at)
        if upper.length == self.length:
            upper._value, self._value = self._value, upper._value
        return upper

    monkeypatch.setattr(node, "split_at", split)
    assert {"MATCH-3", "DATA-1"} & broken_laws(MINI, CASES)
