"""A check that had no time to play its effort says so, and neither fails nor passes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from time import monotonic
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from attrs import evolve

from few_cases import FEW, check_here, plan_of
from kvcanon.conformance.check import check as check_module
from kvcanon.conformance.check.blocks import local_caches
from kvcanon.conformance.check.check import check
from kvcanon.conformance.check.plan import EFFORTS, CheckStage, Shard
from kvcanon.conformance.check.result import CheckResult, Unplayed
from kvcanon.conformance.cli import main
from kvcanon.conformance.protocol.adapter import Adapter, Offer
from kvcanon.conformance.pytest_plugin.checks import check_cache
from kvcanon.conformance.pytest_plugin.session_check import session_check
from kvcanon.conformance.report.github import step_summary
from kvcanon.conformance.report.named_tests import COMPLETE
from kvcanon.conformance.report.report import CheckVerdict, report_of
from kvcanon.conformance.report.text import last_line
from kvcanon.conformance.vectors import vector_files
from kvcanon.reference import ReferenceCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.types import EvictionPolicy
from paths import HELPERS

NO_TIME = evolve(FEW, seconds=1e-9)
"""An effort without time for any drawn case."""
NOTHING = (
    Unplayed(CheckStage.CORPUS, 0, 8),
    Unplayed(CheckStage.WALKER, 0, 24),
    Unplayed(CheckStage.MACHINE, 0, 4),
    Unplayed(CheckStage.RANKS, 0, 8),
    Unplayed(CheckStage.STORES, 0, 8),
)
"""What it leaves out: whole blocks of the walker, of ranks and of stores, a run of the machine."""


def checked(*caches: str, **options: Any) -> CheckResult:  # noqa: ANN401  # As `evolve` takes them.
    """A check without time, in this process."""
    return check(evolve(plan_of(*caches, effort=NO_TIME), **options), apart=False)


def test_all_vectors_are_played_without_time() -> None:
    """The time limit is not that of the vectors, and what it cuts is counted."""
    result = checked("reference")
    vectors, *drawn = result.stages
    assert (vectors.cases, vectors.asked, vectors.cut_short) == (len(vector_files()),) * 2 + ("",)
    assert [each.cases for each in drawn] == [0] * 5
    assert result.unplayed == NOTHING
    assert report_of(result).verdict is CheckVerdict.INCOMPLETE


def test_a_broken_cache_is_broken_though_it_was_not_played_to_the_end() -> None:
    """What was found counts more than what is missing."""
    report = report_of(checked("faulty:Leaky"))
    assert report.result.unplayed
    assert report.verdict is CheckVerdict.BROKEN


def test_a_check_that_judged_nothing_yet_is_incomplete() -> None:
    """Where no case was played at all, more time helps; nothing is wrong with the cache."""
    result = checked("reference", stages=(CheckStage.WALKER,))
    assert not result.caches[0].tally.laws
    assert report_of(result).verdict is CheckVerdict.INCOMPLETE


@pytest.mark.parametrize(
    "options",
    [
        {"effort": evolve(EFFORTS["deep"], seconds=1e-9)},
        {"effort": FEW, "shard": Shard(2, 4), "stages": (CheckStage.WALKER,)},
    ],
)
def test_what_was_not_asked_for_is_not_missing(options: dict[str, Any]) -> None:
    """A deep check plays as much as there is time for; a shard is a part."""
    assert not checked("reference", **options).unplayed


def test_the_command_exits_with_3_and_every_report_says_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 3; the second and the last line have the counts, and the option that helps."""
    monkeypatch.setitem(EFFORTS, "quick", NO_TIME)
    check_here(monkeypatch)
    files = {kind: tmp_path / f"report.{kind}" for kind in ("json", "junit", "html")}
    options = [part for kind, path in files.items() for part in (f"--{kind}", str(path))]
    assert main(["check", "reference", "--jobs", "1", *options]) == 3
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == lines[-1]
    assert re.fullmatch(
        r"INCOMPLETE: no law is broken in what was played; --minutes 1 gives time for the rest\. "
        r"(NOT EXERCISED: .*)?Played \d+ vectors, 0 of 8 corpus cases, 0 of 24 walker cases, "
        r"0 of 4 machine cases, 0 of 8 ranks cases, 0 of 8 stores cases\.",
        lines[-1],
    )
    value = json.loads(files["json"].read_text("utf-8"))
    assert (value["verdict"], value["caches"][0]["verdict"]) == ("incomplete",) * 2
    assert value["caches"][0]["unplayed"][0] == {"stage": "corpus", "played": 0, "asked": 8}
    (failure,) = ET.parse(files["junit"]).iterfind(".//failure")  # noqa: S314  # Our own.
    missing = (
        "INCOMPLETE: played 0 of 8 corpus cases, 0 of 24 walker cases, 0 of 4 machine cases, "
        "0 of 8 ranks cases, 0 of 8 stores cases"
    )
    assert str(failure.get("message")).startswith(f"{missing}; --minutes 1 ")
    assert missing in files["html"].read_text("utf-8")


