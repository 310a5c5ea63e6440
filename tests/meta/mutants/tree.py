"""Faults of the tree itself: what a cut moves, where a child is registered, what is pruned.

What readers get wrong: that only wrong matches matter. A tree whose bookkeeping is wrong answers
right for a long while.
"""

from __future__ import annotations

from kvcanon.conformance.overriding import Overrides
from kvcanon.reference import (
    slots,
    tree,
)
from kvcanon.reference.state import Data, Node, State
from kvcanon.spec.types import (
    CPU,
    GPU,
    MAMBA,
    Component,
    Slots,
)
from meta.mutants.entry import mutant


@mutant("TREE-5", "A5 sgl#38482")
def cut_makes_the_lower_part_recent(patch: Overrides) -> None:
    """What did not match moves to the most recent end when its node is cut."""
    cut_data = tree._cut_data

    def refreshing(node: Node, component: Component, at: int) -> Data:
        upper = cut_data(node, component, at)
        node.data[component].used = 1 << 40
        return upper

    patch.setattr(tree, "_cut_data", refreshing)


@mutant("TREE-5", "A24 sgl#22935")
def cut_moves_the_state_up(patch: Overrides) -> None:
    """A recurrent state goes to the upper part, at whose end it was never true."""
    follow_cut = tree._follow_cut

    def moving(state: State, upper: Node, lower: Node, component: Component, data: Data) -> None:
        if component is MAMBA:
            upper.data[MAMBA], lower.data[MAMBA] = lower.data[MAMBA], data
            for medium in (GPU, CPU):
                state.owners[MAMBA, medium].pop(lower, None)
        follow_cut(state, upper, lower, component, upper.data[component])

    patch.setattr(tree, "_follow_cut", moving)


@mutant("TREE-6")
def free_refreshes(patch: Overrides) -> None:
    """Giving slots back makes some node recent."""
    free = slots.free

    def touching(state: State, some: Slots) -> None:
        free(state, some)
        for node in list(state.nodes.values())[1:2]:
            node.last_access = state.tick()

    patch.setattr(slots, "free", touching)
