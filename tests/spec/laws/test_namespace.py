"""NS-3 on steps where it holds, and where two pages would get one hash."""

from __future__ import annotations

from attrs import evolve

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.hashing import page_hashes
from kvcanon.spec.operations import Match
from kvcanon.spec.snapshot import NodeState, Snapshot
from kvcanon.spec.types import Counts, Namespace, NodeId, make_key
from states import node, on, state_of
from telling import ask, names_of, step

CONFIG = CacheConfig(device_slots=Counts(full=16))
MATCH = Match(make_key([1], 1))
TENANT = Namespace("tenant")


def hashed(state: Snapshot, **others: tuple[bytes, ...] | None) -> Snapshot:
    """A state in which the cache has computed all hashes; `n7=...` gives node 7 others."""

    def give_hashes(each: NodeState) -> NodeState:
        if each.node_id == state.root_id:
            return each
        hashes = others.get(f"n{each.node_id}", names_of(state, each.node_id))
        return evolve(each, hashes=hashes)

    nodes = {node_id: give_hashes(each) for node_id, each in state.nodes.items()}
    return evolve(state, nodes=nodes)


def two_tenants(other: Namespace = TENANT) -> Snapshot:
    """The same tokens in two namespaces."""
    return state_of(
        CONFIG,
        node(1, 0, [1, 2], full=on((0, 1))),
        node(2, 0, [1, 2], full=on((2, 3)), namespace=other),
    )


def chain(*parts: tuple[NodeId, list[int]]) -> Snapshot:
    """Nodes one below the other."""
    nodes, parent, slot = [], 0, 0
    for node_id, tokens in parts:
        nodes.append(node(node_id, parent, tokens, full=on(range(slot, slot + len(tokens)))))
        parent, slot = node_id, slot + len(tokens)
    return state_of(CONFIG, *nodes)


# NS-3.


def test_hashes_follow_the_chain_holds_for_new_and_cut_nodes() -> None:
    """A cut divides the hashes where it divides the pages."""
    before = hashed(chain((1, [1, 2, 3, 4])))
    after = hashed(chain((2, [1, 2]), (1, [3, 4])))
    assert ask("NS-3", step(before, MATCH, after)) == []
    assert ask("NS-3", step(state_of(CONFIG), MATCH, hashed(two_tenants()))) == []


def test_hashes_follow_the_chain_sees_a_namespace_left_out() -> None:
    """Hashes without the namespace are reported (sgl#24568)."""
    state = two_tenants()
    (said,) = ask("NS-3", step(state_of(CONFIG), MATCH, hashed(state, n2=names_of(state, 1))))
    assert "node 2 (tokens 0..2) has page hashes" in said


def test_hashes_follow_the_chain_where_only_some_are_named() -> None:
    """A node may have hashes while nodes above it have none; hashes may be computed later."""
    unhashed = chain((2, [1, 2]), (1, [3, 4]))
    assert ask("NS-3", step(state_of(CONFIG), MATCH, hashed(unhashed, n2=None))) == []
    assert ask("NS-3", step(unhashed, MATCH, hashed(unhashed))) == []
    assert ask("NS-3", step(hashed(unhashed), MATCH, unhashed)) == []


def test_hashes_follow_the_chain_sees_a_branch_off_the_wrong_page() -> None:
    """Hashes that do not follow the parent's last page are reported."""
    after = chain((2, [1, 2]), (1, [3, 4]))
    wrong = page_hashes(names_of(after, 2)[0], after.nodes[1].pages)
    (said,) = ask("NS-3", step(state_of(CONFIG), MATCH, hashed(after, n1=wrong)))
    assert "node 1 (tokens 2..4) has page hashes" in said
    assert names_of(after, 1)[0].hex()[:8] in said


def test_hashes_follow_the_chain_sees_a_name_too_few() -> None:
    """A node with fewer hashes than pages is reported."""
    after = chain((1, [1, 2]))
    assert ask("NS-3", step(state_of(CONFIG), MATCH, hashed(after, n1=names_of(after, 1)[:1])))


def test_hashes_follow_the_chain_sees_a_name_change() -> None:
    """A page whose hash changes is reported, wherever it is cut."""
    before, after = chain((1, [1, 2, 3, 4])), chain((2, [1, 2]), (1, [3, 4]))
    kept_whole = names_of(before, 1)[:2]
    said = ask("NS-3", step(hashed(before), MATCH, hashed(after, n1=kept_whole)))
    assert any("page 2 of its path" in s and "now has" in s for s in said)


def test_hashes_follow_the_chain_leaves_untouched_nodes_alone() -> None:
    """Hashes of nodes that a step did not change are not checked again."""
    wrong = hashed(chain((1, [1, 2])), n1=(b"x", b"y"))
    touched = evolve(wrong, nodes={**wrong.nodes, 1: evolve(wrong.nodes[1], hit_count=7)})
    assert ask("NS-3", step(wrong, MATCH, touched)) == []
