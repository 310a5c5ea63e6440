"""The native core where the judge cannot look: queues, hash collisions, deep trees, and memory."""

from __future__ import annotations

import gc
import itertools
import random
from collections.abc import Callable

import numpy as np
import pytest
from attrs import evolve

from fast.caches import EVERYTHING, Tokens, array, counted, insert, new_cache, tiered
from fast.nodes import bare_core
from kvcanon.optimized import PrefixCache, _core
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.hashing import namespace_seed, page_hashes
from kvcanon.spec.operations import HostPayload
from kvcanon.spec.types import Counts, EvictionPolicy, Namespace, WritePolicy

PLAIN = CacheConfig(device_slots=Counts(full=64), events=False)


# Queues.


@pytest.mark.parametrize("policy", list(EvictionPolicy))
def test_queues_are_bounded(policy: EvictionPolicy) -> None:
    """Queues do not grow with uses, inserts and evictions."""
    many = Counts(64, 64, 16)
    config = evolve(EVERYTHING, page_size=1, device_slots=many, host_slots=many, events=False)
    cache = new_cache(evolve(config, eviction_policy=policy))
    prompts = [np.arange(first, first + 8, dtype=np.uint32) for first in range(0, 80, 10)]
    for prompt in prompts:
        insert(cache, prompt)
        cache.flush()
    most = 6 * (64 + 2 * counted(cache, "nodes")) + 6
    for prompt in prompts * 300:
        cache.match(prompt)
        cache.unlock(cache.lock(prompt))
        assert counted(cache, "queued_candidates") <= most
    for prompt in prompts * 50:
        cache.evict(8, 8, 1)
        cache.evict_host(8, 8, 1)
        insert(cache, prompt)
        cache.flush()
        assert counted(cache, "queued_candidates") <= most
    cache.tree.check()


def test_candidates_that_were_passed_over_are_not_forgotten() -> None:
    """A leaf that was locked when its entry came up can be evicted after the unlock."""
    cache = new_cache(PLAIN)
    first, second = np.arange(8, dtype=np.uint32), np.arange(20, 28, dtype=np.uint32)
    insert(cache, first)
    insert(cache, second)
    for _ in range(3):
        receipt = cache.lock(first)
        assert cache.evict(16) == [8, 0, 0]
        cache.unlock(receipt)
        insert(cache, second)
    assert cache.evict(16) == [16, 0, 0]


# Slots.


def test_slots_in_any_order() -> None:
    """Slots in runs, in pieces and backwards keep their order and number."""
    drawn = random.Random(5)
    for _ in range(200):
        cache = new_cache(PLAIN)
        slots = cache.allocate(64)[0].tolist()
        # What a request has after many others came and went: pieces of runs in any order.
        pieces = [slots[at : at + drawn.randrange(1, 9)] for at in range(0, 64, 9)]
        drawn.shuffle(pieces)
        order = [slot for piece in pieces for slot in piece[:: drawn.choice((1, -1))]]
        rest = [slot for slot in slots if slot not in order]
        drawn.shuffle(rest)
        prompt = np.arange(len(order), dtype=np.uint32)
        cache.insert(prompt, 0, array(*order))
        cuts = sorted(drawn.sample(range(1, len(order)), 4))
        for pages in cuts:
            assert cache.match(prompt[:pages]).full.tolist() == order[:pages]
        assert cache.match(prompt).full.tolist() == order
        cache.free(array(*rest))
        cache.tree.check()
        cache.evict(64)
        assert cache.tree.pool(0, 0)[1] == tuple(range(64))


@pytest.mark.parametrize("capacity", [0, 1, 63, 64, 65, 127, 128, 129, 4096, 4097])
def test_pools_around_the_sizes_of_words(capacity: int) -> None:
    """Each slot is allocated exactly once, for capacities around the word sizes of the bitmap."""
    cache = new_cache(evolve(PLAIN, device_slots=Counts(full=capacity)))
    drawn = random.Random(capacity)
    held: list[int] = []
    for _ in range(60):
        free = cache.free_slot_counts()[0]
        assert free == capacity - len(held)
        taken = cache.allocate(drawn.randint(0, free))[0].tolist()
        # The lowest that are free.
        assert taken == sorted(set(range(capacity)) - set(held))[: len(taken)]
        held += taken
        drawn.shuffle(held)
        count = drawn.randint(0, len(held))
        cache.free(array(*held[:count]))
        del held[:count]
        cache.tree.check()
    cache.free(array(*held))
    assert cache.allocate(capacity)[0].tolist() == list(range(capacity))


# Pages that share their hash.


