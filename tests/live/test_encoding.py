"""The bytes of batches: golden ones, the engines' own, and those of the native encoder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pytest

from fast.caches import insert, new_cache
from in_peer import run_in
from kvcanon.live.decode import decode_batch
from kvcanon.live.dialects import DIALECTS, Dialect
from kvcanon.live.encode import encode_batch
from kvcanon.optimized.snapshot import events_of
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.types import Counts, Namespace
from sent_events import ALL_KINDS, pages_of, stores

if TYPE_CHECKING:
    from kvcanon.optimized.native_types import PackedPart

GOLDEN = Path(__file__).parent / "golden"
AT, RANK = 1.5, 3

ENGINE_ENCODER = """
import json, sys
import msgspec
from {module} import AllBlocksCleared, BlockRemoved, BlockStored, KVEventBatch
kinds = {{each.__name__: each for each in (AllBlocksCleared, BlockRemoved, BlockStored)}}
events = [kinds[fields.pop("type")](**fields) for fields in json.loads(sys.argv[1])]
batch = KVEventBatch({at}, events, {rank})
encoded = msgspec.msgpack.encode(batch)
again = msgspec.msgpack.decode(encoded, type=KVEventBatch)
assert msgspec.msgpack.encode(again) == encoded
print(encoded.hex())
"""
SGLANG_MODULE = "sglang.srt.disaggregation.kv_events"


def golden(dialect: Dialect) -> bytes:
    """The bytes that a batch of all kinds of events must have."""
    return bytes.fromhex((GOLDEN / f"{dialect}.hex").read_text("utf-8"))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_bytes_are_golden(dialect: Dialect) -> None:
    """A batch of all kinds of events has the bytes that were checked against the engines."""
    assert encode_batch(ALL_KINDS, dialect, AT, RANK) == golden(dialect)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("dialect", "release", "module"),
    [
        (Dialect.SGLANG, "sglang==0.5.23", SGLANG_MODULE),
        (Dialect.LEGACY, "sglang==0.5.13", SGLANG_MODULE),
        (Dialect.VLLM, "vllm==0.33.0", "vllm.distributed.kv_events"),
    ],
)
def test_engines_encode_the_same(dialect: Dialect, release: str, module: str) -> None:
    """The engine's own encoder gives the golden bytes for the same events, and reads them."""
    events = [
        {"type": event.kind, **event.fields} for event in decode_batch(golden(dialect)).events
    ]
    code = ENGINE_ENCODER.format(module=module, at=AT, rank=RANK)
    done = run_in(release, "-W", "ignore", "-c", code, json.dumps(events))
    assert done.returncode == 0, done.stderr
    assert bytes.fromhex(done.stdout.split()[-1]) == golden(dialect)


def test_a_namespace_of_ours_is_a_field_that_engines_skip() -> None:
    """An extra key, which no engine sends, is one more field at the end."""
    events = stores(10, namespace=Namespace(extra_key="x"))
    (event,) = decode_batch(encode_batch(events, Dialect.SGLANG, AT)).events
    assert list(event.fields)[-1] == "extra_key"
    assert event.fields["extra_key"] == "x"


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("bigram", [False, True])
def test_native_encoder_gives_the_same_events(dialect: Dialect, bigram: bool) -> None:
    """What the fast cache encodes natively has the fields that the plain encoder gives."""
    config = CacheConfig(
        page_size=4,
        bigram=bigram,
        device_slots=Counts(64),
        host_slots=Counts(64),
        write_policy="write_through",
    )
    caches = new_cache(config), new_cache(config), new_cache(config)
    for cache in caches:
        for number, namespace in enumerate(
            (Namespace(), Namespace("key", "salt", "lora"), Namespace(lora="lora"))
        ):
            prompt = np.arange(40, dtype=np.uint32) * 70_001 + 5
            insert(cache, prompt[: 24 + 8 * number], namespace=cache.namespace(namespace))
            insert(cache, np.r_[prompt[:16], prompt[:8]], namespace=cache.namespace(namespace))
        cache.flush()
        cache.evict(9)
        cache.reset()
    packed, listed = caches[0].take_packed_events(), caches[1].take_events()
    assert len(packed) == len(listed)
    assert packed.pages == sum(event.pages for event in listed)
    natively = packed.encode(DIALECTS.index(dialect), AT, RANK)
    one_by_one = [
        _event_bytes(encode_batch(events_of(caches[1], [each]), dialect, AT, RANK))
        for each in listed
    ]
    assert natively.endswith(b"".join(one_by_one) + bytes([RANK]))
    decoded = msgspec.msgpack.decode(natively)
    assert decoded[::2] == [AT, RANK]
    if dialect is Dialect.SGLANG:
        same_parts(caches[2].take_event_parts(), decoded[1])
        assert caches[2].take_event_parts() == []
    assert len(decoded[1]) == len(listed)
    assert len({str(event) for event in decoded[1]}) > 12
    assert not len(caches[0].take_packed_events())


def same_parts(parts: list[PackedPart], events: list[dict[str, object]]) -> None:
    """The parts of events are, encoded, what the whole events have."""
    kinds = [event["type"] for event in events]
    assert [("BlockStored", "BlockRemoved", "AllBlocksCleared")[each[0]] for each in parts] == kinds
    for (_, _, medium, parent, hashes, tokens), event in zip(parts, events, strict=True):
        if event["type"] == "AllBlocksCleared":
            continue
        assert ("GPU", "CPU_PINNED")[medium] == event["medium"]
        assert hashes == msgspec.msgpack.encode(event["block_hashes"])
        if event["type"] == "BlockStored":
            assert parent == event["parent_block_hash"]
            assert tokens == msgspec.msgpack.encode(event["token_ids"])


def test_a_closed_cache_gives_no_packed_events() -> None:
    """Taking packed events is refused as taking events is."""
    cache = new_cache(CacheConfig(page_size=4, device_slots=Counts(8)))
    cache.close()
    with pytest.raises(BadArgument, match="is closed"):
        cache.take_packed_events()


def _event_bytes(batch: bytes) -> bytes:
    """The bytes of the only event of a batch: what is between its time and its rank."""
    return batch[11:-1]


def test_native_integers_are_the_shortest() -> None:
    """An integer, a text and a list have the shortest form, as in every other encoder."""
    config = CacheConfig(page_size=4, device_slots=Counts(1024))
    cache, other = new_cache(config), new_cache(config)
    numbers = [0, 127, 128, 255, 256, 65535, 65536, 4294967295]
    for each in (cache, other):
        insert(each, np.array(numbers * 512, dtype=np.uint32))
    packed = cache.take_packed_events()
    natively = packed.encode(0, AT, RANK)
    same_parts(other.take_event_parts(), msgspec.msgpack.decode(natively)[1])
    with pytest.raises(ValueError, match="from 0 to 2"):
        packed.encode(3, AT, RANK)
    assert natively == msgspec.msgpack.encode(msgspec.msgpack.decode(natively))


def test_events_of_consecutive_pages_are_one() -> None:
    """Stores that follow each other become one event; another medium or parent begins anew."""
    run = stores(10, 20, 30)
    batch = decode_batch(encode_batch([*run, *run[:1], *stores(50)], Dialect.SGLANG, AT))
    assert [len(event.hashes) for event in batch.events] == [3, 1, 1]
    assert batch.events[0].fields["token_ids"] == [
        token for page in pages_of(10, 20, 30) for token in page
    ]
