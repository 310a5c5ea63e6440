"""TREE: each law on a tree where it holds, and on trees with a single fault."""

from __future__ import annotations

import pytest
from attrs import evolve

from kvcanon.spec.config import CacheConfig, Profile
from kvcanon.spec.errors import PrefixNotCached
from kvcanon.spec.operations import (
    Evict,
    HostPayload,
    Insert,
    InsertHost,
    LoadBack,
    Lock,
    Match,
    Operation,
    Refused,
)
from kvcanon.spec.snapshot import ComponentState, NodeState, Snapshot
from kvcanon.spec.types import (
    FULL,
    MAMBA,
    SWA,
    Counts,
    Namespace,
    Slots,
    WritePolicy,
    make_key,
)
from states import ROOT, node, on, state_of
from telling import ask, step

POOLS = Counts(full=16, swa=16, mamba=4)


def config(policy: WritePolicy = WritePolicy.WRITE_THROUGH, page_size: int = 1) -> CacheConfig:
    """Every component and a host tier."""
    return CacheConfig(
        page_size=page_size,
        window_tokens=2,
        mamba=True,
        device_slots=POOLS,
        host_slots=POOLS,
        write_policy=policy,
    )


CONFIG = config()
TENANT = Namespace(extra_key="tenant")
KEY = make_key([1, 2], 1)
"""What every step below is about; `LEAF` hangs off its path."""


def family() -> Snapshot:
    """Node 1 with two children, and another prompt."""
    return state_of(
        CONFIG,
        node(1, ROOT, [1, 2], full=on([0, 1])),
        node(2, 1, [3], full=on([2])),
        node(3, 1, [4], full=on([3])),
        node(4, ROOT, [1, 2], full=on([4, 5]), namespace=TENANT),
    )


def changed(state: Snapshot, *nodes: NodeState) -> Snapshot:
    """A state with some nodes replaced, and nothing else adapted to them."""
    return evolve(state, nodes={**state.nodes, **{each.node_id: each for each in nodes}})


# The shape.


@pytest.mark.parametrize("law_id", ["TREE-1", "TREE-2", "TREE-3", "TREE-4"])
@pytest.mark.parametrize("state", [family(), state_of(CONFIG)], ids=["family", "empty"])
def test_sound_tree_holds(law_id: str, state: Snapshot) -> None:
    """A sound tree holds."""
    assert ask(law_id, state) == []


def test_tree_1_second_root_is_named() -> None:
    """A second root is reported."""
    state = family()
    (said,) = ask("TREE-1", changed(state, evolve(state.nodes[2], parent_id=None)))
    assert "nodes without a parent are [0, 2]" in said


def test_tree_1_root_has_no_data() -> None:
    """A root with data is reported."""
    state = family()
    (said,) = ask("TREE-1", changed(state, evolve(state.root, data={FULL: on([9])})))
    assert "the root has pages or data" in said


def test_tree_1_unreachable_node_is_named() -> None:
    """A node that no path from the root leads to is reported."""
    state = family()
    said = ask("TREE-1", changed(state, evolve(state.root, child_ids=(1,))))
    assert said == ["node 4 is in the tree but no path from the root leads to it"]


def test_tree_2_forgotten_child_is_named() -> None:
    """A child that its parent does not list is reported."""
    state = family()
    (said,) = ask("TREE-2", changed(state, evolve(state.nodes[1], child_ids=(3,))))
    assert "node 2" in said
    assert "not among the children of its parent 1" in said


def test_tree_2_twice_listed_child_is_named() -> None:
    """A child that its parent lists twice is reported."""
    state = family()
    (said,) = ask("TREE-2", changed(state, evolve(state.nodes[1], child_ids=(2, 3, 3))))
    assert "lists child 3 2 times" in said


def test_tree_2_missing_parent_is_named() -> None:
    """A node whose parent is gone is reported."""
    state = family()
    said = ask("TREE-2", changed(state, evolve(state.nodes[4], parent_id=9)))
    assert any("names parent 9, which is not in the tree" in each for each in said)


def test_tree_3_node_without_pages_is_named() -> None:
    """A node without pages is reported."""
    state = family()
    (said,) = ask("TREE-3", changed(state, evolve(state.nodes[3], pages=())))
    assert "node 3 (tokens 2..2) has no page" in said


