"""Tensors as inference engines allocate them, for any page size.

A layout is given by the axes of its memory, a letter each: L layers, B slots (blocks), T tokens of
all slots, N tokens of a page, H heads, D elements of a key, V of a value, C of both, M of all
heads, I of an indexer, K keys and values. The engine's own indexing says where a page is: that is
what pools over an engine's tensors are compared with. Nothing of `kvcanon.optimized` finds it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import torch
from attrs import frozen
from torch import Tensor

from kvcanon.optimized.engine_tensors import EngineTensors
from kvcanon.optimized.pools import Pools
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import FULL, Counts, WritePolicy


@frozen
class Shape:
    """Sizes of a component in an engine."""

    slots: int
    page_size: int
    layers: int = 3
    heads: int = 2
    dim: int = 8
    """Elements of a head of keys."""
    wider: int = 2
    """So many times larger is a head of values, where it may be."""
    dtype: torch.dtype = torch.bfloat16

    def sizes(self, axes: str) -> tuple[int, ...]:
        """The sizes of axes; a digit is a size itself."""
        letters = {"L": self.layers, "B": self.slots, "T": self.slots * self.page_size}
        letters |= {"N": self.page_size, "H": self.heads, "M": self.heads * self.dim, "K": 2}
        letters |= {"D": self.dim, "V": self.wider * self.dim, "C": 2 * self.dim}
        letters |= {"I": self.page_size * (self.dim + 1)}
        return tuple(letters[axis] if axis in letters else int(axis) for axis in axes)

    def config(
        self, policy: WritePolicy = WritePolicy.WRITE_THROUGH, host_slots: int = 9
    ) -> CacheConfig:
        """A cache with full data only, in slots of these sizes."""
        return CacheConfig(
            page_size=self.page_size,
            device_slots=Counts(full=self.slots),
            host_slots=Counts(full=host_slots),
            write_policy=policy,
        )

    def pools(self, *given: EngineTensors) -> Pools:
        """Pools of this shape over an engine's tensors."""
        return Pools(self.config(), tensors={FULL: given})


@frozen(eq=False)
class Owned:
    """Tensors that an engine owns."""

    given: tuple[EngineTensors, ...]
    memory: tuple[Tensor, ...]
    """All that the engine allocated."""
    page: Callable[[int, int], list[Tensor]]
    """Of a layer and a slot: what is in the page, in the order of addresses."""

    @property
    def raw(self) -> list[Tensor]:
        """All that the engine allocated, as bytes."""
        return [each.view(torch.uint8) for each in self.memory]

    def filled(self) -> Owned:
        """The same with random bytes everywhere, also between pages."""
        for each in self.raw:
            each.random_(0, 256)
        return self

    def page_bytes(self, layers: int, slot: int) -> bytes:
        """The bytes of a page, as a host page should have them."""
        return b"".join(
            piece.contiguous().view(torch.uint8).numpy().tobytes()
            for layer in range(layers)
            for piece in self.page(layer, slot)
        )


Builder: TypeAlias = Callable[[Shape], Owned]


def plane(layout: str, axes: str, shown: str = "", dtype: torch.dtype | None = None) -> Builder:
    """Tensors with these axes in memory, and the axes in which pools are given them.

    Each layer has a tensor of its own unless L is an axis. If K is not shown, pools are given keys
    and values apart; if L is not shown, a list of layers.
    """

    def build(shape: Shape) -> Owned:
        one = "L" in axes
        memory = tuple(
            torch.zeros(shape.sizes(axes), dtype=dtype or shape.dtype)
            for _ in range(1 if one else shape.layers)
        )

        def page(layer: int, slot: int) -> list[Tensor]:
            rows = slice(slot * shape.page_size, (slot + 1) * shape.page_size)
            where: dict[str, int | slice] = {"L": layer, "B": slot, "T": rows}
            is_cut = "K" in axes and axes.index("K") < axes.index("T" if "T" in axes else "B")
            places = [where | {"K": half} for half in (0, 1)] if is_cut else [where]
            whole = slice(None)
            return [
                memory[0 if one else layer][tuple(place.get(axis, whole) for axis in axes)]
                for place in places
            ]

        return Owned(
            tuple(EngineTensors(layout, each) for each in _given(memory, axes, shown or axes)),
            memory,
            page,
        )

    return build


