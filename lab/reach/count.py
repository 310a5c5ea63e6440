"""Counts what cases visit: plays the cases of a check on the plain cache, one by one.

The cases and the ways to judge them are those of `kvcanon check reference`, effort by effort and
seed by seed. A case that is played several times, as a vector is, counts once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache, wraps
from typing import Any

from attrs import Factory, define, evolve, frozen

from kvcanon.conformance.cases.case import RANKS
from kvcanon.conformance.check.blocks import WHITE_EVERY, NumberedCases, cases_of
from kvcanon.conformance.check.machine import Drawing, Journal, draw_cases
from kvcanon.conformance.check.plan import CheckPlan, CheckStage, Effort
from kvcanon.conformance.check.result import Tally
from kvcanon.conformance.check.vector_stage import play_vector
from kvcanon.conformance.protocol.adapter import Adapter
from kvcanon.conformance.vectors import read_vectors
from kvcanon.lab.reach.branches import BranchMarks, CallPath, watch_branches
from kvcanon.lab.reach.features import Feature, FeatureKind, pairs_of, refusal_of, settings_of
from kvcanon.reference import ReferenceCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import CacheError
from kvcanon.spec.operations import METHODS
from kvcanon.spec.tier import StoreQueue
from kvcanon.spec.transfer import Agree, TransferEngine

CACHE = "reference"
BY_STATES, FROM_OUTSIDE = "walker by states", "walker from outside"
STAGES = (
    CheckStage.VECTORS,
    CheckStage.CORPUS,
    BY_STATES,
    FROM_OUTSIDE,
    CheckStage.MACHINE,
    CheckStage.RANKS,
    CheckStage.STORES,
)
"""The parts that are counted apart."""


@define
class Reach:
    """In how many cases each feature was visited, and each pair of features."""

    cases: int = 0
    counts: Counter[Feature] = Factory(Counter)
    pairs: Counter[tuple[Feature, Feature]] = Factory(Counter)

    def note(self, features: frozenset[Feature]) -> None:
        """Add a case."""
        self.cases += 1
        self.counts.update(features)
        self.pairs.update(pairs_of(features))

    def add(self, other: Reach) -> None:
        """Add the counts of other cases."""
        self.cases += other.cases
        self.counts.update(other.counts)
        self.pairs.update(other.pairs)


# What is seen of a case.


class ReachWatch:
    """Sees what the plain cache does in this process, from one case to the next."""

    def __init__(self, marks: BranchMarks) -> None:
        self._marks = marks
        self._seen: set[Feature] = set()
        self._paths: set[tuple[str, CallPath]] = set()
        self._branches = [Feature(FeatureKind.BRANCH, str(each)) for each in marks.branches]

    def make(
        self,
        config: CacheConfig,
        engine: TransferEngine | None = None,
        agree: Agree | None = None,
        store: StoreQueue | None = None,
    ) -> ReferenceCache:
        """Make a plain cache that is watched."""
        self._seen.update(settings_of(config))
        return _Watched(config, engine, agree, store)

    def saw(self, *features: Feature) -> None:
        """Note features of the case that runs."""
        self._seen.update(features)

    def begin_call(self) -> bytes:
        """Begin to see the path of a call; see `BranchMarks`."""
        return self._marks.begin_call()

    def end_call(self, name: str, earlier: bytes) -> None:
        """Note the path of a call of an operation."""
        self._paths.add((name, self._marks.end_call(earlier)))

    def take_paths(self) -> frozenset[tuple[str, CallPath]]:
        """The operations that were called since it was last asked, each with its paths."""
        paths, self._paths = frozenset(self._paths), set()
        return paths

    def take(self, tally: Tally) -> frozenset[Feature]:
        """What was seen since it was last asked, with what a tally counts."""
        seen, self._seen = self._seen, set()
        self._paths.clear()
        seen |= {self._branches[at] for at in self._marks.take()}
        seen |= {Feature(FeatureKind.LAW, law_id) for law_id, times in tally.laws.items() if times}
        seen |= {Feature(FeatureKind.SERVED, name) for name, times in tally.served.items() if times}
        return frozenset(seen)


@cache
def watch() -> ReachWatch:
    """The watch of this process, which it keeps to its end."""
    return ReachWatch(watch_branches())


class _Watched(ReferenceCache):
    """The plain cache, whose refusals the watch of its process sees."""


def _seeing(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(*args: object, **kwargs: object) -> object:
        earlier = watch().begin_call()
        try:
            return method(*args, **kwargs)
        except CacheError as refusal:
            watch().saw(*refusal_of(name, refusal))
            raise
        finally:
            watch().end_call(name, earlier)

    return call


for _name in METHODS.values():
    setattr(_Watched, _name, _seeing(_name, getattr(ReferenceCache, _name)))


class _CaseTally(Tally):
    """The counts of the cases that Hypothesis draws: each is noted when it is added."""

    note: Callable[[Tally], None]

    def add(self, other: Tally) -> None:
        """Note a case."""
        self.note(other)


# The parts of a check.


@frozen
class CasePart:
    """Some cases of a stage."""

    stage: str
    numbers: Sequence[int]


def parts_of(effort: Effort) -> Iterator[CasePart]:
    """The parts of an effort, the long ones first."""
    each = effort.run
    for run in range(-(-(effort.machine_cases or 0) // each)):
        yield CasePart(CheckStage.MACHINE, (run,))
    walker = range(effort.walker_cases or 0)
    sizes = {
        BY_STATES: [n for n in walker if not n % WHITE_EVERY],
        FROM_OUTSIDE: [n for n in walker if n % WHITE_EVERY],
        CheckStage.RANKS: range(effort.ranks_cases),
        CheckStage.STORES: range(effort.store_cases),
        CheckStage.VECTORS: range(len(read_vectors())),
        CheckStage.CORPUS: range(effort.corpus_cases),
    }
    for stage, numbers in sizes.items():
        for first in range(0, len(numbers), effort.block):
            yield CasePart(stage, numbers[first : first + effort.block])


def reach_of(seed: int, effort: Effort, part: CasePart) -> Reach:
    """Play a part of the check of a seed on the plain cache, in any process."""
    reach = Reach()
    cases = watched_cases(seed, part.stage)

    def note(tally: Tally) -> None:
        seen = watch().take(tally)
        if tally.cases:
            reach.note(seen)

    play_part(cases, effort, part, note)
    return reach


def play_part(
    cases: NumberedCases, effort: Effort, part: CasePart, note: Callable[[Tally], None]
) -> None:
    """Play a part of a check, and note what each of its cases counts."""
    vectors = read_vectors() if part.stage == CheckStage.VECTORS else ()
    for number in part.numbers:
        if part.stage == CheckStage.MACHINE:
            tally = _CaseTally()
            tally.note = note
            drawing = Drawing(effort.run, from_seed=(cases.seed << 16) + number)
            draw_cases(cases.trial(number), drawing, journal=Journal(tally=tally))
        elif vectors:
            note(play_vector(vectors[number], cases.base).tally)
        else:
            note(cases.trial(number).play(cases.case(number))[1])


@cache
def watched_cases(seed: int, stage: str) -> NumberedCases:
    """The cases of a stage of the check of the plain cache, which the watch sees."""
    cases = numbered_cases(CACHE, seed, stage)
    watched: Adapter = evolve(cases.base.adapter, make=watch().make)
    return evolve(cases, base=evolve(cases.base, adapter=watched))


def numbered_cases(name: str, seed: int, stage: str) -> NumberedCases:
    """The cases of a stage of the check of a cache."""
    plan = CheckPlan(
        (name,),
        seed=seed,
        of_corpus=stage == CheckStage.CORPUS,
        of_stores=stage == CheckStage.STORES,
    )
    if stage == CheckStage.RANKS:
        plan = evolve(plan, judges=evolve(plan.judges, ranks=RANKS))
    return cases_of(plan.of(name))
