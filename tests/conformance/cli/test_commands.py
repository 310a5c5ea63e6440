"""The command line as a whole: its version, its help, and what a command imports."""

from __future__ import annotations

import subprocess
import sys
import tomllib

import pytest

from kvcanon.conformance.cli import COMMANDS, main
from paths import ROOT

IMPORTED = """
import sys
from kvcanon.conformance.cli import main
main(["watch", "--help"])
print(*sorted(name for name in sys.modules if name.startswith("kvcanon.conformance.cli.")))
"""
"""Prints the modules of the command line that the help of one command imports."""


def test_version_is_that_of_the_project(capsys: pytest.CaptureFixture[str]) -> None:
    """`--version` prints what pyproject.toml says, and nothing else."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"kvcanon {project['version']}\n"


def test_help_lists_each_command(capsys: pytest.CaptureFixture[str]) -> None:
    """The help names every command, in the order of the table."""
    assert main(["--help"]) == 0
    lines = [line.strip("│ ").split() for line in capsys.readouterr().out.splitlines()]
    first = [words[0] for words in lines if words]
    assert [word for word in dict.fromkeys(first) if word in COMMANDS.commands] == [
        *COMMANDS.commands
    ]


def test_a_command_that_is_not_there_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong name ends with 2, and with the command that is nearest to it."""
    assert main(["lawz"]) == 2
    assert capsys.readouterr().err == ("kvcanon: No such command 'lawz'. Did you mean 'laws'?\n")


def test_a_command_imports_no_other() -> None:
    """The help of one command does not import the modules of the others."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED], capture_output=True, text=True, check=True
    )
    modules = {name.rpartition(".")[2] for name in done.stdout.splitlines()[-1].split()}
    assert modules & COMMANDS.commands.keys() == {"watch"}
