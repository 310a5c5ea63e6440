"""The page of adapter parts lists every method, with its arguments, in the words of the code."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pkgutil import iter_modules

import pytest

from kvcanon import conformance
from kvcanon.conformance import adapter_parts
from paths import DOCS

PAGE = (DOCS / "adapter-parts.md").read_text("utf-8")


def parts() -> dict[str, object]:
    """The parts that adapters import from `kvcanon.conformance`, by name."""
    found: dict[str, object] = {}
    for each in iter_modules(adapter_parts.__path__):
        module = import_module(f"{adapter_parts.__name__}.{each.name}")
        found |= {
            name: part
            for name, part in vars(module).items()
            if getattr(part, "__module__", None) == module.__name__ and hasattr(conformance, name)
        }
    return found


PARTS = parts()
CLASSES = {
    name: each
    for name, each in PARTS.items()
    if inspect.isclass(each) and not issubclass(each, Exception)
}
FUNCTIONS = {name: each for name, each in PARTS.items() if inspect.isfunction(each)}


def arguments_of(function: object) -> str:
    """The names of the arguments, as a call writes them; "..." where one has a default."""
    given = []
    assert callable(function)
    for name, each in inspect.signature(function).parameters.items():
        if name != "self" and each.kind is not each.VAR_KEYWORD:
            given.append(name if each.default is each.empty else f"{name}=...")
    return ", ".join(given)


def row(name: str, function: object) -> str:
    """The row of a function or method."""
    sentence = (function.__doc__ or "").splitlines()[0]
    return f"| `{name}({arguments_of(function)})` | {sentence} |"


def methods_of(part: type) -> dict[str, object]:
    """The public methods of a part."""
    return {
        name: each
        for name, each in vars(part).items()
        if not name.startswith("_") and inspect.isfunction(each)
    }


def section(name: str) -> list[str]:
    """The rows of a section of the page."""
    text = re.split(rf"^## .*`{name}.*`$" if name else r"^## Functions$", PAGE, flags=re.MULTILINE)[
        1
    ]
    return [line for line in text.split("\n## ")[0].splitlines() if line.startswith("| `")]


@pytest.mark.parametrize("name", CLASSES)
def test_part_is_listed(name: str) -> None:
    """Each public method of a part has a row, and no other row is there."""
    part = CLASSES[name]
    assert isinstance(part, type)
    assert section(name) == [row(each, function) for each, function in methods_of(part).items()]


def test_functions_are_listed() -> None:
    """Each function has a row, and no other row is there."""
    assert section("") == [row(name, function) for name, function in FUNCTIONS.items()]
