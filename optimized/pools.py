"""Where bytes live: for each component a pool on the device and a pool on the host.

On the device a plane is one tensor (layers, slots, plane_bytes); on the host a page is one row of
a slab. `copy` moves pages between them and is the plain statement of what every faster copy does.

What readers get wrong: pools know no owner. They hold zeros until somebody writes, and behind a
free slot is what its last owner left there. Who may write where is the tree's business.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch

from kvcanon.optimized.host_slab import HostSlab
from kvcanon.optimized.layout import PageLayout
from kvcanon.optimized.orders import ALL_LAYERS, Move
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.transfer import Direction
from kvcanon.spec.types import CPU, GPU, Component, Medium, Slot

PIECE_BYTES = 1 << 20
"""What `copy` holds between its two sides at once, so that it is still in the processor's cache."""

Rows = npt.NDArray[np.void]
"""One item a slot, so that indexing copies whole planes of pages, whatever is in them."""

SlotIndex = npt.NDArray[np.intp]


class Pools:
    """The bytes behind all slots of a cache, on both media.

    One copy a direction may be under way at a time, beside reads and writes of other slots.

    Raises:
        BadArgument: the layouts are not those of the cache's components, or the host memory cannot
            be pinned.
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
        self._device_sides: dict[Component, tuple[DeviceSide, ...]] = {}
        self._host_rows: dict[Component, tuple[tuple[Rows, ...], ...]] = {}
        for component, layout in self.layouts.items():
            slots = config.capacity(component, GPU)
            planes = tuple(
                torch.zeros((layout.layers, slots, size), dtype=torch.uint8, device=self.device)
                for size in layout.plane_bytes
            )
            slab = HostSlab(
                config.capacity(component, CPU),
                layout.page_bytes,
                pinned=self.device.type == "cuda",
            )
            side = ProcessorSide if self.device.type == "cpu" else AcceleratorSide
            self._planes[component] = planes
            self._slabs[component] = slab
            self._device_sides[component] = tuple(side(plane) for plane in planes)
            self._host_rows[component] = host_rows(slab.pages, layout)

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
        """A plane of a layer as attention reads and writes it: a tensor (slots, *shape).

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
        """The bytes behind a slot, in the order that they have on the host. Raises: BadArgument."""
        self._require_slots(component, medium, np.asarray([slot]))
        if medium is CPU:
            page = self._slabs[component].pages[slot]
        else:
            page = torch.cat([plane[:, slot] for plane in self._planes[component]], dim=1)
        return page.cpu().numpy().tobytes()

    def write(self, component: Component, slot: Slot, data: bytes) -> None:
        """Set the bytes behind a device slot, given in the host's order. Raises: BadArgument."""
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
        """Move the bytes of some layers; returns when they are there. Raises: BadArgument."""
        sources, targets = self._checked(move, direction)
        layout = self.layouts[move.component]
        self._settle_device()
        for layer in range(layout.layers)[layers]:
            for plane, plane_bytes in enumerate(layout.plane_bytes):
                host = self._host_rows[move.component][layer][plane]
                device = self._device_sides[move.component][plane]
                step = max(1, PIECE_BYTES // plane_bytes)
                for first in range(0, len(sources), step):
                    some = slice(first, first + step)
                    if direction is Direction.BACKUP:
                        host[targets[some]] = device.gather(layer, sources[some])
                    else:
                        device.scatter(layer, targets[some], host[sources[some]])
        self._settle_device()

    def close(self) -> None:
        """Let go of the pinned memory; no copy may be under way."""
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

    def _checked(self, move: Move, direction: Direction) -> tuple[SlotIndex, SlotIndex]:
        if len(move.sources) != len(move.targets):
            raise BadArgument(
                "move", f"has {len(move.sources)} sources and {len(move.targets)} targets"
            )
        media = (GPU, CPU) if direction is Direction.BACKUP else (CPU, GPU)
        for slots, medium in zip((move.sources, move.targets), media, strict=True):
            self._require_slots(move.component, medium, slots)
        return move.sources.astype(np.intp), move.targets.astype(np.intp)

    def _settle_device(self) -> None:
        """Let every stream end: what they compute may be read here, and what is written by them."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


class DeviceSide(Protocol):
    """A plane on the device, as a copy uses it."""

    def gather(self, layer: int, slots: SlotIndex) -> Rows:
        """The plane of these pages, in host memory."""

    def scatter(self, layer: int, slots: SlotIndex, rows: Rows) -> None:
        """Set the plane of these pages."""


class ProcessorSide:
    """A plane that the processor reaches itself.

    Torch's own indexing takes several threads for it, and they wait for each other by spinning: it
    is up to fifty times slower wherever another process wants a core too.
    """

    def __init__(self, plane: torch.Tensor) -> None:
        self._rows = _rows(plane.numpy())

    def gather(self, layer: int, slots: SlotIndex) -> Rows:
        """The plane of these pages."""
        rows: Rows = self._rows[layer][slots]
        return rows

    def scatter(self, layer: int, slots: SlotIndex, rows: Rows) -> None:
        """Set the plane of these pages."""
        self._rows[layer][slots] = rows


class AcceleratorSide:
    """A plane that only torch reaches."""

    def __init__(self, plane: torch.Tensor) -> None:
        self._plane = plane

    def gather(self, layer: int, slots: SlotIndex) -> Rows:
        """The plane of these pages, in host memory."""
        index = torch.from_numpy(slots).to(self._plane.device)
        return _rows(self._plane[layer].index_select(0, index).cpu().numpy())

    def scatter(self, layer: int, slots: SlotIndex, rows: Rows) -> None:
        """Set the plane of these pages."""
        device = self._plane.device
        pieces = torch.from_numpy(rows.view(np.uint8).reshape(len(rows), -1))
        index = torch.from_numpy(slots).to(device)
        self._plane[layer].index_copy_(0, index, pieces.to(device))


def host_rows(pages: torch.Tensor, layout: PageLayout) -> tuple[tuple[Rows, ...], ...]:
    """The planes of each layer of a slab, as a copy uses them."""
    bytes_ = pages.numpy()
    return tuple(
        tuple(
            _rows(bytes_[:, start : start + size])
            for plane, size in enumerate(layout.plane_bytes)
            for start in (layout.offset_bytes(layer, plane),)
        )
        for layer in range(layout.layers)
    )


def _rows(pieces: npt.NDArray[np.uint8]) -> Rows:
    """The same memory, with the last dimension as one item."""
    rows: Rows = pieces.view(np.dtype((np.void, pieces.shape[-1])))[..., 0]
    return rows


def _require_size(argument: str, data: bytes, size_bytes: int) -> None:
    if len(data) != size_bytes:
        raise BadArgument(argument, f"has {len(data)} bytes; a page has {size_bytes}")


def _names(components: Mapping[Component, PageLayout] | Sequence[Component]) -> str:
    return ", ".join(components) or "none"
