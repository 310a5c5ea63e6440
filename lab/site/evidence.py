"""What is known about each law besides its text: who planted faults, explored, proved, and found.

The figures are those of pages that other commands write, so that no page says two things: the kill
matrix (`kvcanon lab mutants`), the exploration (`kvcanon explore`), and the proofs
(`kvcanon lab prove`).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import CodeType, FunctionType
from typing import get_args

from attrs import frozen

from kvcanon.conformance.errors import UsageError
from kvcanon.spec.law import LAWS, Law
from kvcanon.spec.operations import Operation, method_of

ORACLE = "kvcanon.spec.oracle."
_ROW = re.compile(r"^\| (?P<cells>.+) \|$", re.MULTILINE)
_STEP_FILES = "lab/prove/steps"


@frozen
class MatrixRow:
    """How soon each way of judging found a mutant: a row of the kill matrix."""

    law_id: str
    """The law that it was made to break."""
    by_states: str
    from_outside: str
    compared: str
    machine: str
    vector: str


@frozen
class Explored:
    """In which scopes a law was exercised, with every state visited."""

    premise: str
    scopes: str


@frozen
class ProvedClaim:
    """A claim about an oracle function or a step, and what a solver says of it."""

    name: str
    words: str
    contracts: str
    verdicts: tuple[str, ...]


@frozen
class LawEvidence:
    """What docs/ says of laws."""

    hunted: Mapping[str, MatrixRow]
    """By mutant."""
    explored: Mapping[str, Explored]
    """By law."""
    claims: Mapping[str, ProvedClaim]
    """By name."""
    step_claims: Mapping[str, tuple[str, ...]]
    """Names of the claims about steps that keep a law, by law."""


def read_evidence(checkout: Path) -> LawEvidence:
    """Read the pages of a checkout. Raises: UsageError: a page has not the table expected."""
    docs = checkout / "docs"
    evidence = LawEvidence(
        _read_matrix((docs / "mutants.md").read_text("utf-8")),
        _read_explored((docs / "explore.md").read_text("utf-8")),
        _read_claims((docs / "prove.md").read_text("utf-8")),
        _read_step_claims(checkout / _STEP_FILES),
    )
    if not (evidence.hunted and evidence.explored and evidence.claims and evidence.step_claims):
        raise UsageError(f"{docs} lacks a table that the pages of laws are made from")
    return evidence


def claims_about(law: Law, evidence: LawEvidence) -> Iterator[ProvedClaim]:
    """The claims about the oracle functions that a law calls, and about steps that keep it."""
    names = dict.fromkeys(oracle_functions(law))
    calls = [re.compile(rf"(?<![\w.]){name}\(") for name in names]
    steps = evidence.step_claims.get(law.law_id, ())
    for claim in evidence.claims.values():
        about = claim.name in names or any(call.search(claim.contracts) for call in calls)
        if about or claim.name in steps:
            yield claim


def oracle_functions(law: Law) -> list[str]:
    """The names of the oracle functions that the code of a law calls."""
    called = _called(inspect.unwrap(law.check))
    return sorted({each.__name__ for each in called if each.__module__.startswith(ORACLE)})


def operations_of(law: Law) -> list[str]:
    """The methods of the operations that the code or the premise of a law names."""
    values: set[object] = set()
    for function in (inspect.unwrap(law.check), law.premise.is_met):
        if isinstance(function, FunctionType):
            values |= {each for each in _globals(function) if isinstance(each, type)}
    return [method_of(each) for each in all_operations() if each in values]


def all_operations() -> tuple[type[Operation], ...]:
    """The operations, in the order of the spec."""
    return get_args(Operation)


def _called(function: FunctionType) -> set[FunctionType]:
    """The functions of the spec that a function calls, and those that they call."""
    found: set[FunctionType] = set()
    waiting = [function]
    while waiting:
        for value in _globals(waiting.pop()):
            if (
                isinstance(value, FunctionType)
                and value.__module__.startswith("kvcanon.spec.")
                and value not in found
            ):
                found.add(value)
                if not value.__module__.startswith(ORACLE):
                    waiting.append(value)
    return found


def _globals(function: FunctionType) -> Iterator[object]:
    """What the names in a function's code stand for, where they stand for something global."""
    for name in _names(function.__code__):
        if name in function.__globals__:
            value = function.__globals__[name]
            yield (
                inspect.unwrap(value) if callable(value) and not isinstance(value, type) else value
            )
        for module in (function.__globals__.get("situations"), function.__globals__.get("bounds")):
            if module is not None and hasattr(module, name):
                yield getattr(module, name)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from _names(const)


def _rows(text: str) -> Iterator[list[str]]:
    for match in _ROW.finditer(text):
        yield match["cells"].split(" | ")


def _read_matrix(text: str) -> dict[str, MatrixRow]:
    found = {}
    for cells in _rows(text):
        name = re.match(r"`(\w+)`", cells[0])
        if name and len(cells) == 8 and cells[1] in LAWS:
            _, law_id, _, states, outside, compared, machine, vector = cells
            found[name[1]] = MatrixRow(law_id, states, outside, compared, machine, vector)
    return found


def _read_explored(text: str) -> dict[str, Explored]:
    found = {}
    for cells in _rows(text.partition("## Where each law was exercised")[2]):
        law_id = cells[0].partition(" ")[0]
        if len(cells) == 3 and law_id in LAWS:
            found[law_id] = Explored(cells[1], cells[2])
    return found


def _read_claims(text: str) -> dict[str, ProvedClaim]:
    found: dict[str, ProvedClaim] = {}
    for cells in _rows(text):
        name = re.match(r"`(\w+)`(?:: (.+))?", cells[0])
        if name is None or len(cells) != 5:
            continue
        bound, verdict = cells[2], cells[3]
        before = found.get(name[1], ProvedClaim(name[1], name[2] or "", cells[1], ()))
        words = f"{verdict}, within {bound.replace('<br>', ', ')}"
        found[name[1]] = ProvedClaim(
            before.name, before.words, before.contracts, (*before.verdicts, words)
        )
    return found


def _read_step_claims(folder: Path) -> dict[str, tuple[str, ...]]:
    """Each module of steps names the laws that its steps keep in its first line."""
    found: dict[str, list[str]] = {}
    for path in sorted(folder.glob("*.py")):
        text = path.read_text("utf-8")
        claims = re.findall(r"^def ([a-z]\w+)\(", text, re.MULTILINE)
        for law_id in _ids(text.partition("\n")[0]):
            found.setdefault(law_id, []).extend(claims)
    return {law_id: tuple(names) for law_id, names in found.items()}


def _ids(text: str) -> Iterable[str]:
    return [law_id for law_id in re.findall(r"[A-Z]+-[0-9]+", text) if law_id in LAWS]
