"""Layouts of pages, and plans of copies, which move every byte once, in few and large pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import permutations, product

import numpy as np
import pytest
import torch
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from gpu.scene import slots
from kvcanon.optimized.copy_plan import (
    KIB,
    MIB,
    LayerGroup,
    Limits,
    Part,
    Span,
    backup_spans,
    goes_direct,
    group_to_await,
    load_groups,
    pieces,
    ring_slot_bytes,
    runs,
)
from kvcanon.optimized.layout import (
    PageLayout,
    layer_groups,
    layout_for_slot_bytes,
    mha_layout,
    mla_layout,
    state_layout,
)
from kvcanon.optimized.page_transfer import SlotArray
from kvcanon.optimized.staging import DONE, Record, Ring, Ship, StreamRole, backup_steps, load_steps
from kvcanon.spec.errors import BadArgument

LAYOUT = PageLayout(5, (3, 2))
HOST_SLOTS = 7

LIMITS = Limits(rectangle_pages=2)


layouts = st.builds(
    PageLayout, st.integers(1, 9), st.lists(st.integers(1, 9), min_size=1, max_size=4).map(tuple)
)


@given(layouts)
def test_planes_fill_a_page_layer_by_layer(layout: PageLayout) -> None:
    """Planes fill a page without overlap or gap, layer by layer."""
    end = 0
    for layer in range(layout.layers):
        assert end == layer * layout.layer_bytes
        for plane, size in enumerate(layout.plane_bytes):
            assert layout.offset_bytes(layer, plane) == end
            end += size
    assert end == layout.page_bytes


@given(st.integers(1, 200), st.integers(1, 100), st.integers(1, 5_000))
def test_layer_groups_are_the_smallest_that_are_large_enough(
    layers: int, layer_bytes: int, group_bytes: int
) -> None:
    """Groups cover each layer once, and each is the smallest that is large enough."""
    groups = layer_groups(layers, layer_bytes, group_bytes)
    assert [layer for group in groups for layer in range(layers)[group]] == list(range(layers))
    sizes = [(group.stop - group.start) * layer_bytes for group in groups]
    assert all(size >= group_bytes for size in sizes) or len(sizes) == 1
    assert all(size - layer_bytes < group_bytes for size in sizes[:-1])
    assert sizes[-1] < 2 * (group_bytes + layer_bytes)
    assert layer_groups(3, 10, 1) == (slice(0, 1), slice(1, 2), slice(2, 3))
    assert layer_groups(3, 10, 31) == (slice(0, 3),)
    assert layer_groups(5, 10, 20) == (slice(0, 2), slice(2, 5))


@given(st.integers(1, 5_000))
def test_layout_for_slot_bytes_cuts_where_it_can(slot_bytes: int) -> None:
    """The layout has the slot's size, with several layers and unequal planes where possible."""
    layout = layout_for_slot_bytes(slot_bytes)
    assert layout.page_bytes == slot_bytes
    assert layout.planes == 2 or slot_bytes == 1
    prime = all(slot_bytes % n for n in range(2, slot_bytes))
    assert layout.layers > 1 or prime
    assert len(set(layout.plane_bytes)) == layout.planes or layout.layer_bytes <= 2


def test_layouts_of_models_have_the_sizes_of_their_tensors() -> None:
    """Layouts of models have the sizes of their tensors."""
    assert mha_layout(32, 16, 8, 128, torch.bfloat16) == PageLayout(32, (32_768, 32_768))
    assert mha_layout(32, 16, 8, 128, torch.float8_e4m3fn) == PageLayout(32, (16_384, 16_384))
    assert mla_layout(61, 64, 576, torch.bfloat16) == PageLayout(61, (73_728,))
    conv, ssm = ((1_024, 3), torch.bfloat16), ((8, 64, 128), torch.float32)
    assert state_layout(24, [conv, ssm]) == PageLayout(24, (6_144, 262_144))


