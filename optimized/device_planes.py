"""Device planes: where the bytes of all slots lie in a tensor, whatever its strides.

A *plane* is one tensor of one layer, seen as slots. The bytes of a page in it are one or several
*pieces* of equal size, each contiguous. A page of a contiguous tensor is one piece. A page of a
tensor that has the heads before the slots is one piece a head.

Copies need no more than this: the address of slot 0, the distance from slot to slot, and the
offsets of the pieces.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import TypeAlias

import numpy as np
import torch
from attrs import frozen

from kvcanon.optimized.layout import PageLayout
from kvcanon.spec.errors import BadArgument

MOST_PIECES = 4096
"""Pieces of a page in one plane. A page in more of them has pieces of a few bytes, which cost more
to address than to move."""
MOST_INTERVALS = 1 << 20
"""Pieces that are compared for overlap: all of them in any pool but the largest."""


@frozen(eq=False)
class DevicePlane:
    """One tensor of one layer, seen as slots. It keeps the tensor's memory alive."""

    memory: torch.Tensor
    """The tensor's whole memory, as uint8."""
    first_byte: int
    """Where slot 0 begins in it."""
    slots: int
    slot_bytes: int
    """From one slot to the next; 0 where there is one slot only."""
    piece_bytes: int
    piece_offsets: tuple[int, ...]
    """From the first byte of a slot, in the order of addresses, which is that of a host page."""

    @property
    def plane_bytes(self) -> int:
        """Size of a page in this plane."""
        return self.piece_bytes * len(self.piece_offsets)

    @property
    def address(self) -> int:
        """Address of slot 0."""
        return self.memory.data_ptr() + self.first_byte

    def pieces(self) -> Iterable[torch.Tensor]:
        """The memory of each piece: a uint8 tensor (slots, piece_bytes)."""
        for offset in self.piece_offsets:
            yield self.memory.as_strided(
                (self.slots, self.piece_bytes), (self.slot_bytes, 1), self.first_byte + offset
            )


DevicePlanes: TypeAlias = tuple[tuple[DevicePlane, ...], ...]
"""The device pool of a component: for each layer, its planes."""


def plane_of(argument: str, pages: torch.Tensor) -> DevicePlane:
    """Describe a tensor (slots, ...) of any strides and any dtype. `argument` names it in errors.

    Raises:
        BadArgument: pages overlap, have no bytes, or lie in too many pieces.
    """
    if pages.layout is not torch.strided or pages.device.type == "meta":
        raise BadArgument(argument, "has no memory with strides; give a dense tensor with data")
    if 0 in pages.shape[1:]:
        raise BadArgument(argument, f"is of shape {tuple(pages.shape)}; its pages have no bytes")
    slots, slot_bytes = pages.shape[0], pages.stride(0) * pages.itemsize
    steps = sorted(
        (stride * pages.itemsize, size)
        for size, stride in zip(pages.shape[1:], pages.stride()[1:], strict=True)
        if size > 1
    )
    slot_step = [(slot_bytes, slots)] if slots > 1 else []
    _require_apart(argument, pages, sorted([*steps, *slot_step]))
    piece_bytes = pages.itemsize
    while steps and steps[0][0] == piece_bytes:
        piece_bytes *= steps.pop(0)[1]
    count = int(np.prod([size for _, size in steps], dtype=np.int64))
    if count > MOST_PIECES:
        raise BadArgument(
            argument,
            f"has pages in {count} pieces of {piece_bytes} bytes; give tensors whose pages lie in "
            f"at most {MOST_PIECES} pieces",
        )
    offsets = sorted(
        sum(parts)
        for parts in product(*([step * at for at in range(size)] for step, size in steps))
    )
    storage = pages.untyped_storage()
    memory = torch.empty(0, dtype=torch.uint8, device=pages.device).set_(storage)
    first_byte = int(pages.storage_offset()) * pages.itemsize
    return DevicePlane(
        memory, first_byte, slots, slot_bytes if slots > 1 else 0, piece_bytes, tuple(offsets)
    )