def _given(memory: Sequence[Tensor], axes: str, shown: str) -> list[Tensor | list[Tensor]]:
    hidden = "".join(axis for axis in axes if axis not in shown)
    order = [axes.index(axis) for axis in hidden + shown]
    ordered = [each.permute(order) for each in memory]
    if hidden == "K":
        return [[each[half] for each in ordered] for half in (0, 1)]
    if hidden == "L":
        return [list(ordered[0].unbind(0))]
    return [ordered[0] if "L" in axes else ordered]


def together(*builders: Builder) -> Builder:
    """The planes of several builders."""

    def build(shape: Shape) -> Owned:
        parts = [builder(shape) for builder in builders]
        return Owned(
            tuple(given for part in parts for given in part.given),
            tuple(each for part in parts for each in part.memory),
            lambda layer, slot: [piece for part in parts for piece in part.page(layer, slot)],
        )

    return build


def padded_blocks(shape: Shape) -> Owned:
    """Blocks of which only the first bytes are a page."""
    size = shape.sizes("NHD")
    used = shape.page_size * shape.heads * shape.dim
    memory = [torch.zeros(shape.slots, used + 48, dtype=shape.dtype) for _ in range(shape.layers)]
    blocks = [each[:, :used].unflatten(1, size) for each in memory]  # type: ignore[no-untyped-call]
    return Owned(
        (EngineTensors("vllm_mla", blocks),),
        tuple(memory),
        lambda layer, slot: [memory[layer][slot, :used]],
    )


sglang_mha = together(plane("sglang_mha", "THD"), plane("sglang_mha", "THV"))
sglang_mha_fused = plane("sglang_mha", "KTHD", "THD")
sglang_mla = plane("sglang_mla", "T1M")
vllm_kv_first = plane("vllm_kv_first", "KBNHD")

BUILDERS: Mapping[str, Builder] = {
    "sglang_mha": sglang_mha,
    "sglang_mha, keys and values in one allocation": sglang_mha_fused,
    "sglang_mha_hnd": together(plane("sglang_mha_hnd", "BHND"), plane("sglang_mha_hnd", "BHND")),
    "sglang_mla": sglang_mla,
    "sglang_index": together(sglang_mla, plane("sglang_index", "BI", dtype=torch.uint8)),
    "sglang_mamba": together(
        plane("sglang_mamba", "LBD4"), plane("sglang_mamba", "LBHD", dtype=torch.float32)
    ),
    "vllm_kv_first": vllm_kv_first,
    "vllm_kv_first, HND": plane("vllm_kv_first", "KBHND", "KBNHD"),
    "vllm_blocks_first": plane("vllm_blocks_first", "BKNHD"),
    "vllm_blocks_first, HND": plane("vllm_blocks_first", "BKHND", "BKNHD"),
    "vllm_blocks_first, keys and values apart": plane("vllm_mla", "BKNHD", "BNHD"),
    "vllm_mla": plane("vllm_mla", "BNM"),
    "vllm_mla, padded blocks": padded_blocks,
    **{
        f"vllm_views, {axes}": plane("vllm_views", axes, "BHNC")
        for axes in ("LBHNC", "LBNHC", "LHBNC", "BLHNC", "BLNHC", "BHLNC")
    },
    "layers_slots": plane("layers_slots", "LBHD"),
    "layers_tokens": plane("layers_tokens", "LTHD"),
    "slots_layers": plane("slots_layers", "BLKNHD"),
    "layers_kv_slots": plane("layers_kv_slots", "LKBNHD"),
    "kv_layers_slots": plane("kv_layers_slots", "KLBNHD"),
}
"""By the layout's name in `TENSOR_LAYOUTS`, with what is special about it."""
