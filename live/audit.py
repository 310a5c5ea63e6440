"""Judges a recording: what it holds in the end, which laws it breaks, and what shows it."""

from __future__ import annotations

import time
from collections import Counter

from attrs import frozen

from kvcanon.live.excerpt import Excerpt, excerpt_of
from kvcanon.live.follower import BookView, FollowerConfig, FollowerCounts
from kvcanon.live.frames import Source
from kvcanon.live.stream_faults import StreamFinding
from kvcanon.live.stream_recording import Recording
from kvcanon.live.streams import Streams


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


def audit(
    recording: Recording, config: FollowerConfig | None = None, excerpts: int = 3
) -> AuditResult:
    """Fold a recording, and make excerpts of the first findings of different kinds.

    Raises: BadRecording.
    """
    config = config if config is not None else FollowerConfig()
    streams = Streams(config)
    began = time.perf_counter()
    for arrived in recording.frames():
        streams.take(arrived)
    seconds = time.perf_counter() - began
    results = tuple(
        StreamResult(recording.sources[each.source], each.counts, tuple(each.books()))
        for each in streams.followers
    )
    shown = list({finding.fault: finding for finding in reversed(streams.findings)}.values())[::-1]
    return AuditResult(
        streams=results,
        findings=tuple(streams.findings),
        total=streams.total,
        by_law=streams.by_law(),
        excerpts=tuple(excerpt_of(recording, each, config) for each in shown[:excerpts]),
        seconds=seconds,
    )
