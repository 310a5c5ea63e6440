"""The rooms of conformance/: what stands at its top, what may import what, and the public API."""

import ast
from collections import Counter
from pathlib import Path

import pytest

from kvcanon import conformance
from paths import DOCS, ROOT

CONFORMANCE = ROOT / "conformance"
PREFIX = "kvcanon.conformance."

ROOMS = (
    "errors",
    "workers",
    "protocol",
    "adapter_parts",
    "cases",
    "judge",
    "vectors",
    "check",
    "report",
    "pytest_plugin",
    "engines",
    "explore",
    "probe",
    "replay",
    "show",
    "laws",
    "cli",
)
"""Every room, after all rooms that it may import."""

APART = (
    ("judge.from_outside.tree", "judge.from_outside.request"),
    ("engines.sglang", "engines.vllm"),
)
"""Parts of one room that do not import each other."""

MODULES = sorted(path for path in CONFORMANCE.rglob("*.py") if path != CONFORMANCE / "__init__.py")


def dotted(path: Path) -> str:
    """The name of a module below kvcanon.conformance."""
    parts = path.relative_to(CONFORMANCE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def imported(source: str) -> set[str]:
    """The modules below kvcanon.conformance that a source imports from, wherever it does."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        found |= {name.removeprefix(PREFIX) for name in names if name.startswith(PREFIX)}
    return found


def wrong_imports(module: str, source: str) -> list[str]:
    """What a module imports from a later room, or from a part that it is kept apart from."""
    room = module.partition(".")[0]
    later = ROOMS[ROOMS.index(room) + 1 :]
    apart = [
        other
        for pair in APART
        for one, other in (pair, pair[::-1])
        if module.startswith(f"{one}.") or module == one
    ]
    return sorted(
        name
        for name in imported(source)
        if name.partition(".")[0] in later or any(name.startswith(f"{part}.") for part in apart)
    )


@pytest.mark.parametrize("path", MODULES, ids=dotted)
def test_modules_import_earlier_rooms_only(path: Path) -> None:
    """Imports between the rooms run one way."""
    assert wrong_imports(dotted(path), path.read_text("utf-8")) == []


@pytest.mark.parametrize(
    ("module", "source", "wrong"),
    [
        ("cases.case", "from kvcanon.conformance.check import play", ["check.play"]),
        ("cases.case", "def late():\n    import kvcanon.conformance.cli", ["cli"]),
        (
            "judge.from_outside.tree.evict",
            f"from {PREFIX}judge.from_outside.request.state import A",
            1,
        ),
        ("check.play", f"from {PREFIX}judge.from_outside.tree.guard import BlackboxGuard", 0),
    ],
)
def test_wrong_imports_are_found(module: str, source: str, wrong: list[str] | int) -> None:
    """An import of a later room or of a part that stands apart is found, and no other."""
    found = wrong_imports(module, source)
    assert (found if isinstance(wrong, list) else len(found)) == wrong


def test_top_holds_rooms_and_api_alone() -> None:
    """At the top of conformance/ stand the API, its errors, the pytest plugin, and the rooms."""
    files = {path.stem for path in CONFORMANCE.glob("*.py")}
    rooms = {path.parent.name for path in CONFORMANCE.glob("*/__init__.py")}
    assert files == {"__init__", "errors"}
    assert rooms | files - {"__init__"} == set(ROOMS)


def test_public_names_can_be_imported() -> None:
    """Each name of the API is found where the package says, once, and documented there."""
    assert sorted(conformance.__all__) == sorted(conformance._HOMES)
    for name in conformance.__all__:
        assert getattr(conformance, name).__doc__, name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        conformance.nothing  # noqa: B018


def pages() -> list[Path]:
    """The README, the docs and the examples."""
    return [ROOT / "README.md", *sorted(DOCS.rglob("*.md")), *sorted(DOCS.rglob("*.py"))]


@pytest.mark.parametrize("page", pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_docs_import_the_public_api_alone(page: Path) -> None:
    """Docs and examples import names of the API from kvcanon.conformance itself."""
    deep = [
        line
        for line in page.read_text("utf-8").splitlines()
        if line.strip().startswith((f"from {PREFIX}", f"import {PREFIX}"))
    ]
    assert deep == []


def class_names() -> Counter[str]:
    """How often each name of a class is given in the five trees."""
    return Counter(
        node.name
        for tree in ("spec", "reference", "optimized", "live", "conformance", "lab")
        for path in sorted((ROOT / tree).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ClassDef)
    )


def test_no_class_name_is_given_twice() -> None:
    """A class name means one class in the whole tree."""
    assert [name for name, times in class_names().items() if times > 1] == []
