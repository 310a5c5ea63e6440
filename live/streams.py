"""Follows the streams of several publishers at once, as a watch and an audit do."""

from __future__ import annotations

from collections import Counter

from attrs import define, field

from kvcanon.live.follower import Follower, FollowerConfig
from kvcanon.live.frames import Arrived, Frame
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
        follower = self.followers[arrived.source]
        if isinstance(arrived, Frame):
            found = follower.take(arrived)
        else:
            found = follower.break_off(arrived.problem)
        if found:
            self.total += len(found)
            self.findings += found[: max(0, KEPT - len(self.findings))]
        return found

    def by_law(self) -> Counter[str]:
        """How often each law is broken."""
        return sum((each.counts.by_law for each in self.followers), Counter())
