"""Faults that could hide behind `loads_whole_keys=False`: each is found.

The cache with the freedom loads the leading pages that fit; each fault is planted in that cache.
"""

from __future__ import annotations

import pytest
from attrs import evolve

import kvcanon.spec.laws  # noqa: F401  # Importing the laws registers them.
from kvcanon.conformance.cases.draw import draw_case
from kvcanon.conformance.check.play import play
from kvcanon.conformance.judge import ALL_JUDGES, JudgeConfig
from kvcanon.conformance.protocol.adapter import Adapter, Offer
from kvcanon.conformance.report.declarations import declaring
from kvcanon.lab.variants.override import Overrides, Plant, overriding
from kvcanon.lab.variants.variant import VARIATIONS
from kvcanon.lab.variants.wrapped_rules import Original, around
from kvcanon.reference import cache, load
from kvcanon.reference.state import State
from kvcanon.spec.config import CANON
from kvcanon.spec.operations import LoadDecision, LoadedBack
from kvcanon.spec.types import Counts, Key

FREEDOM = VARIATIONS["leading_pages_loaded"]
OUTSIDE = JudgeConfig(black_box=True)
SEEDS = range(200)


def adapter_of(*plants: Plant) -> Adapter:
    """The cache with the freedom declared, and with what is planted in it."""

    def plant(overrides: Overrides) -> None:
        for each in (FREEDOM.plant, *plants):
            each(overrides)

    return declaring(Adapter("in part", overriding(plant)), FREEDOM.declared(CANON))


def broken(adapter: Adapter, judges: JudgeConfig = ALL_JUDGES) -> set[str]:
    """The laws that the first finding in drawn cases names."""
    for seed in SEEDS:
        found, _ = play(draw_case(seed, Offer()), [adapter], judges)
        if found:
            return set(found[0].broken)
    return set()


@around(load.load_back, cache)
def says_one_page_more(
    usual: Original[LoadedBack], state: State, key: Key, quota: int | None
) -> LoadedBack:
    """Loads a page less than it says."""
    answer = usual(state, key, quota)
    return answer if answer.pages is None else evolve(answer, pages=answer.pages + 1)


@around(load.load_back, cache)
def says_the_whole_key(
    usual: Original[LoadedBack], state: State, key: Key, quota: int | None
) -> LoadedBack:
    """Loads the leading pages, and says that it loads all."""
    return evolve(usual(state, key, quota), pages=None)


@around(load.load_back, cache)
def loads_one_page_alone(
    usual: Original[LoadedBack], state: State, key: Key, quota: int | None
) -> LoadedBack:
    """Loads one page where there is room for more, too, but not for all."""
    answer = usual(state, key.prefix(1), quota) if len(key) > 1 else usual(state, key, quota)
    return evolve(answer, pages=1) if len(key) > 1 and answer.transfer_id is not None else answer


@around(load.load_back, cache)
def takes_the_quota_for_the_part(
    usual: Original[LoadedBack], state: State, key: Key, quota: int | None
) -> LoadedBack:
    """Loads the pages that the quota permits of a key that has more."""
    answer = usual(state, key, quota)
    if answer.decision is not LoadDecision.OVER_QUOTA or not quota or quota >= len(key):
        return answer
    part = usual(state, key.prefix(quota), None)
    return evolve(part, pages=quota) if part.decision is LoadDecision.ENQUEUED else answer


@around(load._decide)
def asks_no_threshold(
    usual: Original[LoadDecision | None], state: State, needed: Counts, quota: int | None
) -> LoadDecision | None:
    """Loads leading pages that are fewer than the threshold."""
    answer = usual(state, needed, quota)
    return None if answer is LoadDecision.BELOW_THRESHOLD and needed.full == 1 else answer


@pytest.mark.parametrize(
    ("plant", "law_id"),
    [
        (says_one_page_more, "LOAD-4"),
        (says_the_whole_key, "LOAD-4"),
        (loads_one_page_alone, "LOAD-6"),
        (takes_the_quota_for_the_part, "LOAD-6"),
        (asks_no_threshold, "LOAD-6"),
    ],
)
def test_a_fault_behind_the_freedom_is_found(plant: Plant, law_id: str) -> None:
    """A cache that declares that it loads what fits is accused of a load that is wrong."""
    assert law_id in broken(adapter_of(plant))


@pytest.mark.parametrize("judges", [ALL_JUDGES, OUTSIDE], ids=["by states", "from outside"])
def test_the_freedom_is_accused_where_it_is_not_declared(judges: JudgeConfig) -> None:
    """A cache that loads what fits, and declares nothing, breaks one law."""
    assert broken(declaring(adapter_of(), CANON), judges) == {"LOAD-6"}
