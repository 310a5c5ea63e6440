"""Caches that end or block their process: each is a finding like any other."""

from __future__ import annotations

import inspect
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from attrs import evolve

import deadly
from few_cases import FEW, plan_of
from kvcanon.conformance.cases.client import Client
from kvcanon.conformance.cases.draw import draw_case
from kvcanon.conformance.check import blocks
from kvcanon.conformance.check.blocks import DEATHS_ENOUGH, cases_of, play_blocks
from kvcanon.conformance.check.call_recorder import CallRecorder
from kvcanon.conformance.check.check import check
from kvcanon.conformance.check.facts import facts_of
from kvcanon.conformance.check.plan import CheckPlan
from kvcanon.conformance.check.play import CaseRun
from kvcanon.conformance.check.reduce import reduce_all, reduce_case
from kvcanon.conformance.check.result import CheckResult, Finding, Grounds
from kvcanon.conformance.check.stage import ENOUGH
from kvcanon.conformance.check.time_limit import LIMIT
from kvcanon.conformance.check.trial import Trial, apart, without_judge
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.judge.by_states.guard import GuardedCache
from kvcanon.conformance.protocol.adapter import Adapter
from kvcanon.conformance.report.report import report_of
from kvcanon.conformance.workers.allowance import VARIABLE
from kvcanon.conformance.workers.worker import serve
from kvcanon.conformance.workers.workers import workers
from nights import at_night
from paths import HELPERS

NAMES = {
    "leave": "SystemExit",
    "raise_unforeseen": "Unforeseen",
    "recurse": "RecursionError",
    "exhaust": "MemoryError",
    "abort": "SIGABRT",
    "read_at_zero": "SIGSEGV",
    "kill_itself": "SIGKILL",
    "leave_at_once": "exit code 0",
    "leave_with_nine": "exit code 9",
    "loop": "CacheSilent",
    "wait_for_ever": "CacheSilent",
    "hold_the_interpreter": "CacheSilent",
}
"""The name of the finding, by what the cache does."""

