"""REC: each law on a case where it holds, and on cases with a single fault."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from attrs import evolve

from kvcanon.spec.config import CANON, CacheConfig, MambaRefresh, Profile
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.operations import (
    Evict,
    Evicted,
    EvictHost,
    Insert,
    Inserted,
    Lock,
    Match,
    Matched,
    Operation,
    Outcome,
    Refused,
)
from kvcanon.spec.snapshot import ComponentState, Pool, Snapshot
from kvcanon.spec.types import (
    CPU,
    FULL,
    GPU,
    MAMBA,
    SWA,
    Component,
    Counts,
    EvictionPolicy,
    Medium,
    NodeId,
    Slot,
    Slots,
    WritePolicy,
    make_key,
)
from states import ROOT, node, on, state_of
from telling import ask, step

POOLS = Counts(full=32, swa=32, mamba=8)
LAWS_OF_USE = ["REC-1", "REC-2", "REC-5"]


def config(
    window_tokens: int | None = 2,
    *,
    page_size: int = 1,
    mamba: bool = False,
    write: WritePolicy = WritePolicy.WRITE_THROUGH,
    evict: EvictionPolicy = EvictionPolicy.LRU,
) -> CacheConfig:
    """A cache with a host tier."""
    return CacheConfig(
        page_size=page_size,
        window_tokens=window_tokens,
        mamba=mamba,
        device_slots=POOLS,
        host_slots=POOLS,
        write_policy=write,
        eviction_policy=evict,
    )


def ordered(state: Snapshot, *order: NodeId, component: Component = SWA) -> Snapshot:
    """A state with these LRU orders, on both media."""
    named: Mapping[Pool, tuple[NodeId, ...]] = {(component, m): order for m in (GPU, CPU)}
    return evolve(state, recency={**state.recency, **named})


# Uses. The path of `KEY` is four nodes of one page each; node 9 is another prompt.

KEY = make_key([1, 2, 3, 4], 1)


def prompt(
    *used: NodeId,
    at: int = 20,
    components: tuple[Component, ...] = (SWA,),
    config: CacheConfig | None = None,
    profile: Profile | None = None,
) -> Snapshot:
    """All nodes, on the device and on the host, those in `used` last accessed at one tick."""
    chosen = config if config is not None else CONFIG
    nodes = []
    for node_id, parent_id, token in ((1, 0, 1), (2, 1, 2), (3, 2, 3), (4, 3, 4), (9, 0, 7)):
        data = on([node_id], [node_id])
        nodes.append(
            node(
                node_id,
                parent_id,
                [token] * chosen.page_size,
                full=data,
                swa=data if SWA in components else None,
                mamba=data if MAMBA in components else None,
                page_size=chosen.page_size,
                last_access=at if node_id in used else node_id,
            )
        )
    state = state_of(chosen, *nodes)
    return state if profile is None else evolve(state, profile=profile)


CONFIG = config()
BEFORE = ordered(prompt(), 1, 2, 3, 4, 9)


def match(prefix_pages: int = 4) -> tuple[Operation, Outcome]:
    """A match of `KEY` that found so many pages."""
    return Match(KEY), Matched(prefix_pages, prefix_pages, Slots())


def insert() -> tuple[Operation, Outcome]:
    """An insert of `KEY`."""
    return Insert(KEY, 4, Slots()), Inserted(4, Counts(), Counts())


USES = {"match": match(), "insert": insert()}


def use(
    law_id: str, before: Snapshot, after: Snapshot, how: tuple[Operation, Outcome] = USES["match"]
) -> list[str]:
    """What a law reports of a match or an insert."""
    operation, outcome = how
    return ask(law_id, step(before, operation, after, outcome))


@pytest.mark.parametrize("law_id", LAWS_OF_USE)
def test_other_calls_are_not_uses(law_id: str) -> None:
    """Locks and refused calls are not checked as uses."""
    scrambled = ordered(prompt(1), 9, 4, 3, 2, 1)
    assert ask(law_id, step(BEFORE, Lock(KEY), scrambled)) == []
    refused = Refused(BadArgument("key", "is wrong"))
    assert use(law_id, BEFORE, scrambled, (Match(KEY), refused)) == []
    assert use(law_id, BEFORE, scrambled, (Insert(KEY, 4, Slots()), refused)) == []


@pytest.mark.parametrize("how", USES.values(), ids=list(USES))
def test_rec_1_window_and_cushion_move(how: tuple[Operation, Outcome]) -> None:
    """The window at an end, and the one page before it, may become recent."""
    assert use("REC-1", BEFORE, ordered(prompt(1, 2, 3, 4), 1, 9, 2, 3, 4), how) == []


@pytest.mark.parametrize("how", USES.values(), ids=list(USES))
def test_rec_1_cushion_may_stay_where_the_profile_says_so(how: tuple[Operation, Outcome]) -> None:
    """By profile, the cushion may stay, but the window may not."""
    bare, declared = ordered(prompt(1, 2, 3, 4), 1, 2, 9, 3, 4), Profile(cushion_refreshed=False)
    (said, _) = use("REC-1", BEFORE, bare, how)
    assert said.endswith(
        "used the swa data of node 2 (tokens 1..2) on GPU, but it is not more recent than that of "
        "node 9 (tokens 0..1)"
    )
    assert use("REC-1", BEFORE, evolve(bare, profile=declared), how) == []
    with_cushion = ordered(prompt(1, 2, 3, 4, profile=declared), 1, 9, 2, 3, 4)
    assert use("REC-1", BEFORE, with_cushion, how) == []
    short = ordered(prompt(1, 2, 3, 4, profile=declared), 1, 2, 3, 9, 4)
    assert "used the swa data of node 3" in use("REC-1", BEFORE, short, how)[0]


@pytest.mark.parametrize("how", USES.values(), ids=list(USES))
@pytest.mark.parametrize(
    ("order", "said"),
    [
        (
            (9, 1, 2, 3, 4),
            (
                "moved node 1 (tokens 0..1), which is 3 tokens above that end, in the order of swa "
                "on GPU: it has overtaken node 9 (tokens 0..1)"
            ),
        ),
        (
            (1, 2, 3, 9, 4),
            (
                "used the swa data of node 2 (tokens 1..2) on GPU, but it is not more recent than "
                "that of node 9 (tokens 0..1)"
            ),
        ),
        ((1, 2, 3, 4, 9), "used the swa data of node 2"),
        (
            (1, 9, 2, 4, 3),
            (
                "used the swa data of node 4 (tokens 3..4) on GPU, but it is not more recent than "
                "that of node 3 (tokens 2..3)"
            ),
        ),
    ],
    ids=["too far", "not far enough", "not at all", "upside down"],
)
def test_rec_1_other_orders_are_named(
    how: tuple[Operation, Outcome], order: tuple[NodeId, ...], said: str
) -> None:
    """A use that makes more or less than its window recent is reported."""
    found = use("REC-1", BEFORE, ordered(prompt(1, 2, 3, 4), *order), how)
    assert found
    assert f"{type(how[0]).__name__}, which ended at token 4, {said}" in found[0]
    assert any("CPU_PINNED" in each for each in found)


def test_rec_1_host_may_have_an_order_of_its_own() -> None:
    """By profile, the host has its own order, which a use need not change."""
    left: Mapping[Pool, tuple[NodeId, ...]] = {(SWA, CPU): (1, 2, 3, 4, 9)}
    after = ordered(prompt(1, 2, 3, 4), 1, 9, 2, 3, 4)
    after = evolve(after, recency={**after.recency, **left})
    assert use("REC-1", BEFORE, after) != []
    own = Profile(host_order_by_use=False)
    assert use("REC-1", BEFORE, evolve(after, profile=own)) == []
    still = evolve(BEFORE, profile=own)
    assert all("on GPU" in each for each in use("REC-1", BEFORE, still))


def test_rec_1_walking_down_touches_nothing() -> None:
    """Nodes on the way that are no part of the usable prefix and become recent are reported."""
    nothing = match(0)
    assert use("REC-1", BEFORE, BEFORE, nothing) == []
    (said, _) = use("REC-1", BEFORE, ordered(prompt(), 2, 3, 4, 9, 1), nothing)
    assert (
        "Match, which ended at token 0, moved node 1 (tokens 0..1), which is not on its path"
        in said
    )
    short = match(2)
    assert use("REC-1", BEFORE, ordered(prompt(1, 2), 3, 4, 9, 1, 2), short) == []
    assert use("REC-1", BEFORE, ordered(prompt(1, 2), 4, 9, 1, 2, 3), short) != []


def test_rec_1_other_prompt_is_not_moved() -> None:
    """A use of one prompt that moves another is reported."""
    two = evolve(node(8, ROOT, [8], full=on([8]), swa=on([8])), last_access=8)
    before = ordered(state_of(CONFIG, *(n for n in BEFORE.below_root()), two), 8, 9, 1, 2, 3, 4)
    after = ordered(before, 9, 8, 1, 2, 3, 4)
    (said, *_) = use("REC-1", before, after)
    assert "moved node 8 (tokens 0..1), which is not on its path" in said


def test_rec_1_node_moves_as_a_whole() -> None:
    """A node at the window's edge, part of which is out of reach, moves as a whole."""
    whole = node(1, ROOT, [1, 2, 3, 4], full=on([1, 2, 3, 4]), swa=on([1, 2, 3, 4]))
    other = node(9, ROOT, [7], full=on([9]), swa=on([9]), last_access=9)
    before = state_of(CONFIG, whole, other)
    assert use("REC-1", before, state_of(CONFIG, evolve(whole, last_access=20), other)) == []
    assert use("REC-1", before, before) != []