def test_tree_3_page_of_another_size_is_named() -> None:
    """A page that is shorter or longer than the page size is reported."""
    state = state_of(config(page_size=2), node(1, ROOT, [1, 2, 3, 4], full=on([0, 1]), page_size=2))
    assert ask("TREE-3", state) == []
    (said,) = ask("TREE-3", changed(state, evolve(state.nodes[1], pages=((1, 2), (3, 4, 5)))))
    assert "has 3 units in page 1 of its edge; a page has 2" in said


def test_tree_3_child_in_another_namespace_is_named() -> None:
    """A child in another namespace than its parent is reported."""
    state = family()
    (said,) = ask("TREE-3", changed(state, evolve(state.nodes[2], namespace=TENANT)))
    assert "node 2" in said
    assert "its parent node 1" in said


@pytest.mark.parametrize("parent_id", [ROOT, 1])
def test_tree_4_same_first_page_is_named(parent_id: int) -> None:
    """Two siblings of one namespace with the same first page are reported."""
    state = state_of(
        CONFIG,
        node(1, ROOT, [1], full=on([0])),
        node(2, parent_id, [7, 8], full=on([1, 2])),
        node(3, parent_id, [7, 9], full=on([3, 4])),
    )
    (said,) = ask("TREE-4", state)
    assert "node 3" in said
    assert "node 2" in said
    assert "begin with the same page (7,)" in said


# Cuts.

TAIL = node(
    1,
    9,
    [3, 4],
    full=on([2, 3], [2, 3], lock_refs=2),
    swa=on([2, 3]),
    mamba=on([0]),
    hit_count=3,
    last_access=5,
)
"""What is left of node 1 below the cut."""
LEAF = node(2, ROOT, [7], full=on([8], [8]), swa=on([8], [8]), mamba=on([2], [2]), last_access=6)


def uncut(leaf: NodeState = LEAF, policy: WritePolicy = WritePolicy.WRITE_THROUGH) -> Snapshot:
    """Node 1 has four pages, two of them on the path of `KEY`."""
    whole = evolve(
        TAIL,
        parent_id=ROOT,
        pages=make_key([1, 2, 3, 4], 1).pages,
        data={
            FULL: on([0, 1, 2, 3], [0, 1, 2, 3], lock_refs=2),
            SWA: on([0, 1, 2, 3]),
            MAMBA: on([0]),
        },
    )
    return state_of(config(policy), whole, leaf)


def cut(
    *off_path: NodeState,
    policy: WritePolicy = WritePolicy.WRITE_THROUGH,
    profile: Profile | None = None,
) -> Snapshot:
    """Node 9 has the first two pages of what was node 1, and was used."""
    upper = node(
        9, ROOT, [1, 2], full=on([0, 1], [0, 1], lock_refs=3), swa=on([0, 1]), last_access=7
    )
    state = state_of(config(policy), upper, *off_path)
    return state if profile is None else evolve(state, profile=profile)


def with_data(leaf: NodeState, **data: ComponentState) -> NodeState:
    """A node with some of its components replaced."""
    named = {"full": FULL, "swa": SWA, "mamba": MAMBA}
    return evolve(leaf, data={**leaf.data, **{named[name]: each for name, each in data.items()}})


OPERATIONS: list[Operation] = [
    Match(KEY),
    Lock(KEY),
    Insert(KEY, 2, Slots()),
    InsertHost(KEY, 2, HostPayload()),
    LoadBack(KEY),
]


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: type(each).__name__)
def test_tree_5_cut_changes_nothing_below_it(operation: Operation) -> None:
    """A cut that leaves all data in place holds."""
    assert ask("TREE-5", step(uncut(), operation, cut(TAIL, LEAF))) == []


def test_tree_5_join_changes_nothing_below_it() -> None:
    """A node that is joined with its only child holds."""
    data = {FULL: on([0, 1, 2, 3]), SWA: on([0, 1, 2, 3]), MAMBA: on([0])}
    whole = evolve(uncut().nodes[1], data=data)
    lower = evolve(
        TAIL, parent_id=9, data={FULL: on([2, 3]), SWA: on([2, 3]), MAMBA: on([0])}, child_ids=()
    )
    upper = evolve(lower, node_id=9, parent_id=ROOT, pages=make_key([1, 2], 1).pages)
    upper = evolve(upper, data={FULL: on([0, 1]), SWA: on([0, 1])})
    # The lower part came first, and a joined node has no order inside.
    before, after = state_of(CONFIG, lower, upper, LEAF), state_of(CONFIG, whole, LEAF)
    other = Lock(make_key([7], 1))
    assert ask("TREE-5", step(before, other, after)) == []
    older = state_of(CONFIG, lower, evolve(upper, hit_count=2), LEAF)
    (said,) = ask("TREE-5", step(older, other, after))
    assert "of node 9 is not on the key's path, but its hit_count was 2 and is 3" in said


