"""Sizes near the limits of numbers, the API of spec with such sizes, and memory that runs out."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from attrs import evolve

from array_api import insert, new_cache
from kvcanon.optimized import OptimizedCache, PrefixCache, _core
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument, ReceiptSpent, SlotNotHeld
from kvcanon.spec.types import CPU, FULL, GPU, MAMBA, Counts, EvictionPolicy, Slots, make_key

EVERYTHING = CacheConfig(
    page_size=2,
    window_tokens=4,
    mamba=True,
    device_slots=Counts(16, 12, 4),
    host_slots=Counts(16, 12, 4),
    write_policy="write_through",
)
PLAIN = CacheConfig(page_size=2, device_slots=Counts(full=16))
CACHED = np.arange(8, dtype=np.uint32)
HUGE = 1 << 62
TOO_LARGE = 1 << 70


@pytest.mark.parametrize("count", [HUGE, 2**63 - 1, 2**31, 2**32])
def test_evict_as_much_as_there_is(count: int) -> None:
    """Any count evicts as much as there is, without overflow."""
    cache = new_cache(EVERYTHING)
    insert(cache, CACHED)
    cache.flush()
    assert cache.evict(count, count, count) == [4, 4, 1]
    assert cache.evict_host(count, count, count) == [4, 4, 1]
    cache.tree.check()


@pytest.mark.parametrize("policy", list(EvictionPolicy))
def test_any_priority(policy: EvictionPolicy) -> None:
    """The smallest and the largest priority rank leaves correctly."""
    cache = new_cache(evolve(PLAIN, eviction_policy=policy))
    for first, priority in enumerate((-(2**63), 0, 2**63 - 1)):
        insert(cache, CACHED + 10 * first, priority=priority)
    assert cache.evict(4) == [4, 0, 0]
    if policy is EvictionPolicy.PRIORITY:
        # What an insert makes of a smaller priority is no more than that of a leaf without one.
        assert cache.match(CACHED).prefix_pages == 0
        assert cache.evict(4) == [4, 0, 0]
        assert cache.match(CACHED + 20).prefix_pages == 4
    cache.tree.check()


@pytest.mark.parametrize("window_tokens", [2**31, 2**63 - 1, 2**64, TOO_LARGE])
def test_any_window(window_tokens: int) -> None:
    """A window that is longer than any prompt changes no match."""
    cache = new_cache(evolve(EVERYTHING, mamba=False, window_tokens=window_tokens))
    insert(cache, CACHED)
    cache.flush()
    receipt = cache.lock(CACHED[:6])
    assert cache.match(CACHED).device_pages == 4
    assert cache.match(CACHED).swa.size == 4
    cache.unlock_window(receipt)
    cache.unlock(receipt)
    cache.evict(4, 4)
    assert cache.load_back(CACHED).loading == [4, 4, 0]
    cache.flush()
    assert cache.match(CACHED).device_pages == 4
    cache.tree.check()


def test_any_threshold() -> None:
    """Any threshold works, without overflow."""
    cache = new_cache(evolve(EVERYTHING, window_tokens=None, load_back_threshold_pages=TOO_LARGE))
    insert(cache, CACHED)
    cache.flush()
    cache.evict(4, 0, 1)
    assert cache.match(CACHED).prefix_pages == 4
    assert cache.load_back(CACHED).transfer_id is not None  # For its state.
    cache.flush()
    cache.evict(4)
    assert cache.load_back(CACHED[:6], HUGE).transfer_id is None


WRONG_SIZES = {
    "page_size": (evolve(PLAIN, page_size=2**29 + 1), "page_size: is 536870913; it must be"),
    "page_size, huge": (evolve(PLAIN, page_size=TOO_LARGE), "page_size: is a number that does not"),
    "device_slots": (evolve(PLAIN, device_slots=Counts(2**31)), "device_slots: is 2147483648; it"),
    "device_slots, huge": (
        evolve(PLAIN, device_slots=Counts(0, TOO_LARGE)),
        "device_slots: is a number that does not fit",
    ),
}


@pytest.mark.parametrize("config", WRONG_SIZES.values(), ids=WRONG_SIZES.keys())
def test_sizes_that_no_tree_can_have(config: tuple[CacheConfig, str]) -> None:
    """Sizes that are too large are refused."""
    with pytest.raises(BadArgument, match=config[1]):
        PrefixCache(config[0])


def test_largest_page() -> None:
    """The largest page size works, without overflow, also for bigrams."""
    for bigram in (False, True):
        cache = PrefixCache(evolve(PLAIN, page_size=2**29, bigram=bigram))
        assert cache.match(CACHED).prefix_pages == 0


def make_core(**others: object) -> _core.CacheCore:
    """A cache without its Python side."""
    arguments: dict[str, object] = {
        "page_size": 1,
        "unit_words": 1,
        "window_tokens": 0,
        "mamba": False,
        "device_slots": (4, 0, 0),
        "host_slots": (0, 0, 0),
        "write_policy": 0,
        "eviction_policy": 0,
        "load_back_threshold_pages": 0,
        "events": True,
        "engine": None,
    }
    return _core.CacheCore(**{**arguments, **others})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong",
    [
        {"page_size": 0},
        {"unit_words": 3},
        {"window_tokens": -1},
        {"window_tokens": 2**60 + 1},
        {"device_slots": (-1, 0, 0)},
        {"host_slots": (0, 0)},
        {"write_policy": 4},
        {"eviction_policy": -1},
        {"load_back_threshold_pages": -1},
        {"write_policy": 1},
        {"tag_bits": 0},
        {"tag_bits": 33},
    ],
    ids=str,
)
def test_tree_of_wrong_parts(wrong: dict[str, object]) -> None:
    """Wrong arguments of the native constructor are refused."""
    make_core()
    with pytest.raises(BadArgument):
        make_core(**wrong)


# The API of kvcanon.spec.


def test_slots_that_no_array_can_have() -> None:
    """Slots that no array can have raise the errors of spec, not Python's own."""
    cache = OptimizedCache(evolve(PLAIN))
    held = cache.allocate(Counts(2)).full
    for wrong in (2**63, -(2**63) - 1, TOO_LARGE):
        with pytest.raises(SlotNotHeld) as refusal:
            cache.free(Slots(full=(*held, wrong)))
        assert (refusal.value.pool, refusal.value.slot) == ("full on GPU", wrong)
    for no_number in (1.5, "1", None):
        with pytest.raises(BadArgument, match=r"slots\.full: has a slot that is no whole number"):
            cache.free(Slots(full=(*held, no_number)))  # type: ignore[arg-type]
    cache.free(Slots(full=held))
    for slot in (-1, 16, TOO_LARGE):
        with pytest.raises(BadArgument, match=f"slot: is {slot}; full on CPU_PINNED"):
            cache.read(FULL, CPU, slot)
        with pytest.raises(SlotNotHeld):
            cache.write(FULL, slot, bytes(8))
    with pytest.raises(SlotNotHeld):
        cache.write(MAMBA, 0, bytes(8))
    assert cache.free_slots(MAMBA, GPU) == ()


def test_foreign_receipts_are_refused() -> None:
    """A receipt of another cache is refused, even if its number is the same."""
    first, second = OptimizedCache(PLAIN), OptimizedCache(PLAIN)
    key = make_key((), 2)
    receipt = first.lock(key)
    second.lock(key)
    with pytest.raises(ReceiptSpent):
        second.unlock(receipt)
    first.unlock(receipt)


# Memory.


@pytest.mark.skipif("ASAN_OPTIONS" in os.environ, reason="a sanitizer ends what has no memory")
def test_memory_that_runs_out() -> None:
    """A call whose answer has no room is refused, and changes nothing."""
    script = """
        import resource
        from kvcanon.optimized import PrefixCache
        from kvcanon.spec.config import CacheConfig
        from kvcanon.spec.types import Counts
        cache = PrefixCache(CacheConfig(device_slots=Counts(full=2**30)))
        with open("/proc/self/statm") as memory:
            used_bytes = int(memory.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used_bytes + 2**30, -1))
        try:
            cache.allocate(2**30)  # Its array has four gigabytes.
        except MemoryError:
            print(cache.free_slot_counts()[0] == 2**30, len(cache.allocate(1)[0]))
    """
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True
    )
    assert ran.stdout == "True 1\n"
