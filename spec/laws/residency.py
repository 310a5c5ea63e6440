"""RES: residency, or what data is on which medium.

Full data carries everything: window data and recurrent states are of no use without it, and data
deeper in the tree is of no use without what comes before.

What readers get wrong: a tombstone is not an absence of the node. It has its full data and lacks
window data; the prompt is known there, and can be healed, but no prefix can end in it.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvcanon.spec.law import Kind, law
from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.types import CPU, FULL, GPU


@law("RES-4", Kind.STATE)
def backed_parents(state: Snapshot) -> Iterator[str]:
    """Every node on the host has its parent on the host, unless the policy is write_back.

    Why: a prefix on the host with a hole in it cannot be loaded back, and a node that is not copied
    because its parent was not is deleted when the device needs its room.

    Seen broken: https://github.com/sgl-project/sglang/pull/25065,
    https://github.com/sgl-project/sglang/issues/31902
    """
    if not state.config.backed_parents:
        return
    for node in state.below_root():
        parent = state.parent(node)
        if parent is None or parent.node_id == state.root_id or node[FULL].host is None:
            continue
        if parent[FULL].host is None:
            yield (
                f"{state.describe(node)} is on the host but its parent "
                f"{state.describe(parent)} is not"
            )
