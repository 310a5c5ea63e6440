"""SGLang 0.5.23 counts no hit at the upper part of a leaf that it splits at its window.

python window_split_counts_no_hit.py [rust]
"""

from __future__ import annotations

import sys
from array import array
from importlib import import_module

import torch
from sglang.srt.mem_cache.allocator.swa import SWATokenToKVPoolAllocator
from sglang.srt.mem_cache.base_prefix_cache import (
    EvictParams,
    InsertParams,
    MatchPrefixParams,
    MatchResult,
)
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.memory_pool import ReqToTokenPool
from sglang.srt.mem_cache.radix_cache import RadixKey
from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool
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


def make_cache(window: int) -> UnifiedRadixCache:
    arguments = ServerArgs(
        model_path="dummy",
        page_size=1,
        enable_hierarchical_cache=True,
        hicache_io_backend="direct",
        hicache_mem_layout="layer_first",
        hicache_write_policy="write_through_selective",
        hicache_ratio=2.0,
    )
    set_global_server_args_for_scheduler(arguments)
    sizes = {"size": 8, "size_swa": 8, "page_size": 1, "dtype": torch.uint8, "device": "cpu"}
    pool = SWAKVPool(
        **sizes,
        head_num=1,
        head_dim=1,
        full_attention_layer_ids=[0],
        swa_attention_layer_ids=[1],
    )
    params = CacheInitParams(
        disable=False,
        req_to_token_pool=ReqToTokenPool(1, 1, "cpu", enable_memory_saver=False),
        token_to_kv_pool_allocator=SWATokenToKVPoolAllocator(
            **sizes, kvcache=pool, need_sort=False
        ),
        page_size=1,
        sliding_window_size=window,
        tree_components=(ComponentType.FULL, ComponentType.SWA),
        tree_core_backend=CORE,
        enable_kv_cache_events=True,
    )
    cache = UnifiedRadixCache(params=params)
    cache.init_hicache(arguments, params)
    return cache


def wait(cache: UnifiedRadixCache) -> None:
    """Take the acknowledgements of all copies."""
    for _ in range(100):
        cache.check_hicache_events()


def insert(cache: UnifiedRadixCache, tokens: list[int]) -> None:
    allocator = cache.token_to_kv_pool_allocator
    found = match(cache, tokens)
    reused = cache.path_device_indices(found.last_device_node)
    fresh = len(tokens) - len(reused)
    full = allocator.full_attn_allocator.alloc(fresh)
    allocator.set_full_to_swa_mapping(full, allocator.swa_attn_allocator.alloc(fresh))
    cache.insert(
        InsertParams(
            key=RadixKey(array("q", tokens)),
            value=torch.cat([reused, full]),
            prev_prefix_len=len(reused),
        )
    )
    wait(cache)


def match(cache: UnifiedRadixCache, tokens: list[int]) -> MatchResult:
    return cache.match_prefix(MatchPrefixParams(key=RadixKey(array("q", tokens))))


def tokens_on_host(window: int) -> int:
    """How many tokens of the shared prefix [1] are on the host after all left the device."""
    cache = make_cache(window)
    insert(cache, [1, 2])
    insert(cache, [1, 3])
    cache.evict(EvictParams(num_tokens=8))
    return int(match(cache, [1]).host_hit_length)


right, wrong = tokens_on_host(window=2), tokens_on_host(window=1)
print("two prompts share their first token; write_through_selective copies what has two hits")
print(f"window of 2 tokens: {right} token of the shared prefix is on the host")
print(f"window of 1 token: {wrong} tokens of it are on the host")
sys.exit(wrong < right)
