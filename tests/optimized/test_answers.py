"""What a load-back and a match answer: slots, layers that can be read, and what can be locked."""

from __future__ import annotations

import random

import numpy as np
import numpy.typing as npt
import pytest
from attrs import evolve

from fast.caches import hybrid, new_cache, tiered
from kvcanon.optimized import PrefixCache
from kvcanon.optimized.layout import PageLayout
from kvcanon.optimized.pools import Pools
from kvcanon.optimized.threaded_engine import ThreadedEngine
from kvcanon.reference.engine import ManualEngine
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument, PrefixNotCached
from kvcanon.spec.transfer import TransferStatus
from kvcanon.spec.types import FULL, GPU, SWA, Counts

Tokens = npt.NDArray[np.int32]


def make_cache(*, mamba: bool) -> PrefixCache:
    """A window of three pages and a host tier; copies run only when something waits for them."""
    full = hybrid(Counts(64, 48, 16), Counts(64, 64, 32), page_size=2, window_tokens=6)
    config = evolve(full, mamba=mamba)
    return new_cache(config)


def prompt(*stretches: int) -> Tokens:
    """Four pages for each number."""
    return np.concatenate([np.arange(8, dtype=np.int32) + 100 * number for number in stretches])


def insert(cache: PrefixCache, tokens: Tokens) -> None:
    """Insert all of a prompt, its state included, and back it up."""
    pages = len(tokens) // 2
    window_pages = pages if cache.config.window_tokens else 0
    slots = cache.allocate(pages, window_pages, int(cache.config.mamba))
    cache.insert(tokens, 0, *slots)
    cache.flush()


def slots_of(answer: object) -> list[list[int]]:
    """The three lists of slots of a match or a load-back."""
    return [getattr(answer, name).tolist() for name in ("full", "swa", "mamba")]


def test_slots_are_those_of_the_match_that_follows() -> None:
    """The slots of a load-back are those that a match returns after it has settled."""
    loads, gaps, states = 0, 0, 0
    for seed in range(200):
        drawn = random.Random(seed)
        cache = make_cache(mamba=seed % 2 == 0)
        for stretches in ((1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)):
            insert(cache, prompt(*stretches))
        cache.evict(drawn.choice((0, 0, 4, 8)), drawn.randrange(16), seed % 4)

        tokens = prompt(1, 2, 3, 4)[: 2 * drawn.randrange(17)]
        usable = cache.match(tokens).prefix_pages
        loaded = cache.load_back(tokens[: 2 * usable])
        before = slots_of(loaded)
        if loaded.transfer_id is None:
            assert before == [[], [], []]
            continue
        cache.flush()
        found = cache.match(tokens)
        assert found.device_pages == usable
        assert slots_of(found) == before
        loads += 1
        gaps += 0 < loaded.loading[1] < 3  # Of the window of three pages some were there.
        states += loaded.loading[2]
    assert min(loads, gaps, states) >= 10


def test_slots_of_an_earlier_load_are_returned_too() -> None:
    """A load-back also returns the slots of an earlier load on the path."""
    cache = make_cache(mamba=True)
    insert(cache, prompt(1))
    insert(cache, prompt(1, 2))
    cache.evict(8)
    tokens = prompt(1, 2)
    first = cache.load_back(tokens[:8])
    second = cache.load_back(tokens)
    assert cache.match(tokens).pending == (first.transfer_id, second.transfer_id)
    assert first.loading[0] == second.loading[0] == 4
    before = slots_of(second)
    assert before[0][:4] == first.full.tolist()
    cache.flush()
    assert slots_of(cache.match(tokens)) == before


@pytest.mark.parametrize("kind", ["open", "closed", "without layers"])
def test_layer_can_be_waited_for(kind: str) -> None:
    """Waiting for a layer says whether it comes, and settles nothing; not all engines can."""
    engine = ManualEngine() if kind == "without layers" else ThreadedEngine()
    config = evolve(tiered(16), page_size=2)
    cache = PrefixCache(config, Pools(config, {FULL: PageLayout(2, (1,))}), engine)
    insert(cache, prompt(1))
    cache.evict(4)
    if kind == "closed" and isinstance(engine, ThreadedEngine):
        engine.close()  # Then it takes no order.
    transfer_id = cache.load_back(prompt(1)).transfer_id
    assert transfer_id is not None
    if kind == "without layers":
        with pytest.raises(BadArgument, match="engine: has no wait_layer; poll until"):
            cache.wait_layer(transfer_id, 0)
        with pytest.raises(BadArgument, match="engine: is needed to load anything"):
            PrefixCache(CacheConfig()).wait_layer(transfer_id, 0)
        return
    comes = kind == "open"
    assert [cache.wait_layer(transfer_id, layer) for layer in (0, 1)] == [comes] * 2
    status = TransferStatus.DONE if comes else TransferStatus.FAILED
    assert cache.flush() == [(transfer_id, status)]
    assert cache.wait_layer(transfer_id, 1) is comes
    if isinstance(engine, ThreadedEngine):
        engine.close()


