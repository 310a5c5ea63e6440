"""ASK-1 to ASK-6: what a cache does on its own, and the step without it."""

from __future__ import annotations

import pytest
from attrs import evolve

from kvcanon.spec import operations as op
from kvcanon.spec.config import CANON, Choosing
from kvcanon.spec.events import BlockRemoved, Event
from kvcanon.spec.law import LAWS, Kind
from kvcanon.spec.laws.page_hashes import PageHashes
from kvcanon.spec.laws.unasked import without_unasked
from kvcanon.spec.snapshot import HoldState, NodeState, Snapshot, TransferState
from kvcanon.spec.transfer import Direction
from kvcanon.spec.types import CPU, FULL, GPU, MAMBA, SWA, Counts, Slots, WritePolicy, make_key
from kvcanon.spec.views import Step
from states import EVERYTHING, ROOT, having, node, on, state_of, with_pool
from states.judging import ask, step

SLOTS = Counts(full=8, swa=8, mamba=2)
CONFIG = evolve(EVERYTHING, device_slots=SLOTS, host_slots=SLOTS, write_policy="write_through")
KEY = make_key([1, 2, 3, 4], 1)
TOP = node(1, ROOT, [1, 2], full=on([0, 1], [0, 1]), swa=on([0, 1], [0, 1]))
TIP = node(2, 1, [3, 4], full=on([2, 3]), swa=on([2, 3]), mamba=on([0]))
BOTH = state_of(CONFIG, TOP, TIP)
LOOK = op.Match(make_key([9], 1))
FOUND = op.Matched(0, 0, Slots())


def looked(after: Snapshot, before: Snapshot = BOTH, events: tuple[Event, ...] = ()) -> Step:
    """A match of a key that is not there, in which the cache did something on its own."""
    return step(before, LOOK, after, FOUND, events)


def removes(state: Snapshot, node_id: int) -> tuple[Event, ...]:
    """The removes of a node's pages from the device, the last page first."""
    return tuple(
        BlockRemoved(page_hash, GPU)
        for page_hash in reversed(PageHashes(state).of(state.nodes[node_id]))
    )


def broken_by(subject: Step) -> set[str]:
    """The laws of steps that are broken by a step without what the cache did on its own."""
    asked = without_unasked(subject)
    of_steps = (law for law in LAWS.values() if law.kind is Kind.STEP)
    return {law.law_id for law in of_steps if list(law.check(asked))}


EXPIRED = looked(state_of(CONFIG, TOP), events=removes(BOTH, 2))
"""A leaf expired."""
DEMOTED = looked(
    state_of(CONFIG, having(TOP, full=on(None, [0, 1]), swa=on(None, [0, 1]))),
    state_of(CONFIG, TOP),
    removes(BOTH, 1),
)
"""A leaf left the device, and stays on the host."""
MOVED = looked(state_of(CONFIG, TOP, having(TIP, full=on([5, 7]))))
"""Full data went to other slots."""


def copying(direction: Direction) -> Step:
    """A match in which a copy of the top began: to the device, or to the host."""
    back = direction is Direction.LOAD_BACK
    there = on(None, [0, 1]) if back else on([0, 1])
    before = state_of(CONFIG, having(TOP, full=there, swa=there))
    on_its_way = on([4, 5], [0, 1], loading=7) if back else on([0, 1], [0, 1], backing=7)
    held = evolve(on_its_way, lock_refs=1)
    moving = ((0, 1), (4, 5)) if back else ((0, 1), (0, 1))
    parts = {FULL: moving[0], SWA: moving[0]}, {FULL: moving[1], SWA: moving[1]}
    transfer = TransferState(7, direction, ((1, FULL), (1, SWA)), *parts)
    after = state_of(
        CONFIG,
        having(TOP, full=held, swa=held),
        transfers=(transfer,),
        holds=(HoldState(8, 1, 0, state_held=False, transfer_id=7),),
    )
    return looked(after, before)


@pytest.mark.parametrize(
    ("law_id", "field", "subject"),
    [
        ("ASK-1", "retention", EXPIRED),
        ("ASK-1", "retention", DEMOTED),
        ("ASK-2", "loads", copying(Direction.LOAD_BACK)),
        ("ASK-3", "backups", copying(Direction.BACKUP)),
        ("ASK-4", "placement", MOVED),
    ],
)
def test_only_its_law_names_what_nothing_asked_for(law_id: str, field: str, subject: Step) -> None:
    """What a cache does on its own breaks one law of policy, and the field that declares it."""
    assert broken_by(subject) == {law_id}
    assert LAWS[law_id].chosen_by == field
    # Without that, other laws take it for what the match did.
    assert ask("MATCH-5", subject) != []


