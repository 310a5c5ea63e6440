"""Evictions under write_back: both caches copy all victims, wait once, and agree about failures."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from attrs import evolve

from fast.caches import tiered
from kvcanon.optimized import OptimizedCache
from kvcanon.reference import ManualEngine, ReferenceCache
from kvcanon.spec.cache import Cache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.events import BlockRemoved, BlockStored
from kvcanon.spec.operations import LoadDecision
from kvcanon.spec.transfer import TransferOrder
from kvcanon.spec.types import (
    CPU,
    FULL,
    GPU,
    SWA,
    Component,
    Counts,
    Key,
    Slots,
    TransferId,
    WritePolicy,
)

BACK = tiered(8, WritePolicy.WRITE_BACK)
TWO = Counts(full=8, swa=8)
WINDOWS = evolve(BACK, window_tokens=1, device_slots=TWO, host_slots=TWO)
Make = Callable[[CacheConfig, ManualEngine], Cache]

both_caches = pytest.mark.parametrize("make", [OptimizedCache, ReferenceCache])


class Recording(ManualEngine):
    """Records submissions and waits; copies that it waits for fail while `fails` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []
        self.slots: list[int] = []
        self.fails = False

    def submit(self, order: TransferOrder) -> None:
        self.calls.append("submit")
        self.slots.append(sum(len(copy.sources) for copy in order.copies))
        super().submit(order)

    def wait(self, transfer_id: TransferId) -> None:
        self.calls.append("wait")
        if self.fails:
            self.fail(transfer_id)
        else:
            super().wait(transfer_id)


def key(*tokens: int) -> Key:
    """A prompt of pages of one token."""
    return Key(tuple((token,) for token in tokens))


def put(cache: Cache, *prompts: tuple[int, ...]) -> None:
    """Insert prompts, of which earlier inserts may have brought a prefix."""
    for tokens in prompts:
        prompt = key(*tokens)
        present = cache.match(prompt).device_pages
        missing = len(tokens) - present
        windows = missing if SWA in cache.config.components else 0
        slots = cache.allocate(Counts(full=missing, swa=windows))
        for slot, token in zip(slots.full, tokens[present:], strict=True):
            cache.write(FULL, slot, bytes([token]) * cache.config.slot_bytes)
        cache.insert(prompt, present, Slots(full=slots.full, swa=slots.swa))


def where(cache: Cache, *tokens: int) -> tuple[int, int]:
    """How many pages of a prompt are cached at all, and how many on the device."""
    found = cache.match(key(*tokens))
    return found.prefix_pages, found.device_pages


def slots_on(cache: Cache, component: Component) -> tuple[int, int]:
    """Free slots on the device and on the host."""
    return len(cache.free_slots(component, GPU)), len(cache.free_slots(component, CPU))


@both_caches
def test_eviction_copies_all_victims_and_waits_once(make: Make) -> None:
    """An eviction of a chain and of a leaf beside it is one order and one wait."""
    engine = Recording()
    cache = make(BACK, engine)
    put(cache, (1,), (1, 2), (1, 2, 3), (7,))
    cache.take_events()
    assert cache.evict(Counts(full=4)).freed == Counts(full=4)
    assert (engine.calls, engine.slots) == (["submit", "wait"], [4])
    assert (where(cache, 1, 2, 3), where(cache, 7)) == ((3, 0), (1, 0))
    events = cache.take_events()
    stored = [e.block_hash for e in events if isinstance(e, BlockStored)]
    removed = [e.block_hash for e in events if isinstance(e, BlockRemoved) and e.medium is GPU]
    assert removed == stored
    assert cache.snapshot().transfers == ()
    loaded = cache.load_back(key(1, 2, 3))
    assert loaded.decision is LoadDecision.ENQUEUED
    cache.flush()
    found = cache.match(key(1, 2, 3))
    assert [cache.read(FULL, GPU, slot)[0] for slot in found.slots.full] == [1, 2, 3]


@both_caches
def test_victims_leave_though_their_copy_fails(make: Make) -> None:
    """Victims whose copy fails are lost, with what hangs below them; those with a copy are not."""
    engine = Recording()
    cache = make(BACK, engine)
    put(cache, (1,), (1, 2), (7,))
    cache.evict(Counts(full=1))
    assert where(cache, 1, 2) == (2, 1)
    assert cache.load_back(key(1, 2)).transfer_id is not None
    cache.flush()
    # Now 2 is on both media, 1 and 7 on the device alone; 7 is the least recently used.
    engine.fails = True
    assert cache.evict(Counts(full=3)).freed == Counts(full=3)
    assert (where(cache, 7), where(cache, 1, 2)) == ((0, 0), (0, 0))
    assert slots_on(cache, FULL) == (8, 8)
    put(cache, (7,))
    engine.fails = False
    assert cache.evict(Counts(full=1)).freed == Counts(full=1)
    engine.fails = True
    cache.load_back(key(7))
    engine.acknowledge(engine.open_transfer_ids[0])
    cache.poll()
    # A victim with an earlier copy needs none, and stays on the host.
    put(cache, (5,))
    assert cache.evict(Counts(full=2)).freed == Counts(full=2)
    assert (where(cache, 7), where(cache, 5)) == ((1, 0), (0, 0))


@both_caches
def test_victim_makes_way_on_the_host_for_the_next_only_after_it_left(make: Make) -> None:
    """If a host of two slots has to take three leaves, the third takes the place of the first."""
    engine = Recording()
    cache = make(evolve(BACK, host_slots=Counts(full=2)), engine)
    put(cache, (1,), (2,), (3,))
    assert cache.evict(Counts(full=3)).freed == Counts(full=3)
    assert engine.calls == ["submit", "wait", "submit", "wait"]
    assert engine.slots == [2, 1]
    assert [where(cache, token)[0] for token in (1, 2, 3)] == [0, 1, 1]


@both_caches
def test_windows_of_inner_nodes_leave_in_the_same_copy(make: Make) -> None:
    """Window data of inner nodes and whole leaves are copied by one order."""
    engine = Recording()
    cache = make(WINDOWS, engine)
    put(cache, (1,), (1, 2), (7,))
    assert cache.evict(Counts(swa=3)).freed.swa == 3
    assert engine.calls == ["submit", "wait"]
    # The path of 1 keeps its first node on the device, without its window.
    assert slots_on(cache, SWA) == (8, 5)
    assert slots_on(cache, FULL) == (7, 5)


@both_caches
@pytest.mark.parametrize("method", ["submit", "wait", "poll"])
def test_eviction_that_the_engine_breaks_off_changes_nothing(make: Make, method: str) -> None:
    """If the engine raises, victims keep their data, and later evictions may take it."""
    engine = Recording()
    cache = make(WINDOWS, engine)
    put(cache, (1,), (1, 2), (7,))

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    setattr(engine, method, interrupted)
    with pytest.raises(KeyboardInterrupt):
        cache.evict(Counts(full=2, swa=3))
    assert (where(cache, 1, 2), where(cache, 7)) == ((2, 2), (1, 1))
    assert slots_on(cache, FULL)[0] == 5
    assert {each.cancelled for each in cache.snapshot().transfers} == {True}
    delattr(engine, method)
    if method == "submit":
        return  # The engine never got the order, so it never completes.
    cache.flush()
    assert slots_on(cache, FULL) == (5, 8)
    assert cache.evict(Counts(full=3)).freed == Counts(full=3, swa=3)
    assert (where(cache, 1, 2), where(cache, 7)) == ((2, 0), (1, 0))
