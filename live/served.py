"""The truth beside the stream: what events promise for a prompt, and what the engine served.

A log of requests is JSON, one object a line: `tokens`, `cached_tokens` and `time` (seconds since
1970 at which the request was sent), and where they are known `cached_tokens_details` (tokens by
`device`, `host` and `storage`), `cache_salt` and `lora`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from attrs import define, evolve, field, frozen

from kvcanon.live.follower import Follower, FollowerConfig
from kvcanon.live.frames import Frame
from kvcanon.live.overlap import Overlap, overlap
from kvcanon.live.stream_recording import BadRecording, Recording

LAW = "EVENT-4"
"""The law that both mismatches break: the sum of the events is exactly what is resident."""
PROMISED = "promised and not served"
UNPROMISED = "served and not promised"


@frozen
class ServedRequest:
    """A request of a log."""

    tokens: tuple[int, ...]
    cached: int
    tiers: Mapping[str, int] | None = None
    """Cached tokens by tier; None where the engine does not say."""
    time: float = 0.0
    salt: str = ""
    lora: str = ""


@frozen
class ServedMismatch:
    """A request of which another part was served than the stream promised."""

    kind: str
    words: str


@define
class ServedSums:
    """Tokens that were promised and that were served, by tier, over requests."""

    requests: int = 0
    promised: dict[str, int] = field(factory=dict)
    served: dict[str, int] = field(factory=dict)

    def add(self, promised: Overlap, served: ServedRequest) -> None:
        """Add one request."""
        self.requests += 1
        tiers = served.tiers if served.tiers is not None else {"any": served.cached}
        for sums, given in ((self.promised, promised.by_tier), (self.served, tiers)):
            for tier, tokens in given.items():
                if tokens:
                    sums[tier] = sums.get(tier, 0) + tokens


def mismatch_of(
    promised: Overlap, served: ServedRequest, *, partly: bool = False
) -> ServedMismatch | None:
    """What differs between promise and service, if anything.

    On the device exactly what is promised must be served. What is promised on other tiers may be
    declined, since a load can be too short or find no room; it must not be exceeded. With `partly`
    an engine may also use less than is there, as one with a sliding window does.
    """
    if served.cached > promised.anywhere:
        words = (
            f"{served.cached} tokens were served from the cache, where the stream promises "
            f"{promised.anywhere}"
        )
        return ServedMismatch(UNPROMISED, words)
    if partly:
        return None
    device = served.cached if served.tiers is None else served.tiers.get("device", 0)
    if device < promised.device:
        words = f"the stream promises {promised.device} tokens on the device, and {device} were "
        words += "served" if served.tiers is None else "served from there"
        return ServedMismatch(PROMISED, words)
    if served.tiers is not None and device > promised.device:
        words = (
            f"{device} tokens were served from the device, where the stream promises "
            f"{promised.device} there"
        )
        return ServedMismatch(UNPROMISED, words)
    return None


@frozen
class ServedAudit:
    """A log beside a recording."""

    sums: ServedSums
    unknown: int
    """Requests of which it is not known what was promised."""
    mismatches: tuple[tuple[int, ServedMismatch], ...]
    """By the line of the log, from 1."""

    @property
    def holds(self) -> bool:
        """Whether requests were compared, and each was served as promised."""
        return bool(self.sums.requests) and not self.mismatches


def audit_served(
    recording: Recording, log: Path, config: FollowerConfig, source: int, *, partly: bool
) -> ServedAudit:
    """Compare each request of a log with what the stream had promised when it was sent.

    Raises: BadRecording.
    """
    follower = Follower(source, evolve(config, finding_prompts=True))
    frames = _frames(recording, source)
    waiting = next(frames, None)
    sums, unknown, found = ServedSums(), 0, []
    for line, request in sorted(read_served(log), key=lambda each: each[1].time):
        while waiting is not None and waiting.received <= request.time:
            follower.take(waiting)
            waiting = next(frames, None)
        promised = overlap(follower, request.tokens, request.salt, request.lora)
        if promised is None or not follower.saw_all:
            unknown += 1
            continue
        sums.add(promised, request)
        mismatch = mismatch_of(promised, request, partly=partly)
        if mismatch is not None:
            found.append((line, mismatch))
    return ServedAudit(sums, unknown, tuple(sorted(found, key=lambda each: each[0])))


def read_served(log: Path) -> Iterator[tuple[int, ServedRequest]]:
    """The requests of a log, with their lines, from 1. Raises: BadRecording."""
    try:
        with log.open(encoding="utf-8") as file:
            yield from _parsed(log, file)
    except (OSError, UnicodeDecodeError) as error:
        raise BadRecording(f"{log} cannot be read: {error}") from error


def _parsed(log: Path, file: Iterable[str]) -> Iterator[tuple[int, ServedRequest]]:
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        try:
            plain = json.loads(line)
            details = plain.get("cached_tokens_details")
            yield (
                number,
                ServedRequest(
                    tuple(int(token) for token in plain["tokens"]),
                    int(plain["cached_tokens"]),
                    None if details is None else {k: int(v) for k, v in details.items() if v},
                    float(plain["time"]),
                    str(plain.get("cache_salt") or ""),
                    str(plain.get("lora") or ""),
                ),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadRecording(
                f"{log}, line {number}: no request with tokens, cached_tokens and time "
                f"({type(error).__name__}: {error})"
            ) from error


def _frames(recording: Recording, source: int) -> Iterator[Frame]:
    for arrived in recording.frames():
        if isinstance(arrived, Frame) and arrived.source == source:
            yield arrived
