"""The rules of the house see what they are for."""

import ast
from pathlib import Path

import pytest

from kvcanon.lab.house import rules
from kvcanon.lab.mutants.equivalents import LIST


def test_the_house_keeps_its_rules() -> None:
    """No source breaks a rule, and there are sources in every folder."""
    assert {rules.folder_of(path) for path in rules.sources(".py")} == {*rules.FOLDERS}
    assert list(rules.broken_rules()) == []


def test_long_files_and_functions_are_found() -> None:
    """A file counts its lines, and a function those from `def` to the last of its body."""
    body = "\n".join(["    pass"] * rules.MOST_LINES_A_FUNCTION)
    (found,) = rules.long_functions(ast.parse(f"def f():\n{body}"))
    assert found.startswith("f has 71 lines")
    assert not list(rules.long_functions(ast.parse(f"def f():\n{body.removesuffix('    pass')}")))
    (found,) = rules.long_files("\n" * (rules.MOST_LINES_A_FILE + 1))
    assert found.startswith("the file has 601 lines")
    assert not list(rules.long_files("\n" * rules.MOST_LINES_A_FILE))


@pytest.mark.parametrize(
    ("folder", "source", "said"),
    [
        ("spec", "import numpy", "imports numpy"),
        ("spec", "from hypothesis.stateful import rule", "imports hypothesis"),
        ("spec", "import attrs_extra", "imports attrs_extra"),
        ("spec", "def late():\n    import spec", "as a top-level name"),
        ("src/kvcanon", "import attrs", "imports attrs"),
        ("reference", "from spec.types import Page", "as a top-level name"),
        ("conformance", "try:\n    import tests.helpers\nexcept: pass", "as a top-level name"),
        ("tests", "import conformance.cli as cli", "as a top-level name"),
        ("spec", "import hashlib\nfrom attrs import frozen\nfrom kvcanon.spec import types", ""),
        ("reference", "import torch\nfrom . import tree", ""),
        ("conformance", "from kvcanon.conformance.check import play\nimport specimen", ""),
    ],
)
def test_wrong_imports_are_found(folder: str, source: str, said: str) -> None:
    """Each kind of wrong import is found, wherever it hides, and no other."""
    found = list(rules.wrong_imports(ast.parse(source), folder))
    assert len(found) == bool(said)
    assert all(said in each for each in found)


def test_docs_import_the_public_api() -> None:
    """An import from below kvcanon.conformance is found in a page."""
    (found,) = rules.deep_imports("    from kvcanon.conformance.check import play\n")
    assert "kvcanon.conformance.check" in found
    assert not list(rules.deep_imports("from kvcanon.conformance import guard\n"))


def test_reviewed_mutants_without_a_place_are_found(tmp_path: Path) -> None:
    """The entries of each core are looked up among the places of that core."""
    listed = tmp_path / LIST
    listed.parent.mkdir(parents=True)
    entries = (
        '[reference.equal]\n"match.gone:true:1" = "."',
        '[native.equal]\n"state.gone:true:1" = "."',
    )
    listed.write_text("\n".join(entries), encoding="utf-8")
    (tmp_path / "optimized").symlink_to(rules.ROOT / "optimized")
    found = [*rules.stale_reviews(tmp_path)]
    assert ["match.gone" in each for each in found] == [True, False]
    assert ["state.gone" in each for each in found] == [False, True]