def test_rec_1_measures_in_pages_of_tokens() -> None:
    """The window is measured in tokens, and not rounded to pages."""
    wide = config(3, page_size=2)
    before = ordered(prompt(config=wide), 1, 2, 3, 4, 9)
    used = prompt(1, 2, 3, 4, config=wide)
    key = make_key([1, 1, 2, 2, 3, 3, 4, 4], 2)
    how = (Match(key), Matched(4, 4, Slots()))
    # Tokens 5..8 are the window, which begins inside page 2; page 1 is the cushion.
    assert use("REC-1", before, ordered(used, 1, 9, 2, 3, 4), how) == []
    (said, _) = use("REC-1", before, ordered(used, 1, 2, 9, 3, 4), how)
    assert "ended at token 8, used the swa data of node 2 (tokens 2..4)" in said
    (said, _) = use("REC-1", before, ordered(used, 9, 1, 2, 3, 4), how)
    assert "node 1 (tokens 0..2), which is 6 tokens above that end" in said


def test_rec_1_data_that_arrives_has_no_place_yet() -> None:
    """Window data that an insert adds had no place in the order before."""
    before = ordered(prompt(), 2, 3, 4, 9)
    assert use("REC-1", before, ordered(prompt(1, 2, 3, 4), 9, 2, 1, 3, 4), insert()) == []


