"""vLLM 0.33.0 emits a block as removed while another block with the same hash is still found.

A prompt is served twice. Its last block is computed twice, as vLLM never takes the last token from
the cache, and both blocks are kept under one hash. Then one of them is evicted. A listener that
folds the events into a set of hashes now takes the block for gone, but vLLM still finds it.

    PYTHONHASHSEED=0 python removed_while_duplicate_is_cached.py

It needs vLLM alone, and no GPU. It ends with exit code 1 where the fault shows.
"""

from __future__ import annotations

import sys

import torch
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.request import Request

BLOCK = 4
PROMPT = list(range(2 * BLOCK))

init_none_hash(sha256)
hasher = get_request_block_hasher(BLOCK, sha256)
spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=1, dtype=torch.uint8)
config = KVCacheConfig(
    num_blocks=5, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)]
)
manager = KVCacheManager(
    config,
    max_model_len=1024,
    scheduler_block_size=BLOCK,
    hash_block_size=BLOCK,
    enable_kv_cache_events=True,
)
resident: set[object] = set()


def request(name: str, tokens: list[int]) -> Request:
    return Request(name, tokens, SamplingParams(max_tokens=1), None, block_hasher=hasher)


def serve(name: str, tokens: list[int]) -> None:
    served = request(name, tokens)
    found, tokens_found, _ = manager.get_computed_blocks(served)
    missing = len(tokens) - tokens_found
    assert manager.allocate_slots(served, missing, tokens_found, found) is not None
    print(f"{name}: {tokens_found} tokens found, blocks {manager.get_block_ids(name)[0]}")
    manager.free(served)
    read_events()


def read_events() -> None:
    for event in manager.take_events():
        kind, hashes = type(event).__name__, event.block_hashes
        print(f"    {kind} {[hex(each)[-6:] for each in hashes]}")
        if kind == "BlockStored":
            resident.update(hashes)
        else:
            resident.difference_update(hashes)


serve("first", PROMPT)
serve("second, the same prompt", PROMPT)
# Four blocks: two for the first prompt, one more for its last block, and one that is still empty.
serve("another, which evicts one of the two", [100 + token for token in PROMPT])

longer = request("longer", [*PROMPT, 7])
_, tokens_found, _ = manager.get_computed_blocks(longer)
listed = sum(
    (int.from_bytes(each, "big") & (2**64 - 1)) in resident for each in longer.block_hashes
)
print(f"vLLM finds {tokens_found // BLOCK} blocks of the prompt; its events leave {listed} of them")
sys.exit(tokens_found // BLOCK != listed)
