"""RES: each law on a state where it holds, and on states with a single fault."""

from __future__ import annotations

import pytest
from attrs import evolve

from kvcanon.spec.config import CacheConfig, Profile
from kvcanon.spec.errors import TransferPending
from kvcanon.spec.operations import (
    Insert,
    Inserted,
    Match,
    Refused,
)
from kvcanon.spec.snapshot import ComponentState, NodeState, PoolState, Snapshot
from kvcanon.spec.types import (
    CPU,
    FULL,
    MAMBA,
    SWA,
    Component,
    Counts,
    EvictionPolicy,
    NodeId,
    Slots,
    WritePolicy,
    make_key,
)
from states import ROOT, node, on, state_of
from telling import ask, step

POOLS = Counts(full=8, swa=8, mamba=4)
STATE_LAWS = ["RES-1", "RES-2", "RES-3", "RES-4", "RES-6"]


def config(policy: WritePolicy = WritePolicy.WRITE_THROUGH) -> CacheConfig:
    """Every component and a host tier."""
    return CacheConfig(
        window_tokens=2, mamba=True, device_slots=POOLS, host_slots=POOLS, write_policy=policy
    )


CONFIG = config()
LACKING = ComponentState()
Data = dict[Component, ComponentState]


def chain(
    upper: Data,
    lower: Data,
    policy: WritePolicy = WritePolicy.WRITE_THROUGH,
) -> Snapshot:
    """Node 1 (two pages) and node 2 (one page) below it."""

    def made(node_id: NodeId, parent_id: NodeId, tokens: list[int], data: Data) -> NodeState:
        full = data.get(FULL, LACKING)
        return node(node_id, parent_id, tokens, full=full, swa=data.get(SWA), mamba=data.get(MAMBA))

    return state_of(config(policy), made(1, ROOT, [1, 2], upper), made(2, 1, [3], lower))


UPPER: Data = {FULL: on([0, 1], [0, 1]), SWA: on([0, 1]), MAMBA: on([0], [0])}
LOWER: Data = {FULL: on([2], [2]), SWA: on([2], [2])}


@pytest.mark.parametrize("law_id", STATE_LAWS)
@pytest.mark.parametrize(
    "state",
    [
        state_of(CONFIG),
        chain(UPPER, LOWER),
        chain({FULL: on([0, 1], [0, 1])}, {FULL: on(None, [2]), SWA: on(None, [2])}),
        chain({FULL: on([0, 1], [0, 1], loading=7)}, {FULL: on([2], [2], loading=7)}),
    ],
    ids=["empty", "everywhere", "demoted", "loading"],
)
def test_sound_residency_holds(law_id: str, state: Snapshot) -> None:
    """Sound residency holds."""
    assert ask(law_id, state) == []


def test_res_1_node_without_full_data_is_named() -> None:
    """A node without full data is reported."""
    (said,) = ask("RES-1", chain(UPPER, {SWA: on([2])}))
    assert said == "node 2 (tokens 2..3) has full data neither on GPU nor on CPU_PINNED"


@pytest.mark.parametrize(
    ("lower", "said"),
    [
        ({FULL: on(None, [2]), SWA: on([2])}, "swa data on GPU and no full data there"),
        ({FULL: on([2]), SWA: on([2], [2])}, "swa data on CPU_PINNED and no full data there"),
        ({FULL: on(None, [2]), MAMBA: on([1])}, "mamba data on GPU and no full data there"),
    ],
)
def test_res_2_data_without_full_data_is_named(lower: Data, said: str) -> None:
    """Window data or a mamba state without full data on its medium is reported."""
    (found,) = ask("RES-2", chain(UPPER, lower))
    assert found == f"node 2 (tokens 2..3) has {said}"


def test_res_3_device_data_below_host_data_is_named() -> None:
    """A page on the device without the page before it is reported."""
    (said,) = ask("RES-3", chain({FULL: on(None, [0, 1])}, LOWER))
    assert "node 2 (tokens 2..3) has full data on GPU" in said
    assert "its parent node 1 (tokens 0..2) has none there" in said


def test_res_3_data_below_a_load_in_flight_is_named() -> None:
    """Settled device data below data that is being loaded is reported."""
    (said,) = ask("RES-3", chain({FULL: on([0, 1], [0, 1], loading=7)}, LOWER))
    assert "transfer 7 is still loading that of its parent node 1 (tokens 0..2)" in said


