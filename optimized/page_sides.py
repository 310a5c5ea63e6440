"""Sides: the memory of a pool's pages on each medium, as the plain copy indexes it.

Both media have the same pieces in the same order, in items of one size.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd
from typing import TypeAlias

import torch

from kvcanon.optimized.device_planes import DevicePlanes
from kvcanon.optimized.layout import PageLayout
from kvcanon.spec.types import CPU, GPU, Medium

ITEM_OF_SIZE = {
    1: torch.uint8,
    2: torch.int16,
    4: torch.int32,
    8: torch.int64,
    16: torch.complex128,
}
"""The dtype in which bytes are moved. Values are never read; complex128 is just torch's widest
item."""

Side: TypeAlias = list[list[torch.Tensor]]
"""The tensors of a medium that `copy` indexes: for each layer and piece one of (slots, items)."""


def sides_of(planes: DevicePlanes, slab: torch.Tensor, layout: PageLayout) -> dict[Medium, Side]:
    """What `copy` indexes on each medium: the same pieces, in the widest items that fit both."""
    every = [plane for layer in planes for plane in layer]
    item = _widest_item(
        number
        for plane in every
        for number in (plane.piece_bytes, plane.slot_bytes, plane.first_byte, *plane.piece_offsets)
    )
    wide_slab = slab.view(item)
    device: Side = []
    host: Side = []
    for number, layer in enumerate(planes):
        first = layout.offset_bytes(number, 0) // item.itemsize
        device.append([])
        host.append([])
        for piece in (piece.view(item) for plane in layer for piece in plane.pieces()):
            device[-1].append(piece)
            host[-1].append(wide_slab.narrow(1, first, piece.shape[1]))
            first += piece.shape[1]
    return {GPU: device, CPU: host}


def _widest_item(numbers: Iterable[int]) -> torch.dtype:
    """The largest dtype whose size divides all numbers, so that there are fewer items to move."""
    return ITEM_OF_SIZE[gcd(max(ITEM_OF_SIZE), *numbers)]
