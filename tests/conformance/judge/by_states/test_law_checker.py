"""Laws checked on the difference of a step find the same as laws checked on everything."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from random import Random

import pytest
from attrs import evolve

import kvcanon.spec.laws  # noqa: F401  # Importing the laws registers them.
from corrupting import corrupted
from kvcanon.conformance.cases.actions import act
from kvcanon.conformance.cases.case import Case
from kvcanon.conformance.cases.client import Client, Stamps
from kvcanon.conformance.cases.draw import draw_case
from kvcanon.conformance.judge.by_states.guard import guard_states
from kvcanon.conformance.protocol.adapter import Adapter, make_subject
from kvcanon.conformance.protocol.cache_names import load_adapter
from kvcanon.conformance.vectors import read_vectors
from kvcanon.lab.mutants.faulty import mutated
from kvcanon.lab.mutants.planted import MUTANTS, STORE_MUTANTS, Mutant
from kvcanon.spec.difference import Difference
from kvcanon.spec.events import Residency
from kvcanon.spec.law import LAWS, SHAPE, Kind, Law, Need, in_doubt, judge, judge_next
from kvcanon.spec.laws.expected_events import moved_on, residency_of
from kvcanon.spec.snapshot import NodeState, Snapshot
from kvcanon.spec.types import Counts

STATE_LAWS = [law for law in LAWS.values() if law.kind is Kind.STATE]
OTHERS = [law for law in STATE_LAWS if law.law_id not in SHAPE]
"""All laws except those of the shape, which are always checked."""

Heard = list[tuple[int, str, str]]
"""Violations: the number of the operation, the law, and the text."""


@cache
def pairs(cases: int = 12) -> tuple[tuple[Snapshot, Snapshot], ...]:
    """Return the states around those steps of some walker cases that change something."""
    adapter, found = load_adapter("reference"), list[tuple[Snapshot, Snapshot]]()
    for number in range(cases):
        case = draw_case(number, adapter.offer)
        subject = make_subject(adapter, case.config)
        client = Client(subject.cache, subject.can, subject.copies, Stamps(case.config.slot_bytes))
        last = subject.cache.snapshot()
        for action in case.actions:
            act(client, *action)
            now = subject.cache.snapshot()
            if now != last:
                found.append((last, now))
            last = now
    return tuple(found)


def differences(seed: int, count: int) -> Iterator[Difference]:
    """Yield steps from sound states, most of them to faulty states."""
    random = Random(seed)
    for _ in range(count):
        before, after = random.choice(pairs())
        yield Difference(before, corrupted(random.choice((before, after)), random))


def has_shape(state: Snapshot) -> bool:
    """Whether the nodes of a state are a tree."""
    return not judge(state, ())


# States.


def test_no_law_is_said_to_outlast_a_step_that_broke_it() -> None:
    """A law that is declared to outlast a step holds after it."""
    broken = set[str]()
    for difference in differences(seed=11, count=1500):
        laws = STATE_LAWS if has_shape(difference.after) else [LAWS[law_id] for law_id in SHAPE]
        for law in laws:
            said = list(law.check(difference.after))
            broken.update([law.law_id] if said else [])
            assert not said or in_doubt(difference, [law]), (law.law_id, said)
    # No state here has a store; `test_a_faulty_cache_is_found_at_the_same_step` has faults of them.
    assert broken == {law.law_id for law in STATE_LAWS if Need.STORE not in law.needs}


def test_what_is_said_of_a_difference_is_what_is_said_of_the_state() -> None:
    """`judge_next` finds what `judge` finds, in the same order."""
    for difference in differences(seed=2, count=400):
        assert judge_next(difference, OTHERS) == judge(difference.after, OTHERS)


@pytest.mark.parametrize("law", STATE_LAWS, ids=[law.law_id for law in STATE_LAWS])
def test_a_law_that_holds_is_seldom_asked_of_the_whole(law: Law) -> None:
    """After most steps most laws of states need no check of the whole tree."""
    outlasted = sum(not in_doubt(Difference(*pair), [law]) for pair in pairs())
    # The data of copies in flight is checked as a whole.
    least = 0.5 if law.law_id == "DATA-2" else 0.9
    assert outlasted > least * len(pairs())


def test_of_another_configuration_everything_is_asked() -> None:
    """A state with another configuration is checked as a whole."""
    before, after = next(
        pair
        for pair in pairs()
        if any(max(node.full.device or (0,)) > 0 for node in pair[1].nodes.values())
    )
    other = evolve(after, config=evolve(after.config, device_slots=Counts(full=1)))
    assert judge_next(Difference(before, other), OTHERS) == judge(other, OTHERS) != []


def test_equal_states_are_asked_nothing() -> None:
    """A step that changes nothing is not checked again."""
    state = pairs()[40][1]
    assert not judge_next(Difference(state, state), OTHERS)


# What differs.


def slow_changes(here: Snapshot, there: Snapshot) -> list[NodeState]:
    """The nodes of a state that are not in another, equal and at the same depth."""
    return [
        node
        for node in here.below_root()
        if there.nodes.get(node.node_id) != node
        or here.starts[node.node_id] != there.starts[node.node_id]
    ]


def test_changed_nodes_are_those_that_are_not_the_same() -> None:
    """The changed nodes are exactly those that a step changed or moved."""
    shifted = 0
    for difference in differences(seed=11, count=1500):
        before, after = difference.before, difference.after
        if has_shape(after):
            expected = slow_changes(before, after), slow_changes(after, before)
            assert difference.changed == expected
            shifted += any(after.nodes.get(node.node_id) == node for node in expected[0])
    assert shifted


def test_residency_moves_on_with_what_moved() -> None:
    """The residency after a step is updated correctly from the one before."""
    moved = 0
    for difference in differences(seed=11, count=1500):
        if not has_shape(difference.after):
            continue
        was, now = residency_of(difference.before), residency_of(difference.after)
        found = moved_on(Residency(was), difference)
        assert found is None or set(found) == now
        moved += found is not None and was != now
    assert moved > 100


# Caches.


def heard(adapter: Adapter, case: Case, *, thorough: bool) -> Heard:
    """Return all violations of a cache in a case, up to its end or a crash."""
    found: Heard = []
    subject = make_subject(adapter, case.config, store=case.store)
    judged = guard_states(
        subject.cache,
        on_violation=lambda each, _: found.append((judged.steps, each.law.law_id, each.text)),
        copies=subject.copies,
        thorough=thorough,
        store=subject.store,
    )
    client = Client(judged, subject.can, subject.copies, Stamps(case.config.slot_bytes))
    client.store = subject.store
    try:
        for action in case.actions:
            act(client, *action)
        client.drain(case.drain)
    except Exception as error:  # noqa: BLE001  # A faulty cache may raise anything, but the same.
        found.append((judged.steps, type(error).__name__, str(error)))
    return found


ALL_MUTANTS = (*MUTANTS, *STORE_MUTANTS)


@pytest.mark.parametrize("mutant", ALL_MUTANTS, ids=[mutant.name for mutant in ALL_MUTANTS])
def test_a_faulty_cache_is_found_at_the_same_step(mutant: Mutant) -> None:
    """A fault is found at the same step and under the same laws as by a thorough guard."""
    adapter = mutated(mutant)
    for vector in read_vectors():
        if vector.law_id == mutant.law_id:
            usual = heard(adapter, vector.case, thorough=False)
            assert usual == heard(adapter, vector.case, thorough=True)
