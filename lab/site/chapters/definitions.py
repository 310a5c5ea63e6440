"""What spec/ defines: each class, function, constant and alias, with its text, read from the code.

A definition is known by its full name, as `kvcanon.spec.types.Counts`; so is a member of a class,
as `kvcanon.spec.types.Counts.full`. Public definitions have a place in a chapter, all others only
a line in their file.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path

from attrs import evolve, field, frozen

ROOT = "kvcanon.spec"


class NameKind(StrEnum):
    """What a name stands for."""

    CLASS = "class"
    FUNCTION = "function"
    VALUE = "value"
    """A constant, an alias of a type, or a field."""


@frozen
class Definition:
    """A name of spec/ and its text."""

    full_name: str
    kind: NameKind
    file: str
    """As "spec/types.py"."""
    line: int
    text: str
    """The docstring, or the string below a value; empty if there is none."""
    node: ast.ClassDef | ast.FunctionDef | ast.Assign | ast.AnnAssign = field(eq=False, repr=False)
    members: tuple[Definition, ...] = ()
    """Of a class: its fields, properties and methods."""

    @property
    def name(self) -> str:
        """The last part of its full name."""
        return self.full_name.rpartition(".")[2]

    @property
    def is_public(self) -> bool:
        """Whether a reader is meant to know it: neither private nor a variable for types."""
        if any(part.startswith("_") for part in self.full_name.split(".")):
            return False
        value = getattr(self.node, "value", None)
        return not (isinstance(value, ast.Call) and ast.unparse(value.func) == "TypeVar")


@frozen
class Module:
    """A module of spec/."""

    name: str
    """As "kvcanon.spec.types"."""
    file: str
    text: str
    definitions: tuple[Definition, ...]
    imports: Mapping[str, str]
    """The full name of each imported name."""

    @property
    def title(self) -> str:
        """What it is about: the first line of its docstring, without the number of a chapter."""
        first = self.text.partition("\n")[0].rstrip(".")
        chapter, dot, rest = first.partition(". ")
        return rest if dot and chapter.startswith("Chapter") else first


def read_modules(checkout: Path) -> dict[str, Module]:
    """Every module of spec/, by its name."""
    return {
        module.name: module
        for path in sorted((checkout / "spec").rglob("*.py"))
        for module in (_module(path, checkout),)
    }


def _module(path: Path, checkout: Path) -> Module:
    file = path.relative_to(checkout)
    parts = file.with_suffix("").parts
    name = ".".join(("kvcanon", *(part for part in parts if part != "__init__")))
    tree = ast.parse(path.read_text("utf-8"))
    found = tuple(_definitions(tree.body, name, str(file)))
    imports = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }
    return Module(name, str(file), ast.get_docstring(tree) or "", found, imports)


def _definitions(body: Sequence[ast.stmt], within: str, file: str) -> Iterator[Definition]:
    for each, after in zip(body, [*body[1:], None], strict=True):
        match each:
            case ast.ClassDef():
                text = ast.get_docstring(each) or ""
                full = f"{within}.{each.name}"
                members = (
                    *_set_by_init(each, full, file),
                    *_definitions(each.body, full, file),
                )
                yield Definition(full, NameKind.CLASS, file, each.lineno, text, each, members)
            case ast.FunctionDef():
                text = ast.get_docstring(each) or ""
                full = f"{within}.{each.name}"
                yield Definition(full, NameKind.FUNCTION, file, each.lineno, text, each)
            case ast.Assign() | ast.AnnAssign():
                for name in _targets(each):
                    full = f"{within}.{name}"
                    yield Definition(full, NameKind.VALUE, file, each.lineno, _below(after), each)


def _set_by_init(node: ast.ClassDef, within: str, file: str) -> Iterator[Definition]:
    """The attributes that `__init__` sets and says something about."""
    for method in node.body:
        if isinstance(method, ast.FunctionDef) and method.name == "__init__":
            for each, after in zip(method.body, [*method.body[1:], None], strict=True):
                match each:
                    case (
                        ast.Assign(targets=[ast.Attribute(attr=name)])
                        | ast.AnnAssign(target=ast.Attribute(attr=name))
                    ) if text := _below(after):
                        full = f"{within}.{name}"
                        yield Definition(full, NameKind.VALUE, file, each.lineno, text, each)


def _targets(node: ast.Assign | ast.AnnAssign) -> Iterator[str]:
    """The names that an assignment sets; those of `A, B = ...` too."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    for target in targets:
        parts = target.elts if isinstance(target, ast.Tuple) else [target]
        yield from (part.id for part in parts if isinstance(part, ast.Name))


def _below(after: ast.stmt | None) -> str:
    """The string below a value, which says what it is."""
    if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
        text = after.value.value
        return " ".join(text.split()) if isinstance(text, str) else ""
    return ""


def by_full_name(modules: Mapping[str, Module]) -> dict[str, Definition]:
    """Every definition and every member of a class, by its full name."""
    found: dict[str, Definition] = {}
    for module in modules.values():
        for each in module.definitions:
            found[each.full_name] = _first(found.get(each.full_name), each)
            for member in each.members:
                found.setdefault(member.full_name, member)
    return found


def _first(known: Definition | None, new: Definition) -> Definition:
    """Overloads and a function have one name; it is at the line of the first one."""
    return new if known is None else evolve(new, line=known.line)


def resolve(name: str, modules: Mapping[str, Module]) -> str:
    """The full name under which a name is defined: one that is imported on is followed."""
    for _ in range(4):
        module, _, last = name.rpartition(".")
        if module not in modules or any(d.name == last for d in modules[module].definitions):
            return name
        if last not in modules[module].imports:
            return name
        name = modules[module].imports[last]
    return name
