"""Evidence: which steps exercise a law, and which calls count as served."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kvcanon.conformance.judge.by_states.evidence import Evidence, by_premise
from kvcanon.conformance.judge.judged_cache import Service
from kvcanon.reference import ReferenceCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.difference import Difference
from kvcanon.spec.law import Kind, Law, LawClass, Level, Need, Premise
from kvcanon.spec.operations import (
    Allocate,
    Evict,
    Free,
    HostPayload,
    Insert,
    InsertHost,
    LoadBack,
    Lock,
    Match,
    Operation,
    Poll,
    Receipt,
    Reset,
    Unlock,
    UnlockWindow,
)
from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.types import Counts, Key, Slots, make_key

STATE = ReferenceCache(CacheConfig(device_slots=Counts(full=2))).snapshot()
KEY, NOTHING = make_key([1, 2], 1), Key(())


def law(law_id: str, premise: Premise[Snapshot]) -> Law:
    """A law of states that always holds."""

    def check(_: Snapshot) -> Iterator[str]:
        return iter(())

    needs = frozenset[Need]()
    return Law(
        law_id, Kind.STATE, LawClass.SOUND, premise, Level.MUST, needs, "a", "b", "c", "d", check
    )


def test_a_premise_that_laws_share_is_asked_once() -> None:
    """A premise that several laws share is evaluated once."""
    asked = []

    def is_met(state: Snapshot) -> bool:
        asked.append(state)
        return True

    never = Premise[Snapshot]("never", lambda _: False)
    shared = Premise("always", is_met)
    laws = [law("A-1", shared), law("A-2", never), law("A-3", shared)]
    evidence = Evidence(laws)
    evidence.see((), Difference(STATE, STATE))
    assert evidence.laws_exercised == {"A-1": 1, "A-2": 0, "A-3": 1}
    assert asked == [STATE]
    assert [each.law_ids for each in by_premise(laws, Kind.STATE)] == [("A-1", "A-3"), ("A-2",)]


@pytest.mark.parametrize(
    ("operation", "name"),
    [
        (Match(KEY), "match"),
        (Lock(KEY), "lock"),
        (Unlock(Receipt(1, KEY)), "unlock"),
        (UnlockWindow(Receipt(1, KEY)), "unlock_window"),
        (Allocate(Counts(1)), "allocate"),
        (Free(Slots((1,))), "free"),
        (Insert(KEY, 0, Slots((0, 1))), "insert"),
        (InsertHost(KEY, 0, HostPayload()), "insert_host"),
        (Evict(Counts(swa=1)), "evict"),
        (LoadBack(KEY, 0), "load_back"),
        (Poll(), "poll"),
        (Reset(), "reset"),
    ],
)
def test_calls_count_under_the_name_of_their_method(operation: Operation, name: str) -> None:
    """Served and refused operations are counted apart."""
    service = Service()
    service.note(operation, refused=False)
    service.note(operation, refused=True)
    service.note(operation, refused=True)
    assert (service.served, service.refused) == ({name: 1}, {name: 2})


@pytest.mark.parametrize(
    "operation",
    [
        Match(NOTHING),
        Lock(NOTHING),
        Unlock(Receipt(1, NOTHING)),
        Allocate(Counts()),
        Free(Slots()),
        Insert(KEY, 2, Slots()),
        LoadBack(NOTHING),
        LoadBack(KEY, -1),
    ],
)
def test_a_call_for_nothing_is_no_service(operation: Operation) -> None:
    """An operation of no page or slot is not counted as served."""
    service = Service()
    service.note(operation, refused=False)
    service.note(operation, refused=True)
    assert not service.served
    assert not service.refused
