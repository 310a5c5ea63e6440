"""Publisher and subscriber over loopback: nothing is lost in silence, whatever is killed when."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

import msgspec
import pytest
import zmq
from attrs import evolve

from kvcanon.live import Publisher
from kvcanon.live.decode import decode_batch
from kvcanon.live.endpoints import BadEndpoint, binds, endpoint_of_rank
from kvcanon.live.follower import Follower
from kvcanon.live.frames import BrokenFrame, Frame, Source
from kvcanon.live.publisher import WhenFull
from kvcanon.live.stream_faults import Fault
from kvcanon.live.subscriber import FRAMES_AT_ONCE
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.events import AllBlocksCleared
from loopback import ANY, PATIENCE_S, listening, publisher, source_of, until
from sent_events import CLEARED, batch, removes, store, stores


def published(sender: Publisher, *firsts: int) -> None:
    """Publish batches of one store each, and wait until they are sent."""
    for first in firsts:
        sender.publish(stores(first))
    until(lambda: not sender.counts().waiting_pages)


def followed(frames: Iterable[Frame]) -> tuple[Follower, set[Fault]]:
    """Fold frames as the subscriber placed them, which is as a follower places them by itself."""
    follower, again, found = Follower(), Follower(), set()
    for frame in frames:
        broken = follower.take(frame)
        assert broken == again.take(evolve(frame, placed=None))
        found |= {each.fault for each in broken}
    assert follower.counts == again.counts
    return follower, found


def clear(sender: Publisher) -> Callable[[], object]:
    """What publishes a batch that is a clear."""
    return lambda: sender.publish([AllBlocksCleared()])


def test_a_late_subscriber_gets_everything_by_replay() -> None:
    """Who joins late gets the batches before, marked as replayed, in order and once."""
    with publisher(topic="kv") as sender:
        published(sender, *range(5))
        with listening(sender) as listener:
            listener.hear(8, lambda: sender.publish(stores(5)))
    assert listener.numbers == list(range(len(listener.got)))
    assert [each.replayed for each in listener.frames[:: len(listener.got) - 1]] == [True, False]
    assert listener.frames[0].topic == b"kv"
    assert followed(listener.frames)[0].counts.lost == 0


def test_close_sends_all_that_was_published() -> None:
    """Batches that wait when `close` is called arrive all the same."""
    sender = publisher()
    with listening(sender) as listener:
        listener.hear(1, clear(sender))
        for number in range(2000):
            sender.publish(stores(number))
        total = sender.counts().published
        sender.close()
        sender.close()
        listener.hear(total)
    assert listener.numbers == list(range(total))
    with pytest.raises(BadArgument, match="is closed"):
        sender.publish(stores(1))


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
    with sender, listening(sender) as listener:
        listener.hear(1, clear(sender))
        published(sender)
        base = sender.counts().published
        assert [sender.publish(Slow(gate)) for _ in range(4)] == [True, True, False, False]
        gate.set()
        published(sender)
        assert sender.publish(stores(2))
        listener.hear(base + 3)
    assert listener.numbers[-3:] == [base, base + 1, base + 4]
    assert sender.counts().dropped == 2


def test_a_full_queue_blocks() -> None:
    """With "block" the caller waits for room, and nothing is dropped."""
    gate, done = threading.Event(), threading.Event()
    with publisher(when_full=WhenFull.BLOCK, queue_pages=25) as sender:
        for _ in range(2):
            assert sender.publish(Slow(gate))

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
        published(sender, 1)
        assert (sender.counts().sent, sender.counts().failed) == (1, 1)
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
        # What a test sends at once must not be dropped here.
        socket.set_hwm(0)
        socket.bind(ANY)
        return socket, socket.getsockopt_string(zmq.LAST_ENDPOINT)

    yield make
    context.destroy(linger=0)


def send(socket: zmq.Socket[bytes], number: int, payload: bytes = batch()) -> None:
    """Send a batch."""
    socket.send_multipart((b"kv", number.to_bytes(8, "big"), payload))


def test_a_gap_that_no_replay_fills_is_shown(opens: Opens) -> None:
    """Without a replay socket the numbers that are missing stay missing."""
    socket, endpoint = opens(zmq.PUB)
    with listening(endpoint) as listener:
        listener.hear(1, lambda: send(socket, 0))
        first = len(listener.got)
        send(socket, 1)
        send(socket, 5)
        listener.hear(first + 2)
    assert listener.numbers[-2:] == [1, 5]
    follower, found = followed(listener.frames)
    assert Fault.LOST in found
    assert (follower.counts.gaps, follower.counts.lost) == (1, 3)


def test_frames_that_are_none_are_given_as_broken(opens: Opens) -> None:
    """Another number of parts, or a short number, is no frame, and says so."""
    socket, endpoint = opens(zmq.PUB)
    with listening(endpoint) as listener:
        listener.hear(1, lambda: socket.send_multipart((b"", b"x")))
        socket.send_multipart((b"", b"x", batch()))
        until(lambda: "1 bytes" in getattr(listener.got[-1], "problem", ""), listener.step)
    assert isinstance(listener.got[0], BrokenFrame)
    assert "2 parts" in listener.got[0].problem


@contextmanager
def replaying(
    opens: Opens, kept: Sequence[bytes], topic: tuple[bytes, ...] = (b"kv",)
) -> Iterator[str]:
    """Answer requests for replays with these batches, numbered from 0; gives the address."""
    router, replay = opens(zmq.ROUTER)
    over = threading.Event()

    def serve() -> None:
        while not over.is_set():
            if router.poll(20):
                client, _, first = router.recv_multipart()
                for number in [*range(int.from_bytes(first, "big"), len(kept)), -1]:
                    at = number.to_bytes(8, "big", signed=True)
                    payload = kept[number] if number >= 0 else b""
                    router.send_multipart((client, b"", *topic, at, payload))

    server = threading.Thread(target=serve)
    server.start()
    try:
        yield replay
    finally:
        over.set()
        server.join()


@pytest.mark.parametrize("topic", [(b"kv",), ()])
def test_replays_of_engines_are_read_once(opens: Opens, topic: tuple[bytes, ...]) -> None:
    """A replay with a topic, and one of older engines without, fill the gap; none comes twice."""
    socket, endpoint = opens(zmq.PUB)
    kept = [batch(CLEARED), *(batch(store([number])) for number in range(1, 4))]
    with replaying(opens, kept, topic) as replay, listening(Source(endpoint, replay)) as listener:
        listener.hear(4, lambda: send(socket, 3, kept[3]))
        for number in (1, 2):
            send(socket, number, kept[number])
        until(lambda: 4 in listener.numbers, lambda: listener.step(lambda: send(socket, 4)))
    assert listener.numbers[:4] == [0, 1, 2, 3]
    assert set(listener.numbers[4:]) <= {3, 4}
    assert followed(listener.frames)[0].counts.lost == 0


def test_another_publisher_shows_itself_by_its_replay(opens: Opens) -> None:
    """Where numbers go on, the last batch of the one before comes otherwise, and all come anew."""
    socket, endpoint = opens(zmq.PUB)
    first = batch(CLEARED, store([100]))
    kept = [first]
    with replaying(opens, kept) as replay, listening(Source(endpoint, replay)) as listener:
        listener.hear(1, lambda: send(socket, 0, first))
        kept[:] = [batch(CLEARED, at=2), *(batch(store([number])) for number in range(1, 5))]
        send(socket, 5, batch(store([5])))
        until(lambda: 5 in listener.numbers, listener.step)
    assert listener.numbers[-6:] == list(range(6))
    follower, found = followed(listener.frames)
    assert (follower.counts.restarts, follower.counts.lost) == (1, 0)
    assert follower.books()[0].blocks() == {"GPU": 5}
    assert found <= {Fault.REPEATED}


@pytest.mark.parametrize("before", [1, 3, 6])
def test_a_publisher_that_is_started_anew_is_told(before: int) -> None:
    """Nothing of the new one is lost, and the old one's blocks are void, wherever numbers stand."""
    first = publisher()
    with listening(first) as listener:
        listener.hear(1, clear(first))
        for number in range(before):
            first.publish(stores(number * 10))
        listener.hear(first.counts().published)
        source = source_of(first)
        first.close()
        seen = len(listener.got)
        with publisher(source.endpoint, replay_endpoint=source.replay_endpoint) as second:
            second.publish([AllBlocksCleared(), *stores(500)])
            listener.hear(seen + 1, lambda: second.publish(stores(700) + removes(stores(700))))
            listener.got.extend(listener.subscriber.receive(0.1))
    follower, found = followed(listener.frames)
    assert found <= {Fault.STORED_TWICE}
    assert (follower.counts.restarts, follower.counts.lost) == (1, 0)
    assert follower.books()[0].blocks() == {"GPU": 1}


