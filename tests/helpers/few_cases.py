"""Plans of checks that play few cases, for tests."""

from __future__ import annotations

from collections.abc import Collection

from attrs import evolve

from kvcanon.conformance.check.plan import EFFORTS, CheckPlan, Effort, stages_and_laws
from kvcanon.conformance.judge.judges import JudgeConfig

# Checks are equal only if no stage reaches its time limit, even on a busy machine.
FEW = evolve(
    EFFORTS["quick"], walker_cases=48, machine_cases=10, run=10, ranks_cases=16, seconds=560
)
"""A quick effort with fewer cases."""


def plan_of(
    *caches: str,
    only: Collection[str] = (),
    black_box: bool = False,
    known: Collection[str] = (),
    effort: Effort = FEW,
    seed: int = 0,
    against: str | None = None,
    strict: bool = False,
    jobs: int = 1,
) -> CheckPlan:
    """A plan of few cases; `only` names stages and laws, as on the command line."""
    stages, laws = stages_and_laws(only)
    judges = JudgeConfig(black_box, laws, known=known)
    return CheckPlan(caches, judges, effort, seed, against, stages, strict, jobs=jobs)
