"""The plan of a check: its options, from the command line to each of its cases.

A plan is a value, which processes can pass on to each other. It names the caches; `cases_of` in
`blocks.py` makes what plays one of them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator
from enum import StrEnum

from attrs import evolve, field, frozen

from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.judge import ALL_JUDGES, JudgeConfig, find_law
from kvcanon.conformance.protocol.adapter import Offer
from kvcanon.spec.law import LAWS


class CheckStage(StrEnum):
    """A stage of a check, in their order."""

    VECTORS = "vectors"
    CORPUS = "corpus"
    WALKER = "walker"
    MACHINE = "machine"
    RANKS = "ranks"
    STORES = "stores"
    """Cases with a store below the host tier, of caches that offer one."""


# How much is played.


@frozen
class Effort:
    """How much is played on each cache.

    An effort is a number of cases, so that equal checks give equal results on every machine. It
    also has a time limit, except for the vectors; a check that the limit cuts short is incomplete.
    """

    name: str
    walker_cases: int | None
    """None if the walker plays until the time is over."""
    machine_cases: int | None
    """Cases that Hypothesis draws; None as above."""
    ranks_cases: int
    """Cases of the walker that several ranks play."""
    corpus_cases: int
    """Cases of the corpus, from its first one on."""
    seconds: float
    """The time limit for all caches together, from when they are loaded."""
    block: int = 16
    """Cases of the walker in a block."""
    run: int = 50
    """Cases that Hypothesis draws in one run; runs share nothing."""
    store_cases: int = 0
    """Cases with a store below the host tier."""

    @property
    def is_open(self) -> bool:
        """Whether it is as many cases as there is time for."""
        return self.walker_cases is None


QUICK_CASES, STANDARD_CASES = 560, 15_000
"""Cases of the walker."""
CORPUS_CASES = 96
"""All that the corpus has."""

EFFORTS = {
    each.name: each
    for each in (
        Effort(
            "quick",
            walker_cases=QUICK_CASES,
            machine_cases=78,
            ranks_cases=48,
            corpus_cases=CORPUS_CASES,
            seconds=120,
            store_cases=128,
        ),
        Effort(
            "standard",
            walker_cases=STANDARD_CASES,
            machine_cases=2_500,
            ranks_cases=1_000,
            corpus_cases=CORPUS_CASES,
            seconds=570,
            store_cases=1_500,
        ),
        Effort(
            "deep",
            walker_cases=None,
            machine_cases=None,
            ranks_cases=10_000,
            corpus_cases=CORPUS_CASES,
            seconds=3600,
            block=256,
            store_cases=15_000,
        ),
    )
}


def effort_named(name: str, minutes: float | None = None) -> Effort:
    """The effort with this name; `minutes` set its time limit. Raises: UsageError."""
    if name not in EFFORTS:
        raise UsageError(f"no effort {name!r}; choose one of {', '.join(EFFORTS)}")
    effort = EFFORTS[name]
    return effort if minutes is None else evolve(effort, seconds=minutes * 60)


@frozen
class Shard:
    """A part of a check: jobs that play the shards 1/4 to 4/4 play the whole check together.

    Vectors, the walker's cases and the machine's runs are dealt out in turn.
    """

    number: int = 1
    of: int = 1

    @staticmethod
    def parse(text: str) -> Shard:
        """The shard of a text such as "1/4". Raises: UsageError."""
        found = re.fullmatch(r"([1-9]\d{0,3})/([1-9]\d{0,3})", text)
        if found is None or int(found[1]) > int(found[2]):
            raise UsageError(f"no shard {text!r}; give one as 1/4, of the shards 1/4 to 4/4")
        return Shard(int(found[1]), int(found[2]))

    def parts(self, parts: Iterator[int]) -> Iterator[int]:
        """The parts of this shard."""
        return (part for part in parts if part % self.of == self.number - 1)

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"


# The plan.


def _each_once(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _processes(jobs: int | None) -> int:
    return jobs or os.cpu_count() or 1


@frozen
class CheckPlan:
    """The caches to check, and how. Raises: UsageError."""

    caches: tuple[str, ...] = field(converter=_each_once)
    """Their names on the command line."""
    judges: JudgeConfig = ALL_JUDGES
    effort: Effort = field(factory=lambda: effort_named("quick"))
    seed: int = 0
    against: str | None = None
    """The name of a cache that the others must agree with."""
    stages: tuple[CheckStage, ...] = tuple(CheckStage)
    """The stages to run, in their order."""
    strict: bool = False
    """Whether broken SHOULD laws fail the check."""
    store: str | None = None
    """Where a deep check keeps its results: a directory, or the URL of a Redis."""
    shard: Shard = Shard()
    """The part of all cases to play."""
    jobs: int = field(default=None, converter=_processes)
    """Worker processes; None for one for each core."""
    narrowed: tuple[tuple[str, Offer], ...] = ()
    """The offers of bare factories, by name, without what their caches ignore."""
    of_corpus: bool = False
    """Whether its numbered cases are those of the corpus; they are drawn otherwise."""
    of_stores: bool = False
    """Whether its numbered cases have a store below the host tier."""

    def __attrs_post_init__(self) -> None:
        """Refuse two ways of dealing out cases. Raises: UsageError."""
        if self.shard.of > 1 and self.store is not None:
            raise UsageError("a store deals out the cases of a deep check; leave the shard out")

    def of(self, cache: str) -> CachePlan:
        """What it asks of one cache."""
        return CachePlan(self, cache)


@frozen
class CachePlan:
    """What a plan asks of one of its caches."""

    plan: CheckPlan
    name: str

    @property
    def model(self) -> str | None:
        """The cache to agree with; none for that cache itself."""
        return None if self.plan.against == self.name else self.plan.against

    @property
    def narrowed(self) -> Offer | None:
        """What the cache offers instead of what its adapter says."""
        return dict(self.plan.narrowed).get(self.name)


def stages_and_laws(
    names: Collection[str],
) -> tuple[tuple[CheckStage, ...], tuple[str, ...] | None]:
    """The stages and the laws among some names, as a plan has them. Raises: UsageError.

    Where no stage is named, they are all; where no law is named, the laws are None for all. An area
    stands for its laws.
    """
    law_ids: set[str] = set()
    for name in names:
        if name not in tuple(CheckStage):
            of_area = {law.law_id for law in LAWS.values() if law.area == name.upper()}
            law_ids |= of_area or {find_law(name).law_id}
    stages = tuple(stage for stage in CheckStage if stage in names)
    return stages or tuple(CheckStage), tuple(
        law_id for law_id in LAWS if law_id in law_ids
    ) or None
