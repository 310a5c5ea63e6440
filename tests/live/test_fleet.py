"""Fleets: publishers that come and go, share an address, or do their worst to the others."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count, takewhile
from pathlib import Path

import msgspec
import pytest
import zmq
from attrs import define, evolve, field

from kvcanon.live import Subscriber
from kvcanon.live.audit import audit
from kvcanon.live.discovery import Discovery, NotFound, find_sources
from kvcanon.live.endpoints import BadEndpoint
from kvcanon.live.follower import Streams
from kvcanon.live.frames import BrokenFrame, Frame, Source
from kvcanon.live.masking import UNREADABLE, Masker
from kvcanon.live.replays import ReplayPauses
from kvcanon.live.stream_recording import StreamRecorder, open_recording
from kvcanon.live.watch import PublisherState, StreamWatch
from loopback import ANY, free_source, publisher, until
from sent_events import CLEARED, batch, frames_of, remove, store, stores


@define
class Sockets:
    """Sockets of publishers, which are kept until the end of a test."""

    context: zmq.Context[zmq.Socket[bytes]] = field(factory=zmq.Context)
    opened: list[zmq.Socket[bytes]] = field(factory=list)

    def open(self, kind: int = zmq.PUB) -> zmq.Socket[bytes]:
        """A socket that drops nothing by itself."""
        socket = self.context.socket(kind)
        socket.set_hwm(0)
        self.opened.append(socket)
        return socket


@pytest.fixture
def sockets() -> Iterator[Sockets]:
    """Sockets that are closed at the end."""
    made = Sockets()
    yield made
    made.context.destroy(linger=0)


def bound(sockets: Sockets, kind: int = zmq.PUB) -> tuple[zmq.Socket[bytes], str]:
    """A bound socket, and its address."""
    socket = sockets.open(kind)
    socket.bind(ANY)
    return socket, socket.getsockopt_string(zmq.LAST_ENDPOINT)


def send(socket: zmq.Socket[bytes], number: int, payload: bytes, topic: bytes = b"kv") -> None:
    """Send a batch."""
    socket.send_multipart((topic, number.to_bytes(8, "big"), payload))


def watching(*sources: Source | str) -> StreamWatch:
    """A watch; its subscriber is closed by the test."""
    return StreamWatch(Subscriber(sources), Streams())


def batches_of(watch: StreamWatch, number: int) -> int:
    """Batches of a publisher that were folded."""
    follower = watch.follower(number)
    return follower.counts.batches if follower is not None else 0


def test_publishers_that_connect_are_told_apart_by_their_topics(sockets: Sockets) -> None:
    """Two pods at one address are two streams, each sound; as with llm-d's router."""
    endpoint = free_source().endpoint
    watch = watching(Source(endpoint, is_bound=True))
    topics = b"kv@pod-a@model", b"kv@pod-b@model"
    with watch.subscriber:
        pods = [sockets.open() for _ in topics]
        for pod in pods:
            pod.connect(endpoint)
        sent = [0, 0]

        def go_on() -> None:
            for number, (pod, topic) in enumerate(zip(pods, topics, strict=True)):
                events = [CLEARED] if sent[number] == 0 else [store([10 * sent[number]])]
                send(pod, sent[number], batch(*events, at=number), topic)
                sent[number] += 1
            watch.step(0.02)

        until(lambda: min(batches_of(watch, 0), batches_of(watch, 1)) > 5, go_on)
        names = sorted(each.name for each in watch.subscriber.sources)
    assert names == [f"{endpoint} {topic.decode()}" for topic in topics]
    assert watch.streams.by_law()["WIRE-1"] == 0
    assert [each.counts.restarts for each in watch.streams.followers] == [0, 0]


