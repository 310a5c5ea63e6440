"""The guard finds faults, reports them, and otherwise works like the cache that it wraps."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from attrs import evolve

from guarded import CONFIG, KEY, LONGER, OTHER, asking, reference, serve
from kvcanon.conformance.errors import ViolationError
from kvcanon.conformance.judge.by_states.guard import guard_states
from kvcanon.reference import ReferenceCache
from kvcanon.spec.cache import Cache
from kvcanon.spec.errors import OutOfSlots, SpecViolation
from kvcanon.spec.events import AllBlocksCleared
from kvcanon.spec.law import LAWS, SHAPE, Need, Violation
from kvcanon.spec.operations import Match, Matched, Operation, Refused
from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.types import Counts, Key, Slots
from kvcanon.spec.views import Step

# A sound cache.


def test_guard_of_a_sound_cache_is_silent() -> None:
    """A cache that obeys every law works under the guard as it does alone."""
    guarded: Cache = guard_states(reference())
    alone = reference()
    for cache in (guarded, alone):
        for key in (KEY, OTHER, LONGER, KEY):
            serve(cache, key)
        cache.evict(Counts(full=2))
        cache.load_back(KEY)
        cache.flush()
        cache.evict_host(Counts(full=1))
    assert guarded.take_events() == alone.take_events()
    assert guarded.snapshot() == alone.snapshot()
    assert guarded.config == CONFIG


def test_guard_counts_what_was_exercised() -> None:
    """A law is counted where its premise is met, and only there."""
    guarded = guard_states(reference())
    serve(guarded, KEY)
    assert guarded.steps == guarded.judged == 6
    # There is no node before the insert, and no event after the first but those of the insert.
    assert guarded.laws_exercised["TREE-1"] == 3
    assert guarded.laws_exercised["ALLOC-5"] == 1
    assert guarded.laws_exercised["MATCH-1"] == guarded.laws_exercised["EVICT-1"] == 0
    # Only a match that finds a written page reads bytes.
    assert guarded.laws_exercised["DATA-1"] == 0
    guarded.match(KEY)
    assert guarded.laws_exercised["DATA-1"] == 1
    # No one says how copies end.
    unseen = {f"ASYNC-{number}" for number in range(10, 17)} | {"EVICT-9"}
    # There is no store below the host.
    unseen |= {law_id for law_id, law in LAWS.items() if Need.STORE in law.needs}
    assert LAWS.keys() - guarded.laws_exercised.keys() == unseen


def test_guard_counts_no_law_of_events_where_they_are_off() -> None:
    """No law of events is counted for a cache without events."""
    guarded = guard_states(reference(evolve(CONFIG, events=False)))
    serve(guarded, KEY)
    guarded.reset()
    exercised = {law_id for law_id, times in guarded.laws_exercised.items() if times}
    assert not any(law_id.startswith("EVENT") for law_id in exercised)
    assert "ALLOC-7" in exercised


# Faults.


def test_guard_names_law_and_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    """A violation names the law, what the law says, and the operation."""
    match = ReferenceCache.match

    def talkative(self: ReferenceCache, key: Key) -> Matched:
        matched = match(self, key)
        self._state.events.append(AllBlocksCleared())
        return matched

    guarded = guard_states(reference())
    serve(guarded, KEY)
    monkeypatch.setattr(ReferenceCache, "match", talkative)
    with pytest.raises(SpecViolation) as caught:
        guarded.match(KEY)
    said = str(caught.value)
    assert "after operation 7, Match(key=Key(((1, 2), (3, 4), (5, 6))))" in said
    assert "which was answered Matched(prefix_pages=3" in said
    assert "EVENT-5 silence: Match sent AllBlocksCleared" in said
    assert "The law: Operations that move no full data emit no events: matches, locks" in said
    assert "EVENT-4 stream_is_residency: the events are wrong about" in said
    assert isinstance(caught.value, ViolationError)
    assert caught.value.step is not None
    assert {violation.law.law_id for violation in caught.value.violations} > {"EVENT-4", "EVENT-5"}
    assert caught.value.step.operation == Match(KEY)


def test_guard_passes_violations_on_where_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """`on_violation` gets all violations, and callers get the cache's answers."""
    found: list[tuple[str, Operation]] = []

    def collect(violation: Violation, step: Step) -> None:
        found.append((violation.law.law_id, step.operation))

    monkeypatch.setattr("kvcanon.reference.cache.emit_cleared", lambda state: None)
    guarded = guard_states(reference(), on_violation=collect)
    serve(guarded, KEY)
    guarded.flush()
    assert not found
    guarded.reset()
    assert ("EVENT-8", "Reset") in [(law_id, type(each).__name__) for law_id, each in found]
    count = len(found)
    assert guarded.match(KEY).prefix_pages == 0
    assert {law_id for law_id, _ in found[count:]} == {"EVENT-4"}


