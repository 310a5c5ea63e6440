"""`kvcanon check`: caches before the judge, and what came of it.

What readers get wrong: exit code 0 says that no law is broken of those that were exercised, and
that every operation was served which every cache has. Which laws were not exercised, and why, the
report says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, TypeAlias

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from kvcanon.conformance.cli.options import Jobs, Scripts
from kvcanon.conformance.cli.terminal import ReportConsole
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.report.html_page import check_html
from kvcanon.conformance.report.json_report import check_json, json_text
from kvcanon.conformance.report.junit import check_junit
from kvcanon.conformance.report.known_differences import read_known, require_shown
from kvcanon.conformance.report.law_lookup import find_law
from kvcanon.conformance.report.report import CheckReport, CheckVerdict, report_of
from kvcanon.conformance.report.script import file_name
from kvcanon.conformance.report.text import text_report
from kvcanon.conformance.search.check import STAGES, check
from kvcanon.conformance.search.effort import EFFORTS
from kvcanon.conformance.search.plan import silent
from kvcanon.conformance.search.result import CheckResult, Standing

BROKEN = 1
"""Also where too little came up: a cache that does nothing has not passed."""

VECTORS = "vectors"

OutFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(metavar="FILE", dir_okay=False, help="Write the report there, too."),
]


def check_command(
    caches: Annotated[
        list[str],
        typer.Argument(
            metavar="CACHE...", help="reference, or package.module:factory; one or more of them."
        ),
    ],
    *,
    against: Annotated[
        str | None,
        typer.Option(metavar="CACHE", help="A cache that the others must exactly agree with."),
    ] = None,
    effort: Annotated[
        str, typer.Option(metavar="|".join(EFFORTS), help="How much is played on each cache.")
    ] = "quick",
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of all that is drawn.")] = 0,
    only: Annotated[
        str | None,
        typer.Option(
            metavar="ID,...", help=f"Ask these laws only, or play {', '.join(STAGES)} only."
        ),
    ] = None,
    known: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            readable=True,
            metavar="FILE",
            help="Laws that are known to be broken, each with a reason and a link, in TOML.",
        ),
    ] = None,
    black_box: Annotated[
        bool,
        typer.Option(
            "--black-box", help="Judge by answers, events and bytes alone, and look at no state."
        ),
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Let a law that only SHOULD be kept fail the check.")
    ] = False,
    json: OutFile = None,
    junit: OutFile = None,
    html: OutFile = None,
    scripts: Scripts = None,
    jobs: Jobs = None,
    minutes: Annotated[
        float | None, typer.Option(min=0, metavar="N", help="How long a deep check goes on.")
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            metavar="DIR|redis://...",
            help="Where a deep check keeps what was done, to go on later or on several machines.",
        ),
    ] = None,
) -> None:
    """Judge caches by every law that they let one ask; report what is broken or never came up."""
    writers: dict[Path, Callable[[CheckReport], str]] = {
        path: write
        for path, write in (
            (json, lambda report: json_text(check_json(report))),
            (junit, check_junit),
            (html, check_html),
        )
        if path is not None
    }
    for path in writers:
        if not path.parent.is_dir():
            raise UsageError(f"{path} cannot be written: there is no folder {path.parent}")
    chosen = _chosen(only)
    differences = read_known(known) if known is not None else ()
    with _shown() as progress:
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
            progress=progress,
        )
    report = report_of(result, chosen, differences)
    for path, write in writers.items():
        path.write_text(write(report), encoding="utf-8")
    _print(report, _write_scripts(report, scripts) if scripts is not None else {})
    if known is not None and _all_vectors(result):
        standing = [cache.standings for cache in result.caches]
        shown = {law for each in standing for law in each if each[law] is Standing.KNOWN}
        require_shown(known, differences, shown)
    if report.verdict is CheckVerdict.NOT_JUDGED:
        raise UsageError("nothing was judged")
    if report.verdict is not CheckVerdict.HOLDS:
        raise typer.Exit(BROKEN)


def _all_vectors(result: CheckResult) -> bool:
    """Whether every vector was played: only then is it known what none of them shows."""
    return any(stage.name == VECTORS and not stage.cut_short for stage in result.stages)


def _chosen(only: str | None) -> tuple[str, ...]:
    """The laws and the stages that were asked for. Raises: UsageError."""
    names = [name.strip() for name in (only or "").split(",") if name.strip()]
    if only is not None and not names:
        raise UsageError("--only names no law")
    return tuple(name if name in STAGES else find_law(name).law_id for name in names)


@contextmanager
def _shown() -> Iterator[Callable[[str, int, int | None], None]]:
    """Progress on a terminal, a bar for each stage; silent off it."""
    stderr = Console(stderr=True)
    if not stderr.is_terminal:
        yield silent
        return
    columns = (
        TextColumn("[progress.description]{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=stderr, transient=True) as bars:
        tasks = {}

        def tell(stage: str, done: int, of: int | None) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage)
            bars.update(tasks[stage], completed=done, total=of)

        yield tell


def _write_scripts(report: CheckReport, folder: Path) -> Mapping[int, str]:
    """Write the script of every failure; the files, by the number of the failure."""
    folder.mkdir(parents=True, exist_ok=True)
    written: dict[int, str] = {}
    retold = [
        (cache.name, each) for cache in report.caches for each in (*cache.failures, *cache.unkept)
    ]
    for number, (cache, each) in enumerate(retold, 1):
        path = folder / file_name(cache, each.failure.finding)
        path.write_text(each.script, encoding="utf-8")
        written[number] = str(path)
    return written


def _print(report: CheckReport, scripts: Mapping[int, str]) -> None:
    out = ReportConsole()
    for part in text_report(report, scripts):
        out.print(part, soft_wrap=isinstance(part, str), markup=False)
