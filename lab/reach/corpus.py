"""Makes the corpus: draws many cases, and keeps the few that reach what hardly any of them does.

What a case reaches is which two branches of the plain cache one call of it takes: hundreds of
thousands of pairs, most of which hundreds of cases have. Those that a few cases have are *seldom*.
Cases are chosen until no other adds a seldom pair, those with the most new ones for their length
first. Each is then shortened, as long as it reaches what it was chosen for.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Any

from attrs import evolve, frozen

from kvcanon.conformance.cases.case import Action, Case, case_to_json
from kvcanon.conformance.check.blocks import WHITE_EVERY
from kvcanon.conformance.check.plan import CheckStage
from kvcanon.conformance.corpus import KeptCase
from kvcanon.conformance.protocol.drawn_config import is_wide
from kvcanon.conformance.workers.workers import workers
from kvcanon.lab.mutants.kill_matrix import NO_LAWS
from kvcanon.lab.reach.branches import CALLED, Branch, CallPath, find_branches
from kvcanon.lab.reach.count import watch, watched_cases
from kvcanon.lab.reach.measure import OnPart
from kvcanon.spec.shortest import shortest

SELDOM = 5
"""A pair that fewer cases have is seldom."""
MOST_ACTIONS = 60
"""A longer case takes long to shorten, and stays long."""
SHORT = 5
"""What each case costs, besides its actions."""
PART = 32
"""Cases that one process plays in a row."""

Paths = frozenset[tuple[str, CallPath]]
"""The operations that a case calls, each with the branches that it visits."""
Pairs = Mapping[tuple[str, int], int]
"""Pairs of branches that calls visit: for an operation and a branch a bit for each other branch."""


@frozen
class PlayedCase:
    """A case that was played."""

    case: Case
    paths: Paths


@frozen
class Chosen:
    """A case for the corpus."""

    case: Case
    reaches: Pairs
    """The seldom pairs that no case before it reaches."""


def make_corpus(cases: int, seed: int, most: int, jobs: int, done: OnPart) -> list[KeptCase]:
    """Draw so many cases of a seed, and return at most so many for the corpus."""
    parts = [range(at, min(at + PART, cases)) for at in range(0, cases, PART)]
    with workers(jobs, apart=True, seed=seed) as by:
        futures = [by.executor.submit(play_some, seed, part) for part in parts]
        played: list[PlayedCase] = []
        for at, some in enumerate(futures):
            played += some.result()
            done(f"corpus, {cases:,} cases, parts", at + 1, len(parts))
        chosen = choose(played, most)
        texts = [_in_words(each.reaches) for each in chosen]
        shortened = [by.executor.submit(shorten, each) for each in chosen]
        kept = []
        for at, (future, text) in enumerate(zip(shortened, texts, strict=True)):
            kept.append(KeptCase(future.result(), text))
            done("corpus, cases that are shortened", at + 1, len(chosen))
    return kept


def corpus_text(kept: Iterable[KeptCase]) -> str:
    """The file of a corpus: one case a line."""
    return "".join(f"{json.dumps(_to_json(each), separators=(',', ':'))}\n" for each in kept)


def _to_json(kept: KeptCase) -> dict[str, Any]:
    return {"reaches": kept.reaches, "case": case_to_json(kept.case)}


# What cases reach.


def play_some(seed: int, numbers: Sequence[int]) -> list[PlayedCase]:
    """Play those of some cases, by their numbers, that are small and short; in any process."""
    cases = [_case(seed, number) for number in numbers]
    short = [each for each in cases if len(each.actions) <= MOST_ACTIONS]
    return [PlayedCase(each, paths_of(each)) for each in short if not is_wide(each.config)]


def _case(seed: int, number: int) -> Case:
    """A case that the walker judges by states, without its drain, which most of its calls are."""
    drawn = watched_cases(seed, CheckStage.WALKER).case(WHITE_EVERY * number)
    return evolve(drawn, drain=())


def paths_of(case: Case) -> Paths:
    """The paths of a case, which is played without laws: those take most of the time."""
    watch().take_paths()
    evolve(watched_cases(0, CheckStage.WALKER).base, judges=NO_LAWS).play(case)
    return watch().take_paths()


def pairs_of_paths(paths: Paths) -> Pairs:
    """The pairs of branches of a case."""
    pairs: dict[tuple[str, int], int] = {}
    for operation, path in paths:
        for branch in _branches_in(path):
            pairs[operation, branch] = pairs.get((operation, branch), 0) | path
    return pairs


def _branches_in(path: CallPath) -> Iterator[int]:
    """The numbers of the branches of a path."""
    marks = path.to_bytes((path.bit_length() + 7) // 8, "little")
    at = marks.find(1)
    while at >= 0:
        yield at
        at = marks.find(1, at + 1)


def _both(pairs: Pairs, others: Mapping[tuple[str, int], int]) -> Pairs:
    """The pairs that are in both."""
    found = {each: bits & others.get(each, 0) for each, bits in pairs.items()}
    return {each: bits for each, bits in found.items() if bits}


def seldom_pairs(cases: Iterable[Paths]) -> Pairs:
    """The pairs that fewer than `SELDOM` cases have."""
    # `levels[n]` has the pairs that more than n cases have.
    levels: list[dict[tuple[str, int], int]] = [{} for _ in range(SELDOM)]
    for paths in cases:
        for each, there in pairs_of_paths(paths).items():
            carried = there
            for level in levels:
                before = level.get(each, 0)
                level[each] = before | carried
                carried &= before
    first, last = levels[0], levels[-1]
    return _both(first, {each: bits & ~last.get(each, 0) for each, bits in first.items()})


# Which cases are kept.


def choose(cases: Sequence[PlayedCase], most: int) -> list[Chosen]:
    """The cases to keep, in the order of what they add for their length."""
    seldom = seldom_pairs([each.paths for each in cases])
    left = [_both(pairs_of_paths(each.paths), seldom) for each in cases]
    weight = [1 / (SHORT + len(each.case.actions)) for each in cases]
    heap = [(-_size(pairs) * weight[at], at) for at, pairs in enumerate(left) if pairs]
    heapify(heap)
    rest = dict(seldom)
    chosen: list[Chosen] = []
    while heap and len(chosen) < most:
        worth, at = heappop(heap)
        adds = left[at] = _both(left[at], rest)
        if _size(adds) * weight[at] == -worth:
            chosen.append(Chosen(cases[at].case, adds))
            for each, bits in adds.items():
                rest[each] &= ~bits
        elif adds:
            heappush(heap, (-_size(adds) * weight[at], at))
    return chosen


def _size(pairs: Pairs) -> int:
    return sum(bits.bit_count() for bits in pairs.values())


def shorten(chosen: Chosen) -> Case:
    """The shortest case that reaches what a case was chosen for; runs in any process."""

    def case_with(actions: Sequence[Action]) -> Case:
        return evolve(chosen.case, actions=tuple(actions))

    def reaches(actions: Sequence[Action]) -> bool:
        pairs = pairs_of_paths(paths_of(case_with(actions)))
        return _both(chosen.reaches, pairs) == chosen.reaches

    return case_with(shortest(chosen.case.actions, reaches))


# In words.


def _in_words(pairs: Pairs) -> str:
    """The first pair of the operation that has the most of them, and how many others there are."""
    sizes: Counter[str] = Counter()
    for (operation, _), bits in pairs.items():
        sizes[operation] += bits.bit_count()
    operation = max(sorted(sizes), key=sizes.__getitem__)
    of_it = {branch: bits for (name, branch), bits in pairs.items() if name == operation}
    branches = find_branches()
    first = min(of_it, key=lambda branch: (branches[branch].arm == CALLED, branch))
    others = [branches[each] for each in _branches_in(of_it[first]) if each != first]
    return f"{operation}: {_and(branches[first], others)}"


def _and(branch: Branch, others: Collection[Branch]) -> str:
    """Two branches as text."""
    tests = [each for each in others if each.arm != CALLED] or list(others)
    texts = [_text(branch), *map(_text, tests[:1])]
    return " and ".join(texts)


def _text(branch: Branch) -> str:
    """A branch without its place, which moves."""
    if branch.arm == CALLED:
        return f"{branch.function} is called"
    return f"`{branch.text}` is {branch.arm} in {branch.function}"
