"""Native reach: names of functions, reasons of the data file, and the tables of lines."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from attrs import evolve

from kvcanon.conformance.errors import UsageError
from kvcanon.lab.reach import native
from kvcanon.lab.reach.native import SOURCES, NativeLine, short_name
from kvcanon.lab.reach.native_tables import NativeReach, native_tables, reason_of, reasons

CHECKOUT = Path(__file__).parents[3]
VISITED = NativeLine(SOURCES + "evict.cpp", 1, "evict_leaf", "drop();", visited=True)
APART = NativeLine(SOURCES + "nodes.cpp", 1, "node_at", "return node;", visited=False)
MISSED = NativeLine(SOURCES + "transfer.cpp", 7, "flush", "throw;", visited=False)
UNKNOWN = NativeLine(SOURCES + "evict.cpp", 2, "evict_leaf", "drop();", visited=False)


@pytest.mark.parametrize(
    ("demangled", "name"),
    [
        ("kvcanon::insert(kvcanon::State&, kvcanon::Key const&)", "insert"),
        ("kvcanon::(anonymous namespace)::do_lock(kvcanon::CacheCore&)", "do_lock"),
        ("auto kvcanon::CacheCore::operate<void f()::{lambda()#1}>(int, int)", "operate"),
        ("kvcanon::SlotsIn::~SlotsIn()", "~SlotsIn"),
        ("kvcanon::refusal_of[abi:cxx11](kvcanon::Gate const&)", "refusal_of"),
    ],
)
def test_functions_are_named_alone(demangled: str, name: str) -> None:
    """A name has neither namespace nor arguments."""
    assert short_name(demangled) == name


def test_reasons_are_of_what_is_there() -> None:
    """Each reason names files of the core, and functions that stand in one of them."""
    for reason in (*reasons("apart"), *reasons("unvisited"), *reasons("unread")):
        texts = [(CHECKOUT / SOURCES / name).read_text("utf-8") for name in reason.files]
        assert not [name for name in reason.functions if not any(name in text for text in texts)]


def test_lines_of_other_interfaces_do_not_count() -> None:
    """Only lines that judged calls can reach count, and each that is missed needs a reason."""
    lines = [evolve(VISITED, number=number) for number in range(10, 60)]
    found = NativeReach([*lines, APART, MISSED])
    assert found.unvisited() == [MISSED]
    assert found.reached
    assert "| of them no case visits | 1 (2.0 %) |" in list(native_tables(found))
    assert not NativeReach([*lines, UNKNOWN]).reached
    assert reason_of(UNKNOWN, "unvisited") is None


def test_too_many_missed_lines_miss_the_bar() -> None:
    """A reason does not help if too many lines have one."""
    assert not NativeReach([VISITED, MISSED]).reached


def test_a_visited_line_is_within_reach() -> None:
    """What a case visits is no other interface's, whatever the data file says."""
    assert NativeReach([evolve(APART, visited=True)]).reachable()


def test_missing_tools_and_failed_ones_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a compiler nothing is counted, and the words say what is missing."""
    with pytest.raises(UsageError, match="--native needs no-such-tool"):
        native._tool("no-such-tool")
    failed = subprocess.CompletedProcess((), 3, b"", b"no space")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(UsageError, match="ended with 3: no space"):
        native._run("cmake", "--build")


def test_lines_come_from_reports(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Counts of several objects add up, and lines without code are none."""
    source = tmp_path / SOURCES / "a.hpp"
    source.parent.mkdir(parents=True)
    source.write_text("int f() {\n  return 1;\n}\n", "utf-8")
    function = '{"start_line": 1, "end_line": 3, "demangled_name": "kvcanon::f()"}'
    rows = ", ".join(f'{{"line_number": {at}, "count": %d}}' for at in (1, 2, 3))
    file = f'{{"file": "./{SOURCES}a.hpp", "lines": [{rows}], "functions": [{function}]}}'
    reports = "\n".join('{"files": [' + file % (at, at, 0) + "]}" for at in (0, 1))
    monkeypatch.setattr(native, "_run", lambda *_: reports.encode())
    monkeypatch.setattr(native, "_tool", lambda name: name)
    lines = list(native._lines(tmp_path, tmp_path))
    assert [(line.number, line.function, line.visited) for line in lines] == [
        (1, "f", True),
        (2, "f", True),
    ]


@pytest.mark.parametrize(
    ("file", "reached"), [("sglang/row_table.cpp", False), ("bind_rows.cpp", True)]
)
def test_what_is_uncalled_is_never_visited_but_at_the_import(file: str, reached: bool) -> None:
    """Only bindings may be visited there: they run when the core is imported."""
    line = NativeLine(SOURCES + file, 1, "bind_rows", "put();", visited=True)
    assert NativeReach([line]).reached is reached
