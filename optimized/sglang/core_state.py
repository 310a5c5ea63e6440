"""What all parts of the tree core share: settings, tables, and copies in flight."""

from __future__ import annotations

import torch
from sglang.srt.mem_cache.base_prefix_cache import MatchResult
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
from sglang.srt.mem_cache.unified_cache.unified_tree_core_interface import (
    UnifiedTreeCoreInterface,
)

from kvcanon.optimized.sglang.kv_events import SentEvents
from kvcanon.optimized.sglang.native_tree import TreeOfNodes, TreeSettings, make_native, remake
from kvcanon.optimized.sglang.refusals import refuse
from kvcanon.optimized.sglang.rows import RowTable
from kvcanon.spec.types import EvictionPolicy, WritePolicy

FULL, SWA, MAMBA = ComponentType.FULL, ComponentType.SWA, ComponentType.MAMBA
HOST_POOL_NAMES = {FULL: "kv", SWA: "swa", MAMBA: "mamba"}


class CoreState(UnifiedTreeCoreInterface):  # type: ignore[misc] # SGLang has no types here.
    """The attributes that SGLang's controller reads and sets, and the native cache."""

    def __init__(self, params: CacheInitParams, components: dict[ComponentType, object]) -> None:
        """Read the parameters of a cache."""
        super().__init__()
        self.components = components
        self.page_size: int = params.page_size
        self.is_eagle: bool = params.is_eagle and MAMBA not in components
        allocator = params.token_to_kv_pool_allocator
        self.device = torch.device(allocator.device)
        self.has_swa_host_pool = False
        self.is_host_memory_buffer_only = False
        self.tables = _device_tables(params, components, self.device)
        self.host_tables: dict[ComponentType, RowTable] = {}
        self.host_pools: dict[ComponentType, object] = {}
        self.state_grid: int = getattr(components.get(MAMBA), "mamba_checkpoint_grid", 1)
        # Nodes whose copy to the host is in flight, with the acknowledgement that ends it; and
        # those whose full data no event has announced there yet.
        self.pending: dict[int, int] = {}
        self.unannounced: set[int] = set()
        # Of what write_back reclaimed on the host, in order; ranks compare it.
        self.write_back_duplicate_reclaim_digest: int = 0
        # The node that each open lock of host copies is for.
        self.host_locks: dict[int, int] = {}
        self._host_receipts = 0
        # Tokens that the controller is about to copy to the host, by component; and what was free
        # there before it took slots for them.
        self._copying: dict[ComponentType, int] = {}
        self._rooms: dict[ComponentType, int] = {}
        # What the running walk of an eviction may free, by component.
        self._quota: dict[ComponentType, int] = {}
        self._hicache = self._write_back = False
        self._threshold = 256
        self._window: int = (params.swa_retain_window or 0) if SWA in components else 0
        self._policy = EvictionPolicy(params.eviction_policy.lower())
        self._events: bool = params.enable_kv_cache_events
        self._made: TreeOfNodes | None = None
        # The answer to a key without a page; it names the root, which is another after a reset.
        self._empty_result: MatchResult | None = None
        self._settled = False
        self.kv_events = SentEvents(params, lambda: self.native, bigram=self.is_eagle)

    @property
    def native(self) -> TreeOfNodes:
        """The native cache, made anew where a setting has changed since."""
        if self._made is not None and self._settled:
            return self._made
        settings = self._settings()
        self._empty_result = None
        self._made = make_native(settings) if self._made is None else remake(self._made, settings)
        if self._hicache and self._threshold > 0:
            self._made.nodes.set_wanted_hits(self._threshold)
        self._settled = True
        return self._made

    # What the controller sets.

    @property
    def enable_hicache(self) -> bool:
        """Whether there is a host tier."""
        return self._hicache

    def set_hicache_enabled(self) -> None:
        """Add a host tier."""
        self._hicache, self._settled = True, False
        self.host_pools = _host_pools(self.components)
        self.host_tables = {
            kind: _host_table(kind, pool, self.page_size) for kind, pool in self.host_pools.items()
        }

    @property
    def is_write_back(self) -> bool:
        """Whether data is copied to the host when it leaves the device."""
        return self._write_back

    @is_write_back.setter
    def is_write_back(self, write_back: bool) -> None:
        self._write_back, self._settled = write_back, False

    @property
    def write_through_threshold(self) -> int:
        """Hits after which a node is copied to the host."""
        return self._threshold

    @write_through_threshold.setter
    def write_through_threshold(self, hits: int) -> None:
        self._threshold, self._settled = hits, False

    @property
    def enable_storage(self) -> bool:
        """Whether there is a storage tier: never."""
        return False

    @enable_storage.setter
    def enable_storage(self, enabled: bool) -> None:
        if enabled:
            refuse("--hicache-storage-backend", "it has a device and a host tier")

    @property
    def enable_external_cache_linker(self) -> bool:
        """Whether there is an external store: never."""
        return False

    @enable_external_cache_linker.setter
    def enable_external_cache_linker(self, enabled: bool) -> None:
        if enabled:
            refuse("--enable-unified-cache-external-linker", "it has a device and a host tier")

    def _expect_copy(self, tokens: dict[ComponentType, int]) -> None:
        """Note that the controller is about to copy so many tokens, or states, to the host."""
        self._copying = tokens
        self._rooms = {kind: self._room(kind) for kind in tokens}

    def _room(self, kind: ComponentType) -> int:
        """The tokens, or states, that SGLang's host pool of a component has free."""
        tokens: int = self.host_pools[kind].available_size()  # type: ignore[attr-defined]
        return tokens

    def _states_per_path(self) -> int:
        """The most states of one path; negative for any number."""
        cap: int = getattr(self.components.get(MAMBA), "mamba_max_states_per_path", -1)
        return cap

    def _settings(self) -> TreeSettings:
        policy = WritePolicy.NONE
        if self._hicache:
            policy = WritePolicy.WRITE_BACK if self._write_back else WritePolicy.WRITE_THROUGH
        return TreeSettings(
            page_size=self.page_size,
            bigram=self.is_eagle,
            window_tokens=self._window,
            mamba=MAMBA in self.components,
            device_slots=_sizes(self.tables),
            host_slots=_sizes(self.host_tables),
            write_policy=policy,
            eviction_policy=self._policy,
            events=self._events,
        )


