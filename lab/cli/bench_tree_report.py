"""The report of `bench tree`, as text.

In tables of requests a ratio above 1 means that the first cache is better than the one in the row.
In the table of full hits it is the time of the cache over that of memcmp.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.table import Table

from kvcanon.conformance.cli.terminal import ReportConsole, figures_table, print_title
from kvcanon.lab.bench.case import RequestStep
from kvcanon.lab.bench.contest import CURVES, ContestOutcome, ContestPlan, Result
from kvcanon.lab.bench.contestants import Field
from kvcanon.lab.bench.floor import FullHit
from kvcanon.lab.bench.growth import Point

MIB = 2**20


def print_report(
    out: ReportConsole, workload: str, plan: ContestPlan, entrants: Field, outcome: ContestOutcome
) -> None:
    """Print the report."""
    print_title(out, "bench tree", workload)
    for cell, results in outcome.cells.items():
        out.print()
        out.print(f"{cell}", style="bold")
        out.print(_cell_table(results))
        if cell.events:
            shares = (f"{each.contestant} {_share(each):.2f}" for each in results)
            out.print(f"Of SHA-256 alone: {', '.join(shares)}")
        out.print(_call_table(results))
    for (nodes, cell), results in outcome.tails.items():
        out.print()
        out.print(f"Tree of {nodes:,} nodes, {cell}", style="bold")
        out.print(_call_table(results))
    if outcome.full_hits:
        out.print()
        out.print(f"Full hit of a long prompt, page {CURVES.page_size}, p50 us", style="bold")
        out.print(_full_hit_table(outcome.full_hits))
    for curves, what in ((outcome.with_tree, "pages"), (outcome.with_prompt, "tokens")):
        if curves:
            out.print()
            out.print(_curve_title(what), style="bold")
            out.print(_curve_table(curves))
    out.print()
    for line in _notes(plan, entrants, outcome):
        out.print(line, style="dim")


def _cell_table(results: Sequence[Result]) -> Table:
    table = figures_table(
        *("cache", "req/s", "x", "hit rate", "loaded", "match us", "insert us", "x"),
        *("MiB", "x", "of MiB"),
    )
    first = results[0]
    for each in results:
        table.add_row(
            each.contestant,
            f"{each.requests_per_second:,.0f}{'' if each.complete else '*'}",
            _ratio(first.requests_per_second, each.requests_per_second),
            f"{each.hit_rate:.4f}",
            f"{each.of(lambda run: run.loaded_rate):.4f}",
            _pair(each, "match"),
            _pair(each, "insert"),
            _ratio(each.p99_us("insert"), first.p99_us("insert")),
            f"{each.cache_bytes / MIB:,.0f}",
            _ratio(each.cache_bytes, first.cache_bytes),
            f"{each.of(lambda run: run.peak_bytes) / MIB:,.0f}",
        )
    return table


def _call_table(results: Sequence[Result]) -> Table:
    """The slowest calls of each step, and how many times slower those of the other caches are."""
    table = figures_table("call", "cache", "p50 us", "p99", "p99.9", "x", "max")
    first = results[0]
    for step in RequestStep:
        for each in results:
            p999 = each.p999_us(step)
            if p999 is not None:
                table.add_row(
                    step,
                    each.contestant,
                    *(f"{value:,.1f}" for value in (each.p50_us(step), each.p99_us(step), p999)),
                    _ratio(p999, first.p999_us(step)),
                    f"{each.max_us(step):,.1f}",
                )
    return table


def _full_hit_table(hits: Mapping[str, FullHit]) -> Table:
    table = figures_table("cache", "tokens", "hot", "memcmp", "x", "cold", "memcmp", "x")
    for name, hit in hits.items():
        hot, floor_hot = hit.hot.p50_us, hit.floor_hot.p50_us
        cold, floor_cold = hit.cold.p50_us, hit.floor_cold.p50_us
        table.add_row(
            name,
            f"{hit.prompt_tokens:,}",
            *(f"{hot:,.1f}", f"{floor_hot:,.1f}", _ratio(hot, floor_hot)),
            *(f"{cold:,.1f}", f"{floor_cold:,.1f}", _ratio(cold, floor_cold)),
        )
    return table


def _curve_title(what: str) -> str:
    of = "tree, by its pages" if what == "pages" else "prompt, by its tokens"
    return f"Growth with the {of}: match / insert p50 us, page {CURVES.page_size}"


def _curve_table(curves: Mapping[str, Sequence[Point]]) -> Table:
    sizes = [point.size for point in next(iter(curves.values()))]
    table = figures_table("cache", *(f"{size:,}" for size in sizes))
    for name, points in curves.items():
        cells = (f"{point.match.p50_us:,.1f} / {point.insert.p50_us:,.1f}" for point in points)
        table.add_row(name, *cells)
    return table


def _notes(plan: ContestPlan, entrants: Field, outcome: ContestOutcome) -> list[str]:
    notes = []
    if outcome.cells or outcome.tails:
        first = entrants.contestants[0].name
        measured = [*outcome.cells.values(), *outcome.tails.values()]
        loads = [run.load for cell in measured for each in cell for run in each.runs]
        began = f"Load when the runs began: {min(loads):.1f} to {max(loads):.1f}."
        notes += [
            f"Medians of {plan.rounds} rounds; times are p50 / p99 of the calls. {began}",
            f"x: {first} serves x times the requests, or takes 1/x of the time or memory.",
            "MiB: the most memory that the cache added to its process.",
            *(
                ["SHA-256 alone: one core that does nothing but hash the same pages."]
                if any(cell.events for cell in outcome.cells)
                else []
            ),
            "loaded: the part of the hits that came from the host, of all prompt tokens.",
        ]
        if any(not each.complete for cell in measured for each in cell):
            notes.append(f"*: only requests that began within {plan.seconds:g} seconds.")
        if any(each.name == "vllm" for each in entrants.contestants):
            notes.append("vllm evicts, allocates and inserts in one call, timed as the insert.")
    for release, stubbed in entrants.stubbed().items():
        notes.append(f"{release} ran with stand-ins for {', '.join(stubbed)}.")
    notes += [f"Left out: {name}: {why}." for name, why in entrants.missing.items()]
    return notes


def _share(result: Result) -> float:
    return result.of(lambda run: run.hash_share)


def _pair(result: Result, step: str) -> str:
    p50, p99 = result.p50_us(step), result.p99_us(step)
    return "-" if p50 is None or p99 is None else f"{p50:,.1f} / {p99:,.0f}"


def _ratio(one: float | None, other: float | None) -> str:
    return f"{one / other:.2f}" if one is not None and other else "-"
