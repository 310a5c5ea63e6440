"""`kvcanon check`: judges caches, and reports which laws hold and which are broken.

Exit code 0 means: no exercised law is broken, and the cache served every operation that all caches
have. The report lists the laws that were not exercised, each with the reason. Exit code 3 means: no
law is broken in what was played, and that is less than the effort asks for, or less than half of
what the adapter offers, since its factory refused the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer
from rich.progress import TimeElapsedColumn

from kvcanon.conformance.check.check import check
from kvcanon.conformance.check.plan import (
    EFFORTS,
    CheckPlan,
    CheckStage,
    Shard,
    effort_named,
    stages_and_laws,
)
from kvcanon.conformance.check.stage import no_progress
from kvcanon.conformance.cli.command_line import BROKEN, INCOMPLETE
from kvcanon.conformance.cli.options import (
    DrawSeed,
    Jobs,
    Scripts,
    minutes_of,
    require_files,
    require_folder,
    write_file,
)
from kvcanon.conformance.cli.terminal import (
    ReportConsole,
    print_parts,
    progress_bars,
    signs_of_life,
)
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.judge import JudgeConfig
from kvcanon.conformance.report.report import CheckReport, CheckVerdict, report_of
from kvcanon.conformance.report.text import last_line, text_report

if TYPE_CHECKING:
    from kvcanon.conformance.report.html_page import Drawings
    from kvcanon.conformance.report.known_differences import KnownDifference

# What only some options need is imported where they are given.
# ruff: noqa: PLC0415

Caches: TypeAlias = Annotated[
    list[str],
    typer.Argument(
        metavar="CACHE",
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
        help="Check these laws or areas only, as RES-4,LOCK, or run these stages only: "
        f"{', '.join(CheckStage)}.",
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
Quiet: TypeAlias = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print only the last line: the verdict.")
]
Github: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--github", help="Also write error annotations and a step summary for GitHub Actions."
    ),
]
Minutes: TypeAlias = Annotated[
    float | None,
    typer.Option(
        parser=minutes_of, metavar="N", help="The time limit, or how long a deep check runs."
    ),
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
    quiet: Quiet = False,
    jobs: Jobs = None,
    minutes: Minutes = None,
    store: StoreLocation = None,
    shard: ShardOption = "1/1",
) -> None:
    """Judge caches by all laws that apply to them; report what is broken or not exercised.

    Exit codes: 0, no law is broken; 1, a law is broken, or too little came up;
    2, the call or the adapter is wrong; 3, there was no time to play everything.
    """
    with _annotated_errors(github=github):
        require_files({"--json": json, "--junit": junit, "--html": html})
        require_folder(scripts)
        stages, laws = _chosen(only)
        differences = _known(known)
        plan = CheckPlan(
            caches,
            JudgeConfig(black_box, laws, known=[each.law for each in differences]),
            effort_named(effort, minutes),
            seed,
            against,
            stages,
            strict,
            store,
            Shard.parse(shard),
            jobs,
        )
        with nullcontext(no_progress) if quiet else _stage_bars() as progress:
            report = report_of(check(plan, progress=progress), differences, apart=True)
        files = _write_scripts(report, scripts)
        parts = [last_line(report)] if quiet else text_report(report, files)
        print_parts(ReportConsole(), parts)
        _write_files(report, json, junit, html)
        if github:
            from kvcanon.conformance.cli.github import write_for_github

            write_for_github(report, files)
        if stale := _stale(known, report):
            typer.echo(f"Warning: {stale}", err=True)
        _exit(report.verdict)


@contextmanager
def _annotated_errors(*, github: bool) -> Iterator[None]:
    """Annotate the error of a call that is wrong, with `--github`."""
    try:
        yield
    except (UsageError, OSError) as error:
        if github:
            from kvcanon.conformance.cli.github import annotate_error

            annotate_error(error)
        raise


def _known(file: Path | None) -> tuple[KnownDifference, ...]:
    """The known differences of `--known`. Raises: UsageError."""
    if file is None:
        return ()
    from kvcanon.conformance.report.known_differences import read_known

    return read_known(file)


def _stale(file: Path | None, report: CheckReport) -> str:
    """A line on known differences that nothing shows. Raises: UsageError: the check is strict."""
    if file is None:
        return ""
    from kvcanon.conformance.report.known_differences import line_on_stale

    return line_on_stale(file, report)


def _chosen(only: str | None) -> tuple[tuple[CheckStage, ...], tuple[str, ...] | None]:
    """The stages and laws that `--only` names. Raises: UsageError."""
    names = [name.strip() for name in (only or "").split(",") if name.strip()]
    if only is not None and not names:
        raise UsageError("--only names no law; give law ids or stages, separated by commas")
    return stages_and_laws(names)


def _write_files(
    report: CheckReport, json: Path | None, junit: Path | None, html: Path | None
) -> None:
    """Write the report to the files of `--json`, `--junit` and `--html`, and say where it is."""
    if json is not None:
        from kvcanon.conformance.report.json_report import check_json, json_text

        write_file(json, json_text(check_json(report)))
    if junit is not None:
        from kvcanon.conformance.report.junit import check_junit

        write_file(junit, check_junit(report))
    if html is not None:
        from kvcanon.conformance.report.html_page import check_html

        write_file(html, check_html(report, *_drawings(report)))
    for path in (json, junit, html):
        if path is not None:
            typer.echo(f"Wrote {path.resolve()}", err=True)


def _drawings(report: CheckReport) -> Iterator[Drawings]:
    """The run of each finding, to step through; nothing if there is none."""
    if report.findings:
        from kvcanon.conformance.report.html_page import Drawings
        from kvcanon.conformance.show.case_run import drawn_findings
        from kvcanon.conformance.show.page import show_script, show_style

        drawn = drawn_findings(report, report.result.plan.seed)
        yield Drawings(drawn, show_style(), show_script())


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


def _write_scripts(report: CheckReport, folder: Path | None) -> Mapping[str, str]:
    """Write a script for each finding; return the files by the number of the finding."""
    if folder is None or not report.findings:
        return {}
    from kvcanon.conformance.report.script import file_name

    files: dict[str, str] = {}
    for each in report.findings:
        path = folder / file_name(each)
        write_file(path, each.script)
        files[each.number] = str(path)
    return files


def _exit(verdict: CheckVerdict) -> None:
    """End with the exit code of a verdict. Raises: UsageError, typer.Exit."""
    if verdict is CheckVerdict.NOT_JUDGED:
        raise UsageError("nothing was judged")
    if verdict is CheckVerdict.INCOMPLETE:
        raise typer.Exit(INCOMPLETE)
    if verdict is not CheckVerdict.HOLDS:
        raise typer.Exit(BROKEN)
