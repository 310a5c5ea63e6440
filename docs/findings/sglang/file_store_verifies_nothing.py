"""SGLang's file store serves damaged pages, and a put over one repairs nothing."""

import logging
import sys
import tempfile
from pathlib import Path

import torch
from sglang.srt.mem_cache.hicache_storage import HiCacheFile, HiCacheStorageConfig

logging.disable(logging.CRITICAL)
BYTES = 64


def store(folder: str) -> HiCacheFile:
    """The store of a server of one rank."""
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
    )
    return HiCacheFile(settings, folder)


def got(name: str, count: int = BYTES) -> str:
    """What a get of so many bytes gives."""
    try:
        page = cache.get(name, torch.zeros(count, dtype=torch.uint8))
    except OSError as error:
        return f"raises {type(error).__name__}: {str(error)[:12]}"
    return "a miss" if page is None else f"{len(page)} bytes: {bytes(page.tolist())[::16].hex()}"


wrong = 0
with tempfile.TemporaryDirectory() as folder:
    cache = store(folder)
    good = torch.full((BYTES,), 7, dtype=torch.uint8)
    for name, damage in (
        ("zeroed", lambda data: data[:32] + bytes(32)),
        ("cut", lambda data: data[:40]),
    ):
        cache.set(name, good)
        (file,) = Path(folder).glob(f"{name}_*")
        file.write_bytes(damage(file.read_bytes()))
        cache = store(folder)
        print(f"{name:7} get gives", got(name))
        print(f"{'':7} exists says {cache.exists(name)}, a new set says {cache.set(name, good)}")
        after = got(name)
        print(f"{'':7} get gives", after)
        wrong += after != "64 bytes: 07070707"
    cache.set("whole", good)
    print("whole   a get of half as many bytes gives", got("whole", BYTES // 2))
sys.exit(1 if wrong else 0)
