"""Publisher and subscriber over loopback: nothing is lost in silence, whatever is killed when."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

import msgspec
import pytest
import zmq

from kvcanon.live import Publisher, Subscriber
from kvcanon.live.decode import decode_batch
from kvcanon.live.endpoints import BadEndpoint, binds, endpoint_of_rank
from kvcanon.live.faults import Fault
from kvcanon.live.follower import Follower
from kvcanon.live.publisher import WhenFull
from kvcanon.live.subscriber import BrokenFrame, Frame, Source
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.events import AllBlocksCleared, Event
from sent_events import CLEARED, batch, removes, store, stores

ANY = "tcp://127.0.0.1:*"
PATIENCE_S = 10.0


def publisher(endpoint: str = ANY, **options: object) -> Publisher:
    """A publisher on loopback that serves replays."""
    given = {"replay_endpoint": ANY, "binds_endpoint": True, **options}
    return Publisher(endpoint, **given)  # type: ignore[arg-type]


def source_of(sender: Publisher) -> Source:
    """Where a subscriber finds a publisher."""
    return Source(sender.endpoint, sender.replay_endpoint)


def until(
    condition: Callable[[], bool], step: Callable[[], object] = lambda: time.sleep(0.01)
) -> None:
    """Wait for something that must come."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "it did not come"
        step()


@contextmanager
def subscribed(*sources: Source) -> Iterator[tuple[Subscriber, list[Frame | BrokenFrame]]]:
    """A subscriber, and what it received."""
    with Subscriber(sources) as subscriber:
        yield subscriber, []


def pump(
    subscriber: Subscriber, got: list[Frame | BrokenFrame], send: Callable[[], object] = bool
) -> Callable[[], None]:
    """What sends and receives once."""

    def step() -> None:
        send()
        got.extend(subscriber.receive(0.05))

    return step


def receive(
    subscriber: Subscriber, got: list[Frame | BrokenFrame], count: int
) -> list[Frame | BrokenFrame]:
    """Receive until there are so many frames."""
    until(lambda: len(got) >= count, pump(subscriber, got))
    return got


def numbers(got: list[Frame | BrokenFrame]) -> list[int]:
    """The sequence numbers of frames."""
    return [each.sequence for each in got if isinstance(each, Frame)]


def one(first: int) -> list[Event]:
    """A batch of one store."""
    return stores(first)


def test_a_late_subscriber_gets_everything_by_replay() -> None:
    """Who joins late gets the batches before, marked as replayed, in order and once."""
    with publisher(topic="kv") as sender:
        for number in range(5):
            sender.publish(one(number))
        until(lambda: sender.counts().sent == 5)
        with subscribed(source_of(sender)) as (subscriber, got):
            step = iter(range(5, 500))

            def more() -> None:
                sender.publish(one(next(step)))
                got.extend(subscriber.receive(0.05))

            until(lambda: len(got) >= 8, more)
    assert numbers(got) == list(range(len(got)))
    assert isinstance(got[0], Frame)
    assert got[0].replayed
    assert got[0].topic == b"kv"
    assert isinstance(got[-1], Frame)
    assert not got[-1].replayed


def test_close_sends_all_that_was_published() -> None:
    """Batches that wait when `close` is called arrive all the same."""
    sender = publisher()
    with subscribed(source_of(sender)) as (subscriber, got):
        sender.publish([AllBlocksCleared()])
        until(
            lambda: bool(got),
            pump(subscriber, got, lambda: sender.publish([AllBlocksCleared()])),
        )
        for number in range(2000):
            sender.publish(one(number))
        total = sender.counts().published
        sender.close()
        sender.close()
        assert numbers(receive(subscriber, got, total)) == list(range(total))
    with pytest.raises(BadArgument, match="is closed"):
        sender.publish(one(1))


class Slow:
    """A batch whose encoding waits, and may fail."""

    pages = 10

    def __init__(self, gate: threading.Event, *, fails: bool = False) -> None:
        self._gate, self._fails = gate, fails

    def __len__(self) -> int:
        return 1

    def encode(self, dialect: int, timestamp: float, rank: int) -> bytes:
        """Wait, then encode or fail."""
        assert self._gate.wait(PATIENCE_S)
        if self._fails:
            raise ValueError("no such batch")
        return msgspec.msgpack.encode([timestamp, [CLEARED], rank])


