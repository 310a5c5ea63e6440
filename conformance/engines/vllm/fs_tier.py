"""vLLM's `fs` tier as a store of pages: a `FileSystemTierManager` below an engine's host tier.

A page is a block of one group of layers. vLLM names it by the hash of the request that computed it,
and its folder by the model, the KV dtype, the block size and the number of ranks. The tier runs in
the scheduler, and a block has the bytes of all ranks, so that it has no notion of one rank.

Blocks have one size, that of an engine's configuration: no smaller buffer gets anything. As an
engine does, a get looks which blocks are there, and loads these in one job; a job ends at the first
block that cannot be read. There is no remove and no limit to the folder. The judge interrupts a put
at a look whether its job has ended.
"""

from __future__ import annotations

import logging
import mmap
import os
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from types import SimpleNamespace

from attrs import define, field

from kvcanon.conformance.engines.installed_names import EngineObject, InstalledNames
from kvcanon.conformance.engines.vllm.factory import NAMES as ENGINE_NAMES
from kvcanon.conformance.engines.vllm.prompts import make_request
from kvcanon.conformance.stores.adapter import StoreAdapter, StoreOffer, folder_ground
from kvcanon.spec.stores.calls import Ability
from kvcanon.spec.stores.page_store import PageStore
from kvcanon.spec.stores.pages import PageKey, StoreIdentity
from kvcanon.spec.types import make_key

_BASE = "vllm.v1.kv_offload"
NAMES = InstalledNames(
    "vllm",
    "vLLM",
    "vllm==0.33.0",
    {
        "FileMapper": f"{_BASE}.file_mapper",
        "FileSystemTierManager": f"{_BASE}.tiering.fs.manager",
        "LookupResult": f"{_BASE}.base",
        "OffloadingCacheConfig": f"{_BASE}.config",
        "OffloadingConfig": f"{_BASE}.config",
        "OffloadingGroupConfig": f"{_BASE}.config",
        "OffloadingModelConfig": f"{_BASE}.config",
        "OffloadingParallelConfig": f"{_BASE}.config",
        "ReqContext": f"{_BASE}.base",
        "ScheduleEndContext": f"{_BASE}.base",
        "TransferJob": f"{_BASE}.tiering.base",
        "array": "numpy",
        "make_offload_key": f"{_BASE}.base",
    },
    quiet=True,
)
NAMES.version()
for _names in (ENGINE_NAMES, NAMES):
    for _name in _names.modules:
        _names[_name]  # A copy of this process then has all it needs.
# Only now, since vLLM sets its levels when it is imported. It logs every job that fails.
logging.getLogger("vllm").setLevel(logging.CRITICAL)

PAGE_BYTES = 4096
"""Of four tokens at two bytes a value: whole blocks of a disk, as those of models are."""
BLOCKS = 256
"""Blocks of the host tier that the pages go through, more than a call has."""
THREADS = 2
"""Of each kind; by itself vLLM takes sixteen."""
LATE_SECONDS = 20.0
"""How long a job is waited for."""


