"""Rules of the sources that no linter has: lengths, names of classes, and what may be imported.

`python -m kvcanon.lab.house` checks them all. Which room imports which is in pyproject.toml, for
import-linter; here is what that cannot say: the third parties of a package, and names that are
importable from a checkout by accident.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from kvcanon.conformance.errors import UsageError
from kvcanon.lab.mutants.equivalents import Core, read_reviewed, require_places
from kvcanon.lab.mutants.finder import all_places
from kvcanon.lab.mutants.native.finder import all_spots

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("spec", "reference", "disk", "external", "optimized", "live", "conformance", "lab")
FOLDERS = (*PARTS, "tests", "docs", "src/kvcanon")
MOST_LINES_A_FILE = 600
"""A file of more than 400 lines is a question; beyond this limit it holds two ideas."""
MOST_LINES_A_FUNCTION = 70
THIRD_PARTIES = {"spec": {"attrs"}, "src/kvcanon": {"sglang", "vllm"}}
"""Packages that must be importable with these alone, besides the standard library and kvcanon."""


def sources(*suffixes: str) -> list[Path]:
    """The files of the project with one of these suffixes; links are not followed."""
    return sorted(
        path
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*")
        if path.suffix in suffixes and "/native/fuzz/corpus" not in str(path)
    )


def long_files(source: str) -> Iterator[str]:
    """Whether a file is too long for a reader to hold in view."""
    if (lines := len(source.splitlines())) > MOST_LINES_A_FILE:
        yield f"the file has {lines} lines, more than {MOST_LINES_A_FILE}"


def long_functions(tree: ast.Module) -> Iterator[str]:
    """The functions that are too long; an overloaded or nested one counts by itself."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > MOST_LINES_A_FUNCTION:
                yield f"{node.name} has {lines} lines, more than {MOST_LINES_A_FUNCTION}"


def imported(tree: ast.Module) -> Iterator[str]:
    """The modules that a source imports absolutely, wherever it does."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def wrong_imports(tree: ast.Module, folder: str) -> Iterator[str]:
    """What a module of a folder imports by accident, or that its package must do without."""
    for name in imported(tree):
        top = name.partition(".")[0]
        if top in {*PARTS, "tests"}:
            yield f"imports {name} as a top-level name; the only import name is kvcanon"
        elif top not in {"kvcanon", *sys.stdlib_module_names, *THIRD_PARTIES.get(folder, {top})}:
            yield f"imports {top}, which {folder} must do without"


def deep_imports(source: str) -> Iterator[str]:
    """What a page of the docs, or a script in them, imports that is not of the public API."""
    for name in re.findall(
        r"^\s*(?:from|import) (kvcanon\.conformance\.\S+)", source, re.MULTILINE
    ):
        yield f"imports {name}; docs import the names of kvcanon.conformance itself"


def folder_of(path: Path) -> str:
    """The folder of the checkout that a file belongs to."""
    return next(each for each in FOLDERS if path.is_relative_to(ROOT / each))


def stale_reviews(checkout: Path) -> Iterator[str]:
    """The reviewed mutants whose place is gone: no mutants are made while there are any."""
    spots = {Core.REFERENCE: all_places(), Core.NATIVE: all_spots(checkout)}
    for core, places in spots.items():
        try:
            require_places(read_reviewed(checkout, core), places)
        except UsageError as error:
            yield str(error)


def broken_rules() -> Iterator[str]:
    """Every breach of the rules, with its place."""
    homes = defaultdict[str, list[Path]](list)
    for path in sources(".py", ".cpp", ".hpp", ".md"):
        source, place = path.read_text("utf-8"), path.relative_to(ROOT)
        found = [*deep_imports(source)] if path.suffix == ".md" else [*long_files(source)]
        if path.suffix == ".py":
            tree = ast.parse(source)
            found += [*long_functions(tree), *wrong_imports(tree, folder_of(path))]
            found += deep_imports(source) if place.parts[0] == "docs" else ()
            if place.parts[0] in PARTS and "tests" not in place.parts:
                for node in ast.walk(tree):
                    if isinstance(node, ast.ClassDef):
                        homes[node.name].append(place)
        yield from (f"{place}: {each}" for each in found)
    for name, places in homes.items():
        if len(places) > 1:
            yield f"{', '.join(map(str, places))}: the class name {name} is given twice"
    yield from stale_reviews(ROOT)
