"""Judges a recording: what it holds in the end, which laws it breaks, and what shows it."""

from __future__ import annotations

import time

from attrs import frozen

from kvcanon.live.excerpt import Excerpt, excerpt_of
from kvcanon.live.follower import FollowerConfig, Streams
from kvcanon.live.stream_recording import Recording


@frozen
class AuditResult:
    """What a recording came to."""

    streams: Streams
    excerpts: tuple[Excerpt, ...]
    seconds: float
    """That folding took."""


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
    shown = list({finding.fault: finding for finding in reversed(streams.findings)}.values())[::-1]
    made = tuple(excerpt_of(recording, each, config) for each in shown[:excerpts])
    return AuditResult(streams, made, seconds)
