"""Tensors as inference engines allocate them, one builder for each layout, for any page size.

A builder also says by the engine's own indexing where a page is: that is what the tests of pools
over an engine's tensors compare with. Builders share no code with `kvcanon.optimized`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import torch
from attrs import frozen
from torch import Tensor

from kvcanon.optimized.engine_tensors import EngineTensors


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

    @property
    def tokens(self) -> int:
        """Rows of a tensor by tokens."""
        return self.slots * self.page_size


@frozen(eq=False)
class Owned:
    """Tensors that an engine owns."""

    given: tuple[EngineTensors, ...]
    memory: tuple[Tensor, ...]
    """All that the engine allocated."""
    page: Callable[[int, int], list[Tensor]]
    """Of a layer and a slot: what is in the page, in the order of addresses."""

    def page_bytes(self, layers: int, slot: int) -> bytes:
        """The bytes of a page, as a host page should have them."""
        return b"".join(
            piece.contiguous().view(torch.uint8).numpy().tobytes()
            for layer in range(layers)
            for piece in self.page(layer, slot)
        )


Builder: TypeAlias = Callable[[Shape], Owned]


def _zeros(*size: int, dtype: torch.dtype) -> Tensor:
    return torch.zeros(size, dtype=dtype)


def _rows(shape: Shape, slot: int) -> slice:
    return slice(slot * shape.page_size, (slot + 1) * shape.page_size)


def sglang_mha(shape: Shape) -> Owned:
    """Keys and values apart, a tensor for each layer; values have larger heads."""
    size = (shape.tokens, shape.heads)
    keys = [_zeros(*size, shape.dim, dtype=shape.dtype) for _ in range(shape.layers)]
    values = [
        _zeros(*size, shape.wider * shape.dim, dtype=shape.dtype) for _ in range(shape.layers)
    ]
    return Owned(
        (EngineTensors("sglang_mha", keys), EngineTensors("sglang_mha", values)),
        (*keys, *values),
        lambda layer, slot: [tensor[layer][_rows(shape, slot)] for tensor in (keys, values)],
    )


def sglang_mha_fused(shape: Shape) -> Owned:
    """Keys and values as halves of one allocation for each layer."""
    size = (2, shape.tokens, shape.heads, shape.dim)
    fused = [_zeros(*size, dtype=shape.dtype) for _ in range(shape.layers)]
    keys, values = ([each[half] for each in fused] for half in (0, 1))
    return Owned(
        (EngineTensors("sglang_mha", keys), EngineTensors("sglang_mha", values)),
        tuple(fused),
        lambda layer, slot: [fused[layer][half, _rows(shape, slot)] for half in (0, 1)],
    )


def sglang_mha_hnd(shape: Shape) -> Owned:
    """Pages with the heads outside the tokens."""
    size = (shape.slots, shape.heads, shape.page_size, shape.dim)
    keys, values = (
        [_zeros(*size, dtype=shape.dtype) for _ in range(shape.layers)] for _ in range(2)
    )
    return Owned(
        (EngineTensors("sglang_mha_hnd", keys), EngineTensors("sglang_mha_hnd", values)),
        (*keys, *values),
        lambda layer, slot: [keys[layer][slot], values[layer][slot]],
    )


def sglang_mla(shape: Shape) -> Owned:
    """One latent for each token."""
    size = (shape.tokens, 1, shape.heads * shape.dim)
    latents = [_zeros(*size, dtype=shape.dtype) for _ in range(shape.layers)]
    return Owned(
        (EngineTensors("sglang_mla", latents),),
        tuple(latents),
        lambda layer, slot: [latents[layer][_rows(shape, slot)]],
    )


def sglang_index(shape: Shape) -> Owned:
    """Latents by tokens, and the keys of an indexer by pages: planes of different layouts."""
    latents = sglang_mla(shape)
    size = (shape.slots, shape.page_size * (shape.dim + 1))
    index = [_zeros(*size, dtype=torch.uint8) for _ in range(shape.layers)]
    return Owned(
        (*latents.given, EngineTensors("sglang_index", index)),
        (*latents.memory, *index),
        lambda layer, slot: [*latents.page(layer, slot), index[layer][slot]],
    )


def sglang_mamba(shape: Shape) -> Owned:
    """States of two parts, each one tensor for all layers."""
    convolution = _zeros(shape.layers, shape.slots, shape.dim, 4, dtype=shape.dtype)
    state = _zeros(shape.layers, shape.slots, shape.heads, shape.dim, dtype=torch.float32)
    return Owned(
        (EngineTensors("sglang_mamba", convolution), EngineTensors("sglang_mamba", state)),
        (convolution, state),
        lambda layer, slot: [convolution[layer, slot], state[layer, slot]],
    )


def vllm_kv_first(shape: Shape) -> Owned:
    """Keys and values first, in the order NHD."""
    size = (2, shape.slots, shape.page_size, shape.heads, shape.dim)
    both = [_zeros(*size, dtype=shape.dtype) for _ in range(shape.layers)]
    return Owned(
        (EngineTensors("vllm_kv_first", both),),
        tuple(both),
        lambda layer, slot: [both[layer][0, slot], both[layer][1, slot]],
    )


def vllm_kv_first_hnd(shape: Shape) -> Owned:
    """Keys and values first: the shape of NHD over memory in the order HND."""
    size = (2, shape.slots, shape.heads, shape.page_size, shape.dim)
    memory = [_zeros(*size, dtype=shape.dtype) for _ in range(shape.layers)]
    return Owned(
        (EngineTensors("vllm_kv_first", [each.transpose(2, 3) for each in memory]),),
        tuple(memory),
        lambda layer, slot: [memory[layer][0, slot], memory[layer][1, slot]],
    )


def vllm_blocks_first(shape: Shape) -> Owned:
    """Blocks first, in the order NHD."""
    size = (shape.slots, 2, shape.page_size, shape.heads, shape.dim)
    both = [_zeros(*size, dtype=shape.dtype) for _ in range(shape.layers)]
    return Owned(
        (EngineTensors("vllm_blocks_first", both),),
        tuple(both),
        lambda layer, slot: [both[layer][slot]],
    )


def vllm_blocks_first_hnd(shape: Shape) -> Owned:
    """Blocks first: the shape of NHD over memory in the order HND."""
    size = (shape.slots, 2, shape.heads, shape.page_size, shape.dim)
    memory = [_zeros(*size, dtype=shape.dtype) for _ in range(shape.layers)]
    return Owned(
        (EngineTensors("vllm_blocks_first", [each.transpose(2, 3) for each in memory]),),
        tuple(memory),
        lambda layer, slot: [memory[layer][slot]],
    )


def vllm_apart(shape: Shape) -> Owned:
    """The keys and the values of a tensor with blocks first, given as two planes."""
    whole = vllm_blocks_first(shape)
    keys, values = ([each[:, half] for each in whole.memory] for half in (0, 1))
    given = (EngineTensors("vllm_mla", keys), EngineTensors("vllm_mla", values))
    return Owned(given, whole.memory, whole.page)


def vllm_mla(shape: Shape) -> Owned:
    """One latent for each token, by blocks."""
    size = (shape.slots, shape.page_size, shape.heads * shape.dim)
    latents = [_zeros(*size, dtype=shape.dtype) for _ in range(shape.layers)]
    return Owned(
        (EngineTensors("vllm_mla", latents),), tuple(latents), lambda layer, slot: [
            latents[layer][slot]
        ],
    )  # fmt: skip


def vllm_padded(shape: Shape) -> Owned:
    """Blocks of which only the first bytes are a page."""
    used = shape.page_size * shape.heads * shape.dim
    memory = [_zeros(shape.slots, used + 48, dtype=shape.dtype) for _ in range(shape.layers)]
    size = (shape.page_size, shape.heads, shape.dim)
    blocks = [each[:, :used].unflatten(1, size) for each in memory]  # type: ignore[no-untyped-call]
    return Owned(
        (EngineTensors("vllm_mla", blocks),),
        tuple(memory),
        lambda layer, slot: [memory[layer][slot, :used]],
    )


AXES = "LBHNC"
"""Layers, blocks, heads, tokens, content: keys and values of a head of a token."""


def vllm_views(order: str) -> Builder:
    """A view (blocks, heads, tokens, content) of each layer, over memory in this order of axes."""

    def build(shape: Shape) -> Owned:
        sizes = (shape.layers, shape.slots, shape.heads, shape.page_size, 2 * shape.dim)
        memory = _zeros(*(sizes[AXES.index(axis)] for axis in order), dtype=shape.dtype)
        whole = memory.permute(*(order.index(axis) for axis in AXES))
        inside = [axis for axis in order if axis not in "LB"]
        return Owned(
            (EngineTensors("vllm_views", list(whole.unbind(0))),),
            (memory,),
            lambda layer, slot: [
                whole[layer, slot].permute(*("HNC".index(axis) for axis in inside))
            ],
        )

    return build


def layers_slots(shape: Shape) -> Owned:
    """One tensor for all layers; pages of a layer lie together."""
    whole = _zeros(shape.layers, shape.slots, shape.heads, shape.dim, dtype=shape.dtype)
    return Owned(
        (EngineTensors("layers_slots", whole),), (whole,), lambda layer, slot: [whole[layer, slot]]
    )


def layers_tokens(shape: Shape) -> Owned:
    """One tensor for all layers, by tokens."""
    whole = _zeros(shape.layers, shape.tokens, shape.heads, shape.dim, dtype=shape.dtype)
    return Owned(
        (EngineTensors("layers_tokens", whole),),
        (whole,),
        lambda layer, slot: [whole[layer, _rows(shape, slot)]],
    )


def slots_layers(shape: Shape) -> Owned:
    """One tensor for all layers; all layers of a page lie together."""
    size = (shape.slots, shape.layers, 2, shape.page_size, shape.heads, shape.dim)
    whole = _zeros(*size, dtype=shape.dtype)
    return Owned(
        (EngineTensors("slots_layers", whole),), (whole,), lambda layer, slot: [whole[slot, layer]]
    )


def layers_kv_slots(shape: Shape) -> Owned:
    """One tensor for all layers, keys and values before the slots."""
    size = (shape.layers, 2, shape.slots, shape.page_size, shape.heads, shape.dim)
    whole = _zeros(*size, dtype=shape.dtype)
    return Owned(
        (EngineTensors("layers_kv_slots", whole),),
        (whole,),
        lambda layer, slot: [whole[layer, 0, slot], whole[layer, 1, slot]],
    )


def kv_layers_slots(shape: Shape) -> Owned:
    """One tensor for all layers, keys and values before the layers."""
    size = (2, shape.layers, shape.slots, shape.page_size, shape.heads, shape.dim)
    whole = _zeros(*size, dtype=shape.dtype)
    return Owned(
        (EngineTensors("kv_layers_slots", whole),),
        (whole,),
        lambda layer, slot: [whole[0, layer, slot], whole[1, layer, slot]],
    )


BUILDERS: Mapping[str, Builder] = {
    "sglang_mha": sglang_mha,
    "sglang_mha, keys and values in one allocation": sglang_mha_fused,
    "sglang_mha_hnd": sglang_mha_hnd,
    "sglang_mla": sglang_mla,
    "sglang_index": sglang_index,
    "sglang_mamba": sglang_mamba,
    "vllm_kv_first": vllm_kv_first,
    "vllm_kv_first, HND": vllm_kv_first_hnd,
    "vllm_blocks_first": vllm_blocks_first,
    "vllm_blocks_first, HND": vllm_blocks_first_hnd,
    "vllm_blocks_first, keys and values apart": vllm_apart,
    "vllm_mla": vllm_mla,
    "vllm_mla, padded blocks": vllm_padded,
    **{
        f"vllm_views, {order}": vllm_views(order)
        for order in ("LBHNC", "LBNHC", "LHBNC", "BLHNC", "BLNHC", "BHLNC")
    },
    "layers_slots": layers_slots,
    "layers_tokens": layers_tokens,
    "slots_layers": slots_layers,
    "layers_kv_slots": layers_kv_slots,
    "kv_layers_slots": kv_layers_slots,
}
"""By the layout's name in `TENSOR_LAYOUTS`, with what is special about it."""
