"""The example decoder's keys and values in tensors of every named layout."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from kvcanon.optimized.engine_tensors import EngineTensors
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import FULL, SWA, Component
from model import Shape
from paging import PagedTensors

AXES = "LPSTHD"
"""Layers, keys and values, slots, tokens of a page, heads, dimensions."""

Given: TypeAlias = Callable[[Tensor], Sequence[EngineTensors]]
"""What the cache gets, of a tensor with these axes over memory in another order."""


def _rows(kind: str, tensor: Tensor) -> EngineTensors:
    """A tensor for each layer."""
    return EngineTensors(kind, list(tensor.unbind(0)))


def _apart(kind: str, tensor: Tensor) -> list[EngineTensors]:
    """Keys and values apart."""
    return [_rows(kind, half) for half in tensor.unbind(1)]


def _latents(tensor: Tensor) -> list[EngineTensors]:
    """Keys and values of a token as one latent, by tokens."""
    return [_rows("sglang_mla", tensor.permute(0, 2, 3, 1, 4, 5).flatten(3)[:, :, :, None])]


def _by_token(given: list[EngineTensors]) -> list[EngineTensors]:
    """The same with one axis of tokens for slots and tokens of a page."""
    return [
        EngineTensors(each.layout, [layer.flatten(0, 1) for layer in each.tensors])
        for each in given
    ]


def _index(tensor: Tensor) -> list[EngineTensors]:
    """Keys by tokens, and values as the bytes of a page."""
    keys, values = tensor.unbind(1)
    pages = values.flatten(2).view(torch.uint8)
    return [*_by_token([_rows("sglang_mla", keys)]), _rows("sglang_index", pages)]


def _views(tensor: Tensor) -> list[EngineTensors]:
    """Views (slots, heads, tokens, content), where keys and values are the content."""
    return [_rows("vllm_views", tensor.permute(0, 2, 4, 3, 1, 5).flatten(4))]


LAYOUTS: Mapping[str, tuple[str, Given]] = {
    "sglang_mha": ("LPSTHD", lambda whole: _by_token(_apart("sglang_mha", whole))),
    "sglang_mha_hnd": ("LPSHTD", lambda whole: _apart("sglang_mha_hnd", whole.transpose(3, 4))),
    "sglang_mla": ("LSTPHD", lambda whole: _by_token(_latents(whole))),
    "sglang_index": ("LPSTHD", _index),
    "sglang_mamba": (
        "LPSTHD",
        lambda whole: [EngineTensors("sglang_mamba", half) for half in whole.unbind(1)],
    ),
    "vllm_kv_first": ("LPSTHD", lambda whole: [_rows("vllm_kv_first", whole)]),
    "vllm_kv_first, HND": ("LPSHTD", lambda whole: [_rows("vllm_kv_first", whole)]),
    "vllm_blocks_first": (
        "LSPTHD",
        lambda whole: [_rows("vllm_blocks_first", whole.transpose(1, 2))],
    ),
    "vllm_blocks_first, HND": (
        "LSPHTD",
        lambda whole: [_rows("vllm_blocks_first", whole.transpose(1, 2))],
    ),
    "vllm_mla": (
        "LSTPHD",
        lambda whole: [_rows("vllm_mla", whole.permute(0, 2, 3, 1, 4, 5).flatten(3))],
    ),
    "vllm_views, LBHNC": ("LSHTPD", _views),
    "vllm_views, LBNHC": ("LSTHPD", _views),
    "vllm_views, LHBNC": ("LHSTPD", _views),
    "vllm_views, BLHNC": ("SLHTPD", _views),
    "vllm_views, BLNHC": ("SLTHPD", _views),
    "vllm_views, BHLNC": ("SHLTPD", _views),
    "layers_slots": (
        "LSPTHD",
        lambda whole: [EngineTensors("layers_slots", whole.transpose(1, 2))],
    ),
    "layers_tokens": (
        "LSTPHD",
        lambda whole: [
            EngineTensors("layers_tokens", whole.permute(0, 2, 3, 1, 4, 5).flatten(1, 2))
        ],
    ),
    "slots_layers": (
        "SLPTHD",
        lambda whole: [EngineTensors("slots_layers", whole.permute(2, 0, 1, 3, 4, 5))],
    ),
    "layers_kv_slots": ("LPSTHD", lambda whole: [EngineTensors("layers_kv_slots", whole)]),
    "kv_layers_slots": (
        "PLSTHD",
        lambda whole: [EngineTensors("kv_layers_slots", whole.transpose(0, 1))],
    ),
}
"""The order of the memory, and how the cache gets it."""


def allocate_as(name: str) -> Callable[[CacheConfig, Shape], PagedTensors]:
    """Allocate the decoder's tensors in a layout."""
    order, given = LAYOUTS[name]

    def allocate(config: CacheConfig, shape: Shape) -> PagedTensors:
        layers: list[tuple[Tensor, Tensor]] = [(torch.empty(0), torch.empty(0))] * shape.layers
        parts: dict[Component, Sequence[EngineTensors]] = {}
        for first, component in enumerate((FULL, SWA)):
            sizes = (
                shape.layers // 2,
                2,
                config.device_slots[component],
                shape.page_size,
                shape.heads,
                shape.head_dim,
            )
            memory = torch.zeros([sizes[AXES.index(axis)] for axis in order])
            whole = memory.permute(*(order.index(axis) for axis in AXES))
            for layer, (keys, values) in enumerate(whole.unbind(0)):
                layers[2 * layer + first] = (keys, values)
            parts[component] = given(whole)
            assert all(
                tensor.untyped_storage().data_ptr() == memory.data_ptr()
                for each in parts[component]
                for tensor in each.tensors
            ), "the cache got a copy"
        return PagedTensors(layers, parts)

    return allocate
