"""REC-7: which steps make nothing recent."""

from __future__ import annotations

import pytest
from attrs import evolve

from kvcanon.spec.config import CacheConfig, Profile
from kvcanon.spec.errors import PrefixNotCached
from kvcanon.spec.operations import (
    Evict,
    Evicted,
    HostPayload,
    Insert,
    Inserted,
    InsertHost,
    LoadBack,
    LoadDecision,
    LoadedBack,
    Lock,
    Match,
    Matched,
    Operation,
    Outcome,
    Poll,
    Refused,
    Settled,
)
from kvcanon.spec.snapshot import NodeState, Snapshot
from kvcanon.spec.types import FULL, GPU, SWA, Counts, Slots, make_key
from states import ROOT, node, on, state_of
from telling import ask, step

POOLS = Counts(full=12, swa=12)
CONFIG = CacheConfig(
    window_tokens=2, device_slots=POOLS, host_slots=POOLS, write_policy="write_through"
)
KEY = make_key([1, 2], 1)
LEAF = node(2, ROOT, [7], full=on([8], [8]), swa=on([8], [8]), last_access=6)
TAIL = node(1, 9, [3, 4], full=on([2, 3], [2, 3]), swa=on([2, 3]), last_access=5)
"""What is left of node 1 below a cut."""


def uncut(leaf: NodeState = LEAF) -> Snapshot:
    """Node 1 has four pages, two of them on the path of `KEY`."""
    slots = [0, 1, 2, 3]
    whole = node(1, ROOT, [1, 2, 3, 4], full=on(slots, slots), swa=on(slots), last_access=5)
    return state_of(CONFIG, whole, leaf)


def cut(
    tail: NodeState = TAIL, leaf: NodeState = LEAF, *, last_access: int = 5, priority: int = 0
) -> Snapshot:
    """Node 9 has the first two pages of what was node 1."""
    above = node(9, ROOT, [1, 2], full=on([0, 1], [0, 1]), swa=on([0, 1]), last_access=5)
    above = evolve(above, created=1, last_access=last_access, priority=priority)
    return state_of(CONFIG, above, tail, leaf)


USES: list[Operation] = [Match(KEY), Insert(KEY, 2, Slots())]
OTHERS: list[Operation] = [Lock(KEY), InsertHost(KEY, 2, HostPayload()), LoadBack(KEY)]


def asked(operation: Operation, after: Snapshot) -> list[str]:
    """The violations of a served call, before which node 1 was whole."""
    answers: dict[type[Operation], Outcome] = {
        Match: Matched(2, 2, Slots()),
        Insert: Inserted(2, Counts(), Counts()),
    }
    return ask("REC-7", step(uncut(), operation, after, answers.get(type(operation))))


def name(operation: Operation) -> str:
    """The id of a case."""
    return type(operation).__name__


@pytest.mark.parametrize("operation", [*USES, *OTHERS], ids=name)
def test_rec_7_a_cut_changes_no_age(operation: Operation) -> None:
    """A cut that leaves every place and tick as it was holds."""
    assert asked(operation, cut()) == []


@pytest.mark.parametrize("operation", USES, ids=name)
def test_rec_7_a_use_moves_its_own_path(operation: Operation) -> None:
    """A match or an insert may make its own prefix recent."""
    assert asked(operation, cut(last_access=7)) == []


@pytest.mark.parametrize("operation", OTHERS, ids=name)
def test_rec_7_what_is_no_use_moves_nothing(operation: Operation) -> None:
    """A lock, a host insert or a load-back that makes its prefix recent is reported."""
    said = asked(operation, cut(last_access=7))
    assert said[0] == (
        f"{name(operation)} did not use page 0 in node 1 (tokens 0..4); its last_access was 5 and "
        "is 7"
    )
    assert any("node 9 (tokens 0..2), but it has overtaken" in each for each in said)


@pytest.mark.parametrize(
    ("tail", "words"),
    [
        (evolve(TAIL, last_access=8), "its last_access was 5 and is 8"),
        (evolve(TAIL, priority=2), "its priority was 0 and is 2"),
        (evolve(TAIL, created=7), "its created was 1 and is 7"),
    ],
    ids=["recent", "dear", "young"],
)
@pytest.mark.parametrize("operation", [*USES, *OTHERS], ids=name)
def test_rec_7_what_a_cut_leaves_keeps_its_age(
    operation: Operation, tail: NodeState, words: str
) -> None:
    """A call that changes tick, priority or age of a path that it cuts is reported."""
    found = asked(operation, cut(tail))
    assert any(words in each and "page 2 in node 1" in each for each in found)


