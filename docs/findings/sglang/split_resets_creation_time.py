"""SGLang 0.5.23's RadixCache makes the upper part of a split node as young as the split.

python split_resets_creation_time.py
"""

from __future__ import annotations

import sys
from array import array

import torch
from sglang.srt.mem_cache.allocator import TokenToKVPoolAllocator
from sglang.srt.mem_cache.base_prefix_cache import EvictParams, InsertParams, MatchPrefixParams
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool, ReqToTokenPool
from sglang.srt.mem_cache.radix_cache import RadixCache, RadixKey
from sglang.srt.server_args import ServerArgs, set_global_server_args_for_scheduler

POOL = MHATokenToKVPool(
    8, 1, torch.uint8, 1, 1, layer_num=1, device="cpu", enable_memory_saver=False
)
FIRST, SECOND = [1, 2], [8, 9]

set_global_server_args_for_scheduler(ServerArgs(model_path="dummy", page_size=1))
cache = RadixCache(
    CacheInitParams(
        disable=False,
        req_to_token_pool=ReqToTokenPool(1, 1, "cpu", enable_memory_saver=False),
        token_to_kv_pool_allocator=TokenToKVPoolAllocator(
            8, torch.uint8, "cpu", POOL, need_sort=False
        ),
        page_size=1,
        eviction_policy="fifo",
    )
)


def insert(tokens: list[int]) -> None:
    slots = cache.token_to_kv_pool_allocator.alloc(len(tokens))
    cache.insert(InsertParams(key=RadixKey(array("q", tokens)), value=slots))


def hit(tokens: list[int]) -> int:
    found = cache.match_prefix(MatchPrefixParams(key=RadixKey(array("q", tokens))))
    return int(found.device_prefix_len)


insert(FIRST)
insert(SECOND)
print(f"fifo: {FIRST} is inserted, then {SECOND}")
print(f"{hit([1, 7])} token of [1, 7] is found, which splits the node of {FIRST}")
for _ in range(2):
    cache.evict(EvictParams(num_tokens=1))
first, second = hit(FIRST), hit(SECOND)
print(f"after two evictions of a token, {first} token of {FIRST} and {second} of {SECOND} are left")
sys.exit(first > 0 and second < len(SECOND))
