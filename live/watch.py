"""Watches publishers: finds, receives, folds and records them, and knows the state of each."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from enum import StrEnum
from functools import partial

from attrs import define, field

from kvcanon.live.discovery import Discovery
from kvcanon.live.endpoints import BadEndpoint
from kvcanon.live.follower import Follower, Streams
from kvcanon.live.frames import Source
from kvcanon.live.stream_faults import StreamFinding
from kvcanon.live.stream_recording import StreamRecorder
from kvcanon.live.subscriber import Subscriber

KEPT_FINDINGS = 50
RATE_OVER_S = 5.0
SILENT_AFTER_S = 60.0


class PublisherState(StrEnum):
    """The state of a publisher, the worst first."""

    CUT = "cut off"
    """Frames came, and the connection is lost."""
    WAITING = "waiting"
    """Nothing came yet."""
    SILENT = "silent"
    """It is connected, and nothing came for a while: it is idle, or stuck."""
    LIVE = "live"
    GONE = "gone"
    """It is no longer where publishers are found."""


@define
class StreamWatch:
    """The watched publishers, and what they have sent so far."""

    subscriber: Subscriber
    streams: Streams
    recorder: StreamRecorder | None = None
    discovery: Discovery | None = None
    silent_after_s: float = SILENT_AFTER_S
    latest: deque[StreamFinding] = field(factory=lambda: deque(maxlen=KEPT_FINDINGS))
    lags: dict[int, float] = field(factory=dict)
    """Seconds from a batch's time to its arrival, by publisher."""
    problem: str | None = None
    """What goes wrong beside the streams: a recording that ended, a place that cannot be read."""
    stepped: float = field(factory=time.monotonic)
    """When the last step ended."""
    _fixed: list[Source] = field(init=False)
    """The publishers that were given; others are found."""
    _generation: int = -1
    _refused: int = 0
    """Frames of publishers beyond those that can be followed."""
    _readings: dict[int, deque[tuple[float, int, int]]] = field(factory=dict)
    """Time, events and pages so far, by publisher."""

    def __attrs_post_init__(self) -> None:
        self._fixed = self.subscriber.sources

    def step(self, timeout_s: float) -> list[StreamFinding]:
        """Receive and fold the waiting frames, and return what is wrong with them."""
        self._discover()
        found: list[StreamFinding] = []
        for arrived in self.subscriber.receive(timeout_s):
            if self.subscriber.generation != self._generation:
                self._note_sources()
            if self.recorder is not None:
                self._record(partial(self.recorder.write, arrived))
            found += self.streams.take(arrived)
            sent = self.streams.followers[arrived.source].counts.last_timestamp
            if sent:
                self.lags[arrived.source] = max(0.0, arrived.received - sent)
        if self.subscriber.refused_topics != self._refused:
            self._refused = self.subscriber.refused_topics
            self.problem = f"{self._refused} frames are left out: there are too many publishers"
        self.latest.extend(found)
        self.stepped = time.monotonic()
        return found

    def flush(self) -> None:
        """Write what was received to the recording."""
        if self.recorder is not None:
            self._record(self.recorder.flush)

    def end_recording(self) -> None:
        """Write what waits, and close the recording."""
        if self.recorder is not None:
            self._record(self.recorder.close)
            self.recorder = None

    def end_discovery(self) -> None:
        """Say why nobody was found: the end may come before the first answer."""
        self._discover()
        if self.discovery is None or self.problem is not None:
            return
        if not self.discovery.answered:
            self.problem = f"{self.discovery.place} did not answer before the end"
        elif not self.subscriber.sources:
            self.problem = f"{self.discovery.place} names nobody"

    def state(self, number: int) -> PublisherState:
        """The state of a publisher."""
        connected = self.subscriber.is_connected(number)
        last = self.last_received(number)
        if connected is None:
            return PublisherState.GONE
        if last is None:
            return PublisherState.WAITING
        if not connected:
            return PublisherState.CUT
        silent = time.time() - last > self.silent_after_s
        return PublisherState.SILENT if silent else PublisherState.LIVE

    def follower(self, number: int) -> Follower | None:
        """The follower of a publisher; None before its first frame."""
        followers = self.streams.followers
        return followers[number] if number < len(followers) else None

    def last_received(self, number: int) -> float | None:
        """When the last frame of a publisher came, in seconds since 1970; None before the first."""
        follower = self.follower(number)
        return (follower.counts.last_received or None) if follower is not None else None

    def silent(self) -> list[Source]:
        """The publishers from which no frame came, good or malformed."""
        return [
            source
            for number, source in enumerate(self.subscriber.sources)
            if self.last_received(number) is None
        ]

    def name_of(self, finding: StreamFinding) -> str:
        """The name of the publisher of a finding."""
        return self.subscriber.sources[finding.source].name

    def read_rates(self) -> None:
        """Take a reading for the rates; call it about once a second."""
        now = time.monotonic()
        for follower in self.streams.followers:
            counts = follower.counts
            readings = self._readings.setdefault(follower.source, deque())
            readings.append((now, counts.events, counts.pages))
            while len(readings) > 2 and now - readings[0][0] > RATE_OVER_S:
                readings.popleft()

    def rates(self, source: int) -> tuple[float, float]:
        """Events and pages a second of a publisher, over the last seconds."""
        readings = self._readings.get(source)
        if not readings or len(readings) < 2:
            return 0.0, 0.0
        (began, *first), (ended, *last) = readings[0], readings[-1]
        seconds = max(ended - began, 1e-9)
        return (last[0] - first[0]) / seconds, (last[1] - first[1]) / seconds

    def _discover(self) -> None:
        """Follow who is found now."""
        if self.discovery is None:
            return
        found = self.discovery.look()
        if self.discovery.problem is not None:
            self.problem = self.discovery.problem
        if found is None:
            return
        try:
            self.subscriber.follow([*self._fixed, *found])
            self.problem = None
        except BadEndpoint as error:
            self.problem = str(error)

    def _note_sources(self) -> None:
        """Note who is followed now; a number may have gone to another publisher."""
        self._generation = self.subscriber.generation
        sources = self.subscriber.sources
        self.streams.name_sources(sources)
        if self.recorder is not None:
            self._record(partial(self.recorder.name_sources, sources))

    def _record(self, write: Callable[[], None]) -> None:
        """Go on with the recording; where that fails it ends, and the watch goes on."""
        if self.recorder is None:
            return
        try:
            write()
        except OSError as error:
            self.problem = f"the recording ended: {error}"
            self.recorder.abandon()
            self.recorder = None