SILENT_SECONDS, OTHER_SECONDS = (0.5, 1.0), (60.0, 600.0)
"""Limits of an action: of caches that never answer, and of others."""


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Find the caches in workers, with a limit that no sound action passes."""
    monkeypatch.setenv(VARIABLE, "10")
    monkeypatch.syspath_prepend(HELPERS)


def first_finding(name: str) -> tuple[Trial, Finding, int]:
    """The first finding of a cache in copies of this process, and the number of its case."""
    make = getattr(deadly, name)
    trial = apart(Trial(Adapter(name, make)))
    silent = NAMES.get(name.partition("_")[2]) == "CacheSilent"
    with LIMIT.at_most(*(SILENT_SECONDS if silent else OTHER_SECONDS)):
        for number in range(50):
            finding, _ = trial.play(draw_case(number, trial.adapter.offer))
            if finding is not None:
                return trial, finding, number
    raise AssertionError(f"{name} did nothing")


@pytest.mark.parametrize("way", NAMES)
def test_a_deadly_operation_is_a_finding(way: str) -> None:
    """What an operation does to its process is a crash; the operation and the words are known."""
    _, finding, _ = first_finding(f"match_{way}")
    assert finding.grounds is Grounds.CRASH
    assert finding.name == NAMES[way]
    assert finding.operation > 0
    assert finding.is_death is (
        way in {"abort", "read_at_zero", "kill_itself"} or way.startswith("leave_")
    )
    if finding.is_death or way in {"loop", "hold_the_interpreter"}:
        assert finding.text.endswith(", in match")
    assert finding.is_silence is (NAMES[way] == "CacheSilent")
    if way != "kill_itself" and not way.startswith("leave_"):
        assert f"in {way}" in finding.words


@pytest.mark.parametrize("way", [way for way in NAMES if way not in {"recurse", "exhaust"}])
def test_a_deadly_factory_is_a_finding(way: str) -> None:
    """A factory that is deadly for some configurations is a crash before the first operation."""
    _, finding, _ = first_finding(f"made_{way}")
    assert finding.grounds is Grounds.CRASH
    assert (finding.name, finding.operation) == (NAMES[way], 0)
    assert "made" in finding.text or "factory" in finding.text


def test_what_native_code_wrote_is_told() -> None:
    """The message of a failed assertion stands in the words of the finding."""
    _, finding, _ = first_finding("match_abort")
    assert "cache.cpp:7: assertion `refs > 0' failed" in finding.words


def test_a_deadly_case_is_reduced() -> None:
    """A case that ends its process is reduced as any other, and stays deadly."""
    trial, finding, number = first_finding("free_read_at_zero")
    case = draw_case(number, trial.adapter.offer)
    smallest = reduce_case(finding, trial)
    assert smallest is not None
    assert smallest.name == finding.name
    assert len(smallest.case.actions) == 1 < len(case.actions)
    assert smallest.case.config.page_size == 1


@pytest.mark.parametrize("jobs", [pytest.param(1, marks=pytest.mark.nightly), 2])
def test_a_check_goes_on_after_a_death(jobs: int) -> None:
    """A case that ends its worker is a failure; all other cases are played, for any `jobs`."""
    plan = plan_of("deadly:free_leave_with_nine", seed=3, jobs=jobs)
    numbered, cases = cases_of(plan.of("deadly:free_leave_with_nine")), 0
    deadly_cases: list[int] = []
    while len(deadly_cases) < DEATHS_ENOUGH:
        finding, _ = apart(numbered.trial(cases)).play(numbered.case(cases))
        deadly_cases += [cases] if finding is not None else []
        cases += 1
    one_block = evolve(plan, effort=evolve(FEW, block=2 * cases))
    cache = one_block.of("deadly:free_leave_with_nine")
    with workers(jobs, apart=True, seed=3) as by:
        report, why = play_blocks(cache, iter([0]), by, math.inf, lambda _block, _report: None)
        (failure,) = reduce_all(cache, report, by)
    assert (report.tally.cases, why) == (cases, ENOUGH)
    (found,) = report.found.values()
    assert (found.case_number, found.times) == (deadly_cases[0], DEATHS_ENOUGH)
    assert failure.name == "exit code 9"
    assert len(failure.case.actions) == 1


def planned(name: str, *stages: str, jobs: int = 1, against: str | None = None) -> CheckPlan:
    """A check of few cases in some stages."""
    effort = evolve(FEW, walker_cases=32, machine_cases=8, run=4)
    return plan_of(name, only=stages, jobs=jobs, against=against, effort=effort)


def facts(result: CheckResult) -> object:
    """A check, without its times."""
    return result.caches, [(stage.name, stage.cases, stage.steps) for stage in result.stages]


@pytest.mark.parametrize("stage", ["machine", pytest.param("vectors", marks=pytest.mark.nightly)])
def test_each_stage_finds_a_death_with_any_number_of_jobs(stage: str) -> None:
    """Each stage knows the case of a death, and reports it, with one worker as with two."""
    plans = (planned("deadly:match_read_at_zero", stage, jobs=jobs) for jobs in (1, 2))
    one, two = map(check, plans)
    assert facts(one) == facts(two)
    (failure,) = one.caches[0].failures
    assert failure.name == "SIGSEGV"
    assert stage.removesuffix("s") in failure.origin
    assert failure.case.actions


@pytest.mark.nightly
def test_the_other_cache_may_die() -> None:
    """The death of the cache to agree with is a finding of that cache."""
    result = check(planned("reference", "walker", against="deadly:match_abort"))
    assert not result.caches[0].failures
    (failure,) = result.caches[1].failures
    assert (failure.cache, failure.name) == ("deadly:match_abort", "SIGABRT")


def ran(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A script that was run where the cache can be imported."""
    file = folder / "script.py"
    file.write_text(script)
    return subprocess.run(
        [sys.executable, file], cwd=HELPERS, capture_output=True, text=True, check=False
    )


