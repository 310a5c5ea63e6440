"""Layouts: where each plane of each layer stands in a page, and how layers are cut into groups."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kvcanon.optimized.layout import (
    PageLayout,
    layer_groups,
    layout_for_slot_bytes,
    mha_layout,
    mla_layout,
    state_layout,
)
from kvcanon.spec.errors import BadArgument

layouts = st.builds(
    PageLayout,
    st.integers(1, 9),
    st.lists(st.integers(1, 9), min_size=1, max_size=4).map(tuple),
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


def test_layer_groups_of_one_layer_and_of_all() -> None:
    """Groups can have one layer, or all."""
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
    """A page without bytes is refused, and the error names the wrong number."""
    with pytest.raises(BadArgument, match="layers: is 0"):
        PageLayout(0, (1,))
    with pytest.raises(BadArgument, match=r"plane_bytes: is \(\)"):
        PageLayout(1, ())
    with pytest.raises(BadArgument, match=r"plane_bytes: is \(4, 0\)"):
        PageLayout(1, (4, 0))
    with pytest.raises(BadArgument, match="slot_bytes: is 0"):
        layout_for_slot_bytes(0)
    with pytest.raises(BadArgument, match=r"shape: is \(16, 0, 128\)"):
        mha_layout(1, 16, 0, 128, torch.float16)
    with pytest.raises(BadArgument, match=r"shape: is \(\)"):
        state_layout(1, [((), torch.float32)])
    with pytest.raises(BadArgument, match="group_bytes: is 0"):
        layer_groups(1, 1, 0)


def test_layout_refuses_layers_and_planes_that_are_not_there() -> None:
    """Offsets outside of the page are refused."""
    layout = PageLayout(2, (3, 1))
    for wrong in (-1, 2):
        with pytest.raises(BadArgument, match=f"layer: is {wrong}; the page has 2 layers"):
            layout.offset_bytes(wrong, 0)
        with pytest.raises(BadArgument, match=f"plane: is {wrong}; a layer of the page has 2"):
            layout.offset_bytes(0, wrong)
