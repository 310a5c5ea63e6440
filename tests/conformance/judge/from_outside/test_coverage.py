"""Coverage in black-box mode: laws are judged if they declare it, by the methods they declare."""

from __future__ import annotations

import pytest
from attrs import evolve

import kvcanon.spec.laws  # noqa: F401  # Importing the laws registers them.
from kvcanon.conformance.adapter_parts.offers import FULL_ATTENTION
from kvcanon.conformance.cases.case import Case
from kvcanon.conformance.cases.draw import draw_case
from kvcanon.conformance.check.play import play
from kvcanon.conformance.judge.from_outside.coverage import (
    SHOWN_BY_REQUESTS,
    can_come_up,
    missing_for,
    why_not_exercised,
)
from kvcanon.conformance.judge.judges import JudgeConfig
from kvcanon.conformance.protocol.adapter import Adapter, CacheKind, Capability, Offer
from kvcanon.reference import ReferenceCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.law import LAWS, AnyOf
from kvcanon.spec.transfer import TransferEngine
from serving import ServingCache

CASES = 80
OFFER = Offer(states_within=True)
STORES = evolve(OFFER, stores=True)
GROUPS: tuple[AnyOf, ...] = tuple(
    dict.fromkeys(group for law in LAWS.values() for group in law.from_outside or ())
)


class Alone(ReferenceCache):
    """A cache that is no rank, so that it need not settle by name."""

    def __init__(self, config: CacheConfig, engine: TransferEngine | None = None) -> None:
        super().__init__(config, engine)


def judged(adapter: Adapter, case: Case) -> set[str]:
    """Return the laws that a case shows of a cache in black-box mode."""
    _, tallies = play(case, [adapter], JudgeConfig(black_box=True))
    return {law_id for law_id, times in tallies["it"].laws.items() if times}


def telling(adapter: Adapter) -> dict[Case, set[str]]:
    """Return drawn cases, each of which shows a law of a cache that none before it shows."""
    kept, shown = dict[Case, set[str]](), set[str]()
    for seed in range(CASES):
        case = draw_case(seed, adapter.offer, kind=adapter.kind)
        if not (laws := judged(adapter, case)) <= shown:
            kept[case] = laws
            shown |= laws
    return kept


@pytest.fixture(scope="module")
def cases() -> dict[Case, set[str]]:
    """The cases that show something of the plain cache, with the laws that they show of it."""
    return telling(Adapter("it", ReferenceCache, OFFER))


def test_laws_are_judged_from_outside_that_say_so(cases: dict[Case, set[str]]) -> None:
    """The laws that are judged without snapshots are those that declare `from_outside`."""
    declared = {law_id for law_id, law in LAWS.items() if law.from_outside is not None}
    assert set[str]().union(*cases.values()) == declared


def test_laws_name_methods_that_a_cache_may_lack() -> None:
    """Every method in `from_outside` is a capability."""
    named = {method.__name__ for group in GROUPS for method in group}
    assert named <= {each.value for each in Capability}


@pytest.mark.parametrize("group", GROUPS)
def test_laws_need_the_methods_that_they_name(group: AnyOf, cases: dict[Case, set[str]]) -> None:
    """A law is not judged of a cache that lacks a whole group of its methods."""
    names = [method.__name__ for method in group]
    adapter = Adapter("it", type("Lacking", (Alone,), dict.fromkeys(names)), OFFER)
    for case in cases:
        for law_id in judged(adapter, case):
            assert group not in (LAWS[law_id].from_outside or ())


def test_missing_methods_are_named() -> None:
    """The report names the methods that a cache lacks, but no group of which it has one."""
    assert missing_for(LAWS["DATA-1"], ["write", "poll"]) == ["write"]
    lacks = ["take_events", "free_slots"]
    assert missing_for(LAWS["RES-5"], lacks) == ["take_events or free_slots"]
    assert missing_for(LAWS["RES-5"], ["free_slots"]) == []


@pytest.fixture(scope="module")
def request_cases() -> dict[Case, set[str]]:
    """The cases that show something of a cache by request, with the laws that they show of it."""
    return telling(Adapter("it", ServingCache, kind=CacheKind.REQUEST))


def test_requests_show_the_laws_that_are_listed(request_cases: dict[Case, set[str]]) -> None:
    """The laws that calls by request show without snapshots are those that are listed."""
    assert set[str]().union(*request_cases.values()) == set(SHOWN_BY_REQUESTS)


@pytest.mark.parametrize(
    "method", sorted({each for needed in SHOWN_BY_REQUESTS.values() for each in needed})
)
def test_requests_need_the_methods_that_are_listed(
    method: Capability, request_cases: dict[Case, set[str]]
) -> None:
    """Without a method of a cache by request, exactly the laws that need it are not judged."""
    without = {law_id for law_id, needed in SHOWN_BY_REQUESTS.items() if method in needed}
    made = type("Lacking", (ServingCache,), {method.value: None})
    adapter = Adapter("it", made, kind=CacheKind.REQUEST)
    shown = set[str]().union(*(judged(adapter, case) for case in request_cases))
    assert shown == set(SHOWN_BY_REQUESTS) - without


def test_report_says_what_requests_cannot_show() -> None:
    """A law that calls by request cannot show is not said to have never come up."""
    lacks = ["snapshot", "take_events"]
    lock = why_not_exercised(LAWS["LOCK-9"], lacks, CacheKind.REQUEST)
    assert lock == "not offered: the cache has no snapshot"
    evict = why_not_exercised(LAWS["EVICT-1"], lacks, CacheKind.REQUEST)
    assert evict == "not offered: the cache has no take_events"
    match = why_not_exercised(LAWS["MATCH-6"], lacks, CacheKind.REQUEST)
    assert match.startswith("never came up: ")


def test_law_that_no_offered_configuration_can_show_is_not_offered() -> None:
    """Without windows and states, no effort brings up a law about them; with either, it may."""
    cascade = LAWS["EVICT-3"]
    said = why_not_exercised(cascade, ["snapshot"], offer=FULL_ATTENTION)
    assert said == (
        "not offered: the Offer has no configuration for an eviction of a node with more than full "
        "data"
    )
    windows = evolve(FULL_ATTENTION, windows_tokens=(None, 2))
    states = evolve(FULL_ATTENTION, mamba=(False, True))
    for offer in (windows, states, Offer()):
        assert why_not_exercised(cascade, ["snapshot"], offer=offer).startswith("never came up: ")


def test_every_law_can_come_up_where_everything_is_offered() -> None:
    """No law is beyond an offer of everything; by default states are at the end of a key."""
    assert [law_id for law_id, law in LAWS.items() if not can_come_up(law, STORES)] == []
    assert not can_come_up(LAWS["MATCH-8"], Offer())
