"""An async load from LMCache's disk that lacks memory keeps the lock, and gives unread memory."""

import asyncio
import sys
import tempfile
import threading
import time
from typing import Any

import torch
from lmcache.v1.config import LMCacheEngineConfig
from lmcache.v1.metadata import LMCacheMetadata
from lmcache.v1.pin_monitor import PinMonitor
from lmcache.v1.storage_backend.local_cpu_backend import LocalCPUBackend
from lmcache.v1.storage_backend.local_disk_backend import LocalDiskBackend
from lmcache.v1.token_database import ChunkedTokenDatabase

CHUNK, BYTES, CHUNKS_IN_MEMORY = 256, 4096, 2
SHAPE = torch.Size([2, 1, CHUNK, 8])

config = LMCacheEngineConfig.from_defaults(
    chunk_size=CHUNK,
    local_cpu=False,
    max_local_cpu_size=CHUNKS_IN_MEMORY * BYTES / 2**30,
    local_disk=tempfile.mkdtemp(),
    max_local_disk_size=1,
)
model = LMCacheMetadata("model", 1, 1, 0, 0, torch.uint8, (1, 2, CHUNK, 1, 8), chunk_size=CHUNK)
loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()
PinMonitor.GetOrCreate(config)
memory = LocalCPUBackend(config, model)
disk = LocalDiskBackend(config, loop, memory, "cpu", metadata=model)
database = ChunkedTokenDatabase(config, model)


def store(keys: list[Any], values: list[int]) -> None:
    """Store chunks, one after another, each filled with a value."""
    for key, value in zip(keys, values, strict=True):
        chunk = memory.allocate(SHAPE, torch.uint8)
        chunk.tensor.fill_(value)
        disk.batched_submit_put_task([key], [chunk])
        chunk.ref_count_down()
        while disk.exists_in_put_tasks(key):
            time.sleep(0.01)


keys = [key for *_, key in database.process_tokens([1] * CHUNK * 3)]
other = [key for *_, key in database.process_tokens([2] * CHUNK)]
store(keys, [1, 2, 3])
store(other, [99])
print("a prompt of 3 chunks is stored, with the bytes 1, 2, 3, then another, with 99")
loading = disk.batched_get_non_blocking("request", keys)
loaded = asyncio.run_coroutine_threadsafe(loading, loop).result(10)
values = [bytes(chunk.byte_array)[0] for chunk in loaded]
print("the prompt is loaded through memory for", CHUNKS_IN_MEMORY, "chunks:", values)
answers: list[bool] = []
asker = threading.Thread(target=lambda: answers.append(disk.contains(keys[0])), daemon=True)
asker.start()
asker.join(5)
print("contains, afterwards:", answers[0] if answers else "does not return in 5 s")
sys.exit(0 if answers and values == [1, 2] else 1)