def test_rec_7_a_match_ages_nothing() -> None:
    """A match that changes age or priority of its own path is reported."""
    found = asked(Match(KEY), cut(last_access=7, priority=3))
    assert found[0].endswith("its priority was 0 and is 3")
    assert len(found) == 2
    insert = Insert(KEY, 2, Slots(), priority=3)
    assert asked(insert, cut(last_access=7, priority=3)) == []


def test_rec_7_overtaking_is_named() -> None:
    """A change of an order is reported even if every tick stays."""
    after = cut()
    swapped = {pool: tuple(reversed(order)) for pool, order in after.recency.items()}
    said = asked(Match(KEY), evolve(after, recency=swapped))
    assert (
        "Match did not use node 1 (tokens 2..4), but it has overtaken node 2 (tokens 0..1) in the "
        "order of swa on GPU"
    ) in said


@pytest.mark.parametrize(
    ("operation", "outcome"),
    [
        (Evict(Counts(full=1)), Evicted(Counts())),
        (Poll(), Settled(())),
        (Match(KEY), Refused(PrefixNotCached(2, 1))),
        (LoadBack(KEY), LoadedBack(LoadDecision.NO_ROOM)),
    ],
    ids=["evict", "poll", "refused", "load"],
)
def test_rec_7_other_calls_reorder_nothing(operation: Operation, outcome: Outcome) -> None:
    """An eviction, a poll or a refused call that changes an order is reported."""
    before = uncut()
    assert ask("REC-7", step(before, operation, before, outcome)) == []
    shuffled = evolve(before, recency={**before.recency, (SWA, GPU): (2, 1)})
    (said,) = ask("REC-7", step(before, operation, shuffled, outcome))
    assert "in the order of swa on GPU" in said


def test_rec_7_who_left_and_came_again_may_be_anywhere() -> None:
    """Data that was evicted and copied again in one call may be anywhere in the order."""
    data = {FULL: on([8], [8]), SWA: on([8], [9])}
    after = evolve(cut(leaf=evolve(LEAF, data=data)))
    host = (SWA, next(medium for component, medium in after.recency if medium is not GPU))
    both = evolve(uncut(), recency={**uncut().recency, host: (2, 1)})
    assert ask("REC-7", step(both, LoadBack(KEY), after)) == []


def test_rec_7_a_node_that_is_not_cut_moves_whole() -> None:
    """A cache that does not cut where a match ends may move the whole node."""
    data = {FULL: on([0, 1, 2, 3], [0, 1, 2, 3]), SWA: on([0, 1, 2, 3])}
    whole = node(1, ROOT, [1, 2, 3, 4], full=data[FULL], swa=data[SWA], last_access=7)
    found = Matched(2, 2, Slots())
    after = state_of(CONFIG, whole, LEAF)
    for law_id in ("REC-1", "REC-2", "REC-7"):
        assert ask(law_id, step(uncut(), Match(KEY), after, found)) == []
    assert ask("REC-7", step(uncut(), Lock(KEY), after)) != []


def test_recency_profile_may_let_a_cut_refresh() -> None:
    """By profile, a cut may change the recency of the nodes that it cuts."""
    declared, found = Profile(split_keeps_recency=False), Matched(2, 2, Slots())
    before, after = uncut(), cut(evolve(TAIL, last_access=8), last_access=7)
    for law_id in ("REC-1", "REC-2", "REC-7"):
        canon = ask(law_id, step(before, Match(KEY), after, found))
        allowed = [evolve(each, profile=declared) for each in (before, after)]
        assert canon
        assert ask(law_id, step(allowed[0], Match(KEY), allowed[1], found)) == []
    still = evolve(uncut(), profile=declared)
    moved = evolve(still, recency={**still.recency, (SWA, GPU): (2, 1)})
    assert ask("REC-7", step(still, Lock(KEY), moved)) != []