def test_layout_refuses_what_is_no_page() -> None:
    """A page without bytes is refused, and so is what is outside of the page."""
    page, none = PageLayout(2, (3, 1)), [((), torch.float32)]
    refused: dict[str, Callable[[], object]] = {
        "layers: is 0": lambda: PageLayout(0, (1,)),
        r"plane_bytes: is \(\)": lambda: PageLayout(1, ()),
        r"plane_bytes: is \(4, 0\)": lambda: PageLayout(1, (4, 0)),
        "slot_bytes: is 0": lambda: layout_for_slot_bytes(0),
        r"shape: is \(16, 0, 128\)": lambda: mha_layout(1, 16, 0, 128, torch.float16),
        r"shape: is \(\)": lambda: state_layout(1, none),
        "group_bytes: is 0": lambda: layer_groups(1, 1, 0),
        "layer: is -1; the page has 2 layers": lambda: page.offset_bytes(-1, 0),
        "layer: is 2; the page has 2 layers": lambda: page.offset_bytes(2, 0),
        "plane: is -1; a layer of the page has 2": lambda: page.offset_bytes(0, -1),
        "plane: is 2; a layer of the page has 2": lambda: page.offset_bytes(0, 2),
    }
    for words, call in refused.items():
        with pytest.raises(BadArgument, match=words):
            call()


# Plans


def shipped(span: Span, host_slots: SlotArray, limits: Limits) -> None:
    """Copy a span out and back by its pieces, and compare with plain indexing."""
    rng = np.random.default_rng(0)
    width = span.layers * LAYOUT.layer_bytes
    ring = rng.integers(0, 256, span.pages * width, np.uint8)
    slab = rng.integers(0, 256, HOST_SLOTS * LAYOUT.page_bytes, np.uint8)
    cut = pieces(span, LAYOUT, host_slots, limits)

    expected = slab.reshape(HOST_SLOTS, -1).copy()
    first = span.first_layer * LAYOUT.layer_bytes
    expected[host_slots, first : first + width] = ring.reshape(-1, width)

    copied = 0
    for host, at, size in zip(cut.host_offsets, cut.ring_offsets, cut.sizes_bytes, strict=True):
        slab[host : host + size] = ring[at : at + size]
        copied += size
    for piece in cut.rectangles:
        for row in range(piece.rows):
            host = piece.host_offset + row * LAYOUT.page_bytes
            at = piece.ring_offset + row * piece.row_bytes
            slab[host : host + piece.row_bytes] = ring[at : at + piece.row_bytes]
            copied += piece.row_bytes
    assert (slab == expected.ravel()).all()
    assert copied == len(ring), "a byte moved twice"


@pytest.mark.parametrize(("first", "count"), [(0, 5), (0, 1), (2, 2), (4, 1)])
def test_pieces_move_what_indexing_does(first: int, count: int) -> None:
    """Whole pages and parts of them, to up to four host slots: any of them, in any order."""
    for length in range(5):
        for chosen in permutations(range(HOST_SLOTS), length):
            shipped(Span(0, 0, length, first, count), slots(*chosen), LIMITS)


@given(st.permutations(range(HOST_SLOTS)), st.integers(0, 4), st.integers(1, 5), st.integers(1, 8))
def test_pieces_of_longer_runs(order: list[int], first: int, count: int, least: int) -> None:
    """Rectangles begin at any number of pages, and take no page that is not of their run."""
    span = Span(0, 0, HOST_SLOTS, first, min(count, LAYOUT.layers - first))
    shipped(span, slots(*order), evolve(LIMITS, rectangle_pages=least))


def test_neighbours_on_the_host_go_in_one_copy() -> None:
    """Whole pages side by side are one piece, however many they are."""
    cut = pieces(Span(0, 0, 6, 0, 5), LAYOUT, slots(2, 3, 4, 0, 1, 6), LIMITS)
    assert cut.sizes_bytes.tolist() == [3 * 25, 2 * 25, 25]
    assert not cut.rectangles
    # Parts of neighbours are a rectangle; a page alone goes with the others of its kind.
    cut = pieces(Span(0, 0, 4, 1, 2), LAYOUT, slots(3, 4, 5, 0), LIMITS)
    assert [piece.rows for piece in cut.rectangles] == [3]
    assert cut.sizes_bytes.tolist() == [10]


