"""The shape of the sources: files of at most 400 lines, functions of at most 70."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from paths import ROOT

FOLDERS = (
    "spec",
    "reference",
    "optimized",
    "live",
    "conformance",
    "lab",
    "tests",
    "docs",
    "src/kvcanon",
)
MOST_LINES_A_FILE = 400
MOST_LINES_A_FUNCTION = 70


def sources(*suffixes: str) -> list[Path]:
    """The files of the project with one of these suffixes; links are not followed."""
    return sorted(
        path
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*")
        if path.suffix in suffixes and "/native/fuzz/corpus" not in str(path)
    )


def long_functions(source: str) -> Iterator[str]:
    """The functions that are too long; an overloaded or nested one counts by itself."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > MOST_LINES_A_FUNCTION:
                yield f"{node.name} has {lines} lines"


@pytest.mark.parametrize(
    "path", sources(".py", ".pyi", ".cpp", ".hpp"), ids=lambda path: str(path.relative_to(ROOT))
)
def test_files_and_functions_are_short(path: Path) -> None:
    """A reader can hold each file and each function in view."""
    source = path.read_text("utf-8")
    assert len(source.splitlines()) <= MOST_LINES_A_FILE
    if path.suffix == ".py":
        assert list(long_functions(source)) == []


def test_long_functions_are_found() -> None:
    """The count goes from the line of `def` to the last line of the body."""
    body = "\n".join(["    pass"] * MOST_LINES_A_FUNCTION)
    assert list(long_functions(f"def f():\n{body}")) == ["f has 71 lines"]
    assert list(long_functions(f"def f():\n{body.removesuffix('    pass')}")) == []
