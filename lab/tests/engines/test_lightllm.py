"""lightllm's radix cache behind its adapter: sound as it is, and each planted fault is found."""

from __future__ import annotations

from importlib import import_module
from typing import Any, cast

import pytest

from engine_here import adapter_here, broken_laws
from kvcanon.spec.cache import Cache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument, PrefixNotCached
from kvcanon.spec.operations import Inserted
from kvcanon.spec.types import Counts, make_key

LIGHT = adapter_here("lightllm")
CASES = 60


def radix() -> Any:  # noqa: ANN401 # lightllm's module.
    """Return lightllm's module."""
    return import_module("lightllm.server.router.dynamic_prompt.radix_cache")


def made() -> Cache:
    """Make a cache with six slots."""
    return cast("Cache", LIGHT.make(CacheConfig(device_slots=Counts(full=6))))


def test_cache_is_sound() -> None:
    """No case finds anything."""
    assert broken_laws(LIGHT, CASES) == set()


def test_duplicates_are_freed() -> None:
    """An insert keeps the slots of the tree, and the scheduler frees the others."""
    cache = made()
    cache.insert(make_key([1, 2], 1), 0, cache.allocate(Counts(full=2)))
    answer = cache.insert(make_key([1, 2, 3], 1), 0, cache.allocate(Counts(full=3)))
    assert answer == Inserted(2, Counts(full=1), Counts(full=2))
    assert cache.allocate(Counts(full=3)).counts() == Counts(full=3)


def test_only_what_was_matched_last_is_locked() -> None:
    """A lock follows a match; another lock is refused, as is one of what is not cached."""
    cache = made()
    one, other = make_key([1], 1), make_key([2], 1)
    for key in (one, other):
        cache.insert(key, 0, cache.allocate(Counts(full=1)))
    cache.match(one)
    with pytest.raises(BadArgument, match="is not what the last match found"):
        cache.lock(other)
    with pytest.raises(PrefixNotCached):
        cache.lock(make_key([3], 1))
    receipt = cache.lock(one)
    assert cache.evict(Counts(full=2)).freed == Counts(full=1)
    cache.unlock(receipt)
    assert cache.evict(Counts(full=2)).freed == Counts(full=1)


def test_match_keeps_no_reference() -> None:
    """What a match found can be evicted."""
    cache = made()
    key = make_key([1, 2], 1)
    cache.insert(key, 0, cache.allocate(Counts(full=2)))
    assert cache.match(key).prefix_pages == 2
    assert cache.evict(Counts(full=2)).freed == Counts(full=2)


def test_match_that_refreshes_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Data that is used again and again is evicted as if it were old."""
    monkeypatch.setattr(radix().TreeNode, "update_time", lambda _: None)
    assert "REC-3" in broken_laws(LIGHT, CASES)


def test_cut_that_forgets_its_references_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The upper part of a locked node that is cut has no reference."""
    node = radix().TreeNode
    original = node.split_node

    def split(self: Any, at: int) -> Any:  # noqa: ANN401 # lightllm's.
        """Cut a node without its references."""
        upper = original(self, at)
        upper.ref_counter = 0
        return upper

    monkeypatch.setattr(node, "split_node", split)
    assert broken_laws(LIGHT, CASES)


def test_wrong_slots_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cut that gives both parts the wrong slots is found."""
    node = radix().TreeNode
    original = node.split_node

    def split(self: Any, at: int) -> Any:  # noqa: ANN401 # lightllm's.
        """Cut a node, and turn the slots of its upper part around."""
        upper = original(self, at)
        upper.token_mem_index_value = upper.token_mem_index_value.flip(0)
        return upper

    monkeypatch.setattr(node, "split_node", split)
    assert {"MATCH-3", "DATA-1"} & broken_laws(LIGHT, CASES)
