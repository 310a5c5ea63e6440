"""Relevance is found by running the laws; no law that can break is skipped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from attrs import evolve

from kvcanon.conformance.cases.actions import act
from kvcanon.conformance.cases.client import Client, Stamps
from kvcanon.conformance.judge.by_states.guard import guard_states
from kvcanon.conformance.judge.by_states.relevance import Relevance
from kvcanon.conformance.protocol.adapter import make_subject
from kvcanon.conformance.vectors import Vector, VectorLevel, read_vectors
from kvcanon.lab.mutants.faulty import mutated
from kvcanon.lab.mutants.planted import MUTANTS, Mutant
from kvcanon.reference import ManualEngine, ReferenceCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import PrefixNotCached
from kvcanon.spec.events import AllBlocksCleared, Residency
from kvcanon.spec.law import LAWS, SHAPE, Kind, Stream, Violation
from kvcanon.spec.laws.unasked import without_unasked
from kvcanon.spec.operations import Evict, Lock, Match, Matched, Receipt, Refused, Settle, Settled
from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.types import Counts, Key, Slots
from kvcanon.spec.views import Step


def step() -> Step:
    """Return a match in an empty cache, after which there is a page."""
    cache = ReferenceCache(CacheConfig(device_slots=Counts(1)))
    before = cache.snapshot()
    cache.insert(Key(((0,),)), 0, cache.allocate(Counts(1)))
    return Step(before, Match(Key(())), Matched(0, 0, Slots()), cache.snapshot())


def spoken(mutant: Mutant, vector: Vector) -> Iterator[tuple[Violation, Step]]:
    """Yield the violations of a faulty cache in a vector, with their steps."""
    said: list[tuple[Violation, Step]] = []
    config = vector.case.config
    subject = make_subject(mutated(mutant), config)
    judged = guard_states(
        subject.cache,
        on_violation=lambda *each: said.append(each),
        copies=subject.copies,
        new=True,
    )
    client = Client(judged, subject.can, subject.copies, Stamps(config.slot_bytes))
    client.states_within = subject.states_within
    try:
        for action in vector.case.actions:
            act(client, *action)
        client.drain(vector.case.drain)
    except Exception:  # noqa: BLE001  # The violations before the crash are enough.
        return iter(said)
    return iter(said)


ALONE = [mutant for mutant in MUTANTS if mutant.law_id not in ("ASYNC-11", "ASYNC-15")]
"""The mutants that one cache shows; those of ranks take several."""


@pytest.mark.parametrize("mutant", ALONE, ids=[mutant.name for mutant in ALONE])
def test_a_law_that_speaks_is_asked(mutant: Mutant) -> None:
    """Every law that can be exercised by a step is checked after it."""
    heard, levels = 0, set[VectorLevel]()
    for vector in read_vectors():
        if vector.law_id != mutant.law_id:
            continue
        levels.add(vector.level)
        relevance = Relevance(LAWS.values())
        for violation, about in spoken(mutant, vector):
            heard += 1
            if violation.law.kind is Kind.STATE:
                # Steps of a tree with a broken shape, for example, cannot be compared.
                continue
            stream = Stream(Residency(), about.events, about.after)
            of_step = relevance.of_step(without_unasked(about))
            asked = (*of_step.laws, *relevance.of_stream(stream).laws)
            # The guard's streams contain earlier events, too.
            assert violation.law in asked or not about.events
    # The guard may not see all that shows in black-box mode: it knows only bytes that were written.
    assert heard or VectorLevel.BLACK_BOX in levels


def test_laws_of_other_operations_are_left_out() -> None:
    """A law on another operation is not checked after a step."""
    asked = {law.law_id for law in Relevance(LAWS.values()).of_step(step()).laws}
    assert {"MATCH-1", "MATCH-5", "REC-7", "LOCK-4", "EVENT-10"} <= asked
    assert not {"LOCK-8", "EVICT-1", "LOAD-1", "ALLOC-5", "RES-7", "EVENT-7"} & asked
    assert SHAPE[0] not in asked


def test_laws_about_what_a_state_lacks_are_left_out() -> None:
    """A law on copies is checked where copies change or end; one on changes only after one."""
    config = CacheConfig(device_slots=Counts(2), host_slots=Counts(2), write_policy="write_through")
    cache = ReferenceCache(config, ManualEngine())
    empty = cache.snapshot()

    def asked(before: Snapshot, after: Snapshot, *, settles: bool = False) -> set[str]:
        about = Step(before, Match(Key(())), Matched(0, 0, Slots()), after)
        if settles:
            about = Step(before, Settle(()), Settled(()), after)
        return {law.law_id for law in Relevance(LAWS.values()).of_step(about).laws}

    key = Key(((0,),))
    slots = cache.allocate(Counts(1))
    held = cache.snapshot()
    cache.insert(key, 0, slots)
    copying = cache.snapshot()
    assert {"MATCH-1", "MATCH-5"} <= asked(empty, empty)
    assert {"ASYNC-1", "LOCK-10", "EVENT-10"}.isdisjoint(asked(empty, empty))
    assert {"ASYNC-1", "LOCK-10"}.isdisjoint(asked(empty, held))
    assert "EVENT-5" not in asked(empty, held)
    assert {"ASYNC-1", "LOCK-10", "EVENT-10"} <= asked(held, copying)
    assert {"ASYNC-1", "LOCK-10"} <= asked(copying, held)
    assert {"REC-7", "LOCK-10"} <= asked(empty, copying)
    assert {"ASYNC-1", "REC-7", "LOCK-10"}.isdisjoint(asked(copying, copying))
    assert "ASYNC-1" in asked(copying, copying, settles=True)


def test_laws_about_what_a_configuration_lacks_are_left_out() -> None:
    """A law on windows is checked exactly in configurations with a window."""
    for window, is_asked in ((None, False), (4, True)):
        state = ReferenceCache(CacheConfig(window_tokens=window)).snapshot()
        about = Step(state, Lock(Key(())), Receipt(1, Key(())), state)
        asked = {law.law_id for law in Relevance(LAWS.values()).of_step(about).laws}
        assert "LOCK-9" in asked
        assert ("LOCK-6" in asked) is is_asked


@pytest.mark.parametrize(
    "look",
    [
        lambda about: about.operation.key,
        lambda about: about.operation == Match(Key(())),
        lambda about: about.outcome.prefix_pages > 3,
        lambda about: about.outcome.slots is None,
        lambda about: bool(about.changed[0]),
        lambda about: about.before.nodes is about.after.nodes,
        lambda about: about.before == about.after,
        lambda about: about.before.pools,
        lambda about: about.before.transfers == about.after.recency,
        lambda about: about.events,
        lambda about: repr(about.outcome),
        lambda about: len(about.before.nodes),
        lambda about: isinstance(about.outcome.error, PrefixNotCached),
    ],
)
def test_whoever_looks_is_asked(look: Callable[[Any], object]) -> None:
    """A law that reads the state is checked again after it found nothing once."""

    def check(sealed: Step) -> Iterator[str]:
        # Swallowing the exception must not hide the look.
        with suppress(Exception):
            bool(look(sealed))
        return iter(())

    law = evolve(LAWS["MATCH-1"], check=check)
    about = evolve(step(), events=(AllBlocksCleared(),))
    assert Relevance([law]).of_step(about).laws == (law,)


@pytest.mark.parametrize(
    "glance",
    [
        lambda about: isinstance(about.operation, Evict),
        lambda about: type(about.operation) in {Evict: 1, Matched: 2},
        lambda about: {Match: False, Evict: True}.get(type(about.operation)),
        lambda about: isinstance(about.outcome, Refused),
        lambda about: about.before.config.mamba,
        lambda about: about.after.profile.heals_in_place is False,
        lambda about: bool(about.stamps),
    ],
)
def test_whoever_looks_at_types_alone_is_not(glance: Callable[[Any], object]) -> None:
    """A law that returns by types alone is skipped if its types are absent."""
    law = evolve(LAWS["MATCH-1"], check=lambda sealed: iter(["broken"] if glance(sealed) else []))
    assert Relevance([law]).of_step(step()).laws == ()


def test_premises_that_cannot_come_up_are_left_out() -> None:
    """A premise is evaluated only after steps that can meet it."""
    asked = Relevance((), LAWS.values()).of_step(step())
    waiting = {law_id for shared in (*asked.premises, *asked.met) for law_id in shared.law_ids}
    assert "MATCH-1" in waiting
    assert "EVICT-1" not in waiting
