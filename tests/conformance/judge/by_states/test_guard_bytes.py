"""The guard compares the bytes behind matched slots with those that were written."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
from attrs import evolve

from guarded import CONFIG, KEY, LONGER, OTHER, reference, scripted, serve
from kvcanon.conformance.cases.stamps import write_stamps
from kvcanon.conformance.judge.by_states.guard import guard_states
from kvcanon.reference import InlineEngine, ManualEngine, ReferenceCache
from kvcanon.spec.cache import Cache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import CacheError, SpecViolation
from kvcanon.spec.law import Violation
from kvcanon.spec.operations import HostPayload
from kvcanon.spec.types import (
    CPU,
    FULL,
    GPU,
    MAMBA,
    SWA,
    Component,
    Counts,
    Key,
    Namespace,
    Slots,
    make_key,
)
from kvcanon.spec.views import Step
from writing import WritesAnywhere, WritesLittle

# Bytes.


def read_all(cache: Cache, key: Key) -> list[bytes]:
    """Return the bytes of the full slots that a match returns."""
    return [cache.read(FULL, GPU, slot) for slot in cache.match(key).slots.full]


def spoil(cache: ReferenceCache, key: Key, component: Component = FULL) -> None:
    """Write other bytes to the first slot that a match returns."""
    slot = cache.match(key).slots[component][0]
    cache._state.pools[component, GPU].payloads[slot] = b"\xff" * CONFIG.slot_bytes


@pytest.mark.parametrize("component", [FULL, SWA, MAMBA])
def test_guard_sees_wrong_bytes(component: Component) -> None:
    """Bytes of a matched slot that differ from those written for its page are reported."""
    cache = reference()
    guarded = guard_states(cache)
    serve(guarded, KEY)
    guarded.match(KEY)
    spoil(cache, KEY, component)
    page = {FULL: 0, SWA: 0, MAMBA: 2}[component]
    with pytest.raises(
        SpecViolation, match=rf"DATA-1 .*page {page} of the key is in {component} slot .*ffffffff"
    ):
        guarded.match(KEY)


@pytest.mark.parametrize("component", [FULL, SWA, MAMBA])
def test_guard_sees_wrong_bytes_on_the_host(component: Component) -> None:
    """Bytes of a page's host slot that differ from those written for it are reported."""
    cache = reference()
    guarded = guard_states(cache)
    serve(guarded, KEY)
    guarded.flush()
    node = next(n for n in guarded.snapshot().below_root() if n[component].host is not None)
    slot = (node[component].host or ())[0]
    for other in range(CONFIG.host_slots[component]):
        guarded.read(component, CPU, other)
    cache._state.pools[component, CPU].payloads[slot] = b"\xff" * CONFIG.slot_bytes
    with pytest.raises(SpecViolation, match=rf"DATA-1 .*{component} slot {slot} on CPU.*ffffffff"):
        guarded.read(component, CPU, slot)


def test_guard_follows_bytes_to_the_host_and_back() -> None:
    """Wrong bytes of a page that was demoted and loaded back are reported."""
    for spoiled in (False, True):
        cache = reference()
        guarded = guard_states(cache)
        serve(guarded, KEY)
        written = read_all(guarded, KEY)
        guarded.evict(Counts(full=16))
        assert guarded.match(KEY).device_pages == 0
        if spoiled:
            payloads = cache._state.pools[FULL, CPU].payloads
            payloads.update(dict.fromkeys(payloads, b"\x00" * 8))
        guarded.load_back(KEY)
        guarded.flush()
        if spoiled:
            with pytest.raises(SpecViolation, match="DATA-1"):
                guarded.match(KEY)
        else:
            assert read_all(guarded, KEY) == written


def test_guard_follows_bytes_through_steps_that_it_does_not_judge() -> None:
    """Bytes that were written and inserted outside the sample are compared."""
    cache = reference()
    guarded = scripted(cache, *[False] * 12, True, True)
    serve(guarded, OTHER)
    serve(guarded, KEY)
    guarded.match(KEY)
    spoil(cache, KEY)
    with pytest.raises(SpecViolation, match="DATA-1"):
        guarded.match(KEY)


def test_guard_expects_the_bytes_that_the_tree_kept() -> None:
    """The bytes of a page are those of the slot that the tree kept, not those of freed slots."""
    cache = reference(evolve(CONFIG, window_tokens=None, mamba=False))
    guarded = guard_states(cache)
    both = [guarded.allocate(Counts(full=3)) for _ in range(2)]
    for fill, slots in zip((b"a", b"b"), both, strict=True):
        for slot in slots.full:
            guarded.write(FULL, slot, fill * 8)
    for slots in both:
        guarded.insert(KEY, 0, slots)
    assert read_all(guarded, KEY) == [b"a" * 8] * 3
    for slot in guarded.match(KEY).slots.full:
        cache._state.pools[FULL, GPU].payloads[slot] = b"b" * 8
    with pytest.raises(SpecViolation, match="DATA-1"):
        guarded.match(KEY)


def test_guard_does_not_compare_unknown_bytes() -> None:
    """Pages that were inserted before the guard, or never written, are not compared."""
    cache = reference()
    serve(cache, KEY)
    guarded = guard_states(cache)
    serve(guarded, OTHER)
    spoil(cache, KEY)
    guarded.match(KEY)
    serve(guarded, make_key([7, 7, 7, 7], 2), write=False)
    serve(guarded, make_key([7, 7, 7, 7], 2))
    guarded.match(make_key([7, 7, 7, 7], 2))
    serve(guarded, LONGER)
    assert guarded.match(LONGER).device_pages == 4


