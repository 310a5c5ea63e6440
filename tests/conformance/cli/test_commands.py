"""The command line as a whole: its version, its help, and what a command imports."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tomllib

import pytest

from kvcanon.conformance.cli import COMMANDS, EXAMPLES, main
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
    line = capsys.readouterr().out
    assert line.startswith(f"kvcanon {project['version']}")
    assert line.count("\n") == 1


@pytest.mark.parametrize("command", [[], *([each] for each in COMMANDS.commands if each != "lab")])
def test_help_has_its_short_name_and_no_types_of_flags(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """`-h` is `--help`, and a flag has no type that somebody could take for a value."""
    assert main([*command, "-h"]) == 0
    page = capsys.readouterr().out
    assert main([*command, "--help"]) == 0
    assert capsys.readouterr().out == page
    typed = [line for line in page.splitlines() if "<bool>" in line]
    assert [line for line in typed if "Show this message" not in line] == []


@pytest.mark.parametrize("command", EXAMPLES)
def test_the_help_has_examples_that_could_be_run(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each example is in the help, whole, and has only options that the help lists."""
    assert main([command, "--help"]) == 0
    page = capsys.readouterr().out
    for example in EXAMPLES[command]:
        assert f"   {example}" in page
        words = shlex.split(example)
        assert words[:2] == ["kvcanon", command]
        for word in words:
            assert not word.startswith("--") or f"│ {word} " in page
    assert EXAMPLES.keys() == COMMANDS.commands.keys() - {"lab"}


@pytest.mark.parametrize("given", [["--no-color", "laws", "LOCK"], ["laws", "LOCK", "--no-color"]])
def test_no_color_is_taken_anywhere(
    given: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With `--no-color` no command to the terminal is printed, even where colours are forced."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "")
    assert main(["laws", "LOCK"]) == 0
    assert "\x1b[1;36m" in capsys.readouterr().out
    assert main(given) == 0
    assert "\x1b[1;36m" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("variables", "wanted"),
    [
        (
            {"_KVCANON_COMPLETE": "complete_bash", "COMP_WORDS": "kvcanon ch", "COMP_CWORD": "1"},
            "check",
        ),
        (
            {
                "_KVCANON_COMPLETE": "complete_bash",
                "COMP_WORDS": "kvcanon check --ef",
                "COMP_CWORD": "2",
            },
            "--effort",
        ),
        ({"_KVCANON_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "kvcanon la"}, '"laws"'),
        (
            {
                "_KVCANON_COMPLETE": "complete_fish",
                "_TYPER_COMPLETE_ARGS": "kvcanon la",
                "_TYPER_COMPLETE_FISH_ACTION": "get-args",
            },
            "laws",
        ),
    ],
    ids=["bash", "bash option", "zsh", "fish"],
)
def test_shells_complete_commands_and_options(variables: dict[str, str], wanted: str) -> None:
    """The scripts of `--install-completion` call the command so; it prints what may follow."""
    done = subprocess.run(
        [sys.executable, "-m", "kvcanon"],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=True,
    )
    assert wanted in done.stdout
    assert not done.stderr


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
