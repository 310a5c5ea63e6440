"""Figures in the sentences of README, changelog and docs: each is one of figures_in_prose.toml.

Tables are others' tests: those of measurements are made of lab/bench/measured.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from attrs import evolve

from kvcanon.lab.site.measured import KeptFigures, read_measured
from paths import ROOT

FIGURE = re.compile(
    r"(?<![\w.-])\d[\d,.]*(?: times\b| ?%| (?:us|ms|s|seconds|GB/s|MiB|GB)\b)"
    r"|(?<![\w.])[01]?\.\d{2,}(?!\w|\.\d)"
)
"""A measured figure: a ratio, a share, a time, a speed or a size."""
MEASURED = re.compile(r"(?s)<!-- measured: \w+ -->.*?<!-- end -->")
COUNTED = ("| the six alone", "| and ")
"""Rows of the README's other table of figures."""
NO_PROSE = re.compile(
    r"<!-- measured: \w+ -->.*?<!-- end -->|```.*?```|^\|.*?$", re.DOTALL | re.MULTILINE
)
PAGES = [
    *("README.md", "CHANGELOG.md"),
    *(str(page.relative_to(ROOT)) for page in sorted((ROOT / "docs").rglob("*.md"))),
]
FILE = Path(__file__).with_name("figures_in_prose.toml")
LISTED: dict[str, dict[str, Any]] = tomllib.loads(FILE.read_text("utf-8"))
KINDS = ("limits", "examples")
"""The figures that are of no kept file, by why; the list says what each is."""

Spec: TypeAlias = Mapping[str, Any]


def prose(text: str) -> str:
    """The sentences of a page in one line, without tables and code."""
    return " ".join(NO_PROSE.sub("", text).split())


def differences(text: str, listed: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """The figures of a page that its list lacks, and those that only the list has."""
    found = Counter(FIGURE.findall(prose(text)))
    named = Counter(figure for kind in KINDS for figure in listed.get(kind, ()))
    named.update(each["is"] for told in listed.get("kept", ()) for each in told["figures"])
    return sorted((found - named).elements()), sorted((named - found).elements())


@pytest.mark.parametrize("page", PAGES)
def test_each_figure_of_a_page_is_listed(page: str) -> None:
    """No figure stands in a sentence that is not in the list, and the list has no other."""
    found = differences((ROOT / page).read_text("utf-8"), LISTED.get(page, {}))
    assert found == ([], []), f"(not in {FILE.name}, only there): {found}"


def test_readme_has_no_figure_in_a_table_of_its_own() -> None:
    """What is not from a file is not there, but for shares of faults, which have their own test."""
    text = MEASURED.sub("", (ROOT / "README.md").read_text("utf-8"))
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert [row for row in rows if FIGURE.search(row) and not row.startswith(COUNTED)] == []


def test_only_pages_that_exist_are_listed() -> None:
    """A page that is gone takes its figures with it."""
    assert LISTED.keys() <= set(PAGES)
    assert {kind for listed in LISTED.values() for kind in listed} == {*KINDS, "kept"}


SENTENCES = [(page, told) for page, listed in LISTED.items() for told in listed.get("kept", ())]


@pytest.mark.parametrize(("page", "told"), SENTENCES, ids=lambda each: str(each)[:60])
def test_figures_in_sentences_are_those_of_their_files(page: str, told: Spec) -> None:
    """A sentence about a kept table says what its file says."""
    assert told["text"] in prose((ROOT / page).read_text("utf-8"))
    assert FIGURE.findall(told["text"]) == [each["is"] for each in told["figures"]]
    kept = read_measured(ROOT)
    for each in told["figures"]:
        assert said(each, kept[each["file"]]) == number_of(each["is"]), each


def said(spec: Spec, kept: KeptFigures) -> str:
    """What a file says, with as many digits as the sentence."""
    values = sorted(figures_of(spec, kept))[spec.get("but", 0) :]
    how = spec.get("how", "one")
    if how == "one":
        (value,) = values
    elif how == "ratio":
        (above,), (below,) = values, figures_of(spec["over"], kept)
        value = above / below
    else:
        value = {"least": min, "most": max}[how](values)
    number = number_of(spec["is"])
    text = f"{value:,.{len(number.partition('.')[2])}f}"
    return text.removeprefix("0") if number.startswith(".") else text


def figures_of(spec: Spec, kept: KeptFigures) -> list[float]:
    """The figures of some columns, in the rows whose other columns are as `where` says."""
    columns = spec["column"] if isinstance(spec["column"], list) else [spec["column"]]
    return [
        float(number_of(row[kept.heads.index(column)]).replace(",", ""))
        for row in kept.rows
        for column in columns
        if all(fnmatchcase(row[kept.heads.index(h)], like) for h, like in spec["where"].items())
    ]


def number_of(figure: str) -> str:
    """A figure without its unit, or the first of a cell."""
    found = re.match(r"[\d,.]+", figure)
    assert found is not None
    return found[0]


def test_figures_in_prose_are_found() -> None:
    """The rule above sees a ratio, a share and a time, and no version of a program."""
    for figure in ("1.03 of Rust's", "6.8 times", "98 % of it", "256 us", "0.95 of the link"):
        assert FIGURE.search(figure), figure
    for other in ("SGLang 0.5.23", "Python 3.11 or newer", "110 laws", "`--only 3.2`"):
        assert not FIGURE.search(other), other


def test_another_figure_fails() -> None:
    """A figure that is new, changed or gone is seen, and a table's is not."""
    listed = {"limits": ["7 us"]}
    assert differences("It takes 7 us.\n| a | 8 us |\n", listed) == ([], [])
    assert differences("It takes 8 us.", listed) == (["8 us"], ["7 us"])
    assert differences("It takes 7 us and 7 us.", listed) == (["7 us"], [])


def test_a_sentence_that_differs_from_its_file_is_seen() -> None:
    """One cell, a ratio, and the least and most of some rows, with the digits of the sentence."""
    heads, rows = ("", "page", "us"), (("a", "1", "1,200"), ("a", "16", "300"), ("b", "1", "7"))
    kept = KeptFigures("x", "So?", "kvcanon x", "a core", "one run", "", heads, rows)
    one = {"is": "1.2 us", "column": "us", "where": {"": "a", "page": "1"}}
    assert said(one, kept) == "1,200.0"
    over = {"column": "us", "where": {"page": "16"}}
    assert said({**one, "is": "4.0 times", "how": "ratio", "over": over}, kept) == "4.0"
    both = {"column": "us", "where": {"": "a"}}
    assert said({"is": "300 us", "how": "least", **both}, kept) == "300"
    assert said({"is": "1,200 us", "how": "most", **both}, kept) == "1,200"
    assert said({"is": "1,200 us", "how": "least", "but": 1, **both}, kept) == "1,200"
    numbers = {"column": ["page", "us"], "where": {"page": "1*"}}
    assert said({"is": "1 us", "how": "least", **numbers}, kept) == "1"
    timed = evolve(kept, rows=(("a", "1", "4.3 of 22.9"),))
    assert said({"is": "4.3 us", **both}, timed) == "4.3"