def test_a_full_queue_drops_and_marks_the_gap() -> None:
    """With "drop" a batch that has no room leaves its number out."""
    gate = threading.Event()
    sender = publisher(when_full="drop", queue_pages=25)
    with sender, subscribed(source_of(sender)) as (subscriber, got):
        until(
            lambda: bool(got),
            pump(subscriber, got, lambda: sender.publish(one(1))),
        )
        until(lambda: sender.counts().waiting_pages == 0)
        base = sender.counts().published
        accepted = [sender.publish(Slow(gate)) for _ in range(4)]
        assert accepted == [True, True, False, False]
        gate.set()
        until(lambda: sender.counts().waiting_pages == 0)
        assert sender.publish(one(2))
        receive(subscriber, got, base + 3)
    assert numbers(got)[-3:] == [base, base + 1, base + 4]
    assert sender.counts().dropped == 2


def test_a_full_queue_blocks() -> None:
    """With "block" the caller waits for room, and nothing is dropped."""
    gate = threading.Event()
    with publisher(when_full=WhenFull.BLOCK, queue_pages=25) as sender:
        for _ in range(2):
            assert sender.publish(Slow(gate))
        done = threading.Event()

        def publish() -> None:
            sender.publish(Slow(gate))
            done.set()

        caller = threading.Thread(target=publish)
        caller.start()
        assert not done.wait(0.1)
        gate.set()
        assert done.wait(PATIENCE_S)
        caller.join()
    assert (sender.counts().sent, sender.counts().dropped) == (3, 0)


def test_a_batch_that_cannot_be_encoded_is_a_gap(caplog: pytest.LogCaptureFixture) -> None:
    """It is counted and logged, its number is left out, and the next ones are sent."""
    gate = threading.Event()
    gate.set()
    with publisher() as sender:
        sender.publish(Slow(gate, fails=True))
        sender.publish(one(1))
        until(lambda: sender.counts().sent == 1)
        assert sender.counts().failed == 1
    assert "batch 0 cannot be encoded" in caplog.text


def test_empty_batches_are_not_sent() -> None:
    """A step without events takes no number."""
    with publisher() as sender:
        assert sender.publish([])
        assert sender.counts().published == 0


Opens: TypeAlias = Callable[[int], tuple[zmq.Socket[bytes], str]]


@pytest.fixture
def opens() -> Iterator[Opens]:
    """Opens sockets that a test sends any frames on, bound to loopback; closes them at the end."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    opened = []

    def make(kind: int) -> tuple[zmq.Socket[bytes], str]:
        socket = context.socket(kind)
        opened.append(socket)
        socket.bind(ANY)
        return socket, socket.getsockopt_string(zmq.LAST_ENDPOINT)

    yield make
    context.destroy(linger=0)


def test_a_gap_that_no_replay_fills_is_shown(opens: Opens) -> None:
    """Without a replay socket the numbers that are missing stay missing."""
    socket, endpoint = opens(zmq.PUB)
    with subscribed(Source(endpoint)) as (subscriber, got):

        def send(number: int) -> None:
            socket.send_multipart((b"", number.to_bytes(8, "big"), batch(store([number]))))

        until(lambda: bool(got), pump(subscriber, got, lambda: send(0)))
        first = len(got)
        send(1)
        send(5)
        receive(subscriber, got, first + 2)
    assert numbers(got)[-2:] == [1, 5]
    follower = Follower()
    found = [
        each
        for frame in got
        if isinstance(frame, Frame)
        for each in follower.take(frame.sequence, frame.payload)
    ]
    assert Fault.LOST in {each.fault for each in found}


def test_frames_that_are_none_are_given_as_broken(opens: Opens) -> None:
    """Another number of parts, or a short number, is no frame, and says so."""
    socket, endpoint = opens(zmq.PUB)
    with subscribed(Source(endpoint)) as (subscriber, got):
        until(
            lambda: bool(got),
            pump(subscriber, got, lambda: socket.send_multipart((b"", b"x"))),
        )
        socket.send_multipart((b"", b"x", batch()))
        until(
            lambda: isinstance(got[-1], BrokenFrame) and "1 bytes" in got[-1].problem,
            pump(subscriber, got),
        )
    assert isinstance(got[0], BrokenFrame)
    assert "2 parts" in got[0].problem


@pytest.mark.parametrize("with_topic", [True, False])
def test_replays_of_engines_are_read(opens: Opens, with_topic: bool) -> None:
    """A replay with a topic, and one of older engines without, fill the gap."""
    socket, endpoint = opens(zmq.PUB)
    router, replay = opens(zmq.ROUTER)

    def serve() -> None:
        while router.poll(500):
            client, _, first = router.recv_multipart()
            topic = (b"kv",) if with_topic else ()
            for number in range(int.from_bytes(first, "big"), 3):
                payload = batch(store([number]))
                router.send_multipart((client, b"", *topic, number.to_bytes(8, "big"), payload))
            end = (-1).to_bytes(8, "big", signed=True)
            router.send_multipart((client, b"", *topic[:1], end, b""))

    server = threading.Thread(target=serve)
    server.start()
    with subscribed(Source(endpoint, replay)) as (subscriber, got):
        until(
            lambda: bool(got),
            pump(
                subscriber,
                got,
                lambda: socket.send_multipart((b"kv", (3).to_bytes(8, "big"), batch(store([3])))),
            ),
        )
        assert numbers(got)[:4] == [0, 1, 2, 3]
    server.join()


@pytest.mark.parametrize("before", [1, 3, 6])
def test_a_publisher_that_is_started_anew_is_told(before: int) -> None:
    """Nothing of the new one is lost, and the old one's blocks are void, wherever numbers stand."""
    first = publisher()
    follower = Follower()
    with subscribed(source_of(first)) as (subscriber, got):
        until(
            lambda: bool(got),
            pump(subscriber, got, lambda: first.publish([AllBlocksCleared()])),
        )
        for number in range(before):
            first.publish(one(number * 10))
        total = first.counts().published
        receive(subscriber, got, total)
        source = source_of(first)
        first.close()
        assert source.replay_endpoint is not None
        second = publisher(source.endpoint, replay_endpoint=source.replay_endpoint)
        with second:
            second.publish([AllBlocksCleared(), *one(500)])
            seen = len(got)
            until(
                lambda: len(got) > seen,
                pump(subscriber, got, lambda: second.publish(stores(700) + removes(stores(700)))),
            )
            got.extend(subscriber.receive(0.1))
    for frame in got:
        assert isinstance(frame, Frame)
        found = follower.take(
            frame.sequence, frame.payload, replayed=frame.replayed, anew=frame.anew
        )
        assert not [each for each in found if each.fault is not Fault.STORED_TWICE], found
    assert follower.counts.restarts == 1
    assert follower.counts.lost == 0
    assert follower.books()[0].blocks() == {"GPU": 1}


