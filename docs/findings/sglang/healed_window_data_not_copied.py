"""SGLang 0.5.23 does not copy window data to the host if the full data of its node is there.

python healed_window_data_not_copied.py [rust]
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
        sliding_window_size=1,
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


def insert(cache: UnifiedRadixCache, tokens: list[int], window_gone: int = 0) -> None:
    """Insert a prompt; the window data of its first tokens is freed already."""
    allocator = cache.token_to_kv_pool_allocator
    full = allocator.full_attn_allocator.alloc(len(tokens))
    allocator.set_full_to_swa_mapping(full, allocator.swa_attn_allocator.alloc(len(tokens)))
    if window_gone:
        allocator.free_swa(full[:window_gone])
    cache.insert(
        InsertParams(
            key=RadixKey(array("q", tokens)),
            value=full,
            component_evicted_seqlens={ComponentType.SWA: window_gone},
        )
    )
    wait(cache)


def match(cache: UnifiedRadixCache, tokens: list[int]) -> MatchResult:
    return cache.match_prefix(MatchPrefixParams(key=RadixKey(array("q", tokens))))


def tokens_on_host(write_policy: str, *, copied_before: bool) -> int:
    """How many tokens of [1] are found on the host after all left the device."""
    cache = make_cache(write_policy)
    if copied_before:
        # The request has no window data of its first token any more.
        insert(cache, [1, 2], window_gone=1)
        cache.evict(EvictParams(num_tokens=8))
        wait(cache)
    insert(cache, [1, 2])
    cache.evict(EvictParams(num_tokens=8))
    wait(cache)
    return int(match(cache, [1]).host_hit_length)


lost = 0
for policy in ("write_through", "write_back"):
    fresh = tokens_on_host(policy, copied_before=False)
    again = tokens_on_host(policy, copied_before=True)
    print(f"{policy}: {fresh} token of [1] is found on the host;", end=" ")
    print(f"{again} if [1] was copied before without window data")
    lost += fresh - again
sys.exit(lost > 0)
