"""vLLM 0.33.0 emits more tokens than hashes for a sliding window, and not which belong together.

Full attention has blocks of 8 tokens, a sliding window blocks of 2. Of the window only the blocks
that can end a hit are kept, and the event has their hashes alone; its tokens are those of the whole
prompt. An event of n hashes should have n blocks of tokens: a listener that cuts its tokens into
blocks of `block_size` takes the first ones for those of the hashes.

    PYTHONHASHSEED=0 python window_event_has_too_many_tokens.py

It needs vLLM alone, and no GPU. It ends with exit code 1 where the fault shows.
"""

from __future__ import annotations

import sys

import torch
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    SlidingWindowSpec,
)
from vllm.v1.request import Request

FULL_BLOCK, WINDOW_BLOCK = 8, 2

init_none_hash(sha256)
full = FullAttentionSpec(block_size=FULL_BLOCK, num_kv_heads=1, head_size=1, dtype=torch.uint8)
window = SlidingWindowSpec(
    block_size=WINDOW_BLOCK, num_kv_heads=1, head_size=1, dtype=torch.uint8, sliding_window=3
)
config = KVCacheConfig(
    num_blocks=40,
    kv_cache_tensors=[],
    kv_cache_groups=[KVCacheGroupSpec(["full"], full), KVCacheGroupSpec(["window"], window)],
)
manager = KVCacheManager(
    config,
    max_model_len=1024,
    scheduler_block_size=FULL_BLOCK,
    hash_block_size=WINDOW_BLOCK,
    enable_kv_cache_events=True,
)
served = Request(
    "one",
    list(range(2 * FULL_BLOCK)),
    SamplingParams(max_tokens=1),
    None,
    block_hasher=get_request_block_hasher(WINDOW_BLOCK, sha256),
)
found, tokens_found, _ = manager.get_computed_blocks(served)
assert manager.allocate_slots(served, served.num_tokens, tokens_found, found) is not None

wrong = False
for event in manager.take_events():
    blocks = len(event.token_ids) // event.block_size
    print(
        f"group {event.group_idx} ({event.kv_cache_spec_kind}): {len(event.block_hashes)} hashes, "
        f"{blocks} blocks of {event.block_size} tokens"
    )
    wrong = wrong or blocks != len(event.block_hashes)
    own = {block_hash: at for at, block_hash in enumerate(served.block_hashes)}
    for at, sent in enumerate(event.block_hashes) if event.group_idx == 1 else ():
        true = next(o for h, o in own.items() if int.from_bytes(h, "big") & (2**64 - 1) == sent)
        print(f"    hash {at} is that of block {true}, and block {at} of the tokens stands there")
sys.exit(wrong)
