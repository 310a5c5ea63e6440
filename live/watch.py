"""Watches publishers: receives, folds, records, and keeps the rates for a dashboard."""

from __future__ import annotations

import time
from collections import deque

from attrs import define, field

from kvcanon.live.follower import Streams
from kvcanon.live.frames import Source
from kvcanon.live.stream_faults import StreamFinding
from kvcanon.live.stream_recording import StreamRecorder
from kvcanon.live.subscriber import Subscriber

SHOWN_FINDINGS = 8
RATE_OVER_S = 5.0


@define
class StreamWatch:
    """Publishers that are watched, and what came of them so far."""

    subscriber: Subscriber
    streams: Streams
    recorder: StreamRecorder | None = None
    latest: deque[StreamFinding] = field(factory=lambda: deque(maxlen=SHOWN_FINDINGS))
    lags: dict[int, float] = field(factory=dict)
    """Seconds from a batch's time to its arrival, by publisher."""
    _readings: dict[int, deque[tuple[float, int, int]]] = field(factory=dict)
    """Time, events and pages so far, by publisher."""

    def step(self, timeout_s: float) -> list[StreamFinding]:
        """Receive and fold what is there, and return what is wrong with it."""
        found: list[StreamFinding] = []
        for arrived in self.subscriber.receive(timeout_s):
            if self.recorder is not None:
                self.recorder.write(arrived)
            found += self.streams.take(arrived)
            sent = self.streams.followers[arrived.source].counts.last_timestamp
            if sent:
                self.lags[arrived.source] = max(0.0, arrived.received - sent)
        self.latest.extend(found)
        return found

    def silent(self) -> list[Source]:
        """The publishers of which no frame came, good or malformed."""
        heard = {
            follower.source
            for follower in self.streams.followers
            if follower.counts.batches or follower.counts.malformed
        }
        return [
            source for number, source in enumerate(self.subscriber.sources) if number not in heard
        ]

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
