"""`kvcanon lab mutants`: the kill matrix, which shows how soon each way finds each planted fault.

The faults are planted in the reference cache of the current checkout. What is measured here is the
judge.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from itertools import product
from pathlib import Path
from typing import Annotated

import typer
from attrs import asdict, frozen
from rich.table import Table
from rich.text import Text

from kvcanon import __version__
from kvcanon.conformance.check.plan import effort_named
from kvcanon.conformance.cli.command_line import BROKEN
from kvcanon.conformance.cli.options import AsJson, DrawSeed
from kvcanon.conformance.cli.terminal import ReportConsole, print_json, print_title, progress
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.workers.workers import workers
from kvcanon.lab.cli.mutants_mechanical import mechanical_mutants
from kvcanon.lab.mutants.equivalents import Core
from kvcanon.lab.mutants.faulty import what_goes_wrong
from kvcanon.lab.mutants.kill_matrix import FEW, HUNTS, Kill, find_mutants
from kvcanon.lab.mutants.measurement import MeasurementSpec

EFFORTS = ("quick", "standard")
WIDTH = 170
"""Columns of the table in a pipe."""

HEADINGS = {
    "inside": "laws, by states",
    "outside": "laws, from outside",
    "agreement": "compared",
    "machine": "machine",
    "vectors": "vector",
}
"""The headings of the ways to find a mutant."""

AFTER_STEPS = (30, 100, 300, 1_000, 3_000, 10_000, 30_000)
"""The numbers of operations after which a page says how many mutants each way had found."""

SURVIVED = "survived"

BY_LAWS = ("inside", "outside")
BY_WALKER = (*BY_LAWS, "agreement")


@frozen
class KillRow:
    """A mutant, and what each way found."""

    name: str
    law_id: str
    upstream: str
    founding: bool
    reason: str
    kills: Mapping[str, Kill | None]
    """The result of each way."""

    def by(self, *ways: str) -> bool:
        """Whether one of these ways found it."""
        return any(self.kills[way] is not None for way in ways)


@frozen
class Bar:
    """How many mutants some ways found, and how many they must find."""

    what: str
    found: int
    of: int
    least: int

    @property
    def reached(self) -> bool:
        """Whether enough were found."""
        return self.found >= self.least


def mutants_command(
    *,
    only: Annotated[
        str | None, typer.Option(metavar="NAME,...", help="These mutants only.")
    ] = None,
    mechanical: Annotated[
        bool, typer.Option("--mechanical", help="Use generated mutants, and judge them by laws.")
    ] = False,
    core: Annotated[
        Core, typer.Option(help="The cache to mutate; for --mechanical.")
    ] = Core.REFERENCE,
    sample: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Use only N mutants; for --mechanical."),
    ] = None,
    effort: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(EFFORTS),
            help="Most cases to play. Usual: standard; quick for --mechanical.",
        ),
    ] = None,
    seed: DrawSeed = 0,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Worker processes. Usual: one for each core."),
    ] = None,
    as_json: AsJson = False,
    as_markdown: Annotated[
        bool, typer.Option("--markdown", help="Print a page for the docs, without times.")
    ] = False,
) -> None:
    """Look for every planted fault in every way, and print how soon; needs the checkout."""
    if mechanical:
        ids = tuple(each.strip() for each in only.split(",")) if only is not None else ()
        spec = MeasurementSpec(
            core, sample, ids, effort or "quick", seed, jobs or os.cpu_count() or 1
        )
        if not mechanical_mutants(spec, as_json=as_json, as_markdown=as_markdown).reached:
            raise typer.Exit(BROKEN)
        return
    if sample is not None or core is not Core.REFERENCE:
        raise UsageError("--sample and --core need --mechanical; add it")
    effort = effort or "standard"
    if effort not in EFFORTS:
        raise UsageError(f"no effort {effort!r} for mutants; choose one of {', '.join(EFFORTS)}")
    rows = _rows(only, effort, seed, jobs or os.cpu_count() or 1)
    bars = bars_of(rows)
    if as_json:
        print_json(
            {
                "kvcanon": __version__,
                "effort": effort,
                "seed": seed,
                "mutants": [asdict(row) for row in rows],
                "bars": [{**asdict(bar), "reached": bar.reached} for bar in bars],
            }
        )
    elif as_markdown:
        typer.echo("\n".join(_page(rows, bars, effort, seed)))
    else:
        _print(rows, bars, effort, seed)
    if not all(bar.reached for bar in bars):
        raise typer.Exit(BROKEN)


def hunt(start: Path, name: str, way: str, effort: str, seed: int) -> Kill | None:
    """Look for a mutant in one way; runs in any process."""
    (mutant,) = (each for each in find_mutants(start) if each.name == name)
    return HUNTS[way](mutant, effort_named(effort), seed)


def _rows(only: str | None, effort: str, seed: int, jobs: int) -> list[KillRow]:
    here = Path.cwd()
    mutants = {mutant.name: mutant for mutant in find_mutants(here)}
    given = [name.strip() for name in only.split(",")] if only is not None else mutants
    names = list(dict.fromkeys(given))
    for name in names:
        if name not in mutants:
            raise UsageError(f"no mutant {name!r}; `kvcanon lab mutants` lists them")
    with workers(jobs) as by:
        futures: dict[tuple[str, str], Future[Kill | None]] = {
            (name, way): by.executor.submit(hunt, here, name, way, effort, seed)
            for name, way in product(names, HUNTS)
        }
        with progress(list(futures), "mutants") as shown:
            kills = {each: futures[each].result() for each in shown}
    return [
        KillRow(
            name,
            mutants[name].law_id,
            mutants[name].upstream,
            mutants[name].founding,
            what_goes_wrong(mutants[name]),
            {way: kills[name, way] for way in HUNTS},
        )
        for name in names
    ]


def bars_of(rows: Sequence[KillRow]) -> list[Bar]:
    """What must be found: all in every way; laws alone may miss a tenth, which needs comparison."""
    founding = [row for row in rows if row.founding]
    every = len(rows)
    most = -(-9 * every // 10)

    def bar(what: str, among: Sequence[KillRow], least: int, *ways: str) -> Bar:
        return Bar(what, sum(row.by(*ways) for row in among), len(among), least)

    return [
        bar("found by the walker", rows, every, *BY_WALKER),
        bar("found by the machine", rows, every, "machine"),
        bar("found by a vector", rows, every, "vectors"),
        bar("found by laws alone", rows, most, *BY_LAWS),
        bar("founding bugs found from outside", founding, len(founding), "outside"),
        bar("found from outside", rows, 0, "outside"),
    ]


# As text.


def _print(rows: Sequence[KillRow], bars: Sequence[Bar], effort: str, seed: int) -> None:
    out = ReportConsole(WIDTH)
    print_title(out, "mutants", f"{len(rows)} of them, {effort} effort, seed {seed}")
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for heading in ("mutant", "law", "modelled on", *HEADINGS.values()):
        table.add_column(heading, no_wrap=True)
    for row in rows:
        cells = [_cell(way, row.kills[way], _timed) for way in HEADINGS]
        name = f"{row.name} *" if row.founding else row.name
        table.add_row(
            name,
            row.law_id,
            row.upstream,
            *(Text(cell, "bold red" if cell == SURVIVED else "") for cell in cells),
        )
    out.print(table)
    out.print("Cases / steps / seconds until it was found; * marks a founding bug.", style="dim")
    for bar in bars:
        style = "green" if bar.reached else "bold red"
        out.print(Text(_in_words(bar), style))
    slowest = [row.kills["outside"] for row in rows if row.founding]
    seconds = [kill.seconds for kill in slowest if kill is not None]
    if seconds:
        out.print(f"slowest founding bug from outside: {max(seconds):.1f} s")


def _in_words(bar: Bar) -> str:
    needed = f", of which {bar.least} are needed" if not bar.reached else ""
    return f"{bar.what}: {bar.found}/{bar.of}{needed}"


def _cell(way: str, kill: Kill | None, counted: Callable[[Kill], str]) -> str:
    if kill is None:
        return SURVIVED
    if way == "vectors":
        return kill.where
    more = f" +{len(kill.seen) - 1}" if len(kill.seen) > 1 else ""
    return f"{kill.seen[0]}{more}: {counted(kill)}"


def _timed(kill: Kill) -> str:
    return f"{kill.cases:,}/{kill.steps:,}/{kill.seconds:.1f}"


# As a page.


def _page(rows: Sequence[KillRow], bars: Sequence[Bar], effort: str, seed: int) -> list[str]:
    founding = "`*` marks the bugs for which the canon was begun."
    return [
        "# The kill matrix",
        "",
        "Faults that are planted in the reference cache, and what finds them. Written by",
        f"`kvcanon lab mutants --markdown --effort {effort} --seed {seed}`; not by hand.",
        "",
        "Each fault overrides one function and is made to break one law; others may break first.",
        f"{founding} A cell says which law broke, or what differed, after how",
        "many cases / operations of the cache; `+2` says that two more laws broke in the same",
        "step. *By states* and the *machine* check every law on states; *from outside* sees",
        "answers, events and bytes; *compared* checks no law, and compares with the reference",
        f"cache. From outside and compared, {FEW} cases are played, or as many as it takes for a",
        "founding bug; not every fault shows there, and `survived` says that this one did not.",
        "Faults of ranks (ASYNC-11) are played on three ranks, by states and by the machine.",
        "",
        *(f"- {_in_words(bar)}" for bar in bars),
        "",
        "How many each way had found after so many operations:",
        "",
        _line("way", *(f"{steps:,}" for steps in AFTER_STEPS), "in all"),
        _line("---", *["---:"] * (len(AFTER_STEPS) + 1)),
        *(_line(HEADINGS[way], *map(str, found_after(rows, way))) for way in HEADINGS),
        "",
        _line("mutant", "law", "modelled on", *HEADINGS.values()),
        _line(*["---"] * (3 + len(HEADINGS))),
        *(
            _line(
                f"`{row.name}`{' *' * row.founding}: {row.reason}".replace("|", "\\|"),
                row.law_id,
                row.upstream,
                *(_cell(way, row.kills[way], _counted) for way in HEADINGS),
            )
            for row in rows
        ),
    ]


def found_after(rows: Sequence[KillRow], way: str) -> list[int]:
    """How many mutants a way had found after each number of operations, and in all."""
    steps = [kill.steps for row in rows if (kill := row.kills[way]) is not None]
    return [*(sum(each <= most for each in steps) for most in AFTER_STEPS), len(steps)]


def _counted(kill: Kill) -> str:
    return f"{kill.cases:,} / {kill.steps:,}"


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