def test_rec_1_is_a_matter_of_windows() -> None:
    """A cache without a window is not checked."""
    plain = prompt(components=(), config=config(None))
    assert use("REC-1", plain, prompt(1, components=(), config=config(None))) == []


@pytest.mark.parametrize("how", USES.values(), ids=list(USES))
def test_rec_2_whole_path_becomes_recent(how: tuple[Operation, Outcome]) -> None:
    """A use that leaves a part of its path old is reported."""
    assert use("REC-2", BEFORE, prompt(1, 2, 3, 4), how) == []
    (said,) = use("REC-2", BEFORE, prompt(2, 3, 4), how)
    assert "used node 1 (tokens 0..1), last accessed at 1, which is not after node 9" in said
    assert len(use("REC-2", BEFORE, prompt(1, 2, 3, 4, at=9), how)) == 4


def test_rec_2_match_uses_only_what_is_usable() -> None:
    """Nodes beyond the usable prefix that become recent are reported."""
    assert use("REC-2", BEFORE, prompt(1, 2), match(2)) == []
    assert use("REC-2", BEFORE, prompt(), match(0)) == []
    found = use("REC-2", BEFORE, prompt(1, 2, 3), match(2))
    assert any("Match did not use node 3 (tokens 2..3), but its last" in each for each in found)


