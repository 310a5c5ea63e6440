"""Storage below kvcanon's core, under SGLang's own controller, in SGLang's environment."""

from __future__ import annotations

import json

import pytest

from in_peer import run_in
from paths import HELPERS
from sglang_world import RELEASE, said

pytestmark = pytest.mark.nightly

CASES = 30

HICACHE = """
import json
from array import array
import torch
import sglang.srt.mem_cache.base_prefix_cache as calls
from sglang.srt.mem_cache.hicache_storage import PoolHitPolicy, PoolName, PoolTransferResult
from sglang.srt.mem_cache.radix_cache import RadixKey
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
from sglang.srt.mem_cache.unified_cache.components import CacheTransferPhase
from sglang.srt.mem_cache.utils import get_storage_hash_str
from kvcanon.spec.types import WritePolicy
FULL, SWA, MAMBA = ComponentType.FULL, ComponentType.SWA, ComponentType.MAMBA
PREFETCH = CacheTransferPhase.PREFETCH
def hosted(backend="kvcanon", policy=WritePolicy.WRITE_THROUGH, **others):
    given = dict(page_size=2, device_slots=Counts(full=32), host_slots=Counts(full=32),
                 write_policy=policy, slot_bytes=4)
    return make_unified_world(CacheConfig(**given | others), backend).cache
def windowed(backend="kvcanon", policy=WritePolicy.WRITE_THROUGH):
    slots = Counts(full=32, swa=32)
    return hosted(backend, policy, window_tokens=4, device_slots=slots, host_slots=slots)
def serve(cache, *tokens):
    key, allocator = RadixKey(array("q", tokens)), cache.token_to_kv_pool_allocator
    slots = allocator.alloc(len(tokens)) if not hasattr(allocator, "full_attn_allocator") else None
    if slots is None:
        slots = allocator.full_attn_allocator.alloc(len(tokens))
        windows = allocator.swa_attn_allocator.alloc(len(tokens))
        allocator.full_to_swa_index_mapping[slots] = windows
    inserted(cache, key, slots)
    return matched(cache, *tokens).last_host_node
def inserted(cache, key, slots):
    # SGLang's own core hashes a node only while storage is there, whose queues it then asks.
    cache.enable_storage = True
    cache.insert(calls.InsertParams(key=key, value=slots))
    cache.enable_storage = False
    cache.check_hicache_events()
def matched(cache, *tokens):
    return cache.match_prefix(calls.MatchPrefixParams(key=RadixKey(array("q", tokens))))
def fetched(cache, anchor, *tokens):
    slots = cache.cache_controller.mem_pool_host.alloc(len(tokens))
    key, before = RadixKey(array("q", tokens)), cache.get_last_hash_value(anchor)
    hashes = get_storage_hash_str(key, before, cache.page_size)
    return slots, cache.tree_core.insert_host(anchor, key, slots, hashes)
def shown(result):
    return [result.prefix_len, result.total_len, result.mamba_exist, result.host_insert_dropped,
            result.inserted_host_node is not None, len(result.cache_actions)]
"""


def compared(code: str) -> list[object]:
    """What code shows of SGLang's Python core and of kvcanon's, which must be the same."""
    both = HICACHE + code + "\nprint(json.dumps([played(each) for each in ('python', 'kvcanon')]))"
    theirs, ours = json.loads(said(both).splitlines()[-1])
    assert ours == theirs
    shown: list[object] = ours
    return shown


def test_random_sequences_agree_with_the_mended_core() -> None:
    """SGLang's controller stores and fetches alike over both, with all of its threads."""
    script = str(HELPERS / "sglang_storage.py")
    done = run_in(RELEASE, "-W", "ignore", script, "kvcanon", "mended", str(CASES), "0")
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout.splitlines()[-1])
    assert counts["cases"] >= CASES
    assert counts["loaded"] > 10 * CASES
    assert counts["deep"] > CASES // 2


def test_hashes_are_those_of_sglangs_chain() -> None:
    """Of plain, salted and keyed prompts, whole nodes and parts of a node that was cut."""
    shown = compared(
        """
def played(core):
    cache, seen = hosted(core), []
    for extra, salt in ((None, None), ("lora", None), (None, "tenant"), ("", "x"), ("lora", "x")):
        for tokens in ((1, 2, 3, 4, 5, 6), (1, 2, 7, 8)):
            key = RadixKey(array("q", tokens), extra_key=extra, cache_salt=salt)
            slots = cache.token_to_kv_pool_allocator.alloc(len(tokens))
            inserted(cache, key, slots)
            node = cache.match_prefix(calls.MatchPrefixParams(key=key)).last_device_node
            seen.append([cache.tree_core.get_hash_values(node), cache.get_last_hash_value(node),
                         cache.get_prefix_hash_values(node),
                         cache.tree_core.prefetch_anchor_info(node)])
            above = seen[-1][2]
            assert above + seen[-1][0] == get_storage_hash_str(key, None, 2), (above, seen[-1])
    root = cache.root_node_handle()
    seen.append([cache.get_last_hash_value(root), cache.get_prefix_hash_values(root),
                 cache.tree_core.prefetch_anchor_info(root)])
    return seen
"""
    )
    assert shown[-1] == [None, [], [None, None]]


