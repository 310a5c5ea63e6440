"""Watches publishers: receives, folds, records, and shows what each rank holds on a dashboard."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator

from attrs import define, field
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from kvcanon.live.follower import BookView, Follower, Streams
from kvcanon.live.frames import Source
from kvcanon.live.ledger_types import BookCounts
from kvcanon.live.stream_faults import StreamFinding
from kvcanon.live.stream_recording import StreamRecorder
from kvcanon.live.subscriber import Subscriber
from kvcanon.printable import printable

SHOWN_FINDINGS = 8
RATE_OVER_S = 5.0
_UNITS = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


@define
class StreamWatch:
    """Publishers that are watched, and what came of them so far."""

    subscriber: Subscriber
    streams: Streams
    recorder: StreamRecorder | None = None
    latest: deque[StreamFinding] = field(factory=lambda: deque(maxlen=SHOWN_FINDINGS))
    lags: dict[int, float] = field(factory=dict)
    """Seconds from a batch's time to its arrival, by publisher."""
    _readings: dict[int, deque[tuple[float, int, int]]] = field(factory=dict)
    """Time, events and pages so far, by publisher."""

    def step(self, timeout_s: float) -> list[StreamFinding]:
        """Receive and fold what is there, and return what is wrong with it."""
        found: list[StreamFinding] = []
        for arrived in self.subscriber.receive(timeout_s):
            if self.recorder is not None:
                self.recorder.write(arrived)
            found += self.streams.take(arrived)
            sent = self.streams.followers[arrived.source].counts.last_timestamp
            if sent:
                self.lags[arrived.source] = max(0.0, arrived.received - sent)
        self.latest.extend(found)
        return found

    def silent(self) -> list[Source]:
        """The publishers of which no frame came, good or malformed."""
        heard = {
            follower.source
            for follower in self.streams.followers
            if follower.counts.batches or follower.counts.malformed
        }
        return [
            source for number, source in enumerate(self.subscriber.sources) if number not in heard
        ]

    def read_rates(self) -> None:
        """Take a reading for the rates; call it about once a second."""
        now = time.monotonic()
        for follower in self.streams.followers:
            counts = follower.counts
            readings = self._readings.setdefault(follower.source, deque())
            readings.append((now, counts.events, counts.pages))
            while len(readings) > 2 and now - readings[0][0] > RATE_OVER_S:
                readings.popleft()

    def rates(self, source: int) -> tuple[float, float]:
        """Events and pages a second of a publisher, over the last seconds."""
        readings = self._readings.get(source)
        if not readings or len(readings) < 2:
            return 0.0, 0.0
        (began, *first), (ended, *last) = readings[0], readings[-1]
        seconds = max(ended - began, 1e-9)
        return (last[0] - first[0]) / seconds, (last[1] - first[1]) / seconds


def dashboard(watch: StreamWatch) -> RenderableType:
    """All that is shown at one time."""
    return Group(_streams(watch), _caches(watch), _health(watch))


def amount(number: float) -> str:
    """A number in three figures or so."""
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


def finding_line(finding: StreamFinding) -> str:
    """A finding in one line, whatever text its publisher sent."""
    return printable(f"{finding.law_id} {place_of(finding)}: {finding.what}")


def place_of(finding: StreamFinding) -> str:
    """Where a finding is, as "source 0 rank 1 group 0 batch 7 event 1"."""
    rank = f" rank {finding.rank}" if finding.rank else ""
    group = "" if finding.group is None else f" group {finding.group}"
    return f"source {finding.source}{rank}{group} batch {finding.sequence} event {finding.event}"


def _table(title: str, *headings: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0), expand=False)
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="right" if number else "left", no_wrap=True)
    return table


def _streams(watch: StreamWatch) -> Table:
    table = _table(
        "Streams", "source", "batch", "events/s", "blocks/s", "lag", "gaps", "replayed", "malformed"
    )
    for number, source in enumerate(watch.subscriber.sources):
        if number >= len(watch.streams.followers):
            table.add_row(Text(printable(f"{number} {source.endpoint}")), "waiting", *[""] * 6)
            continue
        counts = watch.streams.followers[number].counts
        events, pages = watch.rates(number)
        table.add_row(
            Text(printable(f"{number} {source.endpoint}")),
            str(counts.last_sequence),
            amount(events),
            amount(pages),
            f"{watch.lags.get(number, 0.0) * 1000:.0f} ms",
            _bad(counts.gaps, f"{counts.gaps} ({counts.lost} lost)"),
            str(counts.replayed),
            _bad(counts.malformed),
        )
    return table


def _bad(number: int, words: str | None = None) -> Text:
    text = words if words is not None and number else str(number)
    return Text(text, style="bold red" if number else "")


def _caches(watch: StreamWatch) -> Table:
    table = _table(
        "Caches", "source/rank", "medium", "blocks", "tokens", "can be hit", "came back", "seen"
    )
    for follower in watch.streams.followers:
        for book in follower.books():
            for row in _rows(follower, book):
                table.add_row(*row)
    return table


def _rows(follower: Follower, book: BookView) -> Iterator[tuple[str, ...]]:
    tokens, share = hit_potential(book.counts)
    group = f" group {book.group}" if book.group else ""
    for number, (medium, blocks) in enumerate(book.blocks().items()):
        last = (f"{amount(tokens)} tokens", f"{share:.1%}", "all" if book.complete else "in part")
        yield (
            f"{follower.source}/{book.rank}{group}" if number == 0 else "",
            printable(medium),
            amount(blocks),
            amount(blocks * book.counts["block_size"]),
            *(last if number == 0 else ("", "", "")),
        )


def _health(watch: StreamWatch) -> Panel:
    laws = watch.streams.by_law()
    if len(watch.silent()) == len(watch.subscriber.sources):
        waits = Text("Nothing came yet, so no law was checked.", style="yellow")
        return Panel(waits, title="Laws", title_align="left")
    if not watch.streams.total:
        return Panel(Text("No law is broken.", style="green"), title="Laws", title_align="left")
    counted = ", ".join(f"{law} {number}" for law, number in sorted(laws.items()))
    lines = [Text(f"{watch.streams.total} violations: {counted}", style="bold red")]
    lines += [Text(finding_line(each), overflow="fold") for each in watch.latest]
    return Panel(Group(*lines), title="Laws", title_align="left", border_style="red")
