"""The figure of a contest.

What readers get wrong: in the panels of requests further right is faster, in those of growth lower
is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kvcanon.conformance.bench.case import BenchCell
from kvcanon.conformance.bench.contest import CURVES, ContestOutcome, Result
from kvcanon.conformance.bench.drawing import Panel, figure
from kvcanon.conformance.bench.growth import Point


def plot(outcome: ContestOutcome, subtitle: str) -> str:
    """The figure, as SVG."""
    return figure("Prefix caches, side by side", subtitle, [*_speed(outcome), *_growth(outcome)])


def _speed(outcome: ContestOutcome) -> list[Panel]:
    """Requests a second: a panel for each kind of cache, a line in it for each page size."""
    kinds: dict[tuple[str, bool], dict[BenchCell, list[Result]]] = {}
    for cell, results in outcome.cells.items():
        kinds.setdefault((cell.components, cell.events), {})[cell] = results
    return [
        Panel(
            title=f"{components}, events {'on' if events else 'off'}",
            horizontal="requests per second of cache time",
            vertical="",
            series=_rates(list(cells.values())),
            names=[f"page {cell.page_size}" for cell in cells],
        )
        for (components, events), cells in kinds.items()
    ]


def _rates(cells: Sequence[Sequence[Result]]) -> dict[str, list[tuple[float, float]]]:
    series: dict[str, list[tuple[float, float]]] = {}
    for place, results in enumerate(cells):
        for result in results:
            if result.requests_per_second:
                point = (result.requests_per_second, float(place))
                series.setdefault(result.contestant, []).append(point)
    return series


def _growth(outcome: ContestOutcome) -> list[Panel]:
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
        Panel(title, horizontal, vertical, _curve(points, figure_of))
        for title, horizontal, vertical, points, figure_of in curves
        if points
    ]


def _curve(
    points: Mapping[str, Sequence[Point]], figure_of: Callable[[Point], float]
) -> dict[str, list[tuple[float, float]]]:
    return {
        name: [(float(point.size), figure_of(point)) for point in series if figure_of(point) > 0]
        for name, series in points.items()
    }
