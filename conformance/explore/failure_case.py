"""Turns the shortest failing path of an exploration into a case that can be replayed.

The path is shortest in actions. An action of a client may call several operations, so the case is
replayed under the guard to find which operation breaks the law.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvcanon.conformance.cases.case import Case
from kvcanon.conformance.check.result import Failure, Finding, Grounds
from kvcanon.conformance.check.trial import Trial
from kvcanon.conformance.explore.expansion import Broken
from kvcanon.conformance.explore.scope import Scope
from kvcanon.conformance.judge.judges import JudgeConfig
from kvcanon.conformance.protocol.adapter import Adapter

UNSEEN = "The guard, under which the path was played once more, sees nothing of it."


def failure_of(adapter: Adapter, scope: Scope, broken: Broken, law_ids: Sequence[str]) -> Failure:
    """The failure at the end of a path, as the guard reports it, or else as the explorer did."""
    case = Case(scope.config, broken.path, drain=())
    finding, _ = Trial(adapter, JudgeConfig(laws=law_ids or None)).play(case)
    if finding is None:
        finding = Finding(
            adapter.name,
            Grounds.LAW if broken.law_ids else Grounds.CRASH,
            broken.name,
            broken.law_ids,
            broken.text,
            f"{broken.name}: {broken.text}\n{UNSEEN}",
            action=max(0, len(broken.path) - 1),
            operation=0,
        )
    return Failure(finding, case, f"exploration of {scope.name}", 1)
