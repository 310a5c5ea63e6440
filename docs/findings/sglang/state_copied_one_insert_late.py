"""SGLang 0.5.23 copies a mamba state to the host one insert late, or not at all.

python state_copied_one_insert_late.py [rust]
"""

from __future__ import annotations

import sys
from array import array
from importlib import import_module
from types import SimpleNamespace

import torch
from sglang.srt.mem_cache.allocator.token import TokenToKVPoolAllocator
from sglang.srt.mem_cache.base_prefix_cache import EvictParams, InsertParams, MatchPrefixParams
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.memory_pool import HybridLinearKVPool, HybridReqToTokenPool
from sglang.srt.mem_cache.radix_cache import RadixKey
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache
from sglang.srt.server_args import ServerArgs, set_global_server_args_for_scheduler

CORE = sys.argv[1] if len(sys.argv) > 1 else "python"
PROMPT, LONGER = [1, 2], [1, 2, 3, 4]


def copy_to_pages(
    *,
    src_ptrs: list[torch.Tensor],
    dst_ptrs: list[torch.Tensor],
    src_indices: torch.Tensor,
    dst_indices: torch.Tensor,
    page_size: int,
) -> None:
    layers = len(src_ptrs) // len(dst_ptrs)
    for at, source in enumerate(src_ptrs):
        pages, rows = dst_indices // page_size, dst_indices % page_size
        dst_ptrs[at // layers][pages, at % layers, rows] = source[src_indices]


# Without a GPU: host memory that is not pinned, and a copy by index in place of the kernel.
for name in ("mha", "mamba"):
    module = import_module(f"sglang.srt.mem_cache.pool_host.{name}")
    module.transfer_kv_all_layer_direct_lf_pf = copy_to_pages
functions = import_module("sglang.srt.mem_cache.pool_host.common").ALLOC_MEMORY_FUNCS
allocate = functions["cpu"]
functions["cpu"] = lambda *args, **named: allocate(*args, **{**named, "pin_memory": False})


def make_cache(write_policy: str) -> UnifiedRadixCache:
    arguments = ServerArgs(
        model_path="dummy",
        page_size=1,
        enable_hierarchical_cache=True,
        hicache_io_backend="direct",
        hicache_mem_layout="page_first_direct",
        hicache_write_policy=write_policy,
        hicache_ratio=2.0,
    )
    # SGLang reads this from the configuration of a model.
    arguments._mamba_cache_chunk_size = 64  # noqa: SLF001
    set_global_server_args_for_scheduler(arguments)
    sizes = {"size": 16, "dtype": torch.uint8, "device": "cpu"}
    requests = HybridReqToTokenPool(
        size=1,
        mamba_size=8,
        mamba_spec_state_size=1,
        max_context_len=1,
        device="cpu",
        enable_memory_saver=False,
        cache_params=SimpleNamespace(
            shape=SimpleNamespace(conv=[(1,)], temporal=(1,)),
            dtype=SimpleNamespace(conv=torch.uint8, temporal=torch.uint8),
            layers=[1],
        ),
        mamba_layer_ids=[1],
        enable_mamba_extra_buffer=False,
        speculative_num_draft_tokens=None,
    )
    pool = HybridLinearKVPool(
        **sizes,
        page_size=1,
        head_num=1,
        head_dim=1,
        full_attention_layer_ids=[0],
        mamba_pool=requests.mamba_pool,
    )
    params = CacheInitParams(
        disable=False,
        req_to_token_pool=requests,
        token_to_kv_pool_allocator=TokenToKVPoolAllocator(**sizes, kvcache=pool, need_sort=False),
        page_size=1,
        tree_components=(ComponentType.FULL, ComponentType.MAMBA),
        tree_core_backend=CORE,
    )
    cache = UnifiedRadixCache(params=params)
    cache.init_hicache(arguments, params)
    return cache


def wait(cache: UnifiedRadixCache) -> None:
    """Take the acknowledgements of all copies."""
    for _ in range(100):
        cache.check_hicache_events()


def insert(cache: UnifiedRadixCache, tokens: list[int]) -> None:
    """Insert a prompt with a state at its end."""
    states = cache.req_to_token_pool.mamba_allocator
    state = states.alloc(1)
    answer = cache.insert(
        InsertParams(
            key=RadixKey(array("q", tokens)),
            value=cache.token_to_kv_pool_allocator.alloc(len(tokens)),
            mamba_value=state,
        )
    )
    if answer.mamba_exist:
        states.free(state)


def found_on_host(write_policy: str, prompts: list[list[int]]) -> int:
    """Insert prompts, then evict all; count the tokens of PROMPT that are found on the host."""
    cache = make_cache(write_policy)
    for each in prompts:
        insert(cache, each)
        # Under write_through, the copy of LONGER is still under way when PROMPT comes.
        if write_policy != "write_through" or each != LONGER:
            wait(cache)
    cache.evict(EvictParams(num_tokens=16))
    wait(cache)
    key = RadixKey(array("q", PROMPT))
    return int(cache.match_prefix(MatchPrefixParams(key=key)).host_hit_length)


lost = 0
for policy, copied_at in (("write_through", 1), ("write_through_selective", 2)):
    alone = found_on_host(policy, copied_at * [PROMPT])
    after = found_on_host(policy, [LONGER, PROMPT])
    again = found_on_host(policy, [LONGER, PROMPT, PROMPT])
    print(f"{policy}: {alone} tokens are found on the host if the prompt comes alone;", end=" ")
    print(f"{after} if it comes after a longer one, {again} if it then comes once more")
    lost += alone - after
sys.exit(lost > 0)
