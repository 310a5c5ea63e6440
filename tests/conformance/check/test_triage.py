"""Failures with most likely one cause are folded into one, and independent ones are not."""

from __future__ import annotations

import pytest
from attrs import evolve

from few_cases import FEW, plan_of
from kvcanon.conformance.cases.case import Action, Case
from kvcanon.conformance.check.check import check
from kvcanon.conformance.check.result import AFTER_SAME_CALL, Finding, Grounds, Standing
from kvcanon.conformance.check.triage import RARE, folded
from kvcanon.spec.config import CacheConfig


def failure(
    *broken: str,
    actions: str = "serve",
    after: str = "Insert",
    operation: int = 3,
    inside: tuple[str, ...] = (),
    times: int = 1,
) -> Finding:
    """A failure that breaks these laws, the first by name."""
    return Finding(
        "it",
        Grounds.LAW if broken else Grounds.CRASH,
        broken[0] if broken else "KeyError",
        broken,
        "so",
        "so",
        Case(CacheConfig(), tuple(Action(name) for name in actions.split())),
        action=0,
        operation=operation,
        texts=("so",) * len(broken),
        after=after,
        origin="walker",
        times=times,
        inside=frozenset(inside),
    )


def names(failures: tuple[Finding, ...]) -> list[list[str]]:
    """The names of the failures, each with those that are folded into it."""
    return [[each.name for each in first.every] for first in failures]


def test_the_shortest_comes_first() -> None:
    """Failures are in the order of their lengths."""
    later = failure("RES-4", operation=9, inside=("RES-4",))
    more = failure("TREE-1", actions="serve evict", inside=("TREE-1",))
    short = failure("REC-3", actions="evict", inside=("REC-3",))
    nonsense = failure("REFUSE-3", operation=1, inside=("REFUSE-3",))
    order = [["REC-3"], ["TREE-1"], ["RES-4"], ["REFUSE-3"]]
    assert names(folded([later, nonsense, more, short])) == order


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (failure("LOCK-1"), AFTER_SAME_CALL),
        (
            failure("RES-4", actions="evict", inside=("RES-4",)),
            "after the same operation, Insert",
        ),
        (
            failure("DATA-1", actions="lock match", after="Match", inside=("TREE-1",)),
            "judged by states, its case breaks TREE-1 by then",
        ),
        (
            failure(actions="lock match", after="", inside=("TREE-1",)),
            "judged by states, its case breaks TREE-1 by then",
        ),
    ],
    ids=["one case", "one operation", "by states", "a crash"],
)
def test_what_one_fault_explains_is_folded(other: Finding, why: str) -> None:
    """A failure that the shortest most likely explains is folded into it, with the reason."""
    first = failure("TREE-1", "RES-4", inside=("TREE-1", "RES-4"))
    (only,) = folded([first, other])
    assert evolve(only, folded=()) == first
    (explained,) = only.folded
    assert explained == evolve(other, why_folded=why)


@pytest.mark.parametrize(
    "other",
    [
        failure("RES-4", actions="evict", after="Evict", inside=("RES-4",)),
        failure("RES-4", actions="evict", after="Insert, refused", inside=("RES-4",)),
        failure("EVENT-4", actions="serve lock", after="Evict", inside=("EVENT-4",), times=1),
    ],
    ids=["another operation", "another outcome", "another law of the area"],
)
def test_what_states_tell_apart_is_not_folded(other: Finding) -> None:
    """A failure whose states tell that it is another fault stays by itself."""
    first = failure("EVENT-10", "RES-4", times=50, inside=("EVENT-10",))
    assert len(folded([first, other])) == 2


def test_what_is_done_comes_before_what_is_said_of_it() -> None:
    """A law of events leads no other law after the same kind of call, and names no call of one."""
    said = failure("EVENT-12", actions="evict", after="Evict", inside=("EVENT-12", "REC-3"))
    done = failure("REC-3", actions="serve evict", after="Evict", operation=5, inside=("REC-3",))
    ((first, second),) = names(folded([said, done]))
    assert (first, second) == ("REC-3", "EVENT-12")
    (only,) = folded([said, done])
    assert not only.why_folded
    assert only.folded[0].why_folded == "judged by states, its case breaks REC-3 by then"
    both = failure("EVENT-12", "REC-3", after="Evict")
    assert names(folded([both])) == [["REC-3"]]
    grave = evolve(failure("EVENT-12", "LOCK-4", after="admit"), black_box=True)
    assert names(folded([grave])) == [["LOCK-4"]]
    assert names(folded([evolve(both, black_box=True)])) == [["EVENT-12"]]
    elsewhere = evolve(done, after="Match")
    assert names(folded([said, elsewhere])) == [["EVENT-12", "REC-3"]]


def test_without_states_the_area_or_a_rare_longer_case_decides() -> None:
    """Of a cache that shows no states, laws of one area and rare longer cases are folded."""
    first = failure("EVENT-10", actions="serve", times=RARE)
    area = failure("EVENT-4", actions="evict evict", after="Evict")
    rare = failure("MATCH-1", actions="lock serve match", after="Match")
    often = evolve(rare, times=2)
    other = failure("REC-3", actions="evict lock", after="Evict")
    assert names(folded([first, area])) == [["EVENT-10", "EVENT-4"]]
    assert names(folded([first, rare])) == [["EVENT-10", "MATCH-1"]]
    assert len(folded([first, often])) == 2
    assert len(folded([first, other])) == 2


BROKEN = [
    pytest.param("reported:duplicates_leak", marks=pytest.mark.nightly),
    pytest.param("reported:deletion_is_silent", marks=pytest.mark.nightly),
    "faulty:Short",
]
"""Caches with one fault each, which breaks several laws."""


MORE = evolve(FEW, walker_cases=96)


@pytest.mark.parametrize("black_box", [False, True], ids=["by states", "from outside"])
@pytest.mark.parametrize("name", BROKEN)
def test_each_broken_law_has_its_own_sentence(name: str, black_box: bool) -> None:
    """Each law of the verdict has a sentence of its own; states tell that there is one fault."""
    plan = plan_of(name, only=["walker"], black_box=black_box, effort=MORE)
    (cache,) = check(plan, apart=False).caches
    broken = {law_id for law_id, each in cache.standings.items() if each is Standing.BROKEN}
    assert broken
    evidence: dict[str, str] = {}
    for first in cache.failures:
        for each in first.every:
            evidence |= each.evidence
    assert broken == evidence.keys()
    assert all(evidence.values())
    if not black_box:
        assert len(cache.failures) == 1


@pytest.mark.nightly
def test_two_faults_stay_two_failures() -> None:
    """A second, independent fault is not folded away."""
    name = "reported:duplicates_leak__and__deletion_is_silent"
    (cache,) = check(plan_of(name, only=["walker"], effort=MORE), apart=False).caches
    first, second, *_ = names(cache.failures)
    assert any(law_id.startswith("EVENT") for law_id in (*first, *second))
    assert any(law_id.startswith("ALLOC") for law_id in (*first, *second))
    assert {law_id[:5] for law_id in first} != {law_id[:5] for law_id in second}
