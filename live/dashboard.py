"""The dashboard of a watch: violations first, then publishers, the worst first, as many as fit."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from kvcanon.live.findings import finding_line
from kvcanon.live.follower import Follower, FollowerCounts
from kvcanon.live.ledger_types import BookCounts
from kvcanon.live.watch import PublisherState, StreamWatch
from kvcanon.printable import printable

SHOWN_FINDINGS = 8
LINES_IN_A_PIPE = 80
FOLDING_LINES = 30
"""With so many lines a violation takes two, rather than to be cut off."""
FEWEST_ROWS = 2
_TABLE_LINES = 3
"""Of each table beside its rows: title, headings, and what is left out."""
_UNITS = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
_STYLES = {PublisherState.CUT: "bold red", PublisherState.SILENT: "yellow"}
_ORDER = list(PublisherState)


def dashboard(watch: StreamWatch, lines: int = LINES_IN_A_PIPE) -> RenderableType:
    """The whole display at one time, in at most this many lines if possible."""
    folds = lines >= FOLDING_LINES
    findings = min(SHOWN_FINDINGS, max(1, lines // (10 if folds else 5)))
    health = _health(watch, findings, folds=folds)
    left = lines - _health_lines(watch, findings, folds=folds) - 2 * _TABLE_LINES
    worst = worst_first(watch)
    streams = max(FEWEST_ROWS, min(len(worst), left // 2))
    books = max(FEWEST_ROWS, left - streams)
    return Group(health, _streams(watch, worst, streams), _caches(watch, worst, books))


def worst_first(watch: StreamWatch) -> list[int]:
    """The publishers by their numbers: those with violations first, then by their state."""

    def badness(number: int) -> tuple[int, int, float, int]:
        follower = watch.follower(number)
        broken = sum(follower.counts.by_law.values()) if follower is not None else 0
        lag = watch.lags.get(number, 0.0)
        return -broken, _ORDER.index(watch.state(number)), -lag, number

    return sorted(range(len(watch.subscriber.sources)), key=badness)


def amount(number: float) -> str:
    """A number, rounded to about three digits."""
    for size, unit in _UNITS:
        if number >= size:
            return f"{number / size:.3g}{unit}"
    return f"{number:.0f}"


def hit_potential(counts: BookCounts) -> tuple[int, float]:
    """Tokens that prompts can hit, each once whatever its media, and the share that came back.

    The share is of stored blocks that were nowhere: so many had left not long before, and would
    have been hits in a larger cache.
    """
    share = counts["came_back"] / counts["fresh"] if counts["fresh"] else 0.0
    return counts["distinct"] * counts["block_size"], share


def _health(watch: StreamWatch, findings: int, *, folds: bool) -> Panel:
    problem = [Text(printable(watch.problem), style="yellow")] if watch.problem else []
    if len(watch.silent()) == len(watch.subscriber.sources):
        waits = Text("Nothing came yet, so no law was checked.", style="yellow")
        return Panel(Group(waits, *problem), title="Laws", title_align="left")
    if not watch.streams.total:
        sound = Text("No law is broken.", style="green")
        return Panel(Group(sound, *problem), title="Laws", title_align="left")
    laws = watch.streams.by_law()
    counted = ", ".join(f"{law} {number}" for law, number in sorted(laws.items()))
    rows = [Text(f"{watch.streams.total} violations: {counted}", style="bold red")]
    for finding in list(watch.latest)[-findings:]:
        line = finding_line(finding, watch.name_of(finding))
        rows.append(Text(line, overflow="fold" if folds else "ellipsis", no_wrap=not folds))
    return Panel(Group(*rows, *problem), title="Laws", title_align="left", border_style="red")


def _health_lines(watch: StreamWatch, findings: int, *, folds: bool) -> int:
    shown = min(findings, len(watch.latest)) if watch.streams.total else 0
    return 3 + (2 if folds else 1) * shown + bool(watch.problem)


def _streams(watch: StreamWatch, worst: Sequence[int], rows: int) -> Table:
    table = _table(
        "Publishers",
        "source",
        "state",
        "last seen",
        "broken",
        "batch",
        "blocks/s",
        "lag",
        "gaps",
        "malformed",
    )
    sources = watch.subscriber.sources
    for number in worst[:rows]:
        state = watch.state(number)
        follower = watch.follower(number)
        counts = follower.counts if follower is not None else FollowerCounts()
        table.add_row(
            Text(printable(f"{number} {sources[number].name}"), overflow="ellipsis"),
            Text(state, style=_STYLES.get(state, "")),
            _ago(watch.last_received(number)),
            _bad(sum(counts.by_law.values())),
            str(counts.last_sequence) if counts.batches else "",
            amount(watch.rates(number)[1]),
            f"{watch.lags.get(number, 0.0) * 1000:.0f} ms",
            _bad(counts.gaps, f"{counts.gaps} ({counts.lost} lost)"),
            _bad(counts.malformed),
        )
    _leave_out(table, [str(watch.state(number)) for number in worst[rows:]])
    return table


def _caches(watch: StreamWatch, worst: Sequence[int], rows: int) -> Table:
    table = _table(
        "Caches", "source/rank", "tier", "blocks", "tokens", "can be hit", "came back", "seen"
    )
    followers = [each for each in map(watch.follower, worst) if each is not None]
    listed = [row for follower in followers for row in _rows(follower)]
    for row in listed[:rows]:
        table.add_row(*row)
    _leave_out(table, ["rows"] * len(listed[rows:]))
    return table


def _rows(follower: Follower) -> Iterator[tuple[str, ...]]:
    for book in follower.books():
        tokens, share = hit_potential(book.counts)
        name = " ".join(filter(None, (f"{follower.source}/{book.rank}", book.group_words)))
        seen = "all" if book.complete else "in part"
        last = (f"{amount(tokens)} tokens", f"{share:.1%}", seen)
        for number, (tier, blocks) in enumerate(book.blocks().items()):
            yield (
                name if number == 0 else "",
                printable(tier),
                amount(blocks),
                amount(blocks * book.counts["block_size"]),
                *(last if number == 0 else ("", "", "")),
            )


def _leave_out(table: Table, kinds: Sequence[str]) -> None:
    """Say what there is beside the rows that are shown."""
    if kinds:
        counted = ", ".join(f"{number} {kind}" for kind, number in Counter(kinds).most_common())
        table.add_row(Text(f"and {counted} more", style="dim"))


def _ago(received: float | None) -> str:
    """How long ago, in words of a few letters."""
    if received is None:
        return "never"
    seconds = max(0.0, time.time() - received)
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"


def _bad(number: int, words: str | None = None) -> Text:
    text = words if words is not None and number else str(number)
    return Text(text, style="bold red" if number else "")


def _table(title: str, *headings: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0), expand=False)
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="right" if number else "left", no_wrap=True)
    return table
