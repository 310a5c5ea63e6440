"""Follows publishers: gives each batch once and in order, with what replays can still give.

A publisher is an address and a topic: engines bind an address each and are connected to, or connect
to one address that is bound here and are told apart by their topics. Nothing that one of them sends
or withholds holds up the others.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Self
from zlib import crc32

import zmq
from attrs import define, evolve, field
from zmq.utils.monitor import recv_monitor_message

from kvcanon.live.endpoints import BadEndpoint, bind, check_endpoint, connect
from kvcanon.live.frame_order import FrameOrder
from kvcanon.live.frames import (
    MOST_FRAME_BYTES,
    SEQUENCE_BYTES,
    Arrived,
    BrokenFrame,
    Frame,
    Source,
)
from kvcanon.live.host_names import HostNames
from kvcanon.live.replays import ReplayPauses, ReplayRequest, ask_replay

WAITING_FRAMES = 1000
"""Of a publisher, before ZeroMQ takes no more and they wait where they are sent."""
FRAMES_AT_ONCE = 1000
BYTES_AT_ONCE = 1 << 24
"""What is taken of one publisher before others have their turn."""
MOST_HELD_IN_ALL_BYTES = 1 << 28
"""Of live frames that wait for replays; beyond them the largest waits no more."""
MOST_TOPIC_BYTES = 0xFFFF
"""A recording has room for so many."""
SHOWN_TOPIC = 120
MOST_SOURCES = 1024
SOCKETS_EACH = 3
"""Of a publisher: its stream, what watches its connection, and a replay."""
GIVEN_UP_S = 3.0
"""ZeroMQ tries at once to connect again, but never to a peer of which it refused a frame."""
SUBSCRIBING_S = 0.1
"""From a connection to the first live frame: a replay before it would miss what is sent between."""
PAUSE_A_SOCKET_S = 2e-5
"""Between two looks at all sockets, for each: a look at hundreds takes milliseconds."""
NAMES_LOOK_S = 0.05
"""Between two looks while a host name is looked up."""


@define
class _Lane:
    """One publisher: a topic of an address."""

    source: Source
    order: FrameOrder
    replay: ReplayRequest | None = None
    pauses: ReplayPauses = field(factory=ReplayPauses)
    asks_from: float = 0.0
    """When a replay that is wanted may be asked for."""


@define
class _Connection:
    """A socket for one address, and the publishers that send there."""

    source: Source
    socket: zmq.Socket[bytes]
    monitor: zmq.Socket[bytes]
    lanes: dict[bytes, int] = field(factory=dict)
    """Publishers by their topics; the first has the number of the address itself."""
    number: int = 0
    is_connected: bool = False
    cut_at: float | None = None
    """When the connection ended, until ZeroMQ tries to connect again."""
    address: str | None = None
    """Where the socket connects to; None while the name is looked up."""


class Subscriber:
    """A SUB socket for each address. Raises: BadEndpoint."""

    def __init__(self, sources: Sequence[Source | str], *, topic: str = "") -> None:
        given = [Source(each) if isinstance(each, str) else each for each in sources]
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._context.set(zmq.MAX_SOCKETS, SOCKETS_EACH * MOST_SOURCES + 16)
        self._poller = zmq.Poller()
        self._names = HostNames()
        self._topic = topic
        self._lanes: list[_Lane] = []
        self._connections: dict[str, _Connection] = {}
        self._closed = False
        self._looked = 0.0
        self.generation = 0
        """Changes with `sources`."""
        self.refused_topics = 0
        """Frames of publishers beyond `MOST_SOURCES`."""
        try:
            self.follow(given)
        except BadEndpoint:
            self.close()
            raise

    @property
    def sources(self) -> list[Source]:
        """The publishers, by the numbers that frames have; also those that are followed no more."""
        return [each.source for each in self._lanes]

    def is_connected(self, number: int) -> bool | None:
        """Whether a publisher's address is connected; None if it is followed no more."""
        connection = self._connections.get(self._lanes[number].source.endpoint)
        return None if connection is None else connection.is_connected

    def follow(self, sources: Sequence[Source]) -> None:
        """Follow these publishers, and no others. Raises: BadEndpoint."""
        wanted = {each.endpoint: each for each in sources}
        for source in wanted.values():
            check_endpoint(source.endpoint)
            if source.replay_endpoint is not None:
                check_endpoint(source.replay_endpoint)
        if len(wanted) > MOST_SOURCES:
            raise BadEndpoint(
                f"{len(wanted)} publishers are too many; follow {MOST_SOURCES} at most"
            )
        for endpoint in [each for each in self._connections if each not in wanted]:
            self._leave(endpoint)
        for source in wanted.values():
            if source.endpoint not in self._connections:
                self._join(source)

    def receive(self, timeout_s: float) -> Iterator[Arrived]:
        """Return the frames that wait; if there are none, wait at most `timeout_s` for one.

        No more than `FRAMES_AT_ONCE` of each publisher, so that one that never pauses holds up
        neither the others nor the caller.
        """
        ends = time.monotonic() + timeout_s
        left_s = timeout_s
        while True:
            came = False
            for each in self._looked_at(left_s):
                came = True
                yield each
            # A connection that was made, or a part of a replay, is nothing that came.
            left_s = ends - time.monotonic()
            if came or left_s <= 0:
                return

    def _looked_at(self, timeout_s: float) -> Iterator[Arrived]:
        """Give what waits, once something wakes the poller, or after a time."""
        pause_s = PAUSE_A_SOCKET_S * 2 * len(self._connections) - (time.monotonic() - self._looked)
        if pause_s > 0:
            time.sleep(min(pause_s, timeout_s))
        if self._names.waiting:
            timeout_s = min(timeout_s, NAMES_LOOK_S)
        ready = dict(self._poller.poll(max(0, int(timeout_s * 1000))))
        self._looked = time.monotonic()
        self._look_up()
        for connection in list(self._connections.values()):
            if connection.monitor in ready:
                yield from self._note_connection(connection)
            if connection.socket in ready:
                yield from self._drain(connection)
            if connection.cut_at is not None and self._looked - connection.cut_at > GIVEN_UP_S:
                yield self._refused(connection)
        for number, lane in enumerate(self._lanes):
            if lane.order.wanted is not None or lane.replay is not None:
                yield from self._replayed(number, lane)

    def close(self) -> None:
        """Close the sockets; what waits in them is dropped."""
        if not self._closed:
            self._closed = True
            self._names.close()
            self._context.destroy(linger=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_raised: object) -> None:
        self.close()

    # Addresses.

    def _join(self, source: Source) -> None:
        """Open a socket for an address. Raises: BadEndpoint."""
        if source.replay_endpoint is not None:
            # It is asked when a batch is missed: too late to say that nobody can be there.
            address = self._names.resolved(source.replay_endpoint)
            with self._context.socket(zmq.DEALER) as tried:
                if address is not None:
                    connect(tried, address)
        made = self._opened(source)
        known = self._known(source)
        made.number = self._new_lane(source) if known is None else known
        self._connections[source.endpoint] = made

    def _opened(self, source: Source) -> _Connection:
        """A connection to an address, with what watches it. Raises: BadEndpoint."""
        try:
            socket = self._context.socket(zmq.SUB)
            socket.set_hwm(WAITING_FRAMES)
            socket.setsockopt(zmq.MAXMSGSIZE, MOST_FRAME_BYTES)
            socket.setsockopt(zmq.RECONNECT_IVL, 50)
            socket.setsockopt(zmq.RECONNECT_IVL_MAX, 1000)
            # An argument that is no UTF-8 comes as surrogates, and stands for its bytes.
            socket.setsockopt(zmq.SUBSCRIBE, self._topic.encode(errors="surrogateescape"))
            monitor = socket.get_monitor_socket(
                zmq.EVENT_DISCONNECTED
                | zmq.EVENT_HANDSHAKE_SUCCEEDED
                | zmq.EVENT_CONNECT_DELAYED
                | zmq.EVENT_CONNECT_RETRIED
            )
        except zmq.ZMQError as error:
            raise BadEndpoint(f"no more publishers can be followed: {error.strerror}") from error
        made = _Connection(source, socket, monitor)
        if source.is_bound:
            bind(socket, source.endpoint)
        else:
            self._reach(made)
        self._poller.register(socket, zmq.POLLIN)
        self._poller.register(monitor, zmq.POLLIN)
        return made

    def _look_up(self) -> None:
        """Look up names of those that are not connected, and connect to those that were found."""
        is_moved = self._names.take_answers()
        for connection in self._connections.values():
            if not connection.is_connected and not connection.source.is_bound:
                self._names.look_again(connection.source.endpoint)
                if is_moved:
                    self._reach(connection)

    def _reach(self, connection: _Connection) -> None:
        """Connect to where the publisher is now, once that is known. Raises: BadEndpoint."""
        address = self._names.resolved(connection.source.endpoint)
        if address is None or address == connection.address:
            return
        if connection.address is not None:
            connection.socket.disconnect(connection.address)
        connect(connection.socket, address)
        connection.address = address

    def _known(self, source: Source) -> int | None:
        """The number of a publisher that was followed before at this address."""
        for number, lane in enumerate(self._lanes):
            if lane.source.endpoint == source.endpoint and lane.source.topic is None:
                return number
        return None

    def _leave(self, endpoint: str) -> None:
        """Follow an address no more."""
        connection = self._connections.pop(endpoint)
        self._names.forget(endpoint)
        for number in {connection.number, *connection.lanes.values()}:
            self._end_replay(self._lanes[number])
        self._shut(connection)

    def _shut(self, connection: _Connection) -> None:
        self._poller.unregister(connection.socket)
        self._poller.unregister(connection.monitor)
        with suppress(zmq.ZMQError):
            connection.socket.disable_monitor()
        connection.monitor.close(linger=0)
        connection.socket.close(linger=0)

    def _refused(self, connection: _Connection) -> BrokenFrame:
        """Connect again to a publisher of which ZeroMQ refused a frame, and say so."""
        self._shut(connection)
        again = self._opened(connection.source)
        connection.socket, connection.monitor = again.socket, again.monitor
        connection.address, connection.cut_at = again.address, None
        problem = f"was refused: it has more than {MOST_FRAME_BYTES:,} bytes, or is none of ZeroMQ"
        return BrokenFrame(connection.number, problem, time.time())

    def _new_lane(self, source: Source) -> int:
        """The number of a publisher that is new: the next, or that of one that is followed no more.

        Raises: BadEndpoint.
        """
        self.generation += 1
        lane = _Lane(source, FrameOrder(source.replay_endpoint is not None))
        if len(self._lanes) < MOST_SOURCES:
            self._lanes.append(lane)
            return len(self._lanes) - 1
        for number in range(len(self._lanes)):
            if self.is_connected(number) is None:
                self._lanes[number] = lane
                return number
        raise BadEndpoint(f"more than {MOST_SOURCES} publishers are too many")

    def _note_connection(self, connection: _Connection) -> Iterator[Arrived]:
        """Note what became of a connection; a new one may be to another publisher.

        What was held was of the one before, whose replays end here.
        """
        while int(connection.monitor.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
            event = recv_monitor_message(connection.monitor)["event"]
            connection.cut_at = None
            if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                connection.is_connected = True
                lane = self._lanes[connection.number]
                self._end_replay(lane)
                yield from lane.order.flush()
                lane.order.joined()
                lane.pauses = ReplayPauses()
                lane.asks_from = time.monotonic() + SUBSCRIBING_S
            elif event == zmq.EVENT_DISCONNECTED:
                connection.is_connected = False
                if not connection.source.is_bound:
                    connection.cut_at = time.monotonic()

    def _lane_of(self, connection: _Connection, topic: bytes) -> int | None:
        """The publisher of a topic; None where there are too many."""
        number = connection.lanes.get(topic)
        if number is not None:
            return number
        if not connection.lanes:
            number = connection.number
            if connection.source.is_bound:
                self._name(number, topic)
        else:
            if len(connection.lanes) == 1:
                (first,) = connection.lanes
                self._name(connection.number, first)
            named = evolve(connection.source, topic=_text(topic), replay_endpoint=None)
            try:
                number = self._new_lane(named)
            except BadEndpoint:
                return None
        connection.lanes[topic] = number
        return number

    def _name(self, number: int, topic: bytes) -> None:
        """Tell a publisher from others at its address."""
        lane = self._lanes[number]
        lane.source = evolve(lane.source, topic=_text(topic))
        self.generation += 1

    # Frames.

    def _drain(self, connection: _Connection) -> Iterator[Arrived]:
        taken_bytes = 0
        for _ in range(FRAMES_AT_ONCE):
            if taken_bytes > BYTES_AT_ONCE:
                return
            try:
                parts = connection.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            now = time.time()
            taken_bytes += sum(map(len, parts))
            problem = _problem_of(parts)
            if problem is not None:
                yield BrokenFrame(connection.number, problem, now)
                continue
            yield from self._note_connection(connection)
            topic, sequence, payload = parts
            number = self._lane_of(connection, topic)
            if number is None:
                self.refused_topics += 1
                continue
            order = self._lanes[number].order
            yield from order.take(
                Frame(number, topic, int.from_bytes(sequence, "big"), payload, now)
            )
            if order.is_full() or self._holds_too_much(order):
                yield from self._give_up(number)

    def _holds_too_much(self, order: FrameOrder) -> bool:
        """Whether a publisher holds the most, where all together hold too much."""
        if not order.held_bytes:
            return False
        held = [each.order.held_bytes for each in self._lanes]
        return sum(held) > MOST_HELD_IN_ALL_BYTES and order.held_bytes == max(held)

    # Replays.

    def _replayed(self, number: int, lane: _Lane) -> Iterator[Arrived]:
        """Go on with the replay of a publisher."""
        now = time.monotonic()
        order, replay = lane.order, lane.replay
        if replay is None and now < lane.asks_from:
            return
        if replay is None and lane.pauses.is_over(now):
            replay = self._ask(lane, order.wanted)
        if replay is None:
            yield from self._unasked(order)
            return
        reached = False
        for sequence, payload in replay.read():
            first = order.wanted
            for frame in order.give(sequence, payload, time.time()):
                yield evolve(frame, source=number)
            if order.wanted != first and order.wanted is not None:
                # Another publisher is there: it is asked for all that it has.
                self._ask(lane, order.wanted)
                return
            reached = reached or order.has_reached(sequence)
            if reached:
                break
        if reached or replay.ended:
            self._end_replay(lane)
            lane.pauses.note(answered=True)
            yield from order.end(answered=True)
        elif replay.is_hopeless(now):
            yield from self._give_up(number)

    def _unasked(self, order: FrameOrder) -> Iterator[Arrived]:
        """Give what is held of a publisher that is not asked: each time up to the next gap."""
        for _ in range(FRAMES_AT_ONCE):
            yield from order.end(answered=False)
            if order.wanted is None:
                return

    def _ask(self, lane: _Lane, first: int | None) -> ReplayRequest | None:
        """Ask for the batches from a number on, if any is wanted and it is known who has them."""
        self._end_replay(lane)
        address = self._names.resolved(str(lane.source.replay_endpoint))
        if first is None or address is None:
            return None
        asked = ask_replay(self._context, address, first)
        lane.order.asked()
        lane.replay = asked
        self._poller.register(asked.socket, zmq.POLLIN)
        return asked

    def _give_up(self, number: int) -> Iterator[Arrived]:
        """Wait no more for a replay."""
        lane = self._lanes[number]
        lane.pauses.note(answered=False)
        self._end_replay(lane)
        yield from lane.order.end(answered=False)

    def _end_replay(self, lane: _Lane) -> None:
        if lane.replay is not None:
            self._poller.unregister(lane.replay.socket)
            lane.replay.close()
            lane.replay = None


def _text(topic: bytes) -> str:
    """A topic as it is shown; of a long one the beginning, and what tells it from others."""
    text = topic.decode(errors="replace")
    return text if len(text) <= SHOWN_TOPIC else f"{text[:SHOWN_TOPIC]}~{crc32(topic):08x}"


def _problem_of(parts: Sequence[bytes]) -> str | None:
    """What keeps parts from being a frame, if anything does."""
    if len(parts) != 3:
        return f"has {len(parts)} parts, not a topic, a number and a batch"
    if len(parts[0]) > MOST_TOPIC_BYTES:
        return f"has a topic of {len(parts[0])} bytes, more than {MOST_TOPIC_BYTES}"
    if len(parts[1]) != SEQUENCE_BYTES:
        return f"has a number of {len(parts[1])} bytes, not {SEQUENCE_BYTES}"
    return None