def test_pages_that_share_their_hash_are_distinguished() -> None:
    """Pages with one of two hash tags are distinguished by prompt, position and namespace."""
    core = bare_core(page_size=2, device_slots=(4096, 0, 0), events=False, tag_bits=1)
    for number in (1, 2):
        assert core._add_namespace(bytes([number + 1]), b"") == (number, [])
    tree = _core.Tree(core)
    drawn = random.Random(3)
    prompts = [
        (np.array(tokens, dtype=np.uint32), space)
        for tokens in itertools.product((1, 2), repeat=6)
        for space in range(3)
    ]
    drawn.shuffle(prompts)
    there: dict[tuple[tuple[int, ...], int], int] = {}

    def look() -> None:
        for prompt, space in prompts:
            found = core.match(prompt, space)
            tokens = tuple(prompt.tolist())
            expected = [there.get((tokens[:end], space)) for end in (2, 4, 6)]
            assert found.full.tolist() == [slot for slot in expected if slot is not None]

    for prompt, space in prompts[:100]:
        start = core.match(prompt, space).device_pages
        slots = core.allocate(3 - start)[0]
        core.insert(prompt, start, slots, namespace=space)
        tokens = tuple(prompt.tolist())
        for page, slot in enumerate(slots.tolist(), start=start):
            there[tokens[: 2 * page + 2], space] = slot
    look()
    tree.check()
    while there:
        core.evict(7)
        free = set(tree.pool(0, 0)[1])
        there = {name: slot for name, slot in there.items() if slot not in free}
        look()
        tree.check()


# Page hashes.


def check_events(cache: PrefixCache, there: dict[str, set[bytes]]) -> None:
    """Take events, and check each hash against spec and against what is there."""
    for event in cache.take_events():
        names = [event.hashes[at : at + 32] for at in range(0, len(event.hashes), 32)]
        assert len(names) == event.pages == len(event.tokens)
        if event.kind == "stored":
            parent = event.parent_hash
            if parent is None:
                parent = namespace_seed(cache.namespace_of(event.namespace))
            pages = [tuple(page) for page in event.tokens.tolist()]
            assert names == list(page_hashes(parent, pages))
            assert not there[event.medium].intersection(names)
            there[event.medium].update(names)
        elif event.kind == "removed":
            assert there[event.medium].issuperset(names)
            there[event.medium].difference_update(names)


@pytest.mark.parametrize("seed", range(30))
def test_page_hashes_computed_at_any_time(seed: int) -> None:
    """Page hashes are right whenever they are computed: after cuts, evictions and host inserts."""
    drawn = random.Random(seed)
    policy = drawn.choice((WritePolicy.WRITE_THROUGH, WritePolicy.WRITE_BACK))
    cache = new_cache(evolve(tiered(24, policy), page_size=2, host_slots=Counts(full=32)))
    spaces = [0, cache.namespace(Namespace(cache_salt="other"))]
    there: dict[str, set[bytes]] = {"GPU": set(), "CPU_PINNED": set()}
    for _ in range(150):
        tokens = np.array(drawn.choices((1, 2), k=2 * drawn.randrange(1, 9)), dtype=np.uint32)
        tokens[1::2] = 7
        space = drawn.choice(spaces)
        pages = tokens.size // 2
        action = drawn.randrange(7)
        if action <= 1:
            cache.flush()
            cache.evict(max(0, pages - cache.free_slot_counts()[0]))
            insert(cache, tokens, namespace=space)
        elif action == 2:
            cache.match(tokens, space)
        elif action == 3:
            cache.evict(drawn.randrange(8))
        elif action == 4:
            cache.evict_host(drawn.randrange(8))
        elif action == 5:
            start = drawn.randrange(cache.match(tokens, space).prefix_pages + 1)
            payload = HostPayload(full=(b"1",) * (pages - start))
            cache.insert_host(tokens, start, payload, space)
        else:
            prefix = cache.match(tokens, space).prefix_pages
            cache.load_back(tokens[: 2 * prefix], None, space)
        if drawn.random() < 0.3:
            cache.flush()
        if drawn.random() < 0.1:
            check_events(cache, there)
        cache.tree.check()
    cache.flush()
    check_events(cache, there)
    for number, medium in enumerate(there):
        assert len(there[medium]) == cache.tree.pool_counts(0, number)[3], medium


# Depth.

DEPTH = 100_000


def through(cache: PrefixCache, prompt: Tokens) -> None:
    """All operations that walk a path or a tree."""
    cache.unlock(cache.lock(prompt))
    assert cache.match(prompt).device_pages == DEPTH
    insert(cache, np.append(prompt, np.uint32(7)))
    assert len(cache.tree.nodes()) == DEPTH + 2
    cache.take_events()
    cache.evict(10)
    cache.tree.check()


def evicted(cache: PrefixCache, _: Tokens) -> None:
    """Evict every node in turn."""
    assert cache.evict(DEPTH) == [DEPTH, 0, 0]
    assert sum(event.pages for event in cache.take_events()) >= DEPTH


def reset(cache: PrefixCache, _: Tokens) -> None:
    """Reset all nodes at once; without it they are dropped with their cache."""
    cache.reset()
    assert counted(cache, "nodes") == 0


