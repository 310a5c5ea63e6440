"""Branches of the plain cache: finds them in its sources, and marks those that a case visits.

A branch is an arm of an `if`, a `while`, a conditional expression, a filter, or an operand of `and`
and `or`; the body of a `for` or of an `except`; or a whole function. Asserts have none: they state
what cannot be otherwise. Nor has `slots or ()`, which decides nothing.

The functions of the loaded modules get new code, in place, so that whatever calls them is counted.
It costs a third of the time of tracing every line.
"""

from __future__ import annotations

import ast
import inspect
from collections import Counter
from collections.abc import Callable, Iterator
from importlib import import_module
from types import CodeType, FunctionType, ModuleType
from typing import TypeVar

from attrs import frozen

from kvcanon.lab.mutants.sources import FOLDER, PACKAGE, module_names, source_of

VISITED, TOOK = "_kvcanon_visited", "_kvcanon_took"
"""Names that the new code calls."""
CALLED = "called"

Value = TypeVar("Value")

CallPath = int
"""The branches that a call visits: byte N of the number is 1 if it visits branch N."""


@frozen(order=True)
class Branch:
    """One branch of a source file."""

    path: str
    """The file, relative to the checkout."""
    line: int
    function: str
    """The qualified name of the function that it is in."""
    text: str
    """What decides, on one line."""
    arm: str
    """What the decision was."""

    def __str__(self) -> str:
        if self.arm == CALLED:
            return f"{self.path}:{self.line}: {self.function} is called"
        return f"{self.path}:{self.line}: `{self.text}` is {self.arm}"


class BranchMarks:
    """Marks of the branches that were visited since they were last taken."""

    def __init__(self, branches: tuple[Branch, ...]) -> None:
        self.branches = branches
        self._marks = bytearray(len(branches))

    def visited(self, at: int) -> None:
        """Mark a branch."""
        self._marks[at] = 1

    def took(self, value: Value, no: int) -> Value:
        """Mark the arm of a test, the false one or the next, and return its value."""
        self._marks[no + 1 if value else no] = 1
        return value

    def begin_call(self) -> bytes:
        """Put the marks aside, and begin anew; `end_call` takes them back."""
        earlier = bytes(self._marks)
        self._marks[:] = bytes(len(self._marks))
        return earlier

    def end_call(self, earlier: bytes) -> CallPath:
        """The branches that were marked since `begin_call`; they join those of earlier calls."""
        path = int.from_bytes(self._marks, "little")
        both = path | int.from_bytes(earlier, "little")
        self._marks[:] = both.to_bytes(len(self._marks), "little")
        return path

    def take(self) -> list[int]:
        """The numbers of the branches that were marked; begins anew."""
        taken = [at for at, mark in enumerate(self._marks) if mark]
        self._marks[:] = bytes(len(self._marks))
        return taken


