"""A guard of a sample of steps: which steps it judges, and what it does with events of others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from guarded import KEY, LONGER, OTHER, asking, reference, scripted, serve
from kvcanon.conformance.judge.by_states.guard import guard_states
from kvcanon.reference import ReferenceCache
from kvcanon.spec.errors import SpecViolation
from kvcanon.spec.events import BlockStored
from kvcanon.spec.operations import Operation
from kvcanon.spec.types import Counts, make_key
from kvcanon.spec.views import Step

# Sampling.


def judged_steps(seed: int, rate: float) -> list[Operation]:
    """Return the operations that a guard judges in a run of many."""
    judged: list[Operation] = []

    def note(step: Step) -> Iterator[str]:
        judged.append(step.operation)
        return iter(())

    guarded = guard_states(reference(), rate=rate, seed=seed, laws=[asking(note)], thorough=True)
    for tokens in range(40):
        guarded.match(make_key([tokens, tokens], 2))
    assert guarded.steps == 40
    assert guarded.judged == len(judged)
    return judged


def test_guard_draws_its_sample_from_the_seed() -> None:
    """The same seed judges the same steps; another seed others."""
    assert judged_steps(1, 0.5) == judged_steps(1, 0.5)
    assert judged_steps(1, 0.5) != judged_steps(2, 0.5)
    assert 5 < len(judged_steps(3, 0.5)) < 35


def test_guard_at_rate_one_judges_everything() -> None:
    """Every step is judged, and the state after one is the state before the next."""
    assert len(judged_steps(1, 1.0)) == 40


def test_guard_at_rate_zero_looks_at_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A guard that never judges takes no snapshot."""
    cache = reference()
    monkeypatch.setattr(ReferenceCache, "snapshot", lambda self: pytest.fail("a snapshot"))
    guarded = guard_states(cache, rate=0.0)
    serve(guarded, KEY)
    guarded.take_events()
    assert (guarded.steps, guarded.judged) == (7, 0)


def test_guard_takes_no_snapshot_of_steps_outside_the_sample(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A step that is not judged costs one call."""
    guarded = scripted(reference(), *[False] * 7)
    with monkeypatch.context() as patched:
        patched.setattr(ReferenceCache, "snapshot", lambda self: pytest.fail("a snapshot"))
        serve(guarded, KEY, write=False)
        guarded.take_events()
    assert guarded.judged == 0


# Events.


def test_guard_counts_events_of_steps_that_it_does_not_judge() -> None:
    """Events add up over steps outside the sample, taken or waiting."""
    guarded = scripted(
        reference(), *[False] * 6, True, False, *[False] * 6, True, *[False] * 7, True
    )
    serve(guarded, KEY)
    guarded.match(KEY)  # Judged: the events still wait, and are heard there.
    guarded.take_events()  # All of them were heard.
    serve(guarded, LONGER)
    guarded.take_events()  # Judged, with what came since.
    serve(guarded, OTHER)
    guarded.take_events()
    guarded.match(KEY)  # Judged, after events that are gone.
    assert guarded.judged == 3


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_guard_counts_each_event_once_at_any_rate(rate: float) -> None:
    """No event is lost or counted twice, whatever the sample is."""
    for seed in range(3):
        guarded = guard_states(reference(), rate=rate, seed=seed)
        for at in range(30):
            guarded.evict(Counts(full=3 + at % 4, swa=3, mamba=1))
            serve(guarded, make_key([at % 3, at % 2, at % 5, 1, at % 7, 2], 2))
            if at % 3 == seed % 3:
                guarded.take_events()
        assert 0 < guarded.judged <= guarded.steps


def test_guard_says_what_was_broken_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """A law that an operation outside the sample broke is reported as broken before."""
    guarded = scripted(reference(), *[False] * 6, True)
    with monkeypatch.context() as patched:
        patched.setattr("kvcanon.reference.insert.emit_stored", lambda *_: None)
        serve(guarded, KEY)
    with pytest.raises(SpecViolation) as caught:
        guarded.match(KEY)
    said = str(caught.value)
    assert "EVENT-4" in said
    assert "broken before, by an operation that was not judged" in said


def test_guard_of_a_cache_in_use_starts_from_its_state() -> None:
    """A guard around a cache in use starts from the pages in its state."""
    cache = reference()
    serve(cache, KEY)
    cache.take_events()
    serve(cache, LONGER)
    guarded = guard_states(cache)
    serve(guarded, OTHER)
    guarded.take_events()
    serve(guarded, LONGER)


def test_guard_judges_all_events_of_a_new_cache() -> None:
    """The guard checks every event of a cache from which no events were taken."""
    cache = reference()
    serve(cache, KEY)
    (store,) = [e for e in cache._state.events if isinstance(e, BlockStored)][:1]
    cache._state.events.remove(store)
    with pytest.raises(SpecViolation, match="EVENT-4"):
        guard_states(cache).match(KEY)
