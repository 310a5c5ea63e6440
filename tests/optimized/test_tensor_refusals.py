"""Tensors that cannot be addressed by pages are refused when the pools are made, in one line."""

from __future__ import annotations

import pytest
import torch

from engine_layouts import Shape, sglang_mla
from kvcanon.optimized import device_planes
from kvcanon.optimized.engine_tensors import EngineTensors, TensorLayout
from kvcanon.optimized.layout import mha_layout
from kvcanon.optimized.pools import Pools
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.types import FULL, SWA, Counts, WritePolicy

SHAPE = Shape(slots=11, page_size=4)


def config_of(shape: Shape) -> CacheConfig:
    """A cache with full data only."""
    return CacheConfig(
        page_size=shape.page_size,
        device_slots=Counts(full=shape.slots),
        host_slots=Counts(full=9),
        write_policy=WritePolicy.WRITE_THROUGH,
    )


def refused(match: str, *given: EngineTensors, shape: Shape = SHAPE) -> None:
    """Check that pools over these tensors are refused, in one line."""
    with pytest.raises(BadArgument, match=match) as caught:
        Pools(config_of(shape), tensors={FULL: given})
    assert "\n" not in str(caught.value)


def mha(*shapes: tuple[int, ...], dtype: torch.dtype = torch.bfloat16) -> EngineTensors:
    """Tensors by tokens."""
    return EngineTensors("sglang_mha", [torch.zeros(shape, dtype=dtype) for shape in shapes])


def test_tensors_of_another_size_are_refused() -> None:
    """The axis of slots must have as many as the configuration says."""
    refused(
        r"tensors.full: have 45 on axis 0 of layer 1; 11 slots of 4 tokens take 44 "
        r"\(device_slots counts a padding slot, too\)",
        mha((44, 2, 8), (45, 2, 8)),
    )
    refused(
        r"tensors.full: have 12 on axis 0 of layer 0; 11 slots take 11",
        EngineTensors("vllm_mla", [torch.zeros(12, 4, 8)]),
    )
    refused(
        r"tensors.full: have no axis 1 in layer 0: the shape is \(11,\)",
        EngineTensors("vllm_kv_first", [torch.zeros(11)]),
    )
    refused(
        r"tensors: of slots_layers have no axis 1: the shape is \(11,\)",
        EngineTensors("slots_layers", torch.zeros(11)),
    )


def test_layers_that_differ_are_refused() -> None:
    """All layers have the same planes, in the same pieces."""
    refused(
        r"tensors.full: differ: layer 1 has pages of 192 bytes, layer 0 of 128 bytes",
        mha((44, 2, 8), (44, 3, 8)),
    )
    apart = torch.zeros(2, 11, 4, 8)
    refused(
        r"tensors.full: differ: layer 1 has pages of 2 x 128 bytes, layer 0 of 256 bytes",
        EngineTensors("vllm_mla", [torch.zeros(11, 2, 4, 8), apart.transpose(0, 1)]),
    )
    refused(r"tensors.full: are of \[1, 2\] layers", mha((44, 2, 8)), mha((44, 2, 8), (44, 2, 8)))


def test_memory_that_is_shared_is_refused() -> None:
    """No byte belongs to two slots, two layers or two planes."""
    one, wide = torch.zeros(44, 2, 8), torch.zeros(11, 12)
    refused(
        r"tensors.full, layer 0: has places that share memory \(shape \(11, 4, 2, 8\)",
        EngineTensors("sglang_mha", [torch.zeros(1, 2, 8).expand(44, 2, 8)]),
    )
    refused(
        "tensors.full, layer 0: has places that share memory",
        EngineTensors("vllm_mla", [torch.zeros(200).as_strided((11, 12), (8, 1))]),
    )
    refused(
        "tensors.full: share memory: layer 1, plane 0 lies over tensors.full, layer 0, plane 0",
        EngineTensors("sglang_mha", [one, one]),
    )
    refused(
        "tensors.full: share memory: layer 0, plane 1 lies over tensors.full, layer 0, plane 0",
        EngineTensors("vllm_mla", [wide[:, :8]]),
        EngineTensors("vllm_mla", [wide[:, 4:]]),
    )


def test_layers_that_share_memory_are_found_beside_others_that_do_not() -> None:
    """Tensors that lie apart from all others hide nothing, wherever they lie."""
    for apart in (0, 2):
        memory = torch.zeros(3, 11, 12)
        shared = memory[2 - apart]
        layers = [memory[apart][:, :8], shared[:, :8], shared[:, 4:]]
        refused(
            "tensors.full: share memory: layer 2, plane 0 lies over tensors.full, layer 1",
            EngineTensors("vllm_mla", layers),
        )
        Pools(config_of(SHAPE), tensors={FULL: EngineTensors("vllm_mla", layers[:2])})


