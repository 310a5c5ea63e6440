"""The result of a check: its findings, and the standing of each law.

One fault may break many laws in many cases. Findings are counted and reduced by the law that was
broken first; `triage` then folds those that one fault most likely causes, and a report replays each
for its calls. A finding that fails the check is a failure. A law is held only if it was exercised,
in a situation where a faulty cache could break it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum
from math import ceil
from typing import Any

from attrs import Factory, define, evolve, field, frozen

from kvcanon.conformance.cases.case import Case, case_from_json, case_to_json
from kvcanon.conformance.check.memory_growth import Growth
from kvcanon.conformance.check.plan import CheckPlan, CheckStage
from kvcanon.conformance.errors import CacheSilent, ChildSilent
from kvcanon.conformance.protocol.adapter import CacheKind, Offer
from kvcanon.spec.config import Profile
from kvcanon.spec.law import LAWS, Level

UNLAWFUL_CALL = "REFUSE-3"
"""The law that is broken if a call is served that must be refused."""
SILENT = frozenset({ChildSilent.__name__, CacheSilent.__name__})
"""Exceptions for a cache that gave no answer in time."""
_DEATH = re.compile(r"SIG[A-Z0-9+]+|signal \d+|exit code \d+")
"""The names of findings that are the end of a process."""


class Grounds(StrEnum):
    """The kind of a finding."""

    LAW = "law"
    """A law is broken."""
    AGREEMENT = "agreement"
    """The cache differs from the one that it must agree with."""
    CRASH = "crash"
    """The cache raised an exception that is no refusal, or gave no answer in time."""


@frozen
class CodeLine:
    """A call as a line of Python, and its answer in words."""

    action: int
    number: int | None
    """The number of the cache's operation; None if the call is no operation."""
    before: tuple[str, ...]
    """Lines that define the names in the code."""
    code: str
    answer: str
    refused: bool
    """Whether the cache refused the call."""


def are_grouped(lines: Iterable[CodeLine]) -> bool:
    """Whether some action made several calls; else the names of actions only repeat the calls."""
    made = Counter(line.action for line in lines if line.number is not None)
    return any(calls > 1 for calls in made.values())


