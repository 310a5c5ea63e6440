"""Mutants of the functions that claims speak of: each claim must refute one of them.

A claim that is confirmed may claim nothing. That it refutes a small mistake shows that it says
something. The mistakes are made by `mutants.operators`, and by a few more operators for code that
has no branches: it joins flags by `&` and `|`, and passes them through calls.
"""

from __future__ import annotations
import __future__

import ast
import inspect
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from itertools import zip_longest
from types import CodeType, FunctionType

from attrs import frozen

from kvcanon.conformance.errors import UsageError
from kvcanon.lab.mutants.operators import Change, changes_of
from kvcanon.lab.prove.claim import PROVING, Claim, ClaimKind, Function, names_in, oracle_functions
from kvcanon.spec import oracle

COARSE = ("remove", "true", "false", "flip", "drop-call")
"""How the changes begin that are tried last: they break more than a slip of the pen would."""

ORACLE = oracle.__name__
KNOWN: Mapping[str, tuple[str, str]] = {
    "usable_prefix_ignores_cuts": (f"{ORACLE}.prefix.usable_prefix", "negate:1"),
    "usable_prefix_grows_with_data": (f"{ORACLE}.prefix.usable_prefix", "add-sub:1"),
    "backed_up_chain_is_empty": (f"{ORACLE}.backup.backup_chain", "negate:1"),
    "policy_key_is_the_policy": (f"{ORACLE}.eviction.policy_key", "ge-gt:1"),
    "policy_key_lies_between_corners": (f"{ORACLE}.eviction.policy_key", "order-eq:1"),
    "use_makes_leave_later": (f"{ORACLE}.eviction.policy_key", "drop-sign:1"),
    "streams_fold_in_parts": (f"{ORACLE}.folding.fold_page", "skip-first:1"),
    "ended_copy_stands_on_what_arrived": (f"{PROVING}.trees.is_first", "eq-ne:1"),
    "failed_copy_leaves_nothing_on_it": (
        f"{PROVING}.steps.copies.failed_copy_leaves_nothing_on_it",
        "drop-call:6",
    ),
    "insert_grounds_device": (f"{PROVING}.trees.path_to", "drop-order:1"),
    "load_back_grounds_device": (f"{PROVING}.trees.path_to", "drop-order:1"),
    "eviction_grounds_device": (f"{ORACLE}.eviction.may_leave_device", "drop-bits:3"),
    "host_eviction_grounds_host": (f"{ORACLE}.eviction.may_leave_host", "drop-bits:3"),
    "backup_grounds_host": (f"{PROVING}.trees.path_to", "drop-order:1"),
    "host_insert_grounds_host": (f"{PROVING}.trees.path_to", "drop-order:1"),
}
"""By claim: a function and a change that it refutes, where a search would take long."""


@frozen
class FunctionMutant:
    """A function with one change."""

    where: str
    """The function, as module.name."""
    change: str
    """The operator, and which of its changes in this function it is: `lt-le:1`."""
    was: str
    """The line that the change is in."""
    becomes: str
    code: CodeType


def candidates(claim: Claim) -> Iterator[FunctionMutant]:
    """The mutants that a claim may refute: of all that its function runs, small changes first."""
    if claim.name in KNOWN:
        yield mutant_of(*KNOWN[claim.name])
    for function in _functions_under(claim):
        yield from sorted(mutants_of(function), key=lambda each: each.change.startswith(COARSE))


def mutants_of(function: Function) -> Iterator[FunctionMutant]:
    """Every mutant of a function whose body begins with a docstring."""
    tree = ast.parse(inspect.getsource(function))
    # CrossHair reads a contract at the line where the code says that its function begins.
    ast.increment_lineno(tree, function.__code__.co_firstlineno - 1)
    (definition,) = tree.body
    where = f"{function.__module__}.{function.__name__}"
    sound, counted = ast.unparse(tree), Counter[str]()
    for parent, field, index in _positions(definition):
        node = getattr(parent, field) if index is None else getattr(parent, field)[index]
        for name, replacement in (*changes_of(node), *_more_changes(node)):
            if name == "none-empty" and isinstance(parent, ast.Compare):
                continue  # Nothing is `()`, so that it would be the condition that is forced.
            counted[name] += 1
            _put(parent, field, index, replacement)
            code, changed = _compile(tree, function), ast.unparse(tree)
            _put(parent, field, index, node)
            was, becomes = _changed_line(sound, changed)
            yield FunctionMutant(where, f"{name}:{counted[name]}", was, becomes, code)


