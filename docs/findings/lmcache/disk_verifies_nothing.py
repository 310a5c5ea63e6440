"""LMCache's local disk serves damaged chunks; what a file lacks comes from another prompt."""

import asyncio
import sys
import tempfile
import threading
import time
from pathlib import Path

import torch
from lmcache.v1.config import LMCacheEngineConfig
from lmcache.v1.metadata import LMCacheMetadata
from lmcache.v1.storage_backend.local_cpu_backend import LocalCPUBackend
from lmcache.v1.storage_backend.local_disk_backend import LocalDiskBackend
from lmcache.v1.token_database import ChunkedTokenDatabase

CHUNK, BYTES = 256, 4096
SHAPE = torch.Size([2, 1, CHUNK, 8])

folder = tempfile.mkdtemp()
config = LMCacheEngineConfig.from_defaults(
    chunk_size=CHUNK,
    local_cpu=False,
    max_local_cpu_size=BYTES / 2**30,  # One chunk: the memory that chunks are read through.
    local_disk=folder,
    max_local_disk_size=1,
)
model = LMCacheMetadata("model", 1, 1, 0, 0, torch.uint8, (1, 2, CHUNK, 1, 8), chunk_size=CHUNK)
loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()
memory = LocalCPUBackend(config, model)
disk = LocalDiskBackend(config, loop, memory, "cpu", metadata=model)
database = ChunkedTokenDatabase(config, model)


def key(token: int) -> object:
    """The key of a prompt of one chunk."""
    return next(iter(database.process_tokens([token] * CHUNK)))[2]


def store(token: int) -> None:
    """Store the chunk of a prompt, whose bytes are its token."""
    chunk = memory.allocate(SHAPE, torch.uint8)
    chunk.tensor.fill_(token)
    disk.batched_submit_put_task([key(token)], [chunk])
    chunk.ref_count_down()
    while disk.exists_in_put_tasks(key(token)):
        time.sleep(0.01)


def got(token: int) -> str:
    """What a get gives, as its first and its last bytes."""
    (chunk,) = disk.batched_get_blocking([key(token)])
    if chunk is None:
        return "nothing"
    data = bytes(chunk.byte_array)
    chunk.ref_count_down()
    return f"{len(data)} bytes: {data[:2].hex()} .. {data[-2:].hex()}"


for token in (7, 9):
    store(token)
    print(f"prompt {token} is stored;        a get gives", got(token))

file = Path(folder) / (key(7).to_string() + ".pt")
file.write_bytes(file.read_bytes()[: BYTES // 2])
got(9)
print("its file is cut to half;   a get gives", got(7))
file.write_bytes(bytes([7]) * (BYTES // 2) + bytes(BYTES // 2))
print("its second half is zeroed; a get gives", got(7))
store(7)
after = got(7)
print("it is stored again;        a get gives", after)
disk.close()
sys.exit(0 if after.endswith("0707") else 1)
