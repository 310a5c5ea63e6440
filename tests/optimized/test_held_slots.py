"""Slots that a client holds: host slots that it fills itself, and padding of device pools."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np
import pytest
from attrs import astuple, evolve

from fast.caches import PROMPT as KEY
from fast.caches import Tokens, array, counted, hybrid, state_of, tiered, unchanged
from kvcanon.optimized import PrefixCache
from kvcanon.optimized.layout import PageLayout
from kvcanon.optimized.pools import Pools
from kvcanon.optimized.snapshot import events_of, take_snapshot
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument, CacheError, OutOfSlots, PrefixNotCached, SlotNotHeld
from kvcanon.spec.law import LAWS, Kind
from kvcanon.spec.operations import HostInserted, HostPayload
from kvcanon.spec.types import CPU, FULL, GPU, MAMBA, SWA, Component, Counts, WritePolicy

PAGE_BYTES = {FULL: 6, SWA: 4, MAMBA: 10}
PLAIN = tiered(8)
FEW, MANY = Counts(8, 8, 4), Counts(40, 40, 20)
HYBRID = evolve(PLAIN, window_tokens=2, mamba=True, device_slots=FEW, host_slots=MANY)


def make_cache(config: CacheConfig = PLAIN) -> PrefixCache:
    """A cache with pages of some bytes."""
    layouts = {name: PageLayout(1, (PAGE_BYTES[name],)) for name in config.components}
    return PrefixCache(config, Pools(config, layouts))


def payload_of(component: Component, number: int) -> bytes:
    """Bytes that tell pages apart."""
    return Random(f"{component}{number}").randbytes(PAGE_BYTES[component])


def pools_of(cache: PrefixCache) -> Pools:
    """The cache's pools."""
    assert cache.pools is not None
    return cache.pools


def fill(cache: PrefixCache, component: Component, slots: np.ndarray, first: int = 0) -> None:
    """Write pages into reserved slots, in place."""
    for number, slot in enumerate(slots.tolist(), first):
        pools_of(cache).host_page(component, slot)[:] = payload_of(component, number)


def commit(
    cache: PrefixCache, key: Tokens, start: int = 0, swa: int = 0, mamba: int = 0
) -> HostInserted:
    """Reserve slots for a key, fill them, and commit them."""
    slots = cache.reserve_host(len(key) - start, swa, mamba)
    for component, some, first in zip(
        (FULL, SWA, MAMBA), slots, (start, len(key) - swa, len(key)), strict=True
    ):
        fill(cache, component, some, first)
    return cache.commit_host(key, start, *slots)


def insert_copy(
    cache: PrefixCache, key: Tokens, start: int = 0, swa: int = 0, mamba: int = 0
) -> HostInserted:
    """Insert the same with copies."""
    numbers = {
        FULL: range(start, len(key)),
        SWA: range(len(key) - swa, len(key)),
        MAMBA: range(len(key), len(key) + mamba),
    }
    full, window, states = (
        tuple(payload_of(component, number) for number in some)
        for component, some in numbers.items()
    )
    return cache.insert_host(key, start, HostPayload(full, window, states))


def test_reserved_slots_are_neither_free_nor_in_the_tree() -> None:
    """They are the client's, on the host, until it gives them back, also over a reset."""
    cache = make_cache()
    full, swa, mamba = cache.reserve_host(3)
    assert full.tolist() == [0, 1, 2]
    assert (swa.size, mamba.size) == (0, 0)
    pool = cache.stats().pools[FULL, CPU]
    assert (pool.capacity_slots, pool.free_slots, pool.held_slots) == (8, 5, 3)
    assert cache.match(KEY).prefix_pages == 0
    assert cache.evict_host(8) == [0, 0, 0]
    cache.reset()
    fill(cache, FULL, full)
    assert cache.commit_host(KEY[:2], 0, full[:2]).placed_pages == 2
    cache.abort_host(full[2:])
    assert cache.stats().pools[FULL, CPU].free_slots == 6
    cache.tree.check()


