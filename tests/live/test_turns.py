"""One busy publisher holds up neither the caller of a subscriber nor other publishers."""

from __future__ import annotations

import time

import zmq

from kvcanon.live import Subscriber
from kvcanon.live.subscriber import FRAMES_AT_ONCE, BrokenFrame, Frame
from sent_events import batch

PATIENCE_S = 30.0
LAST = 3 * FRAMES_AT_ONCE


def send(socket: zmq.Socket[bytes], number: int) -> None:
    """Send a batch without events."""
    socket.send_multipart((b"", number.to_bytes(8, "big"), batch()))


def bound(context: zmq.Context[zmq.Socket[bytes]]) -> tuple[zmq.Socket[bytes], str]:
    """A socket that publishes, and where."""
    socket = context.socket(zmq.PUB)
    socket.bind("tcp://127.0.0.1:*")
    return socket, socket.getsockopt_string(zmq.LAST_ENDPOINT)


def test_a_publisher_that_never_pauses_holds_up_nobody() -> None:
    """Of many frames that wait a call gives some, and those of others, too; none is lost."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    (busy, busy_endpoint), (calm, calm_endpoint) = bound(context), bound(context)
    ends = time.monotonic() + PATIENCE_S
    got: list[Frame | BrokenFrame] = []
    with Subscriber([busy_endpoint, calm_endpoint]) as subscriber:
        while {each.source for each in got} != {0, 1}:
            assert time.monotonic() < ends
            send(busy, 0)
            send(calm, 0)
            got.extend(subscriber.receive(0.05))
        for number in range(1, LAST + 1):
            send(busy, number)
            if number % 100 == 0:
                # The publisher's own queue holds a thousand.
                time.sleep(0.01)
        send(calm, 1)
        time.sleep(0.2)
        once = list(subscriber.receive(1.0))
        got += once
        while LAST not in numbers(got):
            assert time.monotonic() < ends
            got.extend(subscriber.receive(0.05))
    context.destroy(linger=0)
    assert len(once) <= FRAMES_AT_ONCE + 2
    assert {each.source for each in once} == {0, 1}
    assert set(range(1, LAST + 1)) <= numbers(got)


def numbers(got: list[Frame | BrokenFrame]) -> set[int]:
    """The numbers of the busy publisher's frames."""
    return {each.sequence for each in got if isinstance(each, Frame) and each.source == 0}
