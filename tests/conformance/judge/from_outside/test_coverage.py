"""Coverage in black-box mode: laws are judged if they declare it, by the methods they declare."""

from __future__ import annotations

from collections import Counter

import pytest
from attrs import evolve

import kvcanon.spec.laws  # noqa: F401  # Importing the laws registers them.
from kvcanon.conformance.adapter_parts.offers import FULL_ATTENTION
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


def judged(kind: type[ReferenceCache]) -> Counter[str]:
    """Return the laws that are judged of a cache in black-box mode."""
    laws: Counter[str] = Counter()
    for seed in range(CASES):
        _, tallies = play(
            draw_case(seed, OFFER), [Adapter("it", kind, OFFER)], JudgeConfig(black_box=True)
        )
        laws += tallies["it"].laws
    return laws


def test_laws_are_judged_from_outside_that_say_so() -> None:
    """The laws that are judged without snapshots are those that declare `from_outside`."""
    declared = {law_id for law_id, law in LAWS.items() if law.from_outside is not None}
    assert set(judged(ReferenceCache)) == declared


def test_laws_name_methods_that_a_cache_may_lack() -> None:
    """Every method in `from_outside` is a capability."""
    named = {method.__name__ for group in GROUPS for method in group}
    assert named <= {each.value for each in Capability}


@pytest.mark.parametrize("group", GROUPS)
def test_laws_need_the_methods_that_they_name(group: AnyOf) -> None:
    """A law is not judged of a cache that lacks a whole group of its methods."""
    names = [method.__name__ for method in group]
    kind = type("Lacking", (Alone,), dict.fromkeys(names))
    for law_id in judged(kind):
        assert group not in (LAWS[law_id].from_outside or ())


def test_missing_methods_are_named() -> None:
    """The report names the methods that a cache lacks, but no group of which it has one."""
    assert missing_for(LAWS["DATA-1"], ["write", "poll"]) == ["write"]
    lacks = ["take_events", "free_slots"]
    assert missing_for(LAWS["RES-5"], lacks) == ["take_events or free_slots"]
    assert missing_for(LAWS["RES-5"], ["free_slots"]) == []


def judged_by_requests(lacks: tuple[str, ...] = ()) -> Counter[str]:
    """Return the laws that are judged of a cache by request that lacks these methods."""
    laws: Counter[str] = Counter()
    made = type("Lacking", (ServingCache,), dict.fromkeys(lacks))
    adapter = Adapter("it", made, kind=CacheKind.REQUEST)
    for seed in range(CASES):
        case = draw_case(seed, Offer(), kind=CacheKind.REQUEST)
        _, tallies = play(case, [adapter], JudgeConfig(black_box=True))
        laws += tallies["it"].laws
    return laws


def test_requests_show_the_laws_that_are_listed() -> None:
    """The laws that calls by request show without snapshots are those that are listed."""
    assert set(judged_by_requests()) == set(SHOWN_BY_REQUESTS)


@pytest.mark.parametrize(
    "method", sorted({each for needed in SHOWN_BY_REQUESTS.values() for each in needed})
)
def test_requests_need_the_methods_that_are_listed(method: Capability) -> None:
    """Without a method of a cache by request, exactly the laws that need it are not judged."""
    without = {law_id for law_id, needed in SHOWN_BY_REQUESTS.items() if method in needed}
    assert set(judged_by_requests((method.value,))) == set(SHOWN_BY_REQUESTS) - without


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