def test_committed_pages_are_where_they_were_written() -> None:
    """No byte is copied: the tree has the very slots, and a load-back brings the bytes."""
    cache = make_cache()
    full, _, _ = cache.reserve_host(4)
    fill(cache, FULL, full)
    assert cache.commit_host(KEY, 0, full) == HostInserted(4, 0, 0, 0)
    found = cache.host_slots(KEY)
    assert found.pages == 4
    assert found.full.tolist() == full.tolist()
    loaded = cache.load_back(KEY)
    cache.flush()
    for number, slot in enumerate(loaded.full.tolist()):
        assert pools_of(cache).read(FULL, GPU, slot) == payload_of(FULL, number)


def test_slots_of_present_pages_come_free() -> None:
    """A commit keeps the slots that the tree needs, wherever they are in the list."""
    cache = make_cache()
    assert insert_copy(cache, KEY[:2]) == HostInserted(2, 0, 0, 0)
    reserved, _, _ = cache.reserve_host(4)
    fill(cache, FULL, reserved)
    done = cache.commit_host(KEY, 0, reserved)
    assert done == HostInserted(2, 0, 2, 0)
    assert cache.host_slots(KEY).full.tolist()[2:] == reserved.tolist()[2:]
    assert cache.stats().pools[FULL, CPU].free_slots == 4
    cache.tree.check()


def test_refused_calls_leave_the_slots_reserved() -> None:
    """Whatever is wrong with a call, the client still holds its slots, and nothing changes."""
    cache = make_cache()
    full, _, _ = cache.reserve_host(3)
    refused: list[tuple[type[CacheError], str, Callable[[], object]]] = [
        (OutOfSlots, "full on CPU_PINNED: 6 slots asked, 5 free", lambda: cache.reserve_host(6)),
        (PrefixNotCached, "2 pages of the key are", lambda: cache.commit_host(KEY, 2, full[:2])),
        (BadArgument, "payload.full: has 3 pages for", lambda: cache.commit_host(KEY, 0, full)),
        (SlotNotHeld, "slot 5 of full", lambda: cache.commit_host(KEY[:3], 0, array(0, 1, 5))),
        (SlotNotHeld, "slot 4294967296 of full", lambda: cache.abort_host(array(1 << 32))),
        (BadArgument, "full: names a slot twice", lambda: cache.abort_host(array(1, 1))),
        (SlotNotHeld, "slot 1 of full on GPU", lambda: cache.free(array(1))),
        (BadArgument, "swa: is no component of this", lambda: cache.reserve_host(1, 1)),
        (BadArgument, "full: -1 slots asked", lambda: cache.reserve_host(-1)),
    ]
    for error, words, call in refused:
        with unchanged(cache, error, words):
            call()
    cache.abort_host(full)
    with unchanged(cache, SlotNotHeld, "slot 0 of full on CPU_PINNED"):
        cache.abort_host(full)
    hostless = PrefixCache(CacheConfig(device_slots=Counts(full=4)))
    with unchanged(hostless, BadArgument, "reserve_host: needs a host tier"):
        hostless.reserve_host(1)
    assert hostless.host_slots(KEY).pages == 0


def test_host_slots_end_where_copies_are_in_flight() -> None:
    """A page counts once its copy has settled, and changes nothing that a match would."""
    cache = make_cache()
    slots = cache.allocate(4)
    cache.insert(KEY, 0, *slots)
    assert cache.host_slots(KEY).pages == 0
    cache.flush()
    before = state_of(cache)
    assert cache.host_slots(KEY[:3]).pages == 3
    assert len(cache.host_slots(KEY[:3]).full) == 3
    assert cache.host_slots(np.append(KEY, KEY)).pages == 4
    assert state_of(cache) == before
    # A client that sends host memory elsewhere locks the prompt meanwhile.
    receipt = cache.lock(KEY)
    assert cache.evict(8) == [0, 0, 0]
    assert cache.evict_host(8) == [0, 0, 0]
    assert cache.host_slots(KEY).pages == 4
    cache.unlock(receipt)
    assert cache.evict(8) == cache.evict_host(8) == [4, 0, 0]
    assert cache.host_slots(KEY).pages == 0


