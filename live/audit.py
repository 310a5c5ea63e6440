"""Judges a recording: what it holds in the end, which laws it breaks, and what shows it."""

from __future__ import annotations

import time
from collections import Counter

from attrs import define, field, frozen

from kvcanon.live.excerpt import Excerpt, excerpt_of
from kvcanon.live.faults import StreamFinding
from kvcanon.live.follower import BookView, Follower, FollowerConfig, FollowerCounts
from kvcanon.live.recording import Recording
from kvcanon.live.subscriber import Frame, Source

KEPT = 1000
"""Findings that are kept in full; all are counted."""


@frozen
class StreamResult:
    """What one publisher's stream came to."""

    source: Source
    counts: FollowerCounts
    books: tuple[BookView, ...]


@frozen
class AuditResult:
    """What a recording came to."""

    streams: tuple[StreamResult, ...]
    findings: tuple[StreamFinding, ...]
    """The first of them."""
    total: int
    by_law: Counter[str]
    excerpts: tuple[Excerpt, ...]
    seconds: float
    """That folding took."""

    @property
    def events(self) -> int:
        """All events."""
        return sum(each.counts.events for each in self.streams)

    @property
    def pages(self) -> int:
        """All stores and removes of one block."""
        return sum(each.counts.pages for each in self.streams)


@define
class Fold:
    """Follows all publishers of a recording, or of a subscriber, at once."""

    config: FollowerConfig
    followers: list[Follower] = field(factory=list)
    findings: list[StreamFinding] = field(factory=list)
    total: int = 0

    def take(self, arrived: object) -> list[StreamFinding]:
        """Fold what arrived, and return what is wrong with it."""
        source = int(getattr(arrived, "source", 0))
        while len(self.followers) <= source:
            self.followers.append(Follower(len(self.followers), self.config))
        follower = self.followers[source]
        if isinstance(arrived, Frame):
            found = follower.take(
                arrived.sequence, arrived.payload, replayed=arrived.replayed, anew=arrived.anew
            )
        else:
            found = follower.break_off(str(getattr(arrived, "problem", "is no frame")))
        if found:
            self.total += len(found)
            self.findings += found[: max(0, KEPT - len(self.findings))]
        return found

    def by_law(self) -> Counter[str]:
        """How often each law is broken."""
        return sum((each.counts.by_law for each in self.followers), Counter())


def audit(
    recording: Recording, config: FollowerConfig | None = None, excerpts: int = 3
) -> AuditResult:
    """Fold a recording, and make excerpts of the first findings of different kinds.

    Raises: BadRecording.
    """
    config = config if config is not None else FollowerConfig()
    fold = Fold(config)
    began = time.perf_counter()
    for arrived in recording.frames():
        fold.take(arrived)
    seconds = time.perf_counter() - began
    streams = tuple(
        StreamResult(recording.sources[each.source], each.counts, tuple(each.books()))
        for each in fold.followers
    )
    shown = list({finding.fault: finding for finding in reversed(fold.findings)}.values())[::-1]
    return AuditResult(
        streams=streams,
        findings=tuple(fold.findings),
        total=fold.total,
        by_law=fold.by_law(),
        excerpts=tuple(excerpt_of(recording, each, config) for each in shown[:excerpts]),
        seconds=seconds,
    )
