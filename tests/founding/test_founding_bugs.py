"""The five bugs that the project grew from, each as a scenario of a few calls.

A scenario ends with what a client sees. Both caches pass it; the plain cache fails it when the one
rule is reverted, and then the guard names the broken law. The other rules of the five reports are
tested in the other modules of tests/founding/.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from attrs import frozen

from kvcanon.conformance.protocol.adapter import WatchedCopies, make_subject
from kvcanon.conformance.protocol.cache_names import load_adapter
from kvcanon.reference import backup as backup_module
from kvcanon.reference import evict as evict_module
from kvcanon.reference import insert as insert_module
from kvcanon.reference import tree as tree_module
from kvcanon.reference.events import emit_removed, emit_stored
from kvcanon.reference.state import Hold, Node, State, Transfer
from kvcanon.reference.transfer import enqueue
from kvcanon.spec.cache import Cache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import SpecViolation
from kvcanon.spec.events import BlockRemoved, BlockStored
from kvcanon.spec.operations import LoadDecision
from kvcanon.spec.transfer import Direction
from kvcanon.spec.types import CPU, FULL, GPU, SWA, Component, Counts, Medium, Slots, make_key
from scenes import BOTH_CACHES, cached_pages, fetch, judged_cache, node_ends, put, shown

Scenario = Callable[[Cache, WatchedCopies], None]
Revert = Callable[[pytest.MonkeyPatch], None]


# 1. Window-only refresh.


def window_only_refresh(cache: Cache, copies: WatchedCopies) -> None:
    """A match does not keep data before its window on the device."""
    for length in (2, 4, 6):
        put(cache, list(range(length)))
    put(cache, [70, 71])
    assert cached_pages(cache, list(range(6))) == 6
    # The least recent window data is now that of pages 0..2, which no window reaches since page 5.
    assert cache.evict(Counts(swa=2)).freed == Counts(swa=2)
    assert cached_pages(cache, [70, 71]) == 2
    assert cached_pages(cache, list(range(6))) == 6


def refresh_every_ancestor(patch: pytest.MonkeyPatch) -> None:
    """As before sgl#26615: a match makes the window data of its whole path recent."""
    patch.setattr("kvcanon.reference.match.window_nodes", lambda lengths, *_: len(lengths))


# 2. A backup copies the parents that have no host copy, too.


def backup_of_unbacked_parent(cache: Cache, copies: WatchedCopies) -> None:
    """Both parts of a leaf that was cut at its window are on the host after an eviction."""
    put(cache, list(range(6)), window_pages=2)
    assert node_ends(cache, list(range(6))) == [4, 6]
    cache.flush()
    cache.evict(Counts(full=6))
    assert shown(cache, list(range(6))) == "......"
    assert shown(cache, list(range(6)), FULL, CPU) == "######"
    assert cached_pages(cache, list(range(6))) == 6


def skip_where_parent_is_unbacked(patch: pytest.MonkeyPatch) -> None:
    """As before sgl#25065: a node whose parent has no host copy is not backed up."""

    def chain(backed: tuple[bool, ...], needs_backed_parents: bool) -> tuple[int, ...]:
        last = len(backed) - 1
        skipped = backed[last] or (last > 0 and not backed[last - 1])
        return () if skipped else (last,)

    patch.setattr(backup_module, "backup_chain", chain)


# 3. A load-back evicts full pages only for full slots.


def full_only_pre_evict(cache: Cache, copies: WatchedCopies) -> None:
    """A load-back that lacks window slots evicts window data, and no full page."""
    put(cache, list(range(6)))
    cache.flush()
    cache.evict(Counts(full=6))
    put(cache, [80], window_pages=0)
    put(cache, [70])
    put(cache, [70, 71])
    cache.flush()
    taken = cache.allocate(Counts(full=9, swa=9))
    cache.free(Slots(full=taken.full))
    # Free now: 9 full slots and 1 window slot. Loading takes 6 and 2.
    loaded = cache.load_back(make_key(range(6), 1))
    assert loaded.decision is LoadDecision.ENQUEUED
    assert loaded.evicted == Counts(swa=1)
    assert shown(cache, [80]) + shown(cache, [70, 71]) == "###"
    assert shown(cache, [70, 71], SWA) == ".#"


def short_of_either_is_short_of_full(patch: pytest.MonkeyPatch) -> None:
    """As before sgl#26302: the smaller of the two free counts is used for full slots."""

    def shortage(needed: Counts, free: Counts) -> Counts:
        return Counts(
            full=max(0, needed.full - min(free.full, free.swa)), swa=max(0, needed.swa - free.swa)
        )

    patch.setattr("kvcanon.reference.load.shortage", shortage)


# 4. A host store is emitted at the acknowledgement, and events have the right medium.