def test_guard_expects_fetched_bytes() -> None:
    """Bytes of `insert_host` are those of their pages."""
    for spoiled in (False, True):
        cache = reference()
        guarded = guard_states(cache)
        serve(guarded, OTHER)
        payload = HostPayload((b"1" * 8, b"2" * 8, b"3" * 8), (b"4" * 8, b"5" * 8), (b"6" * 8,))
        elsewhere = Key(KEY.pages, Namespace("elsewhere"))
        guarded.insert_host(elsewhere, 0, payload)
        if spoiled:
            (slot,) = [s for s, b in cache._state.pools[SWA, CPU].payloads.items() if b[:1] == b"5"]
            cache._state.pools[SWA, CPU].payloads[slot] = b"4" * 8
        guarded.load_back(elsewhere)
        guarded.flush()
        if spoiled:
            with pytest.raises(SpecViolation, match="in swa slot"):
                guarded.match(elsewhere)
        else:
            assert read_all(guarded, elsewhere) == [b"1" * 8, b"2" * 8, b"3" * 8]


def test_guard_forgets_evicted_pages() -> None:
    """A page that is inserted again after an eviction or a reset may have other bytes."""
    cache = reference(evolve(CONFIG, window_tokens=None, mamba=False))
    guarded = guard_states(cache)

    def insert(fill: bytes) -> None:
        slots = guarded.allocate(Counts(full=3))
        for slot in slots.full:
            guarded.write(FULL, slot, fill * 8)
        guarded.insert(KEY, 0, slots)
        guarded.flush()

    def drop() -> None:
        guarded.evict(Counts(full=16))
        guarded.evict_host(Counts(full=16))

    for fill, leave in ((b"a", drop), (b"b", guarded.reset), (b"c", drop), (b"d", drop)):
        insert(fill)
        assert read_all(guarded, KEY) == [fill * 8] * 3
        assert len(guarded._written._pages) == 3
        leave()
        assert len(guarded._written._pages) == 0
    insert(b"e")
    for slot in guarded.match(KEY).slots.full:
        cache._state.pools[FULL, GPU].payloads[slot] = b"d" * 8
    with pytest.raises(SpecViolation, match="DATA-1"):
        guarded.match(KEY)


def test_guard_keeps_no_more_bytes_than_the_tree_has() -> None:
    """The bytes of pages that were evicted outside the sample are forgotten in time."""
    pools = Counts(full=64)
    config = CacheConfig(device_slots=pools)
    cache = reference(config)
    guarded = guard_states(cache, rate=0.05, seed=3)
    for at in range(400):
        key = make_key(range(at * 40, at * 40 + 32), 1)
        guarded.evict(Counts(full=32))
        slots = guarded.allocate(Counts(full=32))
        write_stamps(guarded, key, slots)
        guarded.insert(key, 0, slots)
        guarded.match(key)
    assert len(guarded._written._pages) < 4000
    assert not guarded._written._slots


def test_guard_forgets_slots_that_were_given_back() -> None:
    """Bytes written into a slot are forgotten when the slot is freed."""
    guarded = guard_states(reference())
    slots = guarded.allocate(Counts(full=3, swa=3))
    write_stamps(guarded, OTHER, Slots(slots.full[:2]))
    guarded.free(slots)
    serve(guarded, KEY, write=False)
    guarded.match(KEY)


def test_guard_follows_no_bytes_where_it_never_judges() -> None:
    """A guard that judges nothing records no bytes."""
    guarded = guard_states(reference(), rate=0.0)
    serve(guarded, KEY)
    assert not guarded._written._pages
    with pytest.raises(CacheError):
        guarded.write(FULL, 0, b"x" * 8)


def test_guard_works_with_copies_that_come_late_and_fail() -> None:
    """Copies that end late, fail or are cancelled break no law."""
    engine = ManualEngine()
    guarded = guard_states(ReferenceCache(CONFIG, engine))
    serve(guarded, KEY)
    first, *_ = engine.open_orders
    serve(guarded, LONGER)
    engine.fail(first.transfer_id)
    guarded.poll()
    guarded.flush()
    guarded.match(LONGER)


SLOT_BYTES = bytes(CONFIG.slot_bytes)


@pytest.mark.parametrize(
    ("law_id", "make", "access"),
    [
        ("REFUSE-3", WritesAnywhere, lambda cache: cache.write(FULL, 9, SLOT_BYTES)),
        ("REFUSE-3", WritesAnywhere, lambda cache: cache.write(FULL, 0, SLOT_BYTES[1:])),
        ("REFUSE-3", WritesAnywhere, lambda cache: cache.read(FULL, CPU, -1)),
        ("REFUSE-1", WritesLittle, lambda cache: cache.write(FULL, 0, SLOT_BYTES)),
        ("REFUSE-1", WritesLittle, lambda cache: cache.read(SWA, GPU, 1)),
    ],
)
def test_reads_and_writes_are_judged_by_the_table_of_refusals(
    law_id: str, make: type[ReferenceCache], access: Callable[[Cache], object]
) -> None:
    """A read or write that is wrongly served or wrongly refused is reported."""
    for cache_of, heard in ((ReferenceCache, set[str]()), (make, {law_id})):
        found: list[str] = []

        def hear(violation: Violation, _: Step, found: list[str] = found) -> None:
            found.append(violation.law.law_id)

        cache = guard_states(cache_of(CONFIG, InlineEngine()), on_violation=hear)
        assert cache.allocate(Counts(1, 1)).full == (0,)
        with suppress(CacheError):
            access(cache)
        assert set(found) == heard
