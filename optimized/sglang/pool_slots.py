"""SGLang's pools, by the rows of the tree: which token slots a node has, and which came free."""

from __future__ import annotations

from typing import TypeAlias

import torch
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType

from kvcanon.optimized import _core
from kvcanon.optimized.native_types import SlotsByComponent, Three
from kvcanon.optimized.sglang.slot_table import SlotTable, slot_table
from kvcanon.spec.errors import BadArgument

FULL, SWA, MAMBA = ComponentType.FULL, ComponentType.SWA, ComponentType.MAMBA
KINDS = (FULL, SWA, MAMBA)
"""In the order of the native numbers."""
HOST_POOL_NAMES = {FULL: "kv", SWA: "swa", MAMBA: "mamba"}

Components: TypeAlias = dict[ComponentType, object]
"""SGLang's components of a cache."""


class PoolSlots:
    """The tables from rows to token slots.

    On the device they are of full slots and of states. The slot of the window data of each full
    slot is in the allocator's own map, and nowhere else.
    """

    def __init__(self, params: CacheInitParams, components: Components) -> None:
        self.page_size: int = params.page_size
        self.kinds = frozenset(components)
        self.has_parts = len(components) > 1
        """Whether there is more than full data."""
        self._allocator = params.token_to_kv_pool_allocator
        self._window_pages = 0
        pool = self._allocator
        if SWA in components:
            # Its rows lead to no slots, so that none are to spare.
            self._window_pages = _pages(pool.swa_attn_allocator.size, self.page_size)
            pool = pool.full_attn_allocator
        device = torch.device(self._allocator.device)
        # An allocator of single tokens gives out pages of any tokens.
        consecutive = self.page_size in (1, pool.page_size)
        pages = _pages(pool.size, self.page_size)
        self.full = slot_table(pages, self.page_size, device, consecutive=consecutive)
        self.tables: dict[ComponentType, SlotTable] = {FULL: self.full}
        if MAMBA in components:
            states = params.req_to_token_pool.mamba_allocator.size
            self.tables[MAMBA] = slot_table(states + 1, 1, device)
        self.host_tables: dict[ComponentType, SlotTable] = {}
        self._host_pools: dict[ComponentType, object] = {}

    def add_host(self, components: Components) -> None:
        """Add SGLang's pools on the host."""
        self._host_pools = _host_pools(components)
        for kind, pool in self._host_pools.items():
            size = self.page_tokens(kind)
            tokens: int = pool.size  # type: ignore[attr-defined] # A host pool.
            self.host_tables[kind] = slot_table(_pages(tokens, size), size, "cpu")

    def page_tokens(self, kind: ComponentType) -> int:
        """Tokens a page of a component; 1 for states."""
        return 1 if kind is MAMBA else self.page_size

    def device_rows(self) -> Three:
        """Rows of each component on the device."""
        return self.full.rows, self._window_pages, _rows(self.tables.get(MAMBA))

    def host_rows(self) -> Three:
        """Rows of each component on the host."""
        full, swa, states = (_rows(self.host_tables.get(kind)) for kind in KINDS)
        return full, swa, states

    def rooms_for(self, tokens: Three) -> Three:
        """Free tokens, or states, of SGLang's host pools that a copy of so many needs; else 0."""
        full, swa, states = tokens
        return (
            self._room(FULL) if full else 0,
            self._room(SWA) if swa else 0,
            self._room(MAMBA) if states else 0,
        )

    def _room(self, kind: ComponentType) -> int:
        tokens: int = self._host_pools[kind].available_size()  # type: ignore[attr-defined]
        return tokens

    def window(self, full: torch.Tensor) -> torch.Tensor:
        """The window slots of full slots, on the device."""
        windows: torch.Tensor = self._allocator.translate_swa_indices_for_transfer(full)
        return windows.to(torch.int64)

    def at(
        self, nodes: _core.Nodes, node_id: int, kind: ComponentType, medium: int
    ) -> torch.Tensor | None:
        """The token slots of a node's component on a medium; None where it has none."""
        try:
            if not nodes.has(node_id, kind, medium):
                return None
        except BadArgument:
            return None  # The node is gone.
        if kind is SWA and not medium:
            return self.window(self.full.get(nodes.slots(node_id)))
        table = (self.host_tables if medium else self.tables)[kind]
        return table.get(nodes.slots(node_id, None, kind, medium))

    def by_component(self) -> tuple[SlotsByComponent, SlotsByComponent]:
        """The tables on the device and on the host, by component."""
        device, host = (
            (tables.get(FULL), tables.get(SWA), tables.get(MAMBA))
            for tables in (self.tables, self.host_tables)
        )
        return device, host


def _rows(table: SlotTable | None) -> int:
    return 0 if table is None else table.rows


def _pages(tokens: int, page_size: int) -> int:
    """Pages of a pool, and one more: allocators keep a page for padding."""
    return -(-tokens // page_size) + 1


def _host_pools(components: Components) -> dict[ComponentType, object]:
    """SGLang's pool of each component on the host."""
    cache = components[FULL].cache  # type: ignore[attr-defined] # A TreeComponent.
    group = cache.cache_controller.mem_pool_host
    entries = getattr(group, "entry_map", None)
    by_name = {HOST_POOL_NAMES[FULL]: group}
    if entries is not None:
        by_name = {str(name.value): entry.host_pool for name, entry in entries.items()}
    return {
        kind: by_name[name]
        for kind, name in HOST_POOL_NAMES.items()
        if kind in components and name in by_name
    }
