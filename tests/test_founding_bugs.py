"""The five bugs that the project grew from, on the plain cache.

Each is a scenario of a few calls that ends with what a client sees. It holds on the cache as it is;
it fails when the one rule is reverted; and then the guard names the law that is broken.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from attrs import frozen

from kvcanon.conformance.guard import guard
from kvcanon.reference import ManualEngine, ReferenceCache
from kvcanon.reference import backup as backup_module
from kvcanon.reference import evict as evict_module
from kvcanon.reference import insert as insert_module
from kvcanon.reference import tree as tree_module
from kvcanon.reference.announce import announce_removed, announce_stored
from kvcanon.reference.state import Hold, Node, State, Transfer
from kvcanon.reference.transfer import enqueue
from kvcanon.spec.cache import Cache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import SpecViolation
from kvcanon.spec.events import BlockRemoved, BlockStored
from kvcanon.spec.operations import LoadDecision
from kvcanon.spec.transfer import Direction
from kvcanon.spec.types import CPU, FULL, GPU, Component, Counts, Medium, Slots, make_key
from scenes import cached_pages, put

Scenario = Callable[[Cache, ManualEngine], None]
Revert = Callable[[pytest.MonkeyPatch], None]


# 1. Window-only refresh.


def window_only_refresh(cache: Cache, engine: ManualEngine) -> None:
    """What lies before the window of a match is not kept alive by it."""
    for length in (2, 4, 6):
        put(cache, list(range(length)))
    put(cache, [70, 71])
    assert cached_pages(cache, list(range(6))) == 6
    # The least recent window data now is that of pages 0..2, out of reach since page 5.
    assert cache.evict(Counts(swa=2)).freed == Counts(swa=2)
    assert cached_pages(cache, [70, 71]) == 2
    assert cached_pages(cache, list(range(6))) == 6


def refresh_every_ancestor(patch: pytest.MonkeyPatch) -> None:
    """As before sgl#26615: a match makes the window data of its whole path recent."""
    patch.setattr("kvcanon.reference.match.window_nodes", lambda lengths, *_: len(lengths))


# 2. A backup takes its un-backed parents along.


def backup_of_unbacked_parent(cache: Cache, engine: ManualEngine) -> None:
    """A leaf that was cut at its window survives eviction, on the host, in both its parts."""
    put(cache, list(range(6)), window_pages=2)
    cache.flush()
    cache.evict(Counts(full=6))
    assert cached_pages(cache, list(range(6))) == 6


def skip_where_parent_is_unbacked(patch: pytest.MonkeyPatch) -> None:
    """As before sgl#25065: a node whose parent has no backup gets none."""

    def chain(backed: tuple[bool, ...], needs_backed_parents: bool) -> tuple[int, ...]:
        last = len(backed) - 1
        skipped = backed[last] or (last > 0 and not backed[last - 1])
        return () if skipped else (last,)

    patch.setattr(backup_module, "backup_chain", chain)


# 3. A load-back evicts full pages only for full slots.


def full_only_pre_evict(cache: Cache, engine: ManualEngine) -> None:
    """With room for what is loaded in every pool, a load-back evicts nothing."""
    put(cache, [70, 71])
    put(cache, list(range(6)))
    cache.flush()
    put(cache, [70, 71])
    cache.evict(Counts(full=6))
    cache.match(make_key([70, 71], 1))
    taken = cache.allocate(Counts(full=5, swa=5))
    cache.free(Slots(full=taken.full))
    # Free now: 10 full slots and 5 window slots. Loading takes 6 and 2.
    loaded = cache.load_back(make_key(range(6), 1))
    assert loaded.decision is LoadDecision.ENQUEUED
    assert loaded.evicted == Counts()
    assert cache.match(make_key([70, 71], 1)).device_pages == 2


def short_of_either_is_short_of_full(patch: pytest.MonkeyPatch) -> None:
    """As before sgl#26302: the smaller of the two free rooms counts as that for full data."""

    def shortage(needed: Counts, free: Counts) -> Counts:
        return Counts(
            full=max(0, needed.full - min(free.full, free.swa)), swa=max(0, needed.swa - free.swa)
        )

    patch.setattr("kvcanon.reference.load.shortage", shortage)


# 4. store(CPU) comes with the acknowledgement, and media are right on every path.


def store_after_acknowledgement(cache: Cache, engine: ManualEngine) -> None:
    """Routers hear of a host copy when it is there, and of every move by its medium."""
    cache.take_events()

    def heard() -> list[tuple[str, Medium]]:
        return [
            (type(event).__name__, event.medium)
            for event in cache.take_events()
            if isinstance(event, BlockStored | BlockRemoved)
        ]

    put(cache, [1, 2])
    engine.perform(engine.open_orders[0].transfer_id)
    cache.poll()
    assert heard() == [("BlockStored", GPU)] * 2
    engine.acknowledge(engine.open_orders[0].transfer_id)
    cache.poll()
    assert heard() == [("BlockStored", CPU)] * 2
    cache.evict(Counts(full=2))
    assert heard() == [("BlockRemoved", GPU)] * 2
    cache.load_back(make_key([1, 2], 1))
    cache.flush()
    assert heard() == [("BlockStored", GPU)] * 2
    cache.evict(Counts(full=2))
    cache.evict_host(Counts(full=2))
    assert heard() == [("BlockRemoved", GPU)] * 2 + [("BlockRemoved", CPU)] * 2


