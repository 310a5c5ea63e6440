"""The mutation operators: the small changes that a program makes to Python.

Each operator takes a node of a syntax tree and yields its replacements, each with the name of the
change. Nothing is changed here: `finder` says where, and `planted_package` applies a change.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from typing import TypeAlias

Change: TypeAlias = tuple[str, ast.AST]
"""The name of a change, and the node that it puts there."""
Operator: TypeAlias = Callable[[ast.AST], Iterator[Change]]

COMPARISONS: Mapping[type[ast.cmpop], tuple[str, type[ast.cmpop]]] = {
    ast.Lt: ("lt-le", ast.LtE),
    ast.LtE: ("le-lt", ast.Lt),
    ast.Gt: ("gt-ge", ast.GtE),
    ast.GtE: ("ge-gt", ast.Gt),
    ast.Eq: ("eq-ne", ast.NotEq),
    ast.NotEq: ("ne-eq", ast.Eq),
    ast.Is: ("is-isnot", ast.IsNot),
    ast.IsNot: ("isnot-is", ast.Is),
    ast.In: ("in-notin", ast.NotIn),
    ast.NotIn: ("notin-in", ast.In),
}

OPPOSITES = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)
"""Comparisons whose swap is their negation."""

ARITHMETIC: Mapping[type[ast.operator], tuple[str, type[ast.operator]]] = {
    ast.Add: ("add-sub", ast.Sub),
    ast.Sub: ("sub-add", ast.Add),
    ast.Mult: ("mul-div", ast.FloorDiv),
    ast.FloorDiv: ("div-mul", ast.Mult),
}

SWAPPED_NAMES: Mapping[str, str] = {
    "min": "max",
    "max": "min",
    "any": "all",
    "all": "any",
    "GPU": "CPU",
    "CPU": "GPU",
    "FULL": "SWA",
    "SWA": "MAMBA",
    "MAMBA": "FULL",
}
"""Names that are swapped for another name of the same kind."""

SWAPPED_MEMBERS: Mapping[tuple[str, str], str] = {
    ("Direction", "BACKUP"): "LOAD_BACK",
    ("Direction", "LOAD_BACK"): "BACKUP",
    ("WritePolicy", "WRITE_BACK"): "WRITE_THROUGH",
    ("TransferStatus", "DONE"): "FAILED",
    ("TransferStatus", "FAILED"): "CANCELLED",
    ("TransferStatus", "CANCELLED"): "DONE",
    ("LoadDecision", "NOTHING_TO_LOAD"): "BELOW_THRESHOLD",
    ("LoadDecision", "BELOW_THRESHOLD"): "OVER_QUOTA",
    ("LoadDecision", "OVER_QUOTA"): "NO_ROOM",
    ("LoadDecision", "NO_ROOM"): "OVER_QUOTA",
    ("LoadDecision", "ENQUEUED"): "NO_ROOM",
}
"""Enum members that are swapped for another member."""

WRAPPERS = frozenset({"sorted", "reversed"})
"""Calls that only order their argument."""

UNCHANGED_KEYWORDS = frozenset({"strict"})
"""Keywords that only detect mistakes; without them a right program does the same."""


def swap_comparison(node: ast.AST) -> Iterator[Change]:
    """`<` for `<=`, `==` for `!=`, `is` for `is not`, `in` for `not in`, and back."""
    if isinstance(node, ast.Compare):
        for at, each in enumerate(node.ops):
            if type(each) in COMPARISONS:
                name, other = COMPARISONS[type(each)]
                changed = deepcopy(node)
                changed.ops[at] = other()
                yield name, changed


def swap_arithmetic(node: ast.AST) -> Iterator[Change]:
    """`+` for `-` and `*` for `//`, and back."""
    if isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in ARITHMETIC:
        name, other = ARITHMETIC[type(node.op)]
        changed = deepcopy(node)
        changed.op = other()
        yield name, changed


def change_constant(node: ast.AST) -> Iterator[Change]:
    """Changes a number by one up and down, negates a truth value, and puts () in place of None."""
    if not isinstance(node, ast.Constant):
        return
    value = node.value
    if isinstance(value, bool):
        yield "flip", ast.Constant(not value)
    elif isinstance(value, int):
        yield "plus-one", ast.Constant(value + 1)
        yield "minus-one", ast.Constant(value - 1)
    elif value is None:
        yield "none-empty", ast.Tuple([], ast.Load())


def force_condition(node: ast.AST) -> Iterator[Change]:
    """The condition of a statement or expression: negated, always true, always false."""
    if isinstance(node, ast.If | ast.While | ast.IfExp):
        for name, test in _forced(node.test):
            changed = deepcopy(node)
            changed.test = test
            yield name, changed
    elif isinstance(node, ast.comprehension):
        for at, condition in enumerate(node.ifs):
            for name, test in _forced(condition):
                filtered = deepcopy(node)
                filtered.ifs[at] = test
                yield name, filtered


def _forced(test: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if not _has_opposite(test):
        yield "negate", ast.UnaryOp(ast.Not(), deepcopy(test))
    yield "true", ast.Constant(value=True)
    yield "false", ast.Constant(value=False)


def _has_opposite(test: ast.expr) -> bool:
    """Whether another operator negates it."""
    if isinstance(test, ast.Compare):
        return len(test.ops) == 1 and isinstance(test.ops[0], OPPOSITES)
    return isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)


def change_logic(node: ast.AST) -> Iterator[Change]:
    """`and` for `or` and back, one operand dropped, `not` dropped."""
    if isinstance(node, ast.BoolOp):
        name = "and-or" if isinstance(node.op, ast.And) else "or-and"
        swapped = deepcopy(node)
        swapped.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield name, swapped
        for at in range(len(node.values)):
            kept = [deepcopy(each) for index, each in enumerate(node.values) if index != at]
            yield "drop-operand", kept[0] if len(kept) == 1 else ast.BoolOp(node.op, kept)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "drop-not", deepcopy(node.operand)


def change_call(node: ast.AST) -> Iterator[Change]:
    """Two adjacent arguments swapped, a keyword dropped, `sorted` and `reversed` dropped."""
    if not isinstance(node, ast.Call):
        return
    for at in range(len(node.args) - 1):
        if not any(isinstance(each, ast.Starred) for each in node.args[at : at + 2]):
            swapped = deepcopy(node)
            swapped.args[at], swapped.args[at + 1] = swapped.args[at + 1], swapped.args[at]
            yield "swap-arguments", swapped
    for at, keyword in enumerate(node.keywords):
        if keyword.arg is not None and keyword.arg not in UNCHANGED_KEYWORDS:
            dropped = deepcopy(node)
            del dropped.keywords[at]
            yield "drop-keyword", dropped
    if isinstance(node.func, ast.Name) and node.func.id in WRAPPERS and node.args:
        yield "drop-order", deepcopy(node.args[0])


def shift_slice(node: ast.AST) -> Iterator[Change]:
    """A bound of a slice one further and one back, and a slice that reverses dropped.

    A bound that is a number is a constant, and changed as such.
    """
    if not (isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice)):
        return
    cut = node.slice
    if cut.step is not None:
        yield "drop-order", deepcopy(node.value)
        return
    for name, shift in (("plus-one", ast.Add()), ("minus-one", ast.Sub())):
        if cut.lower is not None and not isinstance(cut.lower, ast.Constant):
            lower = ast.BinOp(deepcopy(cut.lower), shift, ast.Constant(1))
            yield f"lower-{name}", _sliced(node, ast.Slice(lower, cut.upper))
        if cut.upper is not None and not isinstance(cut.upper, ast.Constant):
            upper = ast.BinOp(deepcopy(cut.upper), shift, ast.Constant(1))
            yield f"upper-{name}", _sliced(node, ast.Slice(cut.lower, upper))


def _sliced(node: ast.Subscript, cut: ast.Slice) -> ast.Subscript:
    return ast.Subscript(deepcopy(node.value), deepcopy(cut), node.ctx)


def swap_name(node: ast.AST) -> Iterator[Change]:
    """`min` for `max`, one medium or component for another, one member of an enumeration."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        if node.id in SWAPPED_NAMES:
            other = SWAPPED_NAMES[node.id]
            yield f"{node.id}-{other}".lower(), ast.Name(other, ast.Load())
    elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        member = SWAPPED_MEMBERS.get((node.value.id, node.attr))
        if member is not None:
            changed = deepcopy(node)
            changed.attr = member
            yield f"{node.attr}-{member}".lower().replace("_", ""), changed


def remove_statement(node: ast.AST) -> Iterator[Change]:
    """A call, a deletion, a jump, or an assignment to a name with a value already, removed."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield "remove-call", ast.Pass()
    elif isinstance(node, ast.Assign | ast.AugAssign):
        yield "remove-assignment", ast.Pass()
    elif isinstance(node, ast.Delete):
        yield "remove-del", ast.Pass()
    elif isinstance(node, ast.Return | ast.Break | ast.Continue):
        yield f"remove-{type(node).__name__.lower()}", ast.Pass()


OPERATORS: tuple[Operator, ...] = (
    swap_comparison,
    swap_arithmetic,
    change_constant,
    force_condition,
    change_logic,
    change_call,
    shift_slice,
    swap_name,
    remove_statement,
)


def changes_of(node: ast.AST) -> Iterator[Change]:
    """All changes of a node, by all operators."""
    for operator in OPERATORS:
        yield from operator(node)
