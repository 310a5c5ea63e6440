"""SGLang 0.5.23 gives the same page the same event id under different extra keys.

python event_ids_ignore_extra_key.py [rust]
"""

from __future__ import annotations

import sys
from array import array

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
POOL = MHATokenToKVPool(
    8, 1, torch.uint8, 1, 1, layer_num=1, device="cpu", enable_memory_saver=False
)

set_global_server_args_for_scheduler(ServerArgs(model_path="dummy", page_size=1))
cache = UnifiedRadixCache(
    params=CacheInitParams(
        disable=False,
        req_to_token_pool=ReqToTokenPool(1, 1, "cpu", enable_memory_saver=False),
        token_to_kv_pool_allocator=TokenToKVPoolAllocator(
            8, torch.uint8, "cpu", POOL, need_sort=False
        ),
        page_size=1,
        tree_components=(ComponentType.FULL,),
        tree_core_backend=CORE,
        enable_kv_cache_events=True,
    )
)


def insert(tokens: list[int], extra_key: str) -> None:
    slots = cache.token_to_kv_pool_allocator.alloc(len(tokens))
    cache.insert(InsertParams(key=RadixKey(array("q", tokens), extra_key), value=slots))


def hit(tokens: list[int], extra_key: str) -> int:
    key = RadixKey(array("q", tokens), extra_key)
    found = cache.match_prefix(MatchPrefixParams(key=key))
    return len(cache.path_device_indices(found.last_device_node))


listed: set[int] = set()


def read_events(what: str) -> None:
    for event in cache.take_events():
        if type(event).__name__ == "BlockStored":
            listed.update(event.block_hashes)
        elif type(event).__name__ == "BlockRemoved":
            listed.difference_update(event.block_hashes)
    print(f"{what}: {len(listed)} blocks are listed by the events")


insert([1, 2], "one")
read_events("inserted under the extra key 'one'")
insert([1, 2], "two")
read_events("inserted under the extra key 'two'")
cache.evict(EvictParams(num_tokens=2))
read_events("two tokens evicted")
cached = hit([1, 2], "one") + hit([1, 2], "two")
print(f"{cached} tokens are cached")
sys.exit(cached != len(listed))