class Choosy(ReferenceCache):
    """Is made for pages of one token only, and its adapter does not say so."""

    def __init__(self, config: CacheConfig) -> None:
        if config.page_size > 1:
            raise BadArgument("page_size", "is not 1")
        super().__init__(config)


@pytest.mark.parametrize(
    ("make", "offer", "words"),
    [
        (
            Choosy,
            Offer(),
            r"(\d+) of \d+ cases not offered: the factory refused their configuration\.",
        ),
        (
            ReferenceCache,
            Offer(events=(False,)),
            r"(\d+) of \1 vectors not offered: they need what the adapter's Offer lacks\.",
        ),
    ],
)
def test_the_last_line_says_what_was_not_offered(
    make: type[ReferenceCache], offer: Offer, words: str
) -> None:
    """What a factory refuses, or an Offer leaves out, does not look as if it was played."""
    with local_caches(Adapter("mine", make, offer)):
        report = report_of(check(plan_of("mine", only=["vectors", "walker"]), apart=False))
    assert re.search(words, last_line(report).plain)


class Picky(ReferenceCache):
    """Is made for LRU alone, and its adapter does not say so."""

    def __init__(self, config: CacheConfig) -> None:
        if config.eviction_policy != "lru":
            raise BadArgument("eviction_policy", "is not lru")
        super().__init__(config)


def test_a_check_is_incomplete_if_the_factory_refused_most_of_it() -> None:
    """Until an Offer says what the factory makes, the verdict is neither red nor green."""
    plan = plan_of("mine", effort=evolve(FEW, seconds=600), only=["walker"])
    with local_caches(Adapter("mine", Picky)):
        report = report_of(check(plan, apart=False))
    assert report.verdict is CheckVerdict.INCOMPLETE
    line = last_line(report).plain
    assert re.search(
        r"the factory of mine refused \d+ of \d+ cases, and its adapter offers them; declare", line
    )
    assert "minutes" not in line
    with local_caches(Adapter("mine", Picky, Offer(eviction_policies=(EvictionPolicy.LRU,)))):
        report = report_of(check(plan, apart=False))
    assert report.verdict is CheckVerdict.HOLDS


def test_github_says_incomplete() -> None:
    """A summary neither says passed nor failed."""
    assert "kvcanon: reference incomplete" in step_summary(report_of(checked("reference")), "")


def test_minutes_give_any_effort_more_time(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With --minutes a quick check plays all that it asks for."""
    monkeypatch.setitem(EFFORTS, "quick", NO_TIME)
    check_here(monkeypatch)
    options = ("--jobs", "1", "--only", "walker,MATCH-1", "--minutes", "10")
    assert main(["check", "reference", *options]) == 0
    assert capsys.readouterr().out.endswith("Played 24 walker cases.\n")


def test_a_test_of_ones_own_fails_if_the_check_is_incomplete(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`check_cache` is not green where it had no time, and says what gives it more."""
    monkeypatch.setitem(EFFORTS, "quick", NO_TIME)
    with pytest.raises(AssertionError, match=r"INCOMPLETE: played 0 of 8 corpus .*minutes=1 "):
        check_cache(ReferenceCache)


def test_a_session_of_pytest_fails_one_test_that_names_its_own_option() -> None:
    """The tests of the laws show what was seen; one more says that it was not all."""
    checked = session_check(plan_of("reference", effort=NO_TIME), None)
    test = checked.test(COMPLETE)
    assert test.fails
    assert "played 0 of 8 corpus cases" in test.message
    assert "--kvcanon-minutes 1 " in test.message
    assert checked.verdict.startswith("INCOMPLETE: no law is broken in what was played; --kvcanon-")
    assert [each.key for each in checked.tests if each.fails] == [COMPLETE]


def test_the_time_of_an_import_is_no_time_of_the_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every worker has loaded the cache when the clock of the stages begins."""
    monkeypatch.syspath_prepend(HELPERS)
    monkeypatch.setenv("SLOW_TO_LOAD_SECONDS", "1")
    monkeypatch.setenv("SLOW_TO_LOAD_NOTES", str(tmp_path))
    began: list[float] = []
    run = check_module._run

    def timed(*given: Any) -> Any:  # noqa: ANN401  # As it gets it.
        began.append(monotonic())
        return run(*given)

    monkeypatch.setattr(check_module, "_run", timed)
    check(plan_of("slow_to_load:make", only=["vectors", "walker"], jobs=2))
    loaded = [float(each.read_text("utf-8")) for each in tmp_path.iterdir()]
    assert len(loaded) == 2
    assert max(loaded) < began[0]
