"""SGLang 0.5.23 evicts as much window data from the host as it copies, where less is short.

python copy_evicts_its_whole_window.py [rust]
"""

from __future__ import annotations

import sys
from array import array
from importlib import import_module

import torch
from sglang.srt.mem_cache.allocator.swa import SWATokenToKVPoolAllocator
from sglang.srt.mem_cache.base_prefix_cache import EvictParams, InsertParams, MatchPrefixParams
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


def make_cache() -> UnifiedRadixCache:
    arguments = ServerArgs(
        model_path="dummy",
        page_size=1,
        enable_hierarchical_cache=True,
        hicache_io_backend="direct",
        hicache_mem_layout="layer_first",
        hicache_write_policy="write_through",
        hicache_ratio=2.0,
    )
    set_global_server_args_for_scheduler(arguments)
    sizes = {"size": 16, "size_swa": 8, "page_size": 1, "dtype": torch.uint8, "device": "cpu"}
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
        sliding_window_size=4,
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
    """Insert a prompt, wait for its copy, and evict it from the device."""
    allocator = cache.token_to_kv_pool_allocator
    full = allocator.full_attn_allocator.alloc(len(tokens))
    allocator.set_full_to_swa_mapping(full, allocator.swa_attn_allocator.alloc(len(tokens)))
    cache.insert(
        InsertParams(
            key=RadixKey(array("q", tokens)),
            value=full,
            component_evicted_seqlens={ComponentType.SWA: 0},
        )
    )
    wait(cache)
    cache.evict(EvictParams(num_tokens=len(tokens)))
    wait(cache)


def found_on_host(cache: UnifiedRadixCache, prompts: list[list[int]]) -> int:
    keys = [RadixKey(array("q", each)) for each in prompts]
    found = [cache.match_prefix(MatchPrefixParams(key=key)) for key in keys]
    return sum(each.host_hit_length > 0 for each in found)


SHORT, LONG = 2, [100, 101, 102, 103]
cache = make_cache()
pools = cache.cache_controller.mem_pool_host.entry_map
(window_pool,) = [entry.host_pool for name, entry in pools.items() if name.value == "swa"]
# Fill the window slots of the host with prompts of one token, but for too few for LONG.
free = len(LONG) - SHORT
prompts = [[number] for number in range(window_pool.available_size() - free)]
for each in prompts:
    insert(cache, each)
before = found_on_host(cache, prompts)
insert(cache, LONG)
after = found_on_host(cache, prompts)
print(f"{before} prompts of one token are on the host, and {free} of its window slots are free")
print(f"a copy of {len(LONG)} tokens evicts {before - after} of them; {SHORT} would be enough")
sys.exit(before - after > SHORT)
