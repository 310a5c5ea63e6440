"""The publishers of SGLang and vLLM, each in its own environment, are followed as they are."""

from __future__ import annotations

import subprocess
import time

import pytest

from in_peer import peer
from kvcanon.live import Follower, Subscriber
from kvcanon.live.subscriber import Frame, Source

PUBLISH = """
import sys, time
from {module} import AllBlocksCleared, BlockRemoved, BlockStored, KVEventBatch, ZmqEventPublisher
replay = "ipc://{folder}/replay"
publisher = ZmqEventPublisher(0, "ipc://{folder}/events", replay_endpoint=replay, topic="kv")
print("ready", flush=True)
publisher.publish(KVEventBatch(1.0, [AllBlocksCleared()]))
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
    there = peer(release)
    folder = tmp_path_factory.mktemp("zmq")
    code = PUBLISH.format(module=module, folder=folder, extra=extra)
    engine = subprocess.Popen(
        [str(there.python), "-W", "ignore", "-c", code],
        env=there.variables,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert engine.stdin is not None
        assert engine.stdout is not None
        while "ready" not in (line := engine.stdout.readline()):
            assert line, "the engine's publisher ended"
        engine.stdin.write("\n")
        engine.stdin.flush()
        follower, found, replayed = Follower(), [], 0
        source = Source(f"ipc://{folder}/events", f"ipc://{folder}/replay")
        with Subscriber([source]) as subscriber:
            end = time.monotonic() + 30
            while follower.counts.batches < 40:
                assert time.monotonic() < end
                for frame in subscriber.receive(0.1):
                    assert isinstance(frame, Frame)
                    assert frame.topic == b"kv"
                    replayed += frame.replayed
                    found += follower.take(
                        frame.sequence, frame.payload, replayed=frame.replayed, anew=frame.anew
                    )
    finally:
        engine.kill()
        engine.communicate()
    assert not found
    assert replayed >= 1
    assert follower.counts.lost == 0
    assert follower.books()[0].complete
    assert follower.books()[0].blocks() == {"GPU": follower.counts.batches - 1}