@pytest.mark.parametrize(
    ("tail", "said"),
    [
        (evolve(TAIL, hit_count=0), "hit_count was 3 and is 0"),
        (with_data(TAIL, full=on([2, 3], [2, 3])), "lock_refs was (2, 0, 0) and is (0, 0, 0)"),
        (with_data(TAIL, full=on([2, 5], [2, 3], lock_refs=2)), "full slot on GPU was 3 and is 5"),
        (with_data(TAIL, swa=on()), "swa slot on GPU was 2 and is None"),
        (with_data(TAIL, mamba=on()), "mamba slot on GPU was 0 and is None"),
        (
            with_data(TAIL, full=on([2, 3], [2, 3], lock_refs=2, backing=8)),
            "backing was (None, None, None) and is (8, None, None)",
        ),
    ],
)
@pytest.mark.parametrize("operation", OPERATIONS[:3], ids=lambda each: type(each).__name__)
def test_tree_5_change_below_the_cut_is_named(
    operation: Operation, tail: NodeState, said: str
) -> None:
    """A cut that changes what is below it is reported."""
    found = ask("TREE-5", step(uncut(), operation, cut(tail, LEAF)))
    assert any(said in each and "tokens" in each and "node 1" in each for each in found), found
    assert all(type(operation).__name__ in each for each in found)


def test_tree_5_hits_of_a_match_are_not_its_matter_by_profile() -> None:
    """By profile, a match may count a hit on a whole node that it uses in part."""
    counting = Profile(hits_counted_at_match=True)
    whole, after = (evolve(uncut(), profile=counting) for _ in range(2))
    hit = evolve(after.nodes[1], hit_count=after.nodes[1].hit_count + 1)
    after = evolve(after, nodes={**after.nodes, 1: hit})
    assert ask("TREE-5", step(whole, Match(KEY), after)) == []
    assert ask("TREE-5", step(whole, Lock(KEY), after)) != []
    assert ask("TREE-5", step(uncut(), Match(KEY), after)) != []


def test_tree_5_page_that_appears_is_named() -> None:
    """A new page that is not of the key is reported."""
    stranger = node(5, ROOT, [9], full=on([9]), last_access=1)
    (said,) = ask("TREE-5", step(uncut(), Match(KEY), cut(TAIL, LEAF, stranger)))
    assert said.endswith("page 0 (tokens 0..1) of node 5 is not on the key's path, but appeared")


def test_tree_5_page_in_another_namespace_than_the_key_names_both() -> None:
    """Of a new page in another namespace the sentence says in which, and which the key's is."""
    other = Namespace(extra_key="a")
    stranger = evolve(node(5, ROOT, [9], full=on([9]), last_access=1), namespace=other)
    (said,) = ask("TREE-5", step(uncut(), Match(KEY), cut(TAIL, LEAF, stranger)))
    assert said.endswith(f"but appeared in {other}; the key is in {KEY.namespace}")


def test_tree_5_refused_call_and_eviction_are_not_its_matter() -> None:
    """Refused calls and evictions are not checked."""
    broken = cut(LEAF)
    refused = Refused(PrefixNotCached(2, 1))
    assert ask("TREE-5", step(uncut(), Lock(KEY), broken, refused)) == []
    assert ask("TREE-5", step(uncut(), Evict(Counts(full=2)), broken)) == []


