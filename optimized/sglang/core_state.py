"""What all parts of the tree core share: settings, tables, and copies in flight."""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.unified_cache.cache_action import UpdatePendingBackupOnNodeSplit
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
from sglang.srt.mem_cache.unified_cache.unified_tree_core_interface import (
    UnifiedTreeCoreInterface,
)

from kvcanon.optimized import _core
from kvcanon.optimized.sglang.kv_events import SentEvents
from kvcanon.optimized.sglang.native_tree import TreeOfNodes, TreeSettings, make_native, remake
from kvcanon.optimized.sglang.refusals import refuse
from kvcanon.optimized.sglang.slot_table import SlotTable, slot_table
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.types import EvictionPolicy, WritePolicy

FULL, SWA, MAMBA = ComponentType.FULL, ComponentType.SWA, ComponentType.MAMBA
KINDS = (FULL, SWA, MAMBA)
"""In the order of the native numbers."""
HOST_POOL_NAMES = {FULL: "kv", SWA: "swa", MAMBA: "mamba"}


class CoreState(UnifiedTreeCoreInterface):  # type: ignore[misc] # SGLang has no types here.
    """The attributes that SGLang's controller reads and sets, and the native cache."""

    def __init__(self, params: CacheInitParams, components: dict[ComponentType, object]) -> None:
        """Read the parameters of a cache."""
        super().__init__()
        self.components = components
        self.page_size: int = params.page_size
        self.is_eagle: bool = params.is_eagle and MAMBA not in components
        self._allocator = params.token_to_kv_pool_allocator
        self.device = torch.device(self._allocator.device)
        self.has_swa_host_pool = False
        self.is_host_memory_buffer_only = False
        # Of full slots and states. The slot of the window data of each full slot is in the
        # allocator's own map, and nowhere else.
        self.tables = _device_tables(params, components, self.device)
        self._full = self.tables[FULL]
        self._window_pages = _window_pages(params) if SWA in components else 0
        # Whether there is more than full data.
        self._has_parts = len(components) > 1
        self.host_tables: dict[ComponentType, SlotTable] = {}
        self.host_pools: dict[ComponentType, object] = {}
        self.state_grid: int = getattr(components.get(MAMBA), "mamba_checkpoint_grid", 1)
        # Nodes of which copies to the host are in flight, with the acknowledgements that end them,
        # the first one first; and those whose full data no event has announced there yet.
        self.pending: dict[int, tuple[int, ...]] = {}
        self.unannounced: set[int] = set()
        # Nodes by the further names of their copies. The names are negative, as no handle is, and
        # -1 is SGLang's word for no node. And the names that the running insert gave.
        self.copied_nodes: dict[int, int] = {}
        self._last_name = -1
        self._new_names: list[int] = []
        # Of what write_back reclaimed on the host, in order; ranks compare it.
        self.write_back_duplicate_reclaim_digest: int = 0
        # The node that each open lock of host copies is for.
        self.host_locks: dict[int, int] = {}
        self._host_receipts = 0
        # The nodes of the copy to the host that the controller makes; those of a copy of several
        # nodes that it has not made yet; and those of one that it has made and will lock next.
        self._copy: tuple[int, ...] = ()
        self._joined: tuple[int, ...] = ()
        self._locking: tuple[int, ...] = ()
        # The nodes of a copy under write_back for which the host could not make all of the room.
        self._without_room: tuple[int, ...] = ()
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
        # The nodes and the root of the native cache, for the calls of every request; None where a
        # setting has changed since.
        self._nodes: _core.Nodes | None = None
        self._root = 0
        self.kv_events = SentEvents(params, lambda: self.native)

    @property
    def native(self) -> TreeOfNodes:
        """The native cache, made anew where a setting has changed since."""
        if self._made is not None and self._nodes is not None:
            return self._made
        settings = self._settings()
        self._made = make_native(settings) if self._made is None else remake(self._made, settings)
        self._nodes = self._made.nodes
        self._root = self._nodes.root()
        if self._hicache and self._threshold > 0:
            self._nodes.set_wanted_hits(self._threshold)
        return self._made

    @property
    def unified_cache(self) -> Any:  # noqa: ANN401 # SGLang has no types here.
        """The controller itself: SGLang's `UnifiedRadixCache`."""
        return self.components[FULL].cache  # type: ignore[attr-defined] # A TreeComponent.

    def node_of(self, name: int) -> int:
        """The native node of what SGLang knows as a node, which may name a copy of it."""
        return self.copied_nodes.get(name, name)

    # What the controller sets.

    @property
    def enable_hicache(self) -> bool:
        """Whether there is a host tier."""
        return self._hicache

    def set_hicache_enabled(self) -> None:
        """Add a host tier."""
        self._hicache, self._nodes = True, None
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
        self._write_back, self._nodes = write_back, None

    @property
    def write_through_threshold(self) -> int:
        """Hits after which a node is copied to the host."""
        return self._threshold

    @write_through_threshold.setter
    def write_through_threshold(self, hits: int) -> None:
        self._threshold, self._nodes = hits, None

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

    def _follow_cuts(self, cuts: list[tuple[int, int, int]]) -> list[object]:
        """Let copies in flight follow where the tree cut nodes; returns the actions for it."""
        actions: list[object] = []
        for upper, lower, _ in cuts:
            ack_ids = self.pending.get(lower, ())
            if not ack_ids:
                continue
            self.pending[upper] = ack_ids
            if lower in self.unannounced:
                self.unannounced.add(upper)
            actions += [
                UpdatePendingBackupOnNodeSplit(ack_id, lower, upper, lower) for ack_id in ack_ids
            ]
        return actions

    def slots_at(self, node_id: int, kind: ComponentType, medium: int = 0) -> torch.Tensor | None:
        """The token slots of a node's component on a medium; None where it has none."""
        nodes = self._nodes or self.native.nodes
        try:
            if kind not in self.components or not nodes.has(node_id, int(kind), medium):
                return None
        except BadArgument:
            return None  # The node is gone.
        if kind is SWA and not medium:
            return self._window_slots(nodes.slots(node_id))
        table = (self.host_tables if medium else self.tables)[kind]
        return table.get(nodes.slots(node_id, None, int(kind), medium))

    def _window_slots(self, full_rows: _core.Rows) -> torch.Tensor:
        """The window slots of the pages of full rows, on the device."""
        full = self._full.get(full_rows)
        windows: torch.Tensor = self._allocator.translate_swa_indices_for_transfer(full)
        return windows.to(torch.int64)

    def _page_tokens(self, kind: ComponentType) -> int:
        """Tokens a page of a component; 1 for states."""
        return 1 if kind is MAMBA else self.page_size

    def _expect_copy(self, tokens: dict[ComponentType, int]) -> None:
        """Note that the controller is about to copy so many tokens, or states, to the host."""
        self._copying = tokens
        self._rooms = {kind: self._room(kind) for kind in tokens}

    def _is_declined(self) -> bool:
        """Whether the host has tried to make room for the copy already, and could not.

        The controller asks pool by pool, and again; another try would find more, and evict for it.
        """
        return bool(self._without_room) and self._copy == self._without_room

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
            device_slots=_sizes(self.tables, self._window_pages),
            host_slots=_sizes(self.host_tables, None),
            write_policy=policy,
            eviction_policy=self._policy,
            events=self._events,
        )


