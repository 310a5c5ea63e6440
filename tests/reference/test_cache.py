"""The API of the plain cache: arguments are checked, and a refused call changes nothing."""

from __future__ import annotations

from attrs import evolve

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument, CacheBusy
from kvcanon.spec.events import AllBlocksCleared, BlockStored
from kvcanon.spec.types import CPU, FULL, GPU, SWA, Counts, Key, Page
from scenes import plain, refused

PLAIN = CacheConfig(device_slots=Counts(8))
HOST = CacheConfig(
    window_tokens=2,
    device_slots=Counts(8, 8),
    host_slots=Counts(8, 8),
    write_policy="write_through",
)


def test_malformed_bigram_key_is_refused() -> None:
    """A cache with bigram keys refuses keys of tokens or of triples."""
    s = plain(evolve(PLAIN, page_size=2, bigram=True))
    triples: tuple[Page, ...] = (((1, 2), (2, 3, 4)),)  # type: ignore[assignment]
    for pages in (((1, 2),), (((1, 2), (2, 1 << 32)),), (((1, 2), 3),), triples):
        with refused(s.cache, BadArgument, match="bigrams"):
            s.cache.match(Key(pages))


# Bytes.


def test_read_gives_what_was_written() -> None:
    """Bytes are read back unchanged, each from its own slot and pool."""
    s = plain(HOST)
    slots = s.cache.allocate(Counts(2, 2))
    s.cache.write(FULL, slots.full[0], b"full  00")
    s.cache.write(SWA, slots.swa[0], b"window 0")
    assert s.cache.read(FULL, GPU, slots.full[0]) == b"full  00"
    assert s.cache.read(SWA, GPU, slots.swa[0]) == b"window 0"
    assert s.cache.read(FULL, GPU, slots.full[1]) == bytes(8)
    assert s.cache.read(FULL, CPU, slots.full[0]) == bytes(8)


def test_read_and_snapshot_change_nothing() -> None:
    """Reading bytes and taking snapshots do not change the state."""
    s = plain(HOST, "put 12")
    before = s.cache.snapshot()
    s.cache.read(FULL, GPU, 0)
    s.cache.read(SWA, CPU, 7)
    assert s.cache.snapshot() == before


def test_write_of_another_size_is_refused() -> None:
    """A write of more or fewer bytes than a slot has is refused."""
    s = plain(evolve(PLAIN, slot_bytes=3))
    (slot,) = s.cache.allocate(Counts(1)).full
    for data in (b"", b"12", b"1234"):
        with refused(s.cache, BadArgument, match="data"):
            s.cache.write(FULL, slot, data)
    s.cache.write(FULL, slot, b"123")
    assert s.cache.read(FULL, GPU, slot) == b"123"


# Reset.


def test_reset_forgets_the_tree_and_leaves_requests_their_slots() -> None:
    """After a reset no prompt is found, no slot is lost, and requests keep their slots."""
    s = plain(HOST, "put 12; flush; fetch 78 window=2")
    slots = s.compute("34")
    s.cache.reset()
    state = s.cache.snapshot()
    assert list(state.nodes) == [state.root_id]
    assert state.swa_of_full == dict(zip(slots.full, slots.swa, strict=True))
    assert state.pools[FULL, GPU].held == set(slots.full)
    assert [len(pool.free) for pool in state.pools.values()] == [6, 8, 6, 8]
    for tokens in ([1, 2], [7, 8]):
        assert s.hit(tokens) == 0
    s.cache.insert(s.key("34"), 0, slots)
    assert s.hit("34") == 2


def test_reset_while_something_is_held_is_refused() -> None:
    """A reset is refused while a receipt is open or a copy is in flight."""
    s = plain(HOST, "put 12")
    with refused(s.cache, CacheBusy) as info:
        s.cache.reset()
    assert info.value.open_receipts == 1
    s.cache.flush()
    receipt = s.lock("1")
    with refused(s.cache, CacheBusy):
        s.cache.reset()
    s.cache.unlock(receipt)
    s.cache.reset()


# Events.


def test_events_begin_with_a_clear_and_are_handed_out_once() -> None:
    """The first event of a new or reset cache is a clear, and each event is returned once."""
    s = plain(PLAIN)
    assert s.cache.take_events() == (AllBlocksCleared(),)
    s.put("12")
    assert [type(event) for event in s.cache.take_events()] == [BlockStored] * 2
    assert s.heard() == ""
    s.cache.reset()
    assert s.cache.take_events() == (AllBlocksCleared(),)


def test_events_that_are_off_are_not_sent() -> None:
    """A cache whose events are off collects none."""
    s = plain(evolve(HOST, events=False), "put 12; flush; evict full=8 swa=8; fetch 3")
    s.play("evict_host full=8 swa=8; reset")
    assert s.heard() == ""
    assert s.cache.snapshot().events == ()


def test_config_is_what_was_given() -> None:
    """`config` is the configuration that the cache was made with."""
    s = plain(HOST)
    assert s.cache.config is HOST
    assert s.cache.snapshot().config is HOST
