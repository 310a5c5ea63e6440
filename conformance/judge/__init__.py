"""Judges a cache while it is used: by the states that it shows, and from outside by its answers.

This is its door: other rooms import from here alone. `make_judged` makes a new cache with its judge
as a `JudgeConfig` says; `guard` wraps a cache that is there. A cache that shows its states is
judged by them (`by_states`), any other by answers, events and bytes (`from_outside`). A broken law
is raised as a `ViolationError`.

What judges caches of requests is loaded on first use: most checks are of trees.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from kvcanon.conformance.judge.agreement import Recorder, first_difference
from kvcanon.conformance.judge.answers import ANSWER_LAW, require_answer
from kvcanon.conformance.judge.by_states.capture import StepCapture, call_cache, read_known_slots
from kvcanon.conformance.judge.by_states.evidence import Shared, by_premise
from kvcanon.conformance.judge.by_states.guard import GuardedCache, guard_states
from kvcanon.conformance.judge.by_states.law_checker import met_by
from kvcanon.conformance.judge.by_states.relevance import Relevance
from kvcanon.conformance.judge.by_states.store_watch import StoreWatch
from kvcanon.conformance.judge.explain import sentence, with_names
from kvcanon.conformance.judge.from_outside.checks import left_to
from kvcanon.conformance.judge.from_outside.coverage import why_not_exercised
from kvcanon.conformance.judge.from_outside.tree.guard import BlackboxGuard
from kvcanon.conformance.judge.judges import (
    ALL_JUDGES,
    JudgeConfig,
    find_law,
    make_judged,
    make_judged_requests,
)

if TYPE_CHECKING:
    from kvcanon.conformance.judge.from_outside.request.guard import RequestBlackboxGuard
    from kvcanon.conformance.judge.guard_metrics import guard_collector
    from kvcanon.conformance.judge.guards import guard, guard_subject, require_all
    from kvcanon.conformance.judge.production import ProductionGuard, production_guard
    from kvcanon.conformance.judge.sampling import GuardCounts

_LATER = {
    "GuardCounts": "sampling",
    "ProductionGuard": "production",
    "RequestBlackboxGuard": "from_outside.request.guard",
    "guard": "guards",
    "guard_collector": "guard_metrics",
    "guard_subject": "guards",
    "production_guard": "production",
    "require_all": "guards",
}

__all__ = [
    "ALL_JUDGES",
    "ANSWER_LAW",
    "BlackboxGuard",
    "GuardCounts",
    "GuardedCache",
    "JudgeConfig",
    "ProductionGuard",
    "Recorder",
    "Relevance",
    "RequestBlackboxGuard",
    "Shared",
    "StepCapture",
    "StoreWatch",
    "by_premise",
    "call_cache",
    "find_law",
    "first_difference",
    "guard",
    "guard_collector",
    "guard_states",
    "guard_subject",
    "left_to",
    "make_judged",
    "make_judged_requests",
    "met_by",
    "production_guard",
    "read_known_slots",
    "require_all",
    "require_answer",
    "sentence",
    "why_not_exercised",
    "with_names",
]


def __getattr__(name: str) -> object:
    """Load a name that most checks do not need from the module that defines it."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
