"""Seeded faults: small mistakes in kernels and steps, each of which its claims must refute.

What readers get wrong: a claim that is confirmed may claim nothing. That it refutes a plausible
mistake is what shows that it says something; so every claim is paired with a fault here.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import CodeType

from attrs import frozen

from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.verify.prove.claim import Function


@frozen
class Seeded:
    """A fault: what stands in a function's body, and what stands there instead."""

    where: str
    """The function, as module.name."""
    was: str
    becomes: str
    refuted_by: tuple[str, ...]
    """Claims that cannot hold then."""

    @property
    def function(self) -> str:
        """The name of the function."""
        return self.where.rpartition(".")[2]


@contextmanager
def planted(seeded: Seeded) -> Iterator[None]:
    """Replace a function by a faulty one, for all its callers. Raises: UsageError."""
    module, _, name = seeded.where.rpartition(".")
    function = getattr(import_module(module), name)
    sound = function.__code__
    function.__code__ = _faulty(function, seeded)
    try:
        yield
    finally:
        function.__code__ = sound


def _faulty(function: Function, seeded: Seeded) -> CodeType:
    """The code of a function with the fault in it; its contract stays as it is."""
    lines = inspect.getsource(function).splitlines(keepends=True)
    definition = next(
        each for each in ast.walk(ast.parse("".join(lines))) if isinstance(each, ast.FunctionDef)
    )
    begin = definition.body[1].lineno - 1
    contract, body = "".join(lines[:begin]), "".join(lines[begin:])
    if body.count(seeded.was) != 1:
        raise UsageError(
            f"{seeded.where} has {seeded.was!r} {body.count(seeded.was)} times, not once"
        )
    # CrossHair reads the contract where the code says that it begins.
    offset = "\n" * (function.__code__.co_firstlineno - 1)
    text = offset + contract + body.replace(seeded.was, seeded.becomes)
    text = f"from __future__ import annotations;{text}"
    names = dict(function.__globals__)
    # The text is that of a function of ours.
    exec(compile(text, function.__code__.co_filename, "exec"), names)  # noqa: S102
    code: CodeType = names[function.__name__].__code__
    return code