def store_after_acknowledgement(cache: Cache, copies: WatchedCopies) -> None:
    """A host store is emitted once the copy is acknowledged, and every move by its medium."""
    cache.take_events()

    def heard() -> list[tuple[str, Medium]]:
        return [
            (type(event).__name__, event.medium)
            for event in cache.take_events()
            if isinstance(event, BlockStored | BlockRemoved)
        ]

    put(cache, [1, 2])
    (copy,) = copies.open_transfer_ids
    copies.perform(copy)
    cache.poll()
    assert heard() == [("BlockStored", GPU)] * 2
    copies.acknowledge(copy)
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
    fetch(cache, [1, 2])
    assert heard() == [("BlockStored", CPU)] * 2


def announce_at_enqueue(patch: pytest.MonkeyPatch) -> None:
    """As before sgl#22894: the host store is emitted at the enqueue."""

    def eager(
        state: State, direction: Direction, parts: list[tuple[Node, Component]], held: Hold
    ) -> Transfer:
        transfer = enqueue(state, direction, parts, held)
        for node, component in parts:
            if component is FULL:
                emit_stored(state, node, CPU)
        return transfer

    patch.setattr(backup_module, "enqueue", eager)


# 5. A new tombstone emits no event, and a cut keeps the parent's page hash.


def tombstone_is_silent(cache: Cache, copies: WatchedCopies) -> None:
    """Evicting window data of a node that keeps its full data emits no event."""
    put(cache, [1, 2])
    put(cache, [1, 2, 3, 4])
    cache.take_events()
    cache.evict(Counts(swa=2))
    assert cache.take_events() == ()
    cache.evict(Counts(full=4))
    assert [type(event) for event in cache.take_events()] == [BlockRemoved] * 4


def announce_tombstones(patch: pytest.MonkeyPatch) -> None:
    """As sgl#24718 forbids: a remove is emitted for a node that becomes a tombstone."""
    evict_inside = evict_module._evict_inside

    def loud(state: State, node: Node, component: Component) -> None:
        emit_removed(state, node, GPU)
        evict_inside(state, node, component)

    patch.setattr(evict_module, "_evict_inside", loud)


def parent_hash_after_split(cache: Cache, copies: WatchedCopies) -> None:
    """The parent hash of a branch inside a node is the hash of the last page that both share."""
    cache.take_events()
    put(cache, [1, 2, 3, 4])
    first = [event for event in cache.take_events() if isinstance(event, BlockStored)]
    put(cache, [1, 2, 5, 6])
    second = [event for event in cache.take_events() if isinstance(event, BlockStored)]
    assert [event.page for event in second] == [(5,), (6,)]
    assert second[0].parent_hash == first[1].block_hash


def keep_all_names_above_a_cut(patch: pytest.MonkeyPatch) -> None:
    """As sgl#24718 forbids: the upper part of a cut keeps the hashes of the lower part's pages."""
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
    """A scenario, the change that brings its bug back, and the law that then breaks."""

    upstream: str
    scenario: Scenario
    revert: Revert
    config: CacheConfig
    law_id: str


CASES = [
    Case("sgl#26615", window_only_refresh, refresh_every_ancestor, WINDOW, "REC-1"),
    Case("sgl#25065", backup_of_unbacked_parent, skip_where_parent_is_unbacked, HOST, "RES-5"),
    Case("sgl#26302", full_only_pre_evict, short_of_either_is_short_of_full, HOST, "LOAD-1"),
    Case("sgl#22894", store_after_acknowledgement, announce_at_enqueue, HOST, "EVENT-10"),
    Case("sgl#24718", tombstone_is_silent, announce_tombstones, WINDOW, "EVENT-10"),
    Case("sgl#24718", parent_hash_after_split, keep_all_names_above_a_cut, WINDOW, "NS-3"),
]
cases = pytest.mark.parametrize(
    "case", CASES, ids=[f"{case.upstream}-{case.scenario.__name__}" for case in CASES]
)


@cases
@pytest.mark.parametrize("name", BOTH_CACHES)
def test_founding_bug_is_absent(case: Case, name: str) -> None:
    """A scenario passes on both caches and breaks no law."""
    case.scenario(*judged_cache(name, case.config))


@cases
def test_founding_bug_shows_when_its_rule_is_reverted(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scenario fails on the plain cache when its rule is reverted."""
    case.revert(monkeypatch)
    subject = make_subject(load_adapter("reference"), case.config)
    assert subject.copies is not None
    with pytest.raises(AssertionError):
        case.scenario(subject.cache, subject.copies)


@cases
def test_law_names_founding_bug(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """The guard names the scenario's law when the rule is reverted."""
    case.revert(monkeypatch)
    with pytest.raises(SpecViolation, match=case.law_id):
        case.scenario(*judged_cache("reference", case.config))
