"""transformers' paged cache behind its adapter: it breaks no law, and planted faults are found."""

from __future__ import annotations

from importlib import import_module
from typing import Any, cast

import pytest

from engine_here import adapter_here, broken_laws
from kvcanon.conformance.protocol.request import FullRequestCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument, OutOfSlots
from kvcanon.spec.types import Counts, make_key

PAGED = adapter_here("transformers")
CASES = 60
KEY = make_key([1, 2, 3, 4], 2)
LONGER = make_key([1, 2, 3, 4, 5, 6, 7, 8], 2)


def made(blocks: int) -> FullRequestCache:
    """Make a cache with blocks of two tokens."""
    return cast(
        "FullRequestCache", PAGED.make(CacheConfig(page_size=2, device_slots=Counts(full=blocks)))
    )


def allocators() -> Any:  # noqa: ANN401 # transformers' module.
    """Return transformers' module of blocks."""
    return import_module(
        "transformers.generation.continuous_batching.cache_allocators.cache_allocator"
    )


def test_request_grows_and_its_pages_are_reused() -> None:
    """Blocks are found by the next request, but for the last one, which is computed again."""
    cache = made(8)
    table = cache.admit(1, KEY).slots.full
    assert cache.extend(1, LONGER).full[:2] == table
    cache.finish(1)
    again = cache.admit(2, LONGER)
    assert again.reused_pages == 3
    assert again.slots.full[:2] == table


def test_duplicate_gives_way_to_the_block_that_is_there() -> None:
    """The last block of a prompt is computed again, and its copy is given up at once."""
    cache = made(4)
    first, second = cache.admit(1, KEY), cache.admit(2, KEY)
    assert (second.reused_pages, second.slots) == (1, first.slots)


def test_all_that_no_request_has_is_evicted_at_once() -> None:
    """An eviction of one block frees all that are cached, and none of a request."""
    cache = made(8)
    cache.admit(1, KEY)
    cache.admit(2, make_key([9, 9, 8, 8], 2))
    cache.finish(2)
    assert cache.evict(Counts()).freed == Counts()
    assert cache.evict(Counts(full=1)).freed == Counts(full=2)
    assert cache.admit(3, LONGER).reused_pages == 2


def test_refusals_leave_the_requests() -> None:
    """A request that cannot start or grow changes nothing."""
    cache = made(2)
    with pytest.raises(BadArgument, match="is empty"):
        cache.admit(1, make_key([], 2))
    with pytest.raises(OutOfSlots):
        cache.admit(1, make_key([1, 2, 3, 4, 5, 6], 2))
    table = cache.admit(1, KEY).slots
    with pytest.raises(OutOfSlots):
        cache.extend(1, LONGER)
    assert cache.extend(1, KEY) == table
    cache.finish(1)
    cache.reset()
    assert len(cache.admit(2, KEY).slots.full) == 2
    cache.abort(2)
    assert cache.admit(3, KEY).slots.counts() == Counts(full=2)


def test_no_law_is_broken() -> None:
    """The cache as it was published breaks no law."""
    assert broken_laws(PAGED, CASES) == set()


def test_hash_without_the_prefix_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block that is found by its own tokens alone is reused behind another prefix."""
    blocks = allocators()
    original = blocks.compute_block_hash
    monkeypatch.setattr(blocks, "compute_block_hash", lambda _, tokens: original(None, tokens))
    assert {"MATCH-1", "MATCH-2", "MATCH-3", "DATA-1"} & broken_laws(PAGED, CASES)


def test_evicted_block_that_keeps_its_hash_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block that is still found by what it held before holds another page."""
    ledger = allocators().BlockLedger

    def evict(self: Any) -> list[int]:  # noqa: ANN401 # transformers'.
        """Evict without forgetting."""
        evicted = list(self.cached_blocks)
        self.cached_blocks.clear()
        return evicted

    monkeypatch.setattr(ledger, "evict_cached_blocks", evict)
    assert broken_laws(PAGED, CASES)


def test_reference_that_is_not_counted_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block that two requests have is freed with the first of them."""
    ledger = allocators().BlockLedger

    def acquire(self: Any, block_id: int) -> None:  # noqa: ANN401 # transformers'.
        """Take a cached block, and count no further reference."""
        self.cached_blocks.pop(block_id, None)

    monkeypatch.setattr(ledger, "acquire", acquire)
    assert broken_laws(PAGED, CASES)


def test_duplicate_that_leaks_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block that gave way to another one never comes free."""
    ledger = allocators().BlockLedger
    original = ledger.release

    def release(self: Any, block_id: int, no_cache: bool = False) -> bool:  # noqa: ANN401 # transformers'.
        """Free only blocks that have a hash."""
        whole = block_id in self.block_to_hash
        return bool(original(self, block_id, no_cache) and whole)

    monkeypatch.setattr(ledger, "release", release)
    assert broken_laws(PAGED, CASES)
