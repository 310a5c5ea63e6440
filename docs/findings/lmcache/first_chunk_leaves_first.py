"""LMCache evicts the first chunk of a stored prompt first, and finds none of the others."""

import sys

import torch
from lmcache.v1.cache_engine import LMCacheEngine
from lmcache.v1.config import LMCacheEngineConfig
from lmcache.v1.gpu_connector.mock_gpu_connector import MockGPUConnector
from lmcache.v1.metadata import LMCacheMetadata
from lmcache.v1.token_database import ChunkedTokenDatabase

CHUNK, CHUNKS_IN_MEMORY = 256, 4
SHAPE = (1, 2, CHUNK, 1, 8)  # A chunk takes 4,096 bytes, the alignment of the allocator.

config = LMCacheEngineConfig.from_defaults(
    chunk_size=CHUNK, local_cpu=True, max_local_cpu_size=CHUNKS_IN_MEMORY * 4096 / 2**30
)
model = LMCacheMetadata("model", 1, 1, 0, 0, torch.uint8, SHAPE, chunk_size=CHUNK)
database = ChunkedTokenDatabase(config, model)
engine = LMCacheEngine(config, model, database, MockGPUConnector(SHAPE), print, print)
engine.post_init()


def serve(prompt: list[int]) -> int:
    """Serve a prompt: look up, give the pins back, store the rest. Returns the chunks found."""
    found = engine.lookup(prompt, lookup_id="request", pin=True)
    engine.lookup_unpin("request")
    engine.store(prompt, mask=torch.arange(len(prompt)) >= found)
    return found // CHUNK


long, short = list(range(4 * CHUNK)), [7] * CHUNK
print("a prompt of 4 chunks:     finds", serve(long))
print("another one, of 1 chunk:  finds", serve(short))
cached = engine.storage_manager.local_cpu_backend.get_keys()
there = [number for number, (*_, key) in enumerate(database.process_tokens(long)) if key in cached]
found = engine.lookup(long) // CHUNK
print("of the first prompt, the chunks", there, "are in memory")
print("the first prompt again:   finds", found)
engine.close()
sys.exit(0 if found == len(there) else 1)
