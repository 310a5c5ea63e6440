"""SGLang's file store gives pages of other weights and another dtype: its names have neither."""

import logging
import sys
import tempfile
from pathlib import Path

import torch
from sglang.srt.mem_cache.hicache_storage import HiCacheFile, HiCacheStorageConfig

logging.disable(logging.CRITICAL)
TOKENS_OF_A_PAGE, WIDTH = 4, 16
NAME = "5d" * 32  # The hash of a page: of its tokens alone.


def server(folder: str) -> HiCacheFile:
    """The store of a server of one rank, as HiCacheController makes it."""
    settings = HiCacheStorageConfig(
        tp_rank=0,
        tp_size=1,
        pp_rank=0,
        pp_size=1,
        attn_cp_rank=0,
        attn_cp_size=1,
        is_mla_model=False,
        enable_storage_metrics=False,
        is_page_first_layout=False,
        model_name="/models/chat",
    )
    return HiCacheFile(settings, folder)


def page(value: float, dtype: torch.dtype) -> torch.Tensor:
    """A page of keys and values."""
    return torch.full((TOKENS_OF_A_PAGE, WIDTH), value, dtype=dtype).flatten()


with tempfile.TemporaryDirectory() as folder:
    first = server(folder)
    first.set(NAME, page(1.0, torch.float32))
    print("server 1, /models/chat, float32: stores a page of 1.0")

    # Other weights are copied to /models/chat, and the server is started again.
    second = server(folder)
    second.set(NAME, page(2.0, torch.float32))
    got = second.get(NAME, torch.zeros(TOKENS_OF_A_PAGE * WIDTH))
    print(
        "server 2, other weights in the same place: stores a page of 2.0, and reads", got[0].item()
    )

    third = server(folder)
    there = third.exists(NAME)
    got = third.get(NAME, torch.zeros(TOKENS_OF_A_PAGE * WIDTH, dtype=torch.bfloat16))
    print("server 3, bfloat16: exists says", there, "and get gives", sorted(set(got.tolist())))
    print("the file:", *(each.name[-24:] for each in Path(folder).iterdir()))
sys.exit(1 if there and got is not None else 0)
