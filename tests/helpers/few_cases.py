"""Plans of checks that play few cases, for tests."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from attrs import evolve

from kvcanon.conformance.check.check import check
from kvcanon.conformance.check.plan import EFFORTS, CheckPlan, Effort, stages_and_laws
from kvcanon.conformance.judge.judges import JudgeConfig
from kvcanon.conformance.report.report import report_of

# Checks are equal only if no stage reaches its time limit, even on a busy machine.
FEW = evolve(
    EFFORTS["quick"],
    walker_cases=24,
    block=8,
    machine_cases=4,
    run=4,
    ranks_cases=8,
    store_cases=8,
    corpus_cases=8,
    seconds=560,
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


def check_here(patch: pytest.MonkeyPatch) -> None:
    """Let the command `check` play in this process, without the second that another one takes."""
    for name, done in (("check", check), ("report_of", report_of)):
        here = lambda *given, done=done, **_: done(*given, apart=False)  # noqa: E731
        patch.setattr(f"kvcanon.conformance.cli.check.{name}", here)
