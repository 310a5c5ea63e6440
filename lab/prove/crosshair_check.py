"""CrossHair: runs a claim's function on symbols, and says whether its contract can be broken.

By default CrossHair also checks the contracts of the functions that are called. Here it does not:
each oracle function's contract is a claim of its own, and checking it at every call multiplies the
paths. Claims are settled up to a hundred times sooner so, and may call an oracle function beyond
its own bounds.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from inspect import signature
from time import process_time
from types import FunctionType
from typing import TypeVar, get_args, get_origin, get_type_hints

from crosshair.core import ConditionCheckable
from crosshair.core_and_libs import AnalysisMessage, MessageType, analyze_function
from crosshair.options import AnalysisKind, AnalysisOptionSet

from kvcanon.conformance.errors import UsageError
from kvcanon.lab.prove.claim import Claim, Function
from kvcanon.lab.prove.verdict import Proof, ProofVerdict, Solver

VERDICTS = {
    MessageType.CONFIRMED: ProofVerdict.CONFIRMED,
    MessageType.CANNOT_CONFIRM: ProofVerdict.NOT_CONFIRMED,
    MessageType.PRE_UNSAT: ProofVerdict.UNREACHABLE,
    MessageType.POST_FAIL: ProofVerdict.REFUTED,
    MessageType.POST_ERR: ProofVerdict.REFUTED,
    MessageType.EXEC_ERR: ProofVerdict.REFUTED,
}

_CALL = re.compile(r"when calling \w+(\(.*?\))(?: \(which returns .*\))?$", re.DOTALL)


def prove(claim: Claim, at: int, budget_s: float) -> Proof:
    """Settle one `post:` line of a claim, in so many seconds. Raises: UsageError."""
    options = AnalysisOptionSet(
        per_condition_timeout=budget_s, report_all=True, analysis_kind=(AnalysisKind.PEP316,)
    )
    lines = analyze_function(of_integers(claim.function()), options)
    checkable = lines[at] if at < len(lines) else None
    if len(lines) != len(claim.post) or not isinstance(checkable, ConditionCheckable):
        raise UsageError(f"the contract of {claim.name} cannot be read: {lines}")
    return _settle(claim, checkable)


def _settle(claim: Claim, checkable: ConditionCheckable) -> Proof:
    paths: Counter[str] = Counter()
    # Contracts of called functions are not looked for; this one's own has been read by now.
    checkable.options = replace(checkable.options, analysis_kind=(), stats=paths)
    (post,) = checkable.conditions.post
    began = process_time()
    message = max(checkable.analyze(), key=lambda each: each.state)
    seconds = process_time() - began
    verdict, found = _read(claim, post.expr_source, message)
    return Proof(
        claim=claim.name,
        post=post.expr_source,
        solver=Solver.CROSSHAIR,
        bounds=claim.pre,
        verdict=verdict,
        seconds=seconds,
        found=found,
        paths=paths["num_paths"],
    )


def _read(claim: Claim, post: str, message: AnalysisMessage) -> tuple[ProofVerdict, str]:
    """The verdict in CrossHair's message; an input that it found is tried in plain Python first.

    CrossHair takes two tuples for different where they differ only behind their ends, and so raises
    false alarms. It confirms nothing wrong by this: it tries the tuples that do not differ as well.
    """
    verdict = VERDICTS.get(message.state)
    if verdict is None:
        raise UsageError(f"the contract of {claim.name} cannot be read: {message.message}")
    if verdict in {ProofVerdict.CONFIRMED, ProofVerdict.NOT_CONFIRMED}:
        return verdict, ""
    if verdict is ProofVerdict.REFUTED and not breaks(claim, post, message.message):
        return ProofVerdict.NOT_CONFIRMED, f"a false alarm: {message.message}"
    return verdict, message.message


def breaks(claim: Claim, post: str, message: str) -> bool:
    """Whether the input that a message names really breaks a claim; yes where it cannot be read."""
    function = claim.function()
    names = function.__globals__
    call = _CALL.search(message)
    if call is None:
        return True
    try:
        # The text is a call of our own function, which CrossHair has just made up.
        bound = eval(f"_bound{call[1]}", {**names, "_bound": signature(function).bind})  # noqa: S307
    except (SyntaxError, NameError):
        return True
    values = dict(bound.arguments)

    def holds(line: str) -> bool:
        return bool(eval(line, {**names, **values}))  # noqa: S307  A line of our own docstring.

    try:
        allowed = all(map(holds, claim.pre))
        values["__return__"] = function(*bound.args, **bound.kwargs)
        return allowed and not holds(post)
    except Exception:  # noqa: BLE001  A claim that raises does not hold, whatever it raises.
        return True


def of_integers(function: Function) -> Function:
    """A function over items of any type, as one over integers: what it does is to compare them."""
    hints = get_type_hints(function)
    if not any(_is_generic(hint) for hint in hints.values()):
        return function
    copy = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__
    )
    copy.__module__, copy.__qualname__ = function.__module__, function.__qualname__
    copy.__annotations__ = {name: _with_integers(hint) for name, hint in hints.items()}
    return copy


def _is_generic(hint: object) -> bool:
    return isinstance(hint, TypeVar) or any(_is_generic(each) for each in get_args(hint))


def _with_integers(hint: object) -> object:
    if isinstance(hint, TypeVar):
        return int
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is None:
        return hint
    return origin[tuple([_with_integers(each) for each in arguments])]
