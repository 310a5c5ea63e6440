"""Plays scenarios on the plain cache, with or without a fault; returns steps or violations."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from attrs import evolve

import kvcanon.spec.laws  # noqa: F401  Importing the laws is what registers them.
from kvcanon.conformance.judge.by_states.guard import guard_states
from kvcanon.lab.variants.override import Plant, overriding
from kvcanon.reference import ManualEngine
from kvcanon.spec.cache import Cache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.law import LAWS, Violation
from kvcanon.spec.views import Step

Scenario = Callable[[Cache, ManualEngine], None]


def sound(_: object) -> None:
    """Plants no fault."""


def said(plant: Plant, config: CacheConfig, scenario: Scenario) -> dict[str, list[str]]:
    """The violations of a scenario on a faulty cache: sentences by law."""
    found: dict[str, list[str]] = {}

    def hear(violation: Violation, _: Step) -> None:
        found.setdefault(violation.law.law_id, []).append(violation.text)

    engine = ManualEngine()
    cache = overriding(plant)(config, engine)
    scenario(guard_states(cache, on_violation=hear, copies=engine, new=True), engine)
    return found


def steps_of(config: CacheConfig, scenario: Scenario, plant: Plant = sound) -> list[Step]:
    """The steps of a scenario."""
    seen: list[Step] = []

    def note(step: Step) -> Iterator[str]:
        # Every law must get every real step, and never a placeholder.
        assert step.before.nodes
        seen.append(step)
        return iter(())

    engine = ManualEngine()
    spy = evolve(LAWS["REC-3"], check=note)
    scenario(guard_states(overriding(plant)(config, engine), laws=[spy]), engine)
    return seen
