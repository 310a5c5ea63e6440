"""`kvcanon lab bench live`: times the publisher of KV events, and those that follow it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import partial
from statistics import median
from types import ModuleType
from typing import TYPE_CHECKING, Annotated

import typer
from attrs import asdict

from kvcanon.conformance.cli.live_options import require_live
from kvcanon.conformance.cli.options import AsJson
from kvcanon.conformance.cli.terminal import ReportConsole, figures_table, print_title, progress
from kvcanon.lab.cli.bench_options import print_figures

if TYPE_CHECKING:
    from rich.table import Table

    from kvcanon.lab.bench.live_speed import LedgerMemory, MatchBeside, StreamRate

    LiveFigure = StreamRate | MatchBeside | LedgerMemory

PAGE_SIZES = (16, 64)
SMALL_BATCH_PAGE = 16
ROUNDS = 3


class LivePart(StrEnum):
    """What is measured."""

    ENCODE = "encode"
    PUBLISH = "publish"
    MATCH = "match"
    AUDIT = "audit"
    WATCH = "watch"
    MEMORY = "memory"


def bench_live(
    parts: Annotated[
        list[LivePart] | None,
        typer.Argument(metavar="[PART]...", help=f"{', '.join(LivePart)}; by default all."),
    ] = None,
    *,
    page_size: Annotated[
        list[int] | None,
        typer.Option(min=1, metavar="N", help="Tokens a page; repeatable. Usual: 16, 64."),
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=0.01, metavar="S", help="How long each rate is measured.")
    ] = 3.0,
    events: Annotated[
        int, typer.Option(min=1, metavar="N", help="Page events that are audited and watched.")
    ] = 500_000,
    rate: Annotated[
        int, typer.Option(min=1, metavar="N", help="Page events a second beside matches.")
    ] = 200_000,
    blocks: Annotated[
        int, typer.Option(min=8, metavar="N", help="Blocks that the ledger holds.")
    ] = 1_000_000,
    as_json: AsJson = False,
) -> None:
    """Time KV events: encode, publish, a match beside it, audit and watch; bytes a block."""
    require_live()
    # The extra `live` may be missing, and the other commands work without it.
    from kvcanon.lab.bench import live_speed as live  # noqa: PLC0415

    chosen = list(dict.fromkeys(parts or LivePart))
    sizes = list(dict.fromkeys(page_size or PAGE_SIZES))
    jobs: list[tuple[LivePart, Callable[[], LiveFigure]]] = []
    for part in chosen:
        for size in sizes if part not in {LivePart.MATCH, LivePart.MEMORY} else sizes[:1]:
            jobs += [
                (part, job) for job in _jobs(live, part, size, (seconds, events, rate, blocks))
            ]
    found: list[tuple[LivePart, LiveFigure]] = []
    with progress(jobs, "bench live") as shown:
        for part, job in shown:
            found.append((part, job()))
    if as_json:
        measured = {
            part.value: [asdict(figure) for of, figure in found if of is part] for part in chosen
        }
        print_figures({"measured": measured})
    else:
        _print(live, found)


def _jobs(
    live: ModuleType, part: LivePart, size: int, numbers: tuple[float, int, int, int]
) -> list[Callable[[], LiveFigure]]:
    """What is timed; the module is given, since it may not be imported before."""
    seconds, events, rate, blocks = numbers
    match part:
        case LivePart.ENCODE:
            return [partial(live.encode_rate, size, seconds)]
        case LivePart.PUBLISH:
            return [partial(live.publish_rate, size, seconds)]
        case LivePart.MATCH:
            return [partial(live.match_beside, size, seconds, rate, ROUNDS)]
        case LivePart.WATCH:
            return [partial(live.watch_rate, size, events)]
        case LivePart.MEMORY:
            return [partial(live.ledger_memory, blocks)]
        case LivePart.AUDIT:
            prompts = [live.PROMPT_TOKENS]
            if size == SMALL_BATCH_PAGE:
                prompts.append(live.SMALL_PROMPT_TOKENS)
            return [partial(live.audit_rate, size, tokens, events) for tokens in prompts]


def _print(live: ModuleType, found: Sequence[tuple[LivePart, LiveFigure]]) -> None:
    out = ReportConsole()
    print_title(out, "bench live", "page events, stores and removes of one block; one core")
    rates = [(part, each) for part, each in found if isinstance(each, live.StreamRate)]
    if rates:
        out.print(_rates(rates))
    for _, each in found:
        if isinstance(each, live.MatchBeside):
            out.print(_match_words(each), soft_wrap=True)
        elif isinstance(each, live.LedgerMemory):
            out.print(_memory_words(each), soft_wrap=True)


def _rates(found: Sequence[tuple[LivePart, StreamRate]]) -> Table:
    table = figures_table("", "page size", "a batch", "page events/s", "bytes of file each")
    for part, row in found:
        table.add_row(
            part.value,
            str(row.page_size),
            f"{row.batch_pages:,.0f}",
            f"{row.per_second:,.0f}",
            f"{row.file_bytes:.0f}" if row.file_bytes else "",
        )
    return table


def _match_words(beside: MatchBeside) -> str:
    return (
        f"match: {median(beside.without_us):.2f} us without a publisher, "
        f"{median(beside.with_us):.2f} us beside one that sends "
        f"{beside.published_per_second:,.0f} page events a second: {beside.slowed:+.1%}"
    )


def _memory_words(memory: LedgerMemory) -> str:
    return (
        f"memory: {memory.blocks:,} blocks held of {memory.stored:,} stored, "
        f"{memory.bytes_a_block[-1]:.0f} bytes a block; {max(memory.bytes_a_block):.0f} at most"
    )
