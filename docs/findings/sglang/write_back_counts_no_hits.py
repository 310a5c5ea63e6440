"""SGLang 0.5.23 counts no hits under write_back, so that lfu and slru evict like lru.

python write_back_counts_no_hits.py [rust]
"""

from __future__ import annotations

import sys
from array import array
from importlib import import_module

import torch
from sglang.srt.mem_cache.allocator import TokenToKVPoolAllocator
from sglang.srt.mem_cache.base_prefix_cache import EvictParams, InsertParams, MatchPrefixParams
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool, ReqToTokenPool
from sglang.srt.mem_cache.radix_cache import RadixKey
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache
from sglang.srt.server_args import ServerArgs, set_global_server_args_for_scheduler

CORE = sys.argv[1] if len(sys.argv) > 1 else "python"

# Without a GPU: host memory that is not pinned, and a copy by index in place of the kernel.
mha = import_module("sglang.srt.mem_cache.pool_host.mha")
allocate = mha.ALLOC_MEMORY_FUNCS["cpu"]
mha.ALLOC_MEMORY_FUNCS["cpu"] = lambda *args, **named: allocate(
    *args, **{**named, "pin_memory": False}
)


def copy_by_index(
    *,
    src_layers: list[torch.Tensor],
    dst_layers: list[torch.Tensor],
    src_indices: torch.Tensor,
    dst_indices: torch.Tensor,
    **_: object,
) -> None:
    for source, target in zip(src_layers, dst_layers, strict=True):
        target[dst_indices] = source[src_indices]


mha.transfer_kv_direct = copy_by_index


def make_cache(write_policy: str) -> UnifiedRadixCache:
    arguments = ServerArgs(
        model_path="dummy",
        page_size=1,
        enable_hierarchical_cache=True,
        hicache_io_backend="direct",
        hicache_mem_layout="layer_first",
        hicache_write_policy=write_policy,
        hicache_ratio=2.0,
    )
    set_global_server_args_for_scheduler(arguments)
    pool = MHATokenToKVPool(
        8, 1, torch.uint8, 1, 1, layer_num=1, device="cpu", enable_memory_saver=False
    )
    params = CacheInitParams(
        disable=False,
        req_to_token_pool=ReqToTokenPool(1, 1, "cpu", enable_memory_saver=False),
        token_to_kv_pool_allocator=TokenToKVPoolAllocator(
            8, torch.uint8, "cpu", pool, need_sort=False
        ),
        page_size=1,
        tree_components=(ComponentType.FULL,),
        tree_core_backend=CORE,
        eviction_policy="lfu",
    )
    cache = UnifiedRadixCache(params=params)
    cache.init_hicache(arguments, params)
    return cache


def wait(cache: UnifiedRadixCache) -> None:
    """Take the acknowledgements of all copies."""
    for _ in range(100):
        cache.check_hicache_events()


def insert(cache: UnifiedRadixCache, tokens: list[int]) -> None:
    slots = cache.token_to_kv_pool_allocator.alloc(len(tokens))
    key = RadixKey(array("q", tokens))
    cache.insert(InsertParams(key=key, value=slots))
    wait(cache)


def first_evicted(write_policy: str) -> str:
    cache = make_cache(write_policy)
    for _ in range(5):
        insert(cache, [1, 2])
    insert(cache, [3, 4])
    cache.evict(EvictParams(num_tokens=1))
    found = cache.match_prefix(MatchPrefixParams(key=RadixKey(array("q", [1, 2]))))
    kept = len(cache.path_device_indices(found.last_device_node))
    return "the prompt used once" if kept else "the prompt used five times"


victims = {policy: first_evicted(policy) for policy in ("write_through", "write_back")}
for policy, victim in victims.items():
    print(f"lfu, {policy}: {victim} is evicted first")
sys.exit(victims["write_back"] != victims["write_through"])