def announce_at_enqueue(patch: pytest.MonkeyPatch) -> None:
    """As before sgl#22894: the host copy is announced when it is asked for."""

    def eager(
        state: State, direction: Direction, parts: list[tuple[Node, Component]], held: Hold
    ) -> Transfer:
        transfer = enqueue(state, direction, parts, held)
        for node, component in parts:
            if component is FULL:
                announce_stored(state, node, CPU)
        return transfer

    patch.setattr(backup_module, "enqueue", eager)


# 5. A tombstone says nothing, and a split does not lose the parent's name.


def tombstone_is_silent(cache: Cache, engine: ManualEngine) -> None:
    """Window data that leaves a node whose full data stays is no event."""
    put(cache, [1, 2])
    put(cache, [1, 2, 3, 4])
    cache.take_events()
    cache.evict(Counts(swa=2))
    assert cache.take_events() == ()
    cache.evict(Counts(full=4))
    assert [type(event) for event in cache.take_events()] == [BlockRemoved] * 4


def announce_tombstones(patch: pytest.MonkeyPatch) -> None:
    """As sgl#24718 forbids: a node that becomes a tombstone is said to be gone."""
    evict_inside = evict_module._evict_inside

    def loud(state: State, node: Node, component: Component) -> None:
        announce_removed(state, node, GPU)
        evict_inside(state, node, component)

    patch.setattr(evict_module, "_evict_inside", loud)


def parent_hash_after_split(cache: Cache, engine: ManualEngine) -> None:
    """A branch that parts inside a node hangs on the last page that both share."""
    cache.take_events()
    put(cache, [1, 2, 3, 4])
    first = [event for event in cache.take_events() if isinstance(event, BlockStored)]
    put(cache, [1, 2, 5, 6])
    second = [event for event in cache.take_events() if isinstance(event, BlockStored)]
    assert [event.page for event in second] == [(5,), (6,)]
    assert second[0].parent_hash == first[1].block_hash


def keep_all_names_above_a_cut(patch: pytest.MonkeyPatch) -> None:
    """As sgl#24718 forbids: the upper part of a split keeps the names of the lower part's pages."""
    cut = tree_module.cut

    def careless(state: State, node: Node, at: int) -> Node:
        names = node.hashes
        upper = cut(state, node, at)
        upper.hashes = names
        return upper

    patch.setattr(tree_module, "cut", careless)
    patch.setattr(insert_module, "cut", careless)


WINDOW = CacheConfig(window_tokens=2, device_slots=Counts(16, 12))
HOST = CacheConfig(
    window_tokens=2,
    device_slots=Counts(12, 12),
    host_slots=Counts(16, 16),
    write_policy="write_through",
)


@frozen
class Case:
    """A scenario, the change that brings its bug back, and the law that then speaks."""

    upstream: str
    scenario: Scenario
    revert: Revert
    config: CacheConfig
    law_id: str


CASES = [
    Case("sgl#26615", window_only_refresh, refresh_every_ancestor, WINDOW, "REC-1"),
    Case("sgl#25065", backup_of_unbacked_parent, skip_where_parent_is_unbacked, HOST, "RES-5"),
    Case("sgl#26302", full_only_pre_evict, short_of_either_is_short_of_full, HOST, "LOAD-1"),
    Case("sgl#22894", store_after_acknowledgement, announce_at_enqueue, HOST, "EVENT-3"),
    Case("sgl#24718", tombstone_is_silent, announce_tombstones, WINDOW, "EVENT-5"),
    Case("sgl#24718", parent_hash_after_split, keep_all_names_above_a_cut, WINDOW, "NS-3"),
]
cases = pytest.mark.parametrize(
    "case", CASES, ids=[f"{case.upstream}-{case.scenario.__name__}" for case in CASES]
)


def play(scenario: Scenario, config: CacheConfig, *, guarded: bool) -> None:
    """Play a scenario on a new cache."""
    engine = ManualEngine()
    cache: Cache = ReferenceCache(config, engine)
    scenario(guard(cache) if guarded else cache, engine)


@cases
def test_founding_bug_is_absent(case: Case) -> None:
    """The plain cache has the bug, or breaks a law on the way of the scenario."""
    play(case.scenario, case.config, guarded=False)
    play(case.scenario, case.config, guarded=True)


@cases
def test_founding_bug_shows_when_its_rule_is_reverted(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scenario passes with the rule reverted: then it tests nothing."""
    case.revert(monkeypatch)
    with pytest.raises(AssertionError):
        play(case.scenario, case.config, guarded=False)


@cases
def test_law_names_founding_bug(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the rule reverted the guard stays silent, or names another law."""
    case.revert(monkeypatch)
    with pytest.raises(SpecViolation, match=case.law_id):
        play(case.scenario, case.config, guarded=True)
