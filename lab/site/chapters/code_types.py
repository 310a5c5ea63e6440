"""What the names in a function stand for: full names of spec/, found from the types of values.

Types come from the annotations of spec/ itself: of parameters, fields, properties and functions.
A value whose type does not follow from them has no full name for its attributes. It is never
guessed from the name of an attribute, since `full` is a field of four classes.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import reduce
from inspect import isclass
from operator import or_
from types import FunctionType, GenericAlias, ModuleType, UnionType
from typing import Any, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

from attrs import define, field, frozen

from kvcanon.spec.difference import Difference
from kvcanon.spec.law import Bounds, Stream
from kvcanon.spec.snapshot import NodeState, Snapshot, kept
from kvcanon.spec.views import Step

Hint: TypeAlias = Any
"""A type, as an annotation has it."""

Place: TypeAlias = tuple[int, int]
"""The line of a name, from 1, and its column."""


@frozen
class Known:
    """A value that is known itself: a class, a function or a module."""

    value: object


USUAL: Mapping[str, Hint] = {
    "state": Snapshot, "step": Step, "stream": Stream, "node": NodeState, "run": Bounds,
    "difference": Difference,
}  # fmt: skip
"""What a parameter without an annotation is: those of lambdas have these names all over spec/."""


@define
class Reader:
    """Reads a function, and notes the full name of each name and attribute that has one."""

    module: ModuleType
    found: dict[Place, str] = field(factory=dict)
    types: dict[str, Hint] = field(factory=dict)
    """Of the names that the function binds."""

    def read(self, node: ast.AST) -> None:
        """Read a tree, in the order in which it runs."""
        match node:
            case ast.FunctionDef() | ast.Lambda():
                self._function(node)
            case ast.Assign() | ast.AnnAssign() | ast.NamedExpr():
                self._assignment(node)
            case ast.For() | ast.comprehension():
                self.read(node.iter)
                self._bind(node.target, element(self.type_of(node.iter)))
                self._children(node, but=("iter",))
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                for each in node.generators:
                    self.read(each)
                self._children(node, but=("generators",))
            case ast.Call(func=ast.Name(id="isinstance"), args=[value, kind]):
                self._children(node)
                self.types[ast.unparse(value)] = self._as_hint(kind)
            case ast.Name() | ast.Attribute():
                self._note(node)
            case _:
                self._children(node)

    def _assignment(self, node: ast.Assign | ast.AnnAssign | ast.NamedExpr) -> None:
        if node.value is not None:
            self.read(node.value)
        hint = self.type_of(node.value)
        if isinstance(node, ast.AnnAssign):
            self.read(node.annotation)
            hint = self._annotated(node.annotation)
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            self._bind(target, hint)
            self.read(target)

    def _children(self, node: ast.AST, but: tuple[str, ...] = ()) -> None:
        for name, value in ast.iter_fields(node):
            for each in value if isinstance(value, list) else [value]:
                if isinstance(each, ast.AST) and name not in but:
                    self.read(each)

    def _function(self, node: ast.FunctionDef | ast.Lambda) -> None:
        arguments = node.args
        for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
            hint = USUAL.get(each.arg)
            if each.annotation is not None:
                hint = self._annotated(each.annotation) or hint
            if hint is not None:
                self.types[each.arg] = hint
        self._children(node)

    def _note(self, node: ast.Name | ast.Attribute) -> None:
        if isinstance(node, ast.Attribute):
            self.read(node.value)
            name = self._attribute(node)
            place = node.end_lineno or 0, (node.end_col_offset or 0) - len(node.attr)
        else:
            name = "" if node.id in self.types else self._global(node.id)
            place = node.lineno, node.col_offset
        if name:
            self.found[place] = name

    def _global(self, name: str) -> str:
        """The full name of a global name, of whatever module: the reader of names follows it."""
        if hasattr(builtins, name) or not hasattr(self.module, name):
            return ""
        value = getattr(self.module, name)
        return value.__name__ if isinstance(value, ModuleType) else f"{self.module.__name__}.{name}"

    def _attribute(self, node: ast.Attribute) -> str:
        owner = self.type_of(node.value)
        if isinstance(owner, Known) and isinstance(owner.value, ModuleType):
            return f"{owner.value.__name__}.{node.attr}"
        kinds = [owner.value] if isinstance(owner, Known) else [*classes_of(owner)]
        for base in (base for kind in kinds if isclass(kind) for base in kind.__mro__):
            if node.attr in vars(base) or node.attr in vars(base).get("__annotations__", {}):
                return f"{base.__module__}.{base.__qualname__}.{node.attr}"
        if len(kinds) == 1 and isclass(kinds[0]):  # What its `__init__` sets.
            return f"{kinds[0].__module__}.{kinds[0].__qualname__}.{node.attr}"
        return ""

    def type_of(self, node: ast.expr | None) -> Hint:
        """The type of an expression; None if it does not follow."""
        match node:
            case ast.Name(id=name):
                hint = self._type_of_name(name)
            case ast.Attribute():
                hint = self._type_of_attribute(node)
            case ast.Call():
                hint = self._type_of_call(node)
            case ast.Subscript(value=value, slice=index):
                owner = self.type_of(value)
                hint = owner if isinstance(index, ast.Slice | ast.Tuple) else item(owner, index)
            case ast.ListComp(elt=each) | ast.SetComp(elt=each) | ast.GeneratorExp(elt=each):
                hint = _series(self.type_of(each))
            case ast.DictComp(key=key, value=value):
                pair = get_args(_pair(self.type_of(key), self.type_of(value)))
                hint = GenericAlias(dict, pair)
            case ast.Tuple(elts=parts):
                hint = _pair(*map(self.type_of, parts))
            case _:
                hint = next(filter(None, map(self.type_of, _one_of(node))), None)
        return hint

    def _type_of_name(self, name: str) -> Hint:
        if name in self.types:
            return self.types[name]
        value = getattr(self.module, name, getattr(builtins, name, None))
        return Known(value) if _is_known(value) else _type_of_value(value)

    def _type_of_attribute(self, node: ast.Attribute) -> Hint:
        if (known := self.types.get(ast.unparse(node))) is not None:
            return known
        owner = self.type_of(node.value)
        if isinstance(owner, Known):
            value = getattr(owner.value, node.attr, None)
            return Known(value) if _is_known(value) else _type_of_value(value)
        for kind in classes_of(owner):
            hint = attribute_type(kind, node.attr)
            if hint is not None:
                return hint
        return _of_mapping(owner, node.attr)

    def _type_of_call(self, node: ast.Call) -> Hint:
        if isinstance(node.func, ast.Name) and node.args and node.func.id in SERIES:
            elements = [element(self.type_of(each)) for each in node.args]
            return SERIES[node.func.id](elements)
        called = self.type_of(node.func)
        if not isinstance(called, Known):
            return called  # A method of a mapping, whose type is that of its answer.
        return called.value if isclass(called.value) else _answer(called.value)

    def _annotated(self, node: ast.expr) -> Hint:
        try:
            return eval(ast.unparse(node), vars(self.module))  # noqa: S307  # Code of ours.
        except (NameError, AttributeError, TypeError):
            return None

    def _as_hint(self, node: ast.expr) -> Hint:
        kinds = self._annotated(node)
        return reduce(or_, kinds) if isinstance(kinds, tuple) else kinds

    def _bind(self, target: ast.expr, hint: Hint) -> None:
        match target:
            case ast.Name(id=name):
                self.types[name] = hint
            case ast.DictComp(key=key, value=value):
                pair = get_args(_pair(self.type_of(key), self.type_of(value)))
                hint = GenericAlias(dict, pair)
            case ast.Tuple(elts=parts):
                hints = parts_of(hint, len(parts))
                for part, each in zip(parts, hints, strict=True):
                    self._bind(part, each)


def names_in(code: str, module: str) -> dict[Place, str]:
    """The full names in a piece of code of a module, by where they stand in it."""
    reader = Reader(importlib.import_module(module))
    reader.read(ast.parse(code))
    return reader.found


def classes_of(hint: Hint) -> Iterator[type]:
    """The classes of which a value with this type can be."""
    if origin_of(hint) in (Union, UnionType):
        for each in get_args(hint):
            yield from classes_of(each)
    else:
        kind = origin_of(hint) or hint
        if isclass(kind) and kind is not type(None):
            yield kind


def attribute_type(kind: type, name: str) -> Hint:
    """The type of an attribute of a class of ours; a method is itself."""
    for base in kind.__mro__:
        if not base.__module__.startswith("kvcanon."):
            continue
        value = vars(base).get(name)
        if isinstance(value, kept):
            return _hints(value._compute).get("return")  # noqa: SLF001  # What it computes.
        if isinstance(value, property):
            return _hints(value.fget).get("return")
        if isinstance(value, FunctionType):
            return Known(value)
        hint = _hints(base).get(name)
        if hint is not None:
            return hint
    return None


def origin_of(hint: Hint) -> Any:  # noqa: ANN401  # A class, or a form of typing.
    """What a type with arguments is one of; None for a class."""
    return get_origin(hint)


def element(hint: Hint) -> Hint:
    """The type of what a value of this type is made of, one by one."""
    kind, arguments = origin_of(hint) or hint, get_args(hint)
    if isclass(kind) and "__iter__" in vars(kind) and kind.__module__.startswith("kvcanon."):
        return element(_hints(vars(kind)["__iter__"]).get("return"))
    return arguments[0] if arguments and kind not in (Union, UnionType) else None


def item(hint: Hint, index: ast.expr) -> Hint:
    """The type of `value[index]`."""
    kind, arguments = origin_of(hint) or hint, get_args(hint)
    if isclass(kind) and kind.__module__.startswith("kvcanon."):
        return _hints(getattr(kind, "__getitem__", None)).get("return")
    if kind is tuple and isinstance(index, ast.Constant) and isinstance(index.value, int):
        fixed = len(arguments) > index.value and arguments[-1] is not Ellipsis
        return arguments[index.value] if fixed else element(hint)
    return arguments[1] if len(arguments) == 2 and kind is not tuple else element(hint)


def parts_of(hint: Hint, count: int) -> tuple[Hint, ...]:
    """The types of the parts of a value that is unpacked into so many names."""
    arguments = get_args(hint)
    if isclass(hint) and hasattr(hint, "_fields"):
        arguments = tuple(_hints(hint).values())
    if origin_of(hint) is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        arguments = (arguments[0],) * count
    return arguments if len(arguments) == count else (None,) * count


def _of_mapping(owner: Hint, name: str) -> Hint:
    """The answer of a method of a mapping."""
    arguments = get_args(owner)
    if len(arguments) != 2 or origin_of(owner) is tuple:
        return None
    key, value = arguments
    answers = {
        "values": _series(value), "keys": _series(key), "items": _series(_pair(key, value)),
        "get": value, "pop": value, "setdefault": value,
    }  # fmt: skip
    return answers.get(name)


def _one_of(node: ast.expr | None) -> list[ast.expr]:
    """Expressions of which the value of another one is one, or is of the same type."""
    match node:
        case ast.BoolOp(values=values):
            return values
        case ast.IfExp(body=body, orelse=other):
            return [body, other]
        case ast.NamedExpr(value=value):
            return [value]
        case ast.BinOp(left=left):
            return [left]
    return []


def _series(hint: Hint) -> Hint:
    return None if hint is None or isinstance(hint, Known) else GenericAlias(Iterable, (hint,))


def _pair(*hints: Hint) -> Hint:
    known = (Any if each is None or isinstance(each, Known) else each for each in hints)
    return GenericAlias(tuple, tuple(known))


def _answer(function: object) -> Hint:
    hint = _hints(function).get("return")
    return None if isinstance(hint, TypeVar) else hint


def _is_known(value: object) -> bool:
    return isclass(value) or isinstance(value, FunctionType | ModuleType)


def _type_of_value(value: object) -> Hint:
    """The type of a constant of ours."""
    kind = type(value)
    return kind if kind.__module__.startswith("kvcanon.") else None


def _hints(owner: object) -> Mapping[str, Hint]:
    if not isinstance(owner, type | FunctionType | Callable):
        return {}
    names = vars(sys.modules[owner.__module__]) if hasattr(owner, "__module__") else {}
    try:
        return get_type_hints(owner, globalns=None if isclass(owner) else names)
    except (NameError, TypeError, AttributeError):
        return {}


def _same(elements: list[Hint]) -> Hint:
    return _series(elements[0])


SERIES: Mapping[str, Callable[[list[Hint]], Hint]] = {
    **dict.fromkeys(
        ("reversed", "sorted", "list", "tuple", "set", "frozenset", "iter", "islice", "chain"),
        _same,
    ),
    **dict.fromkeys(("min", "max", "next"), lambda elements: elements[0]),
    "enumerate": lambda elements: _series(_pair(int, elements[0])),
    "zip": lambda elements: _series(_pair(*elements)),
}
"""What functions make of series, by the types of the elements of their arguments."""
