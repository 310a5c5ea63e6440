"""SGLang's tree core over the nodes and rows of the native cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import torch
from sglang.srt.mem_cache.base_prefix_cache import (
    DecLockRefParams,
    DecLockRefResult,
    IncLockRefResult,
    InsertParams,
    InsertResult,
    MatchPrefixParams,
    MatchResult,
)
from sglang.srt.mem_cache.radix_cache import RadixKey
from sglang.srt.mem_cache.unified_cache.cache_action import (
    BackupKV,
    MambaEvictExcessPathStates,
    UpdatePendingBackupOnNodeSplit,
)
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
from sglang.srt.mem_cache.unified_cache.unified_tree_core_interface import (
    DecSwaLockOnlyResult,
    InsertStepResult,
)

from kvcanon.optimized.sglang import inserts, walks
from kvcanon.optimized.sglang.device_eviction import DeviceEviction
from kvcanon.optimized.sglang.host_tier import HostTier
from kvcanon.optimized.sglang.not_offered import NotOffered
from kvcanon.optimized.sglang.rows import Rows
from kvcanon.spec.errors import CacheError, SpecViolation

FULL, SWA, MAMBA = ComponentType.FULL, ComponentType.SWA, ComponentType.MAMBA


class KvcanonTreeCore(DeviceEviction, HostTier, NotOffered):
    """The tree core `kvcanon`.

    `sglang.srt.mem_cache.unified_cache.unified_tree_core_interface` says what the controller calls
    when. A node handle of SGLang is a handle of the native tree.
    """

    # The tree.

    def reset(self) -> None:
        """Forget the tree and all locks."""
        self.native.nodes.forget()
        self._forget_host_tier()
        self._empty_result = None

    def root_node_handle(self, extra_key: str | None = None) -> int:
        """The root, which is that of every namespace."""
        del extra_key
        return self.native.nodes.root()

    def is_root(self, node_id: int) -> bool:
        """Whether a node is the root."""
        return node_id == self.native.nodes.root()

    @property
    def empty_match_result(self) -> MatchResult:
        """The answer to a key without a page."""
        root = self.native.nodes.root()
        if self._empty_result is None:
            self._empty_result = MatchResult(0, root, root, root, cache_actions=[])
        return self._empty_result

    # Matching and inserting.

    def match_prefix(self, params: MatchPrefixParams) -> MatchResult:
        """Find the longest usable prefix of a key, and make it recent."""
        key, _ = params.key.maybe_to_bigram_view(self.is_eagle)
        if len(key) < self.page_size:
            return self.empty_match_result
        found = self.native.nodes.match(key.raw_token_ids(), self._namespace(key))
        size, root = self.page_size, self.native.nodes.root()
        reached, walked = found.prefix_pages * size, found.walked_pages * size
        _, swa, states = found.host_only
        return MatchResult(
            device_prefix_len=found.device_pages * size,
            last_device_node=found.device_end,
            last_host_node=found.end,
            best_match_node=found.end,
            # All of it is there after a load, what the device has of it as well.
            host_hit_length=reached - found.device_pages * size,
            swa_host_hit_length=swa * size,
            swa_branching_seqlen=walked if SWA in self.tables and walked > reached else None,
            mamba_host_hit_length=states,
            mamba_branching_seqlen=self._state_branch(walked, reached),
            full_kv_hit_length=walked,
            cache_actions=self._cut_actions(found.cuts),
            last_visited_node_id=None if found.last == root else found.last,
        )

    def collect_full_device_indices(self, from_node_id: int, until_node_id: int) -> torch.Tensor:
        """The full token slots from below `until_node_id` down to `from_node_id`."""
        full = self.tables[FULL]
        if from_node_id == until_node_id:
            return full.empty()
        return full.get(self.native.nodes.slots(from_node_id, until_node_id))

    def begin_insert(self, params: InsertParams) -> InsertStepResult:
        """Insert a key; the answer is whole at once."""
        inserts.require_known_hints(params)
        key, _ = params.key.maybe_to_bigram_view(self.is_eagle)
        pages = len(key) // self.page_size
        if not pages:
            root = self.native.nodes.root()
            empty = InsertResult(prefix_len=0, mamba_exist=True, last_device_node=root)
            return InsertStepResult(actions=[], result=empty)
        given = inserts.handover(params, pages, self.page_size, self.device, swa=SWA in self.tables)
        if params.session_id is not None:
            self.kv_events.move(None)
        done = self.native.nodes.insert(
            key.raw_token_ids(),
            self._namespace(key),
            given.owned_pages,
            given.window_from,
            MAMBA in self.tables and params.mamba_value is not None,
            min(pages, params.inserted_len // self.page_size),
            params.priority or 0,
        )
        if params.session_id is not None:
            self.kv_events.move(params.session_id)
        inserts.fill_rows(given, done, params, self.tables)
        actions = self._cut_actions(done.cuts)
        actions += inserts.slot_actions(given, done, self.native.nodes, self.tables[FULL])
        wanted = [node for node in done.wanted if node not in self.pending]
        if wanted and self.enable_hicache:
            actions.append(BackupKV(wanted))
        if done.state is not None and self._states_per_path() >= 0:
            actions.append(MambaEvictExcessPathStates(done.end))
        return InsertStepResult(
            actions=actions, result=inserts.result_of(given, done, params, self.tables)
        )

    def resume_insert(self) -> NoReturn:
        """Refuse: no insert is ever suspended. Raises: RuntimeError."""
        raise RuntimeError("no insert is suspended: begin_insert answers whole")

    def has_ongoing_insert(self) -> bool:
        """Whether an insert is suspended: never."""
        return False

    def end_insert(self) -> list[object]:
        """Return the actions of a suspended insert: none."""
        self._copying = {}
        return []

    # Locks.

    def inc_lock_ref(
        self, node_id: int, skip_lock_components: Sequence[ComponentType] = ()
    ) -> IncLockRefResult:
        """Lock a node's data, without the skipped components."""
        skipped = tuple(skip_lock_components)
        if FULL in skipped:
            raise ValueError("a lock holds full data; it cannot be skipped")
        result = IncLockRefResult(delta=0, node_id=node_id, skipped_lock_components=skipped)
        if self.is_root(node_id):
            for kind in self.tables:
                result.set_lock_uuid(kind, None)
            return result
        receipt, newly, below_root = self.native.nodes.lock(
            node_id, SWA not in skipped, MAMBA not in skipped
        )
        result.delta = newly * self.page_size
        result.set_lock_uuid(FULL, receipt)
        if SWA in self.tables and SWA not in skipped:
            result.set_lock_uuid(SWA, receipt if below_root else None)
        return result

    def dec_lock_ref(
        self, node_id: int, params: DecLockRefParams, skip_swa: bool = False
    ) -> DecLockRefResult:
        """Release what a receipt still holds, or its state alone."""
        del skip_swa  # The receipt knows whether the window was released before.
        _require_anchor(node_id, params)
        if self.is_root(node_id):
            return DecLockRefResult()
        receipt = params.get_lock_uuid(FULL)
        skipped = params.skipped_lock_components
        if FULL not in skipped:
            self._release(node_id, receipt, self.native.nodes.unlock)
        elif MAMBA not in skipped and (SWA in skipped or SWA not in self.tables):
            self._release(node_id, receipt, self.native.nodes.unlock_state)
        elif SWA not in skipped and SWA in self.tables:
            raise ValueError("a window is released by dec_swa_lock_only")
        return DecLockRefResult()

    def dec_swa_lock_only(self, node_id: int, params: DecLockRefParams) -> DecSwaLockOnlyResult:
        """Release the window and the state of a lock; full data stays locked."""
        _require_anchor(node_id, params)
        if SWA in self.tables and not self.is_root(node_id):
            self._release(node_id, params.get_lock_uuid(FULL), self.native.nodes.unlock_window)
        return DecSwaLockOnlyResult()

    # Component values.

    def set_component_device_value(
        self, node_id: int, component_type: ComponentType, value: torch.Tensor
    ) -> None:
        """Set the token slots of a node's window, or the slot of its state."""
        if component_type is FULL:
            raise ValueError("full data is set by inserts and loads")
        nodes, kind = self.native.nodes, int(component_type)
        if nodes.has(node_id, kind):
            rows = self._own_rows(node_id, component_type)
        else:
            rows = nodes.add_device_data(node_id, kind)
        self.tables[component_type].put(rows, value)

    def get_component_device_value(
        self, node_id: int, component_type: ComponentType
    ) -> torch.Tensor | None:
        """The token slots of a node's component; None where it has none on the device."""
        if component_type not in self.tables or self.is_root(node_id):
            return None
        if not self.native.nodes.has(node_id, int(component_type)):
            return None
        return self.tables[component_type].get(self._own_rows(node_id, component_type))

    # Sizes, in tokens and states.

    def evictable_size(self) -> int:
        """Full tokens that may be evicted."""
        return self.component_evictable_size(FULL)

    def protected_size(self) -> int:
        """Full tokens that a lock protects."""
        return self.component_protected_size(FULL)

    def component_evictable_size(self, component_type: ComponentType) -> int:
        """Tokens or states of a component that may be evicted."""
        return self._usage(component_type, 0)

    def component_protected_size(self, component_type: ComponentType) -> int:
        """Tokens or states of a component that a lock protects."""
        return self._usage(component_type, 1)

    full_evictable_size = evictable_size
    full_protected_size = protected_size

    def swa_evictable_size(self) -> int:
        """Window tokens that may be evicted."""
        return self.component_evictable_size(SWA)

    def swa_protected_size(self) -> int:
        """Window tokens that a lock protects."""
        return self.component_protected_size(SWA)

    def mamba_evictable_size(self) -> int:
        """States that may be evicted."""
        return self.component_evictable_size(MAMBA)

    def mamba_protected_size(self) -> int:
        """States that a lock protects."""
        return self.component_protected_size(MAMBA)

    def total_size(self) -> tuple[int, int]:
        """Full tokens of the tree, and window tokens and states together."""
        sizes = {kind: self._usage(kind, 0) + self._usage(kind, 1) for kind in self.tables}
        return sizes[FULL], sum(sizes.values()) - sizes[FULL]

    # The rest.

    def dfs_weight_order(self, node_ids: Sequence[int]) -> list[int]:
        """The order of requests in which those that share most come together."""
        return walks.weight_order(self.native.nodes, node_ids)

    def collect_path_info(self, end_node_ids: Sequence[int]) -> tuple[object, ...]:
        """The nodes of each path."""
        return tuple(
            walks.path_info(self.native.nodes, node_id, self.page_size) for node_id in end_node_ids
        )

    def all_values_flatten(self) -> torch.Tensor:
        """The full token slots of the tree."""
        return walks.all_slots(self.native.nodes, self.tables[FULL], FULL)

    def all_mamba_values_flatten(self) -> torch.Tensor:
        """The states of the tree."""
        if MAMBA not in self.tables:
            return self.tables[FULL].empty()
        return walks.all_slots(self.native.nodes, self.tables[MAMBA], MAMBA)

    def walk_for_kv_canary(self, unlocked_only: bool, swa_resident_only: bool) -> object:
        """Every full token slot with its position and the slot before it."""
        swa = swa_resident_only and SWA in self.tables
        return walks.canary(self.native, self.tables[FULL], unlocked_only=unlocked_only, swa=swa)

    def sanity_check(
        self, ongoing_write_through: list[tuple[int, int]], ongoing_load_back: list[tuple[int, int]]
    ) -> None:
        """Audit the native tree, and the copies in flight. Raises: AssertionError."""
        try:
            self.native.view.check()
        except SpecViolation as violation:
            raise AssertionError(str(violation)) from violation
        copies = [*ongoing_write_through, *ongoing_load_back]
        loose = walks.unlocked(self.native, [node_id for _, node_id in copies])
        if loose:
            raise AssertionError(f"copies in flight do not lock their nodes: {loose}")

    def pretty_print(self) -> None:
        """Print the tree, one node a line."""
        print(walks.drawn(self.native, self.page_size))  # noqa: T201 # SGLang asks for it.

    # Helpers.

    def _namespace(self, key: RadixKey) -> int:
        return self.native.namespace((key.extra_key, key.cache_salt))

    def _own_rows(self, node_id: int, component_type: ComponentType) -> Rows:
        nodes = self.native.nodes
        parent = nodes.parent(node_id)
        return nodes.slots(node_id, node_id if parent is None else parent, int(component_type))

    def _usage(self, component_type: ComponentType, which: int) -> int:
        if component_type not in self.tables:
            return 0
        usage = self.native.view.usage(int(component_type))
        return usage[which] * self.tables[component_type].page_size

    def _state_branch(self, walked: int, reached: int) -> int | None:
        """Where a state would have made the prefix longer, on the grid of checkpoints."""
        if MAMBA not in self.tables:
            return None
        aligned = walked // self.state_grid * self.state_grid
        return aligned if aligned > reached else None

    def _cut_actions(self, cuts: list[tuple[int, int]]) -> list[object]:
        """Let the copies of a cut node follow its upper part."""
        actions: list[object] = []
        for upper, lower in cuts:
            ack_id = self.pending.get(lower)
            if ack_id is None:
                continue
            self.pending[upper] = ack_id
            if lower in self.unannounced:
                self.unannounced.add(upper)
            actions.append(UpdatePendingBackupOnNodeSplit(ack_id, lower, upper, lower))
        return actions

    def _release(self, node_id: int, receipt: int, release: object) -> None:
        try:
            release(node_id, receipt)  # type: ignore[operator]
        except CacheError as error:
            raise AssertionError(f"lock receipt {receipt} on node {node_id}: {error}") from error


def _require_anchor(node_id: int, params: DecLockRefParams) -> None:
    """Refuse a receipt that was given for another node. Raises: AssertionError."""
    if params.node_id != node_id:
        raise AssertionError(
            f"lock receipt anchored on node {params.node_id} released on node {node_id}"
        )
