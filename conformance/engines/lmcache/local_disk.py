"""LMCache's local disk as a store of pages: `LocalDiskBackend`, called as by its storage manager.

A page is a chunk. Keys come from LMCache's own token database: the hash of the chunk with its
prefix, the name of the model, the number of workers, the worker and the dtype; a namespace is tags
of the request. Weights, configuration and layout have no field there. A page that is put or got
goes through memory of a `LocalCPUBackend`, which keeps no chunks of its own here.

A put is asynchronous and has no answer: it is waited for, and what `contains` says then is the
answer. The index is in memory, so that a store that is opened over the files of another finds none
of them, nor does a second one that has the folder open: it is neither durable nor shared. A chunk
has one piece of memory, so there are no pools.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from attrs import define, field

from kvcanon.conformance.engines.installed_names import EngineObject, InstalledNames
from kvcanon.conformance.stores.adapter import StoreAdapter, StoreOffer, folder_ground
from kvcanon.spec.stores.calls import Ability
from kvcanon.spec.stores.page_store import PageStore
from kvcanon.spec.stores.pages import PageKey, StoreIdentity

NAMES = InstalledNames(
    "lmcache",
    "LMCache",
    "lmcache==0.5.6",
    {
        "ChunkedTokenDatabase": "lmcache.v1.token_database",
        "LMCacheEngineConfig": "lmcache.v1.config",
        "LMCacheMetadata": "lmcache.v1.metadata",
        "LocalCPUBackend": "lmcache.v1.storage_backend.local_cpu_backend",
        "LocalDiskBackend": "lmcache.v1.storage_backend.local_disk_backend",
        "PinMonitor": "lmcache.v1.pin_monitor",
        "Size": "torch",
        "bfloat16": "torch",
        "float16": "torch",
        "float32": "torch",
        "set_num_threads": "torch",
    },
)
NAMES.version()
os.environ.setdefault("LMCACHE_LOG_LEVEL", "CRITICAL")  # It logs each open, and every miss.
for _name in NAMES.modules:
    NAMES[_name]  # A copy of this process then has all it needs.
NAMES["set_num_threads"](1)  # A copy has no other threads, and would wait for them.

KEYS_AND_VALUES = 2
MEMORY_BYTES = 32 << 20
"""The memory that chunks are copied through: enough for 128 of the largest."""
DISK_BYTES = 1 << 40
"""The size that is configured where the judge sets none: LMCache has no disk without one."""
WAIT_SECONDS = 10.0
"""How long a put and a close are waited for."""


@define(eq=False)
class LmcacheDiskStore:
    """A `PageStore` around a `LocalDiskBackend`, with the loop that its tasks run in."""

    folder: Path
    identity: StoreIdentity
    capacity_bytes: int | None
    loop: asyncio.AbstractEventLoop = field(init=False, factory=asyncio.new_event_loop)
    thread: threading.Thread = field(init=False)
    memory: EngineObject = field(init=False)
    backend: EngineObject = field(init=False)

    def __attrs_post_init__(self) -> None:
        settings = NAMES["LMCacheEngineConfig"].from_defaults(
            chunk_size=self.identity.page_size,
            local_cpu=False,
            max_local_cpu_size=MEMORY_BYTES / 2**30,
            local_disk=str(self.folder),
            max_local_disk_size=(self.capacity_bytes or DISK_BYTES) / 2**30,
        )
        model = _model_of(self.identity)
        NAMES["PinMonitor"].GetOrCreate(settings)
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.memory = NAMES["LocalCPUBackend"](settings, model)
        self.backend = NAMES["LocalDiskBackend"](
            settings, self.loop, self.memory, "cpu", metadata=model
        )

    def put(self, pages: Sequence[tuple[PageKey, bytes]]) -> list[bool]:
        """Submit all chunks that memory is found for, and wait until every task has ended."""
        keys = [self.chunk_key(key) for key, _ in pages]
        made = [self._filled(content) for _, content in pages]
        submitted = [key for key, each in zip(keys, made, strict=True) if each is not None]
        objects = [each for each in made if each is not None]
        try:
            self.backend.batched_submit_put_task(submitted, objects)
        finally:
            _release(objects)
        asyncio.run_coroutine_threadsafe(self._idle(), self.loop).result(WAIT_SECONDS)
        return [self.backend.contains(key) for key in keys]

    def get(self, pages: Sequence[tuple[PageKey, memoryview]]) -> list[int | None]:
        """Get a batch, and copy each chunk into its buffer."""
        found = self.backend.batched_get_blocking([self.chunk_key(key) for key, _ in pages])
        lengths = [_fill(buffer, each) for each, (_, buffer) in zip(found, pages, strict=True)]
        _release([each for each in found if each is not None])
        return lengths

    def exists(self, keys: Sequence[PageKey]) -> list[bool]:
        """Ask for each chunk."""
        return [self.backend.contains(self.chunk_key(key)) for key in keys]

    def leading_run(self, keys: Sequence[PageKey]) -> int:
        """Ask for the leading run, as a lookup does."""
        count: int = self.backend.batched_contains([self.chunk_key(key) for key in keys])
        return count

    def remove(self, keys: Sequence[PageKey]) -> None:
        """Remove chunks."""
        self.backend.batched_remove([self.chunk_key(key) for key in keys])

    def close(self) -> None:
        """Close the backends, and stop the loop."""
        self.backend.close()
        self.memory.close()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(WAIT_SECONDS)
        if not self.thread.is_alive():
            self.loop.close()

    def chunk_key(self, key: PageKey) -> EngineObject:
        """LMCache's key of a page."""
        return chunk_key_of(self.identity, key)

    def _filled(self, content: bytes) -> EngineObject:
        """A memory object with these bytes; None if there is no memory for it."""
        tokens, dtype = self.identity.page_size, NAMES[self.identity.kv_dtype]
        width = len(content) // (KEYS_AND_VALUES * tokens * dtype.itemsize)
        shape = NAMES["Size"]([KEYS_AND_VALUES, 1, tokens, width])
        made = self.memory.allocate(shape, dtype, busy_loop=False)
        if made is not None:
            made.byte_array.cast("B")[:] = content
        return made

    async def _idle(self) -> None:
        """Wait until the queue of tasks is empty and the last has ended, well or not."""
        await self.backend.disk_worker.executor._queue.join()  # noqa: SLF001  # It has no other.


