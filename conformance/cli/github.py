"""`kvcanon check --github`: error annotations on stdout, and the summary of the step."""

from __future__ import annotations

import os
from collections.abc import Mapping
from io import StringIO
from pathlib import Path

import typer

from kvcanon.conformance.cli.terminal import ReportConsole, print_parts
from kvcanon.conformance.report.github import error_line, error_lines, step_summary
from kvcanon.conformance.report.report import CheckReport
from kvcanon.conformance.report.text import text_report
from kvcanon.printable import printable

SUMMARY_FILE = "GITHUB_STEP_SUMMARY"
"""The variable that names the file of the summary; it is set in each step of a workflow."""


def write_for_github(report: CheckReport, scripts: Mapping[str, str]) -> None:
    """Print an error annotation for each test that fails, and write the summary."""
    text = StringIO()
    print_parts(ReportConsole(file=text), text_report(report, scripts))
    _append_summary(step_summary(report, text.getvalue()))
    for line in error_lines(report):
        typer.echo(line)


def annotate_error(error: Exception) -> None:
    """Annotate the error of a call that is wrong, and write it into the summary."""
    line = printable(" ".join(str(error).split()))
    _append_summary(f"## kvcanon: nothing was judged\n\n    {line}\n")
    typer.echo(error_line("kvcanon", line))


def _append_summary(text: str) -> None:
    """Append to the summary of the step; outside of a workflow there is none."""
    if file := os.environ.get(SUMMARY_FILE):
        with Path(file).open("a", encoding="utf-8") as summary:
            summary.write(text)
