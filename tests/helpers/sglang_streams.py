"""Records what SGLang's own cache publishes; SGLang's environment runs it, without a model.

kvcanon's judge plays a case to the cache, with prompts that share beginnings and a device that is
too small. Events are encoded by SGLang's own types, a batch a call. `python sglang_streams.py
FOLDER` writes one recording for each kind of cache.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec
from sglang.srt.disaggregation.kv_events import KVEventBatch

from kvcanon.conformance import JudgeConfig, draw_case, play
from kvcanon.conformance.engines.sglang.adapters import UNIFIED
from kvcanon.conformance.engines.sglang.release import named
from kvcanon.live.frames import Frame, Source
from kvcanon.live.stream_recording import StreamRecorder
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import Counts, WritePolicy

SEEDS = range(40)
"""Of the cases that are tried; the one with most events is recorded."""
CACHES = {
    "sglang-full": CacheConfig(device_slots=Counts(24), page_size=4),
    "sglang-window": CacheConfig(device_slots=Counts(24, 12), page_size=4, window_tokens=8),
    "sglang-hicache": CacheConfig(
        device_slots=Counts(16),
        host_slots=Counts(32),
        page_size=4,
        write_policy=WritePolicy.WRITE_THROUGH,
    ),
    "sglang-write-back": CacheConfig(
        device_slots=Counts(16),
        host_slots=Counts(32),
        page_size=4,
        write_policy=WritePolicy.WRITE_BACK,
    ),
}
"""Prefetches from storage come to the host of the last two."""


def batches_of(seed: int, config: CacheConfig) -> list[list[Any]]:
    """What a cache sends while the case of a seed is played to it."""
    cache = named("UnifiedRadixCache")
    take = cache.take_events
    sent: list[list[Any]] = []

    def heard(self: Any) -> list[Any]:  # noqa: ANN401
        events = list(take(self))
        if events:
            sent.append(events)
        return events

    cache.take_events = heard
    try:
        play(draw_case(seed, UNIFIED.offer, config), [UNIFIED], JudgeConfig(black_box=True))
    finally:
        cache.take_events = take
    return sent


def main() -> None:
    """Record."""
    folder = Path(sys.argv[1])
    for name, config in CACHES.items():
        sent = max((batches_of(seed, config) for seed in SEEDS), key=len)
        with StreamRecorder(folder / f"{name}.kvstream", [Source("tcp://sglang:5557")]) as recorder:
            for number, events in enumerate(sent):
                at = 1_700_000_000.0 + number
                payload = msgspec.msgpack.encode(KVEventBatch(at, events, 0))
                recorder.write(Frame(0, b"kv", number, payload, at))


if __name__ == "__main__":
    main()
