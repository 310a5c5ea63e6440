"""Findings: what is wrong with a cache in a case.

One fault may break many laws in many cases. Findings are counted and reduced by the law that was
broken first; `triage` then folds those that one fault most likely causes.
"""

from __future__ import annotations

from collections import Counter
from enum import StrEnum

from attrs import Factory, define, evolve, frozen

from kvcanon.spec.law import LAWS, Level

UNLAWFUL_CALL = "REFUSE-3"
"""The law that is broken if a call is served that must be refused."""


class Grounds(StrEnum):
    """The kind of a finding."""

    LAW = "law"
    """A law is broken."""
    AGREEMENT = "agreement"
    """The cache differs from the one that it must agree with."""
    CRASH = "crash"
    """The cache raised an exception that is no refusal, or gave no answer in time."""


@frozen
class Finding:
    """What is wrong, and where."""

    cache: str
    grounds: Grounds
    name: str
    """The id of the law that is broken, what differs, or the class of the exception. If several
    laws are broken, it is the first, or the one that the case was reduced for."""
    broken: tuple[str, ...]
    """The ids of all laws that are broken after the operation."""
    text: str
    """One sentence on what is wrong."""
    words: str
    """The whole explanation: the operation, its answer, and each law that is broken."""
    action: int
    """Index of the action in the case; the number of actions for the drain."""
    operation: int
    """The number of the cache's operation, from 1; 0 if there was none."""
    texts: tuple[str, ...] = ()
    """A sentence for each law in `broken`."""
    after: str = ""
    """The operation and its outcome, as "Insert" or "Insert, refused"; empty if it is of no law."""

    @property
    def only_should(self) -> bool:
        """Whether only SHOULD laws are broken."""
        should = (LAWS[law_id].level is Level.SHOULD for law_id in self.broken)
        return self.grounds is Grounds.LAW and all(should)

    @property
    def is_unlawful_call(self) -> bool:
        """Whether a call was served that must be refused; few clients make such calls."""
        return UNLAWFUL_CALL in self.broken

    @property
    def fingerprint(self) -> tuple[str, Grounds, str]:
        """Findings with the same fingerprint count as the same fault."""
        return self.cache, self.grounds, self.name

    @property
    def evidence(self) -> dict[str, str]:
        """A sentence for each broken law, by its id."""
        texts = self.texts or (self.text,) * len(self.broken)
        return dict(zip(self.broken, texts, strict=True))

    def of_law(self, law_id: str) -> Finding:
        """The same finding, named after one of its broken laws."""
        return evolve(self, name=law_id, text=self.evidence.get(law_id, self.text))


@define
class Tally:
    """Counts of cases, operations and law checks."""

    cases: int = 0
    actions: int = 0
    steps: int = 0
    """Operations of the cache."""
    laws: Counter[str] = Factory(Counter)
    """How often each law was exercised, by id."""
    served: Counter[str] = Factory(Counter)
    """How often each operation was served, by name."""
    refused: Counter[str] = Factory(Counter)
    """How often each operation was refused, by name."""
    unoffered: int = 0
    """Cases that were not played, because the cache does not offer their configuration."""
    known: Counter[str] = Factory(Counter)
    """In how many cases each law that is known to be broken was broken, by id."""

    def add(self, other: Tally) -> None:
        """Add the counts of other cases."""
        self.cases += other.cases
        self.actions += other.actions
        self.steps += other.steps
        self.laws.update(other.laws)
        self.served.update(other.served)
        self.refused.update(other.refused)
        self.unoffered += other.unoffered
        self.known.update(other.known)