def test_publishers_are_found_again_and_again(tmp_path: Path, sockets: Sockets) -> None:
    """A line that is added is followed, one that is taken out is gone, and comes back."""
    place = tmp_path / "publishers"
    with publisher() as first, publisher() as second:
        place.write_text(f"# a fleet\n{first.endpoint} {first.replay_endpoint}\n")
        watch = watching()
        watch.discovery = Discovery(str(place), every_s=0.1)
        with watch.subscriber:

            def go_on() -> None:
                first.publish(stores(1))
                second.publish(stores(2))
                watch.step(0.02)

            until(lambda: batches_of(watch, 0) > 2, go_on)
            place.write_text(f"{first.endpoint}\n{second.endpoint}\n")
            until(lambda: batches_of(watch, 1) > 2, go_on)
            assert watch.state(0) is PublisherState.LIVE
            place.write_text(f"{second.endpoint}\n")
            until(lambda: watch.state(0) is PublisherState.GONE, go_on)
            place.unlink()
            until(lambda: watch.problem is not None, go_on)
            assert watch.state(1) is PublisherState.LIVE, "what was found stays"
            before = batches_of(watch, 0)
            place.write_text(f"{first.endpoint}\n{second.endpoint}\n")
            until(lambda: batches_of(watch, 0) > before, go_on)
            assert watch.problem is None
            assert len(watch.subscriber.sources) == 2


def test_places_of_publishers_are_read() -> None:
    """A name has its addresses; what is no place is refused in words."""
    (found,) = [
        each for each in find_sources("dns://localhost:5557/5558") if "127" in each.endpoint
    ]
    assert found == Source("tcp://127.0.0.1:5557", "tcp://127.0.0.1:5558")
    with pytest.raises(BadEndpoint, match="is no name with a port"):
        find_sources("dns://localhost")
    with pytest.raises(NotFound, match="cannot be read"):
        find_sources("/nowhere/at/all")
    with pytest.raises(NotFound, match="has no address now"):
        find_sources("dns://nobody.invalid:5557")


def test_an_idle_publisher_is_asked_at_the_start() -> None:
    """What it sent before is known without a further batch."""
    with publisher() as sender:
        sender.publish([*stores(10, 20)])
        until(lambda: sender.counts().sent == 1)
        watch = watching(Source(sender.endpoint, sender.replay_endpoint))
        with watch.subscriber:
            until(lambda: batches_of(watch, 0) == 1, lambda: watch.step(0.05))
            follower = watch.follower(0)
            assert follower is not None
            assert follower.books()[0].blocks() == {"GPU": 2}
            assert follower.counts.replayed == 1


