"""Laws declare what they need: without it no other law reports or raises anything.

Each need is tried on a sound cache that does not show it. Its snapshots are empty there: no recency
orders, receipts, transfers or events, and every tick, age, priority and hit count is 0.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from attrs import evolve

from kvcanon.conformance.cases.case import Case
from kvcanon.conformance.cases.draw import draw_case, is_offered
from kvcanon.conformance.check.play import play
from kvcanon.conformance.protocol.adapter import Adapter, Offer
from kvcanon.conformance.vectors import read_vectors
from kvcanon.reference import ReferenceCache
from kvcanon.spec.law import LAWS, Need
from kvcanon.spec.snapshot import NodeState, Snapshot
from kvcanon.spec.types import Component, EvictionPolicy, Medium, Slot

DRAWN = 6
"""Drawn cases, beside the vectors, which exercise all laws."""
BY_USE = tuple(
    policy
    for policy in EvictionPolicy
    if policy not in (EvictionPolicy.FIFO, EvictionPolicy.FILO, EvictionPolicy.PRIORITY)
)
"""The policies that go by neither age nor priority."""
OFFERS = {
    Need.AGES: Offer(states_within=True, eviction_policies=BY_USE),
    Need.HITS: Offer(
        states_within=True, eviction_policies=(EvictionPolicy.LRU, EvictionPolicy.FIFO)
    ),
}
"""What a cache that does not show something can be made as."""


def ageless(node: NodeState) -> NodeState:
    """A node without age and priority."""
    return evolve(node, created=0, priority=0)


def without(state: Snapshot, need: Need) -> Snapshot:  # noqa: PLR0911 # One a need.
    """A state that does not show what a need is about."""
    match need:
        case Need.RECENCY:
            unused = {name: evolve(ageless(n), last_access=0) for name, n in state.nodes.items()}
            return evolve(state, recency={}, nodes=unused)
        case Need.AGES:
            return evolve(state, nodes={name: ageless(n) for name, n in state.nodes.items()})
        case Need.HITS:
            return evolve(state, nodes={k: evolve(n, hit_count=0) for k, n in state.nodes.items()})
        case Need.HOLDS:
            return evolve(state, holds=())
        case Need.TRANSFERS:
            return evolve(state, transfers=())
        case Need.EVENTS:
            return evolve(state, events=())
        case Need.STORE:
            return evolve(state, store=None)
        case _:
            return state


def hiding(need: Need) -> Adapter:
    """A sound cache whose snapshots do not show what a need is about."""

    class Hiding(ReferenceCache):
        def snapshot(self) -> Snapshot:
            return without(super().snapshot(), need)

        def read(self, component: Component, medium: Medium, slot: Slot) -> bytes:
            data = super().read(component, medium, slot)
            return b"" if need is Need.BYTES else data

    offer = evolve(OFFERS.get(need, Offer(states_within=True)), stores=need is not Need.STORE)
    return Adapter(f"hiding {need}", Hiding, offer, hides=frozenset({need}))


def cases_for(offer: Offer) -> Iterator[Case]:
    """A vector of each law, of one rank and that a cache can be made for, and drawn cases."""
    vectors = dict[str, Case]()
    for each in read_vectors():
        offered = offer.stores or each.case.store is None
        if each.case.ranks == 1 and offered and is_offered(each.case.config, offer):
            vectors.setdefault(each.law_id, each.case)
    yield from vectors.values()
    yield from (draw_case(seed, offer) for seed in range(DRAWN))


@pytest.mark.parametrize("need", [need for need in Need if need is not Need.SNAPSHOT])
def test_laws_that_do_not_need_it_are_silent_without_it(need: Need) -> None:
    """Laws that do not declare a need hold on a sound cache that does not show it."""
    adapter, judged = hiding(need), set[str]()
    for case in cases_for(adapter.offer):
        found, tallies = play(case, [adapter])
        assert not found, found[0].words
        judged |= tallies[adapter.name].laws.keys()
    unjudged = {need, Need.RANKS}  # There is one rank only.
    assert judged == {law_id for law_id, law in LAWS.items() if not unjudged & law.needs}


@pytest.mark.parametrize("need", [need for need in Need if need is not Need.SNAPSHOT])
def test_every_need_is_needed(need: Need) -> None:
    """Every need is declared by some law."""
    assert any(need in law.needs for law in LAWS.values())
