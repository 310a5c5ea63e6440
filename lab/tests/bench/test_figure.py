"""The figure of a contest: its panels, and the SVG that matplotlib draws of them."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

from kvcanon.conformance.replay.latency import Latency
from kvcanon.lab.bench.case import BenchCell
from kvcanon.lab.bench.contest import ContestOutcome, Result
from kvcanon.lab.bench.figure import COLORS, DARK, draw_figure
from kvcanon.lab.bench.panels import Panel, contest_panels
from kvcanon.lab.bench.throughput import Throughput
from paths import DOCS

FIGURES = sorted((DOCS / "figures").glob("bench_tree*.svg"))
PREFIX = "{http://www.w3.org/2000/svg}"
PANELS = (
    Panel("lines", "pages", "us", {"a < b": [(1.0, 2.0), (1000.0, 20.0)], "c & d": [(1.0, 3.0)]}),
    Panel("rows", "requests", "", {"c & d": [(5.0, 0.0), (50.0, 1.0)]}, rows=["page 1", "page 16"]),
)


def svg(panels: tuple[Panel, ...] = PANELS) -> ET.Element:
    """Return the elements of the drawn figure."""
    return ET.fromstring(draw_figure("caches", "a trace", panels))  # noqa: S314 # Ours.


def test_each_series_has_one_color_in_all_panels() -> None:
    """A cache keeps its color from panel to panel, and its name may hold any character."""
    colors: dict[str, set[str]] = {}
    for group in svg().iter(f"{PREFIX}g"):
        if "-series-" in (name := group.get("id", "")):
            styles = " ".join(each.get("style", "") for each in group.iter())
            colors[name] = set(re.findall(r"#[0-9a-f]{6}", styles))
    assert colors == {
        "panel-1-series-1": {COLORS[0]},
        "panel-1-series-2": {COLORS[1]},
        "panel-2-series-2": {COLORS[1]},
    }


def test_titles_axes_rows_and_legend_are_text() -> None:
    """Every word and every power of ten is in the file as text."""
    texts = {"".join(each.itertext()).strip() for each in svg().iter(f"{PREFIX}text")}
    assert {"caches", "a trace", "lines", "rows", "pages", "us", "requests"} <= texts
    assert {"page 1", "page 16", "a < b", "c & d", "1", "10", "100", "1,000"} <= texts


def test_the_same_panels_are_the_same_bytes() -> None:
    """A figure that is drawn twice gives equal files, without date and version."""
    drawn = draw_figure("caches", "a trace", PANELS)
    assert drawn == draw_figure("caches", "a trace", PANELS)
    assert "date" not in drawn
    assert "matplotlib.org" not in drawn


def test_every_neutral_color_has_a_dark_one() -> None:
    """What is no series follows the reader's colors; the figures of the docs do, too."""
    styles = " ".join(each.get("style", "") for each in svg().iter())
    neutral = set(re.findall(r"(?:fill|stroke): #[0-9a-f]{6}", styles))
    neutral -= {f"{part}: {color}" for color in COLORS[:-1] for part in ("fill", "stroke")}
    assert neutral
    assert [each for each in sorted(neutral) if f'"{each}"' not in DARK] == []
    for figure in (draw_figure("caches", "a trace", PANELS), *map(Path.read_text, FIGURES)):
        assert figure.count(DARK) == 1
    assert len(FIGURES) == 3


def test_a_figure_of_nothing_is_drawn() -> None:
    """A contest without measurements gives an empty figure."""
    assert svg(()).tag == f"{PREFIX}svg"


def test_panels_have_a_row_for_each_page_size() -> None:
    """Results of one kind of cache share a panel, and a cache that served nothing has no point."""
    steps = {"insert": Latency(100, 1.0, 3.0, 9.0, 10.0, 11.0)}
    served = Throughput("core", 100, 100, 1000, 500, 0, 0, 0.5, 0, steps=steps)
    nothing = Throughput("core", 0, 100, 0, 0, 0, 0, 0.5, 0, steps=steps)
    cells = {
        BenchCell(page_size=1, pool_tokens=64): [Result("optimized", (served,))],
        BenchCell(page_size=16, pool_tokens=64): [
            Result("optimized", (served,)),
            Result("reference", (nothing,)),
        ],
    }
    (panel,) = contest_panels(ContestOutcome(cells, {}, {}, {}))
    assert panel.rows == ["page 1", "page 16"]
    assert panel.series == {"optimized": [(100.0, 0.0), (100.0, 1.0)]}