def test_the_report_shows_the_calls_and_the_script_dies_too(tmp_path: Path) -> None:
    """The calls up to the deadly one are shown; the script ends its process in the same way."""
    result = check(planned("deadly:match_read_at_zero", "walker"))
    report = report_of(result, apart=True)
    (failure,) = report.caches[0].failures
    assert failure.shown_again
    assert failure.calls[-1].answer == "ended its process with SIGSEGV"
    assert failure.calls[-1].code.startswith("cache.match(")
    assert failure.calls[-1].number == failure.operation
    assert ran(failure.script, tmp_path).returncode == -11
    assert "its process ends at the last call" in failure.script


def test_a_script_never_ends_as_if_all_were_well(tmp_path: Path) -> None:
    """The script of a cache that calls sys.exit(0) fails."""
    result = check(planned("deadly:match_leave", "walker"))
    (failure,) = report_of(result, apart=True).caches[0].failures
    done = ran(failure.script, tmp_path)
    assert done.returncode == 1
    assert "the cache called sys.exit(0)" in done.stderr


@pytest.mark.parametrize(
    ("way", "words"),
    [
        ("leave", "SystemExit: 0"),
        ("leave_at_once", "it ended its process with exit code 0"),
        ("abort", r"it ended its process with SIGABRT \(cache.cpp:7: assertion"),
        ("raise_unforeseen", "Unforeseen: not foreseen"),
        ("interrupt", "KeyboardInterrupt"),
        ("hold_the_interpreter", r"no answer within 3 s in which it waited"),
        *at_night(("loop", r"no answer within (0.3|1.5) s of processor time")),
    ],
)
def test_a_deadly_import_or_factory_is_a_usage_error(
    way: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If no cache can be made at all, one line says what happened."""
    monkeypatch.setenv(VARIABLE, "0.3")
    monkeypatch.setenv("DEADLY", way)
    with workers(1, apart=True) as by:
        with pytest.raises(UsageError, match=f"deadly_at_import.* cannot be imported: .*{words}"):
            facts_of(plan_of("x").of("deadly_at_import:make"), by)
        with pytest.raises(UsageError, match=f"deadly:unmade_{way} made no cache: .*{words}"):
            facts_of(plan_of("x").of(f"deadly:unmade_{way}"), by)


def test_a_factory_may_fail_for_some_configurations() -> None:
    """A cache that can be made with some drawn configurations is judged."""
    with workers(1, apart=True) as by:
        known = facts_of(plan_of("x").of("deadly:made_abort"), by)
    assert "snapshot" not in known.lacks


def test_the_limit_is_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment sets the limit; what is no limit is refused in one line."""
    assert LIMIT.action.processor == 10
    for wrong in ("", "soon", "0", "-1", "inf", "nan"):
        monkeypatch.setenv(VARIABLE, wrong)
        with pytest.raises(UsageError, match=f"{VARIABLE} is {wrong!r}; give seconds, as 20"):
            check(plan_of("reference"))


OF_THE_JUDGE = (Client, CaseRun, GuardedCache, CallRecorder, serve)
"""What calls a cache, directly or not: something of each room that does."""


@pytest.mark.parametrize("judge", OF_THE_JUDGE)
def test_stacks_end_where_the_judge_begins(judge: type | Callable[..., object]) -> None:
    """Frames of the judge below those of the cache are left out; others stay."""
    frame = '  File "{}", line 1 in f'
    mine, ours = frame.format("/me/cache.py"), frame.format(inspect.getfile(judge))
    engine = frame.format("/x/kvcanon/conformance/engines/vllm/cache.py")
    head = "Current thread (most recent call first):"
    assert without_judge(f"{head}\n{mine}\n{engine}\n{ours}\n{ours}") == f"{head}\n{mine}\n{engine}"
    assert without_judge(f"{head}\n{ours}\n{ours}") == f"{head}\n{ours}"


def test_hashes_come_from_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache whose behaviour depends on the hash of a string gives one result, for any `jobs`."""
    monkeypatch.setattr(blocks, "KINDS_ENOUGH", 1)
    plans = (planned("deadly:HashedCache", "walker", jobs=jobs) for jobs in (1, 2, 1))
    one, two, three = (facts(check(plan)) for plan in plans)
    assert one == two == three