def test_res_4_host_copy_below_none_is_named() -> None:
    """A host copy below a node without one is reported, if the policy needs it."""
    holed = {FULL: on([0, 1])}
    (said,) = ask("RES-4", chain(holed, LOWER))
    assert "node 2 (tokens 2..3) is on the host but its parent node 1" in said
    assert ask("RES-4", chain(holed, LOWER, WritePolicy.WRITE_BACK)) == []


@pytest.mark.parametrize(
    ("upper", "said"),
    [
        ({FULL: on([0])}, "has 1 full slots on GPU; its 2 pages need 2"),
        ({FULL: on([0, 1], [0, 1, 2])}, "has 3 full slots on CPU_PINNED; its 2 pages need 2"),
        ({FULL: on([0, 1]), SWA: on([1])}, "has 1 swa slots on GPU; its 2 pages need 2"),
        ({FULL: on([0, 1]), SWA: on([])}, "has 0 swa slots on GPU; its 2 pages need 2"),
        ({FULL: on([0, 1]), MAMBA: on([0, 1])}, "has 2 mamba slots on GPU; its 2 pages need 1"),
        ({FULL: on([0, -1])}, "has full slots [-1] on GPU; that pool has slots 0..8"),
        ({FULL: on([0, 8])}, "has full slots [8] on GPU; that pool has slots 0..8"),
        (
            {FULL: on([0, 1]), MAMBA: on([4])},
            "has mamba slots [4] on GPU; that pool has slots 0..4",
        ),
        (
            {FULL: on([0, 1], backing=7)},
            "waits for transfer 7 to fill its full slots on CPU_PINNED, and has none there",
        ),
    ],
)
def test_res_6_slots_that_do_not_fit_are_named(upper: Data, said: str) -> None:
    """Too few or too many slots, or slots out of range, are reported."""
    state = chain(UPPER, LOWER)
    broken = evolve(state, nodes={**state.nodes, 1: evolve(state.nodes[1], data=upper)})
    (found,) = ask("RES-6", broken)
    assert found == f"node 1 (tokens 0..2) {said}"


def test_res_6_component_that_the_cache_lacks_is_named() -> None:
    """Window slots in a cache without a window are reported."""
    plain = CacheConfig(device_slots=POOLS)
    state = state_of(plain, node(1, ROOT, [1], full=on([0]), swa=on([0])))
    (said,) = ask("RES-6", state)
    assert "swa slots [0] on GPU; that pool has slots 0..0" in said


# Backups.

KEY = make_key([1, 2, 3], 1)
INSERT = Insert(KEY, 3, Slots())


def path(
    *hosts: bool,
    hits: tuple[int, int] = (1, 1),
    policy: WritePolicy = WritePolicy.WRITE_THROUGH,
    room: bool = False,
) -> Snapshot:
    """The nodes of `KEY` with or without host copies, on a host that is full or not."""
    upper, lower = hosts
    nodes: list[NodeState] = [
        node(1, ROOT, [1, 2], full=on([0, 1], [0, 1] if upper else None), hit_count=hits[0]),
        node(2, 1, [3], full=on([2], [2], backing=7) if lower else on([2]), hit_count=hits[1]),
        node(3, 2, [4], full=on([3])),
    ]
    state = state_of(config(policy), *nodes)
    return state if room else evolve(state, pools={**state.pools, (FULL, CPU): PoolState(8, ())})


def inserted(declined: int = 0) -> Inserted:
    """What RES-5 reports of an insert that declined so many pages."""
    return Inserted(3, Counts(), Counts(), backup_declined_pages=declined)


@pytest.mark.parametrize(
    ("after", "declined"),
    [
        (path(True, True), 0),
        (path(True, True, room=True), 0),
        (path(True, False), 1),
        (path(False, False), 3),
        (path(False, False, hits=(0, 0), room=True), 0),
        (path(False, False, hits=(1, 0)), 2),
        (path(False, False, policy=WritePolicy.WRITE_THROUGH_SELECTIVE, room=True), 0),
        (path(False, True, policy=WritePolicy.WRITE_BACK, room=True), 0),
    ],
    ids=[
        "all",
        "all, room",
        "lower declined",
        "declined",
        "cold",
        "upper due",
        "selective",
        "back",
    ],
)
def test_res_5_copied_or_counted_holds(after: Snapshot, declined: int) -> None:
    """An insert that backs up what was due, or counts what does not fit, holds."""
    assert ask("RES-5", step(after, INSERT, after, inserted(declined))) == []


