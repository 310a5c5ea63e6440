"""Makes a KVCacheManager with one block for each slot of a case.

Full and window data share one block pool. It has as many blocks as both pools of the case together,
plus vLLM's null block.

vLLM's `sliding_window` counts the tokens that a token sees, itself included. The spec does not
count the token itself, so its window is one less.
"""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace

from kvcanon.conformance.engines.installed_names import EngineObject, InstalledNames
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import GPU

NAMES = InstalledNames(
    package="vllm",
    engine="vLLM",
    release="vllm==0.33.0",
    modules={
        "KVCacheManager": "vllm.v1.core.kv_cache_manager",
        "KVCacheConfig": "vllm.v1.kv_cache_interface",
        "KVCacheGroupSpec": "vllm.v1.kv_cache_interface",
        "FullAttentionSpec": "vllm.v1.kv_cache_interface",
        "SlidingWindowSpec": "vllm.v1.kv_cache_interface",
        "Request": "vllm.v1.request",
        "SamplingParams": "vllm.sampling_params",
        "LoRARequest": "vllm.lora.request",
        "sha256": "vllm.utils.hashing",
        "init_none_hash": "vllm.v1.core.kv_cache_utils",
        "get_request_block_hasher": "vllm.v1.core.kv_cache_utils",
        "get_group_id": "vllm.v1.core.kv_cache_utils",
        "maybe_convert_block_hash": "vllm.v1.core.kv_cache_utils",
    },
    quiet=True,
)
LONGEST_TOKENS = 1 << 16
"""Prompts of clients are shorter; the drain of a case fills the pool with one prompt."""


def make_manager(config: CacheConfig) -> EngineObject:
    """Make an empty manager. Raises: UsageError."""
    torch = import_module("torch")
    tiny = SimpleNamespace(
        block_size=config.page_size, num_kv_heads=1, head_size=1, dtype=torch.uint8
    )
    group = NAMES["KVCacheGroupSpec"]
    groups = [group(["full"], NAMES["FullAttentionSpec"](**vars(tiny)))]
    if config.window_tokens is not None:
        window = NAMES["SlidingWindowSpec"](**vars(tiny), sliding_window=config.window_tokens + 1)
        groups.append(group(["window"], window))
    slots = sum(config.capacity(each, GPU) for each in config.components)
    return NAMES["KVCacheManager"](
        kv_cache_config=NAMES["KVCacheConfig"](
            num_blocks=slots + 1, kv_cache_tensors=[], kv_cache_groups=groups
        ),
        max_model_len=max(LONGEST_TOKENS, slots * config.page_size),
        scheduler_block_size=config.page_size,
        hash_block_size=config.page_size,
        enable_caching=True,
        enable_kv_cache_events=config.events,
    )