def _sizes(
    tables: dict[ComponentType, SlotTable], window_pages: int | None
) -> tuple[int, int, int]:
    """Rows of each component: those of its table, or so many of window data without a table."""
    full, swa, states = (tables[kind].rows if kind in tables else 0 for kind in KINDS)
    return full, swa if window_pages is None else window_pages, states


def _device_tables(
    params: CacheInitParams, components: dict[ComponentType, object], device: torch.device
) -> dict[ComponentType, SlotTable]:
    """Tables of full slots and of states: as many rows as the pool has pages."""
    pool, size = params.token_to_kv_pool_allocator, params.page_size
    if SWA in components:
        pool = pool.full_attn_allocator
    # An allocator of single tokens gives out pages of any tokens.
    consecutive = size in (1, pool.page_size)
    tables = {FULL: slot_table(_pages(pool.size, size), size, device, consecutive=consecutive)}
    if MAMBA in components:
        states = params.req_to_token_pool.mamba_allocator.size
        tables[MAMBA] = slot_table(states + 1, 1, device)
    return tables


def _window_pages(params: CacheInitParams) -> int:
    """Pages of the window pool. Its rows lead to no slots, so that none are to spare."""
    return _pages(params.token_to_kv_pool_allocator.swa_attn_allocator.size, params.page_size)


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


def _host_table(kind: ComponentType, pool: object, page_size: int) -> SlotTable:
    """A table for a pool of the host."""
    size = 1 if kind is MAMBA else page_size
    tokens: int = pool.size  # type: ignore[attr-defined] # A host pool.
    return slot_table(_pages(tokens, size), size, "cpu")


def _pages(tokens: int, page_size: int) -> int:
    """Pages of a pool, and one more: allocators keep a page for padding."""
    return -(-tokens // page_size) + 1
