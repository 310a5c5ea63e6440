"""Pools: the bytes behind all slots, one pool on the device and one on the host per component.

On the device a plane is one tensor (layers, slots, plane_bytes); on the host a page is one row of a
slab. `copy` moves pages between them; faster copies must have the same result.

Pools do not know who owns a slot. They are zero at first, and a free slot keeps the bytes of its
last owner. The tree decides who may write where.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import gcd, prod
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from kvcanon.optimized.host_slab import HostSlab
from kvcanon.optimized.layout import PageLayout
from kvcanon.optimized.page_transfer import ALL_LAYERS, Move, SlotArray
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.transfer import Direction
from kvcanon.spec.types import CPU, GPU, Component, Medium, Slot

PIECE_ITEMS = 1 << 15
"""How many items `copy` moves at once.

A piece of this size stays in the processor's cache, and is the largest that torch copies in one
thread. With more threads, which wait by spinning, a copy is up to fifty times slower when another
process needs a core.
"""

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
"""The tensors of a medium that `copy` indexes: for each layer and plane one of (slots, items)."""


class Pools:
    """The bytes behind all slots of a cache, on both media.

    Threads may copy, read and write at the same time, as long as their slots differ.

    Raises:
        BadArgument: the layouts are not for the cache's components, or the host memory cannot be
            pinned.
    """

    def __init__(
        self,
        config: CacheConfig,
        layouts: Mapping[Component, PageLayout],
        device: torch.device | str = "cpu",
    ) -> None:
        if set(layouts) != set(config.components):
            raise BadArgument(
                "layouts",
                f"are of {_names(layouts)}; the cache has {_names(config.components)}",
            )
        self.config = config
        self.layouts: Mapping[Component, PageLayout] = MappingProxyType(dict(layouts))
        self.device = torch.device(device)
        self._planes: dict[Component, tuple[torch.Tensor, ...]] = {}
        self._slabs: dict[Component, HostSlab] = {}
        self._sides: dict[Component, dict[Medium, Side]] = {}
        for component, layout in self.layouts.items():
            slots = config.capacity(component, GPU)
            planes = tuple(
                torch.zeros((layout.layers, slots, size), dtype=torch.uint8, device=self.device)
                for size in layout.plane_bytes
            )
            slab = HostSlab(config.capacity(component, CPU), layout.page_bytes, self.device)
            self._planes[component] = planes
            self._slabs[component] = slab
            self._sides[component] = {
                GPU: _by_layer(planes, layout),
                CPU: _by_layer(_planes_of_pages(slab.pages, layout), layout),
            }

    def planes(self, component: Component) -> tuple[torch.Tensor, ...]:
        """The device pool: a uint8 tensor (layers, slots, plane_bytes) for each plane."""
        return self._planes[self._known(component)]

    def slab(self, component: Component) -> torch.Tensor:
        """The host pool: a uint8 tensor (slots, page_bytes)."""
        return self._slabs[self._known(component)].pages

    def view(
        self,
        component: Component,
        layer: int,
        plane: int,
        dtype: torch.dtype,
        shape: Sequence[int],
    ) -> torch.Tensor:
        """Return a plane of a layer as attention reads and writes it: a tensor (slots, *shape).

        Raises:
            BadArgument: there is no such plane, or the shape does not fill it.
        """
        layout = self.layouts[self._known(component)]
        layout.require(layer, plane)
        size_bytes = prod(shape) * dtype.itemsize
        if size_bytes != layout.plane_bytes[plane]:
            raise BadArgument(
                "shape",
                f"{tuple(shape)} of {dtype} has {size_bytes} bytes; "
                f"the plane has {layout.plane_bytes[plane]}",
            )
        slots = self.config.capacity(component, GPU)
        return self._planes[component][plane][layer].view(dtype).view(slots, *shape)

    def read(self, component: Component, medium: Medium, slot: Slot) -> bytes:
        """Return the bytes behind a slot, in host order. Raises: BadArgument."""
        self._require_slots(component, medium, np.asarray([slot]))
        if medium is CPU:
            page = self._slabs[component].pages[slot]
        else:
            page = torch.cat([plane[:, slot] for plane in self._planes[component]], dim=1)
        return page.cpu().numpy().tobytes()

    def write(self, component: Component, slot: Slot, data: bytes) -> None:
        """Set the bytes behind a device slot, in host order. Raises: BadArgument."""
        self._require_slots(component, GPU, np.asarray([slot]))
        layout = self.layouts[component]
        _require_size("data", data, layout.page_bytes)
        page = torch.frombuffer(bytearray(data), dtype=torch.uint8).view(layout.layers, -1)
        for at, plane in enumerate(self._planes[component]):
            first = layout.offset_bytes(0, at)
            plane[:, slot] = page[:, first : first + plane.shape[2]].to(self.device)

    def write_host(
        self, component: Component, slots: Sequence[Slot], payloads: Sequence[bytes]
    ) -> None:
        """Set the bytes behind host slots, all or none. Raises: BadArgument."""
        if len(slots) != len(payloads):
            raise BadArgument("payloads", f"are {len(payloads)} for {len(slots)} slots")
        self._require_slots(component, CPU, np.asarray(slots, dtype=np.int64))
        page_bytes = self.layouts[component].page_bytes
        for payload in payloads:
            _require_size("payloads", payload, page_bytes)
        pages = self._slabs[component].pages.numpy()
        for slot, payload in zip(slots, payloads, strict=True):
            pages[slot] = np.frombuffer(payload, dtype=np.uint8)

    def copy(self, move: Move, direction: Direction, layers: slice = ALL_LAYERS) -> None:
        """Copy the bytes of some layers; returns when the copy is done. Raises: BadArgument."""
        here, there = (GPU, CPU) if direction is Direction.BACKUP else (CPU, GPU)
        self._require_move(move, here, there)
        sides = self._sides[move.component]
        sources = self._index(move.sources, here)
        targets = self._index(move.targets, there)
        self._settle_device()
        for layer in range(self.layouts[move.component].layers)[layers]:
            for source, target in zip(sides[here][layer], sides[there][layer], strict=True):
                for pages, items in _pieces(len(sources), source.shape[1]):
                    piece = source[:, items].index_select(0, sources[pages]).to(target.device)
                    target[:, items].index_copy_(0, targets[pages], piece)
        self._settle_device()

    def close(self) -> None:
        """Unpin the host memory; no copy may be running."""
        for slab in self._slabs.values():
            slab.close()

    def _known(self, component: Component) -> Component:
        if component not in self.layouts:
            raise BadArgument("component", f"is {component}; there is {_names(self.layouts)}")
        return component

    def _require_slots(
        self, component: Component, medium: Medium, slots: npt.NDArray[np.integer]
    ) -> None:
        capacity = self.config.capacity(self._known(component), medium)
        if slots.size and not 0 <= slots.min() <= slots.max() < capacity:
            wrong = slots[(slots < 0) | (slots >= capacity)][0]
            raise BadArgument("slot", f"is {wrong}; {component} on {medium} has {capacity} slots")

    def _require_move(self, move: Move, here: Medium, there: Medium) -> None:
        if len(move.sources) != len(move.targets):
            raise BadArgument(
                "move", f"has {len(move.sources)} sources and {len(move.targets)} targets"
            )
        self._require_slots(move.component, here, move.sources)
        self._require_slots(move.component, there, move.targets)

    def _index(self, slots: SlotArray, medium: Medium) -> torch.Tensor:
        index = torch.from_numpy(slots.astype(np.int64))
        return index.to(self.device) if medium is GPU else index

    def _settle_device(self) -> None:
        """Wait for all streams: they may use the same bytes as a copy here."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def _planes_of_pages(pages: torch.Tensor, layout: PageLayout) -> tuple[torch.Tensor, ...]:
    """The planes of a slab in the device's order: (layers, slots, plane_bytes) each."""
    by_layer = pages.view(len(pages), layout.layers, layout.layer_bytes).transpose(0, 1)
    return tuple(
        by_layer.narrow(2, layout.offset_bytes(0, plane), size)
        for plane, size in enumerate(layout.plane_bytes)
    )


def _by_layer(planes: Sequence[torch.Tensor], layout: PageLayout) -> Side:
    item = _widest_item(layout.plane_bytes)
    wide = [plane.view(item) for plane in planes]
    return [[plane[layer] for plane in wide] for layer in range(layout.layers)]


def _pieces(pages: int, items: int) -> Iterator[tuple[slice, slice]]:
    """Cut pages of `items` items each into pieces: which pages, and which items of each."""
    wide = min(items, PIECE_ITEMS)
    high = PIECE_ITEMS // wide
    for item in range(0, items, wide):
        for page in range(0, pages, high):
            yield slice(page, page + high), slice(item, item + wide)


def _widest_item(plane_bytes: Sequence[int]) -> torch.dtype:
    """The largest dtype whose size divides every plane, so that there are fewer items to move."""
    return ITEM_OF_SIZE[gcd(max(ITEM_OF_SIZE), *plane_bytes)]


def _require_size(argument: str, data: bytes, size_bytes: int) -> None:
    if len(data) != size_bytes:
        raise BadArgument(argument, f"has {len(data)} bytes; a page has {size_bytes}")


def _names(components: Mapping[Component, PageLayout] | Sequence[Component]) -> str:
    return ", ".join(components) or "none"