def mutant_of(where: str, change: str) -> FunctionMutant:
    """One mutant of a function, which is given as module.name. Raises: UsageError."""
    for mutant in mutants_of(_function_at(where)):
        if mutant.change == change:
            return mutant
    raise UsageError(f"{where} has no change {change!r}; drop it from KNOWN, or name another")


@contextmanager
def planted(mutant: FunctionMutant) -> Iterator[None]:
    """Put a mutant in the place of its function, for all callers."""
    function = _function_at(mutant.where)
    sound = function.__code__
    function.__code__ = mutant.code
    try:
        yield
    finally:
        function.__code__ = sound


def _function_at(where: str) -> Function:
    module, _, name = where.rpartition(".")
    function = getattr(import_module(module), name)
    assert isinstance(function, FunctionType)  # noqa: S101
    return function


def _functions_under(claim: Claim) -> list[Function]:
    """A step or a contract itself, then the helpers and oracle functions that its code calls.

    What is claimed of oracle functions is a line that calls them: only they are changed.
    """
    function = claim.function()
    called = [function.__globals__.get(name) for name in function.__code__.co_names]
    own = [function] if claim.kind in {ClaimKind.CONTRACT, ClaimKind.STEP} else []
    helpers = [
        each
        for each in called
        if isinstance(each, FunctionType) and each.__module__.startswith(PROVING)
    ]
    named = names_in(function)
    functions = [each for name, each in oracle_functions().items() if name in named]
    functions.sort(key=lambda each: each not in called)
    if claim.kind is ClaimKind.CONTRACT:
        return own
    return [*own, *(helpers if claim.kind is ClaimKind.STEP else ()), *functions]


def _more_changes(node: ast.AST) -> Iterator[Change]:
    """`&` for `|` and back, an operand, a call or a sign dropped, `==`, and the first skipped."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd | ast.BitOr):
        other = ast.BitOr() if isinstance(node.op, ast.BitAnd) else ast.BitAnd()
        yield "swap-bits", ast.BinOp(node.left, other, node.right)
        yield "drop-bits", node.left
        yield "drop-bits", node.right
    elif isinstance(node, ast.Call):
        for argument in node.args:
            if not isinstance(argument, ast.Starred):
                yield "drop-call", argument
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield "drop-sign", node.operand
    elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Lt | ast.Gt | ast.GtE):
        yield "order-eq", ast.Compare(node.left, [ast.Eq(), *node.ops[1:]], node.comparators)
    elif isinstance(node, ast.For):
        rest = ast.Subscript(node.iter, ast.Slice(ast.Constant(1)), ast.Load())
        yield "skip-first", ast.For(node.target, rest, node.body, node.orelse)


def _positions(definition: ast.stmt) -> Iterator[tuple[ast.AST, str, int | None]]:
    """Where each node of a function's body stands: its parent, the field, and the index there."""
    assert isinstance(definition, ast.FunctionDef)  # noqa: S101
    for at, statement in list(enumerate(definition.body))[1:]:
        yield definition, "body", at
        for parent in ast.walk(statement):
            for field, value in ast.iter_fields(parent):
                if field == "annotation":
                    continue
                if isinstance(value, ast.AST):
                    yield parent, field, None
                elif isinstance(value, list):
                    yield from ((parent, field, index) for index in range(len(value)))


def _put(parent: ast.AST, field: str, index: int | None, node: ast.AST) -> None:
    if index is None:
        setattr(parent, field, node)
    else:
        getattr(parent, field)[index] = node


def _changed_line(sound: str, changed: str) -> tuple[str, str]:
    """The first line in which two texts differ, in each of them."""
    lines = zip_longest(sound.splitlines(), changed.splitlines(), fillvalue="")
    was, becomes = next((pair for pair in lines if pair[0] != pair[1]), ("", ""))
    return was.strip(), becomes.strip()


def _compile(tree: ast.Module, function: Function) -> CodeType:
    ast.fix_missing_locations(tree)
    flags = __future__.annotations.compiler_flag
    names = dict(function.__globals__)
    # The text is that of a function of ours.
    code = compile(tree, function.__code__.co_filename, "exec", flags, dont_inherit=True)
    exec(code, names)  # noqa: S102
    changed: CodeType = names[function.__name__].__code__
    return changed
