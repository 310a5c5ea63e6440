"""vLLM 0.33.0 emits a part of a block whose parent it never stored.

Full attention has blocks of 8 tokens, a sliding window blocks of 2, and so many have a hash, too.
Then the end of a prompt that fills no whole block is kept as a part of one, and its event names the
hash 2 tokens before as its parent. No event ever has that hash: a router that looks for the parent
of a block does not find it.

    PYTHONHASHSEED=0 python partial_block_parent_never_stored.py

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

own = [int.from_bytes(each, "big") & (2**64 - 1) for each in served.block_hashes]
ends = {block_hash: WINDOW_BLOCK * (at + 1) for at, block_hash in enumerate(own)}
stored: set[object] = {None}
orphans = 0
for event in manager.take_events():
    known = event.parent_block_hash in stored
    orphans += not known
    stored.update(event.block_hashes)
    parent = ends.get(event.parent_block_hash, 0)
    print(
        f"group {event.group_idx} ({event.kv_cache_spec_kind}): blocks that end at tokens "
        f"{[ends[each] for each in event.block_hashes]}, after token {parent}"
        f"{'' if known else ', which no event ever stored'}"
    )
sys.exit(orphans > 0)
