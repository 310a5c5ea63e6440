"""Triage: failures that one fault most likely causes become one, and the shortest comes first.

Failures with one fingerprint, or of one call, are the same failure. Of others it is a guess.

A fault is often broken law after broken law: it corrupts a state, which the laws of states show at
once, and answers and events only later. So a failure that was seen from outside also has the laws
that its case breaks by then when it is judged by the cache's states (`Failure.inside`). Two
failures have most likely one cause if they break the same law, after the same kind of call or by
states.

A cache that shows no states tells less. There the area of the laws decides, or a case that has the
actions of a shorter one and shows something rare.

All of that is a guess: a folded failure keeps its case and its script.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from attrs import evolve

from kvcanon.conformance.cases.case import Case
from kvcanon.conformance.check.result import AFTER_SAME_CALL, Failure
from kvcanon.spec.law import LAWS

RARE = 4
"""How many times more often a failure has to be found to explain one with a longer case."""


def length_of(failure: Failure) -> tuple[bool, int, int]:
    """How long a failure is to read: the number of its operations, and of its actions.

    A failure of a call that must be refused counts as longer: it tells less.
    """
    finding = failure.finding
    return finding.is_unlawful_call, finding.operation, len(failure.case.actions)


def distinct(failures: Iterable[Failure]) -> tuple[Failure, ...]:
    """Keep the shortest failure of each fingerprint and of each case, the shortest first.

    A case is named after the law for which it was found most often. A longer one is also kept if it
    alone breaks some law, and is named after that law.
    """
    kept: list[Failure] = []
    for failure in sorted(failures, key=length_of):
        same = [each for each in kept if each.finding.fingerprint == failure.finding.fingerprint]
        same += [each for each in kept if _is_same_call(each, failure)]
        if not same:
            kept.append(failure)
            continue
        kept[kept.index(same[0])] = _merged(same[0], failure)
        cache = failure.finding.cache
        shown = {law_id for each in kept if each.finding.cache == cache for law_id in each.laws}
        only_here = [law_id for law_id in failure.finding.broken if law_id not in shown]
        if only_here:
            kept.append(evolve(failure, finding=failure.finding.of_law(only_here[0])))
    return tuple(kept)


def _merged(kept: Failure, other: Failure) -> Failure:
    """The failure that is kept of two that show the same."""
    more_often = kept.case == other.case and other.times > kept.times
    return evolve(other if more_often else kept, times=kept.times + other.times)


def _is_same_call(one: Failure, other: Failure) -> bool:
    """Whether two failures break the same laws at the same call of the same case."""
    ours, theirs = one.finding, other.finding
    same_laws = bool(ours.broken) and set(ours.broken) == set(theirs.broken)
    same_place = one.case == other.case and ours.operation == theirs.operation
    return same_laws and same_place and ours.cache == theirs.cache


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
    if both:
        return f"judged by states, its case breaks {both[0]} by then"
    return "" if one.inside or other.inside else _shared_outside(one, other)


def _shared_outside(one: Failure, other: Failure) -> str:
    """As `_shared`, for failures of which states tell nothing."""
    areas = {LAWS[law_id].area for law_id in one.laws} & {
        LAWS[law_id].area for law_id in other.laws
    }
    if areas:
        return f"as a law of the same area, {min(areas)}"
    if other.times * RARE <= one.times and _has_actions_of(other.case, one.case):
        return "as its case has the same actions, and more"
    return ""


def _has_actions_of(case: Case, shorter: Case) -> bool:
    """Whether a case has all actions of a shorter one, in their order, by name."""
    names = iter(action.name for action in case.actions)
    return bool(shorter.actions) and all(action.name in names for action in shorter.actions)
