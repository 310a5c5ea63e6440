"""z3: runs a claim's function on terms, and says whether its contract can be broken.

A function without branches can be called with terms in the place of numbers and flags. It returns a
formula that describes its answer for every tree of a size at once, and z3 settles the formula over
integers without bounds.

The function and the contract are the same as for CrossHair. Only the first `pre:` line, which
bounds sizes, gives way to the size that the docstring names.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from time import process_time
from typing import get_args, get_origin, get_type_hints

import z3

from kvcanon.conformance.errors import UsageError
from kvcanon.lab.prove.claim import Claim, Function
from kvcanon.lab.prove.verdict import Proof, ProofVerdict, Solver

Term = object
"""An expression of z3, or a tuple of them."""


def prove(claim: Claim, at: int, budget_s: float) -> Proof:
    """Settle one `post:` line of a claim that names a size, in `budget_s`. Raises: UsageError."""
    if claim.terms is None:
        raise UsageError(f"{claim.name} names no size; give it a line that begins terms:")
    function = claim.function()
    began = process_time()
    arguments = _arguments(function, claim.terms)
    pre = [_evaluate(function, line, arguments) for line in claim.pre[1:]]
    returned = function(**arguments)
    post = _evaluate(function, claim.post[at], {**arguments, "__return__": returned})
    verdict, found = _settle(pre, post, arguments, budget_s)
    return Proof(
        claim=claim.name,
        post=claim.post[at],
        solver=Solver.Z3,
        bounds=(f"tuples of {claim.terms}", *claim.pre[1:]),
        verdict=verdict,
        seconds=process_time() - began,
        found=found,
    )


def _settle(
    pre: list[z3.BoolRef], post: z3.BoolRef, arguments: Mapping[str, Term], budget_s: float
) -> tuple[ProofVerdict, str]:
    solver = z3.Solver()
    solver.set("timeout", int(budget_s * 1000))
    solver.add(*pre)
    reachable = solver.check()
    if reachable == z3.unsat:
        return ProofVerdict.UNREACHABLE, "no input is within the bounds"
    if reachable == z3.unknown:
        return ProofVerdict.NOT_CONFIRMED, solver.reason_unknown()
    solver.add(z3.Not(post))
    answer = solver.check()
    if answer == z3.sat:
        return ProofVerdict.REFUTED, _input(solver.model(), arguments)
    if answer == z3.unsat:
        return ProofVerdict.CONFIRMED, ""
    return ProofVerdict.NOT_CONFIRMED, solver.reason_unknown()


def _arguments(function: Function, size: int) -> dict[str, Term]:
    """A term for each argument, and a tuple of them for each tuple."""
    hints = get_type_hints(function)
    return {name: _term(name, hints[name], size) for name in inspect.signature(function).parameters}


def _term(name: str, hint: object, size: int) -> Term:
    if hint is bool:
        return z3.Bool(name)
    if hint is int:
        return z3.Int(name)
    if get_origin(hint) is tuple and get_args(hint)[1:] == (Ellipsis,):
        return tuple([_term(f"{name}.{at}", get_args(hint)[0], size) for at in range(size)])
    if get_origin(hint) is tuple:
        return tuple([_term(f"{name}.{at}", each, size) for at, each in enumerate(get_args(hint))])
    raise UsageError(f"{name}: {hint} has no terms; use int, bool, or tuples of these")


def _evaluate(function: Function, line: str, values: Mapping[str, Term]) -> z3.BoolRef:
    """A line of a contract, of terms."""
    # The text is that of a function of ours, and CrossHair reads it in the same way.
    value = eval(line, {**function.__globals__, **values})  # noqa: S307
    return value if isinstance(value, z3.BoolRef) else z3.BoolVal(bool(value))


def _input(model: z3.ModelRef, arguments: Mapping[str, Term]) -> str:
    """The input of a counterexample, as a call would have it."""

    def value(term: Term) -> object:
        if isinstance(term, tuple):
            return tuple([value(each) for each in term])
        found = model.eval(term, model_completion=True)
        return z3.is_true(found) if isinstance(found, z3.BoolRef) else found.as_long()

    return ", ".join(f"{name} = {value(term)!r}" for name, term in arguments.items())
