"""Claims: functions with a contract for a solver, and how a contract is read.

A claim is a function whose docstring has lines `pre:`, `post:` and perhaps `terms:`. Every `post:`
is settled on its own. Claims are the oracle functions, and every public function with a contract in
the modules listed here. A contract speaks of what its function returns.

The bounds of a claim are its `pre:` lines and nothing else. The first of them bounds sizes: it
comes first because a solver that knows the sizes has far less to try.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from importlib import import_module
from pkgutil import iter_modules
from types import FunctionType, ModuleType

from attrs import frozen

from kvcanon.conformance.errors import UsageError
from kvcanon.spec import oracle

Function = FunctionType


class ClaimKind(StrEnum):
    """What is claimed."""

    CONTRACT = "contract"
    """An oracle function keeps its own docstring."""
    EQUIVALENCE = "equivalence"
    """An oracle function is what its second definition says."""
    PROPERTY = "property"
    """Several oracle functions fit together."""
    STEP = "step"
    """Where a law holds, and an operation is allowed, the law holds afterwards."""


PROVING = "kvcanon.lab.prove"
STEPS = ("copies", "locks", "residency", "room", "slots")
MODULES: Mapping[ClaimKind, tuple[str, ...]] = {
    ClaimKind.CONTRACT: tuple(
        f"{oracle.__name__}.{each.name}" for each in iter_modules(oracle.__path__)
    ),
    ClaimKind.EQUIVALENCE: (f"{PROVING}.equivalence",),
    ClaimKind.PROPERTY: (f"{PROVING}.properties",),
    ClaimKind.STEP: tuple(f"{PROVING}.steps.{name}" for name in STEPS),
}


@frozen
class Claim:
    """A function with a contract."""

    name: str
    kind: ClaimKind
    module: str
    says: str
    """The first sentence of its docstring."""
    pre: tuple[str, ...]
    post: tuple[str, ...]
    terms: int | None
    """How long the tuples of terms are that z3 settles it for; None for CrossHair alone."""

    def function(self) -> Function:
        """The function itself."""
        found = getattr(import_module(self.module), self.name)
        if not isinstance(found, FunctionType):
            raise UsageError(
                f"{self.module}.{self.name} is no function; a claim is a function with a contract"
            )
        return found


def claims() -> dict[str, Claim]:
    """All claims by name, in the order of the table."""
    found: dict[str, Claim] = {}
    for kind, modules in MODULES.items():
        for module in modules:
            for name, function in public_functions(import_module(module)):
                if kind is not ClaimKind.CONTRACT and not _lines(
                    inspect.getdoc(function) or "", "post"
                ):
                    continue  # A helper that claims are written with.
                if name in found:
                    raise UsageError(f"two claims are named {name!r}; give each a name of its own")
                found[name] = read_claim(kind, function)
    return found


def oracle_functions() -> dict[str, Function]:
    """The public functions of `spec/oracle/`, by name."""
    return {
        name: function
        for module in MODULES[ClaimKind.CONTRACT]
        for name, function in public_functions(import_module(module))
    }


def public_functions(module: ModuleType) -> Iterator[tuple[str, Function]]:
    """The functions that a module defines for others, in the order of its text."""
    own = [
        (name, function)
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__ and not name.startswith("_")
    ]
    yield from sorted(own, key=lambda item: item[1].__code__.co_firstlineno)


def read_claim(kind: ClaimKind, function: Callable[..., object]) -> Claim:
    """A claim as its docstring has it. Raises: UsageError."""
    text = inspect.getdoc(function) or ""
    sizes = _lines(text, "terms")
    claim = Claim(
        name=function.__name__,
        kind=kind,
        module=function.__module__,
        says=text.partition("\n\n")[0].replace("\n", " "),
        pre=_lines(text, "pre"),
        post=_lines(text, "post"),
        terms=int(sizes[0]) if sizes else None,
    )
    if not claim.post:
        raise UsageError(
            f"{claim.module}.{claim.name} claims nothing; give it a line that begins post:"
        )
    return claim


def names_in(function: Function) -> set[str]:
    """The names in a function's code and contract, and in those of its helpers in this room."""
    found: set[str] = set()
    unread = [function]
    while unread:
        each = unread.pop()
        new = _names_of(each) - found
        found |= new
        named = [each.__globals__.get(name) for name in new]
        unread += [
            helper
            for helper in named
            if isinstance(helper, FunctionType) and helper.__module__.startswith(PROVING)
        ]
    return found


def _names_of(function: Function) -> set[str]:
    text = inspect.getdoc(function) or ""
    contract = " ".join((*_lines(text, "pre"), *_lines(text, "post")))
    code = ast.walk(ast.parse(inspect.getsource(function)))
    return {
        *re.findall(r"\w+", contract),
        *(each.id for each in code if isinstance(each, ast.Name)),
    }


def _lines(text: str, word: str) -> tuple[str, ...]:
    begin = f"{word}: "
    return tuple(
        line.removeprefix(begin).strip() for line in text.splitlines() if line.startswith(begin)
    )
