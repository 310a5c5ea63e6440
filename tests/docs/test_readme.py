"""The README: its commands and examples work when pasted."""

import re
import shlex

import pytest

from kvcanon.conformance.cli import main
from kvcanon.lab.mutants.planted import MUTANTS
from kvcanon.spec.law import LAWS
from paths import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^\.venv/bin/kvcanon (.+)$", README, re.MULTILINE)
PRINTED = ("3 pages found; 3 steps judged\n",)
"""What the examples print, in their order."""
MOST_LINES = 150
EXAMPLES = re.findall(r"^```python\n(.+?)^```$", README, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("command", COMMANDS)
def test_command_of_the_readme_works(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A command of the README exits with 0 and prints something."""
    arguments = shlex.split(command, comments=True)
    fewer = ["--limit", "40"] if arguments[0] == "replay" else []
    assert main([*arguments, *fewer]) == 0
    assert capsys.readouterr().out


@pytest.mark.parametrize(
    ("example", "printed"), list(zip(EXAMPLES, PRINTED, strict=True)), ids=["guard"]
)
def test_example_of_the_readme_works(
    example: str, printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """An example of the README prints what it should."""
    exec(compile(example, "README.md", "exec"), {})  # noqa: S102 # The README is ours.
    assert capsys.readouterr().out == printed


def test_readme_has_commands() -> None:
    """The README has at least four commands, and is read on a few screens."""
    assert len(COMMANDS) >= 4
    assert len(README.splitlines()) < MOST_LINES


def test_readme_counts_what_there_is() -> None:
    """The README counts laws, planted faults and historical bugs as they are."""
    rows = {each.upstream.split()[0] for each in MUTANTS if re.match(r"[ABCD]\d+ ", each.upstream)}
    assert f"No law is broken. {len(LAWS)} of {len(LAWS)} laws were exercised." in README
    counted = f"{len(MUTANTS)} planted faults,\nmodelled on {len(rows)} historical bugs"
    assert counted in README


def test_readme_shows_the_failure_of_the_page_about_reports() -> None:
    """The violation in the README is the one that docs/check.md explains, line for line."""
    (shown,) = re.findall(r"^```\n(Failure 1: .+?)^```$", README, re.MULTILINE | re.DOTALL)
    report = (ROOT / "docs" / "check.md").read_text(encoding="utf-8").splitlines()
    assert [line for line in shown.splitlines() if line not in report] == []


def test_readme_counts_faults_as_the_findings_do() -> None:
    """The table of engines has the releases and the counts of docs/findings.md."""
    page = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
    row = re.compile(r"^\| \[(.+?)\]\(\S+\) \| (.+?) \| .+ \| (\w+)(?:;.*)? \|$", re.MULTILINE)
    assert row.findall(README) == row.findall(page)
    assert len(row.findall(README)) == 12
    assert f"which of {len(LAWS)} laws the cache breaks" in README


def test_readme_says_what_methods_find_as_the_page_about_adapters_does() -> None:
    """The rows on methods are those of docs/adapters.md, of which some are left out."""
    page = (ROOT / "docs" / "adapters.md").read_text(encoding="utf-8")
    row = re.compile(r"^\| .+? \| (\d+) \| .*?\(?(\d+) %\)? \|$", re.MULTILINE)
    shown = row.findall(README)
    assert len(shown) == 3
    assert set(shown) <= set(row.findall(page))