@frozen
class Finding:
    """What is wrong, the case that shows it, and the calls of a replay.

    A play finds it, the check reduces its case and says which others have the same cause, and a
    report replays it. What was not yet done has its default.
    """

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
    case: Case
    action: int
    """Index of the action in the case; the number of actions for the drain."""
    operation: int
    """The number of the cache's operation, from 1; 0 if there was none."""
    texts: tuple[str, ...] = ()
    """A sentence for each law in `broken`."""
    after: str = ""
    """The operation and its outcome, as "Insert" or "Insert, refused"; empty if it is of no law."""
    black_box: bool = False
    """Whether answers and events alone show it."""
    against: str | None = None
    """The cache to agree with."""
    origin: str = ""
    """Where it was found first, such as "vector LOAD-1-a" or "walker, seed 17"."""
    case_number: int = 0
    """The number of the drawn case in which the walker found it first."""
    times: int = 1
    """How many findings have its fingerprint."""
    earlier: bool = False
    """Whether an earlier run found it, on a cache that may have changed since."""
    reduced: bool = True
    """Whether its case was reduced until nothing more could be left out."""
    inside: frozenset[str] = frozenset()
    """The ids of the laws that its case breaks at that operation or before if it is judged by the
    cache's states; empty if the cache shows none."""
    why_folded: str = ""
    """Why another finding most likely has the same cause; empty if no other does."""
    folded: tuple[Finding, ...] = ()
    """Longer findings that most likely have the same cause."""
    number: str = ""
    """Its number in a report: "2", or "2.1" for the first that is folded into finding 2."""
    calls: tuple[CodeLine, ...] = ()
    """The calls of its replay. Its sentences call keys as these do."""
    shown_again: bool = True
    """Whether its replay showed it again; a cache that is not deterministic may differ."""
    script: str = ""
    """A program that makes its calls."""
    permitted_by: Mapping[str, str] = field(factory=dict, hash=False)
    """The choices of a profile under which its case breaks no law, as "Profile(...)", in words."""
    left_out_by: tuple[str, ...] = ()
    """The fields of an offer that leave its case out, as "Offer(...)"."""

    @property
    def every(self) -> tuple[Finding, ...]:
        """The finding, and those that are folded into it."""
        return self, *self.folded

    @property
    def only_should(self) -> bool:
        """Whether only SHOULD laws are broken."""
        should = (LAWS[law_id].level is Level.SHOULD for law_id in self.broken)
        return self.grounds is Grounds.LAW and all(should)

    @property
    def headline(self) -> str:
        """The finding in one line: the law's id and name, or what else is wrong."""
        match self.grounds:
            case Grounds.LAW:
                return f"{self.name} {LAWS[self.name].name}"
            case Grounds.AGREEMENT:
                return f"no agreement: {self.name}"
            case Grounds.CRASH:
                return f"crash: {self.name}"

    @property
    def is_unlawful_call(self) -> bool:
        """Whether a call was served that must be refused; few clients make such calls."""
        return UNLAWFUL_CALL in self.broken

    @property
    def is_death(self) -> bool:
        """Whether it is the end of the process that played the case."""
        return self.grounds is Grounds.CRASH and _DEATH.fullmatch(self.name) is not None

    @property
    def is_silence(self) -> bool:
        """Whether the cache gave no answer, so that each further case may take long."""
        return self.grounds is Grounds.CRASH and self.name in SILENT

    @property
    def takes_its_process(self) -> bool:
        """Whether its case ends or blocks the process that plays it."""
        return self.is_death or self.name == CacheSilent.__name__

    @property
    def fingerprint(self) -> tuple[str, Grounds, str]:
        """Findings with the same fingerprint count as the same fault."""
        return self.cache, self.grounds, self.name

    @property
    def evidence(self) -> dict[str, str]:
        """A sentence for each broken law, by its id."""
        texts = self.texts or (self.text,) * len(self.broken)
        return dict(zip(self.broken, texts, strict=True))

    def is_same(self, other: Finding | None) -> bool:
        """Whether another finding counts as the same fault."""
        if other is None or (self.cache, self.grounds) != (other.cache, other.grounds):
            return False
        return self.name == other.name or self.name in other.broken

    def of_law(self, law_id: str) -> Finding:
        """The same finding, named after one of its broken laws."""
        return evolve(self, name=law_id, text=self.evidence.get(law_id, self.text))


def shorter(one: Finding | None, other: Finding) -> Finding:
    """The finding whose case has fewer actions; the first if they are as long."""
    if one is None or len(other.case.actions) < len(one.case.actions):
        return other
    return one


def finding_to_json(finding: Finding) -> dict[str, Any]:
    """What was found, and how; without what it is folded with, its calls and its script."""
    return {
        "grounds": finding.grounds.value,
        "name": finding.name,
        "broken": list(finding.broken),
        "text": finding.text,
        "evidence": finding.evidence,
        "words": finding.words,
        "after": finding.after,
        "action": finding.action,
        "operation": finding.operation,
        "origin": finding.origin,
        "times": finding.times,
        "black_box": finding.black_box,
        "against": finding.against,
        "reduced": finding.reduced,
        "shown_again": finding.shown_again,
        "case": case_to_json(finding.case),
    }


_AS_THEY_ARE = (
    "name",
    "text",
    "words",
    "after",
    "action",
    "operation",
    "origin",
    "times",
    "black_box",
    "against",
    "reduced",
    "shown_again",
)


def finding_from_json(value: Mapping[str, Any], cache: str) -> Finding:
    """The inverse of `finding_to_json`. Raises: KeyError, TypeError, ValueError, BadArgument."""
    broken = tuple(value["broken"])
    return Finding(
        cache=cache,
        grounds=Grounds(value["grounds"]),
        broken=broken,
        texts=tuple(value["evidence"][law_id] for law_id in broken),
        case=case_from_json(value["case"]),
        **{name: value[name] for name in _AS_THEY_ARE},
    )


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
    declined: int = 0
    """Of these, those whose configuration its factory refused."""
    too_slow: int = 0
    """Large cases that were begun, and left as they took too long."""
    known: Counter[str] = Factory(Counter)
    """In how many cases each law that is known to be broken was broken, by id."""
    growth: Growth | None = None
    """How memory grew in a lasting case, if one was played."""

    def add(self, other: Tally) -> None:
        """Add the counts of other cases."""
        self.cases += other.cases
        self.actions += other.actions
        self.steps += other.steps
        self.laws.update(other.laws)
        self.served.update(other.served)
        self.refused.update(other.refused)
        self.unoffered += other.unoffered
        self.declined += other.declined
        self.too_slow += other.too_slow
        self.known.update(other.known)
        self.growth = self.growth or other.growth


