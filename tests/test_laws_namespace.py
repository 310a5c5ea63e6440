"""NS: each law on a case where it holds, and on one where two pages become one."""

from __future__ import annotations

import pytest
from attrs import evolve

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.hashing import page_hashes
from kvcanon.spec.laws import namespace as laws_namespace
from kvcanon.spec.operations import Match
from kvcanon.spec.snapshot import NodeState, Snapshot
from kvcanon.spec.types import Counts, Namespace, NodeId, make_key
from states import node, on, state_of
from telling import ask, names_of, step

CONFIG = CacheConfig(device_slots=Counts(full=16))
MATCH = Match(make_key([1], 1))
TENANT = Namespace("tenant")


def named(state: Snapshot, **others: tuple[bytes, ...] | None) -> Snapshot:
    """A state in which the cache has all names; `n7=...` gives node 7 others."""

    def name(each: NodeState) -> NodeState:
        if each.node_id == state.root_id:
            return each
        names = others.get(f"n{each.node_id}", names_of(state, each.node_id))
        return evolve(each, hashes=names)

    nodes = {node_id: name(each) for node_id, each in state.nodes.items()}
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


# NS-1.


def test_names_are_unique_holds_across_namespaces() -> None:
    """The same tokens have other names in another namespace."""
    assert ask("NS-1", named(two_tenants())) == []


def test_names_are_unique_sees_a_namespace_left_out() -> None:
    """Names without the namespace are two tenants' (sgl#24568)."""
    state = two_tenants()
    said = ask("NS-1", named(state, n2=names_of(state, 1)))
    assert len(said) == 2
    assert "Namespace(extra_key='tenant'" in said[0]
    assert "node 1" in said[0]
    assert "node 2" in said[0]


def test_names_are_unique_sees_a_name_twice_in_a_node() -> None:
    """Names inside a node differ, too."""
    (said,) = ask("NS-1", named(chain((1, [1, 2])), n1=(b"x" * 32, b"x" * 32)))
    assert "both have a page named 78787878" in said


def test_names_are_unique_looks_only_at_names_that_are_there() -> None:
    """A cache that has not named its pages has not named them alike."""
    assert ask("NS-1", two_tenants()) == []


# NS-2.


def test_encodings_are_injective_holds() -> None:
    """Namespaces that look alike are encoded apart."""
    for other in (TENANT, Namespace(""), Namespace(lora="tenant"), Namespace("a", "bc")):
        assert ask("NS-2", two_tenants(other)) == []
    assert ask("NS-2", state_of(CONFIG)) == []


def test_encodings_are_injective_sees_fields_run_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without lengths, ("a", "bc") and ("ab", "c") are one namespace (sgl#24638)."""

    def run_together(namespace: Namespace) -> bytes:
        return f"{namespace.extra_key}{namespace.cache_salt}".encode()

    monkeypatch.setattr(laws_namespace, "encode_namespace", run_together)
    monkeypatch.setattr(laws_namespace, "namespace_seed", run_together)
    monkeypatch.setattr(laws_namespace, "decode_namespace", lambda text: Namespace(text.decode()))
    state = state_of(
        CONFIG,
        node(1, 0, [1], full=on((0,)), namespace=Namespace("a", "bc")),
        node(2, 0, [1], full=on((1,)), namespace=Namespace("ab", "c")),
    )
    said = ask("NS-2", state)
    assert (
        sum("is read back from its encoding as Namespace(extra_key='abc'" in s for s in said) == 2
    )
    assert sum("have the same seed" in s for s in said) == 1


# NS-3.


def test_hashes_follow_the_chain_holds_for_new_and_cut_nodes() -> None:
    """A cut parts the names where it parts the pages."""
    before = named(chain((1, [1, 2, 3, 4])))
    after = named(chain((2, [1, 2]), (1, [3, 4])))
    assert ask("NS-3", step(before, MATCH, after)) == []
    assert ask("NS-3", step(state_of(CONFIG), MATCH, named(two_tenants()))) == []


def test_hashes_follow_the_chain_where_only_some_are_named() -> None:
    """A node may be named while those above it are not, and names may come later."""
    unnamed = chain((2, [1, 2]), (1, [3, 4]))
    assert ask("NS-3", step(state_of(CONFIG), MATCH, named(unnamed, n2=None))) == []
    assert ask("NS-3", step(unnamed, MATCH, named(unnamed))) == []
    assert ask("NS-3", step(named(unnamed), MATCH, unnamed)) == []


def test_hashes_follow_the_chain_sees_a_branch_off_the_wrong_page() -> None:
    """The names of a node follow its parent's last page."""
    after = chain((2, [1, 2]), (1, [3, 4]))
    wrong = page_hashes(names_of(after, 2)[0], after.nodes[1].pages)
    (said,) = ask("NS-3", step(state_of(CONFIG), MATCH, named(after, n1=wrong)))
    assert "node 1 (tokens 2..4) names its pages" in said
    assert names_of(after, 1)[0].hex()[:8] in said


def test_hashes_follow_the_chain_sees_a_name_too_few() -> None:
    """There is one name a page."""
    after = chain((1, [1, 2]))
    assert ask("NS-3", step(state_of(CONFIG), MATCH, named(after, n1=names_of(after, 1)[:1])))


def test_hashes_follow_the_chain_sees_a_name_change() -> None:
    """What a page was named it stays named, wherever it is cut."""
    before, after = chain((1, [1, 2, 3, 4])), chain((2, [1, 2]), (1, [3, 4]))
    kept_whole = names_of(before, 1)[:2]
    said = ask("NS-3", step(named(before), MATCH, named(after, n1=kept_whole)))
    assert any("page 2 of its path" in s and "is now named" in s for s in said)


def test_hashes_follow_the_chain_leaves_untouched_nodes_alone() -> None:
    """What a step did not touch is not computed again: a wrong name was reported when it came."""
    wrong = named(chain((1, [1, 2])), n1=(b"x", b"y"))
    touched = evolve(wrong, nodes={**wrong.nodes, 1: evolve(wrong.nodes[1], hit_count=7)})
    assert ask("NS-3", step(wrong, MATCH, touched)) == []
