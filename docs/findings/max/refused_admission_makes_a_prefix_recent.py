"""MAX 26.7.0: a request that gets no pages makes the prefix that it shares recent.

    python refused_admission_makes_a_prefix_recent.py

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

PAGES, PAGE_TOKENS, HEAD_DIM = 4, 4, 8
OLD, NEW = [1, 2, 3, 4, 5], [11, 12, 13, 14, 15]


def manager_of_four_pages():
    params = MHAKVCacheParams(
        dtype=DType.uint8,
        n_kv_heads=1,
        head_dim=HEAD_DIM,
        num_layers=1,
        page_size=PAGE_TOKENS,
        devices=[DeviceRef.CPU()],
        enable_prefix_caching=True,
    )
    return JengaKVCacheManager.create(
        params=MultiKVCacheParams.from_params({"full": params}),
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


def refuse(manager, tokens):
    ctx = request(tokens)
    manager.claim(ctx)
    try:
        manager.alloc(ctx)
    except InsufficientBlocksError:
        manager.release(ctx)
    else:
        raise AssertionError("there are too few pages for this request")


def is_cached(manager, tokens):
    return manager.get_prefix_cache_hit_counts(request(tokens))[0].device_blocks > 0


def evicted_first(*, refused):
    """Cache two prompts, one after the other, and say which leaves first as others come."""
    manager = manager_of_four_pages()
    serve(manager, OLD)
    serve(manager, NEW)
    if refused:
        refuse(manager, OLD[:4] + list(range(100, 120)))
    for n in range(2, 5):
        serve(manager, [1000 * n + at for at in range(5)])
        left = [name for name, each in (("old", OLD), ("new", NEW)) if is_cached(manager, each)]
        if len(left) == 1:
            return "new" if left == ["old"] else "old"
    raise AssertionError("neither was evicted alone")


without, with_refusal = evicted_first(refused=False), evicted_first(refused=True)
print(f"evicted first: the {without} prompt; after a refused request: the {with_refusal} prompt")
sys.exit(without != with_refusal)