def test_host_slots_of_windows_and_states() -> None:
    """Window slots are of the last pages; a state counts at the end of its node only."""
    cache = make_cache(HYBRID)
    commit(cache, KEY, 0, 2, 1)
    found = cache.host_slots(KEY)
    assert (found.pages, len(found.swa), len(found.mamba)) == (4, 2, 1)
    shorter = cache.host_slots(KEY[:3])
    assert (shorter.pages, shorter.swa.tolist(), len(shorter.mamba)) == (3, found.swa[:1], 0)


def test_host_pages_are_the_memory_itself() -> None:
    """A page is read and written in place, and no slot outside of the pool is."""
    pools = pools_of(make_cache())
    pools.host_page(FULL, 3)[:] = b"abcdef"
    assert pools.slab(FULL)[3].numpy().tobytes() == b"abcdef"
    assert len(pools.host_page(FULL, 3)) == pools.layouts[FULL].page_bytes
    with pytest.raises(BadArgument, match="slot: is 8; full on CPU_PINNED has 8 slots"):
        pools.host_page(FULL, 8)


@pytest.mark.parametrize("policy", ["write_through", "write_through_selective", "write_back"])
@pytest.mark.parametrize("seed", range(20))
def test_commits_do_what_host_inserts_do(policy: WritePolicy, seed: int) -> None:
    """In random states a commit has the outcome, the tree and the bytes of an insert with copies.

    Slots may have other numbers: a commit has reserved its slots before.
    """
    random = Random(seed)
    caches = [make_cache(evolve(HYBRID, write_policy=policy)) for _ in range(2)]
    committed, inserted = caches
    happened = HostInserted(0, 0, 0, 0)
    for _ in range(60):
        key = np.array([random.randrange(2) for _ in range(random.randint(1, 4))], dtype=np.uint32)
        which = random.randrange(5)
        cached = committed.match(key).prefix_pages
        assert inserted.match(key).prefix_pages == cached
        if which == 0:
            for cache in caches:
                cache.evict(4, 4, 2)
                start = cache.match(key).device_pages
                new = len(key) - start
                cache.insert(key, start, *cache.allocate(new, new, int(new > 0)))
                cache.flush()
        elif which == 1:
            assert committed.evict_host(8, 8, 4) == inserted.evict_host(8, 8, 4)
        else:
            start = random.randint(0, cached)
            new = len(key) - start
            swa = random.randint(0, new)
            mamba = random.randint(0, min(1, new))
            room = [min(cache.tree.free_counts(1)) for cache in caches]
            if min(room) < 6:
                for cache in caches:
                    cache.evict_host(40, 40, 20)
                continue
            done = commit(committed, key, start, swa, mamba)
            assert done == insert_copy(inserted, key, start, swa, mamba)
            happened = HostInserted(*map(sum, zip(astuple(happened), astuple(done), strict=True)))
        for cache in caches:
            cache.tree.check()
        assert [committed.tree.pool_counts(number, 1)[2] for number in range(3)] == [0, 0, 0]
        assert shape(committed) == shape(inserted)
        assert events_of(committed, committed.take_events()) == events_of(
            inserted, inserted.take_events()
        )
    assert happened.placed_pages
    assert happened.present_pages
    assert happened.refilled_pages or policy == "write_through"


def shape(cache: PrefixCache) -> list[object]:
    """The tree without slot numbers, and the bytes on the host of every node."""
    pools = pools_of(cache)
    found: list[object] = [counted(cache, "nodes")]
    for node in cache.tree.nodes():
        data = [
            (
                each[0] and len(each[0]),
                each[1] and [pools.read(name, CPU, slot) for slot in each[1]],
                *each[2:],
            )
            for name, each in zip(cache.config.components, node[6], strict=bool(node[6]))
        ]
        found.append((*node[:6], data, *node[7:11]))
    return found