class Standing(StrEnum):
    """Whether a cache holds a law."""

    HELD = "held"
    """The law was exercised, and never broken."""
    BROKEN = "broken"
    NOT_KEPT = "not kept"
    """A SHOULD law is broken; in a strict check that is `BROKEN`."""
    KNOWN = "known"
    """The law is broken, as the file of known differences says."""
    NOT_EXERCISED = "not exercised"


RESERVE = 1.5
"""How many times the time that is likely needed is advised."""

AFTER_SAME_CALL = "after the same call"
"""Why laws that break together are most likely broken by one fault."""


@frozen
class StageResult:
    """One part of a check."""

    name: CheckStage
    cases: int
    steps: int
    seconds: float
    cut_short: str = ""
    """Why the stage ended early; empty if it did not."""
    unoffered: int = 0
    """Cases that were not played, because a cache does not offer their configurations."""
    declined: int = 0
    """Of these, those whose configuration a factory refused."""
    too_slow: int = 0
    """Large cases that were begun, and left as they took too long."""
    asked: int | None = None
    """The cases that the effort asks for; None if it asks for as many as there is time for."""


@frozen
class Unplayed:
    """A stage that did not play all that its effort asks for."""

    stage: CheckStage
    played: int
    """Cases that were played, or not offered."""
    asked: int


@frozen
class CacheResult:
    """The result of a check for one cache."""

    name: str
    profile: Profile
    lacks: tuple[str, ...]
    """Operations that the cache lacks, and needs of laws that it does not show."""
    tallies: Mapping[CheckStage, Tally]
    """The counts of each stage."""
    standings: Mapping[str, Standing]
    """The standing of every law, by its id."""
    failures: tuple[Finding, ...]
    """The findings that fail the check, the shortest first, each with those of the same cause."""
    unkept: tuple[Finding, ...] = ()
    """The findings of SHOULD laws alone."""
    missing: tuple[str, ...] = ()
    """The essentials that were not exercised, in words."""
    offer: Offer = field(default=Offer())
    """The configurations that the cache offers."""
    kind: CacheKind = CacheKind.TREE
    unplayed: tuple[Unplayed, ...] = ()
    """The stages that played less than their effort asks for."""
    no_engine: str = ""
    """Why its factory got no engine, if only its signature is the reason."""
    ignores: tuple[str, ...] = ()
    """What a bare factory pays no heed to, and is not judged on."""

    @property
    def tally(self) -> Tally:
        """The counts of all stages together."""
        total = Tally()
        for tally in self.tallies.values():
            total.add(tally)
        return total

    @property
    def is_mostly_refused(self) -> bool:
        """Whether its factory refused more than half of the cases, which its adapter offers."""
        tally = self.tally
        return 2 * tally.declined > tally.cases + tally.unoffered


@frozen
class CheckResult:
    """A whole check."""

    plan: CheckPlan
    caches: tuple[CacheResult, ...]
    stages: tuple[StageResult, ...]

    @property
    def failures(self) -> tuple[Finding, ...]:
        """The failures of all caches."""
        return tuple(failure for cache in self.caches for failure in cache.failures)

    @property
    def unplayed(self) -> tuple[Unplayed, ...]:
        """What was not played, of all caches."""
        return tuple(each for cache in self.caches for each in cache.unplayed)

    @property
    def minutes_needed(self) -> int:
        """How many minutes a check like this one most likely needs to play everything."""
        shares = {each.stage: each.asked / max(1, each.played) for each in self.unplayed}
        seconds = sum(each.seconds * shares.get(each.name, 1.0) for each in self.stages)
        return ceil(max(seconds * RESERVE, 2 * self.plan.effort.seconds) / 60)
