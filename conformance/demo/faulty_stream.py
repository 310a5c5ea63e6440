"""A stream of KV events with one fault: an engine evicts a prompt and does not tell its routers.

It is made by the plain cache, which serves a few prompts; the events of one eviction are left out.
Then the prompt is computed again, and stored for a second time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from kvcanon.live.dialects import Dialect
from kvcanon.live.encode import encode_batch
from kvcanon.live.frames import Frame, Source
from kvcanon.live.stream_recording import StreamRecorder
from kvcanon.reference import ReferenceCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import OutOfSlots
from kvcanon.spec.events import BlockRemoved, Event
from kvcanon.spec.types import Counts, Key, make_key

PAGE, PAGES = 16, 4
"""Tokens of a page, and pages of a prompt."""
PROMPTS = 6
"""How many prompts are served; the device has room for half of them."""
UNSENT = 3
"""The batch of which the removes are not sent."""
ENDPOINT = "tcp://engine:5557"
BEGAN = 1_700_000_000.0
"""When the first batch was sent, in seconds since 1970."""


def record_faulty_stream(path: Path) -> None:
    """Write the stream as a file of `kvcanon watch --record`. Raises: OSError."""
    with StreamRecorder(path, [Source(ENDPOINT)]) as recorder:
        for number, events in enumerate(_batches()):
            kept = events
            if number == UNSENT:
                kept = [each for each in events if not isinstance(each, BlockRemoved)]
            at = BEGAN + number
            payload = encode_batch(kept, Dialect.VLLM, at)
            recorder.write(Frame(0, b"", number, payload, at))


def _batches() -> Iterator[Sequence[Event]]:
    """The events of each prompt that is served, and at the end of the first prompts again."""
    room = Counts(full=PROMPTS // 2 * PAGES)
    cache = ReferenceCache(CacheConfig(device_slots=room, page_size=PAGE))
    for number in (*range(PROMPTS), 0, 1):
        _serve(cache, make_key(range(number * 1_000, number * 1_000 + PAGE * PAGES), PAGE))
        yield cache.take_events()


def _serve(cache: ReferenceCache, key: Key) -> None:
    """Compute a prompt, evicting as much as it needs."""
    cached = cache.match(key).device_pages
    missing = Counts(full=len(key) - cached)
    try:
        slots = cache.allocate(missing)
    except OutOfSlots:
        cache.evict(missing)
        slots = cache.allocate(missing)
    cache.insert(key, cached, slots)
