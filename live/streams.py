"""Follows the streams of several publishers at once, as a watch and an audit do."""

from __future__ import annotations

from collections import Counter

from attrs import define, field

from kvcanon.live.follower import Follower, FollowerConfig
from kvcanon.live.frames import Arrived
from kvcanon.live.stream_faults import StreamFinding

KEPT = 1000
"""Findings that are kept in full; all are counted."""


@define
class Streams:
    """The publishers of a recording, or of a subscriber, each with its follower."""

    config: FollowerConfig
    followers: list[Follower] = field(factory=list)
    findings: list[StreamFinding] = field(factory=list)
    """The first of them."""
    total: int = 0

    def take(self, arrived: Arrived) -> list[StreamFinding]:
        """Fold what arrived, and return what is wrong with it."""
        while len(self.followers) <= arrived.source:
            self.followers.append(Follower(len(self.followers), self.config))
        found = self.followers[arrived.source].take(arrived)
        self.total += len(found)
        self.findings += found[: max(0, KEPT - len(self.findings))]
        return found

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