def test_rec_2_cut_part_keeps_its_age() -> None:
    """The part that a match cut off below its end, and that becomes recent, is reported."""
    whole = node(1, ROOT, [1, 2, 3], full=on([1, 2, 3]), last_access=3)
    upper = node(5, ROOT, [1, 2], full=on([1, 2]), last_access=20)
    lower = evolve(node(1, 5, [3], full=on([3])), last_access=3)
    how = (Match(KEY.prefix(2)), Matched(2, 2, Slots()))
    before = state_of(CONFIG, whole)
    assert use("REC-2", before, state_of(CONFIG, upper, lower), how) == []
    found = use("REC-2", before, state_of(CONFIG, upper, evolve(lower, last_access=20)), how)
    assert "did not use node 1 (tokens 2..3), but its last access was 3 and is 20" in found[-1]


@pytest.mark.parametrize("law_id", ["REC-1", "REC-2", "REC-7"])
def test_node_that_is_used_in_part_is_used(law_id: str) -> None:
    """A cache that does not cut at the end of a match may refresh the whole node."""
    whole = node(1, ROOT, [1, 2, 3, 4], full=on([1, 2, 3, 4]), swa=on([1, 2, 3, 4]))
    other = node(9, ROOT, [7], full=on([9]), swa=on([9]))
    before = state_of(CONFIG, whole, other)
    after = state_of(CONFIG, evolve(whole, last_access=20), other)
    assert use(law_id, before, after, match(2)) == []


@pytest.mark.parametrize("law_id", ["REC-1", "REC-2"])
def test_cut_moves_recency_where_the_profile_says_so(law_id: str) -> None:
    """By profile, a cut may move the part that it cuts off to the most recent end."""
    before = state_of(
        CONFIG,
        node(1, ROOT, [1, 2, 3], full=on([1, 2, 3]), swa=on([1, 2, 3])),
        node(9, ROOT, [7], full=on([9]), swa=on([9])),
    )
    after = state_of(
        CONFIG,
        node(5, ROOT, [1, 2], full=on([1, 2]), swa=on([1, 2]), last_access=20),
        evolve(node(1, 5, [3], full=on([3]), swa=on([3]), last_access=21), created=1),
        before.nodes[9],
    )
    assert use(law_id, before, after, match(2)) != []
    declared = evolve(after, profile=Profile(split_keeps_recency=False))
    assert use(law_id, before, declared, match(2)) == []


RECURRENT = config(None, mamba=True)


def states_of(*used: NodeId, profile: Profile | None = None) -> Snapshot:
    """`prompt` with a mamba state at every node."""
    return prompt(*used, components=(MAMBA,), config=RECURRENT, profile=profile)


def recurrent(order: tuple[NodeId, ...], how: tuple[Operation, Outcome]) -> list[str]:
    """What REC-5 reports where a use left the mamba states in this order."""
    before = ordered(states_of(), 1, 2, 3, 4, 9, component=MAMBA)
    return use("REC-5", before, ordered(states_of(1, 2, 3, 4), *order, component=MAMBA), how)


@pytest.mark.parametrize("how", USES.values(), ids=list(USES))
def test_rec_5_only_the_state_at_the_end_becomes_recent(how: tuple[Operation, Outcome]) -> None:
    """States on the way that become recent are reported, or an end that does not."""
    assert recurrent((1, 2, 3, 9, 4), how) == []
    (said, _) = recurrent((1, 2, 9, 3, 4), how)
    assert "moved node 3 (tokens 2..3), which is 1 tokens above that end" in said
    (said, _) = recurrent((1, 2, 3, 4, 9), how)
    assert "used the mamba data of node 4 (tokens 3..4) on GPU, but it is not more recent" in said


