"""EVICT-8: data that leaves the device under write_back is copied, unless the host is full."""

from __future__ import annotations

import pytest
from attrs import evolve

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.operations import (
    Evict,
    Evicted,
    LoadBack,
    LoadDecision,
    LoadedBack,
    Refused,
)
from kvcanon.spec.snapshot import NodeState, Snapshot
from kvcanon.spec.types import FULL, SWA, Counts, make_key
from states import ROOT, node, on, state_of
from telling import ask, step

CONFIG = CacheConfig(
    window_tokens=2,
    device_slots=Counts(8, 8),
    host_slots=Counts(4, 4),
    write_policy="write_back",
)
VICTIM = node(1, ROOT, [1, 2], full=on([0, 1]), swa=on([0, 1]))
COPIED = node(1, ROOT, [1, 2], full=on(None, [0, 1]), swa=on(None, [0, 1]))
OTHER = node(2, ROOT, [5], full=on([2]), swa=on([2]))
ON_HOST = node(3, ROOT, [7, 8, 9], full=on(None, [1, 2, 3]), swa=on(None, [1, 2, 3]))
EVICT = Evict(Counts(full=2))
EVICTED = Evicted(Counts(full=2, swa=2))


def state(*nodes: NodeState, config: CacheConfig = CONFIG) -> Snapshot:
    """These nodes."""
    return state_of(config, *nodes)


def test_evict_8_a_copied_victim_holds() -> None:
    """A victim that is on the host afterwards holds."""
    before = state(VICTIM, OTHER)
    assert ask("EVICT-8", step(before, EVICT, state(COPIED, OTHER), EVICTED)) == []


@pytest.mark.parametrize(
    "after",
    [
        state(OTHER),
        state(evolve(COPIED, data={FULL: on(None, [0, 1])}), OTHER),
        state(evolve(VICTIM, data={FULL: on([0, 1])}), OTHER),
        state(evolve(VICTIM, data={FULL: on([0, 1], [0, 1])}), OTHER),
    ],
    ids=["deleted", "without its window", "tombstone", "tombstone, half copied"],
)
def test_evict_8_lost_data_is_named(after: Snapshot) -> None:
    """A victim without a copy, or with half of one, is reported."""
    said = ask("EVICT-8", step(state(VICTIM, OTHER), EVICT, after, EVICTED))
    assert said
    assert all("page" in each and "node 1" in each and "there was room" in each for each in said)
    assert "2 full, 2 swa and 0 mamba slots had to be copied, and 4, 4 and 0 were free" in said[0]


def test_evict_8_room_may_be_made() -> None:
    """A victim without a copy is reported where the host has evictable data."""
    before, gone = state(VICTIM, ON_HOST), state(ON_HOST)
    assert ask("EVICT-8", step(before, EVICT, gone, EVICTED))
    data = {FULL: on(None, [1, 2, 3], lock_refs=1), SWA: on(None, [1, 2, 3], lock_refs=1)}
    locked = evolve(ON_HOST, data=data)
    before, gone = state(VICTIM, locked), state(locked)
    assert ask("EVICT-8", step(before, EVICT, gone, EVICTED)) == []


def test_evict_8_a_parent_of_a_locked_node_makes_no_room() -> None:
    """Nodes above a locked node do not count as evictable."""
    child = node(4, 3, [6], full=on(None, [0], lock_refs=1), swa=on(None, [0]))
    above = evolve(ON_HOST, data={FULL: on(None, [1, 2, 3], lock_refs=1), SWA: on()})
    before, gone = state(VICTIM, above, child), state(above, child)
    assert ask("EVICT-8", step(before, EVICT, gone, EVICTED)) == []


def test_evict_8_short_window_pool_excuses() -> None:
    """A victim need not be copied where one of the host's pools is too short for it."""
    narrow = evolve(CONFIG, host_slots=Counts(4, 1))
    before, after = state(VICTIM, config=narrow), state(config=narrow)
    assert ask("EVICT-8", step(before, EVICT, after, EVICTED)) == []


def test_evict_8_several_victims() -> None:
    """Several victims must be copied where all fit into free slots, and only there."""
    before = state(VICTIM, OTHER)
    both = Evict(Counts(full=3))
    (*_, said) = ask("EVICT-8", step(before, both, state(COPIED), EVICTED))
    assert "node 2 (tokens 0..1) lost its swa data" in said
    # Where copies have to make room for each other one may be given up again.
    crowded = state(VICTIM, OTHER, ON_HOST)
    assert ask("EVICT-8", step(crowded, both, state(ON_HOST), EVICTED)) == []


def test_evict_8_what_has_a_copy_needs_none() -> None:
    """A victim with a host copy, which may make way for another's, is not reported."""
    backed = evolve(VICTIM, data={FULL: on([0, 1], [0, 1]), SWA: on([0, 1], [0, 1])})
    assert ask("EVICT-8", step(state(backed), EVICT, state(), EVICTED)) == []


def test_evict_8_loads_evict_too() -> None:
    """A load-back that loses its victims is reported."""
    load = LoadBack(make_key([7, 8, 9], 1))
    outcome = LoadedBack(LoadDecision.NO_ROOM)
    before = state(VICTIM)
    assert len(ask("EVICT-8", step(before, load, state(), outcome))) == 4
    # What a load may make room of on the host depends on its own path: only free slots count.
    assert ask("EVICT-8", step(state(VICTIM, ON_HOST), load, state(ON_HOST), outcome)) == []


def test_evict_8_other_policies_and_calls_are_not_its_matter() -> None:
    """Other policies and calls are not checked."""
    through = evolve(CONFIG, write_policy="write_through")
    before, after = state(VICTIM, config=through), state(config=through)
    assert ask("EVICT-8", step(before, EVICT, after, EVICTED)) == []
    refused = Refused(BadArgument("full", "is wrong"))
    assert ask("EVICT-8", step(state(VICTIM), EVICT, state(), refused)) == []
