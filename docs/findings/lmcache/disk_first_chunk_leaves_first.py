"""LMCache's local disk evicts the first chunk of a prompt first, and finds none of the others."""

import asyncio
import sys
import tempfile
import threading
import time
from typing import Any

import torch
from lmcache.v1.config import LMCacheEngineConfig
from lmcache.v1.metadata import LMCacheMetadata
from lmcache.v1.storage_backend.local_cpu_backend import LocalCPUBackend
from lmcache.v1.storage_backend.local_disk_backend import LocalDiskBackend
from lmcache.v1.token_database import ChunkedTokenDatabase

CHUNK, BYTES, CHUNKS_ON_DISK = 256, 4096, 8
SHAPE = torch.Size([2, 1, CHUNK, 8])

config = LMCacheEngineConfig.from_defaults(
    chunk_size=CHUNK,
    local_cpu=False,
    max_local_cpu_size=8 * BYTES / 2**30,
    local_disk=tempfile.mkdtemp(),
    max_local_disk_size=CHUNKS_ON_DISK * BYTES / 2**30,
)
model = LMCacheMetadata("model", 1, 1, 0, 0, torch.uint8, (1, 2, CHUNK, 1, 8), chunk_size=CHUNK)
loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()
memory = LocalCPUBackend(config, model)
disk = LocalDiskBackend(config, loop, memory, "cpu", metadata=model)
database = ChunkedTokenDatabase(config, model)


def store(prompt: int, chunks: int) -> list[Any]:
    """Store a prompt of some chunks, one after another; returns their keys."""
    keys = [key for *_, key in database.process_tokens([prompt] * CHUNK * chunks)]
    for key in keys:
        chunk = memory.allocate(SHAPE, torch.uint8)
        disk.batched_submit_put_task([key], [chunk])
        chunk.ref_count_down()
        while disk.exists_in_put_tasks(key):
            time.sleep(0.01)
    return keys


long = store(1, 8)
print("a prompt of 8 chunks is stored; a lookup finds", disk.batched_contains(long))
store(2, 1)
there = [number for number, key in enumerate(long) if disk.contains(key)]
found = disk.batched_contains(long)
print("another of 1 chunk is stored, with room for", CHUNKS_ON_DISK)
print("of the first prompt, chunks", there, "are on the disk; a lookup finds", found)
disk.close()
sys.exit(0 if found == len(there) else 1)
