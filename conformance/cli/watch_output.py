"""What a watch shows: a screen, lines of text or lines of JSON, and a summary at its end."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import typer
from attrs import define, field
from rich.console import Console
from rich.live import Live

from kvcanon.printable import printable

if TYPE_CHECKING:
    from kvcanon.live.stream_faults import StreamFinding
    from kvcanon.live.watch import StreamWatch

LINES_A_SECOND = 20
"""Violations that are printed in a second; the others are counted."""

# The extra may be missing, and the command line works without it: its modules are imported where
# they are used.


class WatchOutput(Protocol):
    """How a watch is shown."""

    def found(self, watch: StreamWatch, findings: Sequence[StreamFinding]) -> None:
        """Show what was found in a step."""

    def refresh(self, watch: StreamWatch) -> None:
        """Show the states of the publishers; called about twice a second."""

    def end(self, watch: StreamWatch, out: Console, /) -> None:
        """Show the result of all publishers."""


@define
class Screen:
    """A dashboard on a terminal."""

    live: Live

    def found(self, watch: StreamWatch, findings: Sequence[StreamFinding]) -> None:
        """Show nothing: the next refresh does."""

    def refresh(self, watch: StreamWatch) -> None:
        """Draw the dashboard into the height that there is."""
        from kvcanon.live.dashboard import dashboard  # noqa: PLC0415

        self.live.update(dashboard(watch, self.live.console.height), refresh=True)

    def end(self, watch: StreamWatch, out: Console) -> None:
        """Print the summary below."""
        print_summary(watch, out)


@define
class LineLimit:
    """How many lines are printed in a second."""

    _second: int = 0
    _printed: int = 0

    def take(self, findings: Sequence[StreamFinding]) -> Sequence[StreamFinding]:
        """The lines that may be printed now."""
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._printed = second, 0
        kept = findings[: max(0, LINES_A_SECOND - self._printed)]
        self._printed += len(kept)
        return kept


@define
class TextLines:
    """A line of text for each violation, and a summary."""

    _limit: LineLimit = field(factory=LineLimit)
    _problem: str | None = None

    def found(self, watch: StreamWatch, findings: Sequence[StreamFinding]) -> None:
        """Print them, with the time and the publisher."""
        from kvcanon.live.findings import finding_line, stamp  # noqa: PLC0415

        for finding in self._limit.take(findings):
            line = finding_line(finding, watch.name_of(finding))
            typer.echo(f"{stamp(time.time())} {line}")

    def refresh(self, watch: StreamWatch) -> None:
        """Say what goes wrong beside the streams."""
        if watch.problem != self._problem:
            self._problem = watch.problem
            if watch.problem is not None:
                typer.echo(f"kvcanon: {printable(watch.problem)}", err=True)

    def end(self, watch: StreamWatch, out: Console) -> None:
        """Print the summary."""
        self.refresh(watch)
        print_summary(watch, out)


@define
class JsonLines:
    """A line of JSON for each violation and each change of a publisher, and one at the end."""

    _limit: LineLimit = field(factory=LineLimit)
    _states: dict[str, str] = field(factory=dict)
    _problem: str | None = None

    def found(self, watch: StreamWatch, findings: Sequence[StreamFinding]) -> None:
        """Print them."""
        from kvcanon.live.findings import finding_fields  # noqa: PLC0415

        for finding in self._limit.take(findings):
            source = watch.subscriber.sources[finding.source]
            place = {"endpoint": source.endpoint, "topic": source.topic}
            _print("violation", **place, **finding_fields(finding))

    def refresh(self, watch: StreamWatch) -> None:
        """Print whose state has changed."""
        for number, source in enumerate(watch.subscriber.sources):
            state = str(watch.state(number))
            if self._states.get(source.name) != state:
                self._states[source.name] = state
                _print("state", endpoint=source.endpoint, topic=source.topic, state=state)
        if watch.problem != self._problem:
            self._problem = watch.problem
            _print("problem", problem=watch.problem)

    def end(self, watch: StreamWatch, _out: Console) -> None:
        """Print the result of each publisher."""
        self.refresh(watch)
        publishers = []
        for number, source in enumerate(watch.subscriber.sources):
            follower = watch.follower(number)
            told = {} if follower is None else follower.counts.as_plain()
            books = [] if follower is None else follower.books()
            held = [
                {"rank": book.rank, "group": book.group, "complete": book.complete}
                | {"kind": book.kind.name.lower(), "blocks": book.blocks()}
                for book in books
            ]
            place = {"endpoint": source.endpoint, "topic": source.topic}
            publishers.append(place | {"state": str(watch.state(number))} | told | {"books": held})
        _print("summary", violations=watch.streams.total, publishers=publishers)


def _print(kind: str, **fields: object) -> None:
    from kvcanon.live.findings import stamp  # noqa: PLC0415

    typer.echo(json.dumps({"kind": kind, "time": stamp(time.time()), **fields}))


def print_summary(watch: StreamWatch, out: Console) -> None:
    """Print the dashboard, the last wrong belief of a router, and silent publishers."""
    from kvcanon.live.dashboard import dashboard  # noqa: PLC0415

    out.print(dashboard(watch))
    for finding in list(watch.latest)[-1:]:
        out.print(printable(f"{finding.law_id}: {finding.belief}"), markup=False)
    silent = watch.silent()
    for source in silent[:LINES_A_SECOND]:
        typer.echo(
            f"nothing came from {printable(source.name)}: check the address, the topic, and "
            "that the engine publishes KV events",
            err=True,
        )
    if len(silent) > LINES_A_SECOND:
        typer.echo(f"and from {len(silent) - LINES_A_SECOND} more", err=True)
