"""Finds places: where the plain cache can be changed, and the id of each change.

An id has the function, the change, and the number of that change in the function, as in
`insert._merge:max-min:1`. An edit elsewhere keeps the id.

Imports, annotations, decorators, docstrings, asserts, error texts and the modules `engine` and
`store_queue` are not changed: the judge uses its own engine and queue, never the copy.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache

from attrs import evolve, frozen

from kvcanon.conformance.errors import UsageError
from kvcanon.lab.mutants.operators import UNCHANGED_KEYWORDS, changes_of
from kvcanon.lab.mutants.place import MutantPlace
from kvcanon.lab.mutants.signatures import are_of_one_type
from kvcanon.lab.mutants.sources import module_names, source_of

UNCHANGED = frozenset({"__init__", "engine", "store_queue"})
"""Modules that are not mutated."""

LEFT_OUT = (ast.Assert, ast.Import, ast.ImportFrom, ast.JoinedStr)
FIELDS_LEFT_OUT = frozenset({"annotation", "returns", "decorator_list"})


@frozen
class _Spot:
    """A node, with its position in the syntax tree."""

    parent: ast.AST
    field: str
    index: int | None
    function: str
    statement: ast.stmt
    named: frozenset[str]
    """Names that the function assigns before this statement."""

    @property
    def node(self) -> ast.AST:
        """The node at this position."""
        value = getattr(self.parent, self.field)
        found: ast.AST = value if self.index is None else value[self.index]
        return found

    def put(self, node: ast.AST) -> None:
        """Replace the node."""
        if self.index is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.index] = node


@cache
def all_places() -> dict[str, MutantPlace]:
    """Every place of the plain cache, by id."""
    modules = [name for name in module_names() if name not in UNCHANGED]
    places = (place for name in modules for place in places_in(name, source_of(name)))
    return {place.place_id: place for place in places}


def places_in(module: str, source: str) -> Iterator[MutantPlace]:
    """The places of a module, in the order of its text."""
    for place, _, _ in _changes(module, ast.parse(source)):
        yield place


def changed_tree(module: str, source: str, place_id: str) -> ast.Module:
    """The tree of a module with one change made. Raises: UsageError."""
    tree = ast.parse(source)
    for place, spot, replacement in _changes(module, tree):
        if place.place_id == place_id:
            spot.put(replacement)
            return ast.fix_missing_locations(tree)
    raise UsageError(f"{module} has no place {place_id!r}")


def _changes(module: str, tree: ast.Module) -> Iterator[tuple[MutantPlace, _Spot, ast.AST]]:
    counted: Counter[str] = Counter()
    for spot in _spots(tree):
        node = spot.node
        for name, replacement in changes_of(node):
            if not _is_of_use(module, name, spot, replacement):
                continue
            prefix = f"{module}.{spot.function}:{name}"
            counted[prefix] += 1
            line = getattr(node, "lineno", spot.statement.lineno)
            old, new = _header(spot.statement), _changed_header(spot, replacement)
            place_id, path = f"{prefix}:{counted[prefix]}", f"reference/{module}.py"
            yield MutantPlace(place_id, path, line, old, new), spot, replacement


def _is_of_use(module: str, name: str, spot: _Spot, replacement: ast.AST) -> bool:
    """Whether a change tests the cache, and not only Python."""
    node = spot.node
    if name == "none-empty":
        # Changing None in a comparison only forces the condition, which is another operator.
        return not isinstance(spot.parent, ast.Compare)
    if name == "swap-arguments":
        return are_of_one_type(module, node, replacement)
    if name == "remove-return":
        return not (isinstance(spot.parent, ast.FunctionDef) and _is_last(spot))
    if name == "remove-assignment" and isinstance(node, ast.Assign):
        return all(_has_value(target, spot.named) for target in node.targets)
    return True


def _is_last(spot: _Spot) -> bool:
    return spot.index == len(getattr(spot.parent, spot.field)) - 1


def _has_value(target: ast.expr, named: frozenset[str]) -> bool:
    """Whether the target of an assignment has a value already."""
    if isinstance(target, ast.Tuple):
        return all(_has_value(each, named) for each in target.elts)
    return not isinstance(target, ast.Name) or target.id in named


def _header(statement: ast.AST) -> str:
    """The text of a statement; only the first line if it has a body."""
    lines = ast.unparse(ast.fix_missing_locations(statement)).splitlines()
    return next(line for line in lines if not line.startswith("@"))


def _changed_header(spot: _Spot, replacement: ast.AST) -> str:
    node = spot.node
    if node is spot.statement:
        return _header(replacement)
    spot.put(replacement)
    try:
        return _header(spot.statement)
    finally:
        spot.put(node)


# The walk.


def _spots(tree: ast.Module) -> Iterator[_Spot]:
    """Every node that may be changed, in the order of the text."""
    for index, statement in enumerate(tree.body):
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            yield from _inside(_Spot(tree, "body", index, "", statement, frozenset()))


def _inside(spot: _Spot) -> Iterator[_Spot]:
    node = spot.node
    if isinstance(node, LEFT_OUT) or _is_docstring(node) or _is_assert(node):
        return
    if isinstance(node, ast.stmt):
        spot = evolve(spot, statement=node)
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        name = f"{spot.function}.{node.name}".lstrip(".")
        spot = evolve(spot, function=name, named=_arguments(node))
    elif spot.function:
        yield spot
    for field, value in ast.iter_fields(node):
        if field in FIELDS_LEFT_OUT or (isinstance(node, ast.ClassDef) and field != "body"):
            continue
        if isinstance(value, ast.AST):
            yield from _inside(evolve(spot, parent=node, field=field, index=None))
        elif isinstance(value, list):
            yield from _inside_list(spot, node, field, value)


def _inside_list(spot: _Spot, node: ast.AST, field: str, values: list[object]) -> Iterator[_Spot]:
    for index, each in enumerate(values):
        if not isinstance(each, ast.AST):
            continue
        if isinstance(node, ast.ClassDef) and not _is_behaviour(each):
            continue
        yield from _inside(evolve(spot, parent=node, field=field, index=index))
        if isinstance(each, ast.stmt):
            spot = evolve(spot, named=spot.named | _names_assigned(each))


def _is_behaviour(statement: ast.AST) -> bool:
    """Whether a statement of a class is a method, or the constant that a field starts with."""
    if isinstance(statement, ast.AnnAssign):
        return isinstance(statement.value, ast.Constant)
    return isinstance(statement, ast.FunctionDef)


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_assert(node: ast.AST) -> bool:
    """Whether an argument of this name only makes mistakes show, as `strict` of `zip`."""
    return isinstance(node, ast.keyword) and node.arg in UNCHANGED_KEYWORDS


def _arguments(node: ast.FunctionDef | ast.ClassDef) -> frozenset[str]:
    if isinstance(node, ast.ClassDef):
        return frozenset()
    named = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
    return frozenset(each.arg for each in named)


def _names_assigned(statement: ast.stmt) -> frozenset[str]:
    return frozenset(
        each.id
        for each in ast.walk(statement)
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
    )