def test_a_subscriber_that_is_started_anew_misses_nothing() -> None:
    """A second subscriber gets all that the replay buffer still has, and shows what it has not."""
    with publisher(replay_batches=4) as sender:
        published(sender, *range(10))
        with listening(sender) as listener:
            listener.hear(1, lambda: sender.publish(stores(99)))
    first, last = listener.numbers[0], listener.numbers[-1]
    assert first >= 6
    assert not followed(listener.frames)[0].books()[0].complete
    assert listener.numbers == list(range(first, last + 1))


def test_a_publisher_that_never_pauses_holds_up_nobody(opens: Opens) -> None:
    """Of many frames that wait a call gives some, and those of others, too; none is lost."""
    (busy, busy_endpoint), (calm, calm_endpoint) = opens(zmq.PUB), opens(zmq.PUB)
    last = 3 * FRAMES_AT_ONCE
    with listening(busy_endpoint, calm_endpoint) as listener:
        listener.hear_all(lambda: send(busy, 0), lambda: send(calm, 0))
        for number in range(1, last + 1):
            send(busy, number)
        send(calm, 1)
        time.sleep(0.2)
        once = list(listener.subscriber.receive(1.0))
        listener.got.extend(once)
        until(lambda: last in listener.numbers, listener.step)
    assert len(once) <= FRAMES_AT_ONCE + 2
    assert {each.source for each in once} == {0, 1}
    busy_numbers = {each.sequence for each in listener.frames if each.source == 0}
    assert set(range(1, last + 1)) <= busy_numbers


def test_ranks_have_ports_of_their_own() -> None:
    """The port of a rank is higher by the rank; a path gets it at its end."""
    assert endpoint_of_rank("tcp://*:5557", 0) == "tcp://*:5557"
    assert endpoint_of_rank("tcp://*:5557", 3) == "tcp://*:5560"
    assert endpoint_of_rank("tcp://[::1]:5557", 1) == "tcp://[::1]:5558"
    assert endpoint_of_rank("ipc:///tmp/kv", 2) == "ipc:///tmp/kv_dp2"
    assert [binds(each) for each in ("tcp://*:1", "ipc:///tmp/kv", "tcp://router:1")] == [
        True,
        True,
        False,
    ]
    with publisher(rank=2) as sender, listening(sender) as listener:
        listener.hear(1, lambda: sender.publish(stores(1)))
        assert decode_batch(listener.frames[0].payload).rank == 2


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