@pytest.mark.parametrize(
    ("after", "declined", "said"),
    [
        (
            path(True, False),
            0,
            (
                "insert declined to back up 0 pages, but 1 pages of its path reached 1 hits and "
                "have no host copy: node 2 (tokens 2..3) with 1 hits"
            ),
        ),
        (path(True, True), 2, "insert declined to back up 2 pages, but 0 pages of its path"),
        (path(True, False, room=True), 1, "though the host has room for it, or could make it"),
        (
            path(False, True, hits=(0, 1)),
            0,
            "node 2 (tokens 2..3) has a host copy but node 1 (tokens 0..2) above it has none",
        ),
    ],
    ids=["skipped in silence", "nothing declined", "declined for nothing", "hole"],
)
def test_res_5_missing_copy_is_named(after: Snapshot, declined: int, said: str) -> None:
    """A node with enough hits without a backup that is not counted is reported."""
    (found,) = ask("RES-5", step(after, INSERT, after, inserted(declined)))
    assert said in found


def test_res_5_counts_only_pages_of_the_key() -> None:
    """Only pages of the inserted key are counted as declined."""
    after = path(False, False, hits=(1, 1))
    shorter = Insert(KEY.prefix(1), 1, Slots())
    assert ask("RES-5", step(after, shorter, after, inserted(1))) == []


def test_res_5_is_a_matter_of_inserts() -> None:
    """Matches and refused inserts need not back up."""
    after = path(False, False)
    refused = Refused(TransferPending(7))
    assert ask("RES-5", step(after, Match(KEY), after)) == []
    assert ask("RES-5", step(after, INSERT, after, refused)) == []


@pytest.mark.parametrize(
    ("hits", "counted_pages", "said"),
    [
        ((1, 1), 0, []),
        ((0, 1), 2, []),
        ((0, 1), 0, ["page 0 in node 1 (tokens 0..2) has 0 hits"]),
        ((1, 1), 2, ["page 0 in node 1 (tokens 0..2) has 1 hits"]),
        ((2, 1), 0, ["page 0 in node 1 (tokens 0..2) has 2 hits"]),
    ],
    ids=["new nodes", "chunk", "forgotten", "counted again", "counted twice"],
)
def test_res_7_hits_of_a_request(
    hits: tuple[int, int], counted_pages: int, said: list[str]
) -> None:
    """A hit that a request counts twice, or not at all, is reported."""
    after = path(True, True, hits=hits)
    before = path(True, True, hits=(0, 0))
    found = ask(
        "RES-7", step(before, evolve(INSERT, counted_pages=counted_pages), after, inserted(0))
    )
    assert len(found) == len(said)
    for text, words in zip(found, said, strict=True):
        assert words in text


@pytest.mark.parametrize(("hits", "counted_again"), [((1, 1), True), ((0, 1), False)])
def test_res_7_every_insert_counts_where_the_profile_says_so(
    hits: tuple[int, int], counted_again: bool
) -> None:
    """By profile, every insert counts a hit."""
    declared = Profile(hits_once_a_request=False)
    after = evolve(path(True, True, hits=hits), profile=declared)
    chunk = evolve(INSERT, counted_pages=2)
    found = ask("RES-7", step(path(True, True, hits=(0, 0)), chunk, after, inserted(0)))
    assert (found == []) is counted_again


@pytest.mark.parametrize(("hits", "counted"), [((1, 1), True), ((0, 0), False)])
def test_res_7_no_insert_counts_where_matches_do(hits: tuple[int, int], counted: bool) -> None:
    """By profile, matches count hits and inserts do not."""
    declared = Profile(hits_counted_at_match=True)
    after = evolve(path(True, True, hits=hits), profile=declared)
    found = ask("RES-7", step(path(True, True, hits=(0, 0)), INSERT, after, inserted(0)))
    assert bool(found) is counted


@pytest.mark.parametrize(
    ("asked", "counts"),
    [
        (CacheConfig(), False),
        (CacheConfig(eviction_policy=EvictionPolicy.LFU), True),
        (CacheConfig(write_policy=WritePolicy.WRITE_BACK), False),
        (CacheConfig(write_policy=WritePolicy.WRITE_THROUGH_SELECTIVE), True),
    ],
    ids=["lru", "lfu", "write_back", "write_through_selective"],
)
def test_res_7_idle_hits_need_not_count_where_the_profile_says_so(
    asked: CacheConfig, counts: bool
) -> None:
    """By profile, hits need not be counted where no policy uses them, and must elsewhere."""
    declared = Profile(idle_hits_counted=False)
    uncounted = path(True, True, hits=(0, 0))
    after = evolve(uncounted, profile=declared, config=asked)
    found = ask("RES-7", step(uncounted, INSERT, after, inserted(0)))
    assert bool(found) is counts
