"""Figures: each page has those of the files in lab/bench/measured, and no others."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

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

FIGURE = re.compile(
    r"(?<![\w.-])\d[\d,.]*(?: times\b| ?%| (?:us|ms|GB/s|MiB)\b)|(?<![\w.])[01]?\.\d{2,}(?![\w.])"
)
"""A measured figure in prose: a ratio, a share, a time, a speed or a size."""
PLACE = re.compile(r"<!-- measured: \w+ -->.*?<!-- end -->", re.DOTALL)
COUNTED = ("| the six alone", "| and ", "| effort ", "| quick |", "| standard |", "| deep |")
"""Rows of tables that other commands count, which have tests of their own."""


@pytest.mark.parametrize("page", PAGES)
def test_page_has_the_figures_of_today(page: str) -> None:
    """A page has the tables that the files give now."""
    assert page_with_figures(page, ROOT) == (ROOT / page).read_text("utf-8"), (
        "run `python -m kvcanon.lab.site --measured`"
    )


def test_every_file_is_shown_and_complete() -> None:
    """Each question has a command, a machine, and what its figures are; performance.md has it."""
    shown = set(re.findall(r"<!-- measured: (\w+) -->", (ROOT / PAGES[1]).read_text("utf-8")))
    assert shown == {*read_measured(ROOT), "felt", "old"}
    for each in read_measured(ROOT).values():
        assert each.question.endswith("?")
        assert shlex.split(each.command)[0] in {"kvcanon", "make"}
        assert each.machine
        assert each.figures_are
        assert each.rows


def test_page_of_figures_has_no_other_table_and_the_readme_no_other_figure() -> None:
    """What is not from a file is not there: no table in performance.md, no figure in the README."""
    performance = PLACE.sub("", (ROOT / "docs/performance.md").read_text("utf-8"))
    rows = [line for line in performance.splitlines() if line.startswith("|")]
    assert [row for row in rows if not row.startswith((*COUNTED, "|---"))] == []
    readme = PLACE.sub("", (ROOT / "README.md").read_text("utf-8"))
    prose = [line for line in readme.splitlines() if not line.startswith(COUNTED)]
    assert [line for line in prose if FIGURE.search(line)] == []


def test_figures_in_prose_are_found() -> None:
    """The rule above sees a ratio, a share and a time, and no version of a program."""
    for figure in ("1.03 of Rust's", "6.8 times", "98 % of it", "256 us", "0.95 of the link"):
        assert FIGURE.search(figure), figure
    for other in ("SGLang 0.5.23", "Python 3.11 or newer", "110 laws", "`--only 3.2`"):
        assert not FIGURE.search(other), other


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