class _Marker(ast.NodeTransformer):
    """Puts marks into the functions of one module."""

    def __init__(self, path: str, first: int) -> None:
        self._path, self._first = path, first
        self.branches: list[Branch] = []
        self._texts: Counter[tuple[str, str, str]] = Counter()
        """How often a function decides by a text: later times have their number in it."""
        self._names: list[str] = []
        """The names of the classes and functions around a node."""
        self._inside = False
        """Whether a function is around it."""

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return self._named(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        before, self._inside = self._inside, True
        self._names.append(node.name)
        mark = self._mark(node, node.name, CALLED)
        self._names.pop()
        self._named(node)
        documented = ast.get_docstring(node) is not None
        node.body.insert(int(documented), mark)
        self._inside = before
        return node

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        return node

    def visit_If(self, node: ast.If) -> ast.AST:
        return self._tested(node)

    def visit_While(self, node: ast.While) -> ast.AST:
        return node if isinstance(node.test, ast.Constant) else self._tested(node)

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        return self._tested(node)

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        tests = [self._test(each) for each in node.ifs]
        self.generic_visit(node)
        node.ifs = [self._took(*each) for each in zip(node.ifs, tests, strict=True)]
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        if isinstance(node.op, ast.Or) and isinstance(node.values[-1], ast.Constant | ast.Tuple):
            return self.generic_visit(node)
        tests = [self._test(each) for each in node.values[:-1]]
        self.generic_visit(node)
        taken = [self._took(*each) for each in zip(node.values, tests, strict=False)]
        node.values = [*taken, node.values[-1]]
        return node

    def visit_For(self, node: ast.For) -> ast.AST:
        mark = self._mark(
            node, f"for {ast.unparse(node.target)} in {ast.unparse(node.iter)}", "met"
        )
        self.generic_visit(node)
        node.body.insert(0, mark)
        return node

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        text = f"except {ast.unparse(node.type) if node.type else ''}".strip()
        mark = self._mark(node, text, "met")
        self.generic_visit(node)
        node.body.insert(0, mark)
        return node

    def _named(self, node: ast.ClassDef | ast.FunctionDef) -> ast.AST:
        self._names.append(node.name)
        self.generic_visit(node)
        self._names.pop()
        return node

    def _tested(self, node: ast.If | ast.While | ast.IfExp) -> ast.AST:
        test = self._test(node.test)
        self.generic_visit(node)
        node.test = self._took(node.test, test)
        return node

    def _branch(self, node: ast.AST, text: str, arm: str) -> int:
        line: int = getattr(node, "lineno", 0)
        function = ".".join(self._names)
        self._texts[function, text, arm] += 1
        times = self._texts[function, text, arm]
        text = text if times == 1 else f"{text} ({times})"
        self.branches.append(Branch(self._path, line, function, text, arm))
        return self._first + len(self.branches) - 1

    def _test(self, test: ast.expr) -> int:
        """Enter both arms of a test; the false one comes first. Returns -1 outside functions."""
        if not self._inside:
            return -1
        text = ast.unparse(test)
        no = self._branch(test, text, "false")
        self._branch(test, text, "true")
        return no

    def _took(self, test: ast.expr, no: int) -> ast.expr:
        return test if no < 0 else _call(TOOK, test, ast.Constant(no))

    def _mark(self, node: ast.AST, text: str, arm: str) -> ast.stmt:
        return ast.Expr(_call(VISITED, ast.Constant(self._branch(node, text, arm))))


def _call(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), list(arguments), [])


# New code for loaded modules.


def find_branches() -> tuple[Branch, ...]:
    """All branches of the plain cache."""
    return _marked()[0]


def _marked() -> tuple[tuple[Branch, ...], dict[str, ast.Module]]:
    """All branches, and the modules with marks in them."""
    branches: list[Branch] = []
    trees: dict[str, ast.Module] = {}
    for name in module_names():
        marker = _Marker(f"reference/{name}.py", len(branches))
        trees[name] = ast.fix_missing_locations(marker.visit(ast.parse(source_of(name))))
        branches += marker.branches
    return tuple(branches), trees


def watch_branches() -> BranchMarks:
    """Give the functions of the plain cache code that marks its branches, in this process."""
    branches, trees = _marked()
    marks = BranchMarks(branches)
    for name, tree in trees.items():
        module = import_module(PACKAGE if name == "__init__" else f"{PACKAGE}.{name}")
        vars(module)[VISITED], vars(module)[TOOK] = marks.visited, marks.took
        codes = dict(_codes_in(compile(tree, str(FOLDER / f"{name}.py"), "exec")))
        for function in _functions_of(module):
            function.__code__ = codes[function.__qualname__]
    return marks


def _codes_in(code: CodeType) -> Iterator[tuple[str, CodeType]]:
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield inner.co_qualname, inner
            yield from _codes_in(inner)


def _functions_of(module: ModuleType) -> Iterator[FunctionType]:
    """The functions and methods that a module defines in its source."""
    there = [each for each in vars(module).values() if _is_of(each, module)]
    classes = [each for each in there if inspect.isclass(each)]
    inner: list[object] = [each for one in classes for each in vars(one).values()]
    for each in [*there, *inner]:
        function = inspect.unwrap(each) if callable(each) else _getter(each)
        if isinstance(function, FunctionType) and function.__code__.co_filename == module.__file__:
            yield function


def _is_of(value: object, module: ModuleType) -> bool:
    return getattr(value, "__module__", None) == module.__name__


def _getter(value: object) -> Callable[..., object] | None:
    return value.fget if isinstance(value, property) else getattr(value, "__func__", None)
