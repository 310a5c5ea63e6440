"""Two LMCache servers over one local disk folder overwrite and remove each other's chunks."""

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

CHUNK, BYTES, CHUNKS_ON_DISK = 256, 4096, 2
SHAPE = torch.Size([2, 1, CHUNK, 8])

folder = tempfile.mkdtemp()
loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()
config = LMCacheEngineConfig.from_defaults(
    chunk_size=CHUNK,
    local_cpu=False,
    max_local_cpu_size=4 * BYTES / 2**30,
    local_disk=folder,
    max_local_disk_size=CHUNKS_ON_DISK * BYTES / 2**30,
)
# What vLLM's connector passes for rank 0, in each data-parallel replica and in each server.
model = LMCacheMetadata("model", 1, 1, 0, 0, torch.uint8, (1, 2, CHUNK, 1, 8), chunk_size=CHUNK)


class Server:
    """The local disk of a server, with the weights that its bytes are of."""

    def __init__(self, weights: int) -> None:
        self.weights = weights
        self.memory = LocalCPUBackend(config, model)
        self.disk = LocalDiskBackend(config, loop, self.memory, "cpu", metadata=model)
        self.database = ChunkedTokenDatabase(config, model)

    def key(self, token: int) -> Any:
        """The key of a prompt of one chunk."""
        return next(iter(self.database.process_tokens([token] * CHUNK)))[2]

    def store(self, token: int) -> str:
        """Store the chunk of a prompt."""
        chunk = self.memory.allocate(SHAPE, torch.uint8)
        chunk.tensor.fill_(self.weights)
        try:
            self.disk.batched_submit_put_task([self.key(token)], [chunk])
        except OSError as error:
            return f"raises {type(error).__name__}"
        while self.disk.exists_in_put_tasks(self.key(token)):
            time.sleep(0.01)
        return "is done"

    def get(self, token: int) -> str:
        """What contains says of a prompt, and what a get gives."""
        words = f"contains says {self.disk.contains(self.key(token))}"
        try:
            (chunk,) = self.disk.batched_get_blocking([self.key(token)])
        except KeyError:
            return f"{words}, a get raises KeyError"
        if chunk is None:
            return f"{words}, a get gives nothing"
        return f"{words}, a get gives keys and values of weights {bytes(chunk.byte_array)[0]}"


one, two = Server(weights=1), Server(weights=2)
one.store(7)
two.store(7)
print("server 1 stores prompt 7, and server 2, which has other weights")
wrong = one.get(7)
print("server 1:", wrong)
one.store(8)
two.store(8)
print("both store prompt 8; each has room for", CHUNKS_ON_DISK, "chunks")
two.store(9)
print("server 2 stores 9, and evicts 7")
gone = one.get(7)
print("server 1:", gone)
two.store(10)
print("server 2 stores 10, and evicts 8")
raised = one.store(11)
print("server 1: a store of 11", raised)
one.disk.close()
two.disk.close()
sys.exit(1 if "weights 2" in wrong or "raises" in gone + raised else 0)