def _sizes(tables: dict[ComponentType, RowTable]) -> tuple[int, int, int]:
    full, swa, states = (
        tables[kind].table.shape[0] if kind in tables else 0 for kind in (FULL, SWA, MAMBA)
    )
    return full, swa, states


def _device_tables(
    params: CacheInitParams, components: dict[ComponentType, object], device: torch.device
) -> dict[ComponentType, RowTable]:
    """A table for each component: as many rows as its pool has pages."""
    allocator, size = params.token_to_kv_pool_allocator, params.page_size
    pools = {FULL: allocator}
    if SWA in components:
        pools = {FULL: allocator.full_attn_allocator, SWA: allocator.swa_attn_allocator}
    tables = {}
    for kind, pool in pools.items():
        # An allocator of single tokens gives out pages of any tokens.
        consecutive = size in (1, pool.page_size)
        tables[kind] = RowTable(_pages(pool.size, size), size, device, consecutive=consecutive)
    if MAMBA in components:
        states = params.req_to_token_pool.mamba_allocator.size
        tables[MAMBA] = RowTable(states + 1, 1, device, consecutive=True)
    return tables


def _host_pools(components: dict[ComponentType, object]) -> dict[ComponentType, object]:
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


def _host_table(kind: ComponentType, pool: object, page_size: int) -> RowTable:
    """A table for a pool of the host. SGLang gives host slots out by whole pages."""
    size = 1 if kind is MAMBA else page_size
    tokens: int = pool.size  # type: ignore[attr-defined] # A host pool.
    return RowTable(_pages(tokens, size), size, "cpu", consecutive=True)


def _pages(tokens: int, page_size: int) -> int:
    """Pages of a pool, and one more: allocators keep a page for padding."""
    return -(-tokens // page_size) + 1
