"""Efforts: how much is played before a cache is said to hold.

What readers get wrong: an effort is a number of cases, so that equal checks give equal results on
every machine. The time is only a ceiling; a check that it cuts short says so.
"""

from __future__ import annotations

from attrs import evolve, frozen

from kvcanon.conformance.errors import UsageError


@frozen
class Effort:
    """How much is played on each cache."""

    name: str
    walker_cases: int | None
    """None where the walker goes on until the time is over."""
    machine_cases: int | None
    """Cases that Hypothesis draws; None likewise."""
    seconds: float
    """After so many for all caches together the check is cut short."""
    block: int = 16
    """Cases of the walker that are played, and taken in, at a time."""
    run: int = 50
    """Cases that Hypothesis draws in one run; it knows nothing of its other runs."""


QUICK_CASES, STANDARD_CASES = 800, 15_000
"""Cases of the walker."""

EFFORTS = {
    each.name: each
    for each in (
        Effort("quick", walker_cases=QUICK_CASES, machine_cases=200, seconds=55),
        Effort("standard", walker_cases=STANDARD_CASES, machine_cases=2_500, seconds=570),
        Effort("deep", walker_cases=None, machine_cases=None, seconds=3600, block=256),
    )
}


def effort_named(name: str, minutes: float | None = None) -> Effort:
    """The effort of this name; `minutes` are for a deep one. Raises: UsageError."""
    if name not in EFFORTS:
        raise UsageError(f"no effort {name!r}; choose of {', '.join(EFFORTS)}")
    effort = EFFORTS[name]
    if minutes is None:
        return effort
    if effort.walker_cases is not None:
        raise UsageError(f"an effort that is {name} has no minutes; only a deep one is that long")
    return evolve(effort, seconds=minutes * 60)
