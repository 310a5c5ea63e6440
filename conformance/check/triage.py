"""Triage: findings that one fault most likely causes become one, and the shortest comes first.

Findings with one fingerprint, or of one call, are the same finding. Of others it is a guess.

A fault is often broken law after broken law: it corrupts a state, which the laws of states show at
once, and answers and events only later. So a finding that was seen from outside also has the laws
that its case breaks by then when it is judged by the cache's states (`Finding.inside`). Two
findings have most likely one cause if they break the same law, after the same kind of call or by
states.

A cache that shows no states tells less. There the area of the laws decides, or a case that has the
actions of a shorter one and shows something rare.

All of that is a guess: a folded finding keeps its case and its script.

What a cache does comes before what it says about that: a wrong victim also breaks the order of the
events of its eviction. So laws of events name a finding only if no other law is broken at its call,
and a finding of another law leads one of events after the same kind of call. Where events alone
show both, the law of the graver class names the finding.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from attrs import evolve

from kvcanon.conformance.cases.case import Case
from kvcanon.conformance.check.result import AFTER_SAME_CALL, Finding, Grounds
from kvcanon.spec.law import LAWS, LawClass

SAID = "EVENT"
"""The area of the laws on what a cache says of its operations."""

RARE = 4
"""How many times more often a finding has to be found to explain one with a longer case."""


def length_of(finding: Finding) -> tuple[bool, int, int]:
    """How long a finding is to read: the number of its operations, and of its actions.

    A finding of a call that must be refused counts as longer: it tells less.
    """
    return finding.is_unlawful_call, finding.operation, len(finding.case.actions)


def distinct(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Keep the shortest finding of each fingerprint and of each case, the shortest first.

    A case is named after the law for which it was found most often. A longer one is also kept if it
    alone breaks some law, and is named after that law.
    """
    kept: list[Finding] = []
    for finding in sorted(findings, key=length_of):
        same = [each for each in kept if each.fingerprint == finding.fingerprint]
        same += [each for each in kept if _is_same_call(each, finding)]
        if not same:
            kept.append(finding)
            continue
        kept[kept.index(same[0])] = _merged(same[0], finding)
        cache = finding.cache
        shown = {law_id for each in kept if each.cache == cache for law_id in each.broken}
        only_here = [law_id for law_id in finding.broken if law_id not in shown]
        if only_here:
            kept.append(finding.of_law(only_here[0]))
    return tuple(kept)


def _merged(kept: Finding, other: Finding) -> Finding:
    """The finding that is kept of two that show the same."""
    more_often = kept.case == other.case and other.times > kept.times
    return evolve(other if more_often else kept, times=kept.times + other.times)


def _is_same_call(one: Finding, other: Finding) -> bool:
    """Whether two findings break the same laws at the same call of the same case."""
    same_laws = bool(one.broken) and set(one.broken) == set(other.broken)
    same_place = one.case == other.case and one.operation == other.operation
    return same_laws and same_place and one.cache == other.cache


def folded(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Fold findings with most likely one cause into the shortest of them; the shortest first."""
    causes: list[list[Finding]] = []
    for finding in sorted(findings, key=length_of):
        cause, why = next(_causes_of(finding, causes), (None, ""))
        if cause is None:
            causes.append([finding])
        else:
            cause.append(evolve(finding, why_folded=why))
    taken = {each.fingerprint for cause in causes for each in cause}
    return tuple(_led(cause, taken) for cause in causes)


def _led(cause: Sequence[Finding], taken: Collection[tuple[str, Grounds, str]]) -> Finding:
    """The finding that leads those with most likely one cause, and the others folded into it.

    `taken` are the fingerprints of all findings: no two have the same.
    """
    first, *_ = cause
    done = [each for each in cause if each.after == first.after and _is_done(each)]
    leader = done[0] if done and _is_said(first) else first
    rest = [evolve(each, why_folded=each.why_folded or leader.why_folded) for each in cause]
    rest.pop(cause.index(leader))
    for law_id in leader.broken:
        named = leader.of_law(law_id)
        before = _is_said(leader) and (_is_done(named) or _is_graver(named, leader))
        if before and named.fingerprint not in taken:
            leader = named
    return evolve(leader, why_folded="", folded=tuple(rest))


def _is_said(finding: Finding) -> bool:
    """Whether it is named after a law on what a cache says of its operations."""
    return finding.grounds is Grounds.LAW and LAWS[finding.name].area == SAID


def _is_done(finding: Finding) -> bool:
    """Whether it is named after another law, also judged by states: not from events alone."""
    by_law = finding.grounds is Grounds.LAW and not _is_said(finding)
    return by_law and (finding.name in finding.inside or not finding.black_box)


def _is_graver(one: Finding, other: Finding) -> bool:
    """Whether the law that names a finding is of a graver class than that of another."""
    graver = {LawClass.SOUND: 0, LawClass.SERVING: 1, LawClass.POLICY: 2}
    return graver[LAWS[one.name].law_class] < graver[LAWS[other.name].law_class]


def _causes_of(
    finding: Finding, causes: Iterable[list[Finding]]
) -> Iterator[tuple[list[Finding], str]]:
    """The causes that most likely explain a finding, each with the reason."""
    for cause in causes:
        for each in cause:
            why = _shared(each, finding)
            if why:
                yield cause, why


def _shared(one: Finding, other: Finding) -> str:
    """Why two findings most likely have one cause; empty if they do not."""
    if one.case == other.case and one.operation == other.operation:
        return AFTER_SAME_CALL
    if one.after == other.after and (other.name in one.broken or one.name in other.broken):
        return f"after the same operation, {other.after}"
    both = [law_id for law_id in sorted(other.inside) if law_id in one.inside]
    if both:
        return f"judged by states, its case breaks {both[0]} by then"
    return "" if one.inside or other.inside else _shared_outside(one, other)


def _shared_outside(one: Finding, other: Finding) -> str:
    """As `_shared`, for findings of which states tell nothing."""
    areas = {LAWS[law_id].area for law_id in one.broken} & {
        LAWS[law_id].area for law_id in other.broken
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
