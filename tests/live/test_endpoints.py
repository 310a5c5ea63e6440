"""Where a subscriber can connect, and what it does with frames that no recording has room for."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvcanon.live import Publisher, Subscriber
from kvcanon.live.endpoints import BadEndpoint
from kvcanon.live.recording import StreamRecorder, open_recording
from kvcanon.live.subscriber import BrokenFrame, Frame, Source
from sent_events import stores

ANY = "tcp://127.0.0.1:*"


def arriving(subscriber: Subscriber, *senders: Publisher) -> Iterator[Frame | BrokenFrame]:
    """What comes while publishers send."""
    ends = time.monotonic() + 10
    while time.monotonic() < ends:
        for sender in senders:
            sender.publish(stores(1))
        yield from subscriber.receive(0.05)


@pytest.mark.parametrize(
    "endpoint",
    ["tcp://*:5557", "tcp://127.0.0.1:*", "tcp://a b:5557", "ipc://", f"ipc:///{'x' * 200}"],
)
def test_addresses_that_nobody_can_connect_to_are_refused(endpoint: str) -> None:
    """Those of publishers, and those of replays, which are asked only once a batch is missed."""
    with pytest.raises(BadEndpoint, match="is no address to connect to"):
        Subscriber([endpoint])
    with pytest.raises(BadEndpoint, match="is no address to connect to"):
        Subscriber([Source("tcp://127.0.0.1:5557", endpoint)])


def test_more_publishers_than_a_recording_numbers_are_refused() -> None:
    """Their number is a byte there, and ZeroMQ has no sockets for many more."""
    Subscriber([f"tcp://127.0.0.1:{port}" for port in range(1000, 1256)]).close()
    with pytest.raises(BadEndpoint, match="257 publishers are too many"):
        Subscriber([f"tcp://127.0.0.1:{port}" for port in range(1000, 1257)])


def test_publishers_are_followed_over_ipv6() -> None:
    """Live, and by replay."""
    try:
        sender = Publisher("tcp://[::1]:*", replay_endpoint="tcp://[::1]:*", binds_endpoint=True)
    except BadEndpoint:
        pytest.skip("this machine has no IPv6")
    with sender:
        for _ in range(3):
            sender.publish(stores(1))
        with Subscriber([Source(sender.endpoint, sender.replay_endpoint)]) as subscriber:
            first = next(arriving(subscriber, sender), None)
    assert isinstance(first, Frame)
    assert (first.sequence, first.replayed) == (0, True)


def test_a_topic_that_no_recording_has_room_for_is_no_frame(tmp_path: Path) -> None:
    """It is counted as malformed, and what comes after it is recorded."""
    got: list[Frame | BrokenFrame] = []
    with (
        Publisher(ANY, topic="k" * 0x10000, binds_endpoint=True) as broken,
        Publisher(ANY, topic="k", binds_endpoint=True) as sound,
        Subscriber([broken.endpoint, sound.endpoint]) as subscriber,
        StreamRecorder(tmp_path / "a", subscriber.sources) as recorder,
    ):
        for each in arriving(subscriber, broken, sound):
            recorder.write(each)
            got.append(each)
            if {one.source for one in got} == {0, 1}:
                break
    problems = {each.problem for each in got if isinstance(each, BrokenFrame)}
    assert problems == {"has a topic of 65536 bytes, more than 65535"}
    recorded = list(open_recording(tmp_path / "a").frames())
    assert [type(each) for each in recorded] == [type(each) for each in got]
