"""The table of rooms in docs/architecture.md: what each room holds, and which rooms import it.

The words are the first paragraph of the room's docstring, and the order that of the layers in
pyproject.toml; so the page says what the code says.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

TREES = ("conformance", "lab")


def room_table(checkout: Path) -> Iterator[str]:
    """The table of the rooms, those first that import the fewest others."""
    rooms = [*_layers(checkout), *_rooms_of_lab(checkout)]
    importers = _importers(checkout)
    yield "| room | what it holds | imported by |"
    yield "|---|---|---|"
    for room in rooms:
        by = dict.fromkeys(_short(each, room) for each in rooms if each in importers.get(room, ()))
        file = _file_of(checkout, room)
        words = (ast.get_docstring(ast.parse(file.read_text("utf-8"))) or "").split("\n\n")[0]
        link = f"[`{room}`](../{file.relative_to(checkout)})"
        yield f"| {link} | {' '.join(words.split())} | {', '.join(by)} |"


def _short(importer: str, room: str) -> str:
    """The name of a room within its tree; of the lab its name alone, if it imports the judge."""
    tree, _, name = importer.partition("/")
    return name if room.startswith(tree) else tree


def _layers(checkout: Path) -> list[str]:
    """The rooms of conformance/, each after those that it may import."""
    project = tomllib.loads((checkout / "pyproject.toml").read_text("utf-8"))
    (layers,) = (
        contract["layers"]
        for contract in project["tool"]["importlinter"]["contracts"]
        if contract.get("containers") == ["kvcanon.conformance"]
    )
    return [f"conformance/{room}" for room in reversed(layers)]


def _rooms_of_lab(checkout: Path) -> list[str]:
    return sorted(f"lab/{path.parent.name}" for path in checkout.glob("lab/*/__init__.py"))


def _file_of(checkout: Path, room: str) -> Path:
    package = checkout / room / "__init__.py"
    return package if package.exists() else checkout / f"{room}.py"


def _importers(checkout: Path) -> dict[str, set[str]]:
    """For each room the rooms that import it, at their top or late."""
    found: dict[str, set[str]] = {}
    for tree in TREES:
        for path in sorted((checkout / tree).rglob("*.py")):
            room = _room_of(path.relative_to(checkout).with_suffix("").parts)
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.ImportFrom) and node.module:
                    for alias in node.names:
                        there = _room_of(tuple(f"{node.module}.{alias.name}".split(".")[1:]))
                        found.setdefault(there, set()).update({room} - {there})
    return found


def _room_of(parts: tuple[str, ...]) -> str:
    return "/".join(parts[:2])
