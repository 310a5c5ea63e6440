"""Tables of measured figures, written into pages from the files in lab/bench/measured.

A file answers one question: with which command, on which machine, and of what its figures are, as
"medians of 12 rounds". A page has each table between marks, so that no two pages say two things.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from attrs import frozen

from kvcanon.commit import SHOWN
from kvcanon.conformance.errors import UsageError

FOLDER = Path("lab/bench/measured")
PAGES = (
    "README.md",
    *(
        f"docs/{page}.md"
        for page in (
            *("ci", "explore", "guard", "live", "mechanical-mutants", "performance", "probe"),
            *("ranks", "sglang", "stores"),
        )
    ),
)
"""The pages that have such tables."""
FELT = "felt"
"""The table of what a user feels, which is made of several files."""
OLD = "old"
"""The list of figures that are older than what they are about."""

_PLACE = re.compile(r"(<!-- measured: (\w+) -->).*?(<!-- end -->)", re.DOTALL)


@frozen
class KeptRun:
    """A run of which a table was made."""

    command: str
    commit: str | None
    """None if it was not known."""
    date: str


@frozen
class KeptFigures:
    """The answer to one question."""

    name: str
    question: str
    command: str
    machine: str
    figures_are: str
    """Of what its figures are the median, the least or the most."""
    old: str
    """Why they are not of today's code, or not of this repository; empty if they are."""
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    runs: tuple[KeptRun, ...] = ()
    """The runs of `--measured`; none of figures that were written down before there was one."""

    def cell(self, row: str, head: str) -> str:
        """The figure of a row and a column. Raises: UsageError: there is none."""
        for each in self.rows:
            if each[0] == row and head in self.heads:
                return each[self.heads.index(head)]
        raise UsageError(f"{FOLDER / self.name}.json has no figure {row!r}, {head!r}")

    def head_from(self, begin: str) -> str:
        """The first head that begins so. Raises: UsageError: there is none."""
        for head in self.heads:
            if head.startswith(begin):
                return head
        raise UsageError(f"{FOLDER / self.name}.json has no column {begin!r}")


def read_measured(checkout: Path) -> dict[str, KeptFigures]:
    """Every question that was measured, by name. Raises: UsageError: a file is not as it should."""
    found = {}
    for path in sorted((checkout / FOLDER).glob("*.json")):
        value = json.loads(path.read_text("utf-8"))
        heads, rows = tuple(value.pop("heads")), tuple(map(tuple, value.pop("rows")))
        runs = tuple(KeptRun(**run) for run in value.pop("runs", ()))
        if any(len(row) != len(heads) for row in rows):
            raise UsageError(f"{path} has a row that is not as long as its heads")
        found[path.stem] = KeptFigures(path.stem, **value, heads=heads, rows=rows, runs=runs)
    return found


def page_with_figures(page: str, checkout: Path) -> str:
    """The text of a page with today's tables. Raises: UsageError: a table has no file."""
    measured = read_measured(checkout)

    def table(place: re.Match[str]) -> str:
        name = place[2]
        if name not in measured and name not in (FELT, OLD):
            raise UsageError(f"{page} has a table {name}, and {FOLDER} has no such file")
        made = {FELT: felt_table, OLD: old_list}.get(name)
        lines = made(measured) if made else measured_table(measured[name])
        return f"{place[1]}\n\n{_joined(lines)}\n\n{place[3]}"

    return _PLACE.sub(table, (checkout / page).read_text("utf-8"))


def write_figures_of_pages(checkout: Path) -> None:
    """Write the tables of all pages anew. Raises: UsageError."""
    for page in PAGES:
        (checkout / page).write_text(page_with_figures(page, checkout), "utf-8")


def measured_table(measured: KeptFigures) -> Iterator[str]:
    """A table, and below it on what machine it was measured, and of what its figures are."""
    yield f"| {' | '.join(measured.heads)} |"
    yield f"|{'---|' * len(measured.heads)}"
    for row in measured.rows:
        yield f"| {' | '.join(row)} |"
    yield ""
    old = f" {measured.old}" if measured.old else ""
    when = "; ".join(dict.fromkeys(_when(run) for run in measured.runs))
    when = f" Measured {when}." if when else ""
    yield f"*{_begun(measured.machine)}; {measured.figures_are}.{when}{old}*"


def felt_table(measured: Mapping[str, KeptFigures]) -> Iterator[str]:
    """What a user of the fast cache feels in SGLang, whole servers first, parts after them."""
    server, tree = measured["server"], measured["tree_plain"]
    rust = "SGLang 0.5.23, Rust core"
    ours, theirs = (
        {head: server.cell(row, head) for head in server.heads} for row in ("kvcanon", rust)
    )
    ratio, spread = "kvcanon's, times these", server.head_from(SPREAD)
    first, spent = "first token, ms: p50 / p99", "cache, us a request"
    hits = next(row for row in measured["hit_rates_peers"].rows if row[0] == "full")
    memory = [float(row[-1]) for row in measured["engine_memory"].rows]
    times = [float(row[tree.heads.index("times")]) for row in tree.rows]
    least, most = (_rounded(each) for each in theirs[spread].split(" to "))
    yield "| what | kvcanon | SGLang 0.5.23, Rust core | measured in |"
    yield "|---|---|---|---|"
    yield (
        f"| requests a second; no measurable difference | {_rounded(theirs[ratio])} times as many "
        f"({least} to {most} in {spread.removeprefix(SPREAD)}) | 1 | {WHOLE} |"
    )
    yield f"| time to first token, ms, p50 / p99 | {ours[first]} | {theirs[first]} | the same |"
    yield (
        f"| the scheduler's time in its cache, us a request | {ours[spent]} | {theirs[spent]} "
        "| the same |"
    )
    yield (
        f"| hits at equal memory, of the prompt tokens | {hits[1]} | {hits[2]} | an hour of "
        "conversations, 1,000,000 tokens |"
    )
    yield (
        f"| bytes of the tree a token | {min(memory)} to {max(memory)} times as many | 1 | a pool "
        "of 1,000,000 tokens |"
    )
    yield (
        f"| the cache's own calls, requests a second | {min(times)} to {max(times)} times as many "
        "| 1 | the same hour, no model, calls timed alone |"
    )


SPREAD = "least and most of "
"""The head of a column, before its number of rounds."""
WHOLE = "a whole server on two CPU cores, tiny model, no GPU"


def old_list(measured: Mapping[str, KeptFigures]) -> Iterator[str]:
    """The figures that are not of today's code, or not all of this repository."""
    for each in measured.values():
        if each.old:
            yield f"- {each.question} {each.old}"


def _when(run: KeptRun) -> str:
    at = f", commit {run.commit[:SHOWN]}" if run.commit else ""
    return f"{run.date}{at}"


def _rounded(figure: str) -> str:
    return f"{float(figure):.2f}"


def _begun(text: str) -> str:
    return text[:1].upper() + text[1:]


def _joined(lines: Iterator[str]) -> str:
    return "\n".join(lines)