@given(st.lists(st.integers(0, 9), max_size=8))
def test_runs_are_the_longest(numbers: list[int]) -> None:
    """Runs cover the slots in order, each counts up by one, and no two could be joined."""
    starts, lengths = runs(slots(*numbers))
    assert starts.tolist() == np.cumsum([0, *lengths])[:-1].tolist()
    assert lengths.sum() == len(numbers)
    for at, length in zip(starts, lengths, strict=True):
        assert np.all(np.diff(numbers[at : at + length]) == 1)
    assert all(numbers[at] != numbers[at - 1] + 1 for at in starts[1:])


Cell = tuple[int, int, int]
"""Part, page and layer."""


def cells(spans: Iterable[Span]) -> list[Cell]:
    """Everything in the spans."""
    return [
        (span.part, page, layer)
        for span in spans
        for page in range(span.first_page, span.first_page + span.pages)
        for layer in range(span.first_layer, span.first_layer + span.layers)
    ]


def all_cells(parts: list[Part]) -> list[Cell]:
    """Everything to move."""
    whole = [Span(at, 0, part.pages, 0, part.layout.layers) for at, part in enumerate(parts)]
    return cells(whole)


def brought(groups: Iterable[LayerGroup]) -> list[Cell]:
    """Everything that some groups of a load bring."""
    return cells(span for group in groups for span in group.spans)


PARTS = [
    [],
    [Part(LAYOUT, 0)],
    [Part(LAYOUT, 1)],
    [Part(LAYOUT, 9)],
    [Part(LAYOUT, 4), Part(PageLayout(2, (4,)), 3), Part(PageLayout(7, (1, 1)), 1)],
]


@pytest.mark.parametrize(("parts", "slot_bytes"), list(product(PARTS, [5, 11, 25, 60, 1000])))
def test_backups_are_cut_into_spans_that_fit(parts: list[Part], slot_bytes: int) -> None:
    """Every layer of every page is in one span, and no span is larger than a ring slot."""
    spans = list(backup_spans(parts, slot_bytes))
    assert sorted(cells(spans)) == all_cells(parts)
    for span in spans:
        size = span.pages * span.layers * parts[span.part].layout.layer_bytes
        assert 0 < size <= slot_bytes


def test_backups_take_whole_pages_where_they_fit() -> None:
    """Pages are cut only where one alone is larger than a ring slot, and then evenly."""
    whole = backup_spans([Part(LAYOUT, 4)], 60)
    assert [(span.pages, span.layers) for span in whole] == [(2, 5), (2, 5)]
    cut = backup_spans([Part(LAYOUT, 1)], 20)
    assert [(span.first_layer, span.layers) for span in cut] == [(0, 3), (3, 2)]


@pytest.mark.parametrize("slot_bytes", [5, 11, 60, 1000])
@pytest.mark.parametrize(("piece_bytes", "group_bytes"), [(1, 1), (10, 1), (1, 40), (1000, 1)])
@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize("parts", PARTS)
def test_loads_come_lower_layers_first(
    parts: list[Part], direct: bool, slot_bytes: int, piece_bytes: int, group_bytes: int
) -> None:
    """Groups cover everything once; a layer is awaited exactly until all up to it are there."""
    limits = Limits(piece_bytes=piece_bytes, group_bytes=group_bytes)
    groups = load_groups(parts, [direct] * len(parts), slot_bytes, limits)
    assert sorted(brought(groups)) == all_cells(parts)
    for group in groups:
        layout = parts[group.part].layout
        layers = group.end_layer - group.first_layer
        whole = layers == layout.layers
        assert whole or direct or layers * layout.layer_bytes >= piece_bytes
        assert whole or layers * layout.layer_bytes * parts[group.part].pages >= group_bytes
    for layer in range(8):
        awaited = group_to_await(groups, layer)
        needed = {cell for cell in all_cells(parts) if cell[2] <= layer}
        if awaited is None:
            assert not needed
        else:
            assert needed <= set(brought(groups[: awaited + 1]))
            assert not needed <= set(brought(groups[:awaited])), "waits for a group too many"


