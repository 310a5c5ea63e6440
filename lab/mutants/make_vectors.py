"""Makes vectors: for each planted fault that no vector shows yet, a short case that shows it.

A vector that is there keeps its id and its case. Of several candidates for one law
the one is added that shows the most faults. A fault may break several laws; its vector is
made for the law that its mutant names.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Collection, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from itertools import groupby
from multiprocessing import get_context
from pathlib import Path
from string import ascii_lowercase

from attrs import evolve, frozen

from kvcanon.conformance.cases.case import RANKS, Case
from kvcanon.conformance.cases.draw import draw_case
from kvcanon.conformance.check.reduce import reduce_case
from kvcanon.conformance.check.result import Finding
from kvcanon.conformance.check.trial import Trial
from kvcanon.conformance.judge import JudgeConfig
from kvcanon.conformance.protocol.cache_names import REFERENCE
from kvcanon.conformance.vectors import FOLDER, Vector, VectorLevel, read_vectors
from kvcanon.conformance.workers.ending import end_with
from kvcanon.lab.mutants.faulty import case_for, mutated, what_goes_wrong
from kvcanon.lab.mutants.kill_matrix import find_mutants
from kvcanon.lab.mutants.planted import MUTANTS, STORE_MUTANTS, Mutant
from kvcanon.lab.mutants.vector_text import vector_text
from kvcanon.lab.variants.marks import script_of
from kvcanon.spec.law import LAWS, Need

CASES = {VectorLevel.BLACK_BOX: 600, VectorLevel.SNAPSHOT: 400}
"""How many cases are drawn at most until a law speaks, from outside and by states."""
BY_NAME = {mutant.name: mutant for mutant in (*MUTANTS, *STORE_MUTANTS)}


@frozen
class Candidate:
    """A case that makes the law of a mutant speak."""

    mutant: str
    level: VectorLevel
    case: Case


def speaks(mutant: Mutant, level: VectorLevel, case: Case) -> Finding | None:
    """What is found in a case if the mutant's own law speaks in it, as if that spoke first."""
    finding, _ = trial_of(mutant, level).play(case)
    if finding is None or mutant.law_id not in finding.broken:
        return None
    return evolve(finding, name=mutant.law_id)


def ranks_of(mutant: Mutant) -> int:
    """How many ranks play the cases of a mutant."""
    return RANKS if Need.RANKS in LAWS[mutant.law_id].needs else 1


def trial_of(mutant: Mutant, level: VectorLevel) -> Trial:
    """How a case is played on a mutant."""
    return Trial(mutated(mutant), JudgeConfig(black_box=level is VectorLevel.BLACK_BOX))


def covers(mutant: Mutant, vectors: Collection[Vector]) -> str | None:
    """The first vector of its own law in which that law speaks of the mutant."""
    for vector in vectors:
        if vector.law_id == mutant.law_id:
            levels = (
                [VectorLevel.SNAPSHOT]
                if vector.level is VectorLevel.SNAPSHOT
                else list(VectorLevel)
            )
            if any(speaks(mutant, level, vector.case) for level in levels):
                return vector.vector_id
    return None


# What follows runs in several processes.


def candidate(name: str, levels: Sequence[VectorLevel]) -> Candidate | None:
    """The first case that is drawn in which a mutant's law speaks, reduced."""
    mutant = BY_NAME[name]
    for level in levels:
        for number in range(CASES[level]):
            case = evolve(case_for(mutant, number), ranks=ranks_of(mutant))
            finding = speaks(mutant, level, case)
            if finding is not None:
                smallest = reduce_case(finding, trial_of(mutant, level))
                assert smallest is not None, f"{name} does not show its fault every time"
                return Candidate(name, level, smallest.case)
    return None


def covered(name: str, vectors: Sequence[Vector]) -> bool:
    """Whether one of the vectors will do for a mutant."""
    return covers(BY_NAME[name], vectors) is not None


def served(name: str, of: Candidate) -> bool:
    """Whether the case of one mutant makes the law of another speak, which is the same law."""
    return any(speaks(BY_NAME[name], level, of.case) for level in {of.level, VectorLevel.SNAPSHOT})


# Which of them are added.


