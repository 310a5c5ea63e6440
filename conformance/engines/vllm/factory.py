"""Making: a manager of vLLM's, with as many blocks as a case asks for slots.

What readers get wrong: full data and window data share one pool there. It has as many blocks as
both pools of the case together, and one more, which vLLM keeps as its null block.

A window is counted otherwise there, too: by the tokens that a token sees, of which it is one. The
book counts those that must be there before it.
"""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace

from kvcanon.conformance.engines.vllm.peer_types import Manager
from kvcanon.conformance.engines.vllm.release import named
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import GPU

LONGEST_TOKENS = 1 << 16
"""Prompts of any case are shorter."""


def make_manager(config: CacheConfig) -> Manager:
    """A manager, empty. Raises: UsageError."""
    torch = import_module("torch")
    tiny = SimpleNamespace(
        block_size=config.page_size, num_kv_heads=1, head_size=1, dtype=torch.uint8
    )
    group = named("KVCacheGroupSpec")
    groups = [group(["full"], named("FullAttentionSpec")(**vars(tiny)))]
    if config.window_tokens is not None:
        window = named("SlidingWindowSpec")(**vars(tiny), sliding_window=config.window_tokens + 1)
        groups.append(group(["window"], window))
    slots = sum(config.capacity(each, GPU) for each in config.components)
    made: Manager = named("KVCacheManager")(
        kv_cache_config=named("KVCacheConfig")(
            num_blocks=slots + 1, kv_cache_tensors=[], kv_cache_groups=groups
        ),
        max_model_len=LONGEST_TOKENS,
        scheduler_block_size=config.page_size,
        hash_block_size=config.page_size,
        enable_caching=True,
        enable_kv_cache_events=config.events,
    )
    return made
