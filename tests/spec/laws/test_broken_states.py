"""Laws do not raise on broken states: each reports something, or nothing."""

from __future__ import annotations

from random import Random

import pytest
from attrs import evolve

from kvcanon.reference import ManualEngine
from kvcanon.spec.cache import Cache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.law import LAWS, Kind, Need, judge
from kvcanon.spec.laws.unasked import without_unasked
from kvcanon.spec.snapshot import ComponentState, NodeState, Snapshot
from kvcanon.spec.types import MAMBA, Counts, WritePolicy
from kvcanon.spec.views import Step
from planting import steps_of
from scenes import Scene
from states import EVERYTHING

BROKEN_STEPS = 250
OF_STEPS = [
    law for law in LAWS.values() if law.kind is not Kind.STREAM and Need.RANKS not in law.needs
]


def config(policy: WritePolicy) -> CacheConfig:
    """A small cache, so that everything is evicted sooner or later."""
    device, host = Counts(12, 12, 6), Counts(8, 6, 4)
    return evolve(EVERYTHING, device_slots=device, host_slots=host, write_policy=policy)


def everything(cache: Cache, engine: ManualEngine) -> None:
    """Each operation at least once, with copies that succeed and one that fails."""
    s = Scene(cache, engine)
    s.play("put 1234; put 125")
    for transfer_id in engine.open_transfer_ids[1:]:
        engine.acknowledge(transfer_id)
    for transfer_id in engine.open_transfer_ids:
        engine.fail(transfer_id)
    s.play("poll; put 1234; flush")
    receipt = s.lock("12")
    s.evict(4, 2, 1)
    cache.unlock_window(receipt)
    s.play("fetch 789 window=2 state=1; load 78; hit 789; flush")
    cache.unlock(receipt)
    s.play("evict_host full=2 swa=1 mamba=1; evict full=8; reset")


def broken(state: Snapshot, random: Random) -> Snapshot:
    """A state in which one thing is wrong; its links still form one tree."""
    nodes = [node for node in state.below_root() if not node.child_ids]
    match random.randrange(5 if nodes else 3):
        case 0:
            return evolve(state, holds=state.holds[1:], transfers=state.transfers[:-1])
        case 1:
            pool = random.choice(list(state.recency))
            order = list(state.recency[pool])
            random.shuffle(order)
            return evolve(state, recency={**state.recency, pool: (*order[1:], 99)})
        case 2:
            return evolve(state, pools={})
        case 3:
            return without(state, random.choice(nodes))
        case _:
            node = random.choice(nodes)
            return evolve(state, nodes={**state.nodes, node.node_id: with_other_data(node, random)})


def without(state: Snapshot, leaf: NodeState) -> Snapshot:
    """The state without a leaf, whose slots have no owner then."""
    assert leaf.parent_id is not None
    parent = state.nodes[leaf.parent_id]
    children = tuple([each for each in parent.child_ids if each != leaf.node_id])
    nodes = {**state.nodes, parent.node_id: evolve(parent, child_ids=children)}
    del nodes[leaf.node_id]
    return evolve(state, nodes=nodes)


def with_other_data(node: NodeState, random: Random) -> NodeState:
    """The node with one component's data missing, elsewhere, locked, or waiting for a copy."""
    component = random.choice(list(node.data))
    slots = tuple(range(1 if component is MAMBA else len(node.pages)))
    data = random.choice(
        [
            ComponentState(),
            ComponentState(device=slots),
            ComponentState(host=slots),
            ComponentState(slots, slots, 2),
            ComponentState(slots, slots, loading=77),
            ComponentState(slots, slots, backing=77),
        ]
    )
    return evolve(node, data={**node.data, component: data}, hit_count=random.randrange(3))


def broken_step(steps: list[Step], random: Random) -> Step:
    """A step of a sound cache with one or two faults in its states, or another answer."""
    step = random.choice(steps)
    before, after, outcome = step.before, step.after, step.outcome
    for _ in range(random.randrange(1, 3)):
        match random.randrange(5):
            case 0 | 1:
                after = broken(after, random)
            case 2 | 3:
                before = broken(before, random)
            case _:
                outcome = random.choice(steps).outcome
    return Step(before, step.operation, outcome, after, step.events, given=step.given)


@pytest.mark.parametrize("policy", [WritePolicy.WRITE_THROUGH, WritePolicy.WRITE_BACK])
def test_no_law_falls_over_a_broken_state(policy: WritePolicy) -> None:
    """No law raises on a broken state."""
    steps, random, spoke = steps_of(config(policy), everything), Random(1), set[str]()
    for _ in range(BROKEN_STEPS):
        step = broken_step(steps, random)
        if judge(step.before, ()) or judge(step.after, ()):
            continue
        asked = without_unasked(step)
        for law in OF_STEPS:
            subject = asked if law.kind is Kind.STEP else step.after
            law.premise.is_met(subject)
            if list(law.check(subject)):
                spoke.add(law.law_id)
    assert len(spoke) > len(OF_STEPS) * 2 // 5
