"""SGLang's file store evicts the first pages of a prompt first, and the rest is of no use."""

import logging
import sys
import tempfile

import torch
from sglang.srt.mem_cache.hicache_storage import HiCacheFile, HiCacheStorageConfig

logging.disable(logging.CRITICAL)
BYTES, PAGES, ROOM = 4096, 8, 10

with tempfile.TemporaryDirectory() as folder:
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
        model_name="model",
        extra_config={"max_size": ROOM * BYTES},
    )
    store = HiCacheFile(settings, folder)
    prompt = [f"{number:064x}" for number in range(PAGES)]
    other = [f"{number:064x}" for number in range(100, 104)]
    page = torch.ones(BYTES, dtype=torch.uint8)
    store.batch_set(prompt, [page] * PAGES)
    print("a prompt of", PAGES, "pages is stored; its leading run is", store.batch_exists(prompt))
    store.batch_set(other, [page] * len(other))
    there = [number for number, name in enumerate(prompt) if store.exists(name)]
    run = store.batch_exists(prompt)
    print("another prompt of", len(other), "pages is stored, with room for", ROOM)
    print("of the first prompt, pages", there, "are on the disk; its leading run is", run)
sys.exit(1 if run < len(there) else 0)
