"""Where a subscriber can connect, and what it does with frames that no recording has room for."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from command_line import usage_error
from kvcanon.live import Subscriber
from kvcanon.live.discovery import find_sources
from kvcanon.live.endpoints import BadEndpoint
from kvcanon.live.frames import BrokenFrame, Source
from loopback import listening, publisher, until
from sent_events import recorded, stores


@pytest.mark.parametrize(
    "endpoint",
    ["tcp://*:5557", "tcp://127.0.0.1:*", "tcp://a b:5557", "ipc://", f"ipc:///{'x' * 200}"],
)
def test_addresses_that_nobody_can_connect_to_are_refused(endpoint: str) -> None:
    """Those of publishers, and those of replays, which are asked only once a batch is missed."""
    for source in (endpoint, Source("tcp://127.0.0.1:5557", endpoint)):
        with pytest.raises(BadEndpoint, match="is no address to connect to"):
            Subscriber([source])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("tcp://127.0.0.1:" + "9" * 5000,), "has no port"),
        (("tcp://127.0.0.1:٣٣",), "has no port"),
        (("tcp://127.0.0.1:0",), "names port 0, where nobody is"),
        (("tcp://[::1:5557",), "lacks a bracket; give one such as tcp://[::1]:5557"),
        (("tcp://::1]:5557",), "lacks a bracket"),
        (("x" * 9000,), "is no endpoint"),
        (("tcp://127.0.0.1:5557", "--replay", "tcp://127.0.0.1:0"), "names port 0"),
        (("--discover", "dns://a:" + "9" * 5000), "is no name with a port"),
        (("--discover", "dns://[::1]:5557"), "is no name with a port"),
        (("--discover", "dns://a:٣٣"), "is no name with a port"),
        (("--discover", "dns://a:0"), "names port 0; ports are 1 to 65535"),
        (("--discover", "dns://a:70000"), "names port 70000"),
        (("--discover", "dns://a:5557/70000"), "names port 70000"),
    ],
)
def test_addresses_that_nobody_has_are_one_line(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], says: str
) -> None:
    """At once, and not when nothing has come for long; the line is short."""
    line = usage_error(capsys, "watch", *arguments, "--seconds", "0.1")
    assert says in line
    assert len(line) < 500


def test_an_address_of_ipv6_needs_no_brackets() -> None:
    """ZeroMQ splits at the last colon; it connects if it is told that the address is IPv6."""
    try:
        sender = publisher("tcp://[::1]:*")
    except BadEndpoint:
        pytest.skip("this machine has no IPv6")
    with sender, listening(sender.endpoint.replace("[::1]", "::1")) as listener:
        listener.hear(1, lambda: sender.publish(stores(1)))
    assert listener.frames


def test_a_topic_is_any_bytes() -> None:
    """An argument that is no UTF-8 comes as surrogates."""
    with publisher(topic="a") as sender:
        followed = Subscriber([sender.endpoint], topic="\udcff")
        followed.close()


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_list_of_publishers_of_windows_is_read(tmp_path: Path, encoding: str) -> None:
    """With a mark first, in UTF-16, and with line ends of two characters."""
    place = tmp_path / "publishers"
    place.write_bytes("# all\r\ntcp://127.0.0.1:7\r\n\r\n".encode(encoding))
    assert find_sources(str(place)) == [Source("tcp://127.0.0.1:7")]


def test_more_publishers_than_can_be_followed_are_refused() -> None:
    """ZeroMQ has no sockets for many more."""
    with Subscriber([f"tcp://127.0.0.1:{port}" for port in range(1000, 1600)]) as subscriber:
        assert len(subscriber.sources) == 600
    with pytest.raises(BadEndpoint, match="1025 publishers are too many"):
        Subscriber([f"tcp://127.0.0.1:{port}" for port in range(1000, 2025)])


def test_publishers_are_followed_over_ipv6() -> None:
    """Live, and by replay."""
    try:
        sender = publisher("tcp://[::1]:*", replay_endpoint="tcp://[::1]:*")
    except BadEndpoint:
        pytest.skip("this machine has no IPv6")
    with sender:
        for _ in range(3):
            sender.publish(stores(1))
        until(lambda: sender.counts().sent == 3)
        with listening(sender) as listener:
            listener.hear(1, lambda: sender.publish(stores(1)))
    assert (listener.frames[0].sequence, listener.frames[0].replayed) == (0, True)


def test_a_topic_that_no_recording_has_room_for_is_no_frame(tmp_path: Path) -> None:
    """It is counted as malformed, and what comes after it is recorded."""
    with (
        publisher(topic="k" * 0x10000) as broken,
        publisher(topic="k") as sound,
        listening(broken.endpoint, sound.endpoint) as listener,
    ):
        listener.hear_all(lambda: broken.publish(stores(1)), lambda: sound.publish(stores(1)))
        problems = {each.problem for each in listener.got if isinstance(each, BrokenFrame)}
        assert problems == {"has a topic of 65536 bytes, more than 65535"}
        recording = recorded(tmp_path / "a", listener.got, broken.endpoint, sound.endpoint)
    assert [type(each) for each in recording.frames()] == [type(each) for each in listener.got]


def test_a_wait_is_for_the_first_batch() -> None:
    """That a connection is made is nothing that came: who waits gets the batch behind it."""
    with publisher("tcp://127.0.0.1:*", replay_endpoint="tcp://127.0.0.1:*") as sender:
        source = Source(sender.endpoint, sender.replay_endpoint)
        with Subscriber([source]) as subscriber:
            began = time.monotonic()
            assert list(subscriber.receive(0.3)) == []
            assert time.monotonic() - began >= 0.29
            sender.publish(stores(1))
            assert len(list(subscriber.receive(5))) == 1
