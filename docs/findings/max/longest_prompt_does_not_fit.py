"""MAX 26.7.0: the jenga manager accepts a longest prompt that it has no pages for, with a window.

    python longest_prompt_does_not_fit.py

It ends with exit code 1 where the fault shows. It needs no GPU.
"""

import sys

import numpy as np
from max.dtype import DType
from max.graph import DeviceRef
from max.nn.kv_cache import MHAKVCacheParams, MultiKVCacheParams
from max.pipelines.context import TextContext, TokenBuffer
from max.pipelines.kv_cache import InsufficientBlocksError, JengaKVCacheManager
from max.pipelines.modeling.types import RequestID

PAGES, PAGE_TOKENS, HEAD_DIM, WINDOW = 100, 128, 8, 1024


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


PARAMS = MultiKVCacheParams.from_params({"full": layers(None), "window": layers(WINDOW)})
BYTES = (PAGES + 1) * 2 * PAGE_TOKENS * HEAD_DIM  # One page is the null page.
LONGEST = JengaKVCacheManager.max_seq_len_fitting_in_cache(PARAMS, BYTES)


def fits(tokens, chunk_tokens):
    """Whether an empty cache serves a prompt, in chunks, as the only request."""
    manager = JengaKVCacheManager.create(
        params=PARAMS,
        available_bytes=BYTES,
        max_batch_size=1,
        max_seq_len=LONGEST,
        max_num_input_tokens=chunk_tokens,
    )
    ctx = TextContext(
        request_id=RequestID(),
        max_length=LONGEST,
        tokens=TokenBuffer(np.arange(tokens, dtype=np.int64)),
    )
    manager.claim(ctx)
    try:
        manager.alloc(ctx)
        while chunk_tokens is not None and ctx.tokens.active_length > chunk_tokens:
            ctx.tokens.chunk(chunk_tokens)
            ctx.tokens.advance_chunk()  # The forward pass over a chunk.
            manager.step(ctx)
            manager.alloc(ctx)
    except InsufficientBlocksError:
        return False
    return True


print(f"the manager accepts a longest prompt of {LONGEST} tokens")
faulty = False
for chunk_tokens in (1024, 8192, None):
    most = max(each for each in range(128, LONGEST + 1, 128) if fits(each, chunk_tokens))
    faulty |= not fits(LONGEST, chunk_tokens)
    how = "in one pass" if chunk_tokens is None else f"in chunks of {chunk_tokens}"
    print(f"computed {how}, the longest prompt that gets its pages has {most} tokens")
sys.exit(faulty)
