"""Pools: the bytes behind slots, on both media, and the copies between them."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from random import Random
from threading import Event, Thread

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fast.caches import array, hybrid, tiered
from kvcanon.optimized import pools
from kvcanon.optimized.layout import PageLayout, mha_layout
from kvcanon.optimized.page_transfer import Move, PageTransfer, SlotArray, page_order
from kvcanon.optimized.pools import Pools
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.transfer import Copy, Direction
from kvcanon.spec.types import CPU, FULL, GPU, MAMBA, SWA, Component, Counts, Medium

BACKUP, LOAD_BACK = Direction.BACKUP, Direction.LOAD_BACK

CONFIG = hybrid(Counts(7, 5, 2), Counts(6, 4, 3))
LAYOUTS = {FULL: PageLayout(3, (4, 2)), SWA: PageLayout(5, (3,)), MAMBA: PageLayout(2, (1, 8, 2))}
DTYPES = [torch.float8_e4m3fn, torch.bfloat16, torch.float32, torch.uint8, torch.int64]


def slots(*numbers: int) -> SlotArray:
    """Slots as an array that nobody may write to."""
    made = array(*numbers).astype("int32")
    made.flags.writeable = False
    return made


def full(sources: SlotArray, targets: SlotArray) -> Move:
    """A move of full data."""
    return Move(FULL, sources, targets)


def filled(
    config: CacheConfig = CONFIG, layouts: Mapping[Component, PageLayout] = LAYOUTS
) -> Pools:
    """Pools with different bytes behind every slot."""
    made, random = Pools(config, layouts), Random(0)
    for component, layout in layouts.items():
        for slot in range(config.capacity(component, GPU)):
            made.write(component, slot, random.randbytes(layout.page_bytes))
        for slot in range(config.capacity(component, CPU)):
            made.write_host(component, [slot], [random.randbytes(layout.page_bytes)])
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


def test_pages_are_where_attention_and_copies_find_them() -> None:
    """On the device a page is spread over layers and planes; on the host it is a row of its own.

    Slots that were never written read as zeros.
    """
    made = Pools(CONFIG, LAYOUTS)
    for (component, _, _), page in contents(made).items():
        assert page == bytes(LAYOUTS[component].page_bytes)
    made.write(FULL, 2, bytes(range(18)))
    first, second = made.planes(FULL)
    assert (first.shape, second.shape) == ((3, 7, 4), (3, 7, 2))
    assert first[:, 2].tolist() == [[0, 1, 2, 3], [6, 7, 8, 9], [12, 13, 14, 15]]
    assert second[:, 2].tolist() == [[4, 5], [10, 11], [16, 17]]
    assert made.read(FULL, GPU, 2) == bytes(range(18))
    assert made.read(FULL, GPU, 1) == made.read(FULL, GPU, 3) == bytes(18)
    pages = [Random(seed).randbytes(18) for seed in range(2)]
    made.write_host(FULL, [5, 0], pages)
    slab = made.slab(FULL)
    assert slab.shape == (6, 18)
    assert slab.is_contiguous()
    assert [bytes(slab[slot].tolist()) for slot in (5, 0, 1)] == [*pages, bytes(18)]
    assert made.read(FULL, CPU, 5) == pages[0]


@pytest.mark.parametrize("dtype", DTYPES)
def test_views_are_the_pool_itself(dtype: torch.dtype) -> None:
    """A write through a view reaches the pool at its layer, plane and slot, and nowhere else."""
    made = Pools(CacheConfig(device_slots=Counts(3)), {FULL: mha_layout(2, 4, 2, 8, dtype)})
    keys, values = (made.view(FULL, 1, plane, dtype, (4, 2, 8)) for plane in (0, 1))
    assert keys.shape == (3, 4, 2, 8)
    assert keys.dtype is dtype
    numbers = torch.arange(128).view(2, 4, 2, 8).to(dtype)
    keys[2], values[2] = numbers
    half = made.layouts[FULL].layer_bytes
    expected = bytes(half) + numbers.view(torch.uint8).numpy().tobytes()
    assert made.read(FULL, GPU, 2) == expected
    assert made.read(FULL, GPU, 1) == bytes(2 * half)


REFUSED: list[tuple[str, Callable[[Pools], object]]] = [
    ("slot: is -1; full on GPU has 7 slots", lambda made: made.write(FULL, -1, bytes(18))),
    ("slot: is 7; full on GPU has 7 slots", lambda made: made.write(FULL, 7, bytes(18))),
    ("slot: is -1; full on GPU has 7 slots", lambda made: made.read(FULL, GPU, -1)),
    ("slot: is 7; full on GPU has 7 slots", lambda made: made.read(FULL, GPU, 7)),
    ("slot: is 6; full on CPU_PINNED has 6 slots", lambda made: made.read(FULL, CPU, 6)),
    ("slot: is 0; full on DISK has 0 slots", lambda made: made.read(FULL, Medium.DISK, 0)),
    ("data: has 17 bytes; a page has 18", lambda made: made.write(FULL, 0, bytes(17))),
    ("payloads: has 19 bytes; a page has 18", lambda made: host(made, 0, 1, sizes=(18, 19))),
    ("slot: is 6; full on CPU_PINNED", lambda made: host(made, 0, 6, sizes=(18, 18))),
    ("payloads: are 1 for 2 slots", lambda made: host(made, 0, 1, sizes=(18,))),
    (
        r"shape: \(2,\) of torch.float32 has 8 bytes; the plane has 4",
        lambda made: made.view(FULL, 0, 0, torch.float32, (2,)),
    ),
    (
        r"shape: \(1,\) of torch.float16 has 2 bytes; the plane has 4",
        lambda made: made.view(FULL, 0, 0, torch.float16, (1,)),
    ),
    ("plane: is 2", lambda made: made.view(FULL, 0, 2, torch.float32, (1,))),
    ("layer: is 3", lambda made: made.view(FULL, 3, 0, torch.float32, (1,))),
    ("slot: is 7; full on GPU", lambda made: made.copy(full(slots(0, 7), slots(0, 1)), BACKUP)),
    ("slot: is -1; full on GPU", lambda made: made.copy(full(slots(0, -1), slots(0, 1)), BACKUP)),
    ("slot: is 6; full on CPU", lambda made: made.copy(full(slots(0, 6), slots(0, 6)), BACKUP)),
    ("slot: is 6; full on CPU", lambda made: made.copy(full(slots(6, 0), slots(0, 1)), LOAD_BACK)),
    ("slot: is 7; full on GPU", lambda made: made.copy(full(slots(0, 1), slots(0, 7)), LOAD_BACK)),
    (
        "move: has 2 sources and 1 targets",
        lambda made: made.copy(full(slots(0, 1), slots(0)), BACKUP),
    ),
]


def host(made: Pools, *numbers: int, sizes: tuple[int, ...]) -> None:
    """Write pages of these sizes to the host."""
    made.write_host(FULL, list(numbers), [bytes(size) for size in sizes])


@pytest.mark.parametrize(("words", "call"), REFUSED)
def test_pools_refuse_slots_and_sizes_that_are_not_theirs(
    words: str, call: Callable[[Pools], object]
) -> None:
    """Wrong slots and sizes are refused, change nothing, and the error says what is wrong."""
    made = filled()
    with refused(made, words):
        call(made)


def test_pools_refuse_components_and_media_that_are_not_there() -> None:
    """Layouts and calls for components that the cache lacks, and copies without a host tier."""
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
    assert made.slab(FULL).shape == (0, 18)
    with refused(made, "full on CPU_PINNED has 0 slots"):
        made.copy(full(slots(0), slots(0)), BACKUP)


# Copies


@given(st.data())
@settings(max_examples=100)
def test_copies_are_right_for_any_layout(data: st.DataObject) -> None:
    """A copied page equals its source, for all sizes, layers and pieces; others do not change."""
    layers = data.draw(st.integers(1, 4))
    size = st.integers(1, 20) | st.sampled_from([24, 32, 48, 64])
    sizes = data.draw(st.lists(size, min_size=1, max_size=3))
    layout = PageLayout(layers, tuple(sizes))
    made = filled(tiered(9), {FULL: layout})
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
        made.copy(full(slots(*sources), slots(*targets)), direction, slice(first, last))
    assert contents(made) == expected


@pytest.mark.parametrize("pattern", ["ff", "7ff0000000000001", "0100", "80000000"])
def test_copies_do_not_look_at_what_they_move(pattern: str) -> None:
    """Copies keep every bit, also of signalling NaNs and negative zeros."""
    for item in (16, 8, 4, 2, 1):
        made = Pools(tiered(2), {FULL: PageLayout(1, (3 * item,))})
        for order in (pattern, bytes.fromhex(pattern)[::-1].hex()):
            page = (bytes.fromhex(order) * 48)[: 3 * item]
            made.write(FULL, 1, page)
            made.copy(full(slots(1), slots(0)), BACKUP)
            made.copy(full(slots(0), slots(0)), LOAD_BACK)
            assert made.read(FULL, GPU, 0) == page


def test_copies_let_other_threads_run() -> None:
    """A copy in the background lets other Python threads run."""
    made = Pools(tiered(4), {FULL: PageLayout(1, (1 << 23,))})
    move = full(slots(*range(4)), slots(*range(4)))
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

MOVES = (full(slots(4, 5), slots(1, 2)), Move(SWA, slots(3), slots(0)))


def test_an_order_moves_every_component() -> None:
    """An order lists and moves the slots of all its components; without moves it moves nothing."""
    made = filled()
    before = contents(made)
    order = page_order(9, BACKUP, MOVES, made)
    assert tuple(order.copies) == (Copy(FULL, (4, 5), (1, 2)), Copy(SWA, (3,), (0,)))
    assert (order.transfer_id, order.direction) == (9, BACKUP)
    assert repr(order.perform) == "PageTransfer(backup: 2 full, 1 swa)"
    order.perform()
    after = contents(made)
    moved = {
        (FULL, CPU, 1): before[FULL, GPU, 4],
        (FULL, CPU, 2): before[FULL, GPU, 5],
        (SWA, CPU, 0): before[SWA, GPU, 3],
    }
    assert after == before | moved
    empty = page_order(9, LOAD_BACK, (), made)
    assert len(empty.copies) == 0
    empty.perform()
    assert contents(made) == after


def test_an_order_goes_layer_by_layer() -> None:
    """`perform_layers` moves exactly the given layers."""
    made = filled()
    before = contents(made)
    transfer = PageTransfer(BACKUP, MOVES, made)
    assert (transfer.layers, transfer.layer_bytes) == (5, 2 * 6 + 3)
    transfer.perform_layers(slice(0, 2))
    assert made.read(FULL, CPU, 1) == before[FULL, GPU, 4][:12] + before[FULL, CPU, 1][12:]
    assert made.read(SWA, CPU, 0) == before[SWA, GPU, 3][:6] + before[SWA, CPU, 0][6:]
    transfer.perform_layers(slice(2, 5))
    assert made.read(FULL, CPU, 1) == before[FULL, GPU, 4]
    assert made.read(SWA, CPU, 0) == before[SWA, GPU, 3]
    empty = PageTransfer(LOAD_BACK, (), made)
    assert (empty.layers, empty.layer_bytes) == (0, 0)
