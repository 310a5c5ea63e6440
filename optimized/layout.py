"""Page layouts: a page has layers, and each layer has the same few planes of bytes.

A *plane* is one tensor of a layer: keys, values, a compressed latent, a part of a mamba state. On
the device every plane has its own tensor, so that attention reads a layer without a stride. On the
host a page is contiguous, layer by layer, and in each layer plane by plane. Neighbouring layers of
a page are therefore contiguous, too, and can be copied in one piece.

A layout has no dtype, since copies move bytes. Only the views for attention have a dtype, and they
must fill a plane exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
from attrs import frozen

from kvcanon.spec.errors import BadArgument


@frozen
class PageLayout:
    """The bytes of one page of a component, or of one mamba state.

    Raises:
        BadArgument: there is no layer or no plane, or a plane without bytes.
    """

    layers: int
    """Layers of the model that have this component."""
    plane_bytes: tuple[int, ...]
    """Size of each plane of one layer of one page."""

    def __attrs_post_init__(self) -> None:
        if self.layers < 1:
            raise BadArgument("layers", f"is {self.layers}; a page has at least one layer")
        if not self.plane_bytes or min(self.plane_bytes) < 1:
            raise BadArgument(
                "plane_bytes", f"is {self.plane_bytes}; name one size of at least 1 for each plane"
            )

    @property
    def planes(self) -> int:
        """Planes of a layer."""
        return len(self.plane_bytes)

    @property
    def layer_bytes(self) -> int:
        """Size of one layer of a page."""
        return sum(self.plane_bytes)

    @property
    def page_bytes(self) -> int:
        """Size of a page."""
        return self.layers * self.layer_bytes

    def offset_bytes(self, layer: int, plane: int) -> int:
        """The offset of a plane of a layer in a page on the host.

        Raises:
            BadArgument: the page has no such layer or plane.
        """
        self.require(layer, plane)
        return layer * self.layer_bytes + sum(self.plane_bytes[:plane])

    def require(self, layer: int, plane: int) -> None:
        """Check that the page has this plane of this layer. Raises: BadArgument."""
        if not 0 <= layer < self.layers:
            raise BadArgument("layer", f"is {layer}; the page has {self.layers} layers")
        if not 0 <= plane < self.planes:
            raise BadArgument("plane", f"is {plane}; a layer of the page has {self.planes} planes")


def layer_groups(layers: int, layer_bytes: int, group_bytes: int) -> tuple[slice, ...]:
    """Cut layers into runs of neighbours, each the fewest that have at least `group_bytes`.

    The last run takes the rest, so that no run is smaller than `group_bytes`, unless all layers
    together are.

    Raises:
        BadArgument: a number is below one.
    """
    numbers = {"layers": layers, "layer_bytes": layer_bytes, "group_bytes": group_bytes}
    for name, number in numbers.items():
        if number < 1:
            raise BadArgument(name, f"is {number}; it must be at least 1")
    a_group = -(-group_bytes // layer_bytes)
    count = max(1, layers // a_group)
    ends = [*(a_group * at for at in range(1, count)), layers]
    return tuple(slice(end, until) for end, until in zip([0, *ends], ends, strict=False))


def mha_layout(
    layers: int, page_size: int, heads: int, head_dim: int, dtype: torch.dtype
) -> PageLayout:
    """Keys and values of every head: two planes, each (page_size, heads, head_dim)."""
    plane = _size_bytes((page_size, heads, head_dim), dtype)
    return PageLayout(layers, (plane, plane))


def mla_layout(layers: int, page_size: int, latent_dim: int, dtype: torch.dtype) -> PageLayout:
    """Compressed latents (MLA): one plane (page_size, latent_dim).

    `latent_dim` includes the rotary part.
    """
    return PageLayout(layers, (_size_bytes((page_size, latent_dim), dtype),))


def state_layout(layers: int, parts: Sequence[tuple[Sequence[int], torch.dtype]]) -> PageLayout:
    """A mamba state: one plane for each part, such as the convolution and SSM states."""
    return PageLayout(layers, tuple(_size_bytes(shape, dtype) for shape, dtype in parts))


def layout_for_slot_bytes(slot_bytes: int) -> PageLayout:
    """Cut a page of any size into several layers with unequal planes, where possible.

    For caches that only give the bytes of a slot. Unequal planes reveal copies that exchange two
    planes.

    Raises:
        BadArgument: a slot has less than one byte.
    """
    if slot_bytes < 1:
        raise BadArgument("slot_bytes", f"is {slot_bytes}; it must be at least 1")
    layers = next((n for n in range(2, slot_bytes // 2 + 1) if slot_bytes % n == 0), 1)
    layer_bytes = slot_bytes // layers
    if layer_bytes == 1:
        return PageLayout(layers, (1,))
    second = max(1, layer_bytes // 3)
    return PageLayout(layers, (layer_bytes - second, second))


def _size_bytes(shape: Sequence[int], dtype: torch.dtype) -> int:
    if not shape or min(shape) < 1:
        raise BadArgument("shape", f"is {tuple(shape)}; every dimension is at least 1")
    return prod(shape) * dtype.itemsize
