"""SGLang's interface of tree cores, as the tested release has it, and what differs in another one.

A post release or a build of one's own may have the same interface. A call with other parameters, or
an object with other fields, would be found in the middle of serving.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from inspect import Parameter, Signature, isfunction, signature
from types import ModuleType
from typing import Any

from sglang.srt.mem_cache import base_prefix_cache, cache_init_params, hicache_storage
from sglang.srt.mem_cache.unified_cache import cache_action, unified_tree_core
from sglang.srt.mem_cache.unified_cache import unified_tree_core_interface as interface

OBJECTS: tuple[tuple[ModuleType, tuple[str, ...]], ...] = (
    (cache_init_params, ("CacheInitParams",)),
    (
        base_prefix_cache,
        (
            *("DecLockRefParams", "DecLockRefResult", "IncLockRefResult", "InsertParams"),
            *("InsertResult", "MatchPrefixParams", "MatchResult"),
        ),
    ),
    (
        cache_action,
        (
            *("BackupKV", "FreeComponentDeviceSlot", "FreeComponentHostSlot", "FreeDeviceKV"),
            *("FreeDeviceKVFullOnly", "MambaEvictExcessPathStates", "RebuildFullToSWAMapping"),
            *("RecoverSWAWithLockedFull", "UpdatePendingBackupOnNodeSplit"),
        ),
    ),
    (hicache_storage, ("PoolTransfer", "PoolTransferResult")),
    (unified_tree_core, ("StorageBackupSpec",)),
    (
        interface,
        (
            *("DecSwaLockOnlyResult", "DemoteResult", "DriveHostEvictionResult"),
            *("DropSubtreeNoHostResult", "EvictDeviceLeafResult", "EvictDeviceNextNodeResult"),
            "InsertStepResult",
        ),
    ),
)
"""What passes between SGLang's controller and its core."""


def differences() -> list[str]:
    """How the installed interface differs from the tested one, in words."""
    found, tested = dict(installed()), dict(_parsed(TESTED))
    gone = [f"{name}{had} is gone" for name, had in tested.items() if name not in found]
    other = [
        f"{name}{had} is {name}{found[name]}"
        for name, had in tested.items()
        if found.get(name, had) != had
    ]
    return (
        gone + other + [f"{name}{has} is new" for name, has in found.items() if name not in tested]
    )


def installed() -> Iterator[tuple[str, str]]:
    """Each method with its parameters, and each object with its fields, in order."""
    for name, member in sorted(vars(interface.UnifiedTreeCoreInterface).items()):
        if isinstance(member, property):
            yield name, " as a property"
        elif isfunction(member):
            yield name, _parameters(signature(member))
    for module, names in OBJECTS:
        for name in names:
            yield name, f"({', '.join(_fields(getattr(module, name, None)))})"


def _parameters(of: Signature) -> str:
    """The parameters without their types, whose names depend on how a module imports them."""
    plain = [each.replace(annotation=Parameter.empty) for each in of.parameters.values()]
    return str(of.replace(parameters=plain, return_annotation=Signature.empty))


def _fields(kind: Any) -> tuple[str, ...]:  # noqa: ANN401 # A class of SGLang's.
    """The fields of a dataclass, a named tuple or a struct."""
    if dataclasses.is_dataclass(kind):
        return tuple(each.name for each in dataclasses.fields(kind))
    fields: tuple[str, ...] = getattr(kind, "_fields", ())
    return fields or getattr(kind, "__struct_fields__", ())


def _parsed(table: str) -> Iterator[tuple[str, str]]:
    for line in table.strip().replace("\n    ", " ").splitlines():
        name = line[: next(at for at, letter in enumerate(line) if letter in " (")]
        yield name, line[len(name) :]


