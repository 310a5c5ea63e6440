"""Wrong calls of the fast cache: each raises with one error line and changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from attrs import frozen

from array_api import array, insert, new_cache, state_of, unchanged
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import (
    BadArgument,
    CacheBusy,
    CacheError,
    OutOfSlots,
    PrefixNotCached,
    ReceiptSpent,
    SlotNotHeld,
)
from kvcanon.spec.operations import HostPayload
from kvcanon.spec.types import (
    Counts,
    Namespace,
)

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
"""Four pages that are in the cache."""
MISSING = CACHED + 50
HUGE = 1 << 62
TOO_LARGE = 1 << 70


@frozen
class Scene:
    """A cache with a locked prompt and a request that holds slots; and a plain cache.

    The caches are typed `Any`, because these tests pass arguments that the types forbid.
    """

    cache: Any
    plain: Any
    receipt: int
    spent: int
    foreign: int
    """A receipt of the other cache."""
    full: list[int]
    swa: list[int]


@pytest.fixture
def scene() -> Scene:
    """Caches in which every kind of wrong call is possible."""
    cache, plain = new_cache(EVERYTHING), new_cache(PLAIN)
    for each in (cache, plain):
        insert(each, CACHED)
        each.flush()
    spent = cache.lock(CACHED)
    cache.unlock(spent)
    full, swa, _ = cache.allocate(4, 2)
    return Scene(
        cache, plain, cache.lock(CACHED), spent, plain.lock(CACHED), full.tolist(), swa.tolist()
    )


Call = Callable[[Scene], object]


def give(s: Scene, *full: int) -> None:
    """Free full slots."""
    s.cache.free(array(*full))


def hand_over(s: Scene, full: list[int], swa: list[int], start_pages: int = 0) -> None:
    """Insert a prompt of four pages that is not in the cache."""
    s.cache.insert(MISSING, start_pages, array(*full), array(*swa))


WRONG_CALLS: list[tuple[str, Call, type[CacheError], str]] = [
    # Slots.
    ("negative slot", lambda s: give(s, -1), SlotNotHeld, "slot -1 of full on GPU"),
    ("no such slot", lambda s: give(s, 16), SlotNotHeld, "slot 16 of full on GPU"),
    ("largest slot", lambda s: give(s, 2**31 - 1), SlotNotHeld, "slot 2147483647 of"),
    ("past the largest", lambda s: give(s, 2**31 - 1, -(2**31)), SlotNotHeld, "slot 2147483647"),
    ("not int32", lambda s: give(s, *s.full, 2**40), SlotNotHeld, "slot 1099511627776 of"),
    ("negative, not int32", lambda s: give(s, -(2**40)), SlotNotHeld, "slot -1099511627776 of"),
    ("in the tree", lambda s: give(s, 0), SlotNotHeld, "slot 0 of full on GPU"),
    ("free", lambda s: give(s, 15), SlotNotHeld, "slot 15 of full on GPU"),
    ("one of several", lambda s: give(s, *s.full, 0), SlotNotHeld, "slot 0 of full on GPU"),
    ("twice", lambda s: give(s, s.full[0], s.full[0]), BadArgument, "full: names a slot twice"),
    (
        "second component wrong",
        lambda s: s.cache.free(array(*s.full), array(s.swa[0], 11)),
        SlotNotHeld,
        "slot 11 of swa on GPU",
    ),
    (
        "third component wrong",
        lambda s: s.cache.free(array(*s.full), array(*s.swa), array(0)),
        SlotNotHeld,
        "slot 0 of mamba on GPU",
    ),
    ("no window", lambda s: s.plain.free(array(), array(3)), BadArgument, "swa: is no component"),
    (
        "no states",
        lambda s: s.plain.insert(MISSING, 4, array(), None, array(0)),
        BadArgument,
        "mamba: is no component",
    ),
    # Receipts.
    ("spent", lambda s: s.cache.unlock(s.spent), ReceiptSpent, "released before"),
    ("of another cache", lambda s: s.cache.unlock(s.foreign), ReceiptSpent, "another cache's"),
    ("made up", lambda s: s.cache.unlock_window(12345), ReceiptSpent, "receipt 12345"),
    ("negative", lambda s: s.cache.unlock(-s.receipt), ReceiptSpent, "receipt -"),
    ("too large", lambda s: s.cache.unlock(TOO_LARGE), ReceiptSpent, f"receipt {TOO_LARGE}"),
    ("no number", lambda s: s.cache.unlock("x"), BadArgument, "receipt: must be a whole number"),
    ("none", lambda s: s.cache.unlock_window(None), BadArgument, "receipt: .* got NoneType"),
    # Tokens.
    (
        "negative token",
        lambda s: s.cache.match(array(1, -2, dtype=np.int32)),
        BadArgument,
        "tokens: must be integers in 0",
    ),
    ("negative int64", lambda s: s.cache.match(array(-1, 1)), BadArgument, "tokens: must be int"),
    ("beyond 32 bits", lambda s: s.cache.lock(array(1, 2**32)), BadArgument, "tokens: must be int"),
    ("smallest", lambda s: s.cache.lock(array(-(2**63), 1)), BadArgument, "tokens: must be integ"),
    # Namespaces.
    ("unknown", lambda s: s.cache.match(CACHED, 1), BadArgument, "namespace: is 1, which is no"),
    ("below zero", lambda s: s.cache.lock(CACHED, -1), BadArgument, "namespace: is -1"),
    ("huge", lambda s: s.cache.load_back(CACHED, None, HUGE), BadArgument, "namespace: is 46116"),
    (
        "itself",
        lambda s: s.cache.match(CACHED, Namespace()),
        BadArgument,
        "namespace: must be a whole number; got Namespace",
    ),
    ("a text", lambda s: s.cache.namespace("tenant"), BadArgument, "namespace: is a str; give a"),
    (
        "of numbers",
        lambda s: s.cache.namespace(Namespace(extra_key=7)),  # type: ignore[arg-type]
        BadArgument,
        "namespace: has a field that is neither text nor None",
    ),
    # Pages and counts.
    ("pages below zero", lambda s: s.cache.lock(CACHED, 0, -1), BadArgument, "pages: is -1"),
    ("too many pages", lambda s: s.cache.lock(CACHED, 0, 5), BadArgument, "pages: is 5; the tok"),
    ("huge pages", lambda s: s.cache.lock(CACHED, 0, HUGE), BadArgument, "pages: is 4611"),
    ("half a page", lambda s: s.cache.lock(CACHED, 0, 1.5), BadArgument, "pages: .* got float"),
    ("negative room", lambda s: s.cache.allocate(-1), BadArgument, "full: -1 slots asked"),
    ("huge room", lambda s: s.cache.allocate(HUGE), OutOfSlots, "4611686018427387904 slots"),
    ("largest room", lambda s: s.cache.allocate(2**63 - 1), OutOfSlots, "922337203685477580"),
    ("too much room", lambda s: s.cache.allocate(TOO_LARGE), BadArgument, "does not fit in 64 b"),
    ("room by name", lambda s: s.cache.allocate("4"), BadArgument, "full: .* got str"),
    ("more window", lambda s: s.cache.allocate(1, 2), BadArgument, "swa: 2 slots asked for 1"),
    ("room for none", lambda s: s.plain.allocate(1, 1), BadArgument, "swa: is no component"),
    ("evict below zero", lambda s: s.cache.evict(0, -1), BadArgument, "swa: -1 slots asked"),
    ("evict smallest", lambda s: s.cache.evict_host(-(2**63)), BadArgument, "full: -9223372036854"),
    ("evict too much", lambda s: s.cache.evict(0, 0, TOO_LARGE), BadArgument, "mamba: .* 64 bits"),
    ("quota", lambda s: s.cache.load_back(CACHED, -1), BadArgument, "quota_pages: is -1; it must"),
    ("no quota", lambda s: s.cache.load_back(CACHED, "all"), BadArgument, "quota_pages: must be"),
    # Inserts.
    (
        "starts below zero",
        lambda s: hand_over(s, s.full, s.swa, -1),
        BadArgument,
        "start_pages: is -1; the key has 4 pages",
    ),
    ("starts behind", lambda s: hand_over(s, [], [], 5), BadArgument, "start_pages: is 5; the k"),
    ("starts nowhere", lambda s: hand_over(s, [], [], -HUGE), BadArgument, "start_pages: is -46"),
    ("starts far", lambda s: hand_over(s, [], [], HUGE), BadArgument, "start_pages: is 4611"),
    ("in a gap", lambda s: hand_over(s, s.full[:2], [], 2), PrefixNotCached, "2 pages .* 0 are"),
    ("too few", lambda s: hand_over(s, s.full[:3], []), BadArgument, "slots.full: has 3 slots f"),
    ("too many", lambda s: hand_over(s, s.full, [], 1), BadArgument, "slots.full: has 4 slots fo"),
    (
        "longer window",
        lambda s: hand_over(s, [], s.swa, 4),
        BadArgument,
        "slots.swa: has more slots than pages",
    ),
    (
        "other pairs",
        lambda s: hand_over(s, s.full, s.swa[::-1]),
        BadArgument,
        "slots.swa: full slot .* is paired with window slot",
    ),
    ("left behind", lambda s: hand_over(s, s.full, []), BadArgument, "slots.swa: full slot"),
    (
        "two states",
        lambda s: s.cache.insert(MISSING, 4, array(), None, array(0, 1)),
        BadArgument,
        "slots.mamba: holds the one state",
    ),
    (
        "counted below zero",
        lambda s: s.cache.insert(CACHED, 4, array(), counted_pages=-1),
        BadArgument,
        "counted_pages: is -1",
    ),
    (
        "counted too many",
        lambda s: s.cache.insert(CACHED, 4, array(), counted_pages=2**63 - 1),
        BadArgument,
        "counted_pages: is 9223372036854775807",
    ),
    (
        "priority",
        lambda s: s.cache.insert(CACHED, 4, array(), priority=TOO_LARGE),
        BadArgument,
        "priority: .* 64 bits",
    ),
    # What comes from storage.
    (
        "fetched too few",
        lambda s: s.cache.insert_host(MISSING, 1, HostPayload(full=(b"1",))),
        BadArgument,
        "payload.full: has 1 pages for pages 1..4",
    ),
    (
        "fetched nowhere",
        lambda s: s.cache.insert_host(MISSING, HUGE, HostPayload()),
        BadArgument,
        "start_pages: is 4611686018427387904",
    ),
    (
        "fetched behind a gap",
        lambda s: s.cache.insert_host(MISSING, 3, HostPayload(full=(b"1",))),
        PrefixNotCached,
        "3 pages of the key are needed",
    ),
    (
        "fetched bytes",
        lambda s: s.cache.insert_host(MISSING, 3, HostPayload(full=(b"12",))),
        BadArgument,
        "payload.full: a slot has 1 bytes",
    ),
    (
        "fetched text",
        lambda s: s.cache.insert_host(MISSING, 3, HostPayload(full=("1",))),  # type: ignore[arg-type]
        BadArgument,
        "payload.full: is not made of bytes",
    ),
    (
        "nowhere to fetch to",
        lambda s: s.plain.insert_host(MISSING, 3, HostPayload(full=(b"1",))),
        BadArgument,
        "insert_host: needs a host tier",
    ),
    # The rest.
    ("reset under a lock", lambda s: s.cache.reset(), CacheBusy, "1 receipts are open"),
    ("component", lambda s: s.cache.tree.usage(3), BadArgument, "component: is 3; there are 0"),
    ("medium", lambda s: s.cache.tree.pool(0, 2), BadArgument, "medium: is 2; there are 0 and 1"),
    ("whose slot", lambda s: s.cache.tree.holds_slot(-1, 0), BadArgument, "component: is -1"),
    ("where", lambda s: s.cache.tree.free_counts(-1), BadArgument, "medium: is -1"),
    ("seed", lambda s: s.cache._add_namespace(b"x", b"short"), BadArgument, "seed: must have 32"),
]


@pytest.mark.parametrize(
    ("call", "error", "words"), [each[1:] for each in WRONG_CALLS], ids=[e[0] for e in WRONG_CALLS]
)
def test_wrong_calls_change_nothing(
    scene: Scene, call: Call, error: type[CacheError], words: str
) -> None:
    """A wrong call changes nothing, raises the right error and says what is wrong."""
    with unchanged(scene.plain, error, words) as info:
        before = state_of(scene.cache)
        try:
            call(scene)
        finally:
            scene.cache.tree.check()
            assert state_of(scene.cache) == before
    assert "\n" not in str(info.value)
    # The right calls still work after the refusal.
    scene.cache.insert(MISSING, 0, array(*scene.full), array(*scene.swa))
    scene.cache.unlock(scene.receipt)
    scene.cache.tree.check()


def test_namespaces_of_any_text(scene: Scene) -> None:
    """Namespaces with any text are distinct, also with lone surrogates."""
    numbers = {
        scene.cache.namespace(Namespace(cache_salt=text))
        for text in ("\ud800", "\udc00", "\ud800\udc00", "", "\0", "\0\0", "a" * 100_000)
    }
    assert len(numbers) == 7
    for number in numbers:
        assert scene.plain.namespace(scene.cache.namespace_of(number)) >= 1
        assert scene.cache.match(CACHED, number).prefix_pages == 0
        scene.plain.evict(16)
        insert(scene.plain, CACHED, namespace=number)
        assert scene.plain.match(CACHED, number).prefix_pages == 4
    scene.plain.tree.check()
