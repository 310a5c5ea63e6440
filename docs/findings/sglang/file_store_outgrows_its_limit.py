"""SGLang's file store outgrows its limit where two servers share a folder: each counts its own."""

import logging
import sys
import tempfile
from pathlib import Path

import torch
from sglang.srt.mem_cache.hicache_storage import HiCacheFile, HiCacheStorageConfig

logging.disable(logging.CRITICAL)
BYTES, ROOM, SERVERS = 4096, 10, 3
PAGE = torch.ones(BYTES, dtype=torch.uint8)


def server(folder: str) -> HiCacheFile:
    """The store of a server of one rank, with room for ten pages."""
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
    return HiCacheFile(settings, folder)


def used_pages(folder: str) -> int:
    """How many pages the files of a folder have."""
    return sum(each.stat().st_size for each in Path(folder).iterdir()) // BYTES


with tempfile.TemporaryDirectory() as folder:
    # They start over an empty folder, as replicas of a service do.
    servers = [server(folder) for _ in range(SERVERS)]
    used = []
    for number, store in enumerate(servers):
        for page in range(2 * ROOM):
            store.set(f"{1000 * number + page:064x}", PAGE)
        used.append(used_pages(folder))
        print(f"server {number + 1} has stored {2 * ROOM} pages: {used[-1]} are in the folder")
    print(f"each was given room for {ROOM}")
sys.exit(1 if max(used) > ROOM else 0)
