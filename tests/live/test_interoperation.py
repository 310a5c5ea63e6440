"""SGLang and vLLM, each in its own environment: we follow their publishers, they decode ours.

Neither has a subscriber class; its events have types, with which its own routers decode them.
"""

from __future__ import annotations

import json
import time

import numpy as np
import pytest

from fast.caches import insert, new_cache
from in_peer import go_on, line_of, started_in
from kvcanon.live import Follower
from kvcanon.live.decode import decode_batch
from kvcanon.live.dialects import DIALECTS, Dialect
from kvcanon.live.encode import encode_batch
from kvcanon.live.frames import Source
from kvcanon.optimized._core import PackedEvents
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.events import AllBlocksCleared
from kvcanon.spec.types import Counts, Namespace
from loopback import listening, publisher
from sent_events import ALL_KINDS, SALTED

PUBLISH = """
import sys, time
from {module} import AllBlocksCleared, BlockRemoved, BlockStored, KVEventBatch, ZmqEventPublisher
replay = "ipc://{folder}/replay"
publisher = ZmqEventPublisher(0, "ipc://{folder}/events", replay_endpoint=replay, topic="kv")
publisher.publish(KVEventBatch(1.0, [AllBlocksCleared()]))
publisher._event_queue.join()
print("ready", flush=True)
sys.stdin.readline()
number = 0
while True:
    number += 1
    fields = dict(block_hashes=[number], parent_block_hash=number - 1 or None, token_ids=[7, 8],
                  block_size=2, lora_id=None, medium="GPU")
    stored = BlockStored(**fields, **{extra})
    publisher.publish(KVEventBatch(1.0, [stored]))
    time.sleep(0.02)
"""

SUBSCRIBE = """
import sys
import msgspec, zmq
from {module} import KVEventBatch
endpoint, replay, wanted = sys.argv[1], sys.argv[2], int(sys.argv[3])
decoder = msgspec.msgpack.Decoder(type=KVEventBatch)
context = zmq.Context()
live, asking = context.socket(zmq.SUB), context.socket(zmq.DEALER)
live.subscribe(b"kv")
live.connect(endpoint)
asking.connect(replay)
print("ready", flush=True)
topic, first, _ = live.recv_multipart()
asking.send_multipart((b"", (0).to_bytes(8, "big")))
payloads = dict()
while True:
    _, _, number, payload = asking.recv_multipart()
    if int.from_bytes(number, "big", signed=True) < 0:
        break
    payloads[int.from_bytes(number, "big")] = payload
while len(payloads) < wanted:
    _, number, payload = live.recv_multipart()
    payloads[int.from_bytes(number, "big")] = payload
batches = [decoder.decode(payloads[number]) for number in range(wanted)]
told = []
for batch in batches:
    for event in batch.events:
        fields = msgspec.to_builtins(event)
        fields = fields if isinstance(fields, dict) else dict(
            zip(("type", *event.__struct_fields__), fields))
        told.append([type(event).__name__, fields])
ranks = [getattr(batch, batch.__struct_fields__[2]) for batch in batches]
print(msgspec.json.encode([ranks, told]).decode())
"""


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("release", "module", "dialect"),
    [
        ("sglang==0.5.23", "sglang.srt.disaggregation.kv_events", Dialect.SGLANG),
        ("sglang==0.5.13", "sglang.srt.disaggregation.kv_events", Dialect.LEGACY),
        ("vllm==0.33.0", "vllm.distributed.kv_events", Dialect.VLLM),
    ],
)
def test_engines_decode_our_stream(release: str, module: str, dialect: Dialect) -> None:
    """What we publish, live and by replay, packed and listed, an engine's types decode whole."""
    packed = packed_events()
    encoded = (
        encode_batch(ALL_KINDS, dialect, 1.0, 2),
        packed.encode(DIALECTS.index(dialect), 1.0, 2),
    )
    with publisher(topic="kv", dialect=dialect, rank=2) as sender:
        sender.publish(ALL_KINDS)
        sender.publish(packed)
        ends = (sender.endpoint, str(sender.replay_endpoint), "3")
        with started_in(release, "-c", SUBSCRIBE.format(module=module), *ends) as reader:
            line_of(reader, "ready")
            while reader.poll() is None:
                sender.publish([AllBlocksCleared()])
                time.sleep(0.1)
            ranks, told = json.loads(line_of(reader, "["))
    assert ranks == [2, 2, 2]
    wanted = [each for payload in encoded for each in decode_batch(payload).events]
    assert [kind for kind, _ in told] == [*(each.kind for each in wanted), "AllBlocksCleared"]
    for each, (_, fields) in zip(wanted, told, strict=False):
        ours = {name: value for name, value in each.fields.items() if name != "extra_key"}
        assert ours.items() <= fields.items()


def packed_events() -> PackedEvents:
    """Events of the fast cache, in two namespaces and on both media."""
    cache = new_cache(
        CacheConfig(
            page_size=4,
            device_slots=Counts(64),
            host_slots=Counts(64),
            write_policy="write_through",
        )
    )
    for namespace in (Namespace(), SALTED):
        tokens = np.arange(40, dtype=np.uint32)
        insert(cache, tokens, namespace=cache.namespace(namespace))
    cache.flush()
    cache.evict(5)
    return cache.take_packed_events()


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("release", "module", "extra"),
    [
        ("sglang==0.5.23", "sglang.srt.disaggregation.kv_events", "{}"),
        ("vllm==0.33.0", "vllm.distributed.kv_events", "{'lora_name': None}"),
    ],
)
def test_publishers_of_engines_are_followed(
    release: str, module: str, extra: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Who joins late gets the first batches by the engine's own replay, and misses none."""
    folder = tmp_path_factory.mktemp("zmq")
    code = PUBLISH.format(module=module, folder=folder, extra=extra)
    source = Source(f"ipc://{folder}/events", f"ipc://{folder}/replay")
    with started_in(release, "-c", code) as engine:
        line_of(engine, "ready")
        go_on(engine)
        with listening(source) as listener:
            listener.hear(40)
    follower = Follower()
    found = [each for frame in listener.frames for each in follower.take(frame)]
    assert {each.topic for each in listener.frames} == {b"kv"}
    assert not found
    assert follower.counts.replayed >= 1
    assert follower.counts.lost == 0
    assert follower.books()[0].complete
    assert follower.books()[0].blocks() == {"GPU": follower.counts.batches - 1}
