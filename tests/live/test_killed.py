"""Publishers and watches are killed and stopped at any point: what a replay has is not lost."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from attrs import define

from kvcanon.lab.servers.server_process import free_ports
from kvcanon.live import Follower, Publisher, Subscriber
from kvcanon.live.audit import audit
from kvcanon.live.recording import BadRecording, open_recording
from kvcanon.live.subscriber import Frame, Source
from kvcanon.spec.events import AllBlocksCleared
from paths import ROOT
from sent_events import CLEARED, batch, store, stores

ANY = "tcp://127.0.0.1:*"
PATIENCE_S = 60.0
PUBLISH = """
import sys, time
from kvcanon.live import Publisher
from kvcanon.spec.events import AllBlocksCleared
from sent_events import stores
endpoint, replay = sys.argv[1:]
with Publisher(endpoint, replay_endpoint=replay, binds_endpoint=True) as sender:
    sender.publish([AllBlocksCleared()])
    for number in range(1_000_000):
        sender.publish(stores(10 * number))
        time.sleep(0.001)
"""


def until(condition: Callable[[], bool], step: Callable[[], object]) -> None:
    """Wait for something that must come."""
    ends = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < ends, "it did not come"
        step()


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
    """Of each run every batch arrives up to the kill, in order and once, and no law is broken."""
    drawn = random.Random(5)
    endpoint, replay = (f"tcp://127.0.0.1:{port}" for port in free_ports(2))
    runs: list[list[int]] = []
    follower, found = Follower(), []
    with Subscriber([Source(endpoint, replay)]) as subscriber:

        def receive() -> None:
            for frame in subscriber.receive(0.05):
                assert isinstance(frame, Frame)
                if frame.sequence == 0:
                    runs.append([])
                runs[-1].append(frame.sequence)
                found.extend(
                    follower.take(
                        frame.sequence, frame.payload, replayed=frame.replayed, anew=frame.anew
                    )
                )

        for number in range(1, 4):
            wanted = drawn.randrange(1, 100)
            with process("-c", PUBLISH, endpoint, replay):
                until(
                    lambda n=number, w=wanted: len(runs) == n and len(runs[-1]) >= w,  # type: ignore[misc]
                    receive,
                )
    assert [numbers == list(range(len(numbers))) for numbers in runs] == [True] * 3
    assert found == []
    assert (follower.counts.restarts, follower.counts.lost) == (2, 0)
    assert follower.books()[0].complete


def watch(sender: Publisher, recording: Path) -> list[str]:
    """The command that watches a publisher, and records it."""
    replay = ["--replay", str(sender.replay_endpoint), "--record", str(recording)]
    return ["-m", "kvcanon", "watch", sender.endpoint, *replay]


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
    with Publisher(ANY, replay_endpoint=ANY, binds_endpoint=True) as sender:

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
                with process(*watch(sender, path)):
                    until(lambda path=path: bool(recorded(path)), lambda: time.sleep(0.1))  # type: ignore[misc]
                    time.sleep(drawn.random())
                numbers = recorded(path)
                assert numbers == list(range(len(numbers)))
                assert audit(open_recording(path)).total == 0
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
    with Publisher(
        ANY, replay_endpoint=ANY, binds_endpoint=True, high_water_mark=5, replay_batches=kept
    ) as sender:
        numbers = iter(range(10_000))
        padding = bytes(200_000)

        def send(pad: bytes = b"", wait_s: float = 0.0) -> None:
            time.sleep(wait_s)
            number = next(numbers)
            events = [store([10 * number]) | {"novel": pad}]
            sender.publish(Sent(batch(*([CLEARED] if number == 0 else []), *events)))

        with process(*watch(sender, path)) as watching:
            until(lambda: bool(recorded(path)), lambda: send(wait_s=0.1))
            watching.send_signal(signal.SIGSTOP)
            for _ in range(300):
                send(padding)
            until(lambda: sender.counts().waiting_pages == 0, lambda: time.sleep(0.01))
            watching.send_signal(signal.SIGCONT)
            last = sender.counts().published
            until(
                lambda: recorded(path)[-1] > last,
                lambda: send(wait_s=0.2),
            )
    seen = recorded(path)
    result = audit(open_recording(path))
    if kept == 20:
        assert set(result.by_law) == {"WIRE-1"}
        assert result.streams[0].counts.lost > 0
        assert result.streams[0].counts.lost == seen[-1] + 1 - len(seen) - seen[0]
    else:
        assert seen == list(range(len(seen)))
        assert result.total == 0
        assert result.streams[0].counts.replayed > 0