def test_rec_5_nothing_usable_moves_nothing() -> None:
    """A match that found nothing and makes a state recent is reported."""
    assert recurrent((1, 2, 3, 4, 9), match(0)) == []
    assert recurrent((1, 2, 3, 9, 4), match(0)) != []


def test_rec_5_profile_may_refresh_the_path() -> None:
    """By profile, the states on the path become recent too, and must."""
    declared = Profile(mamba_refresh=MambaRefresh.PATH)
    before = ordered(states_of(profile=declared), 1, 2, 3, 4, 9, component=MAMBA)
    after = states_of(1, 2, 3, 4, profile=declared)
    assert use("REC-5", before, ordered(after, 9, 1, 2, 3, 4, component=MAMBA)) == []
    assert use("REC-5", before, ordered(after, 1, 2, 3, 9, 4, component=MAMBA)) != []
    assert use("REC-5", before, ordered(after, 9, 2, 1, 3, 4, component=MAMBA)) != []


# Evictions.


def leaves(
    *there: NodeId,
    medium: Medium = GPU,
    chosen: CacheConfig = CONFIG,
    locked: tuple[NodeId, ...] = (),
    below: int | None = None,
) -> Snapshot:
    """Leaves on a medium, the higher the id the more recent, and the fewer hits.

    With `below`, a node on the host alone is below leaf 1, with so many lock refs.
    """
    nodes = [
        node(
            node_id,
            ROOT,
            [node_id],
            full=slot_on(medium, node_id, lock_refs=int(node_id in locked)),
            hit_count=4 - node_id,
            last_access=10 + node_id,
        )
        for node_id in there
    ]
    if below is not None:
        nodes.append(node(7, 1, [7], full=on(None, [7], lock_refs=below)))
    return state_of(chosen, *nodes)


def chain_with(
    component: Component,
    *there: NodeId,
    medium: Medium = GPU,
    locked: tuple[NodeId, ...] = (),
) -> Snapshot:
    """A path 1..4 on a medium, of which only some have the component there; leaf 5 lacks it."""
    nodes = []
    for node_id in (1, 2, 3, 4):
        refs = int(node_id <= max(locked, default=0))
        mine = slot_on(medium, node_id, lock_refs=refs) if node_id in there else None
        full = slot_on(medium, node_id, lock_refs=refs)
        swa, mamba = (mine, None) if component is SWA else (None, mine)
        nodes.append(node(node_id, node_id - 1, [node_id], full=full, swa=swa, mamba=mamba))
    nodes.append(node(5, 4, [5], full=slot_on(medium, 5)))
    return state_of(config(mamba=True), *nodes)


def slot_on(medium: Medium, slot: Slot, *, lock_refs: int = 0) -> ComponentState:
    """One slot on a medium."""
    device, host = ([slot], None) if medium is GPU else (None, [slot])
    return on(device, host, lock_refs=lock_refs)


def evict(before: Snapshot, after: Snapshot, operation: Operation | None = None) -> list[str]:
    """What the law reports of an eviction of full slots, or another."""
    asked = operation or Evict(Counts(full=1))
    return ask("REC-3", step(before, asked, after, Evicted(Counts())))


@pytest.mark.parametrize("medium", [GPU, CPU])
def test_rec_3_leaf_out_of_turn_is_named(medium: Medium) -> None:
    """A leaf that leaves before one of lower rank is reported."""
    asked = Evict(Counts(full=2)) if medium is GPU else EvictHost(Counts(full=2))
    before = leaves(1, 2, 3, 4, medium=medium)
    assert evict(before, leaves(3, 4, medium=medium), asked) == []
    (stayed, left) = evict(before, leaves(1, 4, medium=medium), asked)
    data = f"{type(asked).__name__}: full data of page 0 in"
    assert stayed == f"{data} node 1 (tokens 0..1) should have left {medium}, and did not"
    assert left == f"{data} node 3 (tokens 0..1) left {medium}, and should not have"


