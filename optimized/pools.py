"""Pools: the bytes behind all slots, one pool on the device and one on the host per component.

On the device the slots are in tensors that an engine owns, in its own shapes and strides, or in
tensors that are allocated here, one for each plane: (layers, slots, plane_bytes). On the host a
page is one row of a slab. `copy` moves pages between them; faster copies must have the same result.

Pools do not know who owns a slot. Slots that are allocated here are zero at first, and a free slot
keeps the bytes of its last owner. The tree decides who may write where.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import torch

from kvcanon.optimized.cuda_driver import CudaDriver
from kvcanon.optimized.cuda_runtime import TorchRuntime
from kvcanon.optimized.device_planes import DevicePlanes, layout_of
from kvcanon.optimized.engine_tensors import ComponentTensors, EngineTensors, find_planes
from kvcanon.optimized.host_slab import HostSlab
from kvcanon.optimized.layout import PageLayout
from kvcanon.optimized.page_sides import Side, sides_of
from kvcanon.optimized.page_transfer import ALL_LAYERS, Move, SlotArray
from kvcanon.optimized.stream_gates import Gates
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


class Pools:
    """The bytes behind all slots of a cache, on both media.

    Give `tensors` that an engine owns, or `layouts` of tensors to allocate on `device` (the CPU by
    default). Threads may copy, read and write at the same time, as long as their slots differ.

    Raises:
        BadArgument: the layouts or tensors are not for the cache's components, the tensors cannot
            be addressed by pages, or the host memory cannot be pinned.
    """

    def __init__(
        self,
        config: CacheConfig,
        layouts: Mapping[Component, PageLayout] | None = None,
        device: torch.device | str | None = None,
        *,
        tensors: Mapping[Component, ComponentTensors] | None = None,
    ) -> None:
        self.config = config
        self._allocated: dict[Component, tuple[torch.Tensor, ...]] = {}
        self._device_planes: dict[Component, DevicePlanes] | None = None
        found = None
        if tensors is not None and layouts is None:
            _require_components("tensors", tensors, config)
            found = find_planes(config, tensors)
            layouts = {
                component: layout_of(f"tensors.{component}", planes)
                for component, planes in found.items()
            }
            self.device = _device_of(found, device)
        elif layouts is not None and tensors is None:
            _require_components("layouts", layouts, config)
            self.device = torch.device("cpu" if device is None else device)
        else:
            raise BadArgument("layouts", "or tensors are needed, and not both")
        self.layouts: Mapping[Component, PageLayout] = MappingProxyType(dict(layouts))
        self._slabs = {
            component: HostSlab(config.capacity(component, CPU), layout.page_bytes, self.device)
            for component, layout in self.layouts.items()
        }
        self._sides: dict[Component, dict[Medium, Side]] = {}
        self.attachments = 0
        """How often device memory was taken: addresses that were read before are of no use."""
        self._attach(self._allocate() if found is None else found)

    @property
    def attached(self) -> bool:
        """Whether the pools have device memory: always, unless they were detached."""
        return self._device_planes is not None

    def attach(self, tensors: Mapping[Component, ComponentTensors] | None = None) -> None:
        """Take device memory again after `detach`: the engine's `tensors`, or new zeros.

        The tensors may be elsewhere and have other strides, but a page must have the same planes
        and pieces, since pages on the host stay as they are. `PrefixCache.attach` calls this.

        Raises:
            BadArgument: the pools are attached, or the tensors have another geometry.
        """
        if self.attached:
            raise BadArgument("pools", "are attached; detach them first")
        if tensors is None:
            self._attach(self._allocate())
            return
        _require_components("tensors", tensors, self.config)
        found = find_planes(self.config, tensors)
        device = _device_of(found, None)
        if device != self.device:
            raise BadArgument("tensors", f"are on {device}; these pools are on {self.device}")
        for component, planes in found.items():
            layout = layout_of(f"tensors.{component}", planes)
            if layout != self.layouts[component] or _pieces_of(planes) != self._pieces[component]:
                raise BadArgument(
                    f"tensors.{component}",
                    f"have pages of {layout.layers} layers x {_pieces_of(planes)} bytes; before, "
                    f"they had {self.layouts[component].layers} x {self._pieces[component]}",
                )
        self._attach(found)

    def detach(self) -> None:
        """Give up the device memory, and keep the host's; no copy may be running.

        No reference to the tensors is left here. `PrefixCache.detach` calls this.
        """
        self._device_planes = None
        self._allocated.clear()
        self._sides.clear()

    def device_planes(self, component: Component) -> DevicePlanes:
        """Where the device slots lie, layer by layer. Raises: BadArgument."""
        component = self._known(component)
        if self._device_planes is None:
            raise BadArgument("pools", "are detached from their tensors; attach them first")
        return self._device_planes[component]

    def planes(self, component: Component) -> tuple[torch.Tensor, ...]:
        """The device pool that was allocated here: for each plane a tensor (layers, slots, bytes).

        Raises:
            BadArgument: the tensors are the engine's own, which it reads itself.
        """
        self.device_planes(component)
        if component not in self._allocated:
            raise BadArgument("pools", "are over an engine's tensors; read those instead")
        return self._allocated[component]

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
            BadArgument: there is no such plane, the shape does not fill it, or the tensors are the
                engine's own.
        """
        planes = self.planes(component)
        layout = self.layouts[component]
        layout.require(layer, plane)
        size_bytes = prod(shape) * dtype.itemsize
        if size_bytes != layout.plane_bytes[plane]:
            raise BadArgument(
                "shape",
                f"{tuple(shape)} of {dtype} has {size_bytes} bytes; "
                f"the plane has {layout.plane_bytes[plane]}",
            )
        slots = self.config.capacity(component, GPU)
        return planes[plane][layer].view(dtype).view(slots, *shape)

    def host_page(self, component: Component, slot: Slot) -> memoryview:
        """Return the memory of a host slot, to read or write it in place. Raises: BadArgument."""
        self._require_slots(component, CPU, np.asarray([slot]))
        return self._slabs[component].pages[slot].numpy().data

    def read(self, component: Component, medium: Medium, slot: Slot, after: object = None) -> bytes:
        """Return the bytes behind a slot, in host order, as `after` leaves them.

        `after` is a stream or an event of a GPU; None means the current stream.

        Raises:
            BadArgument: the slot is not in the pool, or `after` does not fit the device.
        """
        self._require_slots(component, medium, np.asarray([slot]))
        self._wait_for(after)
        if medium is CPU:
            page = self._slabs[component].pages[slot]
        else:
            page = torch.cat([piece[slot] for piece in self._device_pieces(component)])
        return page.cpu().numpy().tobytes()

    def write(self, component: Component, slot: Slot, data: bytes, after: object = None) -> None:
        """Set the bytes behind a device slot, in host order, once `after` has read them.

        `after` is a stream or an event of a GPU; None means the current stream. Later work of the
        current stream finds the bytes. Raises: BadArgument.
        """
        self._require_slots(component, GPU, np.asarray([slot]))
        layout = self.layouts[component]
        _require_size("data", data, layout.page_bytes)
        self._wait_for(after)
        page = torch.frombuffer(bytearray(data), dtype=torch.uint8).to(self.device)
        first = 0
        for piece in self._device_pieces(component):
            piece[slot] = page[first : first + piece.shape[1]]
            first += piece.shape[1]

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
        self.device_planes(move.component)
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

    def _allocate(self) -> dict[Component, DevicePlanes]:
        """Allocate zeroed tensors, and find the slots in them as in an engine's."""
        self._allocated = {
            component: tuple(
                torch.zeros(
                    (layout.layers, self.config.capacity(component, GPU), size),
                    dtype=torch.uint8,
                    device=self.device,
                )
                for size in layout.plane_bytes
            )
            for component, layout in self.layouts.items()
        }
        tensors = {
            component: [EngineTensors("layers_slots", plane) for plane in planes]
            for component, planes in self._allocated.items()
        }
        return find_planes(self.config, tensors)

    def _attach(self, planes: dict[Component, DevicePlanes]) -> None:
        self._device_planes = planes
        self.attachments += 1
        self._pieces = {component: _pieces_of(some) for component, some in planes.items()}
        self._sides = {
            component: sides_of(some, self._slabs[component].pages, self.layouts[component])
            for component, some in planes.items()
        }

    def _device_pieces(self, component: Component) -> Iterator[torch.Tensor]:
        """The device memory of all pieces, in the order of a page on the host."""
        for layer in self.device_planes(component):
            for plane in layer:
                yield from plane.pieces()

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

    def _wait_for(self, after: object) -> None:
        """Make the current stream wait for another."""
        if after is None:
            return
        if self.device.type != "cuda":
            raise BadArgument(
                "after", f"is given, and the pools are on {self.device}; leave it out"
            )
        runtime = TorchRuntime(self.device, CudaDriver())
        runtime.current_stream().wait_event(Gates(runtime).event_after(after))

    def _settle_device(self) -> None:
        """Wait for all streams: they may use the same bytes as a copy here."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def _pieces_of(planes: DevicePlanes) -> tuple[tuple[int, int], ...]:
    """The pieces of a layer of a page: how many, and of how many bytes, in each plane."""
    return tuple((len(plane.piece_offsets), plane.piece_bytes) for plane in planes[0])


def _pieces(pages: int, items: int) -> Iterator[tuple[slice, slice]]:
    """Cut pages of `items` items each into pieces: which pages, and which items of each."""
    wide = min(items, PIECE_ITEMS)
    high = PIECE_ITEMS // wide
    for item in range(0, items, wide):
        for page in range(0, pages, high):
            yield slice(page, page + high), slice(item, item + wide)


def _require_size(argument: str, data: bytes, size_bytes: int) -> None:
    if len(data) != size_bytes:
        raise BadArgument(argument, f"has {len(data)} bytes; a page has {size_bytes}")


def _device_of(
    pools: Mapping[Component, DevicePlanes], device: torch.device | str | None
) -> torch.device:
    """The device of all planes. Raises: BadArgument, where they are on several or on another."""
    found = sorted(
        {str(plane.memory.device) for planes in pools.values() for row in planes for plane in row}
    )
    if len(found) > 1:
        raise BadArgument("tensors", f"are on {', '.join(found)}; a cache has one device")
    if device is not None and torch.device(device) != torch.device(found[0]):
        raise BadArgument("device", f"is {device}; the tensors are on {found[0]}")
    return torch.device(found[0])


def _require_components(
    argument: str, given: Mapping[Component, object], config: CacheConfig
) -> None:
    if set(given) != set(config.components):
        raise BadArgument(
            argument, f"are of {_names(given)}; the cache has {_names(config.components)}"
        )


def _names(components: Mapping[Component, object] | Sequence[Component]) -> str:
    return ", ".join(components) or "none"
