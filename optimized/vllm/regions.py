"""The bytes of each group's blocks: regions in which block after block lies at one distance.

A page is the bytes of one block in all regions of its group, one after another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from attrs import frozen

if TYPE_CHECKING:
    import torch


@frozen
class BlockRegion:
    """Memory in which the bytes of each block are contiguous."""

    memory: torch.Tensor
    """uint8[blocks, bytes of a block]."""
    offset_bytes: int
    """Where its bytes begin in a page."""

    @property
    def block_bytes(self) -> int:
        """Bytes of a block."""
        return int(self.memory.shape[1])


def group_regions(
    caches: Mapping[str, torch.Tensor], groups: Sequence[Sequence[str]], blocks: int
) -> list[list[BlockRegion]]:
    """The regions of each group of layers.

    Args:
        caches: each layer's cache, with the blocks as its first dimension, in whatever order its
            dimensions lie in memory.
        groups: the layers of each group.
        blocks: how many blocks there are.

    Raises:
        ValueError: a cache has another number of blocks, or its bytes overlap those of others in a
            way that cannot be copied block by block.
    """
    regions = []
    for layers in groups:
        seen: set[tuple[int, int]] = set()
        of_group: list[BlockRegion] = []
        offset = 0
        for layer in layers:
            if layer not in caches:
                continue
            for memory in _layer_regions(layer, caches[layer], blocks):
                name = (memory.data_ptr(), int(memory.shape[1]))
                if name in seen:
                    continue
                seen.add(name)
                of_group.append(BlockRegion(memory, offset))
                offset += int(memory.shape[1])
        regions.append(of_group)
    return regions


def page_bytes(regions: Sequence[BlockRegion]) -> int:
    """Bytes of a page of a group."""
    return sum(region.block_bytes for region in regions)


def layout_facts(
    caches: Mapping[str, torch.Tensor], regions: Sequence[Sequence[BlockRegion]]
) -> dict[str, str]:
    """How the bytes of a page lie, in words: the regions of each group, the axes of each layer.

    How many blocks there are is left out, as it changes no page.
    """
    facts = {}
    for number, pieces in enumerate(regions):
        places = " ".join(f"{each.offset_bytes}+{each.block_bytes}" for each in pieces)
        facts[f"group {number}"] = f"regions {places}"
    for number, (name, cache) in enumerate(caches.items()):
        strides = cache.stride()
        axes = sorted(range(cache.dim()), key=lambda axis: (-strides[axis], axis))
        facts[f"layer {number}"] = f"{name} {tuple(cache.shape[1:])} {axes} {cache.dtype}"
    return facts


def _layer_regions(layer: str, cache: torch.Tensor, blocks: int) -> list[torch.Tensor]:
    """Views of a layer's bytes: one, or one for each step of a dimension outside the blocks."""
    import torch  # noqa: PLC0415  # Only vLLM's workers have it.

    if cache.shape[0] != blocks:
        raise ValueError(
            f"the cache of {layer} has {cache.shape[0]} blocks where the engine has {blocks}: its "
            f"attention backend splits blocks, which kvcanon does not copy; choose another backend"
        )
    size = cache.element_size()
    dims = [(int(n), int(s)) for n, s in zip(cache.shape[1:], cache.stride()[1:], strict=True)]
    dims = [(n, s) for n, s in dims if n > 1]
    block_stride = int(cache.stride()[0])
    inside = [(n, s) for n, s in dims if s < block_stride]
    outside = [(n, s) for n, s in dims if s >= block_stride]
    length = 1 + sum((n - 1) * s for n, s in inside)
    if length > block_stride:
        raise ValueError(f"the blocks of {layer} overlap in memory, which kvcanon does not copy")
    starts = [int(cache.storage_offset())]
    for n, s in outside:
        starts = [start + step * s for start in starts for step in range(n)]
    raw = torch.empty(0, dtype=torch.uint8, device=cache.device).set_(cache.untyped_storage())
    return [
        raw.as_strided((blocks, length * size), (block_stride * size, 1), start * size)
        for start in starts
    ]