def test_a_write_to_storage_has_the_hosts_slots_and_hashes() -> None:
    """Of full data and of a window, with the hashes above where they are asked for."""
    shown = compared(
        """
def played(core):
    cache, seen = windowed(core), []
    serve(cache, *range(1, 7))
    node = serve(cache, *range(1, 11))
    for prefix in (False, True):
        spec = cache.tree_core.build_storage_backup_spec(node, prefix)
        parts = {
            kind.name: [[each.name.value, len(each.host_indices), each.keys, each.hit_policy.value]
                        for each in transfers]
            for kind, transfers in spec.comp_xfers.items()
        }
        seen.append([len(spec.host_value), list(spec.token_ids), spec.hash_value, spec.prefix_keys,
                     parts])
    return seen
"""
    )
    assert len(shown) == 2


def test_a_node_that_the_host_lacks_is_not_written() -> None:
    """There is nothing to give to storage, under write_back for instance."""
    shown = compared(
        """
def played(core):
    cache = hosted(core, WritePolicy.WRITE_BACK)
    node = serve(cache, 1, 2)
    return [cache.tree_core.build_storage_backup_spec(node, False) is None]
"""
    )
    assert shown == [True]


def test_fetched_pages_are_taken_as_by_sglangs_core() -> None:
    """New ones, some that are there, parts of a node, nothing, and under write_back."""
    shown = compared(
        """
def played(core):
    seen = []
    for policy in (WritePolicy.WRITE_THROUGH, WritePolicy.WRITE_BACK):
        cache = hosted(core, policy)
        root = cache.root_node_handle()
        serve(cache, 1, 2, 3, 4, 5, 6)
        prompts = ((1, 2, 3, 4), (1, 2, 7, 8), (), (1, 2, 7, 8, 9, 9), (*range(1, 7), 7, 7))
        for tokens in prompts:
            slots, result = fetched(cache, root, *tokens)
            seen.append(shown(result))
            cache._apply_cache_actions(result.cache_actions)
            cache.cache_controller.mem_pool_host.free(slots[: result.prefix_len])
            if result.host_insert_dropped:
                cache.cache_controller.mem_pool_host.free(slots[result.prefix_len :])
            if tokens:
                found = matched(cache, *tokens)
                seen.append([found.device_prefix_len, found.host_hit_length])
        cache.sanity_check()
    return seen
"""
    )
    assert any(part != [0, 0] for part in shown)


def test_a_fetched_window_is_taken_as_a_whole() -> None:
    """Or not at all: too short below a prefix, not all of it found, or nothing inserted."""
    shown = compared(
        """
def played(core):
    seen = []
    for pages, found, below, known in ((2, 2, False, 0), (2, 1, False, 0), (1, 1, True, 0),
                                       (2, 2, True, 0), (2, 2, False, 4), (0, 0, False, 0)):
        cache = windowed(core)
        root = cache.root_node_handle()
        anchor = serve(cache, 50, 51, 52, 53) if below else root
        if known:
            serve(cache, *range(1, 1 + known))
        slots, result = fetched(cache, anchor, *range(1, 9))
        made = cache.tree_core.build_hicache_transfers(
            SWA, anchor, PREFETCH, prefetch_tokens=8, staging_tokens=2 * pages)
        seen.append(None if made is None else [made[0].name.value, made[0].keys])
        if made is None:
            continue
        made[0].host_indices = cache.components[SWA].alloc_prefetch_staging(2 * pages)
        actions = []
        cache.tree_core.commit_hicache_transfers(
            anchor, PREFETCH, {SWA: made}, cache_actions=actions, insert_result=result,
            pool_storage_result=PoolTransferResult(4, {PoolName.SWA: found}))
        freed = sorted(slot for each in actions for part in each.host_indices for slot in
                       part.tolist())
        cache._apply_cache_actions(actions)
        tokens = [*((50, 51, 52, 53) if below else ()), *range(1, 9)]
        hit = matched(cache, *tokens)
        seen.append([len(freed), hit.device_prefix_len, hit.host_hit_length])
        cache.sanity_check()
    return seen
"""
    )
    assert shown[-1] is None


