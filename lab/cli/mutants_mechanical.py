"""`kvcanon lab mutants --mechanical`: how many generated mutants the laws find."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer
from rich.text import Text

from kvcanon import __version__
from kvcanon.conformance.cli.terminal import ReportConsole, columns, print_json, progress
from kvcanon.lab.mutants.detection import MutantVerdict, Sight
from kvcanon.lab.mutants.equivalents import Core, ReviewKind
from kvcanon.lab.mutants.kill_matrix import find_checkout
from kvcanon.lab.mutants.measurement import MeasurementSpec, measure
from kvcanon.lab.mutants.score import Measure
from kvcanon.spec.law import LawClass

BY_CLASS = {
    LawClass.SOUND: "a law of soundness sees it",
    LawClass.SERVING: "a law of serving, and none of soundness",
    LawClass.POLICY: "laws of policy alone",
}
WORDS = {
    Sight.CRASH: "it crashes",
    Sight.DEAD: "its process dies, or it does not answer",
    Sight.AGREEMENT: "only the comparison sees it",
    Sight.NOBODY: "nobody sees it",
}


def mechanical_mutants(spec: MeasurementSpec, *, as_json: bool, as_markdown: bool) -> Measure:
    """Measure and print. Raises: UsageError."""
    found = measure(spec, find_checkout(Path.cwd()), progress)
    if as_json:
        print_json(to_json(found))
    elif as_markdown:
        typer.echo("\n".join(to_markdown(found)))
    else:
        _print(found)
    return found


def title(found: Measure) -> str:
    """One line on what was measured."""
    of_all = f"{len(found.verdicts):,} of {found.places:,}"
    return f"{of_all} mechanical mutants of {found.core}, {found.effort} effort, seed {found.seed}"


def summary(found: Measure) -> str:
    """One line on the result."""
    ways = {
        Core.REFERENCE: "of those that show in any way, the laws alone see",
        Core.NATIVE: "of those that could show, a check against the reference sees",
    }
    share = f"{len(found.found)} of {len(found.showing)}, {found.percent:.1f} %"
    return f"{ways[found.core]} {share}; {found.least_percent:g} % are needed"


def counts(found: Measure) -> dict[str, int]:
    """How many mutants were found in each way, and how many were left out."""
    classes = Counter(verdict.law_class for verdict in found.by(Sight.LAW))
    return {
        **{words: classes[each] for each, words in BY_CLASS.items()},
        **{words: len(found.by(sight)) for sight, words in WORDS.items()},
        "left out, as they do the same": len(found.of_kind(ReviewKind.EQUAL)),
        "left out, as the book allows what they do": len(found.of_kind(ReviewKind.LAWFUL)),
        "dropped, as they do not compile": len(found.dropped),
    }


# As text.


def _print(found: Measure) -> None:
    out = ReportConsole()
    out.print(Text(title(found), "bold cyan"))
    table = columns()
    for words, number in counts(found).items():
        if number:
            table.add_row(str(number), words)
    out.print(table)
    for sight in found.missed:
        _print_list(out, WORDS[sight], found.by(sight))
    _print_list(out, "reviewed, and seen all the same: a stale entry", found.stale)
    out.print(Text(summary(found), "green" if found.reached else "bold red"))


def _print_list(out: ReportConsole, heading: str, verdicts: Sequence[MutantVerdict]) -> None:
    if verdicts:
        out.print()
        out.print(Text(heading, "bold"))
    for verdict in verdicts:
        out.print(Text(f"  {verdict.place.place_id}"), soft_wrap=True)
        out.print(Text(f"    {verdict.place.diff}", "dim"), soft_wrap=True)
        if verdict.seen:
            seen = f"{', '.join(verdict.seen)} in {verdict.how}: {verdict.text}"
            out.print(Text(f"    {seen}", "dim"), soft_wrap=True)


# As JSON and as a page.


def to_json(found: Measure) -> Mapping[str, Any]:
    """A measure as a JSON value."""
    return {
        "kvcanon": __version__,
        "core": found.core.value,
        "effort": found.effort,
        "seed": found.seed,
        "places": found.places,
        "counts": {sight.value: len(found.by(sight)) for sight in Sight},
        "percent": found.percent,
        "least_percent": found.least_percent,
        "reached": found.reached,
        "dropped": found.dropped,
        "stale": [verdict.place.place_id for verdict in found.stale],
        "mutants": [_verdict_to_json(found, verdict) for verdict in found.verdicts],
    }


def _verdict_to_json(found: Measure, verdict: MutantVerdict) -> Mapping[str, Any]:
    reviewed = found.reviewed.get(verdict.place.place_id)
    return {
        "id": verdict.place.place_id,
        "diff": verdict.place.diff,
        "sight": verdict.sight.value,
        "seen": verdict.seen,
        "law_class": verdict.law_class,
        "how": verdict.how,
        "text": verdict.text,
        "reviewed": reviewed.kind.value if reviewed else None,
        "seconds": round(verdict.seconds, 1),
    }


def to_markdown(found: Measure) -> list[str]:
    """A measure as a part of a page, without times."""
    return [
        f"{title(found)}: {summary(found)}.",
        "",
        "| mutants | |",
        "| ---: | --- |",
        *(f"| {number} | {words} |" for words, number in counts(found).items()),
        "",
        "| mutant | the change | what shows |",
        "| --- | --- | --- |",
        *(_row(verdict) for verdict in found.by(*found.missed)),
    ]


def _row(verdict: MutantVerdict) -> str:
    shows = f"{', '.join(verdict.seen)}: {verdict.text}" if verdict.seen else "nothing"
    place = verdict.place
    cells = (
        f"`{place.place_id}`",
        f"{place.path}:{place.line} `{place.old}` → `{place.new}`",
        shows,
    )
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"
