"""SGLang 0.5.23 emits the store of a block on the host twice, and its remove once.

python host_store_emitted_twice.py [rust]
"""

from __future__ import annotations

import sys
from array import array
from collections import Counter
from importlib import import_module

import torch
from sglang.srt.mem_cache.allocator.swa import SWATokenToKVPoolAllocator
from sglang.srt.mem_cache.base_prefix_cache import EvictParams, InsertParams
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
        sliding_window_size=2,
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


listed: Counter[int] = Counter()


def read_events(what: str) -> None:
    for event in cache.take_events():
        if getattr(event, "medium", "GPU") == "GPU":
            continue
        stored = type(event).__name__ == "BlockStored"
        listed.update(dict.fromkeys(event.block_hashes, 1 if stored else -1))
        print(f"{what}: {type(event).__name__} of {len(event.block_hashes)} blocks on the host")


cache = make_cache()
insert(cache, [1, 2], window_gone=2)
read_events("inserted without window data")
insert(cache, [1, 2])
read_events("inserted again, with window data")
cache.evict(EvictParams(num_tokens=8))
cache.evict_host(8)
read_events("evicted from the device and from the host")
print(f"{sum(listed.values())} blocks are left on the host by the events; the cache is empty")
sys.exit(any(listed.values()))
