"""Snapshots of the plain cache: values of its whole state, equal on every replica."""

from __future__ import annotations

from random import Random

import pytest
from attrs import evolve

from kvcanon.conformance.cases.actions import act
from kvcanon.conformance.cases.case import DRAIN, Action
from kvcanon.conformance.cases.client import Client, Stamps
from kvcanon.conformance.cases.draw import draw_case
from kvcanon.conformance.protocol.adapter import Adapter, Offer, make_subject
from kvcanon.reference import ReferenceCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.hashing import namespace_seed, page_hashes
from kvcanon.spec.snapshot import Usage
from kvcanon.spec.types import CPU, FULL, GPU, MAMBA, SWA, Component, Counts, WritePolicy
from scenes import plain

BOTH = CacheConfig(
    window_tokens=3,
    mamba=True,
    device_slots=Counts(14, 10, 4),
    host_slots=Counts(12, 8, 3),
    write_policy="write_through",
)


def drawn(random: Random, count: int) -> list[Action]:
    """Draw `count` actions for a client."""
    actions: list[Action] = []
    while len(actions) < count:
        actions += draw_case(random.randrange(1 << 30), Offer()).actions
    return actions[:count]


def new_client(config: CacheConfig) -> Client:
    """Return a client of a new plain cache."""
    subject = make_subject(Adapter("reference", ReferenceCache), config)
    return Client(subject.cache, subject.can, subject.copies, Stamps(config.slot_bytes))


@pytest.mark.parametrize("seed", range(8))
def test_replicas_of_the_same_calls_are_the_same(seed: int) -> None:
    """Two caches with the same calls return the same outcomes and have the same state."""
    random = Random(seed)
    policy = list(WritePolicy)[seed % 4]
    config = evolve(
        BOTH,
        write_policy=policy,
        host_slots=Counts() if policy is WritePolicy.NONE else BOTH.host_slots,
        bigram=seed % 3 == 0,
        page_size=1 + seed % 2,
    )
    replicas = [new_client(config) for _ in range(2)]
    first, second = replicas
    sizes = []
    for action in drawn(random, 150):
        refusals = {str(act(replica, *action)) for replica in replicas}
        assert len(refusals) == 1
        assert first.cache.snapshot() == second.cache.snapshot()
        sizes.append(len(first.cache.snapshot().nodes))
    assert max(sizes) > 3
    for replica in replicas:
        replica.drain(DRAIN)
    assert first.cache.snapshot() == second.cache.snapshot()


def test_values_that_a_snapshot_keeps_are_those_made_anew() -> None:
    """What is kept from snapshot to snapshot equals what is made anew, also with other node ids."""
    random = Random(7)
    client = new_client(BOTH)
    cache = client.cache
    assert isinstance(cache, ReferenceCache)
    state = cache._state
    for action in drawn(random, 120):
        act(client, *action)
        cache.snapshot()
        nodes = [node for node in state.nodes.values() if node is not state.root]
        if len(nodes) > 1:
            one, other = random.sample(nodes, 2)
            one.node_id, other.node_id = other.node_id, one.node_id
            state.nodes[one.node_id], state.nodes[other.node_id] = one, other
        kept = cache.snapshot()
        for node in state.nodes.values():
            node.shown = None
        for pool in state.pools.values():
            pool.shown = None
        for hold in state.holds.values():
            hold.shown = None
        for transfer in state.transfers.values():
            transfer.shown = None
        assert kept == cache.snapshot()


@pytest.mark.parametrize("policy", WritePolicy)
def test_drained_cache_is_empty(policy: WritePolicy) -> None:
    """After all is freed and evicted, no node, slot, lock or pair is left."""
    random = Random(20)
    host = Counts() if policy is WritePolicy.NONE else BOTH.host_slots
    config = evolve(BOTH, write_policy=policy, host_slots=host)
    client = new_client(config)
    for action in drawn(random, 100):
        act(client, *action)
    client.drain(DRAIN)
    state = client.cache.snapshot()
    assert list(state.nodes) == [state.root_id]
    assert (state.holds, state.transfers, dict(state.swa_of_full)) == ((), (), {})
    for (component, medium), pool in state.pools.items():
        assert sorted(pool.free) == list(range(config.capacity(component, medium)))
        assert pool.held == frozenset()


def test_snapshot_is_a_value() -> None:
    """A snapshot does not change with the cache, and taking it changes nothing."""
    s = plain(BOTH, "put 12")
    before = s.cache.snapshot()
    assert s.cache.snapshot() == before
    nodes, events = dict(before.nodes), before.events
    s.play("put 15; flush; heard; evict full=14 swa=10 mamba=4")
    assert (before.nodes, before.events) == (nodes, events)
    assert s.cache.snapshot() != before


def test_snapshot_lists_each_order_of_recency() -> None:
    """An LRU order has exactly the nodes with the data; of two used together the upper first."""
    s = plain(BOTH, "put 1234; put 8; fetch 67 window=1")
    assert s.hit("1234") == 4
    state = s.cache.snapshot()

    def firsts(component: Component, node_ids: tuple[int, ...]) -> list[object]:
        assert all(state.nodes[each][component].anywhere for each in node_ids)
        return [state.nodes[each].pages[0][0] for each in node_ids]

    assert firsts(FULL, state.recency[FULL, GPU]) == [8, 1, 2]
    assert firsts(FULL, state.recency[FULL, CPU]) == [8, 6, 7, 1, 2]
    assert firsts(SWA, state.recency[SWA, CPU]) == [8, 7, 1, 2]
    assert firsts(MAMBA, state.recency[MAMBA, GPU]) == [8, 2]


def test_snapshot_counts_the_locked_as_protected() -> None:
    """Locked slots are counted as protected, all other slots of the tree as evictable."""
    s = plain(evolve(BOTH, host_slots=Counts(), write_policy="none", window_tokens=2), "put 1234")
    s.play("put 7; lock 1234")
    assert s.cache.snapshot().usage == {FULL: Usage(1, 4), SWA: Usage(3, 2), MAMBA: Usage(1, 1)}


def test_snapshot_names_pages_by_their_chain() -> None:
    """After a cut each node has the hashes of its own pages."""
    s = plain(BOTH, "put 1234; put 125")
    state = s.cache.snapshot()
    for tokens in ([1, 2, 3, 4], [1, 2, 5]):
        key = s.key(tokens)
        names = page_hashes(namespace_seed(key.namespace), key.pages)
        node = next(n for n in state.below_root() if n.pages[-1] == key.pages[-1])
        path = [name for up in reversed(state.upwards[node.node_id]) for name in up.hashes or ()]
        assert tuple(path) == names
