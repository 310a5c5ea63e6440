"""Mutants of the native core: where its sources are changed, and how changes are switched on."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from kvcanon.lab.mutants.detection import Sight
from kvcanon.lab.mutants.native.build import build
from kvcanon.lab.mutants.native.campaign import NativeBudget, judge_native
from kvcanon.lab.mutants.native.changes import CppChange
from kvcanon.lab.mutants.native.finder import all_spots, spots_in
from kvcanon.lab.mutants.native.functions import functions_of
from kvcanon.lab.mutants.native.schemata import crossing, with_mutants
from kvcanon.lab.mutants.native.tokens import CppSource
from paths import ROOT


def changes(body: str) -> dict[str, tuple[str, str]]:
    """Return what each change replaces and by what, by the change's name and number."""
    source = CppSource("sample", f"int f(int a, int b) {{\n    {body}\n}}\n")
    return {
        spot.place.place_id.removeprefix("sample.f:"): (
            source.text[spot.change.begin : spot.change.end],
            spot.change.replacement,
        )
        for spot in spots_in(source)
    }


@pytest.mark.parametrize(
    ("body", "name", "old", "new"),
    [
        ("return g(a < b);", "lt-le:1", "a < b", "a <= b"),
        ("return a + b * 2;", "mul-div:1", "b * 2", "b / 2"),
        ("return a - b + 2;", "add-sub:1", "a - b + 2", "a - b - 2"),
        ("x = a && b || c;", "and-or:1", "a && b", "(a) || (b)"),
        ("x = a || b;", "drop-operand:1", "a || b", "b"),
        ("if (a) return b;\n    return 2;", "negate:1", "a", "!(a)"),
        ("while (a[1](b)) g();", "true:1", "a[1](b)", "true"),
        ("x = a < 2 ? b : 3;", "false:1", "a < 2", "false"),
        ("x = {a, 7};", "minus-one:1", "7", "6"),
        ("g(GPU);", "gpu-cpu:1", "GPU", "CPU"),
        ("g(true);", "true-false:1", "true", "false"),
        ("x = std::min<int>(a, b);", "min-max:1", "std::min<int>(a, b)", "std::max<int>(a, b)"),
        ("a->b[2].c(b);", "remove-call:1", "a->b[2].c(b);", ""),
        ("*a = b;", "remove-assignment:1", "*a = b;", ""),
        ("if (a) b += 2;", "remove-assignment:1", "b += 2;", ""),
        ("for (;;) { if (a) continue; }", "remove-continue:1", "continue;", ""),
        ("if (a) return 2;\n    return b;", "remove-return:1", "return 2;", ""),
    ],
)
def test_each_change_takes_its_stretch(body: str, name: str, old: str, new: str) -> None:
    """A change replaces its operands and nothing else."""
    assert changes(body)[name] == (old, new)


@pytest.mark.parametrize(
    "body",
    [
        "// a < 1 + b",
        "assert(a < b);",
        "const std::vector<int> a;",
        "state.counters.inserts += a;",
        "return a;",
        "Node* a = b;",
    ],
)
def test_what_cannot_show_is_left_alone(body: str) -> None:
    """Declarations, asserts, comments and counters have no places."""
    assert changes(body) == {}


def test_a_change_is_shown_in_its_lines() -> None:
    """A mutant's line shows the source before and after."""
    source = CppSource("m", "void f() {\n    if (a <\n        b) g(1);\n}\n")
    shown = {spot.place.place_id: spot.place.diff for spot in spots_in(source)}
    begin = "optimized/native/m.cpp:2: if (a < b) g(1); -> "
    assert shown["m.f:lt-le:1"] == f"{begin}if (a <= b) g(1);"
    assert shown["m.f:remove-call:1"] == "optimized/native/m.cpp:3: b) g(1); -> b)"


def test_functions_have_their_names() -> None:
    """A place is named by the function that it is in."""
    text = """
    namespace a { namespace {
    struct Plain { int x; };
    class Door { public:
        explicit Door(int x) : x_(x), y_{x} { g(); }
        int end() const { return x_; }
        int x_, y_;
    };
    int free_one(int x) { const auto l = [](int y) { return y; }; return l(x); }
    }
    Door Other::made(int x) { return Door(x); } }
    """
    names = [function.name for function in functions_of(CppSource("m", text))]
    assert names == ["Door.Door", "Door.end", "free_one", "Other.made"]


def test_all_mutants_of_a_source_sleep_in_it() -> None:
    """Mutants of overlapping ranges are switched on one by one."""
    source = CppSource("m", "void f() {\n    if (a < b) g(1);\n}\n")
    spots = {spot.place.place_id: spot.change for spot in spots_in(source)}
    wanted = ["m.f:lt-le:1", "m.f:true:1", "m.f:remove-call:1", "m.f:plus-one:1"]
    said = with_mutants(source.text, list(enumerate((spots[each] for each in wanted), start=1)))
    test = "(kvcanon_mutant == 1 ? (a <= b) : (a < b))"
    forced = f"(kvcanon_mutant == 2 ? static_cast<bool>(true) : static_cast<bool>({test}))"
    call = "{ if (kvcanon_mutant != 3) { g((kvcanon_mutant == 4 ? (2) : (1))); } }"
    assert said == f"void f() {{\n    if ({forced}) {call}\n}}\n"


def test_changes_that_lie_across_each_other_are_told() -> None:
    """A change that crosses another is found before the build."""
    crossed = [CppChange("a", 0, 5, "x"), CppChange("b", 2, 4, "y"), CppChange("c", 3, 8, "z")]
    assert crossing(enumerate(crossed)) == [2]


def test_every_change_of_the_core_lies_within_or_beside_every_other() -> None:
    """No two changes of the core's sources cross."""
    spots = list(all_spots(ROOT).values())
    for module in {spot.place.module for spot in spots}:
        here = [spot.change for spot in spots if spot.place.module == module]
        assert crossing(enumerate(here)) == [], module
    assert len(spots) > 1_000


def test_the_audit_and_the_doors_have_no_places() -> None:
    """The core's own audit and its bindings are not mutated."""
    modules = {spot.place.module for spot in all_spots(ROOT).values()}
    assert modules.isdisjoint({"check", "module"})
    assert not any(module.startswith(("bind_", "sha256")) for module in modules)


@pytest.mark.skipif(
    "KVCANON_NATIVE_MUTANTS" not in os.environ or shutil.which("c++") is None,
    reason="a build takes minutes; set KVCANON_NATIVE_MUTANTS to have it",
)
def test_a_build_has_its_mutants(tmp_path: Path) -> None:
    """Each built mutant is active where it is judged, and only there."""
    spots = all_spots(ROOT)
    wanted = ["evict.evict_leaf:remove-call:5", "match.touch:lt-le:1"]
    built = build(ROOT, [spots[each] for each in wanted], tmp_path)
    assert built.dropped == ()
    places = [spots[each].place for each in wanted]
    with judge_native(built, places, 0, NativeBudget(first=4, checked=0), 1) as verdicts:
        sights = {verdict.place.place_id: verdict.sight for verdict in verdicts}
    assert sights[wanted[0]] in {Sight.LAW, Sight.CRASH, Sight.DEAD}
