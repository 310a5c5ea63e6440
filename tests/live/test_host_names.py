"""Publishers by their host names: looked up beside the watch, again and again."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import zmq

from kvcanon.live import Subscriber, host_names
from kvcanon.live.endpoints import BadEndpoint
from kvcanon.live.frames import Frame, Source
from kvcanon.live.host_names import HostNames, address_of
from kvcanon.spec.events import AllBlocksCleared
from loopback import publisher, until

PAYLOAD = b"a batch"
Known = dict[str, str | threading.Event]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[Known]:
    """A name server: an address, or what it waits for before it knows none."""
    known: Known = {}

    def look_up(host: str, *_given: object, **_named: object) -> list[tuple[object, ...]]:
        found = known.get(host)
        if isinstance(found, str):
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (found, 0))]
        if found is not None:
            found.wait(20)
        raise socket.gaierror(socket.EAI_NONAME, "no such name")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    yield known
    for each in known.values():
        if not isinstance(each, str):
            each.set()


@contextmanager
def sender(host: str, port: int = 0) -> Iterator[tuple[zmq.Socket[bytes], int]]:
    """A publisher at an address, and its port."""
    with zmq.Context() as context, context.socket(zmq.PUB) as opened:
        opened.setsockopt(zmq.LINGER, 0)
        opened.bind(f"tcp://{host}:{port or '*'}")
        yield opened, int(opened.getsockopt_string(zmq.LAST_ENDPOINT).rpartition(":")[2])


def heard(subscriber: Subscriber, publisher: zmq.Socket[bytes], number: int) -> bool:
    """Whether a frame of a publisher arrives when it sends one."""
    publisher.send_multipart((b"kv", (0).to_bytes(8, "big"), PAYLOAD))
    frames = [each for each in subscriber.receive(0.1) if isinstance(each, Frame)]
    return any(each.source == number for each in frames)


def test_a_name_without_an_answer_holds_up_nobody(names: Known) -> None:
    """Others are heard meanwhile, also one whose name is known, and the end does not wait."""
    names["gone"] = never = threading.Event()
    names["here"] = "127.0.0.1"
    with sender("127.0.0.1") as (publisher, port):
        gone = [Source(f"tcp://gone:{each}", f"tcp://gone:{each}") for each in range(1, 90)]
        subscriber = Subscriber([*gone, Source(f"tcp://here:{port}")])
        until(lambda: heard(subscriber, publisher, len(gone)))
        assert subscriber.is_connected(0) is False
        began = time.monotonic()
        subscriber.close()
        assert time.monotonic() - began < 5
    assert not never.is_set()


def test_replay_of_a_name_without_an_answer_is_not_waited_for(names: Known) -> None:
    """A gap is a gap where it is not known whom to ask."""
    names["gone"] = threading.Event()
    with sender("127.0.0.1") as (publisher, port):
        source = Source(f"tcp://127.0.0.1:{port}", "tcp://gone:5558")
        with Subscriber([source]) as subscriber:
            until(lambda: heard(subscriber, publisher, 0))
            publisher.send_multipart((b"kv", (7).to_bytes(8, "big"), PAYLOAD))
            until(lambda: 7 in sequences(subscriber))


def test_replays_are_asked_for_by_name_too(names: Known) -> None:
    """What was sent before the watch began comes from where the name is."""
    names["here"] = "127.0.0.1"
    with publisher() as sender:
        sender.publish([AllBlocksCleared()])
        stream, replays = (
            str(each).replace("127.0.0.1", "here")
            for each in (sender.endpoint, sender.replay_endpoint)
        )
        with Subscriber([Source(stream, replays)]) as subscriber:
            until(lambda: 0 in sequences(subscriber))


def sequences(subscriber: Subscriber) -> list[int]:
    """The numbers of the frames that come next."""
    return [each.sequence for each in subscriber.receive(0.1) if isinstance(each, Frame)]


def test_a_pod_that_starts_again_is_found_at_its_new_address(
    names: Known, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name is looked up again while nobody is connected by it."""
    monkeypatch.setattr(host_names, "LOOKED_UP_AGAIN_S", 0.1)
    names["pod"] = "127.0.0.1"
    with sender("127.0.0.1") as (before, port):
        subscriber = Subscriber([f"tcp://pod:{port}"])
        until(lambda: heard(subscriber, before, 0))
    names["pod"] = "127.0.0.2"
    with subscriber, sender("127.0.0.2", port) as (after, _):
        until(lambda: heard(subscriber, after, 0))
        assert subscriber.is_connected(0)


def test_name_servers_that_fail_for_a_while_take_no_address_away(
    names: Known, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last address is good until another is known."""
    monkeypatch.setattr(host_names, "LOOKED_UP_AGAIN_S", 0.0)
    names["pod"] = "127.0.0.1"
    found = HostNames()
    assert found.resolved("tcp://pod:5557") is None
    until(found.take_answers)
    del names["pod"]
    found.look_again("tcp://pod:5557")
    until(lambda: found.take_answers() or not found.waiting)
    assert found.resolved("tcp://pod:5557") == "tcp://127.0.0.1:5557"
    found.close()


def test_a_name_is_asked_for_once_and_not_all_the_time(names: Known) -> None:
    """Ports of a host share its answer, and name servers are not flooded."""
    names["gone"] = gone = threading.Event()
    found = HostNames()
    for port in range(100):
        assert found.resolved(f"tcp://gone:{port}") is None
        found.look_again(f"tcp://gone:{port}")
    assert found.waiting == 1
    gone.set()
    until(lambda: found.take_answers() or not found.waiting)
    assert found.resolved("tcp://gone:1") is None
    assert found.waiting == 0
    found.close()


@pytest.mark.parametrize(
    "endpoint", ["tcp://10.0.0.1:5557", "tcp://[::1]:5557", "ipc:///run/kv", "tcp://*:5557"]
)
def test_what_has_no_name_is_not_looked_up(endpoint: str) -> None:
    """Addresses, wildcards and paths stay as they are."""
    found = HostNames()
    assert found.resolved(endpoint) == endpoint
    assert found.waiting == 0


@pytest.mark.parametrize("endpoint", ["tcp://a name:5557", "tcp://:5557", "tcp://pod:*"])
def test_what_cannot_be_a_name_is_refused_at_once(endpoint: str) -> None:
    """And not looked up for ever."""
    with pytest.raises(BadEndpoint):
        Subscriber([endpoint])


def test_addresses_of_version_four_come_first() -> None:
    """ZeroMQ takes one, and a publisher that binds to a wildcard is at that of version 4."""
    assert address_of("localhost") == "127.0.0.1"
    assert address_of("no.such.name.invalid") is None
