"""`kvcanon lab bench judge`: times the judge, and shows where the time goes.

A step is one operation of the cache and all law checks after it.
"""

from __future__ import annotations

from typing import Annotated

import typer
from attrs import asdict, frozen

from kvcanon.conformance.cli.options import AsJson
from kvcanon.conformance.cli.terminal import ReportConsole, figures_table, print_title, progress
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.judge import JudgeConfig
from kvcanon.conformance.protocol.adapter import Adapter, Subject, Unoffered, lacks_of, make_subject
from kvcanon.conformance.protocol.cache_names import load_adapter
from kvcanon.conformance.protocol.drawn_config import usual_config
from kvcanon.lab.bench.judge_speed import (
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
from kvcanon.lab.cli.bench_options import CacheName, print_figures

LEVELS: dict[str, JudgeConfig] = {"inside": INSIDE, "thorough": THOROUGH, "outside": OUTSIDE}
"""`inside` checks states, by the laws that a step may have broken; `thorough` checks every law on
everything, for comparison; `outside` checks answers and events only."""


@frozen
class JudgeRate:
    """The measurements of one way to judge."""

    rate: Rate
    shares: dict[str, float]
    costs: tuple[Cost, ...]

    def to_json(self) -> dict[str, object]:
        """The measurements as a value for JSON."""
        return {
            **asdict(self.rate),
            "steps_per_second": self.rate.per_second,
            "shares": self.shares,
            "costs": [asdict(cost) for cost in self.costs],
            "growth": growth(self.costs),
        }


def bench_judge(
    cache: CacheName = "reference",
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
    adapter = load_adapter(cache)
    lacks = lacks_of(_made(adapter))
    if lacks:
        raise UsageError(
            f"{cache} lacks {', '.join(lacks)}; the judge is timed on a cache with all methods"
        )
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
        print_figures({"cache": cache, "levels": levels})
    else:
        _print_tables(cache, measured)


def _made(adapter: Adapter) -> Subject:
    """Make a cache with the usual configuration. Raises: UsageError."""
    try:
        return make_subject(adapter, usual_config())
    except Unoffered as refusal:
        raise UsageError(str(refusal)) from refusal


def _print_tables(cache: str, measured: dict[str, JudgeRate]) -> None:
    out = ReportConsole()
    print_title(out, f"bench judge {cache}", "on one core")
    parts = next(iter(measured.values())).shares
    table = figures_table("judged from", "steps/s", *parts)
    for name, level in measured.items():
        percents = (f"{share:.0%}" for share in level.shares.values())
        table.add_row(name, f"{level.rate.per_second:,.0f}", *percents)
    out.print(table)
    out.print()
    sizes = next(iter(measured.values())).costs
    table = figures_table(
        "us a step", *(f"{cost.nodes:,.0f} nodes" for cost in sizes), "grows with"
    )
    for name, level in measured.items():
        costs = (f"{cost.us_per_step:,.0f}" for cost in level.costs)
        table.add_row(name, *costs, f"nodes^{growth(level.costs):.2f}")
    out.print(table)
