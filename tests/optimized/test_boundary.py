"""Arguments of the fast cache: wrong ones are refused and change nothing, extreme ones work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, cast

import numpy as np
import pytest
import torch
from attrs import evolve, frozen

from fast.caches import EVERYTHING, array, insert, new_cache, state_of, unchanged
from fast.nodes import bare_core
from kvcanon.optimized import OptimizedCache, PrefixCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import (
    BadArgument,
    CacheBusy,
    CacheError,
    OutOfSlots,
    PrefixNotCached,
    ReceiptSpent,
    SlotNotHeld,
    SpecViolation,
)
from kvcanon.spec.operations import HostPayload
from kvcanon.spec.types import (
    CPU,
    FULL,
    GPU,
    MAMBA,
    Counts,
    EvictionPolicy,
    Namespace,
    Slots,
    make_key,
)

PLAIN = CacheConfig(page_size=2, device_slots=Counts(full=16))
CACHED = np.arange(8, dtype=np.uint32)
"""Four pages that are in the cache."""
MISSING = CACHED + 50
HUGE = 1 << 62
TOO_LARGE = 1 << 70
NUMBERED = Namespace(extra_key=7)  # type: ignore[arg-type] # That is wrong.

Untyped: TypeAlias = Any
"""A cache without types: these tests pass what the types forbid."""


@frozen
class Scene:
    """A cache with a locked prompt and a request that holds slots; and a plain cache."""

    cache: Untyped
    plain: Untyped
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


def state(cache: Untyped, *states: int) -> None:
    """Insert nothing but states."""
    cache.insert(MISSING, 4, array(), None, array(*states))


def count(s: Scene, pages: int) -> None:
    """Insert nothing, and count the use of pages."""
    s.cache.insert(CACHED, 4, array(), counted_pages=pages)


def fetch(cache: Untyped, start_pages: int, *full: Any) -> None:  # noqa: ANN401 # As above.
    """Fetch pages from storage."""
    cache.insert_host(MISSING, start_pages, HostPayload(full=full))


WRONG: dict[type[CacheError], list[tuple[str, Call]]] = {
    SlotNotHeld: [
        ("slot -1 of full on GPU", lambda s: give(s, -1)),
        ("slot 16 of full on GPU", lambda s: give(s, 16)),
        ("slot 2147483647 of", lambda s: give(s, 2**31 - 1)),
        ("slot 2147483647", lambda s: give(s, 2**31 - 1, -(2**31))),
        ("slot 1099511627776 of", lambda s: give(s, *s.full, 2**40)),
        ("slot -1099511627776 of", lambda s: give(s, -(2**40))),
        ("slot 0 of full on GPU", lambda s: give(s, 0)),
        ("slot 15 of full on GPU", lambda s: give(s, 15)),
        ("slot 0 of full on GPU", lambda s: give(s, *s.full, 0)),
        ("slot 11 of swa on GPU", lambda s: s.cache.free(array(*s.full), array(s.swa[0], 11))),
        ("slot 0 of mamba on GPU", lambda s: s.cache.free(array(*s.full), array(*s.swa), array(0))),
    ],
    ReceiptSpent: [
        ("released before", lambda s: s.cache.unlock(s.spent)),
        ("another cache's", lambda s: s.cache.unlock(s.foreign)),
        ("receipt 12345", lambda s: s.cache.unlock_window(12345)),
        ("receipt -", lambda s: s.cache.unlock(-s.receipt)),
        (f"receipt {TOO_LARGE}", lambda s: s.cache.unlock(TOO_LARGE)),
    ],
    OutOfSlots: [
        ("4611686018427387904 slots", lambda s: s.cache.allocate(HUGE)),
        ("922337203685477580", lambda s: s.cache.allocate(2**63 - 1)),
    ],
    PrefixNotCached: [
        ("2 pages .* 0 are", lambda s: hand_over(s, s.full[:2], [], 2)),
        ("3 pages of the key are needed", lambda s: fetch(s.cache, 3, b"1")),
    ],
    CacheBusy: [("1 receipts are open", lambda s: s.cache.reset())],
    BadArgument: [
        # Slots.
        ("full: names a slot twice", lambda s: give(s, s.full[0], s.full[0])),
        # A negative number would be hidden in an unsigned one.
        ("got ndarray of uint32", lambda s: s.cache.free(array(*s.full, dtype=np.uint32))),
        ("swa: is no component", lambda s: s.plain.free(array(), array(3))),
        ("mamba: is no component", lambda s: state(s.plain, 0)),
        # Receipts and tokens.
        ("receipt: must be a whole number", lambda s: s.cache.unlock("x")),
        ("receipt: .* got NoneType", lambda s: s.cache.unlock_window(None)),
        ("tokens: must be integers in 0", lambda s: s.cache.match(array(1, -2, dtype=np.int32))),
        ("tokens: must be int", lambda s: s.cache.match(array(-1, 1))),
        ("tokens: must be int", lambda s: s.cache.lock(array(1, 2**32))),
        ("tokens: must be integ", lambda s: s.cache.lock(array(-(2**63), 1))),
        # Namespaces.
        ("namespace: is 1, which is no", lambda s: s.cache.match(CACHED, 1)),
        ("namespace: is -1", lambda s: s.cache.lock(CACHED, -1)),
        ("namespace: is 46116", lambda s: s.cache.load_back(CACHED, None, HUGE)),
        ("must be a whole number; got Namespace", lambda s: s.cache.match(CACHED, NUMBERED)),
        ("namespace: is a str; give a", lambda s: s.cache.namespace("tenant")),
        ("namespace: has a field that is neither text", lambda s: s.cache.namespace(NUMBERED)),
        # Pages and counts.
        ("pages: is -1", lambda s: s.cache.lock(CACHED, 0, -1)),
        ("pages: is 5; the tok", lambda s: s.cache.lock(CACHED, 0, 5)),
        ("pages: is 4611", lambda s: s.cache.lock(CACHED, 0, HUGE)),
        ("pages: .* got float", lambda s: s.cache.lock(CACHED, 0, 1.5)),
        ("full: -1 slots asked", lambda s: s.cache.allocate(-1)),
        ("does not fit in 64 b", lambda s: s.cache.allocate(TOO_LARGE)),
        ("full: .* got str", lambda s: s.cache.allocate("4")),
        ("swa: 2 slots asked for 1", lambda s: s.cache.allocate(1, 2)),
        ("swa: is no component", lambda s: s.plain.allocate(1, 1)),
        ("swa: -1 slots asked", lambda s: s.cache.evict(0, -1)),
        ("full: -9223372036854", lambda s: s.cache.evict_host(-(2**63))),
        ("mamba: .* 64 bits", lambda s: s.cache.evict(0, 0, TOO_LARGE)),
        ("quota_pages: is -1; it must", lambda s: s.cache.load_back(CACHED, -1)),
        ("quota_pages: must be", lambda s: s.cache.load_back(CACHED, "all")),
        # Inserts.
        ("start_pages: is -1; the key has 4 pages", lambda s: hand_over(s, s.full, s.swa, -1)),
        ("start_pages: is 5; the k", lambda s: hand_over(s, [], [], 5)),
        ("start_pages: is -46", lambda s: hand_over(s, [], [], -HUGE)),
        ("start_pages: is 4611", lambda s: hand_over(s, [], [], HUGE)),
        ("slots.full: has 3 slots f", lambda s: hand_over(s, s.full[:3], [])),
        ("slots.full: has 4 slots fo", lambda s: hand_over(s, s.full, [], 1)),
        ("slots.swa: has more slots than pages", lambda s: hand_over(s, [], s.swa, 4)),
        ("is paired with window slot", lambda s: hand_over(s, s.full, s.swa[::-1])),
        ("slots.swa: full slot", lambda s: hand_over(s, s.full, [])),
        ("slots.mamba: holds the one state", lambda s: state(s.cache, 0, 1)),
        ("counted_pages: is -1", lambda s: count(s, -1)),
        ("counted_pages: is 9223372036854775807", lambda s: count(s, 2**63 - 1)),
        ("priority: .* 64 bits", lambda s: s.cache.insert(CACHED, 4, array(), priority=TOO_LARGE)),
        # What comes from storage.
        ("payload.full: has 1 pages for pages 1..4", lambda s: fetch(s.cache, 1, b"1")),
        ("start_pages: is 4611686018427387904", lambda s: fetch(s.cache, HUGE)),
        ("payload.full: a slot has 1 bytes", lambda s: fetch(s.cache, 3, b"12")),
        ("payload.full: is not made of bytes", lambda s: fetch(s.cache, 3, "1")),
        ("insert_host: needs a host tier", lambda s: fetch(s.plain, 3, b"1")),
        # The rest.
        ("component: is 3; there are 0", lambda s: s.cache.tree.usage(3)),
        ("medium: is 2; there are 0 and 1", lambda s: s.cache.tree.pool(0, 2)),
        ("component: is -1", lambda s: s.cache.tree.holds_slot(-1, 0)),
        ("medium: is -1", lambda s: s.cache.tree.free_counts(-1)),
        ("seed: must have 32", lambda s: s.cache._add_namespace(b"x", b"short")),
    ],
}


@pytest.mark.parametrize(
    ("error", "words", "call"), [(error, *each) for error, calls in WRONG.items() for each in calls]
)
def test_wrong_calls_change_nothing(
    scene: Scene, error: type[CacheError], words: str, call: Call
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


# Arrays


@pytest.fixture
def cache() -> Untyped:
    """A cache with a prompt in it."""
    made = new_cache(EVERYTHING)
    insert(made, CACHED)
    made.flush()
    return made


OTHER_ARRAYS = {
    "list": ([1, 2], "got list"),
    "bytes": (b"12345678", "got bytes"),
    "None": (None, "got NoneType"),
    "float": (np.zeros(4), "ndarray of float64 with shape (4,)"),
    "bool": (np.zeros(4, dtype=bool), "ndarray of bool"),
    "int16": (np.zeros(4, dtype=np.int16), "ndarray of int16"),
    "uint64": (np.zeros(4, dtype=np.uint64), "ndarray of uint64"),
    "other bytes first": (np.zeros(4, dtype=">i4"), "ndarray of >i4"),
    "objects": (np.array([1, None]), "ndarray of object"),
    "two dimensions": (np.zeros((2, 2), dtype=np.int32), "with shape (2, 2)"),
    "no dimension": (np.int64(3), "int64"),
    "with gaps": (np.arange(8, dtype=np.int32)[::2], "with gaps"),
    "backwards": (np.arange(8, dtype=np.int32)[::-1], "with gaps"),
    "not aligned": (
        np.frombuffer(bytes(9), dtype=np.uint8)[1:].view(np.int32),
        "not aligned in memory",
    ),
    "torch float": (torch.zeros(3), "Tensor of torch.float32 with shape (3,) on cpu"),
    "torch elsewhere": (torch.zeros(3, dtype=torch.int64, device="meta"), "on meta"),
    "torch with gaps": (torch.zeros(6, dtype=torch.int32)[::2], "with gaps"),
}


@pytest.mark.parametrize("given", OTHER_ARRAYS.values(), ids=OTHER_ARRAYS.keys())
def test_what_is_no_array_of_the_right_kind(cache: Untyped, given: tuple[object, str]) -> None:
    """Every other object is refused, and the error line describes it."""
    other, got = given
    kinds = "must be a one-dimensional contiguous CPU array of"
    calls: list[tuple[str, Callable[[], object]]] = [
        ("tokens", lambda: cache.match(other)),
        ("tokens", lambda: cache.lock(other)),
        ("tokens", lambda: cache.load_back(other)),
        ("tokens", lambda: cache.insert(other, 0, array())),
        ("tokens", lambda: cache.insert_host(other, 0, HostPayload())),
        ("full", lambda: cache.free(other)),
        ("swa", lambda: cache.free(array(), other)),
        ("mamba", lambda: cache.insert(CACHED, 4, array(), None, other)),
    ]
    # None is no slots of a component.
    for name, call in calls[:5] if other is None else calls:
        dtypes = "int32, uint32 or int64" if name == "tokens" else "int32 or int64"
        with unchanged(cache, BadArgument, f"{name}: {kinds} {dtypes}") as info:
            call()
        assert got in str(info.value)


@pytest.mark.parametrize("dtype", [np.uint32, np.int32, np.int64, torch.int32, torch.int64])
def test_arrays_of_the_right_kinds(cache: Untyped, dtype: object) -> None:
    """Arrays of the right kinds are accepted, read-only ones, too; part of a page is ignored."""
    tokens = array(*range(9), dtype=np.int64)
    if isinstance(dtype, torch.dtype):
        given: object = torch.from_numpy(tokens).to(dtype)
    else:
        given = read_only = tokens.astype(cast("type[np.integer[Any]]", dtype))
        read_only.setflags(write=False)
    assert cache.match(given).prefix_pages == 4
    cache.unlock(cache.lock(given))
    assert cache.match(array(*range(8), -1)).prefix_pages == 4, "an invalid token of no page"


def test_empty_arrays_and_numbers_of_numpy(cache: Untyped) -> None:
    """Empty arrays are accepted, whatever their address; counts and receipts may be NumPy's."""
    for nothing in (array(), array(dtype=np.int32), torch.zeros(0, dtype=torch.int64)):
        assert cache.match(nothing).prefix_pages == 0
        cache.free(nothing)
        cache.unlock(cache.lock(nothing))
    full, swa, _ = cache.allocate(np.int64(2), swa=np.int32(1))
    cache.free(full, swa)
    cache.unlock(np.uint64(cache.lock(CACHED)))
    cache.tree.check()