@define(eq=False)
class VllmFsStore:
    """A `PageStore` around a `FileSystemTierManager`, and the host memory that it copies from."""

    folder: Path
    identity: StoreIdentity
    block_bytes: int = field(init=False)
    memory: memoryview = field(init=False)
    tier: EngineObject = field(init=False)
    numbers: count[int] = field(init=False, factory=count)

    def __attrs_post_init__(self) -> None:
        # As an engine does when it starts; the hash of each block begins there.
        ENGINE_NAMES["init_none_hash"](ENGINE_NAMES["sha256"])
        self.block_bytes = bytes_of_block(self.identity)
        flat = memoryview(mmap.mmap(-1, BLOCKS * self.block_bytes))
        self.memory = flat.cast("B", (BLOCKS, self.block_bytes))
        self.tier = NAMES["FileSystemTierManager"](
            _spec_of(self.identity),
            self.memory,
            "fs",
            str(self.folder),
            n_read_threads=THREADS,
            n_write_threads=THREADS,
        )

    def put(self, pages: Sequence[tuple[PageKey, bytes]]) -> list[bool]:
        """Store blocks in one job; its answer is that of each block."""
        flat, size = self.memory.cast("B"), self.block_bytes
        for at, (_, content) in enumerate(pages):
            flat[at * size : (at + 1) * size] = content
        done = self._done(self.tier.submit_store, [self.name_of(key) for key, _ in pages])
        return [done.success] * len(pages)

    def get(self, pages: Sequence[tuple[PageKey, memoryview]]) -> list[int | None]:
        """Load the blocks that are there in one job, and copy them."""
        names = [self.name_of(key) for key, _ in pages]
        there = self._look(names)
        wanted = [
            at
            for at, (_, buffer) in enumerate(pages)
            if there[at] and len(buffer) >= self.block_bytes
        ]
        loaded = self._loaded([names[at] for at in wanted])
        flat, size = self.memory.cast("B"), self.block_bytes
        lengths: list[int | None] = [None] * len(pages)
        for row, at in enumerate(wanted[:loaded]):
            pages[at][1][:size] = flat[row * size : (row + 1) * size]
            lengths[at] = size
        return lengths

    def exists(self, keys: Sequence[PageKey]) -> list[bool]:
        """Look for each block."""
        return self._look([self.name_of(key) for key in keys])

    def leading_run(self, keys: Sequence[PageKey]) -> int:
        """Look for all blocks, and count those before the first that is not there."""
        there = self.exists(keys)
        return there.index(False) if False in there else len(there)

    def remove(self, keys: Sequence[PageKey]) -> None:
        """It is not offered."""
        raise NotImplementedError

    def close(self) -> None:
        """End the threads."""
        self.tier.shutdown()

    def name_of(self, key: PageKey) -> bytes:
        """What vLLM calls a block of the one group."""
        return offload_key_of(self.identity, key)

    def _look(self, names: Sequence[bytes]) -> list[bool]:
        """Ask until the tier has looked for every block, as a request that waits does."""
        results, request = NAMES["LookupResult"], self._request()
        self.tier.on_new_request(request)
        found = [self.tier.lookup(name, request) for name in names]
        until = time.monotonic() + LATE_SECONDS
        while results.RETRY in found:
            self.tier.on_schedule_end(NAMES["ScheduleEndContext"]((), ()))
            _wait(until)
            found = [self.tier.lookup(name, request) for name in names]
        self.tier.on_request_finished(request)
        return [each is results.HIT for each in found]

    def _loaded(self, names: Sequence[bytes]) -> int:
        """Load blocks into the first of the host; returns how many came, from the first on."""
        if not names:
            return 0
        done = self._done(self.tier.submit_load, names)
        return len(names) if done.success else len(done.successful_keys or ())

    def _done(self, submit: EngineObject, names: Sequence[bytes]) -> EngineObject:
        """What came of a job with the first blocks of the host."""
        number = next(self.numbers)
        rows = NAMES["array"](range(len(names)))
        is_promotion = submit == self.tier.submit_load
        submit(NAMES["TransferJob"](number, names, rows, is_promotion, self._request()))
        until = time.monotonic() + LATE_SECONDS
        while True:
            ended = [each for each in self.tier.get_finished_jobs() if each.job_id == number]
            if ended:
                return ended[0]
            _wait(until)

    def _request(self) -> EngineObject:
        return NAMES["ReqContext"](str(next(self.numbers)))


def bytes_of_block(identity: StoreIdentity) -> int:
    """The bytes of a block in an engine of this identity."""
    width = 2 if identity.kv_dtype == "float32" else 1
    return PAGE_BYTES * width * identity.page_size // 4


def offload_key_of(identity: StoreIdentity, key: PageKey) -> bytes:
    """The hash of a block in a request, with its group."""
    prompt = make_key(key.tokens, identity.page_size, key.namespace)
    request = make_request(0, prompt, identity.page_size)
    made: bytes = NAMES["make_offload_key"](request.block_hashes[-1], 0)
    return made


def _wait(until: float) -> None:
    if time.monotonic() > until:
        raise TimeoutError(f"the tier did not end its work in {LATE_SECONDS} s")
    os.sched_yield()  # A call that the judge counts.
    time.sleep(0.000_1)


def _spec_of(identity: StoreIdentity) -> EngineObject:
    """What the tier reads of an `OffloadingSpec`: its configuration, and blocks of one block."""
    config = NAMES["OffloadingConfig"](
        groups=(NAMES["OffloadingGroupConfig"](identity.page_size, ("layers.0",), 0),),
        worker_kv_bytes_per_block=bytes_of_block(identity) // identity.ranks,
        enable_kv_cache_events=False,
        extra_config={},
        engine_id="engine",
        model=NAMES["OffloadingModelConfig"](identity.model, identity.kv_dtype),
        cache=NAMES["OffloadingCacheConfig"](identity.page_size, 1),
        parallel=NAMES["OffloadingParallelConfig"](
            rank=0,
            world_size=identity.ranks,
            tp_size=identity.ranks,
            pp_size=1,
            pcp_size=1,
            dcp_size=1,
            data_parallel_index=0,
            data_parallel_size=1,
            data_parallel_rank_local=None,
            is_parallelism_agnostic=False,
        ),
        kv_cache_layout=identity.layout,
    )
    return SimpleNamespace(config=config, blocks_per_chunk=1, kv_events_config=None)


def _opened(folder: Path, identity: StoreIdentity, _: int | None) -> PageStore:
    return VllmFsStore(folder, identity)


def _files(folder: Path, identity: StoreIdentity, key: PageKey) -> Sequence[Path]:
    mapper = NAMES["FileMapper"].from_offloading_spec(
        root_dir=str(folder), offloading_spec=_spec_of(identity), parallel_agnostic=True
    )
    return [Path(mapper.get_file_name(offload_key_of(identity, key)))]


FS = StoreAdapter(
    f"vllm-fs {NAMES.version()}",
    folder_ground(_opened, _files),
    StoreOffer(
        frozenset(
            {
                Ability.DURABLE,
                Ability.SHARED,
                Ability.RUNS,
                Ability.FILES,
                Ability.NAMESPACES,
            }
        ),
        identity_fields=("weights", "config", "kv_dtype", "layout", "page_size", "ranks"),
        page_bytes=(PAGE_BYTES,),
    ),
)
