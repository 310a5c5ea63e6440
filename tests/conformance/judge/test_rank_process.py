"""Ranks of which one has a process of its own, with another seed of Python's hashes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from attrs import evolve

from few_cases import plan_of
from kvcanon.conformance.cases.case import RANKS, Action, Case, case_from_json, case_to_json
from kvcanon.conformance.check.blocks import APART_EVERY, NumberedCases
from kvcanon.conformance.check.check import check
from kvcanon.conformance.check.plan import EFFORTS
from kvcanon.conformance.check.play import play
from kvcanon.conformance.check.result import Finding, Grounds
from kvcanon.conformance.check.trial import Trial
from kvcanon.conformance.judge.judges import JudgeConfig
from kvcanon.conformance.judge.rank_process import start_apart
from kvcanon.conformance.protocol.adapter import Adapter
from kvcanon.conformance.protocol.cache_names import REFERENCE, load_adapter
from kvcanon.conformance.report.report import report_of
from kvcanon.conformance.report.script import file_name
from kvcanon.conformance.workers.hash_seeds import environment, own_seed
from kvcanon.lab.variants.override import overriding
from kvcanon.reference import ManualEngine, ReferenceCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.operations import Matched
from kvcanon.spec.transfer import Agree
from kvcanon.spec.types import Counts, Key
from paths import ROOT

THROUGH = CacheConfig(
    device_slots=Counts(8), host_slots=Counts(8), write_policy="write_through", events=True
)
CASE = Case(
    THROUGH,
    (
        *(Action(name, n, n, 3) for n in range(6) for name in ("serve", "copy", "poll")),
        Action("copy", 0, 3),
        Action("flush"),
    ),
    ranks=RANKS,
    rank_apart=True,
)
SOME = evolve(EFFORTS["quick"], ranks_cases=4)
"""A quick effort with one case that has a rank apart."""
HELPERS = f"{ROOT / 'tests/helpers'}"


@pytest.fixture(autouse=True)
def seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process count as one that was started with a seed, and others find this file."""
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    monkeypatch.syspath_prepend(ROOT)


class MadeHereAlone(ReferenceCache):
    """Cannot be made in the process of the last rank."""

    def __init__(
        self, config: CacheConfig, engine: ManualEngine | None = None, agree: Agree | None = None
    ) -> None:
        if own_seed() != 7:
            raise ZeroDivisionError("no room there")
        super().__init__(config, engine, agree)


def test_a_factory_that_raises_in_the_other_process_is_a_finding() -> None:
    """It is said as of a factory that raises here; the judge goes on."""
    found, _ = Trial(Adapter("mine", MadeHereAlone)).play(CASE)
    assert found is not None
    assert found.grounds is Grounds.CRASH
    assert "mine made no cache: ZeroDivisionError: no room there" in found.text


class Deadly(ReferenceCache):
    """Ends the process of another hash seed at its first match."""

    def __init__(
        self, config: CacheConfig, engine: ManualEngine | None = None, agree: Agree | None = None
    ) -> None:
        super().__init__(config, engine, agree)

    def match(self, key: Key) -> Matched:
        if own_seed() != 7:
            os._exit(3)
        return super().match(key)


@pytest.mark.parametrize("name", ["reference", "optimized", "variant"])
def test_sound_ranks_in_several_processes_are_alike(name: str) -> None:
    """Sound caches answer alike in processes with other hashes, and the law is exercised."""
    adapter = load_adapter(name)
    process = start_apart(adapter, THROUGH)
    assert process is not None
    assert process.hash_seed == 8
    found, tallies = play(CASE, [adapter])
    assert found == []
    assert tallies[adapter.name].laws["ASYNC-11"] > 0


def test_few_cases_have_a_rank_apart() -> None:
    """One case of ranks in a few has one, and a case keeps whether it has."""
    cases = NumberedCases(Trial(REFERENCE, JudgeConfig(ranks=RANKS)))
    apart = [cases.case(number).rank_apart for number in range(2 * APART_EVERY)]
    assert sum(apart) == 2
    assert not any(NumberedCases(Trial(REFERENCE)).case(n).rank_apart for n in range(APART_EVERY))
    assert case_from_json(case_to_json(CASE)) == CASE
    assert "rank_apart" not in case_to_json(evolve(CASE, rank_apart=False))


def test_what_cannot_be_made_elsewhere_stays_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """A closure, and a cache in a process without a seed, has all ranks in one process."""
    here = Adapter("here", overriding(lambda _: None))
    assert start_apart(here, THROUGH) is None
    monkeypatch.delenv("PYTHONHASHSEED")
    assert start_apart(REFERENCE, THROUGH) is None
    assert play(CASE, [REFERENCE])[0] == []


def test_a_rank_that_dies_is_a_finding() -> None:
    """The end of the process of a rank is the cache's fault, and the next case gets another."""
    (finding,) = play(CASE, [Adapter("deadly", Deadly)])[0]
    assert finding.name == "RankDied"
    assert "with another hash seed (8), ended" in finding.text
    assert play(CASE, [REFERENCE])[0] == []


PLAYED = """
from kvcanon.conformance.check.blocks import APART_EVERY, NumberedCases
from kvcanon.conformance.check.trial import Trial
from kvcanon.conformance.judge.judges import JudgeConfig
from kvcanon.conformance.protocol.cache_names import load_adapter

cases = NumberedCases(Trial(load_adapter("hash_order:{name}"), JudgeConfig(ranks=3)))
for number in range(1, 8 * APART_EVERY, APART_EVERY):
    found, _ = cases.trial(number).play(cases.case(number))
    if found is not None:
        print(*found.broken)
        break
"""
"""Plays cases that have a rank apart until one shows a fault, and prints the broken laws."""


@pytest.mark.parametrize("name", ["STRINGS", "NAMESPACES", "OBJECTS"])
def test_choices_by_hashes_are_found(name: str) -> None:
    """A cache that chooses by hashes or addresses is found, by the laws of ranks alone.

    In a process with a seed: with hashes that nobody knows, two ranks may happen to agree.
    """
    played = subprocess.run(
        [sys.executable, "-c", PLAYED.format(name=name)],
        env=environment(7) | {"PYTHONPATH": os.pathsep.join([HELPERS, *sys.path])},
        capture_output=True,
        text=True,
        check=True,
    )
    broken = set(played.stdout.split())
    assert "ASYNC-11" in broken
    assert broken <= {"ASYNC-11", "ASYNC-15"}


def test_the_report_says_which_hash_seeds_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names them, no field of the profile permits it, and the script shows it anywhere."""
    monkeypatch.syspath_prepend(HELPERS)
    plan = plan_of("hash_order:STRINGS", only=["ranks"], effort=SOME)
    report = report_of(check(plan), apart=True)
    shown = next(each for each in report.findings if "ASYNC-11" in each.broken)
    assert "PYTHONHASHSEED is 1 and not 0" in shown.words
    assert not shown.permitted_by
    assert _exit_code(shown, tmp_path) == 1


def _exit_code(finding: Finding, folder: Path) -> int:
    script = folder / file_name(finding)
    script.write_text(finding.script)
    path = os.pathsep.join([HELPERS, *sys.path])
    return subprocess.run(
        [sys.executable, str(script)],
        env=environment(99) | {"PYTHONPATH": path},
        capture_output=True,
        check=False,
    ).returncode
