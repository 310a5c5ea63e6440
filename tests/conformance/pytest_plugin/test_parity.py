"""`pytest --pyargs kvcanon.conformance` and `kvcanon check` say the same of the same cache.

Each pytest is a process of its own, because this one has imported and configured kvcanon.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen

from kvcanon.conformance.check.plan import EFFORTS
from kvcanon.conformance.cli import main
from kvcanon.spec.law import LAWS
from paths import ROOT
from small_effort import SMALL
from suite_runs import FOLDERS, outcomes, run


@frozen
class Pair:
    """A cache, the options of both commands, and what is known of it."""

    cache: str
    code: int
    """The exit code of `kvcanon check`."""
    law: str = ""
    """A law that is broken; empty if there is none, or if only others are."""
    options: tuple[str, ...] = ()
    known: str = ""
    """A law that is known to be broken."""

    def __str__(self) -> str:
        return "-".join((self.cache, *self.options, *filter(None, [self.known])))


BY_TREE = (
    Pair("reported:slots_are_dealt_backwards", 1, "ALLOC-11"),
    Pair("reported:copy_moves_nothing", 1, "DATA-1", ("--black-box",)),
    Pair("reported:load_makes_recent", 1, "REC-7", ("--seed", "3")),
    Pair("reported:slots_are_dealt_backwards", 1, "MATCH-3", known="ALLOC-11"),
    Pair("reported:host_leaves_go_before_duplicates", 1, "EVICT-7", ("--strict",)),
    Pair("reported:Crashing", 1),
    Pair("reported:Nonsense", 1),
    Pair("reported:Blind", 1, "MATCH-1"),
    Pair("reported:Wordy", 1, "", ("--against", "reference")),
    Pair("reference", 1, "", ("--against", "reported:Forgetful")),
    Pair("docs_caches:FORGETS_WINDOWS", 1, "ALLOC-3"),
)
BY_REQUEST = (
    Pair("block_manager:of_KeepsShared", 1, "REFUSE-1", ("--seed", "3")),
    Pair("block_manager:of_NoNamespaces", 1, "MATCH-1"),
    Pair("block_manager:of_FallsAtAbort", 1),
    Pair("block_manager:of_RefusesAll", 1),
    Pair("docs_caches:NO_REUSE", 1, "MATCH-6"),
    Pair("docs_caches:NO_REUSE", 1, known="MATCH-6"),
    Pair("reported:REQUESTS", 1),
)
SOUND = (
    Pair("reference", 0, "", ("--against", "optimized")),
    Pair("simple_cache:ADAPTER", 0),
    Pair("block_manager:of_BlockManager", 0),
)
BY_DAY = (BY_REQUEST[0], SOUND[1])
"""One of each kind; the others are played at night."""
REFUSED = (
    Pair("docs_caches:missing", 2),
    Pair("docs_caches:not_one", 2),
    Pair("block_manager:of_BlockManager", 2, "", ("--against", "reference")),
    Pair("reference", 2, "", ("--strict",), known="LOCK-8"),
)

PYTEST_CODES = {
    0: pytest.ExitCode.OK,
    1: pytest.ExitCode.TESTS_FAILED,
    2: pytest.ExitCode.USAGE_ERROR,
}
"""The exit code of pytest for each of `kvcanon check`."""


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Play few cases in this process, as the plugin does in the others."""
    monkeypatch.setitem(EFFORTS, "quick", SMALL)
    for folder in FOLDERS:
        monkeypatch.syspath_prepend(str(folder))


