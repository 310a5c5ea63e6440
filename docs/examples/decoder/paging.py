"""Pages: the slots of a request's keys and values, and how attention reads them.

The engine owns the tensors of keys and values, one for each layer, and shapes them as its attention
likes; the cache's pools are over these tensors. A slot is the place of a page in *all* layers of
its component; in the other component the same page has another slot. The page table of a request
has both; the cache pairs them in `allocate`, and an insert takes only slots that are paired.

Window slots are counted from the end: pages that have left the window have none, so the window
slots that a match returns belong to its *last* pages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from attrs import define, field, frozen
from torch import Tensor

from kvcanon.optimized import PrefixCache
from kvcanon.optimized.engine_tensors import EngineTensors
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import FULL, SWA, Component, Slot, TransferId
from model import Shape

NO_SLOT = -1
DTYPE = torch.float32


@frozen(eq=False)
class PagedTensors:
    """The tensors of an engine, as its attention and as the cache see them."""

    layers: Sequence[tuple[Tensor, Tensor]]
    """Keys and values of each layer: (slots, page_size, heads, head_dim), in any strides."""
    given: Mapping[Component, Sequence[EngineTensors]]
    """The same memory, for the cache: each component has half of the layers."""


def allocate_tensors(config: CacheConfig, shape: Shape) -> PagedTensors:
    """Allocate a tensor (2, slots, page_size, heads, head_dim) for each layer."""
    page = (shape.page_size, shape.heads, shape.head_dim)
    components = [SWA if shape.slides(layer) else FULL for layer in range(shape.layers)]
    both = [torch.zeros(2, config.device_slots[each], *page, dtype=DTYPE) for each in components]
    given = {
        component: [
            EngineTensors(
                "vllm_kv_first",
                [each for each, its in zip(both, components, strict=True) if its is component],
            )
        ]
        for component in (FULL, SWA)
    }
    return PagedTensors([(each[0], each[1]) for each in both], given)


@define
class PageTable:
    """The slots of a request's pages, in the order of the pages."""

    full: list[Slot] = field(factory=list)
    swa: list[Slot] = field(factory=list)
    """As long as `full`; `NO_SLOT` for pages that no later token can see."""

    def begin_with(self, full: Sequence[Slot], swa: Sequence[Slot]) -> None:
        """Set the slots of the first pages to those that the cache returned."""
        self.full[: len(full)] = full
        self.swa[: len(full)] = [*[NO_SLOT] * (len(full) - len(swa)), *swa]

    def slots(self, component: Component, first_page: int, end_page: int) -> list[Slot]:
        """The slots of some pages. Raises: LookupError, if a page has none."""
        slots = (self.full if component is FULL else self.swa)[first_page:end_page]
        if NO_SLOT in slots or len(slots) != end_page - first_page:
            raise LookupError(f"pages {first_page}..{end_page} have {component} slots {slots}")
        return slots


class LoadFailed(Exception):
    """A load of pages from the host has failed."""


class PagedMemory:
    """The keys and values of one request, in the tensors that all requests share.

    Raises:
        LoadFailed: by `open_layer`.
    """

    def __init__(self, tensors: PagedTensors, shape: Shape, cache: PrefixCache) -> None:
        self.shape = shape
        self.table = PageTable()
        self.cache = cache
        self.loading: TransferId | None = None
        self.tensors = tensors

    def open_layer(self, layer: int) -> None:
        """Wait for a layer of the pages that are being loaded; layers count in each component."""
        if self.loading is not None and not self.cache.wait_layer(self.loading, layer // 2):
            raise LoadFailed

    def write(self, layer: int, first: int, keys: Tensor, values: Tensor) -> None:
        """Write keys and values of consecutive positions of one page."""
        page, row = divmod(first, self.shape.page_size)
        (slot,) = self.table.slots(self._component(layer), page, page + 1)
        for plane, given in zip(self.tensors.layers[layer], (keys, values), strict=True):
            plane[slot, row : row + len(given)] = given

    def read(self, layer: int, first: int, end: int) -> tuple[Tensor, Tensor]:
        """Gather positions `first` to `end`, as a paged attention kernel does on the fly."""
        size = self.shape.page_size
        first_page, end_page = first // size, -(-end // size)
        slots = torch.tensor(self.table.slots(self._component(layer), first_page, end_page))
        keys, values = (plane[slots].flatten(0, 1) for plane in self.tensors.layers[layer])
        rows = slice(first - first_page * size, end - first_page * size)
        return keys[rows], values[rows]

    def _component(self, layer: int) -> Component:
        return SWA if self.shape.slides(layer) else FULL