@contextmanager
def serving(router: zmq.Socket[bytes], *, ends: bool, pause_s: float) -> Iterator[None]:
    """Answer each request for a replay with batches that nobody asked for, and never end."""
    over = threading.Event()

    def serve() -> None:
        client, number = None, 0
        while not over.wait(pause_s):
            if router.poll(0):
                client, number = router.recv_multipart()[0], 0
            if client is not None:
                number += 1
                at = number.to_bytes(8, "big")
                router.send_multipart((client, b"", b"kv", at, batch(store([number]))))
                assert not ends

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_the_worst_publishers_hold_up_nobody(
    sockets: Sockets, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gaps with a dead replay, a replay that never ends, huge frames: others are folded at once."""
    monkeypatch.setattr("kvcanon.live.subscriber.MOST_FRAME_BYTES", 1 << 20)
    (calm, calm_at), (gaps, gaps_at) = bound(sockets), bound(sockets)
    (endless, endless_at), (huge, huge_at) = bound(sockets), bound(sockets)
    dead_at = free_source().endpoint
    router, router_at = bound(sockets, zmq.ROUTER)
    watch = watching(calm_at, Source(gaps_at, dead_at), Source(endless_at, router_at), huge_at)
    large = msgspec.msgpack.encode([1.0, [], 0, bytes(2 << 20)])
    with watch.subscriber, serving(router, ends=False, pause_s=0.005):

        def begin() -> None:
            send(calm, 0, batch(CLEARED))
            watch.step(0.02)

        until(lambda: batches_of(watch, 0) > 0, begin)
        sent_at: dict[int, float] = {}
        worst = 0.0
        ends = time.monotonic() + 4.0
        for number in takewhile(lambda _: time.monotonic() < ends, count(1)):
            sent_at[number] = time.monotonic()
            send(calm, number, batch(store([4 * number])))
            send(gaps, 7 * number, batch(store([4 * number])))
            send(endless, 9 * number, batch(store([4 * number])))
            if number % 10 == 0:
                send(huge, number, large)
            watch.step(0.02)
            time.sleep(0.002)
            follower = watch.follower(0)
            assert follower is not None
            seen = follower.counts.last_sequence
            worst = max(worst, time.monotonic() - sent_at[max(1, min(seen + 1, number))])
    assert worst < 1.0
    follower = watch.follower(1)
    assert follower is not None
    assert follower.counts.gaps > 0
    broken = watch.follower(3)
    assert broken is not None
    assert (broken.counts.batches, broken.counts.malformed > 0) == (0, True)


def test_many_gaps_of_a_dead_replay_are_folded_at_once(
    sockets: Sockets, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the replay is not asked again, each gap is known to be one, and none waits for it."""
    monkeypatch.setattr("kvcanon.live.replays.REPLAY_SILENCE_S", 0.05)
    patient = partial(ReplayPauses, pause_s=60.0)
    monkeypatch.setattr("kvcanon.live.subscriber.ReplayPauses", patient)
    gaps, gaps_at = bound(sockets)
    watch = watching(Source(gaps_at, free_source().endpoint))
    numbers = count(0, 2)
    with watch.subscriber:

        def leave_a_gap() -> None:
            send(gaps, next(numbers), batch(CLEARED))
            watch.step(0.02)

        def seen() -> int:
            follower = watch.follower(0)
            return follower.counts.gaps if follower is not None else 0

        until(lambda: seen() > 0, leave_a_gap)
        first = seen()
        for _ in range(500):
            send(gaps, next(numbers), batch(CLEARED))
        time.sleep(0.1)
        for _ in range(10):
            watch.step(0.02)
    assert seen() >= first + 500


def test_a_recording_is_private_masked_and_bounded(tmp_path: Path) -> None:
    """Nobody else reads it, it holds no token and no salt, and it keeps its limit."""
    path = tmp_path / "a"
    prompt = store([100, 200, 300], cache_salt="secret-tenant")
    sent = frames_of([CLEARED], [prompt], [prompt], [remove(prompt["block_hashes"])])
    sent.append(evolve(sent[0], sequence=4, payload=b"secret-tenant"))
    with StreamRecorder(path, [Source("tcp://a:1")], masks=True) as recorder:
        for each in sent:
            recorder.write(each)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    recording = open_recording(path)
    assert recording.masked
    payloads = [each.payload for each in recording.frames() if isinstance(each, Frame)]
    assert payloads[4] == UNREADABLE
    (event,) = msgspec.msgpack.decode(payloads[1])[1]
    assert not set(event["token_ids"]) & set(prompt["token_ids"])
    assert len(set(event["token_ids"])) == len(prompt["token_ids"])
    assert event["cache_salt"].startswith("masked-")
    assert payloads[1] == payloads[2]
    assert audit(recording).streams.by_law() == {"EVENT-2": 3, "WIRE-2": 1}
    with StreamRecorder(path, [Source("tcp://a:1")], limit_bytes=40_000) as recorder:
        for number in range(200):
            recorder.write(evolve(sent[0], sequence=number, payload=bytes(range(256)) * 8))
            recorder.flush()
    sizes = [each.stat().st_size for each in (path, tmp_path / "a.1")]
    assert sum(sizes) < 44_000
    last = [each for each in open_recording(path).frames() if isinstance(each, Frame)][-1]
    assert last.sequence == 199


def test_masks_are_equal_only_where_tokens_are() -> None:
    """Of any size of a vocabulary, in every place where an event has tokens or names."""
    masker = Masker()

    def masked(**fields: object) -> dict[str, object]:
        event = {"type": "BlockStored", "block_hashes": [1], **fields}
        (made,) = msgspec.msgpack.decode(masker.mask(batch(event)))[1]
        return dict(made)

    tokens = [0, 1, 70_000, 300_000, 1 << 21]
    once = masked(token_ids=tokens)["token_ids"]
    assert isinstance(once, Sequence)
    assert len(set(once)) == len(tokens)
    assert masked(token_ids=tokens)["token_ids"] == once
    assert masked(token_ids=tokens[:2])["token_ids"] == once[:2]
    assert masked(token_ids=[1 << 25])["token_ids"] != [1 << 25]
    made = masked(extra_keys=[["tuned", "salt"], [["image", 3]]], lora_name="tuned")
    assert "image" not in str(made)
    assert "salt" not in str(made)
    assert made["lora_name"] == "tuned"


def test_five_hundred_publishers_are_followed() -> None:
    """Each has its number and its state; a look at all of them takes no core of its own."""
    sources = [f"tcp://127.0.0.1:{20_000 + number}" for number in range(500)]
    watch = watching(*sources)
    with watch.subscriber:
        began = time.process_time()
        until_s = time.monotonic() + 1.0
        while time.monotonic() < until_s:
            watch.step(0.1)
        assert time.process_time() - began < 0.8
        assert {watch.state(number) for number in range(500)} == {PublisherState.WAITING}


def test_frames_that_are_refused_are_said(
    sockets: Sockets, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frame that is too large is a finding, and what is sent after it is followed again."""
    monkeypatch.setattr("kvcanon.live.subscriber.MOST_FRAME_BYTES", 1 << 10)
    socket, endpoint = bound(sockets)
    got: list[object] = []
    with Subscriber([endpoint]) as subscriber:

        def go_on() -> None:
            send(socket, 0, bytes(4 << 10))
            got.extend(subscriber.receive(0.05))

        until(lambda: bool(got), go_on)
    assert isinstance(got[0], BrokenFrame)
    assert "was refused: it has more than 1,024 bytes" in got[0].problem


def test_topics_beyond_those_that_can_be_followed_are_said(
    sockets: Sockets, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever invents topics makes no publishers without end; what is left out is counted."""
    monkeypatch.setattr("kvcanon.live.subscriber.MOST_SOURCES", 3)
    socket, endpoint = bound(sockets)
    watch = watching(endpoint)
    with watch.subscriber:
        number = count()

        def go_on() -> None:
            send(socket, 0, batch(CLEARED), b"topic %d" % next(number))
            watch.step(0.02)

        until(lambda: watch.problem is not None, go_on)
        assert len(watch.subscriber.sources) == 3
    assert "too many publishers" in str(watch.problem)


def test_place_that_never_answers_is_said_and_holds_up_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe is refused; a name that hangs is a problem, and the process ends all the same."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(NotFound, match="is no file"):
        find_sources(str(pipe))
    hanging = threading.Event()
    monkeypatch.setattr("kvcanon.live.discovery.find_sources", lambda _: hanging.wait())
    monkeypatch.setattr("kvcanon.live.discovery.SLOW_S", 0.05)
    watch = watching()
    watch.discovery = Discovery("dns://slow:1", every_s=0.01)
    with watch.subscriber:
        until(lambda: watch.problem is not None, lambda: watch.step(0.02))
    assert "dns://slow:1 has not answered for" in str(watch.problem)
    hanging.set()
    script = (
        "import time; from kvcanon.live import discovery; "
        "discovery.find_sources = lambda _: time.sleep(60); "
        "discovery.Discovery('dns://slow:1').look()"
    )
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", script], check=True, timeout=50)
    assert time.monotonic() - began < 40
