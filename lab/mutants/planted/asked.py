"""Faults of what nothing asked for: designs of other caches that their profile does not declare."""

from __future__ import annotations

from kvcanon.lab.mutants.planted.entry import mutant
from kvcanon.lab.variants import policies, unasked
from kvcanon.lab.variants.wrapped_rules import Original, around
from kvcanon.reference import cache
from kvcanon.reference.backup import back_up
from kvcanon.reference.state import Node, State
from kvcanon.reference.transfer import settle
from kvcanon.reference.victims import is_device_leaf
from kvcanon.spec.operations import Settled

mutant("ASK-1")(unasked.unused_leaves_expire)
mutant("ASK-1")(unasked.allocations_evict)
mutant("ASK-2")(unasked.prefetches)
mutant("ASK-4")(unasked.compaction)
mutant("ASK-5")(policies.seen_twice_is_admitted)
mutant("ASK-6")(policies.padding_slot)


@mutant("ASK-3")
@around(settle, cache)
def polls_back_up(settle: Original[Settled], state: State) -> Settled:
    """A poll backs up a leaf that no insert has backed up yet."""
    settled = settle(state)
    lacking = [each for each in state.nodes.values() if is_device_leaf(each) and not _copied(each)]
    if lacking and state.config.backup_hits is not None:
        back_up(state, lacking[0])
    return settled


def _copied(node: Node) -> bool:
    return any(data.host is not None or data.loading is not None for data in node.data.values())
