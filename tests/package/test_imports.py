"""Imports run one way: spec imports nothing of ours, and everyone else knows only spec.

The law must be readable without any cache, the caches must not lean on each other or on their
judge, and the judge must reach the fast cache as it reaches a stranger's, through an adapter. Those
are facts about import statements, so they are read from the source: nothing is executed, and an
from paths import ROOT
import inside a function or for type checkers counts like any other.

The five folders at the top of the checkout are importable from there by accident (`python -m
pytest` puts the checkout on the path), and a module would then be loaded twice, under two names. So
their names are refused too.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from attrs import frozen

from paths import ROOT


@frozen
class Rule:
    """What the modules of one package may import besides the standard library."""

    ours: frozenset[str]
    """The modules of this project, each with everything below it."""

    third_parties: frozenset[str] | None = None
    """The third parties, by top-level name; None allows any."""


SPEC = "kvcanon.spec"
REFERENCE = "kvcanon.reference"
OPTIMIZED = "kvcanon.optimized"
LIVE = "kvcanon.live"
CONFORMANCE = "kvcanon.conformance"
LAB = "kvcanon.lab"

RULES = {
    # Importing kvcanon must load no part of it: whoever wants the law does not want the judge.
    "kvcanon": Rule(frozenset(), frozenset()),
    SPEC: Rule(frozenset({SPEC}), frozenset({"attrs"})),
    REFERENCE: Rule(frozenset({SPEC, REFERENCE})),
    # What SGLang loads first names its release, and the variable that selects the core.
    OPTIMIZED: Rule(frozenset({SPEC, OPTIMIZED, "kvcanon.sglang_plugin"})),
    LIVE: Rule(frozenset({SPEC, LIVE})),
    # Reports say which release judged, so the judge may read the version.
    CONFORMANCE: Rule(frozenset({SPEC, REFERENCE, LIVE, CONFORMANCE, "kvcanon.__version__"})),
    # It may import everything, and nothing but tests imports it.
    LAB: Rule(frozenset({"kvcanon"})),
    "tests": Rule(frozenset({"kvcanon"})),
}

FOLDERS = {
    SPEC: ROOT / "spec",
    REFERENCE: ROOT / "reference",
    OPTIMIZED: ROOT / "optimized",
    LIVE: ROOT / "live",
    CONFORMANCE: ROOT / "conformance",
    LAB: ROOT / "lab",
    "tests": ROOT / "tests",
}

FOLDER_NAMES = frozenset(folder.name for folder in FOLDERS.values())


@frozen
class Import:
    """One name that an import statement asks for, in full, with the package that dots stand for."""

    line: int
    name: str


def imports(source: str, package: str) -> Iterator[Import]:
    """Yield every import in the source of a module that lies directly in `package`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (Import(node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = absolute_origin(node, package)
            yield from (
                Import(node.lineno, ".".join([*origin, alias.name])) for alias in node.names
            )


def absolute_origin(node: ast.ImportFrom, package: str) -> list[str]:
    """Return the parts of the name that a `from` statement imports from, with its dots resolved.

    Dots that climb above the topmost package lead nowhere: what follows them is then returned as a
    top-level name, which is what it would have to be.
    """
    parents = package.split(".") if node.level else []
    kept = parents[: max(0, len(parents) - node.level + 1)]
    return [*kept, *(node.module.split(".") if node.module else [])]


def complaint(name: str, package: str) -> str | None:
    """Say what is wrong with a module of `package` importing `name`, or return None."""
    owner = next(prefix for prefix in by_length(RULES) if lies_in(package, prefix))
    rule = RULES[owner]
    top = name.partition(".")[0]
    if top in FOLDER_NAMES:
        return f"imports {name} as a top-level name; the only import name is kvcanon"
    if top == "kvcanon":
        if any(lies_in(name, allowed) for allowed in rule.ours):
            return None
        allowed = ", ".join(sorted(rule.ours)) or "nothing"
        return f"imports {name}; of this project {owner} may import {allowed}"
    if top in sys.stdlib_module_names or rule.third_parties is None or top in rule.third_parties:
        return None
    allowed = " and ".join(["the standard library", *sorted(rule.third_parties)])
    return f"imports {name}; from elsewhere {owner} may import {allowed}"


def by_length(names: dict[str, Rule]) -> list[str]:
    """Return the names, the longest first, so that the most specific rule is found first."""
    return sorted(names, key=len, reverse=True)


def lies_in(name: str, prefix: str) -> bool:
    """Say whether a dotted name is the prefix or lies below it."""
    return name == prefix or name.startswith(f"{prefix}.")


def complaints(source: str, package: str) -> list[tuple[int, str]]:
    """Return each import of a module that breaks a rule, as its line and what is wrong with it."""
    found = ((item.line, complaint(item.name, package)) for item in imports(source, package))
    return sorted((line, said) for line, said in found if said is not None)


@frozen
class Module:
    """A source file and the package that it lies in."""

    path: Path
    package: str

    def __str__(self) -> str:
        return str(self.path.relative_to(ROOT))


def modules() -> list[Module]:
    """Return every source file of the project, in an order that does not depend on the disk."""
    found = [Module(ROOT / "src" / "kvcanon" / "__init__.py", "kvcanon")]
    for package, folder in FOLDERS.items():
        for path in sorted(folder.rglob("*.py")):
            inner = path.relative_to(folder).parent.parts
            found.append(Module(path, ".".join([package, *inner])))
    return found


@pytest.mark.parametrize("module", modules(), ids=str)
def test_module_imports_only_what_its_package_may(module: Module) -> None:
    """Every import statement of the project obeys the rule of the package that it stands in."""
    found = complaints(module.path.read_text(encoding="utf-8"), module.package)
    assert not found, "\n" + "\n".join(f"{module}:{line}: {said}" for line, said in found)


@pytest.mark.parametrize("package", sorted(FOLDERS))
def test_no_package_escapes_the_search(package: str) -> None:
    """Each folder has modules that the rule above was held to; a renamed folder would have none."""
    assert any(lies_in(module.package, package) for module in modules())


@pytest.mark.parametrize(
    ("package", "source", "said"),
    [
        (SPEC, "import numpy", "imports numpy; from elsewhere"),
        (SPEC, "from hypothesis.stateful import rule", "imports hypothesis.stateful.rule"),
        (SPEC, "import kvcanon.reference.tree", "of this project kvcanon.spec may import"),
        (SPEC, "from ..conformance import guard", "imports kvcanon.conformance.guard"),
        (f"{SPEC}.laws", "from ...reference import tree", "imports kvcanon.reference.tree"),
        (SPEC, "import kvcanon", "imports kvcanon; of this project"),
        (SPEC, "from kvcanon import *", "imports kvcanon.*; of this project"),
        (
            REFERENCE,
            "from kvcanon.conformance import guard",
            "imports kvcanon.conformance.guard",
        ),
        (REFERENCE, "from kvcanon import optimized", "imports kvcanon.optimized"),
        (OPTIMIZED, "import kvcanon.reference", "imports kvcanon.reference"),
        (OPTIMIZED, "import kvcanon.conformance", "imports kvcanon.conformance"),
        (CONFORMANCE, "import kvcanon.optimized.pools", "imports kvcanon.optimized.pools"),
        (CONFORMANCE, "from kvcanon import optimized", "imports kvcanon.optimized"),
        (CONFORMANCE, "from .. import optimized", "imports kvcanon.optimized"),
        (CONFORMANCE, "from .... import optimized", "as a top-level name"),
        ("kvcanon", "from kvcanon import spec", "kvcanon may import nothing"),
        (SPEC, "import spec", "as a top-level name"),
        (REFERENCE, "from spec.types import Page", "as a top-level name"),
        (OPTIMIZED, "import json, reference", "imports reference as a top-level name"),
        (CONFORMANCE, "from reference import tree", "as a top-level name"),
        (CONFORMANCE, "import tests.helpers", "as a top-level name"),
        ("tests", "import conformance.cli as cli", "as a top-level name"),
        (CONFORMANCE, "from kvcanon.lab.mutants import planted", "imports kvcanon.lab"),
        (LAB, "from lab.mutants import planted", "as a top-level name"),
        ("tests.spec", "from optimized import cache", "as a top-level name"),
        # A name that only begins like an allowed one is another name.
        (SPEC, "import kvcanon.specimen", "imports kvcanon.specimen"),
        (SPEC, "import attrs_extra", "imports attrs_extra"),
    ],
)
def test_checker_catches_violation(package: str, source: str, said: str) -> None:
    """Each kind of violation is caught, and the complaint names what was imported."""
    (found,) = complaints(source, package)
    assert found[0] == 1
    assert said in found[1]


@pytest.mark.parametrize(
    "source",
    [
        "def late():\n    import kvcanon.optimized\n",
        "if TYPE_CHECKING:\n    import kvcanon.optimized\n",
        "try:\n    import kvcanon.optimized\nexcept ImportError:\n    pass\n",
    ],
    ids=["in a function", "for type checkers", "in a try"],
)
def test_checker_looks_everywhere(source: str) -> None:
    """An import is found wherever it hides, and reported at its own line."""
    ((line, _),) = complaints(source, CONFORMANCE)
    assert line == 2


@pytest.mark.parametrize(
    ("package", "source"),
    [
        (SPEC, "from __future__ import annotations\nimport hashlib\nfrom attrs import frozen"),
        (SPEC, "from . import types\nfrom kvcanon.spec.types import Page"),
        (f"{SPEC}.laws", "from ..oracle import window\nfrom kvcanon import spec"),
        (REFERENCE, "import torch\nfrom kvcanon.spec import types\nfrom . import tree"),
        (OPTIMIZED, "import torch\nfrom kvcanon.spec import types\nfrom . import pools"),
        (CONFORMANCE, "from kvcanon.reference.cache import Cache\nfrom kvcanon import __version__"),
        # The judge reaches a cache that it must not import by its name, as it would anyone's.
        (CONFORMANCE, "import importlib\nimportlib.import_module('kvcanon.optimized')"),
        ("tests", "import kvcanon\nimport kvcanon.optimized\nfrom hypothesis import given"),
    ],
)
def test_checker_allows_what_is_lawful(package: str, source: str) -> None:
    """What the rules permit raises no complaint."""
    assert complaints(source, package) == []
