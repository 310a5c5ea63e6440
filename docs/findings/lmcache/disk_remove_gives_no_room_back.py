"""LMCache's local disk counts removed chunks for ever: in the end it stores none."""

import asyncio
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import torch
from lmcache.v1.config import LMCacheEngineConfig
from lmcache.v1.metadata import LMCacheMetadata
from lmcache.v1.storage_backend.local_cpu_backend import LocalCPUBackend
from lmcache.v1.storage_backend.local_disk_backend import LocalDiskBackend
from lmcache.v1.token_database import ChunkedTokenDatabase

CHUNK, BYTES, CHUNKS_ON_DISK = 256, 4096, 4
SHAPE = torch.Size([2, 1, CHUNK, 8])

folder = tempfile.mkdtemp()
config = LMCacheEngineConfig.from_defaults(
    chunk_size=CHUNK,
    local_cpu=False,
    max_local_cpu_size=8 * BYTES / 2**30,
    local_disk=folder,
    max_local_disk_size=CHUNKS_ON_DISK * BYTES / 2**30,
)
model = LMCacheMetadata("model", 1, 1, 0, 0, torch.uint8, (1, 2, CHUNK, 1, 8), chunk_size=CHUNK)
loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()
memory = LocalCPUBackend(config, model)
disk = LocalDiskBackend(config, loop, memory, "cpu", metadata=model)
database = ChunkedTokenDatabase(config, model)


def keys_of(prompt: int) -> list[Any]:
    """The keys of a prompt of four chunks."""
    return [key for *_, key in database.process_tokens([prompt] * CHUNK * CHUNKS_ON_DISK)]


def store(keys: list[Any]) -> int:
    """Store chunks; returns how many of them are on the disk."""
    chunks = [memory.allocate(SHAPE, torch.uint8) for _ in keys]
    disk.batched_submit_put_task(keys, chunks)
    for chunk in chunks:
        chunk.ref_count_down()
    while any(disk.exists_in_put_tasks(key) for key in keys):
        time.sleep(0.01)
    return disk.batched_contains(keys)


first, second = keys_of(1), keys_of(2)
print("room for", CHUNKS_ON_DISK, "chunks")
print("a prompt is stored:     ", store(first), "of 4 chunks are on the disk")
removed = disk.batched_remove(first)
print(removed, "chunks are removed:  ", len(list(Path(folder).iterdir())), "files are left")
stored = store(second)
print("another prompt is stored:", stored, "of 4 chunks are on the disk")
print("and once more:           ", store(second), "of 4")
disk.close()
sys.exit(0 if stored == len(second) else 1)
