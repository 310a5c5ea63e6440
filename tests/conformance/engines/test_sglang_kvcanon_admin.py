"""What is asked of SGLang's cache while it runs, with kvcanon's core."""

from __future__ import annotations

import json

import pytest

from sglang_world import said

pytestmark = pytest.mark.nightly

HICACHE = """
import json, threading
from array import array
import sglang.srt.mem_cache.base_prefix_cache as calls
from sglang.srt.mem_cache.radix_cache import RadixKey
from kvcanon.spec.types import WritePolicy
def hosted(backend="kvcanon"):
    config = CacheConfig(page_size=2, device_slots=Counts(full=32), host_slots=Counts(full=32),
                         write_policy=WritePolicy.WRITE_THROUGH, slot_bytes=4)
    return make_unified_world(config, backend).cache
def serve(cache, *tokens):
    key = RadixKey(array("q", tokens))
    cache.insert(calls.InsertParams(key=key, value=cache.token_to_kv_pool_allocator.alloc(4)))
    cache.check_hicache_events()
    return cache.match_prefix(calls.MatchPrefixParams(key=key)).device_prefix_len
def flush(cache):
    cache.reset()
    cache.token_to_kv_pool_allocator.clear()
def state(cache):
    controller = cache.cache_controller
    return [cache.prefetch_stop_policy, controller.write_policy, cache.write_through_threshold,
            cache.is_write_back, cache.enable_storage, controller.enable_storage,
            str(controller.storage_backend), threading.active_count(), cache.total_size()]
"""


def test_storage_is_not_attached_to_a_running_cache() -> None:
    """It is refused with a sentence before anything changes, and all calls go on afterwards."""
    printed = said(
        HICACHE
        + """
def attempt(policy, filled):
    cache = hosted()
    if filled:
        serve(cache, 1, 2, 3, 4)
    before = state(cache)
    ok, words = cache.attach_storage_backend(
        storage_backend="file", served_model_name="tiny", hicache_write_policy=policy,
        hicache_storage_prefetch_policy="timeout")
    same = state(cache) == before
    detached, _ = cache.detach_storage_backend()
    hits = [serve(cache, 1, 2, 3, 4)]
    flush(cache)
    hits += [serve(cache, 1, 2, 3, 4), serve(cache, 1, 2, 5, 6)]
    cache.sanity_check()
    print(json.dumps([ok, words, same, detached, hits, state(cache)[:7] == before[:7]]))
for policy in (None, "write_back", "write_through_selective"):
    attempt(policy, True)
    attempt(policy, False)
"""
    )
    attempts = printed.splitlines()
    assert len(attempts) == 6
    for attempt in attempts:
        attached, words, same, detached, hits, still = json.loads(attempt)
        assert (attached, same, detached, hits, still) == (False, True, True, [4, 4, 4], True)
        assert "PUT /hicache/storage-backend" in words
        assert "unset SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND" in words
