"""What a probe played of what it was to play, and whether that is enough for a verdict."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from attrs import define, field, frozen

LEAST_REQUESTS = 10
"""Requests of rounds that a verdict needs; those without a cache do not count."""
LEAST_HITS = 5
"""How many of them must have had cached tokens: the first round sends five prompts twice."""
NO_HITS = (
    "{} requests are known to have had cached tokens, and a verdict needs {}: let the server say "
    "them, as vLLM with --enable-prompt-tokens-details"
)


class ProbeVerdict(StrEnum):
    """The verdict of a probe."""

    HELD = "HELD"
    BROKEN = "BROKEN"
    INCOMPLETE = "INCOMPLETE"


@frozen
class PlayedRound:
    """A round that was played, and how many requests it took."""

    name: str
    purpose: str
    requests: int
    with_hits: int
    cut_short: bool = False


@frozen
class MissingPart:
    """A part that was not played: a round, its end, or a repetition of a finding's requests."""

    what: str
    why: str
    mend: str
    """How to get it, as an instruction."""
    is_round: bool = True

    @property
    def words(self) -> str:
        """All of it, in one line."""
        return f"{self.what}: {self.why}; {self.mend}"


@define
class Coverage:
    """The rounds that were played, and those that were to be played and were not."""

    played: list[PlayedRound] = field(factory=list)
    missing: list[MissingPart] = field(factory=list)

    @property
    def whole(self) -> int:
        """How many rounds were played to their end."""
        return sum(1 for each in self.played if not each.cut_short)

    @property
    def due(self) -> int:
        """How many rounds were to be played."""
        missing = {each.what for each in self.missing if each.is_round}
        return len(missing | {each.name for each in self.played})

    @property
    def requests(self) -> int:
        """Requests of rounds."""
        return sum(each.requests for each in self.played)

    @property
    def hits(self) -> int:
        """Requests of rounds that had cached tokens."""
        return sum(each.with_hits for each in self.played)

    @property
    def mends(self) -> list[str]:
        """Instructions that would complete the probe, each once; empty if nothing is missing."""
        mends = list(dict.fromkeys(each.mend for each in self.missing))
        # Where rounds are missing, they bring the requests.
        if mends:
            return mends
        if self.requests < LEAST_REQUESTS:
            return [f"a verdict needs {LEAST_REQUESTS} requests of rounds"]
        if self.hits < LEAST_HITS:
            return [NO_HITS.format(self.hits, LEAST_HITS)]
        return []

    def verdict(self, *, broken: bool) -> ProbeVerdict:
        """The verdict, where it is known whether a fault was found."""
        if broken:
            return ProbeVerdict.BROKEN
        return ProbeVerdict.INCOMPLETE if self.mends else ProbeVerdict.HELD


def missing_words(parts: Iterable[MissingPart]) -> str:
    """The names of what is missing, between commas."""
    return ", ".join(each.what for each in parts)
