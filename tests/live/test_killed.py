"""Publishers and watches are killed and stopped at any point: what a replay has is not lost."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from attrs import define

from kvcanon.live import Follower, Publisher
from kvcanon.live.audit import audit
from kvcanon.live.frames import Frame
from kvcanon.live.input_files import BadRecording
from kvcanon.live.stream_recording import open_recording
from kvcanon.spec.events import AllBlocksCleared
from loopback import free_source, listening, publisher, until
from paths import ROOT
from sent_events import CLEARED, batch, store, stores

PUBLISH = """
import sys, time
from kvcanon.spec.events import AllBlocksCleared
from loopback import publisher
from sent_events import stores
endpoint, replay = sys.argv[1:]
with publisher(endpoint, replay_endpoint=replay) as sender:
    sender.publish([AllBlocksCleared()])
    for number in range(1_000_000):
        sender.publish(stores(10 * number))
        time.sleep(0.001)
"""


@contextmanager
def process(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run Python, and kill it at the end."""
    running = subprocess.Popen(
        [sys.executable, *arguments],
        env=os.environ | {"PYTHONPATH": str(ROOT / "tests" / "helpers")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield running
    finally:
        running.kill()
        running.wait()


def test_a_publisher_that_is_killed_and_started_anew_loses_nothing() -> None:
    """Of each run every batch arrives up to the kill, in order and once, and no law is broken.

    It is killed once it was replayed to the end: what it did not replay by then is lost with it.
    """
    drawn = random.Random(5)
    source = free_source()
    runs: list[list[int]] = []
    is_live, follower = False, Follower()
    with listening(source) as listener:

        def receive() -> None:
            nonlocal is_live
            for frame in listener.subscriber.receive(0.05):
                assert isinstance(frame, Frame)
                if frame.sequence == 0:
                    runs.append([])
                runs[-1].append(frame.sequence)
                is_live = not frame.replayed
                assert not follower.take(frame)

        for number in range(1, 4):
            wanted = drawn.randrange(1, 100)
            with process("-c", PUBLISH, source.endpoint, str(source.replay_endpoint)):
                until(
                    lambda n=number, w=wanted: len(runs) == n and len(runs[-1]) >= w and is_live,  # type: ignore[misc]
                    receive,
                )
    assert [numbers == list(range(len(numbers))) for numbers in runs] == [True] * 3
    assert (follower.counts.restarts, follower.counts.lost) == (2, 0)
    assert follower.books()[0].complete


@contextmanager
def watching(sender: Publisher, recording: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that watches a publisher, and records it."""
    replay = ["--replay", str(sender.replay_endpoint), "--record", str(recording)]
    with process("-m", "kvcanon", "watch", sender.endpoint, *replay) as running:
        yield running


def recorded(recording: Path) -> list[int]:
    """The numbers of the frames that are in a file so far."""
    try:
        frames = list(open_recording(recording).frames())
    except BadRecording:
        return []
    return [each.sequence for each in frames if isinstance(each, Frame)]


def test_a_watch_that_is_killed_and_started_anew_misses_nothing(tmp_path: Path) -> None:
    """Each has all batches from the first on, and what a killed one had written is sound."""
    drawn, over = random.Random(6), threading.Event()
    with publisher() as sender:

        def send() -> None:
            sender.publish([AllBlocksCleared()])
            number = 0
            while not over.wait(0.005):
                number += 1
                sender.publish(stores(10 * number))

        sending = threading.Thread(target=send)
        sending.start()
        try:
            for number in range(2):
                path = tmp_path / f"{number}.kvstream"
                with watching(sender, path):
                    until(lambda path=path: bool(recorded(path)), lambda: time.sleep(0.1))  # type: ignore[misc]
                    time.sleep(drawn.random())
                numbers = recorded(path)
                assert numbers == list(range(len(numbers)))
                assert audit(open_recording(path)).streams.total == 0
        finally:
            over.set()
            sending.join()


@define
class Sent:
    """A batch that is encoded already."""

    payload: bytes
    pages: int = 1

    def __len__(self) -> int:
        return 1

    def encode(self, dialect: int, timestamp: float, rank: int) -> bytes:
        """The bytes."""
        return self.payload


@pytest.mark.parametrize("kept", [10_000, 20])
def test_what_is_sent_while_a_watch_is_stopped_is_replayed_or_a_gap(
    kept: int, tmp_path: Path
) -> None:
    """More than the sockets hold is sent meanwhile: nothing is lost, or the gap is WIRE-1."""
    path = tmp_path / "stopped.kvstream"
    numbers = iter(range(10_000))
    with publisher(high_water_mark=5, replay_batches=kept) as sender:

        def send(pad: bytes = b"", wait_s: float = 0.0) -> None:
            time.sleep(wait_s)
            number = next(numbers)
            events = [store([10 * number]) | {"novel": pad}]
            sender.publish(Sent(batch(*([CLEARED] if number == 0 else []), *events)))

        with watching(sender, path) as running:
            until(lambda: bool(recorded(path)), lambda: send(wait_s=0.1))
            running.send_signal(signal.SIGSTOP)
            for _ in range(300):
                send(bytes(200_000))
            until(lambda: sender.counts().waiting_pages == 0)
            running.send_signal(signal.SIGCONT)
            last = sender.counts().published
            until(lambda: recorded(path)[-1] > last, lambda: send(wait_s=0.2))
    seen = recorded(path)
    result = audit(open_recording(path)).streams
    counts = result.followers[0].counts
    if kept == 20:
        assert set(result.by_law()) == {"WIRE-1"}
        assert counts.lost == seen[-1] + 1 - len(seen) - seen[0] > 0
    else:
        assert seen == list(range(len(seen)))
        assert (result.total, counts.replayed > 0) == (0, True)
