"""MAX 26.7.0: the layers that took a page first keep it, and others evict their own cached pages.

    python pages_stay_with_their_layers.py

It ends with exit code 1 where the fault shows. It needs no GPU.
"""

import sys

import numpy as np
from max.dtype import DType
from max.graph import DeviceRef
from max.nn.kv_cache import MHAKVCacheParams, MultiKVCacheParams
from max.pipelines.context import TextContext, TokenBuffer
from max.pipelines.kv_cache import JengaKVCacheManager
from max.pipelines.modeling.types import RequestID

PAGES, PAGE_TOKENS, HEAD_DIM, WINDOW = 60, 128, 8, 256
CHUNK, PROMPTS, ROUNDS = 512, 12, 3
LONGEST = 50  # Pages of the longest prompt.


def layers(window):
    return MHAKVCacheParams(
        dtype=DType.uint8,
        n_kv_heads=1,
        head_dim=HEAD_DIM,
        num_layers=1,
        page_size=PAGE_TOKENS,
        window_size=window,
        devices=[DeviceRef.CPU()],
        enable_prefix_caching=True,
    )


def new_manager():
    return JengaKVCacheManager.create(
        params=MultiKVCacheParams.from_params({"full": layers(None), "window": layers(WINDOW)}),
        available_bytes=(PAGES + 1) * 2 * PAGE_TOKENS * HEAD_DIM,  # One page is the null page.
        max_batch_size=1,
        max_seq_len=LONGEST * PAGE_TOKENS + 1,
        max_num_input_tokens=CHUNK,
    )


def request(first, tokens):
    return TextContext(
        request_id=RequestID(),
        max_length=100_000,
        tokens=TokenBuffer(np.arange(first, first + tokens, dtype=np.int64)),
    )


def serve(manager, first, tokens):
    ctx = request(first, tokens)
    manager.claim(ctx)
    manager.alloc(ctx)
    while ctx.tokens.active_length > CHUNK:
        ctx.tokens.chunk(CHUNK)
        ctx.tokens.advance_chunk()  # The forward pass over a chunk.
        manager.step(ctx)
        manager.alloc(ctx)
    ctx.update(0)  # The forward pass.
    manager.step(ctx)
    manager.release(ctx)


def short_prompts():
    """Where each of the short prompts begins, and how many tokens it has."""
    return [(10_000 * each, 2 * PAGE_TOKENS + 1) for each in range(PROMPTS)]


def cached(*, long_prompt_pages, reset):
    """Serve a long prompt once, then short prompts in turn; count those that are cached."""
    manager = new_manager()
    if long_prompt_pages:
        serve(manager, 1_000_000, long_prompt_pages * PAGE_TOKENS)
    if reset:
        manager.reset_prefix_cache()
    for _ in range(ROUNDS):
        for first, tokens in short_prompts():
            serve(manager, first, tokens)
    found = [manager.get_prefix_cache_hit_counts(request(*each))[0] for each in short_prompts()]
    return sum(hits.device_blocks > 0 for hits in found)


fresh = cached(long_prompt_pages=0, reset=False)
print(f"{fresh} of {PROMPTS} prompts are cached in a new cache of {PAGES} pages")
fewest = fresh
for pages in (8, 24, 40, LONGEST):
    after, behind_a_reset = (
        cached(long_prompt_pages=pages, reset=reset) for reset in (False, True)
    )
    print(f"{after} after a prompt of {pages} pages, {behind_a_reset} with a reset behind it")
    fewest = min(fewest, after, behind_a_reset)
sys.exit(fewest < fresh)
