"""The tables of the page about adapters list what there is, and the laws that they name hold."""

from __future__ import annotations

import re
from collections import defaultdict

import pytest
from attrs import fields

from adapter_page import PAGE, TABLES, Row
from kvcanon import conformance
from kvcanon.conformance.protocol.adapter import Offer
from kvcanon.spec.config import Limit
from kvcanon.spec.errors import CacheError, EngineRaised
from kvcanon.spec.law import LAWS, Need
from kvcanon.spec.operations import (
    EndPrefetch,
    Operation,
    PollStore,
    Prefetch,
    Read,
    Settle,
    Store,
    Write,
    method_of,
)
from meddling import Meddled, broken_by, meddled

COLUMNS = ("pages", "recency", "hits", "locks", "slots", "events")
LEFT_ALONE = next(rows for head, rows in TABLES.items() if head.startswith("operation | pages"))
ARGUMENTS = TABLES["refusal | its arguments | what they say"]
ID = re.compile(r"[A-Z]+-\d+")
UNMEDDLED = {("reset", "pages"), ("reset", "locks")}
"""Cells about a state in which no page is left to meddle with."""


def names_in(head: str) -> list[str]:
    """The first cells of a table."""
    return [row[0].strip("`") for row in TABLES[head]]


@pytest.mark.parametrize(
    ("head", "names"),
    [
        ("field | what the judge draws from it", [each.name for each in fields(Offer)]),
        ("`Limit` | the calls that the cache may refuse", [each.name for each in Limit]),
    ],
)
def test_table_lists_every_name(head: str, names: list[str]) -> None:
    """Fields and values are listed, all of them, in the order of the code."""
    assert names_in(head) == names


def test_table_lists_the_arguments_of_every_refusal() -> None:
    """An adapter can raise each refusal from the table alone."""
    listed = {row[0].strip("`"): re.findall(r"`(\w+)`", row[1]) for row in ARGUMENTS}
    refusals = [each for each in CacheError.__subclasses__() if each is not EngineRaised]
    assert listed == {each.__name__: list(vars(each)["__match_args__"]) for each in refusals}


def laws_in(cell: str) -> set[str]:
    """The laws that a cell names, also as "ASYNC-1 to ASYNC-10"."""
    found = set(ID.findall(cell))
    for area, first, last in re.findall(r"([A-Z]+)-(\d+) to [A-Z]+-(\d+)", cell):
        found |= {f"{area}-{at}" for at in range(int(first), int(last) + 1)}.intersection(LAWS)
    return found


def test_hides_lists_every_need_with_its_laws() -> None:
    """Each need is listed, with the laws that need it."""
    rows = TABLES["`Need` | hide it if | laws that are then not checked from snapshots"]
    assert [row[0].strip("`") for row in rows] == [each.name for each in Need]
    for name, _, laws in rows[1:]:
        need = Need[name.strip("`")]
        assert laws_in(laws) == {each.law_id for each in LAWS.values() if need in each.needs}


def test_parts_are_public_and_all_of_them_are_named() -> None:
    """The table of parts names what can be imported, and misses nothing."""
    rows = TABLES["an adapter may | because | part"]
    parts = {name for name, home in conformance._HOMES.items() if ".adapter_parts." in home}
    assert {name for row in rows for name in re.findall(r"`(\w+)[`.]", row[-1])} <= {
        *parts,
        "Offer",
    }
    assert parts <= {name for row in rows for name in re.findall(r"`(\w+)[`.]", " ".join(row))}


def test_table_of_what_is_left_alone_has_every_operation() -> None:
    """There is a row for each operation, and for a refused call; some others are prose."""
    names = [row[0].strip("`") for row in LEFT_ALONE]
    prose = {Read, Settle, Write, Store, Prefetch, PollStore, EndPrefetch}
    operations = [method_of(each) for each in Operation.__args__ if each not in prose]
    assert sorted(names) == sorted([*operations, "a refused call"])


@pytest.fixture(scope="module", name="found")
def laws_that_meddling_breaks() -> dict[tuple[str, str], list[tuple[Meddled, set[str]]]]:
    """For each operation and column, what was meddled with, and the laws that this breaks."""
    found = defaultdict(list)
    for each in meddled():
        broken = broken_by(each.step) - broken_by(each.real)
        found[each.operation, each.column].append((each, broken))
    return found


@pytest.mark.parametrize("row", LEFT_ALONE, ids=lambda row: row[0].strip("`"))
def test_laws_hold_what_the_table_says(
    row: Row, found: dict[tuple[str, str], list[tuple[Meddled, set[str]]]]
) -> None:
    """Whatever a cell says is left alone cannot change without breaking a law that it names."""
    name, *cells = row
    for column, cell in zip(COLUMNS, cells, strict=True):
        laws, place = laws_in(cell), (name.strip("`"), column)
        if place in UNMEDDLED or not laws:
            assert place in UNMEDDLED or (place[0] == "reset" and "none is left" in cell)
            continue
        others_alone = "others same" in cell
        cases = [(each, broken) for each, broken in found[place] if not (others_alone and each.own)]
        assert cases, place
        for each, broken in cases:
            assert broken & laws, (place, type(each.real.operation).__name__, broken)
        assert laws <= set.union(*(broken for _, broken in cases)), place


def test_page_says_how_the_table_is_meant() -> None:
    """The words that the test reads are explained."""
    assert "*Same* means" in PAGE
    assert "*Others* are" in PAGE
