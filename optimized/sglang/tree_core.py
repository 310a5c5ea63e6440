"""SGLang's tree core over the nodes and rows of the native cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch
from attrs import evolve
from sglang.srt.mem_cache import base_prefix_cache as calls
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.hicache_storage import PoolTransfer
from sglang.srt.mem_cache.unified_cache import unified_tree_core_interface as answers
from sglang.srt.mem_cache.unified_cache.cache_action import BackupKV, MambaEvictExcessPathStates
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType

from kvcanon.optimized.native_types import Amounts, PromptInserted, SlotLists, VictimToCopy
from kvcanon.optimized.sglang import copies, device_eviction, host_tier, inserts, walks
from kvcanon.optimized.sglang.copy_order import CopyStage
from kvcanon.optimized.sglang.core_state import CoreState
from kvcanon.optimized.sglang.host_room import digest_with, make_room
from kvcanon.optimized.sglang.host_tier import HOST, Transfers
from kvcanon.optimized.sglang.kv_events import SentEvents
from kvcanon.optimized.sglang.native_tree import TreeOfNodes, TreeSettings, make_native
from kvcanon.optimized.sglang.pool_slots import FULL, MAMBA, SWA, PoolSlots
from kvcanon.optimized.sglang.receipts import refuse_anchor, release
from kvcanon.optimized.sglang.storage_calls import StorageCalls
from kvcanon.spec.errors import BadArgument, SpecViolation
from kvcanon.spec.types import EvictionPolicy


def _of(size: Callable[..., int], kind: ComponentType) -> Callable[..., int]:
    """A method that returns the size of one component."""
    return lambda self: size(self, kind)


class KvcanonTreeCore(StorageCalls):
    """The tree core `kvcanon`.

    `sglang.srt.mem_cache.unified_cache.unified_tree_core_interface` says what the controller calls
    when. A node handle of SGLang is a handle of the native tree, or a further name of one, by which
    a copy and its lock are known (`node_of`).
    """

    def __init__(self, params: CacheInitParams, components: dict[ComponentType, object]) -> None:
        """Make the core of an empty cache."""
        super().__init__()
        self.components = components
        self.page_size: int = params.page_size
        self.is_eagle: bool = params.is_eagle and MAMBA not in components
        self.device = torch.device(params.token_to_kv_pool_allocator.device)
        self.has_swa_host_pool = False
        self.is_host_memory_buffer_only = False
        self.write_back_duplicate_reclaim_digest: int = 0
        self._threshold = 256
        # Asked in each call: a look into a dictionary hashes SGLang's component in Python.
        self._has_window, self._has_states = SWA in components, MAMBA in components
        self._full: device_eviction.OfCache = components[FULL]  # type: ignore[assignment]
        # What the running walk of an eviction may free, and of which component.
        self._walk: tuple[ComponentType, int] = FULL, 0
        # What a lock of the root has: it holds nothing.
        self._no_receipts: dict[ComponentType, int | None] = dict.fromkeys(components)
        states = components.get(MAMBA)
        # Negative for any number.
        self._states_per_path: int = getattr(states, "mamba_max_states_per_path", -1)
        slots = PoolSlots(params, components)
        settings = TreeSettings(
            page_size=self.page_size,
            bigram=self.is_eagle,
            window_tokens=(params.swa_retain_window or 0) if SWA in components else 0,
            mamba=MAMBA in components,
            device_slots=slots.device_rows(),
            eviction_policy=EvictionPolicy(params.eviction_policy.lower()),
            events=params.enable_kv_cache_events,
        )
        grid: int = getattr(states, "mamba_checkpoint_grid", 1)
        self.state = CoreState(make_native(settings), slots, grid)
        self.kv_events = SentEvents(params, lambda: self.native)

    @property
    def native(self) -> TreeOfNodes:
        """The native cache."""
        return self.state.native

    # Settings, which SGLang's controller sets while the tree is empty.

    @property
    def enable_hicache(self) -> bool:
        """Whether there is a host tier."""
        return self.native.settings.host_tier

    def set_hicache_enabled(self) -> None:
        """Add a host tier."""
        slots = self.state.slots
        slots.add_host(self.components)
        self._apply(evolve(self.native.settings, host_slots=slots.host_rows()))

    @property
    def is_write_back(self) -> bool:
        """Whether data is copied to the host when it leaves the device."""
        return self.native.settings.write_back

    @is_write_back.setter
    def is_write_back(self, write_back: bool) -> None:
        self._apply(evolve(self.native.settings, write_back=write_back))

    @property
    def write_through_threshold(self) -> int:
        """Hits after which a node is copied to the host."""
        return self._threshold

    @write_through_threshold.setter
    def write_through_threshold(self, hits: int) -> None:
        self._threshold = hits
        self._apply(self.native.settings)

    # The tree.

    def reset(self) -> None:
        """Forget the tree and all locks."""
        self.state.forget()

    def node_of(self, name: int) -> int:
        """The native node of what SGLang knows as a node, which may name a copy of it."""
        return self.state.copies.node_of(name)

    def root_node_handle(self, extra_key: str | None = None) -> int:
        """The root, which is that of every namespace."""
        del extra_key
        return self.state.root

    def is_root(self, node_id: int) -> bool:
        """Whether a node is the root."""
        return node_id == self.state.root

    @property
    def empty_match_result(self) -> calls.MatchResult:
        """The answer to a key without a page."""
        root = self.state.root
        return calls.MatchResult(0, root, root, root, cache_actions=[])

    # Matching and inserting.

    def match_prefix(self, params: calls.MatchPrefixParams) -> calls.MatchResult:
        """Find the longest usable prefix of a key, and make it recent."""
        core = self.state
        found: calls.MatchResult = core.engine_nodes.match(core, params)
        return found

    def collect_full_device_indices(self, from_node_id: int, until_node_id: int) -> torch.Tensor:
        """The full token slots from below `until_node_id` down to `from_node_id`."""
        if from_node_id == until_node_id:
            return self.state.slots.full.nothing
        return self.state.engine_nodes.slots(from_node_id, until_node_id)

    def begin_insert(self, params: calls.InsertParams) -> answers.InsertStepResult:
        """Insert a key; the answer is whole at once."""
        core = self.state
        if core.copies.order.stage is not CopyStage.NONE:
            core.copies.order.give_up("begin_insert")
        # Tokens whose window slots the request has freed.
        frontier = params.get_evicted_seqlen(SWA) if self._has_window else 0
        tokens = inserts.slots_of(params, self.device)
        if params.session_id is None:
            done = core.engine_nodes.insert(core, params, tokens, frontier)
        else:
            done = self._insert_of_session(params, tokens, frontier)
        if done is None:
            empty = calls.InsertResult(prefix_len=0, mamba_exist=True, last_device_node=core.root)
            return answers.InsertStepResult(actions=[], result=empty)
        if isinstance(done, PromptInserted):
            return self._end_of(done, params, tokens, frontier)
        result: answers.InsertStepResult = done
        return result

    def _end_of(
        self, done: PromptInserted, params: calls.InsertParams, tokens: torch.Tensor, frontier: int
    ) -> answers.InsertStepResult:
        """The result of an insert that leaves more to do than to free slots."""
        core = self.state
        # Cuts first: what the insert placed is listed as it is after them.
        actions = copies.follow_cuts(core.copies, done.cuts)
        actions += inserts.give_back(done, tokens, frontier, self.page_size)
        if done.wanted:
            apart = self._has_states
            actions.append(copies.copy_of(core.copies, done.wanted, done.wanted_end, apart=apart))
        if done.state is not None and self._states_per_path >= 0:
            actions.append(MambaEvictExcessPathStates(done.end))
        return answers.InsertStepResult(actions, inserts.result_of(core, done, params))

    def _insert_of_session(
        self, params: calls.InsertParams, tokens: torch.Tensor, frontier: int
    ) -> object:
        """Insert a key whose events name its session."""
        self.kv_events.move(None)
        done = self.state.engine_nodes.insert(self.state, params, tokens, frontier)
        self.kv_events.move(params.session_id)
        return done

    def resume_insert(self) -> NoReturn:
        """Refuse: no insert is ever suspended. Raises: RuntimeError."""
        raise RuntimeError("no insert is suspended: begin_insert answers whole")

    def has_ongoing_insert(self) -> bool:
        """Whether an insert is suspended: never."""
        return False

    def end_insert(self) -> list[object]:
        """Return what is left to do: copies, each on its own, that could not be made as one."""
        copied = self.state.copies
        if not (copied.joined or copied.new_names) and copied.order.stage is CopyStage.NONE:
            return []
        return copies.end_insert(copied)

    # Locks.

    def inc_lock_ref(
        self, node_id: int, skip_lock_components: Sequence[ComponentType] = ()
    ) -> calls.IncLockRefResult:
        """Lock a node's data, without the skipped components."""
        skipped: tuple[ComponentType, ...] = ()
        window, state = self._has_window, True
        if skip_lock_components:
            skipped = tuple(skip_lock_components)
            window, state = window and SWA not in skipped, MAMBA not in skipped
            if FULL in skipped:
                raise ValueError("a lock holds full data; it cannot be skipped")
        core = self.state
        if node_id == core.root:
            return calls.IncLockRefResult(0, node_id, skipped, self._no_receipts.copy(), {})
        copied = core.copies
        receipt, newly, below_root = core.nodes.lock(
            copied.nodes_by_name.get(node_id, node_id),
            window,
            state,
            () if copied.order.stage is CopyStage.NONE else copied.order.locked_with(node_id),
        )
        receipts: dict[ComponentType, int | None] = {FULL: receipt}
        if window:
            receipts[SWA] = receipt if below_root else None
        return calls.IncLockRefResult(newly * self.page_size, node_id, skipped, receipts, {})

    def dec_lock_ref(
        self, node_id: int, params: calls.DecLockRefParams, skip_swa: bool = False
    ) -> calls.DecLockRefResult:
        """Release what a receipt still holds, or its state alone."""
        del skip_swa  # The receipt knows whether the window was released before.
        if params.node_id != node_id:
            refuse_anchor(node_id, params)
        core = self.state
        # Before all else: a plan that is left would take the next room on the host for its own.
        if core.copies.order.stage is CopyStage.PLANNED:
            core.copies.order.give_up("dec_lock_ref")
        if node_id == core.root:
            return calls.DecLockRefResult()
        receipt = params.component_lock_uuids[FULL]
        skipped = params.skipped_lock_components
        if FULL not in skipped:
            # A copy's lock is released when the copy has ended: no call names it again.
            node = core.copies.nodes_by_name.pop(node_id, node_id)
            release(core.nodes.unlock, node, receipt)
        elif MAMBA not in skipped and (SWA in skipped or not self._has_window):
            release(core.nodes.unlock_state, node_id, receipt)
        elif SWA not in skipped and self._has_window:
            raise ValueError("a window is released by dec_swa_lock_only")
        return calls.DecLockRefResult()

    def dec_swa_lock_only(
        self, node_id: int, params: calls.DecLockRefParams
    ) -> answers.DecSwaLockOnlyResult:
        """Release the window and the state of a lock; full data stays locked."""
        if params.node_id != node_id:
            refuse_anchor(node_id, params)
        if self._has_window and not self.is_root(node_id):
            release(self.state.nodes.unlock_window, node_id, params.get_lock_uuid(FULL))
        return answers.DecSwaLockOnlyResult()

    # Eviction from the device, and from the host.

    def evict_device_start(self, component_type: ComponentType, request_cnt: int) -> None:
        """Begin a walk with a quota of tokens or states: none of a component that is not there."""
        is_there = component_type is FULL or component_type in self.components
        self._walk = component_type, request_cnt if is_there else 0

    def evict_device_end(self, component_type: ComponentType) -> None:
        """End a walk."""
        self._walk = component_type, 0
        order = self.state.copies.order
        if order.stage is not CopyStage.NONE or order.declined or order.alone:
            order.end_walk()

    def evict_device_next_node(
        self, component_type: ComponentType, tracker: Amounts
    ) -> answers.EvictDeviceNextNodeResult:
        """Evict a victim, or as many as a quota needs; or name one that must be copied first."""
        walked, quota = self._walk
        short = quota - tracker.get(component_type, 0)
        if short <= 0 or walked is not component_type:
            return answers.EvictDeviceNextNodeResult()
        core = self.state
        # For full data SGLang stops where its allocator has room, which it asks after each victim.
        # For the others the quota is what it lacks: all victims leave at once. Of windows they are
        # copied at once, too; for states the controller makes room one by one.
        together = component_type is SWA and not core.copies.order.alone
        step = core.engine_nodes.evict_step(
            component_type, 1 if component_type is FULL else short, together
        )
        if isinstance(step, VictimToCopy):
            return device_eviction.copy_first(core, self._full, step, component_type)
        result: answers.EvictDeviceNextNodeResult = step
        return result

    def finish_swa_state_eviction(self, node_id: int) -> answers.EvictDeviceNextNodeResult:
        """Evict a node's window data, after the attempt to copy it."""
        return device_eviction.finish(self.state, self._full, SWA, node_id)

    def finish_mamba_state_eviction(self, node_id: int) -> answers.EvictDeviceNextNodeResult:
        """Evict a node's state, after the attempt to copy it."""
        return device_eviction.finish(self.state, self._full, MAMBA, node_id)

    def evict_device_leaf(self, node_id: int, is_write_back: bool) -> answers.EvictDeviceLeafResult:
        """Ask for the copy of a leaf, or evict it where it has one."""
        core = self.state
        if is_write_back and not core.nodes.has(node_id, FULL, HOST):
            return answers.EvictDeviceLeafResult({}, {}, {}, [], BackupKV([node_id]))
        step = core.engine_nodes.evict_node(node_id, FULL)
        return answers.EvictDeviceLeafResult(
            step.device, step.host, step.tokens, [], None, step.lost
        )

    def demote(self, node_id: int) -> answers.DemoteResult:
        """Drop the device data of a node that the host has."""
        step = self.state.engine_nodes.evict_node(node_id, FULL)
        return answers.DemoteResult(step.device, step.host, step.tokens)

    def drop_subtree_no_host(self, node_id: int) -> answers.DropSubtreeNoHostResult:
        """Drop a leaf that was not copied; declined where it is locked, or named alone next."""
        core = self.state
        if core.copies.order.ends_apart():
            return answers.DropSubtreeNoHostResult(is_dropped=False)
        try:
            step = core.engine_nodes.evict_node(node_id, FULL)
        except BadArgument:
            return answers.DropSubtreeNoHostResult(is_dropped=False)
        return answers.DropSubtreeNoHostResult(step.device, step.host, step.tokens, is_dropped=True)

    def drive_host_eviction(
        self, component_type: ComponentType, num_tokens: int
    ) -> answers.DriveHostEvictionResult:
        """Free host slots of a component."""
        result, reclaimed = make_room(self.state, component_type, num_tokens)
        if self.state.native.settings.write_back:
            digest = self.write_back_duplicate_reclaim_digest
            self.write_back_duplicate_reclaim_digest = digest_with(digest, reclaimed)
        else:
            # Only write_back asks for room for one copy again.
            self.state.copies.order.declined = ()
        return result

    def evict_excess_path_states(
        self,
        tail_node_id: int,
        device_frees: SlotLists,
        host_frees: SlotLists,
        cache_actions: list[object],
    ) -> None:
        """Evict the states nearest to the root, beyond the most that a path may have."""
        del host_frees, cache_actions
        if self._states_per_path >= 0:
            freed, most = device_frees[MAMBA], self._states_per_path
            device_eviction.evict_excess_states(self.state, tail_node_id, most, freed)

    # The host tier.

    def is_backuped(self, node_id: int) -> bool:
        """Whether the host has a node's full data."""
        return self.state.nodes.has(node_id, FULL, HOST)

    def is_full_device_evicted(self, node_id: int) -> bool:
        """Whether the device lacks a node's full data."""
        return node_id != self.state.root and not self.state.nodes.has(node_id, FULL)

    def component_has_host_value_only(self, node_id: int, component_type: ComponentType) -> bool:
        """Whether the host has a component of a node that the device lacks."""
        nodes = self.state.nodes
        return nodes.has(node_id, component_type, HOST) and not nodes.has(node_id, component_type)

    def is_write_through_compatible(self) -> bool:
        """Whether each host copy has full data, and a parent with a host copy."""
        return host_tier.is_write_through_compatible(self.state.nodes)

    def build_backup_kv_action(self, node_id: int) -> BackupKV:
        """The copy of a node and of the nodes above that have none, the upper first."""
        return BackupKV(host_tier.chain_to_back_up(self.state.nodes, node_id))

    def build_backup_spec(self, node_id: int) -> tuple[torch.Tensor, Transfers]:
        """What a copy named by a node reads on the device: full slots, and other components."""
        return host_tier.backup_spec(self.state, node_id)

    def commit_backup(
        self, node_id: int, host_indices: torch.Tensor, comp_xfers: Transfers
    ) -> None:
        """Record that the data of a copy is on its way to these host slots."""
        host_tier.commit_backup(self.state, node_id, host_indices, comp_xfers)

    def mark_write_through_pending(self, node_ids: list[int], ack_id: int) -> list[int]:
        """Record which acknowledgement ends the copies of nodes; returns them upper first."""
        del node_ids  # The copy knows its own.
        copied = copies.begin_pending(self.state.copies, ack_id)
        if len(copied) > 1:
            copied.sort(key=lambda node_id: self.state.nodes.describe(node_id)[0])
        return copied

    def finish_write_through(self, node_ids: list[int], ack_id: int) -> None:
        """End copies to the host, and announce full data that is there now."""
        for node_id in copies.end_pending(self.state.copies, node_ids, ack_id):
            self.state.nodes.emit_host_store(node_id)

    def build_load_back_spec(
        self,
        node_id: int,
        req: Any = None,  # noqa: ANN401 # SGLang has no types here.
    ) -> tuple[PoolTransfer, Transfers]:
        """What a load of the path to a node reads on the host."""
        own_state = None if req is None else req.kv.mamba_pool_idx
        return host_tier.load_back_spec(self.state, node_id, own_state)

    def commit_load_back(
        self,
        node_id: int,
        device_indices: torch.Tensor,
        kv_xfer: PoolTransfer,
        comp_xfers: Transfers,
    ) -> list[object]:
        """Record that data is on its way to these device slots; returns the pairs to map."""
        kv_xfer.device_indices = device_indices
        return host_tier.commit_load_back(self.state, node_id, device_indices, comp_xfers)

    def finish_load_back(self, anchor_node_id: int) -> None:
        """Do nothing: the controller's locks protect what a load reads until now."""

    # Component values.

    def slots_at(
        self, node_id: int, component_type: ComponentType, medium: int = 0
    ) -> torch.Tensor | None:
        """The token slots of a node's component on a medium; None where it has none."""
        if component_type not in self.components:
            return None
        return self.state.slots.at(self.state.nodes, node_id, component_type, medium)

    get_component_device_value = slots_at

    def set_component_device_value(
        self, node_id: int, component_type: ComponentType, value: torch.Tensor
    ) -> None:
        """Set the slot of a node's state; window slots are in the allocator's map already."""
        if component_type is FULL:
            raise ValueError("full data is set by inserts and loads")
        if component_type is SWA:
            return
        if not self.state.nodes.has(node_id, component_type):
            self.state.nodes.add_device_data(node_id, component_type)
        rows = self.state.nodes.slots(node_id, None, component_type)
        self.state.slots.tables[component_type].put(rows, value)

    # Sizes, in tokens and states.

    def component_evictable_size(self, component_type: ComponentType) -> int:
        """Tokens or states of a component that may be evicted."""
        if component_type not in self.components:
            return 0
        evictable, _ = self.native.view.usage(component_type)
        return evictable * self.state.slots.page_tokens(component_type)

    def component_protected_size(self, component_type: ComponentType) -> int:
        """Tokens or states of a component that a lock protects."""
        if component_type not in self.components:
            return 0
        _, locked = self.native.view.usage(component_type)
        return locked * self.state.slots.page_tokens(component_type)

    evictable_size = full_evictable_size = _of(component_evictable_size, FULL)
    protected_size = full_protected_size = _of(component_protected_size, FULL)
    swa_evictable_size = _of(component_evictable_size, SWA)
    swa_protected_size = _of(component_protected_size, SWA)
    mamba_evictable_size = _of(component_evictable_size, MAMBA)
    mamba_protected_size = _of(component_protected_size, MAMBA)

    def total_size(self) -> tuple[int, int]:
        """Full tokens of the tree, and window tokens and states together."""
        full, *others = (
            self.component_evictable_size(kind) + self.component_protected_size(kind)
            for kind in (FULL, SWA, MAMBA)
        )
        return full, sum(others)

    # What the scheduler and its checks ask for seldom.

    def dfs_weight_order(self, node_ids: Sequence[int]) -> list[int]:
        """The order of requests in which those with the same prefix follow each other."""
        return walks.weight_order(self.state.nodes, node_ids)

    def collect_path_info(self, end_node_ids: Sequence[int]) -> tuple[object, ...]:
        """The nodes of each path."""
        return tuple(
            walks.path_info(self.state.nodes, each, self.page_size) for each in end_node_ids
        )

    def all_values_flatten(self) -> torch.Tensor:
        """The full token slots of the tree."""
        return walks.all_slots(self.state.nodes, self.state.slots.full, FULL)

    def all_mamba_values_flatten(self) -> torch.Tensor:
        """The states of the tree."""
        if not self._has_states:
            return self.state.slots.full.nothing
        return walks.all_slots(self.state.nodes, self.state.slots.tables[MAMBA], MAMBA)

    def walk_for_kv_canary(self, unlocked_only: bool, swa_resident_only: bool) -> object:
        """Every full token slot with its position and the slot before it."""
        swa = swa_resident_only and self._has_window
        return walks.canary(
            self.native, self.state.slots.full, unlocked_only=unlocked_only, swa=swa
        )

    def sanity_check(
        self, ongoing_write_through: list[tuple[int, int]], ongoing_load_back: list[tuple[int, int]]
    ) -> None:
        """Audit the native tree, and the copies in flight. Raises: AssertionError."""
        try:
            self.native.view.check()
        except SpecViolation as violation:
            raise AssertionError(str(violation)) from violation
        in_flight = [*ongoing_write_through, *ongoing_load_back]
        loose = walks.unlocked(self.native, [self.node_of(name) for _, name in in_flight])
        if loose:
            raise AssertionError(f"copies in flight do not lock their nodes: {loose}")

    def pretty_print(self) -> None:
        """Print the tree, one node a line."""
        print(walks.drawn(self.native, self.page_size))  # noqa: T201 # SGLang asks for it.

    # Helpers.

    def _apply(self, settings: TreeSettings) -> None:
        """Make the native cache anew where a setting that it depends on has changed."""
        self.state.apply(settings)
        if self.enable_hicache and self._threshold > 0:
            self.state.nodes.set_wanted_hits(self._threshold)