HOST_ONLY = with_data(LEAF, full=on(None, [8]), swa=on(None, [8]), mamba=on(None, [2]))
DEVICE_ONLY = with_data(LEAF, full=on([8]), swa=on([8]), mamba=on([2]))
MOVED_ON_HOST = with_data(LEAF, full=on([8], [9]), swa=on(None, [8]))
MOVED_HOST_ONLY = with_data(HOST_ONLY, full=on(None, [9]))
HOST_TOMBSTONE = with_data(HOST_ONLY, swa=on())
LOCKED = with_data(HOST_ONLY, full=on(None, [8], lock_refs=1))
IN_FLIGHT = with_data(LEAF, full=on([8], [8], loading=4))
THROUGH, BACK = WritePolicy.WRITE_THROUGH, WritePolicy.WRITE_BACK
MATCH, LOCK, INSERT, INSERT_HOST, LOAD_BACK = OPERATIONS


@pytest.mark.parametrize(
    ("operation", "policy", "leaf", "becomes", "allowed"),
    [
        # Room on the host, for backups and for fetched pages.
        (INSERT, THROUGH, HOST_ONLY, None, True),
        (INSERT, THROUGH, HOST_ONLY, HOST_TOMBSTONE, True),
        (INSERT, THROUGH, LOCKED, None, False),
        (INSERT, THROUGH, DEVICE_ONLY, None, False),
        (INSERT, THROUGH, LEAF, HOST_ONLY, False),
        (INSERT, THROUGH, LEAF, DEVICE_ONLY, False),
        (INSERT, BACK, HOST_ONLY, None, False),
        (INSERT_HOST, THROUGH, HOST_ONLY, None, True),
        (INSERT_HOST, THROUGH, LEAF, DEVICE_ONLY, False),
        (INSERT_HOST, BACK, LEAF, DEVICE_ONLY, True),
        (INSERT_HOST, BACK, DEVICE_ONLY, LEAF, False),
        # Room on the device, for what is loaded.
        (LOAD_BACK, THROUGH, LEAF, HOST_ONLY, True),
        (LOAD_BACK, THROUGH, DEVICE_ONLY, None, True),
        (LOAD_BACK, THROUGH, LEAF, None, False),
        (LOAD_BACK, THROUGH, HOST_ONLY, None, False),
        (LOAD_BACK, THROUGH, DEVICE_ONLY, HOST_ONLY, False),
        (LOAD_BACK, THROUGH, IN_FLIGHT, HOST_ONLY, False),
        (LOAD_BACK, BACK, DEVICE_ONLY, HOST_ONLY, True),
        (LOAD_BACK, BACK, HOST_ONLY, None, True),
        (LOAD_BACK, BACK, LEAF, MOVED_ON_HOST, True),
        (LOAD_BACK, BACK, HOST_ONLY, MOVED_HOST_ONLY, False),
        (LOAD_BACK, THROUGH, LEAF, MOVED_ON_HOST, False),
        (LOAD_BACK, BACK, LOCKED, None, False),
        # No room is needed.
        (MATCH, THROUGH, HOST_ONLY, None, False),
        (LOCK, THROUGH, HOST_ONLY, HOST_TOMBSTONE, False),
    ],
)
def test_tree_5_only_what_makes_room_may_go(
    operation: Operation,
    policy: WritePolicy,
    leaf: NodeState,
    becomes: NodeState | None,
    allowed: bool,
) -> None:
    """An operation may evict only from media on which it needs slots."""
    left = () if becomes is None else (becomes,)
    found = ask("TREE-5", step(uncut(leaf, policy), operation, cut(TAIL, *left, policy=policy)))
    assert (found == []) is allowed, found
    assert all("node 2" in each for each in found)


def test_tree_5_loss_of_locked_window_data_is_named() -> None:
    """Locked window data that is evicted for slots is reported."""
    held = with_data(LEAF, full=on([8], lock_refs=1), swa=on([8], lock_refs=1), mamba=on())
    lost = with_data(held, swa=on(lock_refs=1))
    (said,) = ask("TREE-5", step(uncut(held), LOAD_BACK, cut(TAIL, lost)))
    assert "its swa slot on GPU was 8 and is None" in said
    free = with_data(held, swa=on([8]))
    assert ask("TREE-5", step(uncut(free), LOAD_BACK, cut(TAIL, with_data(free, swa=on())))) == []


def test_tree_5_says_each_thing_once_a_node() -> None:
    """A node of many pages is reported once for each field."""
    tail = with_data(evolve(TAIL, hit_count=0), full=on([2, 3], [2, 3]))
    found = ask("TREE-5", step(uncut(), Match(KEY), cut(tail, LEAF)))
    assert len(found) == 2
