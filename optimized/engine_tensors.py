"""The tensors of an inference engine: named layouts, and how slots are found in them.

An engine allocates its KV tensors itself, in the shapes and strides that its kernels read. Two
facts about a tensor are enough to move pages: which axis numbers the slots, and which axis numbers
the layers, if one tensor has them all. All other axes are inside a page, in any order: keys and
values, heads, tokens, dimensions. Bytes are moved, so that any dtype will do.

A page on the host has the bytes of each plane in the order of their addresses. Pages of one layout
therefore mean nothing in another: name the layout in the keys of a store that engines share.

Shapes are those of SGLang 0.5.23 (`srt/mem_cache/memory_pool.py`) and vLLM 0.33.0
(`v1/kv_cache_interface.py`, `v1/kv_cache_layout.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

import torch
from attrs import frozen

from kvcanon.optimized.device_planes import DevicePlane, DevicePlanes, plane_of, require_no_sharing
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.types import GPU, Component


@frozen
class TensorLayout:
    """Which axes of a tensor number slots and layers. All other axes are inside a page.

    Raises:
        BadArgument: an axis is below 0, or both are the same.
    """

    slot_axis: int = 0
    layer_axis: int | None = None
    """None where a list has one tensor for each layer."""
    by_token: bool = False
    """Whether the slot axis numbers tokens: then `page_size` of them are one slot."""

    def __attrs_post_init__(self) -> None:
        if self.slot_axis < 0 or (self.layer_axis is not None and self.layer_axis < 0):
            raise BadArgument("layout", "has a negative axis; count axes from the front, from 0")
        if self.slot_axis == self.layer_axis:
            raise BadArgument("layout", f"has slots and layers on the same axis, {self.slot_axis}")


TENSOR_LAYOUTS: Mapping[str, TensorLayout] = MappingProxyType(
    {
        # SGLang: a list with one tensor a layer; keys and values are two lists.
        "sglang_mha": TensorLayout(by_token=True),  # (tokens, heads, dim)
        "sglang_mha_hnd": TensorLayout(),  # (pages, heads, page_size, dim)
        "sglang_mla": TensorLayout(by_token=True),  # (tokens, 1, latent)
        "sglang_index": TensorLayout(),  # (pages, bytes): the keys of sparse attention's indexer
        "sglang_mamba": TensorLayout(slot_axis=1, layer_axis=0),  # (layers, slots, ...)
        # vLLM: a list with one tensor a layer; keys and values are together.
        "vllm_kv_first": TensorLayout(slot_axis=1),  # (2, blocks, page_size, heads, dim)
        "vllm_blocks_first": TensorLayout(),  # (blocks, 2, page_size, heads, dim)
        "vllm_mla": TensorLayout(),  # (blocks, page_size, latent)
        "vllm_views": TensorLayout(),  # (blocks, heads, page_size, content) in any memory order
        # One tensor for all layers.
        "layers_slots": TensorLayout(slot_axis=1, layer_axis=0),  # (layers, slots, ...)
        "layers_tokens": TensorLayout(slot_axis=1, layer_axis=0, by_token=True),
        "slots_layers": TensorLayout(slot_axis=0, layer_axis=1),  # (slots, layers, ...)
        "layers_kv_slots": TensorLayout(slot_axis=2, layer_axis=0),  # (layers, 2, slots, ...)
        "kv_layers_slots": TensorLayout(slot_axis=2, layer_axis=1),  # (2, layers, slots, ...)
    }
)
"""The layouts that have a name; vLLM's NHD and HND differ in strides only."""


