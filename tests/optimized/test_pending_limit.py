"""Events that nobody takes: at most `max_pending_events` wait, and a router is always right again.

The judge draws no limit. Here its cases are played with small ones, on the reference and on the
fast cache.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from attrs import evolve

from array_api import counted, insert, new_cache
from kvcanon.conformance.cases.case import Case
from kvcanon.conformance.check.play import play
from kvcanon.conformance.check.walker import draw_case
from kvcanon.conformance.protocol.adapter import Adapter
from kvcanon.conformance.protocol.cache_names import REFERENCE, load_adapter
from kvcanon.lab.variants.override import Overrides, overriding
from kvcanon.optimized.snapshot import events_of, take_snapshot
from kvcanon.reference import cache as reference_cache
from kvcanon.reference import events, snapshot
from kvcanon.reference.state import State
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.events import AllBlocksCleared, BlockStored, Event, fold_events
from kvcanon.spec.laws.expected_events import is_truth
from kvcanon.spec.types import CPU, Counts

LIMITS = (1, 3, 10)
SEEDS = range(12)

SMALL = CacheConfig(
    device_slots=Counts(full=16),
    host_slots=Counts(full=16),
    write_policy="write_through",
    max_pending_events=10,
)


def limited_case(seed: int) -> Case:
    """A case of the judge with a small limit, in which fewer events are taken."""
    case = draw_case(seed, REFERENCE.offer)
    taken = [each for each in case.actions if each.name == "take_events"]
    actions = tuple(each for each in case.actions if each not in taken[::2])
    limit = LIMITS[seed % len(LIMITS)]
    return evolve(
        case, actions=actions, config=evolve(case.config, events=True, max_pending_events=limit)
    )


@pytest.mark.parametrize("name", ["reference", "optimized"])
def test_all_laws_hold_with_small_limits(name: str) -> None:
    """Both caches keep all laws, and answer alike."""
    for seed in SEEDS:
        findings, _ = play(limited_case(seed), [load_adapter(name)], against=REFERENCE)
        assert findings == [], (seed, findings[0].words)


# Faults.


def oldest_are_dropped(patch: Overrides) -> None:
    """The oldest events are dropped in silence."""

    def emit(state: State, emitted: list[Event]) -> None:
        state.events = [*state.events, *emitted][-state.config.max_pending_events :]

    patch.setattr(events, "_emit", emit)


def newest_are_dropped(patch: Overrides) -> None:
    """Once the log is full, nothing more is recorded, and nobody is told."""

    def emit(state: State, emitted: list[Event]) -> None:
        state.events = [*state.events, *emitted][: state.config.max_pending_events]

    patch.setattr(events, "_emit", emit)


def gap_is_not_marked(patch: Overrides) -> None:
    """What is resident is stored again, and what the router knew is not cleared."""
    description = events.pending_events

    def unmarked(state: State) -> tuple[Event, ...]:
        waiting = description(state)
        return waiting[1:] if state.events_given_up else waiting

    for module in (snapshot, reference_cache):
        patch.setattr(module, "pending_events", unmarked)


def host_is_left_out(patch: Overrides) -> None:
    """The description of the tree has no pages on the host."""
    description = events.pending_events

    def of_the_device(state: State) -> tuple[Event, ...]:
        waiting = description(state)
        if not state.events_given_up:
            return waiting
        return tuple(
            each for each in waiting if not (isinstance(each, BlockStored) and each.medium is CPU)
        )

    for module in (snapshot, reference_cache):
        patch.setattr(module, "pending_events", of_the_device)


def limit_is_ignored(patch: Overrides) -> None:
    """The log grows without end."""

    def emit(state: State, emitted: list[Event]) -> None:
        state.events += emitted

    patch.setattr(events, "_emit", emit)


def log_is_given_up_early(patch: Overrides) -> None:
    """The log is given up long before it is full."""

    def emit(state: State, emitted: list[Event]) -> None:
        state.events_given_up |= bool(state.events)
        state.events = [] if state.events_given_up else [*state.events, *emitted]

    patch.setattr(events, "_emit", emit)


@pytest.mark.parametrize(
    ("fault", "law_id"),
    [
        (oldest_are_dropped, "EVENT-11"),
        (newest_are_dropped, "EVENT-4"),
        (gap_is_not_marked, "EVENT-11"),
        (host_is_left_out, "EVENT-11"),
        (limit_is_ignored, "EVENT-11"),
        (log_is_given_up_early, "EVENT-11"),
    ],
)
def test_faulty_limits_are_found(fault: Callable[[Overrides], None], law_id: str) -> None:
    """Each way to lose events in silence, or to lose none, breaks a law."""
    broken: set[str] = set()
    faulty = Adapter("faulty", overriding(fault))
    for seed in SEEDS:
        findings, _ = play(limited_case(seed), [faulty])
        broken.update(law_id for each in findings for law_id in each.broken)
        if law_id in broken:
            return
    pytest.fail(f"{law_id} was not broken, but {sorted(broken)}")


# The fast cache.


def test_nothing_is_lost_up_to_the_limit() -> None:
    """Exactly as many events as may wait are recorded."""
    cache = new_cache(evolve(SMALL, write_policy="none", host_slots=Counts()))
    first = np.arange(9, dtype=np.uint32)
    insert(cache, first)
    assert [(each.kind, each.pages) for each in cache.take_events()] == [
        ("cleared", 0),
        ("stored", 9),
    ]
    insert(cache, np.arange(100, 105, dtype=np.uint32))
    cache.match(first)
    cache.evict(5)
    assert [each.kind for each in cache.take_events()] == ["stored", "removed"]
    assert counted(cache, "dropped_events") == 0


def test_a_router_is_right_after_a_gap() -> None:
    """What is taken after too many events is what is resident then, and later events follow on."""
    cache = new_cache(evolve(SMALL, max_pending_events=30))
    prompts = [np.arange(first, first + 4, dtype=np.uint32) for first in range(0, 60, 10)]
    for prompt in prompts:
        insert(cache, prompt)
        cache.flush()
        cache.evict(2)
    assert counted(cache, "pending_events") == 0
    assert counted(cache, "dropped_events") > 10
    told = events_of(cache, cache.take_events())
    assert told[0] == AllBlocksCleared()
    assert is_truth(fold_events(told), take_snapshot(cache))
    assert cache.take_events() == []
    insert(cache, np.arange(100, 102, dtype=np.uint32))
    cache.flush()
    told += events_of(cache, cache.take_events())
    assert AllBlocksCleared() not in told[1:]
    assert is_truth(fold_events(told), take_snapshot(cache))
    cache.tree.check()


def test_a_reset_ends_a_gap() -> None:
    """After a reset nothing that was lost matters, so events are recorded again."""
    cache = new_cache(SMALL)
    for first in range(0, 40, 10):
        insert(cache, np.arange(first, first + 4, dtype=np.uint32))
        cache.flush()
    cache.reset()
    insert(cache, np.arange(3, dtype=np.uint32))
    assert [each.kind for each in cache.take_events()] == ["cleared", "stored"]


def test_events_that_nobody_takes_keep_no_memory() -> None:
    """Events that were given up keep neither tokens nor hashes of pages that left the tree."""
    cache = new_cache(evolve(SMALL, write_policy="none", host_slots=Counts()))
    idle = new_cache(SMALL)
    before = counted(idle, "span_bytes")
    for first in range(0, 20_000, 8):
        insert(cache, np.arange(first, first + 8, dtype=np.uint32))
        cache.evict(8)
    assert counted(cache, "pending_events") == 0
    assert counted(idle, "span_bytes") - before <= 8 * 36 * 2


@pytest.mark.parametrize("limit", [0, -1, 1.5, None])
def test_wrong_limits_are_refused(limit: object) -> None:
    """The limit is a whole number of at least 1."""
    with pytest.raises(BadArgument, match=r"max_pending_events: is .*at least 1"):
        CacheConfig(max_pending_events=limit)  # type: ignore[arg-type]