def test_laws_of_state_hold_while_slots_are_reserved() -> None:
    """Reserved slots are held slots of the host's pools, by every law of states."""
    cache = make_cache(HYBRID)
    commit(cache, KEY, 0, 2, 1)
    cache.reserve_host(3, 1, 1)
    state = take_snapshot(cache)
    assert state.pools[FULL, CPU].held == {4, 5, 6}
    for each in LAWS.values():
        if each.kind is Kind.STATE:
            assert list(each.check(state)) == [], each.law_id


# Padding: the first slots of a device pool


PADDED = hybrid(Counts(8, 6, 3), Counts(8, 8, 4))
ONE_EACH = Counts(1, 1, 1)


def padded_cache(padding: Counts = ONE_EACH) -> PrefixCache:
    """A cache whose first slots are padding."""
    pools = Pools(PADDED, dict.fromkeys(PADDED.components, PageLayout(1, (4,))))
    return PrefixCache(PADDED, pools, padding_slots=padding)


def test_padding_slots_are_never_given_out() -> None:
    """All slots but the first are given out; padding is neither capacity nor held by requests."""
    cache = padded_cache()
    pools = cache.stats().pools
    for component, usable in ((FULL, 7), (SWA, 5), (MAMBA, 2)):
        pool = pools[component, GPU]
        assert (pool.capacity_slots, pool.free_slots, pool.held_slots) == (usable, usable, 0)
    assert pools[FULL, CPU].capacity_slots == 8
    assert cache.free_slot_counts() == (7, 5, 2)
    given = [each.tolist() for each in cache.allocate(7, 5, 2)]
    assert given == [[1, 2, 3, 4, 5, 6, 7], [1, 2, 3, 4, 5], [1, 2]]
    with unchanged(cache, OutOfSlots, "full on GPU: 1 slots asked, 0 free"):
        cache.allocate(1)
    several = padded_cache(Counts(full=3, swa=2)).allocate(2, 2, 1)
    assert [each.tolist() for each in several] == [[3, 4], [2, 3], [0]]


def test_padding_slots_cannot_be_freed_or_inserted() -> None:
    """A client does not hold the padding, so that it cannot give it away."""
    cache = padded_cache()
    full, swa, mamba = cache.allocate(2, 2, 1)
    with unchanged(cache, SlotNotHeld, "slot 0 of full on GPU"):
        cache.free(array(0))
    with unchanged(cache, SlotNotHeld, "slot 0 of full on GPU"):
        cache.free(array(2, 1, 0))
    with unchanged(cache, SlotNotHeld, "slot 0 of swa on GPU"):
        cache.insert(np.arange(2, dtype=np.uint32), 0, full, array(0, 1), mamba)
    assert not cache.tree.holds_slot(0, 0)
    cache.insert(np.arange(2, dtype=np.uint32), 0, full, swa, mamba)


def test_padding_outlives_evictions_and_resets() -> None:
    """Whatever is evicted or forgotten, the padding stays out of the free list."""
    random = Random(4)
    with padded_cache() as cache:
        for _ in range(200):
            prompt = np.array([random.randrange(3) for _ in range(4)], dtype=np.uint32)
            start = cache.match(prompt).device_pages
            cache.flush()
            needed = 4 - start
            full, swa, _ = (max(0, needed - free) for free in cache.free_slot_counts())
            cache.evict(full, swa, 1)
            slots = cache.allocate(needed, needed, int(needed > 0))
            assert 0 not in np.concatenate(slots)
            cache.insert(prompt, start, *slots)
            if random.random() < 0.05:
                cache.flush()
                cache.reset()
                assert cache.free_slot_counts() == (7, 5, 2)
        cache.tree.check()


def test_more_padding_than_slots_is_refused() -> None:
    """A pool has at least its padding; negative padding makes no sense."""
    with pytest.raises(BadArgument, match="padding_slots: is 9; it must be at most the pool's"):
        padded_cache(Counts(full=9))
    with pytest.raises(BadArgument, match="padding_slots: is -1"):
        padded_cache(Counts(full=-1))
    assert padded_cache(Counts(full=8)).free_slot_counts() == (0, 6, 3)
