"""vLLM's fs tier gives blocks of other weights, RoPE and layout: its names have none of them."""

import logging
import mmap
import sys
import tempfile
import time
from types import SimpleNamespace

import numpy as np
from vllm.v1.kv_offload import config as offloading
from vllm.v1.kv_offload.base import LookupResult, ReqContext, ScheduleEndContext, make_offload_key
from vllm.v1.kv_offload.tiering.base import TransferJob
from vllm.v1.kv_offload.tiering.fs.manager import FileSystemTierManager

logging.disable(logging.CRITICAL)
BYTES = 4096
BLOCK = make_offload_key(b"\x5d" * 32, 0)  # The hash of a block: of its tokens alone.


def server(folder: str, dtype: str = "float16", layout: str = "NHD"):
    """The tier of a server of /models/chat with one rank, and its host of one block."""
    config = offloading.OffloadingConfig(
        groups=(offloading.OffloadingGroupConfig(16, ("model.layers.0",), 0),),
        worker_kv_bytes_per_block=BYTES,
        enable_kv_cache_events=False,
        extra_config={},
        engine_id="engine",
        model=offloading.OffloadingModelConfig("/models/chat", dtype),
        cache=offloading.OffloadingCacheConfig(16, 1),
        parallel=offloading.OffloadingParallelConfig(0, 1, 1, 1, 1, 1, 0, 1, None, True),
        kv_cache_layout=layout,
    )
    spec = SimpleNamespace(config=config, blocks_per_chunk=1, kv_events_config=None)
    memory = memoryview(mmap.mmap(-1, BYTES))
    tier = FileSystemTierManager(
        spec, memory.cast("B", (1, BYTES)), "fs", folder, n_read_threads=1, n_write_threads=1
    )
    return tier, memory


def ended(tier, submit) -> bool:
    """Whether a job with the block goes well."""
    submit(TransferJob(1, [BLOCK], np.array([0]), False, ReqContext("job")))
    tier.drain_jobs()
    (result,) = tier.get_finished_jobs()
    return result.success


def is_there(tier) -> bool:
    """What the tier says to a request that asks for the block."""
    request = ReqContext("asks")
    while (found := tier.lookup(BLOCK, request)) is LookupResult.RETRY:
        tier.on_schedule_end(ScheduleEndContext((), ()))
        time.sleep(0.001)
    tier.on_request_finished(request)
    return found is LookupResult.HIT


def stored_and_read(tier, memory: memoryview, value: int) -> int:
    """The block that is read after a server has stored its own."""
    memory[:] = bytes([value]) * BYTES
    assert ended(tier, tier.submit_store)
    memory[:] = bytes(BYTES)
    assert ended(tier, tier.submit_load)
    return memory[0]


with tempfile.TemporaryDirectory() as folder:
    tier, memory = server(folder)
    print(
        "server 1, /models/chat, float16, NHD: stores and reads", stored_and_read(tier, memory, 1)
    )
    tier.shutdown()
    wrong = 0
    # Another checkpoint is copied to /models/chat, or its config.json gets another rope_theta.
    for name, other in (
        ("other weights or RoPE in the same place", {}),
        ("layout HND", {"layout": "HND"}),
        ("bfloat16", {"dtype": "bfloat16"}),
    ):
        tier, memory = server(folder, **other)
        found = is_there(tier)
        got = stored_and_read(tier, memory, 2)
        print(f"server 2, {name}: lookup says {found}; stores 2, and reads {got}")
        wrong += got != 2
        tier.shutdown()
sys.exit(1 if wrong else 0)