def test_a_step_as_asked_stays_as_it_is() -> None:
    """Nothing is taken out of a step in which the cache did what it was asked."""
    evicted = step(
        BOTH, op.Evict(Counts(full=1)), state_of(CONFIG, TOP), op.Evicted(Counts(2, 2, 1))
    )
    assert without_unasked(evicted) is evicted
    assert without_unasked(looked(BOTH)).unasked is None


@pytest.mark.parametrize(
    ("law_id", "tip"),
    [
        ("LOCK-4", having(TIP, full=evolve(TIP.full, lock_refs=1))),
        ("MATCH-5", having(TIP, full=evolve(TIP.full, backing=3))),
    ],
)
def test_what_is_held_is_nobodys_to_take(law_id: str, tip: NodeState) -> None:
    """Data that a request has locked or that is being copied does not expire, nor move."""
    before = state_of(CONFIG, TOP, tip)
    gone = looked(state_of(CONFIG, TOP), before)
    moved = looked(state_of(CONFIG, TOP, having(tip, full=evolve(tip.full, device=(5, 7)))), before)
    assert law_id in broken_by(gone)
    assert law_id in broken_by(moved)


def test_inner_nodes_do_not_expire() -> None:
    """A node with data below it does not leave on its own."""
    gone = looked(state_of(CONFIG, having(TOP, full=on(None, [0, 1]), swa=on(None, [0, 1])), TIP))
    assert "TREE-5" in broken_by(gone) or "MATCH-5" in broken_by(gone)


def test_data_does_not_move_into_slots_that_others_have() -> None:
    """Data that moves goes to slots that were free."""
    over = looked(state_of(CONFIG, TOP, having(TIP, full=on([0, 7]))))
    assert "MATCH-5" in broken_by(over)


def test_an_insert_says_what_it_leaves_out() -> None:
    """An insert that frees new pages, and says so, is a choice; one that loses them is a fault."""
    empty = with_pool(state_of(CONFIG), FULL, free=range(7), held={7})
    call = op.Insert(make_key([8], 1), 0, Slots((7,)))
    left_out = step(empty, call, state_of(CONFIG), op.Inserted(0, Counts(), Counts(full=1)))
    assert broken_by(left_out) == {"ASK-5"}
    lost = step(empty, call, state_of(CONFIG), op.Inserted(0, Counts(full=1), Counts()))
    assert "MATCH-6" in broken_by(lost)


def test_reserved_slots_are_those_that_nobody_has_in_an_empty_tree() -> None:
    """As many slots as the profile says are never handed out, from the start."""
    short = with_pool(state_of(CONFIG), FULL, free=(1, 2, 3, 4, 5, 6, 7))
    reserving = evolve(CANON, reserved_slots=Counts(full=1))
    assert ask("ASK-6", looked(short, short)) != []
    declared = evolve(short, profile=reserving)
    assert ask("ASK-6", looked(declared, declared)) == []
    whole = evolve(state_of(CONFIG), profile=reserving)
    assert ask("ASK-6", looked(whole, whole)) != []


def test_copies_that_an_insert_begins_are_named_by_it() -> None:
    """An insert that does not name its backups breaks a law of soundness, not of policy."""
    began = copying(Direction.BACKUP)
    call = op.Insert(make_key([1, 2], 1), 2, Slots())
    told = op.Inserted(2, Counts(), Counts())
    inserted = evolve(began, operation=call, outcome=told)
    assert "ASYNC-7" in broken_by(inserted)


def test_victims_of_write_back_are_copied_as_they_leave() -> None:
    """Under write_back, data that leaves the device on its own goes to the host."""
    config = evolve(CONFIG, write_policy=WritePolicy.WRITE_BACK)
    tip = having(TIP, full=on(None, [2, 3]), swa=on(None, [2, 3]), mamba=on(None, [0]))
    before, after = state_of(config, TOP, TIP), state_of(config, TOP, tip)
    asked = without_unasked(looked(after, before))
    assert asked.unasked is not None
    assert asked.before.nodes[2] == after.nodes[2]
    assert set(asked.unasked.left[2]) == {(FULL, GPU), (SWA, GPU), (MAMBA, GPU)}
    assert asked.before.pools[FULL, CPU] == after.pools[FULL, CPU]
    assert Choosing.OWN not in (CANON.retention, CANON.placement)
