"""The sources of the plain cache, module by module."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import kvcanon.reference

PACKAGE = kvcanon.reference.__name__
FOLDER = Path(kvcanon.reference.__path__[0])


@cache
def source_of(module: str) -> str:
    """The text of a module."""
    return (FOLDER / f"{module}.py").read_text(encoding="utf-8")


def module_names() -> list[str]:
    """The names of all modules, with `__init__`."""
    return sorted(path.stem for path in FOLDER.glob("*.py"))