def test_guard_checks_only_the_laws_it_is_given() -> None:
    """Only the given laws are checked, and the laws of the tree's shape."""
    refused = asking(lambda step: iter(["no"] if isinstance(step.outcome, Refused) else []))
    guarded = guard_states(reference(), laws=[refused])
    serve(guarded, KEY)
    assert guarded.laws_exercised == {"TEST-1": 6}
    with pytest.raises(ViolationError, match="TEST-1 asking: no"):
        guarded.allocate(Counts(full=17))


def test_guard_of_a_broken_shape_checks_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Laws that walk the tree are not checked where its shape is broken."""
    snapshot = ReferenceCache.snapshot

    def two_roots(self: ReferenceCache) -> Snapshot:
        state = snapshot(self)
        orphan = evolve(state.root, node_id=-1)
        return evolve(state, nodes={**state.nodes, -1: orphan})

    found: list[str] = []
    guarded = guard_states(
        reference(), on_violation=lambda broken, _: found.append(broken.law.law_id)
    )
    monkeypatch.setattr(ReferenceCache, "snapshot", two_roots)
    guarded.match(KEY)
    guarded.match(KEY)
    assert "TREE-1" in found
    assert set(found) <= set(SHAPE)
    assert not any(guarded.laws_exercised.values())


def test_guard_with_known_bytes_reports_a_broken_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node without a parent is reported by its law, and does not crash the guard."""
    snapshot = ReferenceCache.snapshot

    def orphaned(self: ReferenceCache) -> Snapshot:
        state = snapshot(self)
        lost = state.below_root()[0]
        nodes = {**state.nodes, lost.node_id: evolve(lost, parent_id=-1)}
        return evolve(state, nodes=nodes)

    guarded = guard_states(reference())
    serve(guarded, KEY)
    monkeypatch.setattr(ReferenceCache, "snapshot", orphaned)
    with pytest.raises(ViolationError, match="TREE-2"):
        guarded.match(KEY)


def test_guard_lets_other_errors_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception other than a refusal reaches the caller."""
    guarded = guard_states(reference())

    def crash(self: ReferenceCache) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr(ReferenceCache, "reset", crash)
        with pytest.raises(ZeroDivisionError):
            guarded.reset()
    serve(guarded, KEY)


# Refusals.


def test_guard_passes_a_refusal_through() -> None:
    """A refusal reaches the caller as the cache raised it, and counts as judged."""
    steps: list[Step] = []

    def note(step: Step) -> Iterator[str]:
        steps.append(step)
        return iter(())

    guarded = guard_states(reference(), laws=[asking(note), *LAWS.values()], thorough=True)
    with pytest.raises(OutOfSlots) as caught:
        guarded.allocate(Counts(full=17))
    assert steps[-1].outcome == Refused(caught.value)
    assert guarded.judged == 1


def test_guard_sees_a_refusal_that_changed_something(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused call leaves everything as it was, the events too."""

    def half_done(self: ReferenceCache, counts: Counts) -> Slots:
        self._state.events.append(AllBlocksCleared())
        raise OutOfSlots("full on GPU", 1, 0)

    monkeypatch.setattr(ReferenceCache, "allocate", half_done)
    with pytest.raises(SpecViolation, match="Allocate was refused and sent AllBlocksCleared"):
        guard_states(reference()).allocate(Counts(1))
