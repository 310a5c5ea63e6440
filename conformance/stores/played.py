"""What came of a case: the calls with their answers, and the laws that were broken or met."""

from __future__ import annotations

from collections import Counter

from attrs import define, field, frozen

from kvcanon.spec.stores.calls import Answered, Failed, StoreCall
from kvcanon.spec.stores.store_law import StoreLaw

TIMELESS = frozenset(
    f"STORE-{number}" for number in (1, 2, 3, 5, 6, 12, 15, 16, 17, 18, 20, 24, 25)
)
"""The laws that a store with a deadline cannot break by being starved: those of bytes, and those
that measure a time, from which it is taken how late the machine was. Any other may be broken by a
call that met its deadline and had no time to do its work."""


@frozen
class BrokenStoreLaw:
    """A law that a step of a case broke."""

    law: StoreLaw
    words: str
    action: int
    """The number of the action in the case."""
    step: int
    """The number of the call, among all calls of the case."""


@frozen
class PlayedStep:
    """A call with its answer, for reports."""

    writer: int
    call: StoreCall
    answer: Answered | Failed
    note: str = ""


@define
class Played:
    """The result of a case."""

    broken: list[BrokenStoreLaw] = field(factory=list)
    met: Counter[str] = field(factory=Counter)
    """How often the premise of each law was met."""
    steps: list[PlayedStep] = field(factory=list)
    doubted: list[BrokenStoreLaw] = field(factory=list)
    """What the case shows, too, and the machine may have been the reason for: it was late each
    time that the case was played."""

    def doubt(self) -> None:
        """Doubt what a store does that is starved: laws that it breaks then, or seems to keep."""
        self.doubted = [each for each in self.broken if each.law.law_id not in TIMELESS]
        self.broken = [each for each in self.broken if each.law.law_id in TIMELESS]
        for each in self.doubted:
            self.met.pop(each.law.law_id, None)
