"""The five bugs that the project grew from, each as a scenario of a few calls.

A scenario ends with what a client sees. Both caches pass it; the plain cache fails it when the one
rule is reverted, and then the guard names the broken law. The other rules of the five reports are
tested in the other modules of tests/founding/.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from attrs import frozen

from kvcanon.conformance.protocol.adapter import make_subject
from kvcanon.conformance.protocol.cache_names import load_adapter
from kvcanon.reference import backup as backup_module
from kvcanon.reference import evict as evict_module
from kvcanon.reference import insert as insert_module
from kvcanon.reference import tree as tree_module
from kvcanon.reference.events import emit_removed, emit_stored
from kvcanon.reference.state import Hold, Node, State, Transfer
from kvcanon.reference.transfer import enqueue
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import SpecViolation
from kvcanon.spec.events import BlockRemoved, BlockStored
from kvcanon.spec.operations import LoadDecision
from kvcanon.spec.transfer import Direction
from kvcanon.spec.types import CPU, FULL, GPU, Component, Counts, Slots
from scenes import Judged, judged

Scenario = Callable[[Judged], None]
Revert = Callable[[pytest.MonkeyPatch], None]


# 1. Window-only refresh.


def window_only_refresh(s: Judged) -> None:
    """A match does not keep data before its window on the device."""
    s.play("put 01; put 0123; put 012345; put xy")
    assert s.hit("012345") == 6
    # The least recent window data is now that of pages 0..2, which no window reaches since page 5.
    assert s.evict(swa=2) == Counts(swa=2)
    assert s.hit("xy") == 2
    assert s.hit("012345") == 6


def refresh_every_ancestor(patch: pytest.MonkeyPatch) -> None:
    """As before sgl#26615: a match makes the window data of its whole path recent."""
    patch.setattr("kvcanon.reference.match.window_nodes", lambda lengths, *_: len(lengths))


# 2. A backup copies the parents that have no host copy, too.


def backup_of_unbacked_parent(s: Judged) -> None:
    """Both parts of a leaf that was cut at its window are on the host after an eviction."""
    s.put("012345", window=2)
    assert s.ends("012345") == [4, 6]
    s.play("flush; evict full=6")
    assert s.see("012345", FULL) == "......"
    assert s.see("012345", FULL, CPU) == "######"
    assert s.hit("012345") == 6


def skip_where_parent_is_unbacked(patch: pytest.MonkeyPatch) -> None:
    """As before sgl#25065: a node whose parent has no host copy is not backed up."""

    def chain(backed: tuple[bool, ...], needs_backed_parents: bool) -> tuple[int, ...]:
        last = len(backed) - 1
        skipped = backed[last] or (last > 0 and not backed[last - 1])
        return () if skipped else (last,)

    patch.setattr(backup_module, "backup_chain", chain)


# 3. A load-back evicts full pages only for full slots.


def full_only_pre_evict(s: Judged) -> None:
    """A load-back that lacks window slots evicts window data, and no full page."""
    s.play("put 012345; flush; evict full=6; put z window=0; put x; put xy; flush")
    s.cache.free(Slots(full=s.cache.allocate(Counts(full=9, swa=9)).full))
    # Free now: 9 full slots and 1 window slot. Loading takes 6 and 2.
    loaded = s.load("012345")
    assert loaded.decision is LoadDecision.ENQUEUED
    assert loaded.evicted == Counts(swa=1)
    assert (s.see("z", FULL), s.see("xy")) == ("#", "## .#")


def short_of_either_is_short_of_full(patch: pytest.MonkeyPatch) -> None:
    """As before sgl#26302: the smaller of the two free counts is used for full slots."""

    def shortage(needed: Counts, free: Counts) -> Counts:
        return Counts(
            full=max(0, needed.full - min(free.full, free.swa)), swa=max(0, needed.swa - free.swa)
        )

    patch.setattr("kvcanon.reference.load.shortage", shortage)


# 4. A host store is emitted at the acknowledgement, and events have the right medium.


def store_after_acknowledgement(s: Judged) -> None:
    """A host store is emitted once the copy is acknowledged, and every move by its medium."""
    s.play("heard; put 12")
    (copy,) = s.copies.open_transfer_ids
    s.copies.perform(copy)
    s.cache.poll()
    assert s.heard() == "stored GPU 1 2"
    s.end(copy)
    assert s.heard() == "stored CPU 1 2"
    s.evict(full=2)
    assert s.heard() == "removed GPU 2 1"
    s.play("load 12; flush")
    assert s.heard() == "stored GPU 1 2"
    s.play("evict full=2; evict_host full=2")
    assert s.heard() == "removed GPU 2 1, removed CPU 2 1"
    s.fetch("12")
    assert s.heard() == "stored CPU 1 2"


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


def tombstone_is_silent(s: Judged) -> None:
    """Evicting window data of a node that keeps its full data emits no event."""
    s.play("put 12; put 1234; heard; evict swa=2")
    assert s.heard() == ""
    s.evict(full=4)
    assert [type(event) for event in s.cache.take_events()] == [BlockRemoved] * 4


def announce_tombstones(patch: pytest.MonkeyPatch) -> None:
    """As sgl#24718 forbids: a remove is emitted for a node that becomes a tombstone."""
    evict_inside = evict_module._evict_inside

    def loud(state: State, node: Node, component: Component) -> None:
        emit_removed(state, node, GPU)
        evict_inside(state, node, component)

    patch.setattr(evict_module, "_evict_inside", loud)


def parent_hash_after_split(s: Judged) -> None:
    """The parent hash of a branch inside a node is the hash of the last page that both share."""
    s.play("heard; put 1234")
    first = s.taken(BlockStored)
    s.put("1256")
    second = s.taken(BlockStored)
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
def test_founding_bug_is_absent(case: Case, name: str) -> None:
    """A scenario passes on both caches and breaks no law."""
    case.scenario(judged(name, case.config))


@cases
def test_founding_bug_shows_when_its_rule_is_reverted(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scenario fails on the plain cache when its rule is reverted."""
    case.revert(monkeypatch)
    subject = make_subject(load_adapter("reference"), case.config)
    assert subject.copies is not None
    with pytest.raises(AssertionError):
        case.scenario(Judged(subject.cache, subject.copies))


@cases
def test_law_names_founding_bug(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """The guard names the scenario's law when the rule is reverted."""
    case.revert(monkeypatch)
    with pytest.raises(SpecViolation, match=case.law_id):
        case.scenario(judged("reference", case.config))
