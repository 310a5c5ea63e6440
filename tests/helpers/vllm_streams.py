"""Records what vLLM's own cache manager publishes; vLLM's environment runs it, without a model.

Several requests run at a time, in chunks of prompts, share beginnings, and exceed the device.
Events are encoded by vLLM's own types, a batch a step. `python vllm_streams.py FOLDER` writes one
recording for each kind of cache, and beside it what the manager held before it was reset.
"""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import torch
from vllm import SamplingParams
from vllm.distributed.kv_events import KVEventBatch
from vllm.lora.request import LoRARequest
from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import get_group_id, get_request_block_hasher, init_none_hash
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    KVCacheSpec,
    MambaSpec,
    SlidingWindowSpec,
)
from vllm.v1.request import Request

from kvcanon.live.frames import Frame, Source
from kvcanon.live.stream_recording import StreamRecorder

BLOCK, CHUNK = 4, 12
BLOCKS, AT_ONCE, REQUESTS = 60, 4, 40
LONGEST = 96
FULL = FullAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=1, dtype=torch.uint8)
WINDOW = SlidingWindowSpec(
    block_size=BLOCK, num_kv_heads=1, head_size=1, dtype=torch.uint8, sliding_window=2 * BLOCK
)
STATES = MambaSpec(
    block_size=BLOCK, shapes=((1,),), dtypes=(torch.uint8,), mamba_cache_mode="align"
)
CACHES: dict[str, tuple[KVCacheSpec, ...]] = {
    "vllm-full": (FULL,),
    "vllm-window": (FULL, WINDOW),
    "vllm-states": (FULL, STATES),
    "vllm-reports": (FULL, WINDOW),
}
"""The groups of layers of each cache."""


def requests(drawn: random.Random, hasher: object, *, reports: bool) -> Iterator[Request]:
    """Prompts of which most begin as an earlier one; of some tenants, adapters and images."""
    made: list[list[int]] = []
    for number in range(REQUESTS):
        before = drawn.choice(made) if made and number % 4 else []
        own = [drawn.randrange(100) for _ in range(drawn.randrange(2, 40))]
        prompt = (before[: drawn.randrange(len(before) + 1)] + own)[:LONGEST]
        made.append(prompt)
        kind = number % 8
        images = []
        if kind == 5 and len(prompt) > 3 * BLOCK:
            at = PlaceholderRange(offset=BLOCK + 1, length=BLOCK)
            images = [MultiModalFeatureSpec(None, "image", f"image-{number % 2}", at)]
        yield Request(
            str(number),
            prompt,
            SamplingParams(
                max_tokens=8, extra_args={"kv_cache_report_mode": "full"} if reports else None
            ),
            None,
            mm_features=images,
            cache_salt="tenant" if kind == 3 else None,
            lora_request=LoRARequest("tuned", 1, "nowhere") if kind == 6 else None,
            block_hasher=hasher,
        )


def manager_of(groups: tuple[KVCacheSpec, ...]) -> KVCacheManager:
    """An empty manager with these groups."""
    config = KVCacheConfig(
        num_blocks=BLOCKS,
        kv_cache_tensors=[],
        kv_cache_groups=[KVCacheGroupSpec([str(n)], spec) for n, spec in enumerate(groups)],
    )
    return KVCacheManager(
        config,
        max_model_len=2 * LONGEST,
        scheduler_block_size=BLOCK,
        hash_block_size=BLOCK,
        enable_kv_cache_events=True,
    )


def step(manager: KVCacheManager, running: list[Request], waiting: list[Request]) -> None:
    """Give each running request a chunk or a token, and admit others while there is room."""
    for request in list(running):
        if request not in running:
            continue
        if request.num_computed_tokens == request.num_tokens:
            if request.num_output_tokens == 8:
                running.remove(request)
                manager.free(request)
                continue
            request.append_output_token_ids(request.num_tokens % 100)
        advance(manager, request, running, waiting)
    while waiting and len(running) < AT_ONCE:
        request = waiting[0]
        found, cached, boundary = manager.get_computed_blocks(request)
        request.shared_prefix_boundary = boundary
        count = min(CHUNK, request.num_tokens - cached)
        if manager.allocate_slots(request, count, cached, found) is None:
            return
        running.append(waiting.pop(0))
        request.num_computed_tokens = cached + count


def advance(
    manager: KVCacheManager, request: Request, running: list[Request], waiting: list[Request]
) -> None:
    """Compute a chunk of a request; where there is no room the last one is preempted."""
    count = min(CHUNK, request.num_tokens - request.num_computed_tokens)
    while manager.allocate_slots(request, count) is None:
        last = running.pop()
        manager.free(last)
        last.num_computed_tokens = 0
        waiting.insert(0, last)
        if last is request:
            return
    request.num_computed_tokens += count


def held_by(manager: KVCacheManager) -> dict[int, int]:
    """The blocks that can be hit, by group of layers."""
    known = manager.block_pool.cached_block_hash_to_block._cache
    return dict(sorted(Counter(get_group_id(each) for each in known).items()))


def batches(manager: KVCacheManager, *, reports: bool) -> Iterator[bytes]:
    """The batches of a run."""
    init_none_hash(sha256)
    hasher = get_request_block_hasher(BLOCK, sha256)
    waiting = list(requests(random.Random(1), hasher, reports=reports))
    running: list[Request] = []
    at = 0.0
    while waiting or running:
        manager.new_step_starts()
        step(manager, running, waiting)
        at += 1.0
        events = manager.take_events()
        if events:
            yield msgspec.msgpack.encode(KVEventBatch(at, events, 0))


def main() -> None:
    """Record."""
    folder = Path(sys.argv[1])
    held = {}
    for name, groups in CACHES.items():
        manager = manager_of(groups)
        payloads = batches(manager, reports=name == "vllm-reports")
        path = folder / f"{name}.kvstream"
        with StreamRecorder(path, [Source("tcp://vllm:5557")]) as recorder:
            for number, payload in enumerate(payloads):
                recorder.write(Frame(0, b"kv", number, payload, 1_700_000_000.0 + number))
        held[name] = held_by(manager)
    (folder / "vllm-held.json").write_text(json.dumps(held) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
