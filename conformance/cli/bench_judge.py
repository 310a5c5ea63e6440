"""`kvcanon bench judge`: how fast a cache is judged, and where the time goes.

What readers get wrong: a step is an operation of the cache, with all that is asked about it. How
many cases a check plays in a minute depends on how long they are.
"""

from __future__ import annotations

from typing import Annotated

import typer
from attrs import asdict, frozen
from rich.table import Table
from rich.text import Text

from kvcanon import __version__
from kvcanon.conformance.bench.judge_speed import (
    INSIDE,
    NODES,
    OUTSIDE,
    THOROUGH,
    Cost,
    Rate,
    cost_at,
    growth,
    rate,
    shares,
)
from kvcanon.conformance.cli.caches import make_cache
from kvcanon.conformance.cli.options import AsJson
from kvcanon.conformance.cli.terminal import ReportConsole, print_json, progress
from kvcanon.conformance.protocol.configs import usual_config
from kvcanon.conformance.protocol.loading import load_adapter
from kvcanon.conformance.search.play import JudgeConfig

LEVELS: dict[str, JudgeConfig] = {"inside": INSIDE, "thorough": THOROUGH, "outside": OUTSIDE}
"""By states, with the laws that a step may have broken; with every law about everything, for
comparison; and by answers and events only."""


@frozen
class JudgeRate:
    """What was measured of one way to judge."""

    rate: Rate
    shares: dict[str, float]
    costs: tuple[Cost, ...]

    def to_json(self) -> dict[str, object]:
        """All of it, as values that JSON has."""
        return {
            **asdict(self.rate),
            "steps_per_second": self.rate.per_second,
            "shares": self.shares,
            "costs": [asdict(cost) for cost in self.costs],
            "growth": growth(self.costs),
        }


def bench_judge(
    cache: Annotated[
        str, typer.Argument(metavar="[CACHE]", help="reference, or package.module:factory.")
    ] = "reference",
    *,
    seconds: Annotated[
        float, typer.Option(min=0, metavar="S", help="How long each rate is measured.")
    ] = 5.0,
    nodes: Annotated[
        list[int] | None,
        typer.Option(min=1, metavar="N", help="Sizes of the trees to measure on; repeatable."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Time the judge on the usual configuration: steps a second, shares, and larger trees."""
    make_cache(cache, usual_config())
    adapter = load_adapter(cache)
    sizes = nodes or list(NODES)
    if len(set(sizes)) < 2:
        raise typer.BadParameter("one size shows no growth; give two.", param_hint="'--nodes'")
    measured: dict[str, JudgeRate] = {}
    with progress(list(LEVELS), f"bench judge {cache}") as shown:
        for name in shown:
            judges = LEVELS[name]
            measured[name] = JudgeRate(
                rate(adapter, judges, seconds),
                shares(adapter, judges, seconds),
                tuple(cost_at(adapter, judges, size) for size in sizes),
            )
    if as_json:
        levels = {name: level.to_json() for name, level in measured.items()}
        print_json({"kvcanon": __version__, "cache": cache, "levels": levels})
    else:
        _print_tables(cache, measured)


def _print_tables(cache: str, measured: dict[str, JudgeRate]) -> None:
    out = ReportConsole()
    out.print(Text.assemble((f"bench judge {cache}", "bold cyan"), "  on one core"))
    parts = next(iter(measured.values())).shares
    table = _table("judged from", "steps/s", *parts)
    for name, level in measured.items():
        percents = (f"{share:.0%}" for share in level.shares.values())
        table.add_row(name, f"{level.rate.per_second:,.0f}", *percents)
    out.print(table)
    out.print()
    sizes = next(iter(measured.values())).costs
    table = _table("us a step", *(f"{cost.nodes:,.0f} nodes" for cost in sizes), "grows with")
    for name, level in measured.items():
        costs = (f"{cost.us_per_step:,.0f}" for cost in level.costs)
        table.add_row(name, *costs, f"nodes^{growth(level.costs):.2f}")
    out.print(table)


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column(first, no_wrap=True)
    for heading in others:
        table.add_column(heading, justify="right", no_wrap=True)
    return table
