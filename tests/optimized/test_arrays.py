"""Arrays that the fast cache takes: which kinds are accepted, and how others are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, cast

import numpy as np
import pytest
import torch

from array_api import array, insert, new_cache, unchanged
from kvcanon.optimized import PrefixCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import (
    BadArgument,
    SpecViolation,
)
from kvcanon.spec.operations import HostPayload
from kvcanon.spec.types import (
    Counts,
)

EVERYTHING = CacheConfig(
    page_size=2,
    window_tokens=4,
    mamba=True,
    device_slots=Counts(16, 12, 4),
    host_slots=Counts(16, 12, 4),
    write_policy="write_through",
)
Untyped: TypeAlias = Any
"""A cache without types: these tests pass what the types forbid."""

CACHED = np.arange(8, dtype=np.uint32)
"""Four pages that are in the cache."""


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
    with_tokens: tuple[Callable[[], object], ...] = (
        lambda: cache.match(other),
        lambda: cache.lock(other),
        lambda: cache.load_back(other),
        lambda: cache.insert(other, 0, array()),
        lambda: cache.insert_host(other, 0, HostPayload()),
    )
    for call in with_tokens:
        with unchanged(cache, BadArgument, f"tokens: {kinds} int32, uint32 or int64") as info:
            call()
        assert got in str(info.value)
    if other is None:
        return  # No slots of that component.
    with_slots: tuple[tuple[str, Callable[[], object]], ...] = (
        ("full", lambda: cache.free(other)),
        ("swa", lambda: cache.free(array(), other)),
        ("mamba", lambda: cache.insert(CACHED, 4, array(), None, other)),
    )
    for name, call in with_slots:
        with unchanged(cache, BadArgument, f"{name}: {kinds} int32 or int64") as info:
            call()
        assert got in str(info.value)


def test_slots_are_not_unsigned(cache: Untyped) -> None:
    """Slots as uint32 are refused: a negative number would be hidden in them."""
    full, *_ = cache.allocate(4, 2)
    with unchanged(cache, BadArgument, "full: must be .* got ndarray of uint32"):
        cache.free(array(*full.tolist(), dtype=np.uint32))


@pytest.mark.parametrize("dtype", [np.uint32, np.int32, np.int64, torch.int32, torch.int64])
def test_arrays_of_the_right_kinds(cache: Untyped, dtype: object) -> None:
    """Arrays of the right kinds are accepted, read-only ones, too."""
    if isinstance(dtype, torch.dtype):
        tokens: object = torch.arange(9).to(dtype)
    else:
        read_only = np.arange(9).astype(cast("type[np.integer[Any]]", dtype))
        read_only.setflags(write=False)
        tokens = read_only
    assert cache.match(tokens).prefix_pages == 4
    cache.unlock(cache.lock(tokens))


def test_part_page_is_ignored(cache: Untyped) -> None:
    """Tokens behind the last whole page are ignored, even invalid ones."""
    assert cache.match(array(*range(8), -1)).prefix_pages == 4


def test_empty_arrays(cache: Untyped) -> None:
    """Empty arrays are accepted, whatever their address."""
    for nothing in (array(), array(dtype=np.int32), torch.zeros(0, dtype=torch.int64)):
        assert cache.match(nothing).prefix_pages == 0
        cache.free(nothing)
        cache.unlock(cache.lock(nothing))
    cache.tree.check()


def test_numbers_of_numpy(cache: Untyped) -> None:
    """NumPy integers are accepted as counts and receipts."""
    full, swa, _ = cache.allocate(np.int64(2), swa=np.int32(1))
    cache.free(full, swa)
    cache.unlock(np.uint64(cache.lock(CACHED)))


# One call at a time.


class Meddling:
    """An array that calls the cache when it is read."""

    def __init__(self, cache: PrefixCache) -> None:
        self._cache: Any = cache
        self.refusals: list[str] = []

    def __dlpack__(self, **_: object) -> object:
        """Return the memory of the array."""
        try:
            self._cache.match(array(5, 6))
        except SpecViolation as refusal:
            self.refusals.append(str(refusal))
        return CACHED.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        """The CPU."""
        return (1, 0)


def test_array_that_calls_the_cache(cache: Untyped) -> None:
    """An array that calls the cache while it is read gets a SpecViolation."""
    meddling = Meddling(cache)
    assert cache.match(meddling).prefix_pages == 4
    assert len(meddling.refusals) == 1
    assert meddling.refusals[0].startswith("called in the middle of another call")
