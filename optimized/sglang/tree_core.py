"""SGLang's tree core over the nodes and rows of the native cache."""

from __future__ import annotations

from array import array
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
)
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
from sglang.srt.mem_cache.unified_cache.unified_tree_core_interface import (
    DecSwaLockOnlyResult,
    InsertStepResult,
)

from kvcanon.optimized import _core
from kvcanon.optimized.sglang import inserts, walks
from kvcanon.optimized.sglang.device_eviction import DeviceEviction
from kvcanon.optimized.sglang.host_tier import HostTier
from kvcanon.optimized.sglang.not_offered import NotOffered
from kvcanon.spec.errors import CacheError, SpecViolation

FULL, SWA, MAMBA = ComponentType.FULL, ComponentType.SWA, ComponentType.MAMBA
NOTHING = (0, 0, 0)
"""What waits on the host, where there is no host tier."""


class KvcanonTreeCore(DeviceEviction, HostTier, NotOffered):
    """The tree core `kvcanon`.

    `sglang.srt.mem_cache.unified_cache.unified_tree_core_interface` says what the controller calls
    when. A node handle of SGLang is a handle of the native tree, or a further name of one, by which
    a copy and its lock are known (`node_of`).
    """

    # The tree.

    def reset(self) -> None:
        """Forget the tree and all locks."""
        nodes = self.native.nodes
        nodes.forget()
        self._root = nodes.root()
        self._forget_host_tier()

    def root_node_handle(self, extra_key: str | None = None) -> int:
        """The root, which is that of every namespace."""
        del extra_key
        if self._nodes is None:
            return self.native.nodes.root()
        return self._root

    def is_root(self, node_id: int) -> bool:
        """Whether a node is the root."""
        return node_id == self.root_node_handle()

    @property
    def empty_match_result(self) -> MatchResult:
        """The answer to a key without a page."""
        root = self.root_node_handle()
        return MatchResult(0, root, root, root, cache_actions=[])

    # Matching and inserting.

    def match_prefix(self, params: MatchPrefixParams) -> MatchResult:
        """Find the longest usable prefix of a key, and make it recent."""
        size = self.page_size
        tokens, units, namespace = self._prompt(params.key)
        if units < size:
            return self.empty_match_result
        nodes = self._nodes or self.native.nodes
        prefix, device, walked, end, device_end, last, host_only, cuts = nodes.match(
            tokens, namespace
        )
        on_device, reached, walked = device * size, prefix * size, walked * size
        _, swa, states = host_only if self._hicache else NOTHING
        branch = state_branch = None
        if walked > reached and self._has_parts:
            branch = walked if SWA in self.components else None
            state_branch = self._state_branch(walked, reached)
        # In the order of SGLang's fields: names would take a microsecond.
        return MatchResult(
            on_device,
            device_end,
            end,  # last_host_node
            end,  # best_match_node
            reached - on_device,  # All of it is there after a load, also what the device has of it.
            swa * size,
            branch,
            states,
            state_branch,
            None,  # cache_protected_len
            walked,
            self._follow_cuts(cuts) if cuts else [],
            None if last == self._root else last,
        )

    def collect_full_device_indices(self, from_node_id: int, until_node_id: int) -> torch.Tensor:
        """The full token slots from below `until_node_id` down to `from_node_id`."""
        if from_node_id == until_node_id:
            return self._full.nothing
        nodes = self._nodes or self.native.nodes
        return self._full.get(nodes.slots(from_node_id, until_node_id))

    def begin_insert(self, params: InsertParams) -> InsertStepResult:
        """Insert a key; the answer is whole at once."""
        inserts.require_known_hints(params)
        size = self.page_size
        tokens, units, namespace = self._prompt(params.key)
        pages = units // size
        if not pages:
            root = self.root_node_handle()
            empty = InsertResult(prefix_len=0, mamba_exist=True, last_device_node=root)
            return InsertStepResult(actions=[], result=empty)
        # Tokens whose window slots the request has freed.
        frontier = params.get_evicted_seqlen(SWA) if SWA in self.components else 0
        nodes = self._nodes or self.native.nodes
        if params.session_id is not None:
            self.kv_events.move(None)
        done = nodes.insert(
            tokens,
            namespace,
            min(pages, -(-params.prev_prefix_len // size)),
            min(pages, -(-frontier // size)),
            MAMBA in self.components and params.mamba_value is not None,
            min(pages, params.inserted_len // size),
            params.priority or 0,
        )
        if params.session_id is not None:
            self.kv_events.move(params.session_id)
        return self._inserted(done, params, pages, frontier)

    def resume_insert(self) -> NoReturn:
        """Refuse: no insert is ever suspended. Raises: RuntimeError."""
        raise RuntimeError("no insert is suspended: begin_insert answers whole")

    def has_ongoing_insert(self) -> bool:
        """Whether an insert is suspended: never."""
        return False

    def end_insert(self) -> list[object]:
        """Return what is left to do: copies, each on its own, that could not be made as one."""
        self._copying = {}
        if self._new_names:
            self._forget_names_of_no_copy()
        if not self._joined:
            return []
        left, self._joined = BackupKV(list(self._joined)), ()
        return [left]

    # Locks.

    def inc_lock_ref(
        self, node_id: int, skip_lock_components: Sequence[ComponentType] = ()
    ) -> IncLockRefResult:
        """Lock a node's data, without the skipped components."""
        skipped = tuple(skip_lock_components)
        if skipped and FULL in skipped:
            raise ValueError("a lock holds full data; it cannot be skipped")
        nodes = self._nodes or self.native.nodes
        if node_id == self._root:
            return IncLockRefResult(0, node_id, skipped, dict.fromkeys(self.components), {})
        receipt, newly, below_root = nodes.lock(
            self.node_of(node_id), SWA not in skipped, MAMBA not in skipped, self._locking
        )
        receipts: dict[ComponentType, int | None] = {FULL: receipt}
        if SWA in self.components and SWA not in skipped:
            receipts[SWA] = receipt if below_root else None
        return IncLockRefResult(newly * self.page_size, node_id, skipped, receipts, {})

    def dec_lock_ref(
        self, node_id: int, params: DecLockRefParams, skip_swa: bool = False
    ) -> DecLockRefResult:
        """Release what a receipt still holds, or its state alone."""
        del skip_swa  # The receipt knows whether the window was released before.
        if params.node_id != node_id:
            _refuse_anchor(node_id, params)
        nodes = self._nodes or self.native.nodes
        if node_id == self._root:
            return DecLockRefResult()
        receipt = params.component_lock_uuids[FULL]
        skipped = params.skipped_lock_components
        if FULL not in skipped:
            self._release(self.node_of(node_id), receipt, nodes.unlock)
            # A copy's lock is released when the copy has ended: no call names it again.
            self.copied_nodes.pop(node_id, None)
        elif MAMBA not in skipped and (SWA in skipped or SWA not in self.components):
            self._release(node_id, receipt, nodes.unlock_state)
        elif SWA not in skipped and SWA in self.components:
            raise ValueError("a window is released by dec_swa_lock_only")
        return DecLockRefResult()

    def dec_swa_lock_only(self, node_id: int, params: DecLockRefParams) -> DecSwaLockOnlyResult:
        """Release the window and the state of a lock; full data stays locked."""
        if params.node_id != node_id:
            _refuse_anchor(node_id, params)
        if SWA in self.components and not self.is_root(node_id):
            self._release(node_id, params.get_lock_uuid(FULL), self.native.nodes.unlock_window)
        return DecSwaLockOnlyResult()

    # Component values.

    def set_component_device_value(
        self, node_id: int, component_type: ComponentType, value: torch.Tensor
    ) -> None:
        """Set the slot of a node's state; window slots are in the allocator's map already."""
        if component_type is FULL:
            raise ValueError("full data is set by inserts and loads")
        if component_type is SWA:
            return
        nodes, kind = self._nodes or self.native.nodes, int(component_type)
        if not nodes.has(node_id, kind):
            nodes.add_device_data(node_id, kind)
        self.tables[component_type].put(nodes.slots(node_id, None, kind), value)

    def get_component_device_value(
        self, node_id: int, component_type: ComponentType
    ) -> torch.Tensor | None:
        """The token slots of a node's component; None where it has none on the device."""
        return self.slots_at(node_id, component_type)

    # Sizes, in tokens and states.

    def evictable_size(self) -> int:
        """Full tokens that may be evicted."""
        return self.native.view.usage(0)[0] * self.page_size

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
        sizes = {kind: self._usage(kind, 0) + self._usage(kind, 1) for kind in self.components}
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
        return walks.all_slots(self.native, self._full, FULL)

    def all_mamba_values_flatten(self) -> torch.Tensor:
        """The states of the tree."""
        if MAMBA not in self.components:
            return self._full.nothing
        return walks.all_slots(self.native, self.tables[MAMBA], MAMBA)

    def walk_for_kv_canary(self, unlocked_only: bool, swa_resident_only: bool) -> object:
        """Every full token slot with its position and the slot before it."""
        swa = swa_resident_only and SWA in self.components
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
        loose = walks.unlocked(self.native, [self.node_of(name) for _, name in copies])
        if loose:
            raise AssertionError(f"copies in flight do not lock their nodes: {loose}")

    def pretty_print(self) -> None:
        """Print the tree, one node a line."""
        print(walks.drawn(self.native, self.page_size))  # noqa: T201 # SGLang asks for it.

    # Helpers.

    def _inserted(
        self, done: _core.NodeInserted, params: InsertParams, pages: int, frontier: int
    ) -> InsertStepResult:
        """Keep the slots that an insert handed over; returns its answer, and what follows."""
        # Cuts first: what the insert placed is listed as it is after them.
        cuts, tokens, full = done.cuts, params.value, self._full
        actions = self._follow_cuts(cuts) if cuts else []
        size = full.page_size
        if tokens is None:
            tokens = inserts.own_numbers(params, pages * size, self.device)
        for first, rows in done.full:
            full.put(rows, tokens, first)
        inserts.add_slot_actions(actions, done, tokens, frontier, size)
        nodes = self._nodes or self.native.nodes
        if self._has_parts:
            inserts.add_window_actions(actions, done, tokens, nodes, full)
        if self._hicache:
            wanted = done.wanted
            if wanted:
                actions += self._copies_of(wanted, done)
        if done.state is not None:
            rows = nodes.slots(done.end, None, int(MAMBA))
            self.tables[MAMBA].put(rows, params.mamba_value.view(-1)[:1])
            if self._states_per_path() >= 0:
                actions.append(MambaEvictExcessPathStates(done.end))
        return InsertStepResult(actions, inserts.result_of(done, params, self.components, size))

    def _prompt(self, key: RadixKey) -> tuple[array[int], int, int]:
        """The tokens of a key, how many units they are (tokens or bigrams), and its namespace."""
        extra_key, salt = key.extra_key, key.cache_salt
        namespace = 0
        if extra_key is not None or salt is not None:
            namespace = self.native.namespace((extra_key, salt))
        if key.limit is None and not self.is_eagle:
            tokens: array[int] = key.token_ids
            return tokens, len(tokens), namespace
        key, _ = key.maybe_to_bigram_view(self.is_eagle)
        return key.raw_token_ids(), len(key), namespace

    def _usage(self, component_type: ComponentType, which: int) -> int:
        if component_type not in self.components:
            return 0
        usage = self.native.view.usage(int(component_type))
        return usage[which] * self._page_tokens(component_type)

    def _state_branch(self, walked: int, reached: int) -> int | None:
        """Where a state would have made the prefix longer, on the grid of checkpoints."""
        if MAMBA not in self.components:
            return None
        aligned = walked // self.state_grid * self.state_grid
        return aligned if aligned > reached else None

    def _release(self, node_id: int, receipt: int, release: object) -> None:
        try:
            release(node_id, receipt)  # type: ignore[operator]
        except CacheError as error:
            raise AssertionError(f"lock receipt {receipt} on node {node_id}: {error}") from error


def _refuse_anchor(node_id: int, params: DecLockRefParams) -> NoReturn:
    """Refuse a receipt that was given for another node. Raises: AssertionError."""
    raise AssertionError(
        f"lock receipt anchored on node {params.node_id} released on node {node_id}"
    )
