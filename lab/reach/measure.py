"""Measures the reach of a check: all its parts, in several processes, for some seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from attrs import frozen

from kvcanon.conformance.check.plan import Effort
from kvcanon.conformance.workers.workers import workers
from kvcanon.lab.reach.branches import Branch, find_branches
from kvcanon.lab.reach.count import STAGES, Reach, parts_of, reach_of
from kvcanon.lab.reach.features import Feature, FeatureKind

LEAST = 20
"""In how many cases of a quick check each branch is to be visited."""

OnPart = Callable[[str, int, int | None], None]
"""Called with a seed, in words, how many of its parts were played, and of how many."""


@frozen
class Measured:
    """The reach of the checks of some seeds, each by stage."""

    effort: str
    by_seed: Mapping[int, Mapping[str, Reach]]

    def cases(self, seed: int, stage: str) -> int:
        """How many cases of a stage were played."""
        return self.by_seed[seed][stage].cases

    def count(self, seed: int, feature: Feature) -> int:
        """In how many cases of a seed a feature was visited."""
        return sum(reach.counts[feature] for reach in self.by_seed[seed].values())

    def fewest(self, feature: Feature) -> int:
        """In how many cases a feature was visited, with the seed that visits it in the fewest."""
        return min(self.count(seed, feature) for seed in self.by_seed)

    def features(self, kind: FeatureKind) -> list[Feature]:
        """The features of a kind that any case visited."""
        found = {
            each
            for stages in self.by_seed.values()
            for one in stages.values()
            for each in one.counts
        }
        return sorted(each for each in found if each.kind is kind)

    def pairs(self, seed: int) -> set[tuple[Feature, Feature]]:
        """The pairs of features that cases of a seed visit."""
        return {pair for reach in self.by_seed[seed].values() for pair in reach.pairs}

    def seldom(self) -> list[tuple[Branch, int]]:
        """The branches that some seed visits in fewer than `LEAST` cases, with how many."""
        branches = find_branches()
        counts = [(each, self.fewest(Feature(FeatureKind.BRANCH, str(each)))) for each in branches]
        return [(each, count) for each, count in counts if count < LEAST]


def measure(seeds: Sequence[int], effort: Effort, jobs: int, done: OnPart) -> Measured:
    """Play the checks of some seeds on the plain cache, and count what their cases visit."""
    parts = list(parts_of(effort))
    by_seed: dict[int, dict[str, Reach]] = {}
    for seed in seeds:
        stages = {str(stage): Reach() for stage in STAGES}
        with workers(jobs, apart=True, seed=seed) as by:
            futures = [by.executor.submit(reach_of, seed, effort, part) for part in parts]
            for at, (part, future) in enumerate(zip(parts, futures, strict=True)):
                stages[part.stage].add(future.result())
                done(f"reach, seed {seed}, parts", at + 1, len(parts))
        by_seed[seed] = stages
    return Measured(effort.name, by_seed)