def test_a_layer_is_not_awaited_behind_those_above_it() -> None:
    """With several components, lower layers of all come before higher ones of any."""
    limits = Limits(piece_bytes=1, group_bytes=1)
    groups = load_groups(
        [Part(LAYOUT, 1), Part(PageLayout(2, (4,)), 1)], [False, True], 1000, limits
    )
    order = [(group.first_layer, group.part) for group in groups]
    assert order == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (3, 0), (4, 0)]
    assert group_to_await((LayerGroup(0, 0, 5, ()),), 3) == 0


def test_groups_of_usual_models() -> None:
    """At the default limits pieces reach 256 KiB, and a load has several groups."""
    seventy_b = Part(PageLayout(80, (32 * KIB, 32 * KIB)), 1000)
    assert ends(seventy_b)[:3] == [4, 8, 12]
    few = evolve(seventy_b, pages=4)
    assert ends(few)[:2] == [8, 16]
    latent = Part(PageLayout(61, (64 * 1152,)), 1000)
    assert len(ends(latent)) == 15
    # What skips the ring comes in groups of 2 MiB in all, however small its pages' parts are.
    small = Part(PageLayout(32, (2 * KIB, 2 * KIB)), 1000)
    assert ends(small) == [32]
    assert ends(small, direct=True) == list(range(1, 33))
    assert ends(evolve(small, pages=100), direct=True)[:3] == [6, 12, 18]


def ends(part: Part, *, direct: bool = False) -> list[int]:
    """Where the groups of a load end, at the default limits."""
    groups = load_groups([part], [direct], 16 * MIB, Limits())
    return [group.end_layer for group in groups]


@pytest.mark.parametrize(
    ("host_slots", "direct_bytes", "least", "direct"),
    [
        (slots(0, 2, 4), 0, 1, False),
        (slots(0, 2, 4), 75, 1, True),
        (slots(0, 2, 4), 74, 1, False),
        (slots(0, 2, 4), 0, 26, True),
        (slots(0, 1, 2), 0, 26, False),
        (slots(0, 1, 2), 0, 76, True),
    ],
)
def test_small_parts_and_small_pieces_go_direct(
    host_slots: SlotArray, direct_bytes: int, least: int, direct: bool
) -> None:
    """A copy engine is for much in large pieces; neighbours on the host make one."""
    limits = Limits(least_piece_bytes=least)
    part = Part(LAYOUT, len(host_slots))
    assert goes_direct(part, host_slots, direct_bytes, limits) is direct


def test_ring_slots_take_a_layer_of_any_component() -> None:
    """However large a layer of a page is, and at addresses that suit every access."""
    assert ring_slot_bytes(Limits(ring_slot_bytes=100), (PageLayout(2, (90,)),)) == 512
    assert ring_slot_bytes(Limits(ring_slot_bytes=100), (LAYOUT, PageLayout(2, (999,)))) == 1024
    with pytest.raises(BadArgument, match="one layer of a page has 5"):
        backup_spans([Part(LAYOUT, 1)], 4)
    for name in ("ring_slots", "ring_slot_bytes", "piece_bytes", "batch_pieces"):
        with pytest.raises(BadArgument, match=f"{name}: is 0; it must be at least 1"):
            evolve(Limits(), **{name: 0})


def test_the_ring_goes_on_from_transfer_to_transfer() -> None:
    """The next transfer takes the ring slot after the last used one; an empty one has an end."""
    ring = Ring(3)
    assert [ring.take() for _ in range(4)] == [0, 1, 2, 0]
    steps = backup_steps([Span(0, 0, 1, 0, 1)], [False], ring)
    assert [step.ring_slot for step in steps if isinstance(step, Ship)] == [1]
    assert list(backup_steps([], [], Ring(1)))[-1] == Record(StreamRole.COPY, DONE)
    assert list(load_steps([], [], Ring(1)))[-1] == Record(StreamRole.KERNEL, DONE)