@pytest.mark.parametrize("medium", [GPU, CPU])
def test_rec_3_more_or_less_than_was_asked_is_named(medium: Medium) -> None:
    """An eviction that frees more or less than it has to is reported."""
    asked = Evict(Counts(full=2)) if medium is GPU else EvictHost(Counts(full=2))
    before = leaves(1, 2, 3, 4, medium=medium)
    (said,) = evict(before, leaves(4, medium=medium), asked)
    assert "node 3 (tokens 0..1) left" in said
    (said,) = evict(before, leaves(2, 3, 4, medium=medium), asked)
    assert "node 2 (tokens 0..1) should have left" in said


@pytest.mark.parametrize(
    ("policy", "first"),
    [
        (EvictionPolicy.LRU, 1),
        (EvictionPolicy.FIFO, 1),
        (EvictionPolicy.LFU, 4),
        (EvictionPolicy.MRU, 4),
        (EvictionPolicy.FILO, 4),
        (EvictionPolicy.SLRU, 3),
        (EvictionPolicy.PRIORITY, 1),
    ],
)
def test_rec_3_policy_decides_who_is_first(policy: EvictionPolicy, first: NodeId) -> None:
    """Victims leave in the order of the chosen policy."""
    chosen = config(evict=policy)
    before = leaves(1, 2, 3, 4, chosen=chosen)
    for victim in (1, 2, 3, 4):
        left = [node_id for node_id in (1, 2, 3, 4) if node_id != victim]
        found = evict(before, leaves(*left, chosen=chosen))
        assert (found == []) is (victim == first), found


def test_rec_3_locked_leaf_is_passed_over() -> None:
    """A locked leaf stays."""
    before = leaves(1, 2, 3, 4, locked=(1,))
    assert evict(before, leaves(1, 3, 4, locked=(1,))) == []


def test_rec_3_parent_takes_its_turn_as_a_leaf() -> None:
    """A node that becomes a leaf during an eviction leaves in turn, and not before."""
    parent = node(1, ROOT, [1], full=on([1]), last_access=1)
    child = node(2, 1, [2], full=on([2]), last_access=10)
    other = node(3, ROOT, [3], full=on([3]), last_access=20)
    before, two = state_of(CONFIG, parent, child, other), Evict(Counts(full=2))
    assert evict(before, state_of(CONFIG, parent, other)) == []
    assert evict(before, state_of(CONFIG, other), two) == []
    (stayed, left) = evict(before, state_of(CONFIG, parent), two)
    assert "node 1 (tokens 0..1) should have left GPU" in stayed
    assert "node 3 (tokens 0..1) left GPU, and should not have" in left


def test_rec_3_only_the_end_of_the_last_victim_may_leave() -> None:
    """Only the last victim may be cut, and only its needed end may leave."""
    long = node(1, ROOT, [1, 2, 3], full=on([1, 2, 3]))
    other = node(2, ROOT, [4], full=on([4]), last_access=20)
    before = state_of(CONFIG, long, other)

    def left(*pages: int) -> list[str]:
        kept = node(1, ROOT, pages, full=on(pages))
        return evict(before, state_of(CONFIG, kept, other), Evict(Counts(full=2)))

    assert left(1) == []
    assert evict(before, state_of(CONFIG, other), Evict(Counts(full=2))) == []
    (said,) = left(1, 2)
    assert "full data of pages 0..1 in node 1 (tokens 0..3) should have left" in said


def test_rec_3_leaf_above_locked_host_data_may_stay_under_write_back() -> None:
    """A leaf that fits nowhere on the host, and cannot be deleted, stays."""
    back = config(write=WritePolicy.WRITE_BACK)

    def passed_over(chosen: CacheConfig, below: int) -> list[str]:
        chosen = evolve(chosen, host_slots=Counts(full=8))
        taken = node(8, ROOT, range(20, 27), full=on(None, range(7), lock_refs=1))
        before = leaves(1, 2, 3, 4, chosen=chosen, below=below)
        after = leaves(1, 3, 4, chosen=chosen, below=below)
        before, after = (state_of(chosen, *each.below_root(), taken) for each in (before, after))
        return evict(before, after)

    assert passed_over(back, 1) == []
    assert passed_over(back, 0) != []
    assert passed_over(CONFIG, 1) != []