def test_components_that_share_memory_are_refused() -> None:
    """The slots of a component are its own: a block that two components share would be two."""
    config = CacheConfig(page_size=4, window_tokens=8, device_slots=Counts(11, 11))
    given = EngineTensors("sglang_mla", [torch.zeros(44, 1, 8)])
    with pytest.raises(BadArgument, match=r"tensors.swa: share memory: layer 0, plane 0"):
        Pools(config, tensors={FULL: given, SWA: given})


def test_overlap_of_large_pools_is_looked_for_in_their_first_slots(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However few slots are compared, planes that cross in each slot are found."""
    monkeypatch.setattr(device_planes, "MOST_INTERVALS", 1)
    wide = torch.zeros(11, 12)
    first, second = (EngineTensors("vllm_mla", [wide[:, at : at + 8]]) for at in (0, 4))
    refused("tensors.full: share memory", first, second)
    first, second = (EngineTensors("vllm_mla", [wide[:, at : at + 6]]) for at in (0, 6))
    Pools(config_of(SHAPE), tensors={FULL: [first, second]})


def test_pages_in_too_many_pieces_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that is scattered byte by byte is refused."""
    scattered = torch.zeros(4, 8, 11, dtype=torch.uint8)
    given = EngineTensors(TensorLayout(slot_axis=2), [scattered])
    assert Pools(config_of(SHAPE), tensors={FULL: given}).layouts[FULL].page_bytes == 32
    monkeypatch.setattr(device_planes, "MOST_PIECES", 31)
    refused(
        "tensors.full, layer 0: has pages in 32 pieces of 1 bytes; give tensors whose pages lie "
        "in at most 31 pieces",
        given,
    )


def test_tensors_without_memory_are_refused() -> None:
    """Sparse tensors, tensors without data and empty pages are refused."""
    refused(
        "tensors.full, layer 0: has no memory with strides",
        EngineTensors("vllm_mla", [torch.zeros(11, 8, device="meta")]),
    )
    refused(
        "tensors.full, layer 0: has no memory with strides",
        EngineTensors("vllm_mla", [torch.zeros(11, 8).to_sparse()]),
    )
    refused(
        r"tensors.full, layer 0: is of shape \(11, 0\); its pages have no bytes",
        EngineTensors("vllm_mla", [torch.zeros(11, 0)]),
    )


def test_wrong_descriptions_are_refused() -> None:
    """Names, axes and lists that make no sense are refused at once."""
    with pytest.raises(BadArgument, match="layout: is 'sglang'; give a TensorLayout, or one of sg"):
        EngineTensors("sglang", [])
    with pytest.raises(BadArgument, match="tensors: are not as sglang_mha says; give a list"):
        EngineTensors("sglang_mha", torch.zeros(3))
    with pytest.raises(BadArgument, match="tensors: are not as layers_slots says; give one tensor"):
        EngineTensors("layers_slots", [torch.zeros(3)])
    with pytest.raises(BadArgument, match="tensors: are an empty list"):
        EngineTensors("sglang_mha", [])
    with pytest.raises(BadArgument, match="layout: has a negative axis"):
        TensorLayout(slot_axis=-1)
    with pytest.raises(BadArgument, match="layout: has slots and layers on the same axis, 1"):
        TensorLayout(slot_axis=1, layer_axis=1)
    refused("tensors.full: are no EngineTensors")
    refused("tensors.full: have no layers", EngineTensors("layers_slots", torch.zeros(0, 11, 4)))


def test_pools_want_layouts_or_tensors() -> None:
    """Pools allocate by layouts, or use tensors; not both, and not neither."""
    config, given = config_of(SHAPE), sglang_mla(SHAPE).given
    layouts = {FULL: mha_layout(1, 4, 1, 8, torch.uint8)}
    for arguments in ({}, {"layouts": layouts, "tensors": {FULL: given}}):
        with pytest.raises(BadArgument, match="layouts: or tensors are needed, and not both"):
            Pools(config, **arguments)  # type: ignore[arg-type]
    with pytest.raises(BadArgument, match="tensors: are of full, swa; the cache has full"):
        Pools(config, tensors={FULL: given, SWA: given})
    with pytest.raises(BadArgument, match="device: is cuda; the tensors are on cpu"):
        Pools(config, None, "cuda", tensors={FULL: given})
