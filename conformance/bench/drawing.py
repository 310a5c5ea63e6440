"""Charts as SVG, of points and lines on logarithmic scales.

What readers get wrong: on a logarithmic scale equal distances are equal ratios. A value of 0 has no
place on it, and is left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from xml.sax.saxutils import escape, quoteattr

from attrs import frozen

COLORS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#000000")
"""Of Okabe and Ito, told apart by almost all eyes. A figure with more series repeats them."""
INK, GRID = "#333333", "#dddddd"
WIDTH, HEIGHT = 440, 260
"""Of a panel, in pixels."""
LEFT, RIGHT, TOP, BOTTOM = 78, 16, 34, 42
"""Margins around the plot of a panel."""
HEAD = 64
"""Height of what stands above the panels."""
ACROSS = 2
"""Panels beside each other."""


@frozen
class Scale:
    """Where a value lies between two pixels; from one power of ten to another."""

    low: int
    high: int
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """The pixel of a value above 0."""
        share = (math.log10(value) - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self) -> Iterator[tuple[float, str]]:
        """The powers of ten, and how each is written."""
        for power in range(self.low, self.high + 1):
            yield self(10.0**power), f"{10**power:,}" if power >= 0 else f"{10.0**power:g}"


@frozen
class Panel:
    """A chart: points of each series, over numbers or over names."""

    title: str
    horizontal: str
    """What the horizontal axis is of."""
    vertical: str
    series: Mapping[str, Sequence[tuple[float, float]]]
    """By name: places on both axes."""
    names: Sequence[str] = ()
    """Where the vertical axis is of names: place 0, 1, and so on, from the top."""


def figure(title: str, subtitle: str, panels: Sequence[Panel]) -> str:
    """All panels in one figure, with one legend."""
    shown = tuple(dict.fromkeys(name for panel in panels for name in panel.series))
    colors = {name: COLORS[index % len(COLORS)] for index, name in enumerate(shown)}
    rows = -(-len(panels) // ACROSS)
    width, height = ACROSS * WIDTH, HEAD + rows * HEIGHT
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    font = f'font-family="sans-serif" font-size="11" fill="{INK}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {font}>',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        _text(16, 20, title, "font-size='14' font-weight='bold'"),
        _text(16, 36, subtitle),
        *_legend(colors),
    ]
    for index, panel in enumerate(panels):
        left, top = index % ACROSS * WIDTH, HEAD + index // ACROSS * HEIGHT
        parts.append(f'<g transform="translate({left},{top})">')
        # What is written under two panels alike is drawn alike, to be compared across them.
        alike = [other for other in panels if other.horizontal == panel.horizontal]
        parts.extend(_panel(panel, colors, [x for other in alike for x in _places(other)]))
        parts.append("</g>")
    return "\n".join([*parts, "</svg>", ""])


def _places(panel: Panel) -> Iterator[float]:
    return (x for series in panel.series.values() for x, _ in series)


def _panel(panel: Panel, colors: Mapping[str, str], places: Sequence[float]) -> Iterator[str]:
    """A chart, on a horizontal axis that has all of these places."""
    across = _scale(places, LEFT, WIDTH - RIGHT)
    bottom, top = float(HEIGHT - BOTTOM), float(TOP)
    yield _text(LEFT, 18, panel.title, "font-weight='bold'")
    for x, label in across.ticks():
        yield _line(x, top, x, bottom)
        yield _text(x, bottom + 14, label, "text-anchor='middle'")
    middle = (LEFT + WIDTH - RIGHT) / 2
    yield _text(middle, HEIGHT - 10, panel.horizontal, "text-anchor='middle'")
    if panel.names:
        step = (bottom - top) / len(panel.names)
        for index, label in enumerate(panel.names):
            y = top + (index + 0.5) * step
            yield _line(LEFT, y, WIDTH - RIGHT, y)
            yield _text(LEFT - 6, y + 4, label, "text-anchor='end'")
        for name, series in panel.series.items():
            for x, place in series:
                yield _dot(across(x), top + (place + 0.5) * step, colors[name], f"{name}: {x:,.4g}")
        return
    heights = [y for series in panel.series.values() for _, y in series]
    along = _scale(heights, bottom, top)
    for y, label in along.ticks():
        yield _line(LEFT, y, WIDTH - RIGHT, y)
        yield _text(LEFT - 6, y + 4, label, "text-anchor='end'")
    turned = f"text-anchor='middle' transform='rotate(-90 14 {(top + bottom) / 2:g})'"
    yield _text(14, (top + bottom) / 2, panel.vertical, turned)
    for name, series in panel.series.items():
        drawn = [(across(x), along(y)) for x, y in series]
        joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in drawn)
        yield f'<polyline points="{joined}" fill="none" stroke="{colors[name]}" stroke-width="2"/>'
        for (x, y), (size, value) in zip(drawn, series, strict=True):
            yield _dot(x, y, colors[name], f"{name}, {size:,g}: {value:,.4g}")


def _scale(values: Sequence[float], start: float, end: float) -> Scale:
    low = math.floor(math.log10(min(values, default=1)))
    high = math.ceil(math.log10(max(values, default=10)))
    return Scale(low, max(high, low + 1), start, end)


def _legend(colors: Mapping[str, str]) -> Iterator[str]:
    x = 16.0
    for name, color in colors.items():
        yield f'<circle cx="{x + 4:g}" cy="52" r="4.5" fill="{color}"/>'
        yield _text(x + 14, 56, name)
        x += 32 + 6.5 * len(name)


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" stroke="{GRID}"/>'


def _dot(x: float, y: float, color: str, told: str) -> str:
    title = f"<title>{escape(told)}</title>"
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill={quoteattr(color)}>{title}</circle>'


def _text(x: float, y: float, text: str, attributes: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" {attributes}>{escape(text)}</text>'
