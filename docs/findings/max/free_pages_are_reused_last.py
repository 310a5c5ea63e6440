"""MAX 26.7.0: the paged KV cache manager evicts cached pages while free pages hold nothing.

    python free_pages_are_reused_last.py

It ends with exit code 1 where the fault shows. It needs no GPU.
"""

import sys

import numpy as np
from max.dtype import DType
from max.graph import DeviceRef
from max.nn.kv_cache import MHAKVCacheParams, MultiKVCacheParams
from max.pipelines.context import TextContext, TokenBuffer
from max.pipelines.kv_cache import JengaKVCacheManager, PagedKVCacheManager
from max.pipelines.modeling.types import RequestID

PAGES, PAGE_TOKENS, HEAD_DIM = 400, 4, 8


def params():
    return MHAKVCacheParams(
        dtype=DType.uint8,
        n_kv_heads=1,
        head_dim=HEAD_DIM,
        num_layers=1,
        page_size=PAGE_TOKENS,
        devices=[DeviceRef.CPU()],
        enable_prefix_caching=True,
    )


def paged():
    return PagedKVCacheManager(
        params=params(), session=None, total_num_pages=PAGES, max_batch_size=1
    )


def jenga():
    return JengaKVCacheManager.create(
        params=MultiKVCacheParams.from_params({"full": params()}),
        available_bytes=(PAGES + 1) * 2 * PAGE_TOKENS * HEAD_DIM,  # One page is the null page.
        max_batch_size=1,
        max_seq_len=PAGES * PAGE_TOKENS,
    )


def request(tokens):
    return TextContext(
        request_id=RequestID(),
        max_length=10_000,
        tokens=TokenBuffer(np.array(tokens, dtype=np.int64)),
    )


def serve(manager, tokens):
    ctx = request(tokens)
    manager.claim(ctx)
    manager.alloc(ctx)
    ctx.update(0)  # The forward pass.
    manager.step(ctx)
    manager.release(ctx)


def cached_pages(manager, prompts):
    return sum(
        manager.get_prefix_cache_hit_counts(request(each))[0].device_blocks for each in prompts
    )


def pages_kept(make, full_pages):
    """Serve different prompts of some full pages and one more token; count what is cached."""
    tokens = full_pages * PAGE_TOKENS + 1
    prompts = [[1000 * n + at for at in range(tokens)] for n in range(1, 2 * PAGES)]
    manager = make()
    for each in prompts:
        serve(manager, each)
    return cached_pages(manager, prompts)


faulty = False
for full_pages in (1, 3, 7):
    kept = pages_kept(paged, full_pages)
    faulty |= kept < PAGES - full_pages - 1
    print(
        f"prompts of {full_pages} full pages and a token, {PAGES} pages in the pool: "
        f"{kept} are cached by the paged manager, {pages_kept(jenga, full_pages)} by jenga"
    )
sys.exit(faulty)
