"""Events that nobody takes: at most `max_pending_events` wait, and a router is always right again.

The judge draws no limit. Here its cases are played with small ones, on the reference and on the
fast cache.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from attrs import evolve

from fast.caches import counted, insert, new_cache, tiered
from kvcanon.conformance.cases.case import Case
from kvcanon.conformance.cases.draw import draw_case
from kvcanon.conformance.check.play import play
from kvcanon.conformance.protocol.adapter import Adapter
from kvcanon.conformance.protocol.cache_names import REFERENCE, load_adapter
from kvcanon.lab.variants.override import Overrides, overriding
from kvcanon.optimized import cache as fast_cache
from kvcanon.optimized.prefix_cache import PrefixCache
from kvcanon.optimized.snapshot import Shown, events_of, take_snapshot
from kvcanon.reference import cache as reference_cache
from kvcanon.reference import events, snapshot
from kvcanon.reference.state import State
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.events import AllBlocksCleared, Event, fold_events
from kvcanon.spec.laws.expected_events import is_truth
from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.types import CPU, Counts
from nights import at_night

LIMITS = (1, 3, 10)
SEEDS = range(12)

SMALL = evolve(tiered(16), max_pending_events=10)
HOSTLESS = evolve(SMALL, write_policy="none", host_slots=Counts())


def limited_case(seed: int) -> Case:
    """A case of the judge with a small limit, in which fewer events are taken."""
    case = draw_case(seed, REFERENCE.offer)
    taken = [each for each in case.actions if each.name == "take_events"]
    actions = tuple(each for each in case.actions if each not in taken[::2])
    limit = LIMITS[seed % len(LIMITS)]
    return evolve(
        case, actions=actions, config=evolve(case.config, events=True, max_pending_events=limit)
    )


@pytest.mark.parametrize("name", ["optimized", *at_night("reference")])
def test_all_laws_hold_with_small_limits(name: str) -> None:
    """Both caches keep all laws, and answer alike."""
    for seed in SEEDS:
        findings, _ = play(limited_case(seed), [load_adapter(name)], against=REFERENCE)
        assert findings == [], (seed, findings[0].words)


def test_what_a_snapshot_keeps_of_the_last_one_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot that makes only new values is one that makes all of them."""
    taken: list[Shown] = []

    def twice(core: PrefixCache, shown: Shown) -> Snapshot:
        kept = take_snapshot(core, shown)
        assert kept == take_snapshot(core)
        taken.append(evolve(shown))
        return kept

    monkeypatch.setattr(fast_cache, "take_snapshot", twice)
    for seed in SEEDS:
        findings, _ = play(limited_case(seed), [load_adapter("optimized")])
        assert findings == [], (seed, findings[0].words)
    # All ways were met: events after known ones, a log given up, pools that stayed as they were.
    assert any(len(each.events) > each.batches > 1 for each in taken)
    assert any(each.events[:1] == (AllBlocksCleared(),) for each in taken)
    assert len({each.edition for each in taken}) > len(LIMITS)


# Faults.

Fault = Callable[[Overrides], None]
Emit = Callable[[State, list[Event]], None]
Describe = Callable[[State, tuple[Event, ...]], tuple[Event, ...]]


def emitting(emit: Emit) -> Fault:
    """A cache that records events so."""
    return lambda patch: patch.setattr(events, "_emit", emit)


def describing(describe: Describe) -> Fault:
    """A cache that answers so where the log was given up, from the description of the tree."""
    description = events.pending_events

    def pending(state: State) -> tuple[Event, ...]:
        waiting = description(state)
        return describe(state, waiting) if state.events_given_up else waiting

    def fault(patch: Overrides) -> None:
        for module in (snapshot, reference_cache):
            patch.setattr(module, "pending_events", pending)

    return fault


def keep_latest(state: State, emitted: list[Event]) -> None:
    """The oldest events are dropped in silence."""
    state.events = [*state.events, *emitted][-state.config.max_pending_events :]


def keep_first(state: State, emitted: list[Event]) -> None:
    """Once the log is full, nothing more is recorded, and nobody is told."""
    state.events = [*state.events, *emitted][: state.config.max_pending_events]


def keep_all(state: State, emitted: list[Event]) -> None:
    """The log grows without end."""
    state.events += emitted


def keep_one(state: State, emitted: list[Event]) -> None:
    """The log is given up long before it is full."""
    state.events_given_up |= bool(state.events)
    state.events = [] if state.events_given_up else [*state.events, *emitted]


def of_the_device(_: State, waiting: tuple[Event, ...]) -> tuple[Event, ...]:
    """The description of the tree has no pages on the host."""
    return tuple(each for each in waiting if getattr(each, "medium", None) is not CPU)


def unmarked(_: State, waiting: tuple[Event, ...]) -> tuple[Event, ...]:
    """What is resident is stored again, and what the router knew is not cleared."""
    return waiting[1:]


@pytest.mark.parametrize(
    ("fault", "law_id"),
    [
        (emitting(keep_latest), "EVENT-11"),
        (emitting(keep_first), "EVENT-4"),
        (emitting(keep_all), "EVENT-11"),
        (emitting(keep_one), "EVENT-11"),
        (describing(unmarked), "EVENT-11"),
        (describing(of_the_device), "EVENT-11"),
    ],
)
def test_faulty_limits_are_found(fault: Fault, law_id: str) -> None:
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
    cache = new_cache(HOSTLESS)
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
    # After a reset nothing that was lost matters, so that events are recorded again.
    cache = new_cache(SMALL)
    for prompt in prompts[:4]:
        insert(cache, prompt)
        cache.flush()
    assert counted(cache, "dropped_events") > 0
    cache.reset()
    insert(cache, np.arange(3, dtype=np.uint32))
    assert [each.kind for each in cache.take_events()] == ["cleared", "stored"]


def test_events_that_nobody_takes_keep_no_memory() -> None:
    """Events that were given up keep neither tokens nor hashes of pages that left the tree."""
    cache = new_cache(HOSTLESS)
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
