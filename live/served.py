"""The truth beside the stream: what events promise for a prompt, and what the engine served.

A log of requests is JSON, one object a line: `tokens`, `cached_tokens` and `time` (seconds since
1970 at which the request was sent), and where they are known `cached_tokens_details` (tokens by
`device`, `host` and `storage`), `cache_salt` and `lora`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec
from attrs import define, evolve, field, frozen

from kvcanon.live.dialects import MEDIA
from kvcanon.live.follower import Follower, FollowerConfig
from kvcanon.live.frames import Frame
from kvcanon.live.hash_seeds import seeds_of
from kvcanon.live.input_files import BadRecording, in_utf_8, read_whole
from kvcanon.live.stream_recording import Recording

LAW = "EVENT-4"
"""The law that both mismatches break: the sum of the events is exactly what is resident."""
PROMISED = "promised and not served"
UNPROMISED = "served and not promised"
_TIERS = {"GPU": "device", "CPU_PINNED": "host"}
_STORAGE = "storage"
_DEVICE_BIT = 1 << MEDIA.index("GPU")


@frozen
class Overlap:
    """The leading tokens of a prompt that are cached, by a stream."""

    device: int
    """Tokens of whole pages on the device, up to the first that is not."""
    anywhere: int
    """The same on any tier."""
    by_tier: Mapping[str, int]
    """Of `anywhere`, each page on the nearest tier that it is on."""


def overlap(
    follower: Follower, tokens: Sequence[int], salt: str = "", lora: str = ""
) -> Overlap | None:
    """What is promised for a prompt; None where there are several ranks, or groups of layers.

    The last token is left out: an engine always computes it. The follower must have been made with
    `finding_prompts`.
    """
    books = [book for book in follower.books() if any(book.counts["stored"])]
    if len(books) > 1:
        return None
    if not books:
        return Overlap(0, 0, {})
    (book,) = books
    size = book.counts["block_size"]
    seeds = seeds_of(salt.encode() or None, lora.encode() or None, None, b"")
    seed = seeds[0] if seeds else b""
    tiers = follower.ledger.tiers_of(book.rank, book.group, seed, tokens[:-1])
    on_device = next((at for at, bits in enumerate(tiers) if not bits & _DEVICE_BIT), len(tiers))
    media = [MEDIA[medium] for medium, _, _ in follower.ledger.tiers()]
    # The nearest medium of a page has the lowest bit.
    pages = Counter(media[(bits & -bits).bit_length() - 1] for bits in tiers)
    by_tier = Counter[str]()
    for medium, count in pages.items():
        by_tier[_TIERS.get(medium, _STORAGE)] += count * size
    return Overlap(on_device * size, len(tiers) * size, by_tier)


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
    """A request that was served more or fewer cached tokens than the stream promised."""

    kind: str
    words: str


@define
class ServedSums:
    """Tokens that were promised and that were served, by tier, over requests."""

    requests: int = 0
    promised: Counter[str] = field(factory=Counter)
    served: Counter[str] = field(factory=Counter)

    def add(self, promised: Overlap, served: ServedRequest) -> None:
        """Add one request."""
        self.requests += 1
        self.promised += Counter(promised.by_tier)
        self.served += Counter({"any": served.cached} if served.tiers is None else served.tiers)


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


_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]


class _Line(msgspec.Struct):
    """A line of a log."""

    tokens: list[_Count]
    cached_tokens: _Count
    time: float
    cached_tokens_details: dict[str, _Count | None] | None = None
    cache_salt: str | None = None
    lora: str | None = None


_LINES = msgspec.json.Decoder(_Line)


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
        lines = in_utf_8(read_whole(log)).split(b"\n")
    except UnicodeError as error:
        raise BadRecording(f"{log} cannot be read: {error}") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            read = _LINES.decode(line)
        except (ValueError, RecursionError) as error:
            raise BadRecording(
                f"{log}, line {number}: no request with tokens, cached_tokens and time: {error}"
            ) from error
        details = read.cached_tokens_details
        yield (
            number,
            ServedRequest(
                tuple(read.tokens),
                read.cached_tokens,
                None if details is None else {tier: each for tier, each in details.items() if each},
                read.time,
                read.cache_salt or "",
                read.lora or "",
            ),
        )


def _frames(recording: Recording, source: int) -> Iterator[Frame]:
    for arrived in recording.frames():
        if isinstance(arrived, Frame) and arrived.source == source:
            yield arrived
