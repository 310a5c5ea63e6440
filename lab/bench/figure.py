"""Figures of panels on logarithmic scales, drawn by matplotlib and written as SVG.

On a logarithmic scale equal distances are equal ratios. It cannot show a 0: leave it out of the
series.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from io import StringIO
from xml.etree import ElementTree as ET

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullLocator

from kvcanon.lab.bench.panels import Panel

COLORS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#000000")
"""The palette of Okabe and Ito, which color-blind readers tell apart too. It repeats after 7."""
PANELS_PER_ROW = 2
PANEL_INCHES = (6.1, 3.6)
"""Width and height."""
MARGIN_INCHES = 0.9
"""Height of the title above the panels, and of the legend below them."""
SVG = "http://www.w3.org/2000/svg"
DARK = """
@media (prefers-color-scheme: dark) {
 text, [style*="fill: #000000"] { fill: #e6ebf1 !important }
 [style*="fill: #ffffff"] { fill: #1b222b !important }
 [style*="stroke: #000000"] { stroke: #e6ebf1 !important }
 [style*="stroke: #b0b0b0"], [style*="stroke: #cccccc"] { stroke: #566373 !important }
}
"""
"""What black, white and gray are on a dark page. matplotlib writes colors into each element."""


def draw_figure(title: str, subtitle: str, panels: Sequence[Panel]) -> str:
    """Draw all panels in one figure with one legend, as SVG."""
    names = tuple(dict.fromkeys(name for panel in panels for name in panel.series))
    colors = {name: COLORS[index % len(COLORS)] for index, name in enumerate(names)}
    row_count = max(1, math.ceil(len(panels) / PANELS_PER_ROW))
    width, height = PANELS_PER_ROW * PANEL_INCHES[0], MARGIN_INCHES + row_count * PANEL_INCHES[1]
    # The same panels are the same bytes: no date, no version of matplotlib, no random ids. Text
    # stays text, so that no font of the machine gets into the file.
    with mpl.rc_context({"svg.hashsalt": "kvcanon", "svg.fonttype": "none"}):
        figure = Figure(figsize=(width, height), layout="constrained")
        figure.suptitle(f"{title}\n{subtitle}")
        for index, panel in enumerate(panels, start=1):
            axes = figure.add_subplot(row_count, PANELS_PER_ROW, index)
            axes.set_gid(f"panel-{index}")
            # Panels with the same x label share its range, so that they can be compared.
            alike = [other for other in panels if other.x_label == panel.x_label]
            _draw_panel(axes, panel, colors, [x for other in alike for x in _x_values(other)])
        handles = [Line2D([], [], color=color, marker="o") for color in colors.values()]
        figure.legend(handles, list(colors), loc="outside lower center", ncols=max(1, len(colors)))
        written = StringIO()
        figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None})
    return without_groups(written.getvalue()).replace("</style>", f"{DARK}</style>", 1)


def without_groups(drawn: str) -> str:
    """SVG without its description, and without the groups that matplotlib makes around each part.

    Panels and series keep theirs.
    """
    root = ET.fromstring(drawn)  # noqa: S314  # matplotlib has just written it.
    ET.register_namespace("", SVG)
    ET.register_namespace("xlink", "http://www.w3.org/1999/xlink")
    for parent in root.iter():
        at = 0
        while at < len(parent):
            child = parent[at]
            if child.tag == f"{{{SVG}}}metadata":
                del parent[at]
            elif child.tag == f"{{{SVG}}}g" and not child.get("id", "").startswith("panel-"):
                parent[at : at + 1] = list(child)
            else:
                if "d" in child.attrib:
                    child.set("d", " ".join(child.attrib["d"].split()))
                at += 1
    ET.indent(root, " ")
    return f"{ET.tostring(root, 'unicode')}\n"


def _draw_panel(
    axes: Axes, panel: Panel, colors: Mapping[str, str], x_values: Iterable[float]
) -> None:
    """Draw a panel whose x axis covers `x_values`."""
    axes.set_title(panel.title)
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_label)
    axes.grid(visible=True)
    axes.set_axisbelow(True)
    axes.set_xscale("log")
    axes.set_xlim(*_decades(x_values))
    _label_decades(axes.xaxis)
    if panel.rows:
        axes.set_yticks(range(len(panel.rows)), panel.rows)
        axes.set_ylim(len(panel.rows) - 0.5, -0.5)
    else:
        axes.set_yscale("log")
        axes.set_ylim(*_decades(y for points in panel.series.values() for _, y in points))
        _label_decades(axes.yaxis)
    line = "none" if panel.rows else "solid"
    for name, points in panel.series.items():
        x, y = [x for x, _ in points], [y for _, y in points]
        gid = f"{axes.get_gid()}-series-{list(colors).index(name) + 1}"
        # The ends of the curves lie on the frame, which must not clip their markers.
        axes.plot(x, y, color=colors[name], marker="o", linestyle=line, clip_on=False, gid=gid)


def _x_values(panel: Panel) -> Iterable[float]:
    return (x for points in panel.series.values() for x, _ in points)


def _decades(values: Iterable[float]) -> tuple[float, float]:
    """Return the powers of ten around some values above 0, at least one apart."""
    powers = [math.log10(value) for value in values] or [0.0]
    low, high = math.floor(min(powers)), math.ceil(max(powers))
    return 10.0**low, 10.0 ** max(high, low + 1)


def _label_decades(axis: Axis) -> None:
    """Write powers of ten as whole numbers, as in 10,000."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.12g}"))
    axis.set_minor_locator(NullLocator())