def test_array_that_calls_the_cache(cache: Untyped) -> None:
    """An array that calls the cache while it is read gets a SpecViolation."""

    class Meddling:
        def __dlpack__(self, **_: object) -> object:
            with pytest.raises(SpecViolation, match="called in the middle of another call"):
                cache.match(array(5, 6))
            asked.append(self)
            return CACHED.__dlpack__()

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

    asked = list[Meddling]()
    assert cache.match(Meddling()).prefix_pages == 4
    assert len(asked) == 1


# Sizes near the limits of numbers


@pytest.mark.parametrize("count", [HUGE, 2**63 - 1, 2**31, 2**32])
def test_evict_as_much_as_there_is(cache: Untyped, count: int) -> None:
    """Any count evicts as much as there is, without overflow."""
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


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"page_size": 2**29 + 1}, "page_size: is 536870913; it must be"),
        ({"page_size": TOO_LARGE}, "page_size: is a number that does not"),
        ({"device_slots": Counts(2**31)}, "device_slots: is 2147483648; it"),
        ({"device_slots": Counts(2**27)}, "at most 2.*27 - 1024 for full data, with those of"),
        ({"device_slots": Counts(0, TOO_LARGE)}, "device_slots: is a number that does not fit"),
    ],
    ids=str,
)
def test_sizes_that_no_tree_can_have(wrong: dict[str, Any], words: str) -> None:
    """Sizes that are too large are refused."""
    with pytest.raises(BadArgument, match=words):
        PrefixCache(evolve(PLAIN, **wrong))
    # The largest page works, without overflow, also for bigrams.
    for bigram in (False, True):
        cache = PrefixCache(evolve(PLAIN, page_size=2**29, bigram=bigram))
        assert cache.match(CACHED).prefix_pages == 0


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        *(("page_size", 0), ("unit_words", 3), ("window_tokens", -1)),
        *(("window_tokens", 2**60 + 1), ("device_slots", (-1, 0, 0)), ("host_slots", (0, 0))),
        *(("write_policy", 4), ("write_policy", 1), ("eviction_policy", -1)),
        *(("load_back_threshold_pages", -1), ("tag_bits", 0), ("tag_bits", 33)),
    ],
)
def test_tree_of_wrong_parts(name: str, wrong: object) -> None:
    """Wrong arguments of the native constructor are refused."""
    with pytest.raises(BadArgument):
        bare_core(**{name: wrong})


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