def test_a_subscriber_that_is_started_anew_misses_nothing() -> None:
    """A second subscriber gets all that the replay buffer still has, and shows what it has not."""
    with publisher(replay_batches=4) as sender:
        for number in range(10):
            sender.publish(one(number))
        until(lambda: sender.counts().sent == 10)
        with subscribed(source_of(sender)) as (subscriber, got):
            until(
                lambda: bool(got),
                pump(subscriber, got, lambda: sender.publish(one(99))),
            )
    assert numbers(got)[0] >= 6
    assert numbers(got) == list(range(numbers(got)[0], numbers(got)[-1] + 1))


def test_ranks_have_ports_of_their_own() -> None:
    """The port of a rank is higher by the rank; a path gets it at its end."""
    assert endpoint_of_rank("tcp://*:5557", 0) == "tcp://*:5557"
    assert endpoint_of_rank("tcp://*:5557", 3) == "tcp://*:5560"
    assert endpoint_of_rank("tcp://[::1]:5557", 1) == "tcp://[::1]:5558"
    assert endpoint_of_rank("ipc:///tmp/kv", 2) == "ipc:///tmp/kv_dp2"
    assert binds("tcp://*:1")
    assert binds("ipc:///tmp/kv")
    assert not binds("tcp://router:1")
    with publisher(rank=2) as sender, subscribed(source_of(sender)) as (subscriber, got):
        until(
            lambda: bool(got),
            pump(subscriber, got, lambda: sender.publish(one(1))),
        )
        assert isinstance(got[0], Frame)
        assert decode_batch(got[0].payload).rank == 2


@pytest.mark.parametrize(
    ("endpoint", "rank", "problem"),
    [
        ("5557", 0, "is no endpoint"),
        ("tcp://host", 0, "has no port"),
        ("tcp://*:65536", 0, "has no port"),
        ("tcp://*:65535", 1, "above 65535"),
        ("tcp://256.0.0.1:5557", 0, "cannot be bound"),
    ],
)
def test_bad_endpoints_are_refused(endpoint: str, rank: int, problem: str) -> None:
    """An address that no socket can have is refused in words."""
    with pytest.raises(BadEndpoint, match=problem):
        publisher(endpoint, rank=rank)


def test_bad_bounds_are_refused() -> None:
    """A queue without room is refused."""
    with pytest.raises(BadArgument, match="queue_pages"):
        publisher(queue_pages=0)