def layout_of(argument: str, planes: DevicePlanes) -> PageLayout:
    """The layout of pages whose bytes lie in these planes.

    Raises:
        BadArgument: the layers differ.
    """
    shapes = [
        [(plane.piece_bytes, len(plane.piece_offsets)) for plane in layer] for layer in planes
    ]
    for number, shape in enumerate(shapes):
        if shape != shapes[0]:
            raise BadArgument(
                argument,
                f"differ: layer {number} has pages of {_said(shape)}, layer 0 of "
                f"{_said(shapes[0])}; all layers of a component have equal pages",
            )
    return PageLayout(len(planes), tuple(plane.plane_bytes for plane in planes[0]))


@frozen(eq=False)
class _Placed:
    """A plane, and how errors name it."""

    argument: str
    place: str
    plane: DevicePlane

    @property
    def end(self) -> int:
        """The address behind the last byte of the last slot."""
        plane = self.plane
        last_slot = plane.address + (plane.slots - 1) * plane.slot_bytes
        return last_slot + plane.piece_offsets[-1] + plane.piece_bytes


def require_no_sharing(pools: Iterable[tuple[str, DevicePlanes]]) -> None:
    """Check that no two planes share a byte; of very large pools, that their first slots do not.

    Raises:
        BadArgument: two planes do.
    """
    placed = [
        _Placed(argument, f"layer {layer}, plane {number}", plane)
        for argument, planes in pools
        for layer, row in enumerate(planes)
        for number, plane in enumerate(row)
    ]
    # Most tensors lie apart: only those that lie between each other's bytes are compared.
    cluster: list[_Placed] = []
    end = 0
    for each in sorted(placed, key=lambda each: each.plane.address):
        if each.plane.address >= end:
            _require_disjoint(cluster)
            cluster = []
        cluster.append(each)
        end = max(end, each.end)
    _require_disjoint(cluster)


def _require_apart(argument: str, pages: torch.Tensor, steps: Sequence[tuple[int, int]]) -> None:
    """Check that every byte belongs to one place of one page."""
    reached = pages.itemsize
    for step, size in steps:
        if step < reached:
            raise BadArgument(
                argument,
                f"has places that share memory (shape {tuple(pages.shape)}, strides "
                f"{pages.stride()}); give a tensor without expanded or overlapping axes",
            )
        reached += step * (size - 1)


def _require_disjoint(cluster: Sequence[_Placed]) -> None:
    """Check planes whose memory lies between each other's, piece by piece."""
    if len(cluster) < 2:
        return
    most_slots = max(1, MOST_INTERVALS // sum(len(each.plane.piece_offsets) for each in cluster))
    begins, ends, owners = [], [], []
    for owner, each in enumerate(cluster):
        plane = each.plane
        slots = np.arange(min(most_slots, plane.slots), dtype=np.int64) * plane.slot_bytes
        offsets = np.array(plane.piece_offsets, np.int64)
        begins.append((plane.address + slots[:, None] + offsets).ravel())
        ends.append(begins[-1] + plane.piece_bytes)
        owners.append(np.full(len(begins[-1]), owner))
    begin, end, owner_of = map(np.concatenate, (begins, ends, owners))
    order = np.argsort(begin, kind="stable")
    crossed = np.flatnonzero(begin[order][1:] < end[order][:-1])
    if len(crossed):
        first, second = (cluster[owner_of[order[crossed[0] + at]]] for at in (0, 1))
        raise BadArgument(
            second.argument,
            f"share memory: {second.place} lies over {first.argument}, {first.place}; give each "
            "plane memory of its own",
        )


def _said(shape: Sequence[tuple[int, int]]) -> str:
    return " + ".join(f"{count} x {size}" if count > 1 else f"{size}" for size, count in shape) + (
        " bytes"
    )