def chunk_key_of(identity: StoreIdentity, key: PageKey) -> EngineObject:
    """LMCache's key of the last chunk of these tokens; the tags of the request are a namespace."""
    space = key.namespace
    named = {"extra_key": space.extra_key, "salt": space.cache_salt, "lora": space.lora}
    tags = {f"lmcache.tag.{name}": value for name, value in named.items() if value is not None}
    chunks = _tokens_of(identity).process_tokens(list(key.tokens), request_configs=tags)
    *_, (_, _, chunk_key) = chunks
    return chunk_key


@cache
def _tokens_of(identity: StoreIdentity) -> EngineObject:
    """The database of tokens that makes the keys of an identity."""
    settings = NAMES["LMCacheEngineConfig"].from_defaults(chunk_size=identity.page_size)
    return NAMES["ChunkedTokenDatabase"](settings, _model_of(identity))


def _model_of(identity: StoreIdentity) -> EngineObject:
    """What LMCache is told of a model and of its worker."""
    return NAMES["LMCacheMetadata"](
        identity.model,
        world_size=identity.ranks,
        local_world_size=identity.ranks,
        worker_id=identity.rank,
        local_worker_id=identity.rank,
        kv_dtype=NAMES[identity.kv_dtype],
        kv_shape=(1, KEYS_AND_VALUES, identity.page_size, 1, 1),
        chunk_size=identity.page_size,
    )


def _fill(buffer: memoryview, found: EngineObject) -> int | None:
    if found is None:
        return None
    data = found.byte_array.cast("B")
    if len(data) > len(buffer):
        return None
    buffer[: len(data)] = data
    return len(data)


def _release(objects: Sequence[EngineObject]) -> None:
    for each in objects:
        each.ref_count_down()


def file_of(folder: Path, identity: StoreIdentity, key: PageKey) -> Sequence[Path]:
    """The file of a page."""
    name = chunk_key_of(identity, key).to_string().replace("/", "-")
    return [folder / f"{name}.pt"]


def _opened(folder: Path, identity: StoreIdentity, capacity_bytes: int | None) -> PageStore:
    return LmcacheDiskStore(folder, identity, capacity_bytes)


DISK = StoreAdapter(
    f"lmcache-disk {NAMES.version()}",
    folder_ground(_opened, file_of),
    StoreOffer(
        frozenset(
            {
                Ability.EVICTS,
                Ability.REMOVES,
                Ability.RUNS,
                Ability.FILES,
                Ability.NAMESPACES,
            }
        ),
        least_capacity_bytes=1,
    ),
)
