"""The corpus is made of cases that reach what few do, each shortened to what it is kept for."""

from __future__ import annotations

import json

import pytest
from attrs import evolve

from kvcanon.conformance.cases.case import Action, Case, case_from_json
from kvcanon.conformance.cases.draw import draw_case
from kvcanon.conformance.corpus import KeptCase
from kvcanon.conformance.protocol.adapter import Offer
from kvcanon.lab.reach import corpus
from kvcanon.lab.reach.branches import CallPath
from kvcanon.lab.reach.corpus import (
    Chosen,
    Paths,
    PlayedCase,
    choose,
    corpus_text,
    make_corpus,
    seldom_pairs,
)
from kvcanon.spec.config import CacheConfig


def path(*branches: int) -> CallPath:
    """The path of a call through some branches."""
    return sum(1 << 8 * each for each in branches)


def paths(**calls: tuple[int, ...]) -> Paths:
    """The paths of a case, one for each operation."""
    return frozenset((name, path(*branches)) for name, branches in calls.items())


def test_pairs_of_few_cases_are_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pair of branches counts once for each case that has it in one call of an operation."""
    monkeypatch.setattr(corpus, "SELDOM", 3)
    cases = [paths(match=(0, 1)), paths(match=(0, 1, 2)), paths(match=(0, 1)), paths(evict=(0, 1))]
    seldom = seldom_pairs(cases)
    assert seldom["match", 2] == path(0, 1, 2)
    assert seldom["match", 0] == path(2)
    assert seldom["evict", 1] == path(0, 1)
    assert not seldom_pairs([cases[0]] * 3)


def test_cases_are_chosen_for_what_no_earlier_one_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """The case that adds most comes first, and one that adds nothing is left out."""
    monkeypatch.setattr(corpus, "SELDOM", 2)
    common = (0, 1)
    cases = [
        paths(match=common),
        paths(match=common, evict=(4,)),
        paths(match=common, evict=(5, 6, 7)),
        paths(match=common, free=(8, 9)),
    ]
    first, second, third, fourth = played = [
        PlayedCase(Case(CacheConfig(page_size=at + 1), ()), each) for at, each in enumerate(cases)
    ]
    chosen = choose(played, most=9)
    assert [each.case for each in chosen] == [third.case, fourth.case, second.case]
    assert chosen[2] == Chosen(second.case, {("evict", 4): path(4)})
    assert choose(played, most=1) == chosen[:1]
    long = evolve(third, case=evolve(third.case, actions=(Action("poll"),) * 90))
    assert choose([first, second, long, fourth], most=1)[0].case == fourth.case


def test_a_corpus_is_the_same_each_time_and_its_cases_are_short() -> None:
    """Some drawn cases make one corpus, whatever the number of processes."""
    told: list[str] = []
    one, two = (make_corpus(24, 0, 3, jobs, lambda what, *_: told.append(what)) for jobs in (1, 2))
    assert one == two
    assert len(one) == 3
    assert told
    drawn = {corpus._case(0, number) for number in range(24)}
    assert not drawn & {kept.case for kept in one}


def test_a_line_of_the_file_is_a_case() -> None:
    """What is written is read again."""
    case = evolve(draw_case(3, Offer()), drain=())
    (line,) = corpus_text([KeptCase(case, "match: it is")]).splitlines()
    assert case_from_json(json.loads(line)["case"]) == case
    assert json.loads(line)["reaches"] == "match: it is"
    assert Case(CacheConfig(), ()) != case
