"""Signatures: finds which two arguments of a call have the same type, and can be swapped.

Two swapped arguments of different types only crash. Such changes test Python and not the laws, so
they are not made.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from functools import cache
from importlib import import_module

import attrs

from kvcanon.lab.mutants.sources import PACKAGE, module_names, source_of

Types = tuple[str, ...]
"""The annotations of a function's arguments, in their order."""

OF_ONE_TYPE = frozenset({"range", "zip"})
"""Built-in functions whose arguments have one type and an order that matters."""


def are_of_one_type(module: str, call: ast.AST, swapped: ast.AST) -> bool:
    """Whether the two swapped arguments of a call have the same type, and are not strings."""
    if not (isinstance(call, ast.Call) and isinstance(swapped, ast.Call)):
        return False
    pairs = zip(map(ast.dump, call.args), map(ast.dump, swapped.args), strict=True)
    moved = [at for at, (one, other) in enumerate(pairs) if one != other]
    if not moved or any(_is_text(call.args[at]) for at in moved):
        return False
    if isinstance(call.func, ast.Name) and call.func.id in OF_ONE_TYPE:
        return True
    types = _types_of(module, call.func)
    return moved[1] < len(types) and types[moved[0]] == types[moved[1]]


def _is_text(argument: ast.expr) -> bool:
    if isinstance(argument, ast.Constant):
        return isinstance(argument.value, str)
    return isinstance(argument, ast.JoinedStr)


def _types_of(module: str, function: ast.expr) -> Types:
    """The argument types of a function, if it is one of the plain cache."""
    if isinstance(function, ast.Attribute):
        return methods().get(function.attr, ())
    name = function.id if isinstance(function, ast.Name) else ""
    known = getattr(import_module(f"{PACKAGE}.{module}"), name, None)
    if not inspect.isfunction(known) and not (inspect.isclass(known) and attrs.has(known)):
        return ()
    arguments = inspect.signature(known).parameters.values()
    return tuple(str(each.annotation) for each in arguments)


@cache
def methods() -> Mapping[str, Types]:
    """The methods of the plain cache, by name, without `self`."""
    nodes = (node for name in module_names() for node in ast.walk(ast.parse(source_of(name))))
    return {
        node.name: tuple(ast.unparse(each.annotation or each) for each in node.args.args[1:])
        for node in nodes
        if isinstance(node, ast.FunctionDef) and _is_method(node)
    }


def _is_method(node: ast.FunctionDef) -> bool:
    return [each.arg for each in node.args.args[:1]] == ["self"]