# `lock_found`: a lock by what a match found, without a look at the tokens


PROMPT = np.arange(40, dtype=np.uint32)
CONFIG = CacheConfig(
    page_size=4, window_tokens=8, mamba=True, device_slots=Counts(full=20, swa=20, mamba=4)
)
PLAIN = CacheConfig(page_size=4, device_slots=Counts(full=10))


def cached(config: CacheConfig = CONFIG) -> PrefixCache:
    """A cache with the prompt, in one node."""
    cache = PrefixCache(config)
    swa, states = (10 if config.window_tokens else 0), int(config.mamba)
    full, window, mamba = cache.allocate(10, swa, states)
    cache.insert(PROMPT, 0, full, window if swa else None, mamba if states else None)
    return cache


@pytest.mark.parametrize("pages", [None, 0, 1, 5, 9, 10])
def test_it_locks_what_a_lock_by_tokens_locks(pages: int | None) -> None:
    """Slots, nodes and cuts are the same, and so is what can be evicted then; unlocking ends it."""
    seen = []
    for is_by_tokens in (True, False):
        cache = cached()
        found = cache.match(PROMPT)
        receipt = cache.lock(PROMPT, 0, pages) if is_by_tokens else cache.lock_found(found, pages)
        stats = cache.stats()
        if pages in {None, 10}:
            assert stats.pools[SWA, GPU].protected_slots == CONFIG.window_pages
        first = stats.nodes, stats.receipts, stats.pools
        freed = cache.evict(20, 20, 4)
        cache.tree.check()
        cache.unlock_window(receipt)
        more = cache.evict(0, 20, 4)
        cache.unlock(receipt)
        seen.append((first, freed, more, cache.evict(20, 20, 4), cache.stats().nodes))
        cache.tree.check()
    assert seen[0] == seen[1]
    assert seen[0][-1] == 0
    assert (seen[0][1][0] == 0) == (pages in {None, 10})


def test_it_holds_after_cuts_of_the_prefix() -> None:
    """Other requests cut the node where the match ended; the receipt covers all its pages."""
    cache = cached(PLAIN)
    found = cache.match(PROMPT)
    for pages in (7, 3, 9):
        assert cache.match(PROMPT[: 4 * pages]).prefix_pages == pages
    receipt = cache.lock_found(found)
    assert cache.evict(10) == [0, 0, 0]
    cache.unlock(receipt)
    assert cache.evict(10) == [10, 0, 0]


def test_a_prefix_that_left_is_not_cached() -> None:
    """A match again is needed, also where other nodes have taken the place in memory."""
    cache = cached(PLAIN)
    found = cache.match(PROMPT)
    cache.evict(10)
    with pytest.raises(PrefixNotCached):
        cache.lock_found(found)
    full, _, _ = cache.allocate(10)
    cache.insert(PROMPT, 0, full)
    with pytest.raises(PrefixNotCached):
        cache.lock_found(found)
    again = cache.match(PROMPT)
    cache.reset()
    with pytest.raises(PrefixNotCached):
        cache.lock_found(again)
    # A match of nothing locks nothing, as a lock of no pages does.
    found = cache.match(PROMPT)
    cache.reset()
    cache.unlock(cache.lock_found(found))
    assert cache.stats().receipts == 0
    cache.tree.check()


@pytest.mark.parametrize(
    ("given", "pages", "words"),
    [
        ("here", 11, "pages: is 11; the match found 10 pages"),
        ("here", -1, "pages: is -1; the match found 10 pages"),
        ("here", "x", "pages: must be a whole number"),
        ("there", None, "found: is a match of another cache"),
        (None, None, "found: is no match; give what `match` returned"),
        (3, None, "found: is no match"),
    ],
)
def test_wrong_calls_are_refused(given: object, pages: object, words: str) -> None:
    """One line says what is wrong; nothing is locked."""
    cache, other = cached(PLAIN), cached(PLAIN)
    matches = {"here": cache.match(PROMPT), "there": other.match(PROMPT)}
    with pytest.raises(BadArgument, match=words):
        cache.lock_found(matches.get(given, given), pages)  # type: ignore[arg-type, call-overload]
    assert cache.stats().receipts == 0
