"""The rules of the house see what they are for."""

import ast

import pytest

from kvcanon.lab.house import rules


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
