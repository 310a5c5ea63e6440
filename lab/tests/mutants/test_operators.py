"""The operators on small pieces of Python: what they change, and what they keep."""

from __future__ import annotations

import ast

import pytest

from kvcanon.lab.mutants.finder import changed_tree, places_in


def changes(body: str) -> dict[str, str]:
    """Return the statement that each change makes, by the change's name and number."""
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    places = places_in("slots", f"def f(a, b, c):\n{lines}\n")
    return {place.place_id.removeprefix("slots.f:"): place.new for place in places}


@pytest.mark.parametrize(
    ("body", "name", "new"),
    [
        ("return a < b", "lt-le:1", "return a <= b"),
        ("return 0 <= a <= b", "le-lt:2", "return 0 <= a < b"),
        ("return a is None", "is-isnot:1", "return a is not None"),
        ("return a in b", "in-notin:1", "return a not in b"),
        ("return a + b", "add-sub:1", "return a - b"),
        ("a += b", "add-sub:1", "a -= b"),
        ("return a // b", "div-mul:1", "return a * b"),
        ("return a[-1]", "plus-one:1", "return a[-2]"),
        ("return f(c=True)", "flip:1", "return f(c=False)"),
        ("a = b = None", "none-empty:1", "a = b = ()"),
        ("if a < b:\n    f()", "negate:1", "if not a < b:"),
        ("while a:\n    f()", "true:1", "while True:"),
        ("return [b for b in a if c]", "false:1", "return [b for b in a if False]"),
        ("return a and b", "and-or:1", "return a or b"),
        ("return a and b and c", "drop-operand:2", "return a and c"),
        ("return not a", "drop-not:1", "return a"),
        ("f(a, c=b)", "drop-keyword:1", "f(a)"),
        ("return sorted(a)", "drop-order:1", "return a"),
        ("return a[::-1]", "drop-order:1", "return a"),
        ("return a[b:]", "lower-plus-one:1", "return a[b + 1:]"),
        ("return a[b:c]", "upper-minus-one:1", "return a[b:c - 1]"),
        ("return min(a, b)", "min-max:1", "return max(a, b)"),
        ("return a[GPU]", "gpu-cpu:1", "return a[CPU]"),
        ("return Direction.BACKUP", "backup-loadback:1", "return Direction.LOAD_BACK"),
        ("f()\nreturn a", "remove-call:1", "pass"),
        ("a.b = c", "remove-assignment:1", "pass"),
        ("del a[b]", "remove-del:1", "pass"),
        ("if a:\n    return b\nreturn c", "remove-return:1", "pass"),
        ("for b in a:\n    continue", "remove-continue:1", "pass"),
    ],
)
def test_each_operator_changes_what_it_is_for(body: str, name: str, new: str) -> None:
    """Each operator makes its change in the statement."""
    assert changes(body)[name] == new


@pytest.mark.parametrize(
    "body",
    [
        '"""A docstring with 1 < 2."""',
        "assert a < b",
        'raise ValueError(f"{a + 1} of {b}")',
        "import a, b",
        "return g(a, strict=True)",
        "new = a",
        "return a",
        "f: int = a",
    ],
)
def test_what_no_cache_does_is_left_alone(body: str) -> None:
    """Texts, asserts, imports and annotations are not changed."""
    assert changes(body) == {}


@pytest.mark.parametrize("body", ["if a is None:\n    f", "if not a:\n    f", "if a == b:\n    f"])
def test_a_condition_with_an_opposite_is_not_negated_twice(body: str) -> None:
    """A negated comparison is one mutant, with one name."""
    assert "negate:1" not in changes(body)


def test_a_name_that_has_no_value_yet_keeps_its_assignment() -> None:
    """Only an assignment to a name that has a value is removed."""
    assert "remove-assignment:1" not in changes("n = a\nreturn n")
    assert changes("n = a\nn = b\nreturn n")["remove-assignment:1"] == "pass"


def test_ids_survive_edits_elsewhere() -> None:
    """A place keeps its id when another function is edited."""
    before = "def f(a):\n    return a < 1\n"
    after = f"def g(a):\n    if a < 2:\n        return 3\n    return 4\n\n\n{before}"
    kept = {place.place_id for place in places_in("m", before)}
    assert kept == {
        id_ for id_ in (each.place_id for each in places_in("m", after)) if ".f:" in id_
    }


def test_the_tree_has_one_change_and_no_other() -> None:
    """The changed source differs from the source in the one change."""
    source = "def f(a):\n    if a < 1:\n        return a + 1\n    return a\n"
    tree = changed_tree("m", source, "m.f:add-sub:1")
    assert ast.unparse(tree) == source.replace("a + 1", "a - 1").strip()
