"""Which planted faults show to whom: the numbers are those of the faults that there are."""

from __future__ import annotations

import pytest
from attrs import evolve

from kvcanon.conformance.cases.draw import draw_case
from kvcanon.conformance.check.trial import Trial
from kvcanon.conformance.judge import JudgeConfig
from kvcanon.lab.mutants.by_methods import IN_TURN, found_at, measured, with_methods
from kvcanon.lab.mutants.planted import MUTANTS

BY_NAME = {each.name: each for each in MUTANTS}


def plant_nothing(_: object) -> None:
    """Leave the plain cache as it is."""


SOUND = evolve(MUTANTS[0], name="sound", plant=plant_nothing)


def test_faults_were_measured() -> None:
    """The file is about planted faults, nine in ten at least; a number is that of a step."""
    found = measured()
    assert set(found) <= set(BY_NAME)
    assert len(found) >= 0.9 * len(BY_NAME)
    assert set(found.values()) <= {None, *range(len(IN_TURN) + 1)}


@pytest.mark.parametrize("name", ["duplicates_leak", "slots_are_dealt_backwards"])
def test_fault_is_found_where_the_file_says(name: str) -> None:
    """What was measured shows again."""
    assert found_at(BY_NAME[name]) == measured()[name]


@pytest.mark.parametrize("step", range(len(IN_TURN) + 1))
def test_plain_cache_with_some_methods_is_right(step: int) -> None:
    """The judge finds nothing in a sound cache of which it sees a part."""
    adapter = with_methods(SOUND, step)
    trial = Trial(adapter, JudgeConfig(black_box=True))
    for number in range(10):
        assert trial.play(draw_case(number, adapter.offer))[0] is None
