"""Figures: each page has those of the files in lab/bench/measured, and no others."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from kvcanon.conformance.check.plan import EFFORTS
from kvcanon.conformance.errors import UsageError
from kvcanon.lab.site.measured import (
    FOLDER,
    PAGES,
    KeptFigures,
    felt_table,
    measured_table,
    page_with_figures,
    read_measured,
)
from paths import ROOT

PLACE = re.compile(r"<!-- measured: \w+ -->.*?<!-- end -->", re.DOTALL)
COUNTED = ("| effort ", "| quick |", "| standard |", "| deep |")
"""Rows of tables that other commands count, which have tests of their own."""


@pytest.mark.parametrize("page", PAGES)
def test_page_has_the_figures_of_today(page: str) -> None:
    """A page has the tables that the files give now."""
    assert page_with_figures(page, ROOT) == (ROOT / page).read_text("utf-8"), (
        "run `python -m kvcanon.lab.site --measured`"
    )


def test_every_file_is_shown_and_complete() -> None:
    """Each question has a command, a machine, and what its figures are; a page has its table."""
    pages = "".join((ROOT / page).read_text("utf-8") for page in PAGES)
    shown = set(re.findall(r"<!-- measured: (\w+) -->", pages))
    assert shown == {*read_measured(ROOT), "felt", "old"}
    for each in read_measured(ROOT).values():
        assert each.question.endswith("?")
        assert shlex.split(each.command)[0] in {"kvcanon", "make", "python"}
        assert each.machine
        assert each.figures_are
        assert each.rows


def test_page_of_figures_has_no_other_table() -> None:
    """Every table of performance.md is of a file, but for what other commands count."""
    performance = PLACE.sub("", (ROOT / "docs/performance.md").read_text("utf-8"))
    rows = [line for line in performance.splitlines() if line.startswith("|")]
    assert [row for row in rows if not row.startswith((*COUNTED, "|---"))] == []


def test_page_of_figures_has_the_efforts_of_a_check() -> None:
    """The table of efforts says the numbers of cases and the limits of today."""
    page = (ROOT / "docs/performance.md").read_text("utf-8")
    for effort in EFFORTS.values():
        counts = (
            *(effort.walker_cases, effort.machine_cases),
            *(effort.ranks_cases, effort.store_cases),
        )
        cells = (f"{each:,} a cache" if each else "until the time is over" for each in counts)
        minutes, seconds = divmod(effort.seconds, 60)
        limit = f"{minutes:.0f} min" + (f" {seconds:.0f} s" if seconds else "")
        if effort.is_open:
            limit = f"`--minutes`, usually {minutes:.0f}"
        assert f"| {effort.name} | {' | '.join(cells)} | {limit} |" in page


def test_table_says_where_and_of_what() -> None:
    """Below a table stand its machine, what its figures are, and why it is old."""
    one = KeptFigures(
        "x", "So?", "kvcanon x", "a core", "medians", "Old.", ("", "a"), (("r", "1"),)
    )
    assert list(measured_table(one)) == [
        "|  | a |", "|---|---|", "| r | 1 |", "", "*A core; medians. Old.*"
    ]  # fmt: skip
    assert one.cell("r", "a") == "1"
    with pytest.raises(UsageError, match="no figure 'r', 'b'"):
        one.cell("r", "b")


def test_what_a_user_feels_follows_the_files() -> None:
    """The first table of three pages has the figures of the files of its parts."""
    measured = read_measured(ROOT)
    table = "\n".join(felt_table(measured))
    ratio = float(measured["server"].cell("SGLang 0.5.23, Rust core", "kvcanon's, times these"))
    assert f"| {ratio:.2f} times as many" in table
    assert measured["server"].cell("kvcanon", "first token, ms: p50 / p99") in table


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("<!-- measured: nowhere -->\n<!-- end -->", "has a table nowhere"),
        ("", "has a row that is not as long as its heads"),
    ],
)
def test_bad_figures_are_refused(tmp_path: Path, text: str, says: str) -> None:
    """A table without a file, and a row that lacks a cell, are said in a line."""
    (tmp_path / FOLDER).mkdir(parents=True)
    (tmp_path / "page.md").write_text(text)
    if not text:
        value = json.loads((ROOT / FOLDER / "server.json").read_text("utf-8"))
        value["rows"][0].pop()
        (tmp_path / FOLDER / "server.json").write_text(json.dumps(value))
    with pytest.raises(UsageError, match=says):
        page_with_figures("page.md", tmp_path)