@pytest.mark.parametrize("end", [through, evicted, reset, None])
def test_deep_trees(end: Callable[[PrefixCache, Tokens], None] | None) -> None:
    """Walking a chain of nodes of one page, cut from the end of a prompt, does not recurse."""
    cache = PrefixCache(CacheConfig(device_slots=Counts(full=DEPTH + 8)))
    prompt = np.arange(DEPTH, dtype=np.uint32)
    insert(cache, prompt)
    for pages in range(DEPTH - 1, 0, -1):
        cache.match(prompt[:pages])
    assert counted(cache, "nodes") == DEPTH
    if end is not None:
        end(cache, prompt)


def test_deep_chain_of_spans() -> None:
    """Events of a prompt that grows page by page get right hashes, without recursion."""
    pages = 3000
    cache = new_cache(CacheConfig(device_slots=Counts(full=pages)))
    prompt = np.arange(pages, dtype=np.uint32)
    for end in range(1, pages + 1):
        insert(cache, prompt[:end])
    events = cache.take_events()
    assert len(events) == pages + 1
    assert events[-1].hashes == page_hashes(b"", [(token,) for token in range(pages)])[-1]
    del cache, events
    gc.collect()


# What cuts share, and what evictions and resets give back


LONG = np.arange(1 << 16, dtype=np.uint32)
LARGE = CacheConfig(device_slots=Counts(full=LONG.size), events=False)


@pytest.fixture
def growth() -> Callable[[], int]:
    """By how many bytes the tokens and hashes of all trees have grown in this test."""
    gc.collect()
    idle = new_cache(PLAIN)
    before = counted(idle, "span_bytes")
    return lambda: counted(idle, "span_bytes") - before


def test_cuts_share_their_tokens(growth: Callable[[], int]) -> None:
    """A cut copies no tokens."""
    cache = new_cache(LARGE)
    insert(cache, LONG)
    assert growth() == LONG.nbytes
    for pages in range(1, 100):
        cache.match(LONG[:-pages])
    assert counted(cache, "nodes") == 100
    assert growth() == LONG.nbytes
    cache.tree.check()


@pytest.mark.parametrize("events", [False, True])
def test_tail_that_was_evicted_is_given_back(growth: Callable[[], int], events: bool) -> None:
    """Evicting the tail of a prompt frees the memory of its tokens and hashes."""
    page_bytes = 4 + (32 if events else 0)
    cache = new_cache(evolve(LARGE, events=events))
    insert(cache, LONG)
    cache.take_events()
    assert growth() == LONG.size * page_bytes
    cache.match(LONG[:16])
    cache.match(LONG[:8])
    cache.evict(LONG.size - 16)
    cache.take_events()
    assert counted(cache, "nodes") == 2
    assert cache.match(LONG).device_pages == 16
    assert growth() == 16 * page_bytes
    # What comes in the place of what left grows the stretch, with an eighth to spare.
    insert(cache, LONG[:24])
    cache.take_events()
    assert 24 * page_bytes <= growth() <= 27 * page_bytes
    cache.evict(24)
    cache.take_events()
    assert growth() == 0
    cache.tree.check()


def test_events_keep_their_pages_until_they_are_taken(growth: Callable[[], int]) -> None:
    """Events keep the memory of their pages until they are collected, and no longer."""
    cache = new_cache(evolve(LARGE, events=True))
    cache.take_events()
    insert(cache, LONG)
    cache.match(LONG[:16])
    cache.evict(LONG.size - 16)
    assert growth() == LONG.size * 4
    stored, removed = cache.take_events()
    assert growth() == LONG.size * 36  # With 32 bytes of name for each.
    assert (stored.kind, removed.kind) == ("stored", "removed")
    assert np.array_equal(stored.tokens.reshape(-1), LONG)
    assert np.array_equal(removed.tokens.reshape(-1), LONG[16:])
    del stored
    assert removed.hashes[-32:] == page_hashes(b"", [(token,) for token in range(17)])[-1]
    assert growth() == LONG.size * 36
    del removed
    assert growth() == 16 * 36
    assert cache.match(LONG).device_pages == 16


def test_events_outlive_their_cache() -> None:
    """Events that were taken stay valid after their cache is gone."""
    cache = new_cache(evolve(PLAIN, events=True))
    for prompt in (np.arange(20, dtype=np.uint32), np.arange(40, dtype=np.uint32)):
        insert(cache, prompt)
    events = cache.take_events()
    del cache
    gc.collect()
    assert [each.kind for each in events] == ["cleared", "stored", "stored"]
    assert events[2].tokens.reshape(-1).tolist() == list(range(20, 40))
    assert events[2].parent_hash == events[1].hashes[-32:]


def test_nodes_are_used_again() -> None:
    """Nodes are reused after evictions and resets, so the arena does not grow with inserts."""
    cache = new_cache(PLAIN)
    for first in range(2000):
        insert(cache, np.arange(first, first + 8, dtype=np.uint32))
        cache.evict(8)
    assert counted(cache, "nodes") == 0
    assert counted(cache, "arena_nodes") <= 4
    cache.tree.check()
    for _ in range(50):
        for first in range(8):
            insert(cache, np.arange(first, first + 8, dtype=np.uint32))
        cache.reset()
        cache.tree.check()
    assert counted(cache, "arena_nodes") <= 16
