"""Efforts: how many cases a check plays.

An effort is a number of cases, so that equal checks give equal results on every machine. It also
has a time limit; a check that the limit cuts short says so.
"""

from __future__ import annotations

from attrs import evolve, frozen

from kvcanon.conformance.errors import UsageError


@frozen
class Effort:
    """How much is played on each cache."""

    name: str
    walker_cases: int | None
    """None if the walker plays until the time is over."""
    machine_cases: int | None
    """Cases that Hypothesis draws; None as above."""
    ranks_cases: int
    """Cases of the walker that several ranks play."""
    seconds: float
    """The time limit for all caches together."""
    block: int = 16
    """Cases of the walker in a block."""
    run: int = 50
    """Cases that Hypothesis draws in one run; runs share nothing."""


QUICK_CASES, STANDARD_CASES = 800, 15_000
"""Cases of the walker."""

EFFORTS = {
    each.name: each
    for each in (
        Effort("quick", walker_cases=QUICK_CASES, machine_cases=200, ranks_cases=48, seconds=52),
        Effort(
            "standard",
            walker_cases=STANDARD_CASES,
            machine_cases=2_500,
            ranks_cases=1_000,
            seconds=570,
        ),
        Effort(
            "deep",
            walker_cases=None,
            machine_cases=None,
            ranks_cases=10_000,
            seconds=3600,
            block=256,
        ),
    )
}


def effort_named(name: str, minutes: float | None = None) -> Effort:
    """The effort with this name; `minutes` set the time limit of a deep one. Raises: UsageError."""
    if name not in EFFORTS:
        raise UsageError(f"no effort {name!r}; choose one of {', '.join(EFFORTS)}")
    effort = EFFORTS[name]
    if minutes is None:
        return effort
    if effort.walker_cases is not None:
        raise UsageError(f"a {name} effort takes no minutes; only a deep one does")
    return evolve(effort, seconds=minutes * 60)
