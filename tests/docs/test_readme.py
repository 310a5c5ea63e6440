"""The README: what it tells a newcomer to paste works."""

import re
import shlex

import pytest

from kvcanon.conformance.cli import main
from kvcanon.spec.law import LAWS
from meta.mutants import MUTANTS
from paths import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^\.venv/bin/kvcanon (.+)$", README, re.MULTILINE)
PRINTED = ("3 pages found; 3 steps judged\n", "62 pages need not be computed again\n")
"""What the examples print, in their order."""
EXAMPLES = re.findall(r"^```python\n(.+?)^```$", README, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("command", COMMANDS)
def test_command_of_the_readme_works(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A command that the README shows fails when pasted."""
    arguments = shlex.split(command, comments=True)
    fewer = ["--limit", "40"] if arguments[0] == "replay" else []
    assert main([*arguments, *fewer]) == 0
    assert capsys.readouterr().out


@pytest.mark.parametrize(
    ("example", "printed"), list(zip(EXAMPLES, PRINTED, strict=True)), ids=["guard", "optimized"]
)
def test_example_of_the_readme_works(
    example: str, printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The Python that the README shows does not run."""
    exec(compile(example, "README.md", "exec"), {})  # noqa: S102 # The README is ours.
    assert capsys.readouterr().out == printed


def test_readme_has_commands() -> None:
    """The test of commands finds nothing to try."""
    assert len(COMMANDS) >= 4


def test_readme_counts_what_there_is() -> None:
    """The README counts laws, planted faults or the bugs behind them as they were once."""
    rows = {each.upstream.split()[0] for each in MUTANTS if re.match(r"[ABCD]\d+ ", each.upstream)}
    assert f"No law is broken. {len(LAWS)} of {len(LAWS)} laws were exercised." in README
    counted = f"{len(MUTANTS)} planted faults,\nmodelled on {len(rows)} historical bugs"
    assert counted in README


def test_links_of_the_readme_lead_somewhere() -> None:
    """A file that the README links to is not there."""
    root = ROOT
    targets = re.findall(r"\]\(([^)]+)\)", README)
    assert targets
    assert all((root / target).is_file() for target in targets)
