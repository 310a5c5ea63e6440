"""After a failed write to LMCache's disk, its chunk is never stored, and its room is lost."""

import asyncio
import gc
import resource
import signal
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
    max_local_cpu_size=64 * BYTES / 2**30,
    local_disk=folder,
    max_local_disk_size=CHUNKS_ON_DISK * BYTES / 2**30,
)
model = LMCacheMetadata("model", 1, 1, 0, 0, torch.uint8, (1, 2, CHUNK, 1, 8), chunk_size=CHUNK)
loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()
memory = LocalCPUBackend(config, model)
disk = LocalDiskBackend(config, loop, memory, "cpu", metadata=model)
database = ChunkedTokenDatabase(config, model)


def store(token: int) -> bool:
    """Store a prompt of one chunk; returns whether it is on the disk a moment later."""
    key: Any = next(iter(database.process_tokens([token] * CHUNK)))[2]
    chunk = memory.allocate(SHAPE, torch.uint8)
    disk.batched_submit_put_task([key], [chunk])
    chunk.ref_count_down()
    time.sleep(0.2)
    return disk.contains(key)


def store_on_full_disk(token: int) -> bool:
    """Store a prompt while no file can be as long as a chunk, as on a disk that is full."""
    most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (BYTES // 2, most[1]))
    try:
        return store(token)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, most)


def hangs(moment: int) -> bool:
    """Whether a release of memory hangs if the garbage collector runs some allocations later."""

    def release() -> None:
        gc.set_threshold(gc.get_count()[0] + moment)
        gc.enable()
        chunk.ref_count_down()
        gc.disable()

    chunk = memory.allocate(SHAPE, torch.uint8)
    thread = threading.Thread(target=release, daemon=True)
    thread.start()
    thread.join(3)
    return thread.is_alive()


signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
gc.disable()
print("room for", CHUNKS_ON_DISK, "chunks")
for token in range(CHUNKS_ON_DISK):
    print(f"the disk is full: chunk {token} is stored:", store_on_full_disk(token))
left = list(Path(folder).iterdir())
print("files left in the folder:", len(left), "of", {each.stat().st_size for each in left}, "bytes")
for each in left:
    each.unlink()
again, new = store(0), store(9)
print("the disk is empty: chunk 0 is stored:", again)
print("the disk is empty: chunk 9 is stored:", new)

# A server's collector runs at any moment. Here it is held back, and let go at one after another.
disk.max_cache_size = 2**30
hung = False
for moment in range(1, 20):
    for token in range(8):
        store_on_full_disk(100 * moment + token)
    hung = hung or hangs(moment)
    if hung:
        break
print("memory is released:", "does not return in 3 s" if hung else "returns")
sys.exit(0 if again and new and not hung else 1)
