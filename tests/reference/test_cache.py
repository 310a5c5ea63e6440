"""The API of the plain cache: arguments are checked, and a refused call changes nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from attrs import evolve

from kvcanon.reference import ReferenceCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import (
    BadArgument,
    CacheBusy,
    CacheError,
    OutOfSlots,
    PrefixNotCached,
    ReceiptSpent,
    SlotNotHeld,
    TransferPending,
)
from kvcanon.spec.events import AllBlocksCleared, BlockStored
from kvcanon.spec.operations import HostPayload, Receipt
from kvcanon.spec.types import (
    CPU,
    FULL,
    GPU,
    MAMBA,
    SWA,
    Component,
    Counts,
    Key,
    Medium,
    Page,
    Slots,
)
from scenes import cached_pages, compute, fetch, lock, new_cache, prompt, put, refused, slots_of

PLAIN = CacheConfig(device_slots=Counts(8))
HOST = CacheConfig(
    window_tokens=2,
    device_slots=Counts(8, 8),
    host_slots=Counts(8, 8),
    write_policy="write_through",
)

MALFORMED: dict[str, tuple[Page, ...]] = {
    "other_page_size": ((1, 2, 3),),
    "ragged": ((1, 2), (3,)),
    "empty_page": ((1, 2), ()),
    "negative_token": ((1, 2), (3, -1)),
    "token_too_large": ((1, 2), (3, 1 << 32)),
    "bigrams": ((1, 2), ((2, 3), (3, 4))),
}


@pytest.mark.parametrize("pages", MALFORMED.values(), ids=MALFORMED)
def test_malformed_key_is_refused(pages: tuple[Page, ...]) -> None:
    """A key whose pages are not those of this cache is refused, and nothing changes."""
    cache, _ = new_cache(
        evolve(PLAIN, page_size=2, host_slots=Counts(4), write_policy="write_back")
    )
    put(cache, [1, 2])
    slots = compute(cache, prompt(cache, [5, 6, 7, 8]))
    key = Key(pages)
    for call in (
        lambda: cache.match(key),
        lambda: cache.lock(key),
        lambda: cache.insert(key, 0, slots),
        lambda: cache.load_back(key),
        lambda: cache.insert_host(key, 0, HostPayload((bytes(8),) * len(pages))),
    ):
        with refused(cache, BadArgument, match="key"):
            call()


def test_malformed_bigram_key_is_refused() -> None:
    """A cache with bigram keys refuses keys of tokens or of triples."""
    cache, _ = new_cache(evolve(PLAIN, page_size=2, bigram=True))
    triples: tuple[Page, ...] = (((1, 2), (2, 3, 4)),)  # type: ignore[assignment]
    for pages in (((1, 2),), (((1, 2), (2, 1 << 32)),), (((1, 2), 3),), triples):
        with refused(cache, BadArgument, match="bigrams"):
            cache.match(Key(pages))


def loading(cache: ReferenceCache) -> Slots:
    """Enqueue a load of the prompt 1, 2; returns slots for a request to insert it."""
    fetch(cache, [1, 2], window_pages=2)
    cache.load_back(prompt(cache, [1, 2]))
    return compute(cache, prompt(cache, [1, 2]))


REFUSALS: dict[type[CacheError], Callable[[ReferenceCache, Key, Slots], object]] = {
    BadArgument: lambda cache, key, slots: cache.insert(key, 3, slots),
    OutOfSlots: lambda cache, key, slots: cache.allocate(Counts(5)),
    PrefixNotCached: lambda cache, key, slots: cache.lock(Key(((9,),))),
    ReceiptSpent: lambda cache, key, slots: cache.unlock(Receipt(1000, key)),
    SlotNotHeld: lambda cache, key, slots: cache.free(Slots((*slots.full, 7))),
    TransferPending: lambda cache, key, slots: cache.insert(key, 0, slots),
    CacheBusy: lambda cache, key, slots: cache.reset(),
}


@pytest.mark.parametrize("error", REFUSALS)
def test_every_refusal_leaves_all_as_it_was(error: type[CacheError]) -> None:
    """A refused call moves no slot, counts no lock, draws no tick and emits no event."""
    cache, _ = new_cache(HOST)
    slots = loading(cache)
    with refused(cache, error) as info:
        REFUSALS[error](cache, prompt(cache, [1, 2]), slots)
    assert type(info.value) is error
    assert len(str(info.value)) > 20
    cache.free(slots)
    cache.flush()
    assert cached_pages(cache, [1, 2]) == 2


def test_refusals_are_all_tried() -> None:
    """Each refusal of the specification is provoked by a test here."""
    assert set(REFUSALS) == set(CacheError.__subclasses__())


# Bytes.


def test_read_gives_what_was_written() -> None:
    """Bytes are read back unchanged, each from its own slot and pool."""
    cache, _ = new_cache(HOST)
    slots = cache.allocate(Counts(2, 2))
    cache.write(FULL, slots.full[0], b"full  00")
    cache.write(SWA, slots.swa[0], b"window 0")
    assert cache.read(FULL, GPU, slots.full[0]) == b"full  00"
    assert cache.read(SWA, GPU, slots.swa[0]) == b"window 0"
    assert cache.read(FULL, GPU, slots.full[1]) == bytes(8)
    assert cache.read(FULL, CPU, slots.full[0]) == bytes(8)


def test_read_and_snapshot_change_nothing() -> None:
    """Reading bytes and taking snapshots do not change the state."""
    cache, _ = new_cache(HOST)
    put(cache, [1, 2])
    before = cache.snapshot()
    cache.read(FULL, GPU, 0)
    cache.read(SWA, CPU, 7)
    assert cache.snapshot() == before


@pytest.mark.parametrize(
    ("component", "medium", "slot"),
    [
        (FULL, GPU, 8),
        (FULL, GPU, -1),
        (SWA, CPU, 8),
        (MAMBA, GPU, 0),
        (FULL, Medium.DISK, 0),
    ],
)
def test_read_where_no_slot_is_is_refused(component: Component, medium: Medium, slot: int) -> None:
    """A read of a slot outside the pools is refused."""
    cache, _ = new_cache(HOST)
    with refused(cache, BadArgument, match="slot"):
        cache.read(component, medium, slot)


def test_write_to_what_is_not_held_is_refused() -> None:
    """A write to a slot of the tree, a free slot or no slot is refused."""
    cache, _ = new_cache(HOST)
    put(cache, [1, 2])
    (mine,) = cache.allocate(Counts(1)).full
    in_tree = slots_of(cache, [1, 2])[0] or 0
    for component, slot in ((FULL, in_tree), (FULL, 7), (FULL, 8), (FULL, -1), (SWA, mine)):
        before = {at: cache.read(FULL, GPU, at) for at in range(8)}
        with refused(cache, SlotNotHeld):
            cache.write(component, slot, b"8 bytes.")
        assert {at: cache.read(FULL, GPU, at) for at in range(8)} == before
    with refused(cache, SlotNotHeld):
        cache.write(MAMBA, 0, b"8 bytes.")


def test_write_of_another_size_is_refused() -> None:
    """A write of more or fewer bytes than a slot has is refused."""
    cache, _ = new_cache(evolve(PLAIN, slot_bytes=3))
    (slot,) = cache.allocate(Counts(1)).full
    for data in (b"", b"12", b"1234"):
        with refused(cache, BadArgument, match="data"):
            cache.write(FULL, slot, data)
    cache.write(FULL, slot, b"123")
    assert cache.read(FULL, GPU, slot) == b"123"


# Reset.


def test_reset_forgets_the_tree_and_leaves_requests_their_slots() -> None:
    """After a reset no prompt is found, no slot is lost, and requests keep their slots."""
    cache, _ = new_cache(HOST)
    put(cache, [1, 2])
    cache.flush()
    fetch(cache, [7, 8], window_pages=2)
    slots = compute(cache, prompt(cache, [3, 4]))
    cache.reset()
    state = cache.snapshot()
    assert list(state.nodes) == [state.root_id]
    assert state.swa_of_full == dict(zip(slots.full, slots.swa, strict=True))
    assert state.pools[FULL, GPU].held == set(slots.full)
    assert [len(pool.free) for pool in state.pools.values()] == [6, 8, 6, 8]
    for tokens in ([1, 2], [7, 8]):
        assert cached_pages(cache, tokens) == 0
    cache.insert(prompt(cache, [3, 4]), 0, slots)
    assert cached_pages(cache, [3, 4]) == 2


def test_reset_while_something_is_held_is_refused() -> None:
    """A reset is refused while a receipt is open or a copy is in flight."""
    cache, _ = new_cache(HOST)
    put(cache, [1, 2])
    with refused(cache, CacheBusy) as info:
        cache.reset()
    assert info.value.open_receipts == 1
    cache.flush()
    receipt = lock(cache, [1])
    with refused(cache, CacheBusy):
        cache.reset()
    cache.unlock(receipt)
    cache.reset()


# Events.


def test_events_begin_with_a_clear_and_are_handed_out_once() -> None:
    """The first event of a new or reset cache is a clear, and each event is returned once."""
    cache, _ = new_cache(PLAIN)
    assert cache.take_events() == (AllBlocksCleared(),)
    put(cache, [1, 2])
    assert [type(event) for event in cache.take_events()] == [BlockStored] * 2
    assert cache.take_events() == ()
    cache.reset()
    assert cache.take_events() == (AllBlocksCleared(),)


def test_events_that_are_off_are_not_sent() -> None:
    """A cache whose events are off collects none."""
    cache, _ = new_cache(evolve(HOST, events=False))
    put(cache, [1, 2])
    cache.flush()
    cache.evict(Counts(8, 8))
    fetch(cache, [3])
    cache.evict_host(Counts(8, 8))
    cache.reset()
    assert cache.take_events() == ()
    assert cache.snapshot().events == ()


def test_config_is_what_was_given() -> None:
    """`config` is the configuration that the cache was made with."""
    cache, _ = new_cache(HOST)
    assert cache.config is HOST
    assert cache.snapshot().config is HOST