def test_a_fetched_state_is_taken_once() -> None:
    """It is that of the last page; a second one, or one that was not found, is freed."""
    shown = compared(
        """
def played(core):
    slots = Counts(full=32, mamba=8)
    cache = hosted(core, page_size=1, mamba=True, device_slots=slots, host_slots=slots)
    root, seen = cache.root_node_handle(), []
    for tokens, found in (((1, 2), 0), ((1, 2), 1), ((1, 2), 1)):
        _, result = fetched(cache, root, *tokens)
        made = cache.tree_core.build_hicache_transfers(
            MAMBA, root, PREFETCH, prefetch_tokens=2, staging_tokens=1)
        made[0].host_indices = cache.host_pool_group.alloc(1, pool=PoolName.MAMBA)
        actions = []
        cache.tree_core.commit_hicache_transfers(
            root, PREFETCH, {MAMBA: made}, cache_actions=actions, insert_result=result,
            pool_storage_result=PoolTransferResult(2, {PoolName.MAMBA: found}))
        freed = len(actions)
        cache._apply_cache_actions(actions)
        hit = matched(cache, *tokens)
        seen.append([made[0].keys, freed, result.mamba_exist, hit.host_hit_length])
    return seen
"""
    )
    assert [part[1] for part in shown] == [1, 0, 1]  # type: ignore[index]


def test_a_lock_on_the_host_follows_cuts_and_leaves_the_device_alone() -> None:
    """What is written keeps its host slots, though the device loses the node."""
    shown = compared(
        """
def played(core):
    cache = hosted(core)
    node, seen = serve(cache, 1, 2, 3, 4, 5, 6), []
    lock = cache.inc_host_lock_ref(node).to_dec_params()
    serve(cache, 1, 2, 9, 9)
    cache.evict(calls.EvictParams(num_tokens=32))
    seen.append([cache.evict_host(32), cache.protected_size()])
    hit = matched(cache, 1, 2, 3, 4, 5, 6)
    seen.append([hit.device_prefix_len, hit.host_hit_length])
    cache.dec_host_lock_ref(node, lock)
    seen.append(cache.evict_host(32))
    try:
        cache.dec_host_lock_ref(node, lock)
    except (AssertionError, KeyError):
        seen.append("refused")
    return seen
"""
    )
    assert shown == [[2, 0], [0, 6], 6, "refused"]


def test_storage_is_attached_and_detached_while_pages_are_cached() -> None:
    """With each write policy, also one that a server was not started with, and again."""
    compared(
        """
import os, tempfile
from sglang.srt.runtime_context import get_parallel
names = ("tp", "attn_tp", "pp")
get_parallel().override_permanently(**{f"{name}_rank": 0 for name in names},
                                    **{f"{name}_size": 1 for name in names})
def prefix(cache, *tokens):
    cache.insert(calls.InsertParams(key=RadixKey(array("q", tokens)),
                                    value=cache.token_to_kv_pool_allocator.alloc(len(tokens))))
    while cache.ongoing_write_through or cache.ongoing_backup:
        cache.check_hicache_events()
    return matched(cache, *tokens).device_prefix_len
def attempt(core, first, policy, filled, folder):
    cache, pages = hosted(core, first), []
    os.environ["SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR"] = folder
    if filled:
        serve(cache, 1, 2, 3, 4)
        serve(cache, 1, 2, 3, 4, 5, 6)
    seen = []
    for again in range(2):
        ok, words = cache.attach_storage_backend(
            storage_backend="file", served_model_name="tiny", hicache_write_policy=policy,
            hicache_storage_prefetch_policy="timeout")
        controller = cache.cache_controller
        seen.append([ok, cache.is_write_back, controller.write_policy, cache.enable_storage,
                     cache.write_through_threshold, cache.tree_core.is_write_back])
        seen.append(prefix(cache, 1, 2, 3, 4, 7, 8 + again))
        cache.evict(calls.EvictParams(num_tokens=4))
        cache.check_hicache_events()
        while cache.ongoing_backup:
            cache.check_hicache_events()
        seen.append([cache.detach_storage_backend()[0], cache.enable_storage])
        seen.append(sorted(os.listdir(folder)))
    cache.sanity_check()
    return seen
def played(core):
    seen = []
    for first in (WritePolicy.WRITE_THROUGH, WritePolicy.WRITE_BACK):
        for policy in (None, "write_back", "write_through", "write_through_selective"):
            for filled in (False, True):
                # Kvcanon counts hits under write_back, too, so that more is copied by them later.
                if first is WritePolicy.WRITE_BACK and policy == "write_through_selective":
                    continue
                with tempfile.TemporaryDirectory() as folder:
                    seen.append(attempt(core, first, policy, filled, folder))
    return seen
"""
    )