TESTED = """
adjust_component_size(self, node_id, component_type, delta)
all_mamba_values_flatten(self)
all_values_flatten(self)
attach_swa_window(self, key, window_start, window_end, swa_values,
    component_type=<ComponentType.SWA: 1>)
backfill_missing_hash_values(self)
begin_insert(self, params)
buffer_backup_pool_keys(self, node_id, hash_values)
build_backup_kv_action(self, node_id)
build_backup_spec(self, node_id)
build_external_linker_offload_transfers(self, node_id)
build_hicache_transfers(self, component_type, node_id, phase, *, host_indices=None,
    token_ids=None, prefetch_tokens=0, staging_tokens=0, last_hash=None)
build_load_back_spec(self, node_id, req=None)
build_storage_backup_spec(self, node_id, pass_prefix_keys)
collect_full_device_indices(self, from_node_id, until_node_id)
collect_path_info(self, end_node_ids)
commit_backup(self, node_id, host_indices, comp_xfers)
commit_hicache_transfers(self, node_id, phase, comp_xfers, *, cache_actions, insert_result=None,
    pool_storage_result=None)
commit_load_back(self, node_id, device_indices, kv_xfer, comp_xfers)
component_evictable_size(self, component_type)
component_has_host_value_only(self, node_id, component_type)
component_protected_size(self, component_type)
dec_full_pin(self, node_id)
dec_host_lock_ref(self, node_id, params)
dec_lock_ref(self, node_id, params, skip_swa=False)
dec_swa_lock_only(self, node_id, params)
dec_window_lock_only(self, node_id, component_type, params)
demote(self, node_id)
dfs_weight_order(self, node_ids)
drive_host_eviction(self, component_type, num_tokens)
drop_subtree_no_host(self, node_id)
empty_match_result as a property
end_insert(self)
evict_device_end(self, component_type)
evict_device_leaf(self, node_id, is_write_back)
evict_device_next_node(self, component_type, tracker)
evict_device_start(self, component_type, request_cnt)
evict_excess_path_states(self, tail_node_id, device_frees, host_frees, cache_actions)
evictable_size(self)
finish_external_linker_offload(self, node_ids, ack_id, success)
finish_load_back(self, anchor_node_id)
finish_mamba_state_eviction(self, node_id)
finish_swa_state_eviction(self, node_id)
finish_write_through(self, node_ids, ack_id)
full_evictable_size(self)
full_protected_size(self)
get_component_device_value(self, node_id, component_type)
get_hash_values(self, node_id)
get_last_hash_value(self, node_id)
get_prefix_hash_values(self, node_id)
has_ongoing_insert(self)
inc_full_pin(self, node_id)
inc_host_lock_ref(self, node_id)
inc_lock_ref(self, node_id, skip_lock_components=())
insert_host(self, node_id, key, host_value, hash_value)
is_backuped(self, node_id)
is_full_device_evicted(self, node_id)
is_root(self, node_id)
is_write_through_compatible(self)
mamba_evictable_size(self)
mamba_protected_size(self)
mark_external_cache_stored_path(self, from_node_id, until_node_id)
mark_external_linker_offload_pending(self, node_id)
mark_write_through_pending(self, node_ids, ack_id)
match_full_device_prefix(self, key)
match_prefix(self, params)
node_by_id(self, node_id)
prefetch_anchor_info(self, node_id)
pretty_print(self)
protected_size(self)
reset(self)
resume_insert(self)
root_node_handle(self, extra_key=None)
rotation_base_of(self, node_id)
rotation_phase_of(self, node_id)
sanity_check(self, ongoing_write_through, ongoing_load_back)
set_component_device_value(self, node_id, component_type, value)
set_hicache_enabled(self)
set_host_memory_buffer_only(self)
snapshot_buffer_backup(self, node_id, pass_prefix_keys)
supports_fast_match_prefix(self)
swa_evictable_size(self)
swa_protected_size(self)
swa_tombstone_ranges(self, key, start, end, component_type=<ComponentType.SWA: 1>)
take_events(self)
total_size(self)
validate_buffer_backup(self, node_id, expected_key_length)
walk_for_kv_canary(self, unlocked_only, swa_resident_only)
CacheInitParams(disable, req_to_token_pool, token_to_kv_pool_allocator, page_size, is_eagle,
    tp_cache_group, attn_cp_cache_group, attn_tp_cache_group, pp_cache_group, eviction_policy,
    eviction_policy_config, enable_metrics, enable_kv_cache_events, dynamo_kv_event_format,
    kv_event_lora_names, enable_session_radix_cache, enable_mamba_extra_buffer,
    enable_mamba_extra_buffer_lazy, pp_rank, pp_size, attn_cp_rank, attn_cp_size,
    chunked_prefill_size, sliding_window_size, swa_gates_prefix_match,
    decoder_swa_bounded_replay, draft_swa_window, tree_components, component_registry_override,
    tree_core_backend, mtp_draft_device_pools, sidecar_draft_device_pools, mtp_draft_mamba_pools)
DecLockRefParams(node_id, skipped_lock_components, component_lock_uuids,
    component_host_lock_uuids)
DecLockRefResult(delta)
IncLockRefResult(delta, node_id, skipped_lock_components, component_lock_uuids,
    component_host_lock_uuids)
InsertParams(key, value, mamba_value, mamba_keep_idx, c128_value, prev_prefix_len,
    swa_branching_seqlen, component_evicted_seqlens, inserted_len, priority, session_id,
    track_adopted_ranges, rotation_base)
InsertResult(prefix_len, total_len, last_device_node, mamba_exist, swa_branch_inserted,
    rotation_tail_declined, inserted_host_node, host_insert_dropped, adopted_ranges,
    cache_actions)
MatchPrefixParams(key, cow_mamba, req)
MatchResult(device_prefix_len, last_device_node, last_host_node, best_match_node,
    host_hit_length, swa_host_hit_length, swa_branching_seqlen, mamba_host_hit_length,
    mamba_branching_seqlen, cache_protected_len, full_kv_hit_length, cache_actions,
    last_visited_node_id, full_device_match_len)
BackupKV(node_ids)
FreeComponentDeviceSlot(indices, component_type)
FreeComponentHostSlot(host_indices, component_type)
FreeDeviceKV(indices)
FreeDeviceKVFullOnly(indices)
MambaEvictExcessPathStates(tail_node_id, component_type)
RebuildFullToSWAMapping(full_indices, swa_indices, component_type)
RecoverSWAWithLockedFull(node_id, kept_full, incoming_full, component_type)
UpdatePendingBackupOnNodeSplit(ack_id, old_node_id, new_node_id, new_child_node_id, component_type)
PoolTransfer(name, host_indices, device_indices, keys, hit_policy, nodes_to_load,
    indices_from_pool, block_pages, group_pages)
PoolTransferResult(kv_hit_pages, extra_pool_hit_pages, restorable_prefix_pages)
StorageBackupSpec(host_value, token_ids, hash_value, prefix_keys, comp_xfers)
DecSwaLockOnlyResult(device_frees, host_frees, tracker, cache_actions)
DemoteResult(device_frees, host_frees, tracker, cache_actions)
DriveHostEvictionResult(device_frees, host_frees, tracker, cache_actions)
DropSubtreeNoHostResult(device_frees, host_frees, tracker, cache_actions, is_dropped)
EvictDeviceLeafResult(device_frees, host_frees, tracker, cache_actions, backup_kv,
    unbacked_tokens)
EvictDeviceNextNodeResult(device_frees, host_frees, tracker, cache_actions, node_id,
    made_progress, unbacked_tokens, mamba_backup_node_id, swa_backup_node_id,
    swa_backup_num_tokens)
InsertStepResult(actions, result)
"""
"""Of sglang 0.5.23; the nightly tests compare it with what that release has."""
