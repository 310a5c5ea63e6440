"""Reach: branches are found and marked, features of cases are counted, and tables say so."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from attrs import evolve

from command_line import usage_error
from kvcanon.conformance.check.plan import effort_named
from kvcanon.lab.reach.branches import find_branches
from kvcanon.lab.reach.count import BY_STATES, FROM_OUTSIDE, STAGES, Reach, parts_of
from kvcanon.lab.reach.features import Feature, FeatureKind, pairs_of, refusal_of, settings_of
from kvcanon.lab.reach.measure import LEAST, Measured, measure
from kvcanon.lab.reach.tables import key_of, reach_tables, whys
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import OutOfSlots
from kvcanon.spec.types import Counts

MARKED = """
from kvcanon.lab.reach.branches import watch_branches
from kvcanon.reference import ReferenceCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import Counts, Key

marks = watch_branches()
cache = ReferenceCache(CacheConfig())
cache.match(Key(((1,),)))
marks.take()
cache.allocate(Counts(full=1))
for at in marks.take():
    print(marks.branches[at])
print(marks.take())
"""


def test_marked_branches_are_those_of_a_call() -> None:
    """What a call visits is marked, in both arms of its tests, and nothing of earlier calls."""
    run = subprocess.run([sys.executable, "-c", MARKED], capture_output=True, text=True, check=True)
    *branches, rest = run.stdout.splitlines()
    assert rest == "[]"
    names = [each.partition(": ")[2] for each in branches]
    assert "ReferenceCache.allocate is called" in names
    assert "match is called" not in names
    assert "`count` is true" in "\n".join(names) or any("is false" in each for each in names)


def test_every_branch_has_a_key_of_its_own() -> None:
    """The key of a branch, which outlives its line number, names it alone."""
    again = [key for key, times in Counter(map(key_of, find_branches())).items() if times > 1]
    assert not again


def test_reasons_are_of_branches_that_are_there() -> None:
    """Nothing says why a branch is seldom visited that is no more."""
    assert not whys().keys() - set(map(key_of, find_branches()))


def test_settings_are_values_or_ranges() -> None:
    """Each field of a configuration is a setting; numbers are ranges."""
    names = {each.name for each in settings_of(CacheConfig(page_size=4, device_slots=Counts(7)))}
    assert {"page_size = 3 to 4", "window_tokens = none", "device_slots.full = 5 to 9"} <= names
    fields = {name.partition(" = ")[0].partition(".")[0] for name in names}
    assert len(fields) == len(CacheConfig.__attrs_attrs__)


def test_refusal_is_a_row_and_a_reason_without_numbers() -> None:
    """Refusals that differ in numbers alone are one reason."""
    row, reason = refusal_of("allocate", OutOfSlots("full on GPU", 12, 3))
    assert row.name == "allocate: OutOfSlots"
    assert reason.name.endswith("full on GPU: N slots asked, N free; evict first")


def test_pairs_are_of_different_fields() -> None:
    """Two values of one field are no pair, nor is a branch part of any."""
    settings = [Feature(FeatureKind.SETTING, f"mamba = {each}") for each in ("true", "false")]
    served = Feature(FeatureKind.SERVED, "match")
    branch = Feature(FeatureKind.BRANCH, "a")
    assert set(pairs_of([*settings, served, branch])) == {(served, each) for each in settings}


def test_parts_are_the_cases_of_a_check() -> None:
    """The parts have each case of an effort once."""
    effort = effort_named("quick")
    parts = list(parts_of(effort))
    numbers = {
        stage: [n for part in parts if part.stage == stage for n in part.numbers]
        for stage in STAGES
    }
    walker = sorted(numbers[BY_STATES] + numbers[FROM_OUTSIDE])
    assert walker == list(range(effort.walker_cases or 0))


def test_measure_counts_cases_by_stage() -> None:
    """A small check is counted: its cases, laws, settings and branches, in every stage."""
    effort = evolve(
        effort_named("quick"),
        walker_cases=8,
        machine_cases=4,
        ranks_cases=4,
        store_cases=4,
        corpus_cases=8,
        run=4,
        block=4,
    )
    played: list[str] = []
    found = measure((0,), effort, 1, lambda what, _, __: played.append(what))
    assert played
    stages = found.by_seed[0]
    assert stages[BY_STATES].cases == stages[FROM_OUTSIDE].cases == 4
    assert stages["vectors"].cases > 150
    calls = [each for each in find_branches() if each.arm == "called"]
    counted = [found.count(0, Feature(FeatureKind.BRANCH, str(each))) for each in calls]
    assert sum(each > 0 for each in counted) > len(calls) * 0.8
    lines = list(reach_tables(found))
    assert any("branches of `reference/` visited" in line for line in lines)


def test_seldom_branches_count_the_seed_with_the_fewest() -> None:
    """A branch that one seed of two visits often is seldom visited all the same."""
    branch = find_branches()[0]
    feature = Feature(FeatureKind.BRANCH, str(branch))
    often, once = Reach(LEAST, Counter({feature: LEAST})), Reach(1, Counter({feature: 1}))
    found = Measured("quick", {0: {"walker": often}, 1: {"walker": once}})
    assert dict(found.seldom())[branch] == 1
    assert branch not in dict(Measured("quick", {0: {"walker": often}}).seldom())


def test_branches_name_their_lines() -> None:
    """A branch names the line of its source that decides."""
    checkout = Path(__file__).parents[3]
    for branch in find_branches():
        if branch.arm == "true" and branch.text.isidentifier():
            assert (
                branch.text
                in (checkout / branch.path).read_text("utf-8").splitlines()[branch.line - 1]
            )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--effort", "deep"), "choose one of quick, standard"),
        (("--write", "--seed", "3"), "leave the others out"),
    ],
)
def test_wrong_calls_are_refused(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str
) -> None:
    """A call that would measure something else than it says is refused."""
    assert words in usage_error(capsys, "lab", "reach", *arguments)
