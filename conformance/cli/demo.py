"""`kvcanon demo`: shows what the commands find, on a cache and a stream that are shipped faulty."""

from __future__ import annotations

import sys
import webbrowser
from pathlib import Path
from tempfile import mkdtemp
from typing import Annotated

import typer
from attrs import evolve

from kvcanon.conformance.check.check import check
from kvcanon.conformance.check.plan import EFFORTS, CheckPlan, CheckStage
from kvcanon.conformance.cli.live_options import require_live
from kvcanon.conformance.cli.options import require_folder, write_file
from kvcanon.conformance.cli.terminal import ReportConsole, print_parts
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.report.html_page import Drawings, check_html
from kvcanon.conformance.report.report import report_of
from kvcanon.conformance.report.text import text_report
from kvcanon.conformance.show.case_run import drawn_findings
from kvcanon.conformance.show.page import show_script, show_style
from kvcanon.spec.law import SITE

CACHE = "kvcanon.conformance.demo.faulty_cache:ADAPTER"
SHORT = evolve(EFFORTS["quick"], name="demo", walker_cases=48, block=4, seconds=25)
"""As much as a demonstration waits for."""
MOST_LINES = 24
"""How much of the report of the check is printed."""


def demo_command(
    *,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            file_okay=False,
            help="Where the report and the recording are written. Usual: a new temporary folder.",
        ),
    ] = None,
    open_report: Annotated[
        bool,
        typer.Option("--open/--no-open", help="Open the report in the browser, on a terminal."),
    ] = True,
) -> None:
    """Judge a faulty cache and a faulty stream of KV events, in half a minute.

    Both are shipped with kvcanon; you need no cache and no engine of your own. Ends with 0.
    """
    require_folder(output)
    folder = output or Path(mkdtemp(prefix="kvcanon-demo-"))
    report = _judge_cache(folder)
    _judge_stream(folder)
    say = typer.echo
    say(f"\nThe report: {report}")
    say("Your own cache: `kvcanon check my_cache:ADAPTER`; how to write the adapter:")
    say(f"{SITE}run-it-on-your-cache.html")
    if open_report and sys.stdout.isatty():
        webbrowser.open(report.as_uri())


def _judge_cache(folder: Path) -> Path:
    """Check the faulty cache, print the failure, and write the report; returns its file."""
    _say("1. A prefix cache whose evictions ignore locks", f"kvcanon check {CACHE}")
    stages = CheckStage.CORPUS, CheckStage.WALKER
    report = report_of(check(CheckPlan([CACHE], effort=SHORT, stages=stages)), apart=True)
    out = ReportConsole()
    with out.capture() as captured:
        print_parts(out, text_report(report, {}))
    lines = captured.get().splitlines()
    for line in lines[:MOST_LINES]:
        typer.echo(line.rstrip())
    if lines[MOST_LINES:]:
        typer.echo(f"  ... and {len(lines) - MOST_LINES} lines more")
    page = folder.resolve() / "report.html"
    drawn = drawn_findings(report, report.result.plan.seed)
    write_file(page, check_html(report, Drawings(drawn, show_style(), show_script())))
    return page


def _judge_stream(folder: Path) -> None:
    """Audit the faulty stream, and print what is found."""
    path = folder / "stream.kvstream"
    _say("2. A stream of KV events in which an eviction is not sent", f"kvcanon audit {path}")
    try:
        require_live()
    except UsageError as missing:
        typer.echo(f"Left out: {missing}")
        return
    # The extra may be missing.
    from kvcanon.conformance.cli.audit import audit_command  # noqa: PLC0415
    from kvcanon.conformance.demo.faulty_stream import record_faulty_stream  # noqa: PLC0415

    record_faulty_stream(path)
    audit_command(path)


def _say(what: str, command: str) -> None:
    typer.echo(f"\n{what}\n$ {command}\n")