def heard_outside() -> frozenset[str]:
    """The laws that can be judged from outside at all."""
    judged: set[str] = set()
    for number in range(CASES[VectorLevel.BLACK_BOX] // 10):
        _, tally = Trial(REFERENCE, JudgeConfig(black_box=True)).play(
            draw_case(number, REFERENCE.offer)
        )
        judged |= tally.laws.keys()
    return frozenset(judged)


def chosen(candidates: Sequence[Candidate], by: Executor) -> list[Candidate]:
    """As few of the candidates of one law as serve all its mutants, the most useful first."""
    names = [each.mutant for each in candidates]
    pairs = [(name, each) for each in candidates for name in names]
    answers = list(by.map(served, *zip(*pairs, strict=True)))
    serves = {each.mutant: set[str]() for each in candidates}
    for (name, each), does in zip(pairs, answers, strict=True):
        if does:
            serves[each.mutant].add(name)
    left, taken = set(names), []
    while left:
        best = max(candidates, key=lambda each: len(serves[each.mutant] & left))
        taken.append(best)
        left -= serves[best.mutant]
    return taken


def vectors_of(law_id: str, taken: Sequence[Candidate], there: Collection[str]) -> list[Vector]:
    """Vectors of one law, with ids that none has yet."""
    ids = [f"{law_id}-{letter}" for letter in ascii_lowercase]
    # Behind the last one that is there: a gap is where a vector was removed.
    first = 1 + max((at for at, each in enumerate(ids) if each in there), default=-1)
    return [
        Vector(
            ids[first + at],
            law_id,
            each.mutant,
            what_goes_wrong(BY_NAME[each.mutant]),
            each.level,
            each.case,
            script_of(each.case),
        )
        for at, each in enumerate(taken)
    ]


def make(by: Executor) -> int:
    """Add what is missing; returns how many mutants are left without a vector."""
    there = read_vectors()
    names = list(BY_NAME)
    done = by.map(covered, names, [there] * len(names))
    missing = [name for name, is_done in zip(names, done, strict=True) if not is_done]
    say(f"{len(there)} vectors serve {len(names) - len(missing)} of {len(names)} mutants")
    outside = heard_outside()
    levels = [
        list(VectorLevel)
        if BY_NAME[name].law_id in outside and not BY_NAME[name].stores
        else [VectorLevel.SNAPSHOT]
        for name in missing
    ]
    found: list[Candidate] = []
    for name, each in zip(missing, by.map(candidate, missing, levels), strict=True):
        if each is None:
            say(f"  {name}: {BY_NAME[name].law_id} did not speak")
        else:
            say(f"  {name}: {BY_NAME[name].law_id}, {each.level}, {len(each.case.actions)} actions")
            found.append(each)
    order = list(LAWS)
    found.sort(key=lambda each: order.index(BY_NAME[each.mutant].law_id))
    for law_id, group in groupby(found, key=lambda each: BY_NAME[each.mutant].law_id):
        ids = [vector.vector_id for vector in there]
        for vector in vectors_of(law_id, chosen(list(group), by), ids):
            write(vector)
            say(f"{vector.vector_id}: {vector.mutant}, {vector.level}")
    return len(missing) - len(found)


def rewrite() -> None:
    """Write the calls of all vectors anew, from their cases."""
    for vector in read_vectors():
        write(evolve(vector, script=script_of(vector.case)))


def write(vector: Vector) -> None:
    """Write the file of a vector."""
    (FOLDER / f"{vector.vector_id}.json").write_text(vector_text(vector), "utf-8")


def say(line: str) -> None:
    """Print a line."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    """Make vectors, in several processes."""
    parser = argparse.ArgumentParser(description="Add the vectors that are missing.")
    parser.add_argument("--jobs", type=int, default=2, help="processes that search")
    parser.add_argument(
        "--rewrite", action="store_true", help="write the calls of all vectors anew, and no more"
    )
    given = parser.parse_args()
    if given.rewrite:
        rewrite()
        return 0
    assert len(find_mutants(Path(__file__).parent)) == len(MUTANTS)
    with ProcessPoolExecutor(
        given.jobs, get_context("spawn"), initializer=end_with, initargs=(os.getpid(),)
    ) as by:
        return int(make(by) > 0)


if __name__ == "__main__":
    sys.exit(main())
