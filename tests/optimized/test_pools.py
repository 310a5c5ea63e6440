"""Pools: the bytes behind slots, on both media, and the copies between them."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from random import Random
from threading import Event, Thread

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcanon.optimized import pools
from kvcanon.optimized.layout import PageLayout, layout_for_slot_bytes, mha_layout
from kvcanon.optimized.page_transfer import Move, PageTransfer, SlotArray, page_order
from kvcanon.optimized.pools import Pools
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.transfer import Copy, Direction
from kvcanon.spec.types import CPU, FULL, GPU, MAMBA, SWA, Component, Counts, Medium

BACKUP, LOAD_BACK = Direction.BACKUP, Direction.LOAD_BACK

CONFIG = CacheConfig(
    window_tokens=2,
    mamba=True,
    device_slots=Counts(7, 5, 2),
    host_slots=Counts(6, 4, 3),
    write_policy="write_through",
)
LAYOUTS = {FULL: PageLayout(3, (4, 2)), SWA: PageLayout(5, (3,)), MAMBA: PageLayout(2, (1, 8, 2))}


def slots(*numbers: int) -> SlotArray:
    """Slots as an array."""
    return np.array(numbers, dtype=np.int32)


def random_bytes(seed: int, size_bytes: int) -> bytes:
    """Random bytes, the same for the same seed."""
    return Random(seed).randbytes(size_bytes)


def filled(config: CacheConfig, layouts: Mapping[Component, PageLayout]) -> Pools:
    """Pools with different bytes behind every slot."""
    made = Pools(config, layouts)
    seed = 0
    for component, layout in layouts.items():
        for slot in range(config.capacity(component, GPU)):
            made.write(component, slot, random_bytes(seed := seed + 1, layout.page_bytes))
        for slot in range(config.capacity(component, CPU)):
            page = random_bytes(seed := seed + 1, layout.page_bytes)
            made.write_host(component, [slot], [page])
    return made


def contents(some: Pools) -> dict[tuple[Component, Medium, int], bytes]:
    """The bytes behind every slot."""
    return {
        (component, medium, slot): some.read(component, medium, slot)
        for component in some.layouts
        for medium in (GPU, CPU)
        for slot in range(some.config.capacity(component, medium))
    }


@contextmanager
def refused(some: Pools, match: str) -> Iterator[None]:
    """Check that the code inside is refused and changes no byte."""
    before = contents(some)
    with pytest.raises(BadArgument, match=match):
        yield
    assert contents(some) == before


# Reading and writing


def test_pools_begin_with_zeros() -> None:
    """Slots that were never written read as zeros."""
    made = Pools(CONFIG, LAYOUTS)
    for (component, _, _), page in contents(made).items():
        assert page == bytes(LAYOUTS[component].page_bytes)


def test_a_page_on_the_device_is_spread_over_layers_and_planes() -> None:
    """`write` puts bytes where attention reads them, and `read` returns them in order."""
    made = Pools(CONFIG, LAYOUTS)
    made.write(FULL, 2, bytes(range(18)))
    first, second = made.planes(FULL)
    assert first.shape == (3, 7, 4)
    assert second.shape == (3, 7, 2)
    assert first[:, 2].tolist() == [[0, 1, 2, 3], [6, 7, 8, 9], [12, 13, 14, 15]]
    assert second[:, 2].tolist() == [[4, 5], [10, 11], [16, 17]]
    assert made.read(FULL, GPU, 2) == bytes(range(18))
    assert made.read(FULL, GPU, 1) == made.read(FULL, GPU, 3) == bytes(18)


def test_a_page_on_the_host_is_one_piece() -> None:
    """A host page is one contiguous row of the slab, behind its own slot."""
    made = Pools(CONFIG, LAYOUTS)
    pages = [random_bytes(seed, 18) for seed in range(2)]
    made.write_host(FULL, [5, 0], pages)
    slab = made.slab(FULL)
    assert slab.shape == (6, 18)
    assert slab.is_contiguous()
    assert [bytes(slab[slot].tolist()) for slot in (5, 0, 1)] == [*pages, bytes(18)]
    assert made.read(FULL, CPU, 5) == pages[0]


@pytest.mark.parametrize(
    "dtype", [torch.float8_e4m3fn, torch.bfloat16, torch.float32, torch.uint8, torch.int64]
)
def test_views_are_the_pool_itself(dtype: torch.dtype) -> None:
    """A write through a view reaches the pool at its layer, plane and slot, and nowhere else."""
    config = CacheConfig(device_slots=Counts(3))
    made = Pools(config, {FULL: mha_layout(2, 4, 2, 8, dtype)})
    keys, values = (made.view(FULL, 1, plane, dtype, (4, 2, 8)) for plane in (0, 1))
    assert keys.shape == (3, 4, 2, 8)
    assert keys.dtype is dtype
    numbers = torch.arange(64).view(4, 2, 8)
    keys[2] = numbers.to(dtype)
    values[2] = (numbers + 64).to(dtype)
    half = made.layouts[FULL].layer_bytes
    expected = torch.stack([numbers, numbers + 64]).to(dtype).view(torch.uint8)
    assert made.read(FULL, GPU, 2) == bytes(half) + expected.numpy().tobytes()
    assert made.read(FULL, GPU, 1) == bytes(2 * half)


def test_pools_refuse_slots_and_sizes_that_are_not_theirs() -> None:
    """Wrong slots and sizes are refused, change nothing, and the error says what is wrong."""
    made = filled(CONFIG, LAYOUTS)
    page = bytes(18)
    for slot in (-1, 7):
        with refused(made, f"slot: is {slot}; full on GPU has 7 slots"):
            made.write(FULL, slot, page)
        with refused(made, f"slot: is {slot}; full on GPU has 7 slots"):
            made.read(FULL, GPU, slot)
    with refused(made, "slot: is 6; full on CPU_PINNED has 6 slots"):
        made.read(FULL, CPU, 6)
    with refused(made, "slot: is 0; full on DISK has 0 slots"):
        made.read(FULL, Medium.DISK, 0)
    with refused(made, "data: has 17 bytes; a page has 18"):
        made.write(FULL, 0, bytes(17))
    with refused(made, "payloads: has 19 bytes; a page has 18"):
        made.write_host(FULL, [0, 1], [page, bytes(19)])
    with refused(made, "slot: is 6; full on CPU_PINNED"):
        made.write_host(FULL, [0, 6], [page, page])
    with refused(made, "payloads: are 1 for 2 slots"):
        made.write_host(FULL, [0, 1], [page])
    with refused(made, r"shape: \(2,\) of torch.float32 has 8 bytes; the plane has 4"):
        made.view(FULL, 0, 0, torch.float32, (2,))
    with refused(made, r"shape: \(1,\) of torch.float16 has 2 bytes; the plane has 4"):
        made.view(FULL, 0, 0, torch.float16, (1,))
    with refused(made, "plane: is 2"):
        made.view(FULL, 0, 2, torch.float32, (1,))
    with refused(made, "layer: is 3"):
        made.view(FULL, 3, 0, torch.float32, (1,))


def test_pools_refuse_components_that_are_not_there() -> None:
    """Layouts and calls for components that the cache lacks are refused."""
    plain = CacheConfig(device_slots=Counts(2))
    with pytest.raises(BadArgument, match="layouts: are of full, swa, mamba; the cache has full"):
        Pools(plain, LAYOUTS)
    with pytest.raises(BadArgument, match="layouts: are of none; the cache has full"):
        Pools(plain, {})
    made = Pools(plain, {FULL: LAYOUTS[FULL]})
    for ask in (
        lambda: made.planes(SWA),
        lambda: made.slab(SWA),
        lambda: made.read(SWA, GPU, 0),
        lambda: made.write(SWA, 0, b""),
        lambda: made.view(SWA, 0, 0, torch.uint8, (1,)),
        lambda: made.copy(Move(SWA, slots(), slots()), BACKUP),
    ):
        with pytest.raises(BadArgument, match="component: is swa; there is full"):
            ask()


def test_pools_without_a_host_tier_have_no_host_slots() -> None:
    """Pools without a host tier work and take no host memory."""
    made = Pools(CacheConfig(device_slots=Counts(2)), {FULL: LAYOUTS[FULL]})
    assert made.slab(FULL).shape == (0, 18)
    with refused(made, "full on CPU_PINNED has 0 slots"):
        made.copy(Move(FULL, slots(0), slots(0)), BACKUP)


# Copies


def test_copies_take_pages_from_slot_to_slot() -> None:
    """A copied page equals its source, and other slots do not change."""
    made = filled(CONFIG, LAYOUTS)
    expected = contents(made)
    for component, sources, targets in (
        (FULL, (6, 0, 3), (1, 5, 0)),
        (SWA, (4, 2), (0, 3)),
        (MAMBA, (1,), (2,)),
    ):
        made.copy(Move(component, slots(*sources), slots(*targets)), BACKUP)
        for source, target in zip(sources, targets, strict=True):
            expected[component, CPU, target] = expected[component, GPU, source]
        assert contents(made) == expected
        made.copy(Move(component, slots(*targets), slots(*sources[::-1])), LOAD_BACK)
        for source, target in zip(targets, sources[::-1], strict=True):
            expected[component, GPU, target] = expected[component, CPU, source]
        assert contents(made) == expected


@given(st.data())
@settings(max_examples=60)
def test_copies_are_right_for_any_layout(data: st.DataObject) -> None:
    """Copies are right for all sizes, layers and pieces."""
    layers = data.draw(st.integers(1, 4))
    size = st.integers(1, 20) | st.sampled_from([24, 32, 48, 64])
    sizes = data.draw(st.lists(size, min_size=1, max_size=3))
    layout = PageLayout(layers, tuple(sizes))
    config = CacheConfig(device_slots=Counts(9), host_slots=Counts(9), write_policy="write_through")
    made = filled(config, {FULL: layout})
    count = data.draw(st.integers(0, 9))
    sources = data.draw(st.permutations(range(9)))[:count]
    targets = data.draw(st.permutations(range(9)))[:count]
    direction = data.draw(st.sampled_from(Direction))
    first, last = sorted(data.draw(st.tuples(st.integers(0, 6), st.integers(0, 6))))
    here, there = (GPU, CPU) if direction is BACKUP else (CPU, GPU)
    expected = contents(made)
    for source, target in zip(sources, targets, strict=True):
        moved = slice(first * layout.layer_bytes, last * layout.layer_bytes)
        page = bytearray(expected[FULL, there, target])
        page[moved] = expected[FULL, here, source][moved]
        expected[FULL, there, target] = bytes(page)
    piece_items = data.draw(st.sampled_from([1, 3, 20, 1 << 15]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pools, "PIECE_ITEMS", piece_items)
        move = Move(FULL, slots(*sources), slots(*targets))
        made.copy(move, direction, slice(first, last))
    assert contents(made) == expected


@pytest.mark.parametrize("slot_bytes", [1, 2, 3, 7, 8])
def test_copies_are_right_for_the_smallest_pages(slot_bytes: int) -> None:
    """Copies are right for the tiny pages that the judge uses."""
    config = CacheConfig(
        device_slots=Counts(2),
        host_slots=Counts(2),
        write_policy="write_back",
        slot_bytes=slot_bytes,
    )
    made = filled(config, {FULL: layout_for_slot_bytes(slot_bytes)})
    page = made.read(FULL, GPU, 1)
    made.copy(Move(FULL, slots(1), slots(0)), BACKUP)
    assert made.read(FULL, CPU, 0) == page
    made.copy(Move(FULL, slots(0), slots(0)), LOAD_BACK)
    assert made.read(FULL, GPU, 0) == page


def test_copies_take_read_only_arrays() -> None:
    """Copies accept read-only slot arrays."""
    made = filled(CONFIG, LAYOUTS)
    sources, targets = slots(1, 2), slots(0, 1)
    for array in (sources, targets):
        array.flags.writeable = False
    made.copy(Move(FULL, sources, targets), BACKUP)
    assert made.read(FULL, CPU, 1) == made.read(FULL, GPU, 2)


@pytest.mark.parametrize(
    ("sources", "targets", "said"),
    [
        (slots(0, 7), slots(0, 1), "slot: is 7; full on GPU has 7 slots"),
        (slots(0, -1), slots(0, 1), "slot: is -1; full on GPU has 7 slots"),
        (slots(0, 6), slots(0, 6), "slot: is 6; full on CPU_PINNED has 6 slots"),
        (slots(0, 1), slots(0), "move: has 2 sources and 1 targets"),
    ],
)
def test_copies_of_slots_that_are_not_there_move_nothing(
    sources: SlotArray, targets: SlotArray, said: str
) -> None:
    """A move with a wrong slot is refused before any page is copied."""
    made = filled(CONFIG, LAYOUTS)
    with refused(made, said):
        made.copy(Move(FULL, sources, targets), BACKUP)
    if "sources" not in said:
        with refused(made, "slot"):
            made.copy(Move(FULL, targets + 6, sources), LOAD_BACK)


@pytest.mark.parametrize("pattern", ["ff", "7ff0000000000001", "0100", "80000000"])
def test_copies_do_not_look_at_what_they_move(pattern: str) -> None:
    """Copies keep every bit, also of signalling NaNs and negative zeros."""
    config = CacheConfig(device_slots=Counts(2), host_slots=Counts(2), write_policy="write_back")
    for item in (16, 8, 4, 2, 1):
        made = Pools(config, {FULL: PageLayout(1, (3 * item,))})
        for order in (pattern, bytes.fromhex(pattern)[::-1].hex()):
            page = (bytes.fromhex(order) * 48)[: 3 * item]
            made.write(FULL, 1, page)
            made.copy(Move(FULL, slots(1), slots(0)), BACKUP)
            made.copy(Move(FULL, slots(0), slots(0)), LOAD_BACK)
            assert made.read(FULL, GPU, 0) == page


def test_copies_let_other_threads_run() -> None:
    """A copy in the background lets other Python threads run."""
    config = CacheConfig(device_slots=Counts(4), host_slots=Counts(4), write_policy="write_back")
    made = Pools(config, {FULL: PageLayout(1, (1 << 23,))})
    move = Move(FULL, slots(*range(4)), slots(*range(4)))
    turns, over = 0, Event()

    def take_turns() -> None:
        nonlocal turns
        while not over.is_set():
            turns += 1
            time.sleep(0)

    def turns_during_a_copy() -> int:
        before = turns
        made.copy(move, BACKUP)
        return turns - before

    interval_s = sys.getswitchinterval()
    # The interpreter is never taken away: another thread gets it only where it is given.
    sys.setswitchinterval(1_000)
    other = Thread(target=take_turns)
    other.start()
    try:
        # A copy that keeps it while it moves bytes gives it a dozen times before and after.
        assert any(turns_during_a_copy() > 40 for _ in range(200))
    finally:
        over.set()
        sys.setswitchinterval(interval_s)
        other.join()


# Orders


def test_an_order_moves_every_component() -> None:
    """An order lists and moves the slots of all its components."""
    made = filled(CONFIG, LAYOUTS)
    before = contents(made)
    moves = (Move(FULL, slots(4, 5), slots(1, 2)), Move(SWA, slots(3), slots(0)))
    order = page_order(9, BACKUP, moves, made)
    assert tuple(order.copies) == (Copy(FULL, (4, 5), (1, 2)), Copy(SWA, (3,), (0,)))
    assert (order.transfer_id, order.direction) == (9, BACKUP)
    assert repr(order.perform) == "PageTransfer(backup: 2 full, 1 swa)"
    order.perform()
    after = contents(made)
    assert after[FULL, CPU, 1] == before[FULL, GPU, 4]
    assert after[FULL, CPU, 2] == before[FULL, GPU, 5]
    assert after[SWA, CPU, 0] == before[SWA, GPU, 3]
    assert sum(after[name] != before[name] for name in before) == 3


def test_an_order_goes_layer_by_layer() -> None:
    """`perform_layers` moves exactly the given layers."""
    made = filled(CONFIG, LAYOUTS)
    before = contents(made)
    moves = (Move(FULL, slots(4, 5), slots(1, 2)), Move(SWA, slots(3), slots(0)))
    transfer = PageTransfer(BACKUP, moves, made)
    assert transfer.layers == 5
    assert transfer.layer_bytes == 2 * 6 + 3
    transfer.perform_layers(slice(0, 2))
    assert made.read(FULL, CPU, 1) == before[FULL, GPU, 4][:12] + before[FULL, CPU, 1][12:]
    assert made.read(SWA, CPU, 0) == before[SWA, GPU, 3][:6] + before[SWA, CPU, 0][6:]
    transfer.perform_layers(slice(2, 5))
    assert made.read(FULL, CPU, 1) == before[FULL, GPU, 4]
    assert made.read(SWA, CPU, 0) == before[SWA, GPU, 3]


def test_an_order_without_moves_moves_nothing() -> None:
    """An order without moves changes nothing."""
    made = filled(CONFIG, LAYOUTS)
    before = contents(made)
    transfer = PageTransfer(LOAD_BACK, (), made)
    assert (transfer.layers, transfer.layer_bytes) == (0, 0)
    order = page_order(9, LOAD_BACK, (), made)
    assert len(order.copies) == 0
    order.perform()
    assert contents(made) == before
