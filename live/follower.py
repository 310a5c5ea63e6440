"""Follows publishers: places their batches, folds them, and says which laws they break."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from enum import IntEnum
from zlib import crc32

from attrs import asdict, define, field, frozen

from kvcanon.live._stream import Ledger, MalformedFrame
from kvcanon.live.dialects import MEDIA, GroupKind, tier_name
from kvcanon.live.frames import Arrived, BatchPlace, Frame, Placed, SequenceTracker, Source
from kvcanon.live.hash_seeds import seeds_of
from kvcanon.live.ledger_types import BookCounts, BreachTuple
from kvcanon.live.stream_faults import Fault, StreamFinding

KEPT = 1000
"""Findings that are kept in full; all are counted."""


class HashRule(IntEnum):
    """How hashes are judged; the numbers are those of the native ledger."""

    AUTO = 0
    """Once hashes of a namespace were seen to follow from its tokens, all must."""
    TOKENS = 1
    """All hashes must follow from tokens."""
    OPAQUE = 2
    """Hashes are names; whether they follow from anything is not judged."""


class RepeatRule(IntEnum):
    """What a store means of a block that is there; the numbers are those of the native ledger."""

    AUTO = 0
    """`COUNTED` where events name kinds of groups or tiers, as vLLM's, and `REPORTED` once a block
    has more copies than can be; otherwise `ONCE`."""
    ONCE = 1
    """It is a breach."""
    COUNTED = 2
    """It is one more copy, and needs a remove of its own."""
    REPORTED = 3
    """It is a report of what is there; one remove takes the block off."""


@frozen
class FollowerConfig:
    """What is judged."""

    hashes: HashRule = HashRule.AUTO
    repeats: RepeatRule = RepeatRule.AUTO
    closed: frozenset[str] = frozenset()
    """Media of `kvcanon.live.dialects.MEDIA`, beside the device, on which a block needs the block
    before it: not so on the host under write_back."""
    ignored: frozenset[str] = frozenset()
    """Ids of laws whose breaches are not reported."""
    tracing: bool = False
    finding_prompts: bool = False
    """Whether `kvcanon.live.served` can look up prompts; it takes time and memory."""


@define
class FollowerCounts:
    """Counts of one publisher since it is followed."""

    batches: int = 0
    events: int = 0
    pages: int = 0
    unknown_events: int = 0
    malformed: int = 0
    gaps: int = 0
    lost: int = 0
    """Batches that no replay has."""
    replayed: int = 0
    repeated: int = 0
    restarts: int = 0
    last_sequence: int = -1
    last_timestamp: float = 0.0
    last_received: float = 0.0
    """Seconds since 1970 at which the last frame came; 0 before the first."""
    by_law: Counter[str] = field(factory=Counter)
    by_group: Counter[tuple[str, int | None]] = field(factory=Counter)
    """How often each law is broken, by the group of layers; None where the stream names none."""

    def as_plain(self) -> dict[str, object]:
        """The counts as plain values, as JSON has them."""
        return asdict(self, filter=lambda counted, _: counted.name != "by_group")


@frozen
class BookView:
    """What one rank holds, by a stream."""

    rank: int
    group: int
    complete: bool
    """Whether everything since the last AllBlocksCleared was seen."""
    counts: BookCounts
    tiers: tuple[str, ...] = MEDIA
    """The names of its tiers, by their numbers."""

    @property
    def kind(self) -> GroupKind:
        """What its layers keep."""
        return GroupKind(self.counts["kind"])

    @property
    def group_words(self) -> str:
        """The group and its kind, as "group 1 window 64"; nothing where the stream names none."""
        if not self.group and self.kind is GroupKind.UNSAID:
            return ""
        kind = "" if self.kind is GroupKind.UNSAID else f" {self.kind.name.lower()}"
        window = f" {self.counts['window']}" if self.counts["window"] else ""
        return f"group {self.group}{kind}{window}"

    def blocks(self) -> dict[str, int]:
        """Blocks by tier, of tiers that ever had any."""
        numbers = zip(self.tiers, self.counts["blocks"], self.counts["stored"], strict=False)
        return {name: blocks for name, blocks, stored in numbers if stored or name == "GPU"}


class Follower:
    """Folds the batches of one publisher, in the order in which they are given."""

    def __init__(
        self, source: int = 0, config: FollowerConfig | None = None, rank: int | None = None
    ) -> None:
        self.source = source
        self.rank = rank
        """The rank that its batches must name, if its address says one."""
        self.config = config if config is not None else FollowerConfig()
        self.counts = FollowerCounts()
        self._tracker = SequenceTracker()
        self._mixed = False
        """Whether two publishers were found, and reported, in the last batches."""
        self._other_ranks: set[int] = set()
        """Wrong ranks that were reported."""
        self.ledger = Ledger(
            seeds_of,
            int(self.config.hashes),
            int(self.config.repeats),
            sum(1 << MEDIA.index(medium) for medium in self.config.closed),
            self.config.tracing,
            self.config.finding_prompts,
        )

    def books(self) -> list[BookView]:
        """What each rank and group of layers holds."""
        tiers = self.tiers()
        return [BookView(*book, tiers) for book in self.ledger.books()]

    def tiers(self) -> tuple[str, ...]:
        """The names of tiers, by their numbers."""
        return tuple(
            tier_name(medium, is_remote=is_remote, owner=owner)
            for medium, is_remote, owner in self.ledger.tiers()
        )

    @property
    def saw_all(self) -> bool:
        """Whether the stream was followed from a clear on, so that it shows all cached blocks."""
        books = self.books()
        return bool(books) and all(book.complete for book in books)

    def take(self, frame: Arrived) -> list[StreamFinding]:
        """Fold what arrived, and return what is wrong with it. A malformed batch is skipped."""
        self.counts.last_received = frame.received
        if not isinstance(frame, Frame):
            self.counts.malformed += 1
            due = self.counts.last_sequence + 1
            found = [StreamFinding(Fault.MALFORMED, self.source, due, problem=frame.problem)]
            return self._reported(found)
        placed = frame.placed
        if placed is None:
            if frame.anew:
                self._tracker.forget()
            placed = self._tracker.place(frame.sequence, crc32(frame.payload))
        if frame.anew and self.counts.batches:
            self.ledger.drop()
            self.counts.restarts += 1
        sequence = frame.sequence
        found = [] if placed.place is BatchPlace.NEXT else list(self._misplaced(placed, sequence))
        if placed.place not in {BatchPlace.REPEATED, BatchPlace.LATE}:
            self.counts.replayed += frame.replayed
            begins = placed.place is BatchPlace.FIRST
            found += self._fold(sequence, frame.payload, begins=begins)
        return self._reported(found)

    def _misplaced(self, placed: Placed, sequence: int) -> Iterator[StreamFinding]:
        counts = self.counts
        counts.restarts += placed.restarted
        if placed.place is BatchPlace.AFTER_GAP:
            missing = placed.missing
            joined_late = missing.start == 0 and not placed.restarted
            if placed.restarted:
                self.ledger.drop()
            else:
                self.ledger.lose()
            if not joined_late:
                counts.gaps += 1
                # `len` of a range counts to half of what a sequence number may be.
                counts.lost += missing.stop - missing.start
                yield StreamFinding(Fault.LOST, self.source, missing.start, last=missing.stop - 1)
        elif placed.place is BatchPlace.REPEATED:
            counts.repeated += 1
            yield StreamFinding(Fault.REPEATED, self.source, sequence)
        elif placed.place is BatchPlace.LATE:
            yield StreamFinding(Fault.OUT_OF_ORDER, self.source, sequence)
        elif placed.place is BatchPlace.OF_ANOTHER:
            # Of two caches in one book nothing follows from what was stored before.
            self.ledger.lose()
            if not self._mixed:
                self._mixed = True
                yield StreamFinding(Fault.TWO_PUBLISHERS, self.source, sequence)

    def _fold(self, sequence: int, payload: bytes, *, begins: bool) -> Iterator[StreamFinding]:
        counts = self.counts
        counts.batches += 1
        counts.last_sequence = sequence
        try:
            rank, counts.last_timestamp, events, pages, unknown, broken = self.ledger.fold(
                payload, begins
            )
        except MalformedFrame as error:
            counts.malformed += 1
            # What it stored and removed is not known.
            self.ledger.lose()
            yield StreamFinding(Fault.MALFORMED, self.source, sequence, problem=str(error))
            return
        counts.events += events
        counts.pages += pages
        counts.unknown_events += unknown
        if self.rank is not None and rank != self.rank and rank not in self._other_ranks:
            self._other_ranks.add(rank)
            yield StreamFinding(Fault.OTHER_RANK, self.source, sequence, rank, last=self.rank)
        if broken:
            yield from self._broken(sequence, rank, broken)

    def _broken(
        self, sequence: int, rank: int, broken: list[BreachTuple]
    ) -> Iterator[StreamFinding]:
        """What a batch breaks, with the group of layers where the stream names any."""
        names_groups = any(book.group_words for book in self.books())
        tiers = self.tiers()
        for fault, event, page, group, tier, key, other, depth in broken:
            yield StreamFinding(
                Fault(fault),
                self.source,
                sequence,
                rank,
                event,
                page,
                group if names_groups else None,
                tiers[tier],
                key,
                other,
                depth,
            )

    def _reported(self, found: list[StreamFinding]) -> list[StreamFinding]:
        kept = [finding for finding in found if finding.law_id not in self.config.ignored]
        for finding in kept:
            self.counts.by_law[finding.law_id] += 1
            self.counts.by_group[finding.law_id, finding.group] += 1
        return kept


@define
class Streams:
    """The publishers of a recording, or of a subscriber, each with its follower."""

    config: FollowerConfig = FollowerConfig()
    sources: Sequence[Source] = ()
    """The publishers, as far as they are known; their ranks are compared with their batches."""
    followers: list[Follower] = field(factory=list)
    findings: list[StreamFinding] = field(factory=list)
    """The first of them."""
    total: int = 0

    def take(self, arrived: Arrived) -> list[StreamFinding]:
        """Fold what arrived, and return what is wrong with it."""
        found = self.of(arrived.source).take(arrived)
        self.total += len(found)
        self.findings += found[: max(0, KEPT - len(self.findings))]
        return found

    def of(self, source: int) -> Follower:
        """The follower of a publisher."""
        while (number := len(self.followers)) <= source:
            rank = self.sources[number].rank if number < len(self.sources) else None
            self.followers.append(Follower(number, self.config, rank))
        return self.followers[source]

    def name_sources(self, sources: Sequence[Source]) -> None:
        """Note who is followed; a number that went to another publisher begins anew."""
        for follower in self.followers:
            number = follower.source
            if (
                number < len(self.sources)
                and self.sources[number].endpoint != sources[number].endpoint
            ):
                self.followers[number] = Follower(number, self.config, sources[number].rank)
        self.sources = sources

    @property
    def events(self) -> int:
        """All events."""
        return sum(each.counts.events for each in self.followers)

    @property
    def pages(self) -> int:
        """All stores and removes of one block."""
        return sum(each.counts.pages for each in self.followers)

    def by_law(self) -> Counter[str]:
        """How often each law is broken."""
        return sum((each.counts.by_law for each in self.followers), Counter())