@frozen(eq=False)
class EngineTensors:
    """Tensors of one layout that an engine owns: a plane of every layer of a component.

    `tensors` is a list with one tensor for each layer, or one tensor for all where the layout has
    a layer axis. A component whose keys and values are apart has two of these.

    Raises:
        BadArgument: there is no layout of that name, or the tensors are not as it says.
    """

    layout: str | TensorLayout
    tensors: torch.Tensor | Sequence[torch.Tensor]

    def __attrs_post_init__(self) -> None:
        one = self.axes.layer_axis is not None
        if one is not isinstance(self.tensors, torch.Tensor):
            raise BadArgument(
                "tensors",
                f"are not as {self.layout} says; give "
                + ("one tensor for all layers" if one else "a list with one tensor for each layer"),
            )
        if not one and not self.tensors:
            raise BadArgument("tensors", "are an empty list; give a tensor for each layer")

    @property
    def axes(self) -> TensorLayout:
        """The layout itself. Raises: BadArgument: there is no layout of that name."""
        if isinstance(self.layout, TensorLayout):
            return self.layout
        if self.layout not in TENSOR_LAYOUTS:
            names = ", ".join(TENSOR_LAYOUTS)
            raise BadArgument(
                "layout", f"is {self.layout!r}; give a TensorLayout, or one of {names}"
            )
        return TENSOR_LAYOUTS[self.layout]

    def by_layer(self) -> Sequence[torch.Tensor]:
        """One tensor for each layer, without a layer axis."""
        axis = self.axes.layer_axis
        if not isinstance(self.tensors, torch.Tensor) or axis is None:
            return list(self.tensors)
        if axis >= self.tensors.ndim:
            raise BadArgument(
                "tensors",
                f"of {self.layout} have no axis {axis}: the shape is {tuple(self.tensors.shape)}",
            )
        return self.tensors.unbind(axis)

    @property
    def slot_axis(self) -> int:
        """The axis of slots in a tensor of `by_layer`."""
        axes = self.axes
        behind = axes.layer_axis is not None and axes.layer_axis < axes.slot_axis
        return axes.slot_axis - behind


ComponentTensors = EngineTensors | Sequence[EngineTensors]
"""All planes of a component: one `EngineTensors`, or several whose layers belong together."""


def find_planes(
    config: CacheConfig, tensors: Mapping[Component, ComponentTensors]
) -> dict[Component, DevicePlanes]:
    """Find the slots of a cache in an engine's tensors.

    Raises:
        BadArgument: the tensors are not of the cache's components, on several devices, of other
            sizes than the configuration, or cannot be addressed by pages.
    """
    found = {
        component: _planes_of(config, component, given) for component, given in tensors.items()
    }
    require_no_sharing((f"tensors.{component}", planes) for component, planes in found.items())
    return found


def _planes_of(config: CacheConfig, component: Component, given: ComponentTensors) -> DevicePlanes:
    argument = f"tensors.{component}"
    groups = [given] if isinstance(given, EngineTensors) else list(given)
    if not groups or not all(isinstance(group, EngineTensors) for group in groups):
        raise BadArgument(argument, "are no EngineTensors; give EngineTensors(layout, tensors)")
    columns = [list(_column(config, component, group)) for group in groups]
    counts = [len(column) for column in columns]
    if 0 in counts:
        raise BadArgument(argument, "have no layers; give one tensor, or one entry, for each layer")
    if len(set(counts)) > 1:
        raise BadArgument(argument, f"are of {counts} layers; planes have a tensor for each layer")
    return tuple(zip(*columns, strict=True))


def _column(
    config: CacheConfig, component: Component, group: EngineTensors
) -> Iterator[DevicePlane]:
    """One plane in every layer."""
    slots = config.capacity(component, GPU)
    tokens = config.page_size if group.axes.by_token else 1
    argument = f"tensors.{component}"
    for layer, tensor in enumerate(group.by_layer()):
        axis = group.slot_axis
        if axis >= tensor.ndim:
            raise BadArgument(
                argument,
                f"have no axis {axis} in layer {layer}: the shape is {tuple(tensor.shape)}",
            )
        if tensor.shape[axis] != slots * tokens:
            of = f" of {tokens} tokens" if group.axes.by_token else ""
            raise BadArgument(
                argument,
                f"have {tensor.shape[axis]} on axis {axis} of layer {layer}; {slots} slots{of} "
                f"take {slots * tokens} (device_slots counts a padding slot, too)",
            )
        pages = tensor.movedim(axis, 0)
        if group.axes.by_token:
            pages = pages.view(slots, tokens, *pages.shape[1:])
        yield plane_of(f"{argument}, layer {layer}", pages)
