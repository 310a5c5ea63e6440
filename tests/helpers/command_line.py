"""Runs the command line in this process; shared by the tests of the commands."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from kvcanon.conformance.cli import main

KVCANON = (
    sys.executable,
    "-c",
    "import sys; from kvcanon.conformance.cli import main; sys.exit(main())",
)
"""The command line that starts kvcanon in another process."""


def said(err: str) -> list[str]:
    """The lines on stderr, without those that say how far a long command is."""
    return [line for line in err.splitlines() if not line.endswith(", and goes on")]


def read(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    """Run a command, and return its stdout; stderr says no more than where a report is."""
    assert main(arguments) == code
    printed = capsys.readouterr()
    assert [line for line in said(printed.err) if not line.startswith("Wrote ")] == []
    return printed.out


def read_json(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Any:  # noqa: ANN401 # JSON
    """Run a command with --json, and return the value."""
    return json.loads(read(capsys, *arguments, "--json", code=code))


def usage_error(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run a wrong command, and return the one line on stderr."""
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert not printed.out
    (line,) = said(printed.err)
    assert line.startswith("kvcanon: ")
    return line