def test_rec_3_duplicates_on_the_host_are_no_leaves() -> None:
    """A host copy of data that is on the device is not ranked among host leaves."""
    back = config(write=WritePolicy.WRITE_BACK)
    recent = node(1, ROOT, [1], full=on([1], [1]), last_access=20)
    leaf = node(2, ROOT, [2], full=on(None, [2]), last_access=10)
    before = state_of(back, recent, leaf)
    after = state_of(back, evolve(recent, data={FULL: on([1])}), leaf)
    assert evict(before, after, EvictHost(Counts(full=1))) == []


@pytest.mark.parametrize("component", [SWA, MAMBA])
@pytest.mark.parametrize("medium", [GPU, CPU])
def test_rec_3_data_out_of_turn_is_named(component: Component, medium: Medium) -> None:
    """Window data or a state that leaves before less recent data of its kind is reported."""
    counts = Counts(swa=1) if component is SWA else Counts(mamba=1)
    asked = Evict(counts) if medium is GPU else EvictHost(counts)

    def left(*there: NodeId, locked: tuple[NodeId, ...] = ()) -> Snapshot:
        return chain_with(component, *there, medium=medium, locked=locked)

    everywhere, data = left(1, 2, 3, 4), f"{type(asked).__name__}: {component} data of"
    assert evict(everywhere, left(2, 3, 4), asked) == []
    (stayed, gone) = evict(everywhere, left(1, 3, 4), asked)
    assert stayed == f"{data} page 0 in node 1 (tokens 0..1) should have left {medium}, and did not"
    assert gone == f"{data} page 1 in node 2 (tokens 1..2) left {medium}, and should not have"
    (said,) = evict(everywhere, left(3, 4), asked)
    assert "in node 2 (tokens 1..2) left" in said
    assert evict(left(1, 2, 3, 4, locked=(1,)), left(1, 3, 4, locked=(1,)), asked) == []


def test_rec_3_copies_in_flight_and_duplicates_are_passed_over() -> None:
    """Window data in flight, and host copies of data on the device, stay."""
    busy = evolve(
        node(1, ROOT, [1], full=on([1])), data={FULL: on([1]), SWA: on([1], [1], backing=5)}
    )
    both = node(2, ROOT, [2], full=on([2], [2]), swa=on([2], [2]))
    victim = node(3, ROOT, [3], full=on([3], [3]), swa=on(None, [3]))
    lost = evolve(victim, data={FULL: on([3], [3])})
    before, after = state_of(CONFIG, busy, both, victim), state_of(CONFIG, busy, both, lost)
    assert evict(before, after, EvictHost(Counts(swa=1))) == []


def test_rec_3_what_one_component_frees_counts_for_the_next() -> None:
    """Slots that one component frees on the way count for the next."""
    both = [node(each, ROOT, [each], full=on([each]), swa=on([each])) for each in (1, 2, 3)]
    before, one_left = state_of(CONFIG, *both), state_of(CONFIG, *both[1:])
    assert evict(before, one_left, Evict(Counts(full=1, swa=1))) == []
    assert len(evict(before, state_of(CONFIG, both[2]), Evict(Counts(full=1, swa=1)))) == 2
    assert evict(before, state_of(CONFIG, both[2]), Evict(Counts(full=1, swa=2))) == []


def test_rec_3_is_a_matter_of_evictions() -> None:
    """Other calls, and refused ones, are not checked."""
    before, after = leaves(1, 2, 3, 4), leaves(1, 3, 4)
    assert evict(before, after, Match(KEY)) == []
    assert len(evict(before, after, Evict(Counts()))) == 1
    refused = Refused(BadArgument("counts", "are wrong"))
    assert ask("REC-3", step(before, Evict(Counts(full=1)), after, refused)) == []


