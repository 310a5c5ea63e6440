"""`kvcanon check`: judges caches, and reports which laws hold and which are broken.

Exit code 0 means: no exercised law is broken, and the cache served every operation that all caches
have. The report lists the laws that were not exercised, each with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, TypeAlias

import typer
from rich.progress import TimeElapsedColumn

from kvcanon.conformance.check.check import STAGES, check
from kvcanon.conformance.check.effort import EFFORTS
from kvcanon.conformance.cli.exit_codes import BROKEN
from kvcanon.conformance.cli.files import require_files, require_folder, write_file
from kvcanon.conformance.cli.github import annotates_errors, write_for_github
from kvcanon.conformance.cli.options import DrawSeed, Jobs, Scripts, minutes_of
from kvcanon.conformance.cli.terminal import (
    ReportConsole,
    print_parts,
    progress_bars,
    signs_of_life,
)
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.judge.law_lookup import find_law
from kvcanon.conformance.report.html_page import Drawings, check_html
from kvcanon.conformance.report.json_report import check_json, json_text
from kvcanon.conformance.report.junit import check_junit
from kvcanon.conformance.report.known_differences import read_known
from kvcanon.conformance.report.known_shown import line_on_stale
from kvcanon.conformance.report.replay_apart import replay_apart
from kvcanon.conformance.report.report import CheckReport, CheckVerdict, report_of
from kvcanon.conformance.report.script import file_name
from kvcanon.conformance.report.text import text_report
from kvcanon.conformance.show.failure_run import drawn_failures
from kvcanon.conformance.show.page import show_script, show_style

Caches: TypeAlias = Annotated[
    list[str],
    typer.Argument(
        metavar="CACHE...",
        help="reference, package.module:factory, or pipe:COMMAND; one or more of them.",
    ),
]
Against: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="CACHE", help="A cache that the others must exactly agree with."),
]
EffortName: TypeAlias = Annotated[
    str, typer.Option(metavar="|".join(EFFORTS), help="How much is played on each cache.")
]
Only: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="ID,...",
        help=f"Check these laws only, or run these stages only: {', '.join(STAGES)}.",
    ),
]
KnownFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        exists=True,
        dir_okay=False,
        readable=True,
        metavar="FILE",
        help="Laws that are known to be broken, each with a reason and a link, in TOML.",
    ),
]
BlackBox: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--black-box", help="Judge by answers, events and bytes alone; do not look at the state."
    ),
]
Strict: TypeAlias = Annotated[
    bool, typer.Option("--strict", help="Fail the check for a broken SHOULD law, too.")
]
OutFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(metavar="FILE", dir_okay=False, help="Also write the report to this file."),
]
Github: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--github", help="Also write error annotations and a step summary for GitHub Actions."
    ),
]
Minutes: TypeAlias = Annotated[
    float | None,
    typer.Option(parser=minutes_of, metavar="N", help="How long a deep check runs."),
]
StoreLocation: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="DIR|redis://...",
        help="Where a deep check keeps its results, to continue later or on several machines.",
    ),
]

ShardOption: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="K/N", help="Play one of N equal parts of the cases; N jobs play the whole check."
    ),
]

Writers: TypeAlias = Mapping[Path, Callable[[CheckReport], str]]
"""How each file of a report is written."""


@annotates_errors
def check_command(
    caches: Caches,
    *,
    against: Against = None,
    effort: EffortName = "quick",
    seed: DrawSeed = 0,
    only: Only = None,
    known: KnownFile = None,
    black_box: BlackBox = False,
    strict: Strict = False,
    json: OutFile = None,
    junit: OutFile = None,
    html: OutFile = None,
    scripts: Scripts = None,
    github: Github = False,
    jobs: Jobs = None,
    minutes: Minutes = None,
    store: StoreLocation = None,
    shard: ShardOption = "1/1",
) -> None:
    """Judge caches by all laws that apply to them; report what is broken or not exercised."""
    require_files({"--json": json, "--junit": junit, "--html": html})
    require_folder(scripts)
    writers = _writers(json, junit, html)
    chosen = _chosen(only)
    differences = read_known(known) if known is not None else ()
    with _stage_bars() as progress:
        result = check(
            caches,
            against=against,
            effort=effort,
            seed=seed,
            only=chosen,
            known=[each.law for each in differences],
            black_box=black_box,
            strict=strict,
            jobs=jobs,
            minutes=minutes,
            store=store,
            shard=shard,
            progress=progress,
        )
        report = report_of(result, chosen, differences, replay_apart(seed))
    files = _write_scripts(report, scripts) if scripts is not None else {}
    print_parts(ReportConsole(), text_report(report, files))
    for path, write in writers.items():
        write_file(path, write(report))
    if github:
        write_for_github(report, files)
    if known is not None and (stale := line_on_stale(known, report)):
        typer.echo(f"Warning: {stale}", err=True)
    _exit(report.verdict)


def _writers(json: Path | None, junit: Path | None, html: Path | None) -> Writers:
    """The files to write, and how."""
    writers: dict[Path, Callable[[CheckReport], str]] = {}
    if json is not None:
        writers[json] = lambda report: json_text(check_json(report))
    if junit is not None:
        writers[junit] = check_junit
    if html is not None:
        writers[html] = _html_with_runs
    return writers


def _html_with_runs(report: CheckReport) -> str:
    """The page of a report, with the run of each failure to step through."""
    if not report.numbered:
        return check_html(report)
    drawn = drawn_failures(report, report.result.seed)
    return check_html(report, Drawings(drawn, show_style(), show_script()))


def _chosen(only: str | None) -> tuple[str, ...]:
    """The laws and stages that `--only` names. Raises: UsageError."""
    names = [name.strip() for name in (only or "").split(",") if name.strip()]
    if only is not None and not names:
        raise UsageError("--only names no law; give law ids or stages, separated by commas")
    return tuple(name if name in STAGES else find_law(name).law_id for name in names)


@contextmanager
def _stage_bars() -> Iterator[Callable[[str, int, int | None], None]]:
    """Show one progress bar for each stage; a line now and then if stderr is no terminal."""
    with progress_bars(TimeElapsedColumn()) as bars:
        if bars is None:
            with signs_of_life() as note:
                yield note
            return
        tasks = {}

        def show(stage: str, done: int, of: int | None) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage)
            bars.update(tasks[stage], completed=done, total=of)

        yield show


def _write_scripts(report: CheckReport, folder: Path) -> Mapping[str, str]:
    """Write a script for each failure; return the files by the number of the failure."""
    files: dict[str, str] = {}
    for each in report.numbered:
        path = folder / file_name(each.cache, each.replay.failure.finding)
        write_file(path, each.replay.script)
        files[each.number] = str(path)
    return files


def _exit(verdict: CheckVerdict) -> None:
    """End with the exit code of a verdict. Raises: UsageError, typer.Exit."""
    if verdict is CheckVerdict.NOT_JUDGED:
        raise UsageError("nothing was judged")
    if verdict is not CheckVerdict.HOLDS:
        raise typer.Exit(BROKEN)
