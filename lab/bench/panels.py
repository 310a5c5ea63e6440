"""The panels of a contest's figure: what each one shows, as plain numbers.

In panels of requests per second, further right is faster; in panels of growth, lower is faster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from attrs import frozen

from kvcanon.lab.bench.case import BenchCell
from kvcanon.lab.bench.contest import CURVES, ContestOutcome, Result
from kvcanon.lab.bench.growth import Point


@frozen
class Panel:
    """A chart: the points of each series, over numbers or over row names."""

    title: str
    x_label: str
    y_label: str
    series: Mapping[str, Sequence[tuple[float, float]]]
    """Points as x and y, by the name of the series."""
    rows: Sequence[str] = ()
    """Names of the rows from the top, where y is the number of a row and not a value."""


def contest_panels(outcome: ContestOutcome) -> list[Panel]:
    """Return a panel for each kind of cache, and one for each curve of growth."""
    return [*_rate_panels(outcome), *_growth_panels(outcome)]


def _rate_panels(outcome: ContestOutcome) -> list[Panel]:
    """Requests per second: a panel for each kind of cache, with a row for each page size."""
    kinds: dict[tuple[str, bool], dict[BenchCell, list[Result]]] = {}
    for cell, results in outcome.cells.items():
        kinds.setdefault((cell.components, cell.events), {})[cell] = results
    return [
        Panel(
            title=f"{components}, events {'on' if events else 'off'}",
            x_label="requests per second of cache time",
            y_label="",
            series=_rates(list(cells.values())),
            rows=[f"page {cell.page_size}" for cell in cells],
        )
        for (components, events), cells in kinds.items()
    ]


def _rates(cells: Sequence[Sequence[Result]]) -> dict[str, list[tuple[float, float]]]:
    series: dict[str, list[tuple[float, float]]] = {}
    for row, results in enumerate(cells):
        for result in results:
            if result.requests_per_second:
                point = (result.requests_per_second, float(row))
                series.setdefault(result.contestant, []).append(point)
    return series


def _growth_panels(outcome: ContestOutcome) -> list[Panel]:
    tree, prompt = outcome.with_tree, outcome.with_prompt
    pages, tokens = "pages in the tree", "tokens of the prompt"
    page = f"pages of {CURVES.page_size}"
    curves = (
        (f"full hit of 64 {page}, p50", pages, "us", tree, lambda point: point.match.p50_us),
        (f"insert of 32 or 64 {page}, p50", pages, "us", tree, lambda point: point.insert.p50_us),
        ("memory of the cache", pages, "MiB", tree, lambda point: point.cache_bytes / 2**20),
        (f"full hit, {page}, p50", tokens, "us", prompt, lambda point: point.match.p50_us),
        (f"insert, {page}, p50", tokens, "us", prompt, lambda point: point.insert.p50_us),
    )
    return [
        Panel(title, x_label, y_label, _curves(points, value_of))
        for title, x_label, y_label, points, value_of in curves
        if points
    ]


def _curves(
    points: Mapping[str, Sequence[Point]], value_of: Callable[[Point], float]
) -> dict[str, list[tuple[float, float]]]:
    return {
        name: [(float(point.size), value_of(point)) for point in series if value_of(point) > 0]
        for name, series in points.items()
    }