# Ties.


@pytest.mark.parametrize("state", [BEFORE, leaves(1, 2, 3), leaves(1, medium=CPU, below=0)])
def test_rec_4_sound_orders_hold(state: Snapshot) -> None:
    """Leaves and orders that list every node once hold."""
    assert ask("REC-4", state_of(state.config, *state.below_root())) == []


@pytest.mark.parametrize("medium", [GPU, CPU])
def test_rec_4_tie_is_named(medium: Medium) -> None:
    """Two leaves with the same rank are reported."""
    state = leaves(1, 2, 3, medium=medium)
    tied = [evolve(each, last_access=30) for each in state.below_root()]
    found = ask("REC-4", state_of(state.config, *tied))
    assert len(found) == 2
    assert (
        f"node 2 (tokens 0..1) and node 1 (tokens 0..1) are leaves on {medium} and have the same "
        "rank (0, 30)"
    ) in found


def test_rec_4_path_may_share_a_rank() -> None:
    """Nodes above one another, used at once, may have the same rank."""
    upper = node(1, ROOT, [1], full=on([1]), last_access=5)
    lower = node(2, 1, [2], full=on([2]), last_access=5)
    assert ask("REC-4", state_of(CONFIG, upper, lower)) == []


@pytest.mark.parametrize(
    ("order", "said"),
    [
        ((1, 2, 3, 4), "node 9 (tokens 0..1) has swa data and is not in the order of swa on"),
        ((1, 2, 3, 4, 9, 2), "node 2 (tokens 1..2) is in the order of swa on"),
        ((1, 2, 3, 4, 9, 5), "node 5, which is not in the tree, is in the order of swa on"),
        ((1, 2, 3, 4, 9, 0), "the root (node 0) is in the order of swa on"),
    ],
    ids=["missing", "twice", "unknown", "root"],
)
def test_rec_4_order_that_misnames_is_named(order: tuple[NodeId, ...], said: str) -> None:
    """An order that lacks a node, or lists one too many, is reported."""
    found = ask("REC-4", ordered(BEFORE, *order))
    assert len(found) == 2
    assert all(said in each for each in found)
    assert {"GPU" in each for each in found} == {True, False}


def test_rec_4_order_of_the_host_alone_names_what_is_there_alone() -> None:
    """By profile, the host's own order lists only data that is not on the device."""
    own = evolve(BEFORE, profile=Profile(host_order_by_use=False))
    alone: Mapping[Pool, tuple[NodeId, ...]] = {(SWA, CPU): ()}
    bare = evolve(own, recency={**own.recency, **alone})
    assert ask("REC-4", bare) == []
    assert len(ask("REC-4", evolve(bare, profile=CANON))) == 5
    assert len(ask("REC-4", own)) == 5


def test_rec_4_full_data_has_orders_too() -> None:
    """A wrong order of full data is reported."""
    assert len(ask("REC-4", ordered(BEFORE, 1, 2, component=FULL))) == 6


@pytest.mark.parametrize("law_id", ["TREE-5", "REC-1", "REC-2", "REC-3"])
def test_misnamed_orders_are_the_matter_of_one_law(law_id: str) -> None:
    """No other law raises on an order that lists nodes which are not there."""
    strange = ordered(BEFORE, 77, 1, 2, 2, 3, 4, 9, ROOT)
    assert use(law_id, strange, ordered(prompt(1, 2, 3, 4), 1, 88, 9, 2, 3, 3, 4)) == []
    assert ask(law_id, step(strange, Evict(Counts()), strange, Evicted(Counts()))) == []


@pytest.mark.parametrize("law_id", ["REC-1", "REC-2", "REC-5"])
def test_a_prefix_that_is_not_in_the_tree_is_no_use(law_id: str) -> None:
    """REC laws do not raise on a match that reports pages which are not in the tree."""
    other = state_of(CONFIG, node(9, ROOT, [7], full=on([9]), swa=on([9])))
    assert use(law_id, other, other, match(2)) == []
