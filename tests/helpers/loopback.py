"""Publishers and subscribers on this machine, and the wait for what must come."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from attrs import define, field

from kvcanon.live import Publisher, Subscriber
from kvcanon.live.frames import Arrived, Frame, Source

ANY = "tcp://127.0.0.1:*"
PATIENCE_S = 60.0


def until(
    condition: Callable[[], bool], step: Callable[[], object] = lambda: time.sleep(0.01)
) -> None:
    """Wait for something that must come."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "it did not come"
        step()


def publisher(endpoint: str = ANY, **options: object) -> Publisher:
    """A publisher on loopback that serves replays."""
    given = {"replay_endpoint": ANY, "binds_endpoint": True, **options}
    return Publisher(endpoint, **given)  # type: ignore[arg-type]


def source_of(sender: Publisher) -> Source:
    """Where a subscriber finds a publisher."""
    return Source(sender.endpoint, sender.replay_endpoint)


def free_source() -> Source:
    """Where a publisher of another process can be, since nobody is there."""
    with publisher() as sender:
        return source_of(sender)


@define
class Listener:
    """A subscriber, and all that it received."""

    subscriber: Subscriber
    got: list[Arrived] = field(factory=list)

    def hear(self, count: int = 1, send: Callable[[], object] = bool) -> list[Arrived]:
        """Send and receive until there are so many frames."""
        until(lambda: len(self.got) >= count, lambda: self.step(send))
        return self.got

    def hear_all(self, *sends: Callable[[], object]) -> None:
        """Let each of some publishers send, until each was heard."""
        wanted = set(range(len(sends)))
        until(lambda: {each.source for each in self.got} == wanted, lambda: self.step(*sends))

    def step(self, *sends: Callable[[], object]) -> None:
        """Send and receive once."""
        for send in sends:
            send()
        self.got.extend(self.subscriber.receive(0.05))

    @property
    def frames(self) -> list[Frame]:
        """What it received, all of which must be frames."""
        assert all(isinstance(each, Frame) for each in self.got), self.got
        return [each for each in self.got if isinstance(each, Frame)]

    @property
    def numbers(self) -> list[int]:
        """The sequence numbers of those frames."""
        return [each.sequence for each in self.frames]


@contextmanager
def listening(*senders: Publisher | Source | str) -> Iterator[Listener]:
    """Subscribe to publishers."""
    sources = [source_of(each) if isinstance(each, Publisher) else each for each in senders]
    with Subscriber(sources) as subscriber:
        yield Listener(subscriber)
