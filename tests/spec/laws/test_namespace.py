"""NS-3 on steps where it holds, and where two pages would get one hash."""

from __future__ import annotations

from attrs import evolve

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.hashing import page_hashes
from kvcanon.spec.operations import Match
from kvcanon.spec.snapshot import NodeState, Snapshot
from kvcanon.spec.types import Counts, Namespace, NodeId, make_key
from kvcanon.spec.views import Step
from states import node, on, state_of, with_node
from states.events import names_of
from states.judging import Table, step, table

CONFIG = CacheConfig(device_slots=Counts(full=16))


def hashed(state: Snapshot, **others: tuple[bytes, ...] | None) -> Snapshot:
    """A state in which the cache has computed all hashes; `n7=...` gives node 7 others."""

    def give_hashes(each: NodeState) -> NodeState:
        if each.node_id == state.root_id:
            return each
        return evolve(each, hashes=others.get(f"n{each.node_id}", names_of(state, each.node_id)))

    nodes = {node_id: give_hashes(each) for node_id, each in state.nodes.items()}
    return evolve(state, nodes=nodes)


def chain(*parts: tuple[NodeId, list[int]]) -> Snapshot:
    """Nodes one below the other."""
    nodes, parent, slot = [], 0, 0
    for node_id, tokens in parts:
        nodes.append(node(node_id, parent, tokens, full=on(range(slot, slot + len(tokens)))))
        parent, slot = node_id, slot + len(tokens)
    return state_of(CONFIG, *nodes)


def matched(after: Snapshot, before: Snapshot | None = None) -> Step:
    """A match, by default one that computes all hashes."""
    return step(before or state_of(CONFIG), Match(make_key([1], 1)), after)


TENANTS = state_of(
    CONFIG,
    node(1, 0, [1, 2], full=on((0, 1))),
    node(2, 0, [1, 2], full=on((2, 3)), namespace=Namespace("tenant")),
)
"""The same tokens in two namespaces."""
WHOLE, SHORT = chain((1, [1, 2, 3, 4])), chain((1, [1, 2]))
CUT = chain((2, [1, 2]), (1, [3, 4]))
FIRST = names_of(CUT, 2)
WRONG = hashed(SHORT, n1=(b"x", b"y"))

NAMESPACE: Table = {
    "NS-3": [
        # A cut divides the hashes where it divides the pages.
        matched(hashed(CUT), hashed(WHOLE)),
        matched(hashed(TENANTS)),
        # A node may have hashes while nodes above it have none; hashes may be computed later.
        matched(hashed(CUT, n2=None)),
        matched(hashed(CUT), CUT),
        matched(CUT, hashed(CUT)),
        # Hashes of nodes that a step did not change are not checked again.
        matched(with_node(WRONG, evolve(WRONG.nodes[1], hit_count=7)), WRONG),
    ],
    # Hashes without the namespace are reported (sgl#24568).
    "NS-3: node 2 ... has page hashes...": matched(hashed(TENANTS, n2=names_of(TENANTS, 1))),
    # Hashes that do not follow the parent's last page are reported, or that are too few.
    f"NS-3: node 1 (tokens 2..4) has page hashes...{names_of(CUT, 1)[0].hex()[:8]}...": matched(
        hashed(CUT, n1=page_hashes(FIRST[0], CUT.nodes[1].pages))
    ),
    "NS-3: node 1 (tokens 0..2) has page hashes...": matched(hashed(SHORT, n1=FIRST[:1])),
    # A page whose hash changes is reported, wherever it is cut.
    ("NS-3", ..., "...page 2 of its path...now has...", ...): matched(
        hashed(CUT, n1=names_of(WHOLE, 1)[:2]), hashed(WHOLE)
    ),
}

test_namespace = table(NAMESPACE)
