"""Triage: failures that one fault most likely causes become one, and the shortest comes first.

A fault is often broken law after broken law: it corrupts a state, which the laws of states show at
once, and answers and events only later. So a failure that was seen from outside also has the laws
that its case breaks by then when it is judged by the cache's states (`Failure.inside`). Two
failures have most likely one cause if they break the same law, after the same kind of call or by
states.

That is a guess: a folded failure keeps its case and its script.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from attrs import evolve

from kvcanon.conformance.search.campaign import length_of
from kvcanon.conformance.search.result import Failure

AFTER_SAME_CALL = "after the same call"


def folded(failures: Iterable[Failure]) -> tuple[Failure, ...]:
    """Fold failures with most likely one cause into the shortest of them; the shortest first."""
    causes: list[list[Failure]] = []
    for failure in sorted(failures, key=length_of):
        cause, why = next(_causes_of(failure, causes), (None, ""))
        if cause is None:
            causes.append([failure])
        else:
            cause.append(evolve(failure, why_folded=why))
    return tuple(evolve(first, folded=tuple(rest)) for first, *rest in causes)


def _causes_of(
    failure: Failure, causes: Iterable[list[Failure]]
) -> Iterator[tuple[list[Failure], str]]:
    """The causes that most likely explain a failure, each with the reason."""
    for cause in causes:
        for each in cause:
            why = _shared(each, failure)
            if why:
                yield cause, why


def _shared(one: Failure, other: Failure) -> str:
    """Why two failures most likely have one cause; empty if they do not."""
    ours, theirs = one.finding, other.finding
    if one.case == other.case and ours.operation == theirs.operation:
        return AFTER_SAME_CALL
    if ours.after == theirs.after and (theirs.name in one.laws or ours.name in other.laws):
        return f"after the same operation, {theirs.after}"
    both = [law_id for law_id in sorted(other.inside) if law_id in one.inside]
    return f"judged by states, its case breaks {both[0]} by then" if both else ""
