"""Uncovered tombstones: by profile they leave together with the last node below them.

Such a tombstone is no victim of its own. It counts as part of the victim that uncovered it, both
for how much that one freed and for whose turn it was.
"""

from __future__ import annotations

from attrs import evolve

from kvcanon.spec.laws.comparison import Loss, losses
from kvcanon.spec.snapshot import NodeState
from kvcanon.spec.types import GPU, SWA, Medium, NodeId
from kvcanon.spec.views import Step


def uncovered(step: Step, medium: Medium) -> dict[NodeId, NodeState]:
    """The tombstones that left the device with everything below them, as they were before."""
    state = step.before
    stay = state.profile.uncovered_tombstones_stay or SWA not in state.config.components
    if stay or medium is not GPU:
        return {}
    return {
        loss.node.node_id: loss.node
        for loss in losses(step, GPU)
        if loss.full
        and loss.node.swa.device is None
        and any(child.full.device is not None for child in state.children(loss.node))
    }


def joined(step: Step, lost: list[Loss], medium: Medium) -> list[Loss]:
    """What each victim lost on a medium, including the tombstones that it uncovered there.

    The order in which children left is not known; the last may be the one that lost most.
    """
    victims = {each.node.node_id: each for each in lost}
    carriers: dict[NodeId, NodeId] = {}
    for node in sorted(uncovered(step, medium).values(), key=step.before.end, reverse=True):
        below = [carriers.get(child.node_id, child.node_id) for child in step.before.children(node)]
        last = max((each for each in below if each in victims), key=lambda each: victims[each].full)
        with_it, own = victims[last], victims.pop(node.node_id)
        victims[last] = evolve(
            with_it,
            full=with_it.full + own.full,
            swa=with_it.swa + own.swa,
            mamba=with_it.mamba + own.mamba,
        )
        carriers[node.node_id] = last
    return list(victims.values())
