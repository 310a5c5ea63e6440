"""A finding: something that a cache did in a case, and that it must not do.

What readers get wrong: a finding is of a case, not of a law. One fault breaks many laws, in many
cases; that two findings are of one fault is a guess, made by what broke first.
"""

from __future__ import annotations

from collections import Counter
from enum import StrEnum

from attrs import Factory, define, frozen

from kvcanon.spec.law import LAWS, Level


class Grounds(StrEnum):
    """Why something is a finding."""

    LAW = "law"
    """A law does not hold."""
    AGREEMENT = "agreement"
    """Another cache, which it was to agree with, did something else."""
    CRASH = "crash"
    """The cache raised what is no refusal, or said nothing in time."""


@frozen
class Finding:
    """What is wrong, and where."""

    cache: str
    grounds: Grounds
    name: str
    """The id of the law that was broken first; what diverged; or what was raised."""
    broken: tuple[str, ...]
    """The ids of all laws that were broken at that operation."""
    text: str
    """What is wrong, in a sentence."""
    words: str
    """The whole explanation: the operation, its answer, and each law that is broken."""
    action: int
    """Index of the action in its case; the number of actions for the drain."""
    operation: int
    """Which operation of the cache it was, counted from 1."""

    @property
    def only_should(self) -> bool:
        """Whether no law is broken but such as should be kept, and need not."""
        should = (LAWS[law_id].level is Level.SHOULD for law_id in self.broken)
        return self.grounds is Grounds.LAW and all(should)

    @property
    def fingerprint(self) -> tuple[str, Grounds, str]:
        """What findings of one fault most likely share."""
        return self.cache, self.grounds, self.name


@define
class Tally:
    """What came up in cases, added up."""

    cases: int = 0
    actions: int = 0
    steps: int = 0
    """Operations of caches."""
    laws: Counter[str] = Factory(Counter)
    """How often each law was exercised, by id."""
    served: Counter[str] = Factory(Counter)
    """How often each operation was served, by its name."""
    refused: Counter[str] = Factory(Counter)
    """How often each was refused."""
    unoffered: int = 0
    """Cases that the cache sat out, as it is not made with their configuration."""

    def add(self, other: Tally) -> None:
        """Add what came up elsewhere."""
        self.cases += other.cases
        self.actions += other.actions
        self.steps += other.steps
        self.laws.update(other.laws)
        self.served.update(other.served)
        self.refused.update(other.refused)
        self.unoffered += other.unoffered