@pytest.mark.parametrize(
    "pair",
    [
        pytest.param(pair, marks=() if pair in BY_DAY else pytest.mark.nightly)
        for pair in (*BY_TREE, *BY_REQUEST, *SOUND)
    ],
    ids=str,
)
def test_pytest_and_check_say_the_same(
    pair: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both commands name the same laws as broken, held and not exercised, and end alike."""
    options = options_of(pair, tmp_path)
    report = tmp_path / "check.json"
    code = main(["check", pair.cache, "--jobs", "1", "--json", str(report), *options])
    last_line = capsys.readouterr().out.splitlines()[-1]
    done = run(tmp_path, *as_pytest(pair.cache, options), "--junitxml", "pytest.xml", "-rx")
    assert code == pair.code
    assert done.returncode == PYTEST_CODES[code], done.stdout[-2000:] + done.stderr
    assert " ".join(last_line.split()) in " ".join(done.stdout.split())
    found = outcomes(tmp_path / "pytest.xml")
    assert {name: tag(said) for name, said in found.items()} == expected(
        json.loads(report.read_text("utf-8"))
    )
    if pair.law:
        assert tag(found[f"test_law[{pair.law}]"]) == ("failure" if code else "xfail")
        assert f"{pair.law} " in found[f"test_law[{pair.law}]"].splitlines()[0]


@pytest.mark.parametrize(
    "pair", [*REFUSED[:3], pytest.param(REFUSED[3], marks=pytest.mark.nightly)], ids=str
)
def test_both_refuse_with_the_same_line(
    pair: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What cannot be judged ends both commands with one line on stderr, the same one."""
    options = options_of(pair, tmp_path)
    code = main(["check", pair.cache, "--jobs", "1", *options])
    (line,) = capsys.readouterr().err.splitlines()
    done = run(tmp_path, *as_pytest(pair.cache, options))
    assert code == pair.code
    assert done.returncode == PYTEST_CODES[code]
    assert done.stderr.split() == ["ERROR:", *line.split()]


def options_of(pair: Pair, folder: Path) -> list[str]:
    """The options of `kvcanon check` for a cache."""
    if not pair.known:
        return list(pair.options)
    file = folder / "known.toml"
    why = 'reason = "on purpose"\nlink = "https://example.org/1"\n'
    file.write_text(f'[[known]]\nlaw = "{pair.known}"\n{why}', encoding="utf-8")
    return [*pair.options, "--known", str(file)]


def as_pytest(cache: str, options: Iterable[str]) -> list[str]:
    """The same for pytest."""
    named = [each.replace("--", "--kvcanon-", 1) for each in options]
    return ["--kvcanon-cache", cache, "--kvcanon-jobs", "1", *named]


def tag(said: str) -> str:
    """The outcome of a test in JUnit's words; a test that passed has none."""
    kind, _, rest = said.partition(": ")
    return "xfail" if "xfail" in kind else kind.split()[0] if rest else ""


def expected(report: dict[str, Any]) -> dict[str, str]:
    """The outcome of each test of the suite, after the JSON report of `kvcanon check`."""
    ours, *others = report["caches"]
    outcome = {"held": "", "broken": "failure", "not kept": "xfail"}
    # Laws that do not concern the cache are not in the report, and skipped.
    laws = {f"test_law[{law_id}]": "skipped" for law_id in LAWS}
    laws |= {
        f"test_law[{law['id']}]": outcome.get(law["standing"], "skipped") for law in ours["laws"]
    }
    grounds = {failure["grounds"] for failure in ours["failures"]}
    agreed = "failure" if "agreement" in grounds or others else ""
    return laws | {
        "test_agreement": agreed if report["against"] else "skipped",
        "test_crash": "failure" if "crash" in grounds else "",
        "test_essentials": "failure" if ours["missing"] else "",
        "test_complete": "failure" if ours["verdict"] == "incomplete" else "",
    }


def test_there_are_enough_pairs() -> None:
    """At least twelve broken caches are compared, some of each kind, each in a suite of its own."""
    broken = {each.cache for each in (*BY_TREE, *BY_REQUEST) if each.code == 1}
    assert len(broken) >= 12
    assert len({each.cache for each in BY_REQUEST}) >= 6
    assert ROOT not in FOLDERS
