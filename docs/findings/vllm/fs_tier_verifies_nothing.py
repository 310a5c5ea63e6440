"""vLLM's fs tier loads damaged blocks, and a store over one repairs nothing."""

import logging
import mmap
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from vllm.v1.kv_offload import config as offloading
from vllm.v1.kv_offload.base import LookupResult, ReqContext, ScheduleEndContext, make_offload_key
from vllm.v1.kv_offload.tiering.base import TransferJob
from vllm.v1.kv_offload.tiering.fs.manager import FileSystemTierManager

logging.disable(logging.CRITICAL)
BYTES, BLOCKS = 4096, 3
KEYS = [make_offload_key(bytes([number]) * 32, 0) for number in range(BLOCKS)]


def server(folder: str):
    """The tier of a server with one rank, and its host of three blocks."""
    config = offloading.OffloadingConfig(
        groups=(offloading.OffloadingGroupConfig(16, ("model.layers.0",), 0),),
        worker_kv_bytes_per_block=BYTES,
        enable_kv_cache_events=False,
        extra_config={},
        engine_id="engine",
        model=offloading.OffloadingModelConfig("model", "float16"),
        cache=offloading.OffloadingCacheConfig(16, 1),
        parallel=offloading.OffloadingParallelConfig(0, 1, 1, 1, 1, 1, 0, 1, None, True),
    )
    spec = SimpleNamespace(config=config, blocks_per_chunk=1, kv_events_config=None)
    memory = memoryview(mmap.mmap(-1, BLOCKS * BYTES))
    tier = FileSystemTierManager(
        spec, memory.cast("B", (BLOCKS, BYTES)), "fs", folder, n_read_threads=1, n_write_threads=1
    )
    return tier, memory


def stored(tier, memory: memoryview) -> bool:
    """Store the three blocks; returns whether the tier says that it did."""
    for at in range(BLOCKS):
        memory[at * BYTES : (at + 1) * BYTES] = bytes([at + 1]) * BYTES
    tier.submit_store(TransferJob(1, KEYS, np.arange(BLOCKS), False, ReqContext("stores")))
    tier.drain_jobs()
    return next(iter(tier.get_finished_jobs())).success


def found(tier, name: str) -> int:
    """How many blocks are there, by what a request is told."""
    request = ReqContext(name)
    while any(tier.lookup(key, request) is LookupResult.RETRY for key in KEYS):
        tier.on_schedule_end(ScheduleEndContext((), ()))
        time.sleep(0.001)
    count = sum(tier.lookup(key, request) is LookupResult.HIT for key in KEYS)
    tier.on_request_finished(request)
    return count


def loaded(tier, memory: memoryview) -> str:
    """Load the three blocks; returns what came."""
    memory[:] = bytes(len(memory))
    tier.submit_load(TransferJob(2, KEYS, np.arange(BLOCKS), True, ReqContext("loads")))
    tier.drain_jobs()
    (result,) = tier.get_finished_jobs()
    came = BLOCKS if result.success else len(result.successful_keys or ())
    blocks = [memory[at * BYTES : (at + 1) * BYTES] for at in range(came)]
    return ", ".join([f"{came} of {BLOCKS}", *(f"{each[0]}..{each[-1]}" for each in blocks)])


wrong = 0
for name, damage in (
    ("half zeroed", lambda data: data[: BYTES // 2] + bytes(BYTES // 2)),
    ("cut", lambda data: data[:1]),
):
    with tempfile.TemporaryDirectory() as folder:
        tier, memory = server(folder)
        stored(tier, memory)
        tier.shutdown()
        (file,) = Path(folder).rglob(KEYS[0][:-4].hex() + ".bin")
        file.write_bytes(damage(file.read_bytes()))
        tier, memory = server(folder)
        print(f"the first of three blocks is {name}: found {found(tier, 'a')}")
        print("  a store of the three again says", stored(tier, memory))
        for turn in "bc":
            there, came = found(tier, turn), loaded(tier, memory)
            print(f"  found {there}, loaded {came}")
            wrong += came != "3 of 3, 1..1, 2..2, 3..3"
        tier.shutdown()
sys.exit(1 if wrong else 0)
