"""MATCH: each law on a case where it holds, and on cases with a single fault."""

from __future__ import annotations

import pytest
from attrs import evolve

from kvcanon.spec.config import CANON, CacheConfig, Profile
from kvcanon.spec.errors import TransferPending
from kvcanon.spec.law import LAWS
from kvcanon.spec.operations import Insert, Inserted, Lock, Match, Matched, Refused
from kvcanon.spec.snapshot import (
    ComponentState,
    NodeState,
    Snapshot,
    Usage,
)
from kvcanon.spec.types import (
    FULL,
    GPU,
    MAMBA,
    SWA,
    Counts,
    Key,
    Namespace,
    Slot,
    Slots,
    TransferId,
    WritePolicy,
    make_key,
)
from states import ROOT, node, on, state_of
from telling import ask, step

POOLS = Counts(full=16, swa=16, mamba=4)
TENANT = Namespace(cache_salt="tenant")
MATCH_LAWS = [law_id for law_id in LAWS if law_id.startswith("MATCH-")]


def config(
    window_tokens: int | None = 2, *, mamba: bool = False, page_size: int = 1
) -> CacheConfig:
    """A cache with a host tier."""
    return CacheConfig(
        page_size=page_size,
        window_tokens=window_tokens,
        mamba=mamba,
        device_slots=POOLS,
        host_slots=POOLS,
        write_policy=WritePolicy.WRITE_THROUGH,
    )


WINDOWED, PLAIN, RECURRENT = config(), config(None), config(None, mamba=True)
KEY = make_key([1, 2, 3, 4], 1)


def path(*nodes: NodeState, config: CacheConfig = WINDOWED) -> Snapshot:
    """A state of nodes, with a prompt of another namespace beside them."""
    stranger = node(9, ROOT, [1, 2, 3], full=on([13, 14, 15]), namespace=TENANT)
    return state_of(config, *nodes, stranger)


def matched(
    prefix_pages: int,
    device_pages: int,
    slots: Slots | None = None,
    pending: tuple[TransferId, ...] = (),
) -> Matched:
    """The answer of a match; the laws about lengths do not look at slots."""
    return Matched(prefix_pages, device_pages, slots or Slots(), pending)


def match(
    law_id: str, state: Snapshot, outcome: Matched, key: Key = KEY, after: Snapshot | None = None
) -> list[str]:
    """What a law reports of a match that left the state as it was, or as `after`."""
    return ask(law_id, step(state, Match(key), after or state, outcome))


UPPER = node(1, ROOT, [1, 2], full=on([0, 1], [0, 1]), swa=on([0, 1]))
LOWER = node(2, 1, [3, 4], full=on([2, 3]), swa=on([2, 3]))
HELD = path(UPPER, LOWER)


@pytest.mark.parametrize("law_id", MATCH_LAWS)
@pytest.mark.parametrize(
    ("state", "key", "outcome"),
    [
        (HELD, KEY, matched(4, 4, Slots((0, 1, 2, 3), (0, 1, 2, 3)))),
        (HELD, KEY.prefix(3), matched(3, 3, Slots((0, 1, 2), (0, 1, 2)))),
        (HELD, KEY.prefix(0), matched(0, 0)),
        (HELD, make_key([7, 7], 1), matched(0, 0)),
        (HELD, Key(KEY.pages, TENANT), matched(0, 0)),
    ],
    ids=["whole", "inside a node", "empty", "unknown", "unusable in its namespace"],
)
def test_right_match_holds(law_id: str, state: Snapshot, key: Key, outcome: Matched) -> None:
    """A correct match holds."""
    assert match(law_id, state, outcome, key) == []


@pytest.mark.parametrize("law_id", MATCH_LAWS)
def test_refused_match_is_not_judged(law_id: str) -> None:
    """Refused calls and other calls are not checked."""
    refused = Refused(TransferPending(3))
    assert ask(law_id, step(HELD, Match(KEY), path(), refused)) == []
    assert ask(law_id, step(HELD, Insert(KEY, 4, Slots()), path(), refused)) == []
    assert ask(law_id, step(HELD, Lock(KEY), path())) == []


# Lengths.


@pytest.mark.parametrize(
    ("lower", "usable", "usable_on_device"),
    [
        (LOWER, 4, 4),
        # Behind a tombstone a window must be gathered anew: page 3 alone does not cover two tokens.
        (evolve(LOWER, data={FULL: on([2, 3])}), 2, 2),
        (evolve(LOWER, data={FULL: on(None, [2, 3]), SWA: on(None, [2, 3])}), 4, 2),
        (evolve(LOWER, data={FULL: on([2, 3], [2, 3]), SWA: on(None, [2, 3])}), 4, 2),
        (evolve(LOWER, data={FULL: on([2, 3], [2, 3]), SWA: on([2, 3], [2, 3])}), 4, 4),
        # A load in flight is data on the host, and none on the device.
        (evolve(LOWER, data={FULL: on([2, 3], [2, 3], loading=8), SWA: on([2, 3])}), 4, 2),
        (evolve(LOWER, data={FULL: on([2, 3], [2, 3], backing=8), SWA: on([2, 3])}), 4, 4),
    ],
    ids=["device", "tombstone", "host", "mixed", "both", "loading", "backing"],
)
def test_match_1_and_2_lengths_are_exact(
    lower: NodeState, usable: int, usable_on_device: int
) -> None:
    """A match of fewer or more pages than are usable is reported."""
    state = path(UPPER, lower)
    assert match("MATCH-1", state, matched(usable, 0)) == []
    assert match("MATCH-2", state, matched(4, usable_on_device)) == []
    for wrong in {0, 1, 2, 3, 4} - {usable}:
        (said,) = match("MATCH-1", state, matched(wrong, 0))
        assert f"found {wrong} usable pages where {usable} are" in said
    for wrong in {0, 1, 2, 3, 4} - {usable_on_device}:
        (said,) = match("MATCH-2", state, matched(4, wrong))
        assert f"found {wrong} pages usable from GPU where {usable_on_device} are" in said


def test_match_1_says_what_is_where() -> None:
    """The message says which data is on which medium."""
    lower = evolve(LOWER, data={FULL: on([2, 3], [2, 3], loading=8), SWA: on()})
    (said,) = match("MATCH-1", path(UPPER, lower), matched(3, 2), KEY.prefix(3))
    assert "node 1 (tokens 0..2) has full GPU and CPU_PINNED, swa GPU" in said
    assert (
        "node 2 (tokens 2..4), of which 1 pages are shared, "
        "has full CPU_PINNED and on its way to GPU, swa nowhere"
    ) in said
    (said,) = match("MATCH-1", path(UPPER), matched(1, 0), make_key([8], 1))
    assert "no page of it is in the tree" in said


def test_match_1_ends_where_a_state_is() -> None:
    """A match that ends at a page without a mamba state is reported."""
    ending = evolve(UPPER, data={FULL: on([0, 1]), MAMBA: on([0])})
    state = path(ending, evolve(LOWER, data={FULL: on([2, 3])}), config=RECURRENT)
    assert match("MATCH-1", state, matched(2, 2)) == []
    assert match("MATCH-1", state, matched(4, 2)) != []
    assert match("MATCH-1", state, matched(1, 1), KEY.prefix(1)) != []
    assert match("MATCH-1", state, matched(0, 0), KEY.prefix(1)) == []


def test_match_2_device_prefix_is_part_of_the_prefix() -> None:
    """A device prefix longer than the usable prefix is reported."""
    assert any("only 3 usable at all" in said for said in match("MATCH-2", HELD, matched(3, 4)))


# Slots.


@pytest.mark.parametrize(
    ("slots", "said"),
    [
        (Slots((0, 1, 2), (0, 1, 2, 3)), "returned 3 full slots where its pages have 4 on GPU"),
        (
            Slots((0, 1, 3, 2), (0, 1, 2, 3)),
            "full slot 3 for page 2; in node 2 (tokens 2..4) it is 2",
        ),
        (Slots((0, 1, 2, 3), (2, 3)), "returned 2 swa slots where its pages have 4 on GPU"),
        (Slots((0, 1, 2, 3), (0, 1, 2, 4)), "swa slot 4 for page 3"),
        (Slots((0, 1, 2, 3), (0, 1, 2, 3), (0,)), "returned 1 mamba slots where its pages have 0"),
    ],
)
def test_match_3_other_slots_are_named(slots: Slots, said: str) -> None:
    """Too few slots, or slots of other pages, are reported."""
    found = match("MATCH-3", HELD, matched(4, 4, slots))
    assert any(said in each for each in found), found


def test_match_3_window_slots_reach_back_to_the_first_gap() -> None:
    """Window slots from before a tombstone, or from a load in flight, are reported."""
    top = node(1, ROOT, [1], full=on([0]), swa=on([0]))
    gap = node(2, 1, [2], full=on([1]))
    end = node(3, 2, [3, 4], full=on([2, 3]), swa=on([2, 3]))
    loading = evolve(gap, data={FULL: on([1]), SWA: on([1], [1], loading=8)})
    for middle in (gap, loading):
        state = path(top, middle, end)
        assert match("MATCH-3", state, matched(4, 4, Slots((0, 1, 2, 3), (2, 3)))) == []
        (said,) = match("MATCH-3", state, matched(4, 4, Slots((0, 1, 2, 3), (0, 2, 3))))
        assert "returned 3 swa slots where its pages have 2 on GPU" in said


def test_match_3_returns_the_state_at_the_end() -> None:
    """A missing mamba state, or that of another node, is reported."""
    upper = evolve(UPPER, data={FULL: on([0, 1]), MAMBA: on([0])})
    state = path(upper, evolve(LOWER, data={FULL: on([2, 3]), MAMBA: on([1])}), config=RECURRENT)
    full = (0, 1, 2, 3)
    assert match("MATCH-3", state, matched(4, 4, Slots(full, (), (1,)))) == []
    assert match("MATCH-3", state, matched(4, 4, Slots(full)))[0].startswith(
        "a match returned 0 mamba"
    )
    assert (
        "mamba slot 0 for page 3"
        in match("MATCH-3", state, matched(4, 4, Slots(full, (), (0,))))[0]
    )


@pytest.mark.parametrize("device_pages", [-1, 5])
def test_match_3_length_beyond_the_tree_is_named(device_pages: int) -> None:
    """More device pages than are in the tree are reported."""
    (said,) = match("MATCH-3", HELD, matched(4, device_pages))
    assert f"found {device_pages} pages on GPU where 4 pages of its key are in the tree" in said


# Namespaces.


def test_match_3_slot_of_another_namespace_is_named() -> None:
    """A slot of another namespace is reported."""
    (said,) = match("MATCH-3", HELD, matched(4, 3, Slots((0, 14, 2), (0, 1, 2))))
    assert "returned full slot 14 for page 1" in said
    assert "slot 14 is that of node 9 (tokens 0..3) in Namespace(" in said
    assert "cache_salt='tenant'" in said


def test_match_1_prefix_that_only_another_namespace_has_is_named() -> None:
    """A match that counts pages of another namespace is reported."""
    other = Key(KEY.pages, Namespace(lora="other"))
    (said,) = match("MATCH-1", HELD, matched(3, 0), other)
    assert "found 3 usable pages where 0 are: no page of it is in the tree" in said


# What a match leaves alone.


def cut(*, refs: int = 0) -> Snapshot:
    """`HELD` after a match that cut node 2 before its second page."""
    upper = node(7, 1, [3], full=on([2], lock_refs=refs), swa=on([2]), last_access=20)
    lower = node(2, 7, [4], full=on([3]), swa=on([3]))
    return path(evolve(UPPER, last_access=20), evolve(upper, created=2), lower)


def test_match_5_cut_and_recency_are_no_change() -> None:
    """A match may cut nodes and make them recent."""
    assert match("MATCH-5", HELD, matched(3, 3), after=cut()) == []


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (cut(refs=1), "page 2 of node 2: lock_refs was (0, 0, 0) and is (1, 0, 0)"),
        (path(UPPER), "page 2 of node 2: depth was 2 and is nothing"),
        (path(UPPER, LOWER, node(3, 2, [5], full=on([5]))), "page 4 of node 3: depth was nothing"),
        (evolve(HELD, usage={FULL: Usage(1, 1)}), "changed the counts of usage"),
        (evolve(HELD, swa_of_full={0: 0}), "changed the window slots of full slots [1, 2, 3]"),
    ],
    ids=["locked", "gone", "new", "usage", "mapping"],
)
def test_match_5_change_is_named(after: Snapshot, said: str) -> None:
    """A match that changes anything else is reported."""
    found = match("MATCH-5", HELD, matched(4, 4), after=after)
    assert any(said in each for each in found), found


def test_match_5_pools_are_compared_as_sets() -> None:
    """A match that takes a slot is reported; free slots in another order are not."""
    pool = HELD.pools[FULL, GPU]

    def with_free(*slots: Slot) -> Snapshot:
        return evolve(HELD, pools={**HELD.pools, (FULL, GPU): evolve(pool, free=slots)})

    listed = with_free(*pool.free[::-1])
    assert match("MATCH-5", HELD, matched(4, 4), after=listed) == []
    taken = with_free(*pool.free[1:])
    (said,) = match("MATCH-5", HELD, matched(4, 4), after=taken)
    assert said == "a match changed which full slots on GPU are free or held"


COUNTING = Profile(hits_counted_at_match=True)


def hit(*hits: int, profile: Profile = COUNTING) -> Snapshot:
    """`UPPER`, and `LOWER` or its two pages in two nodes, with these hits."""
    lower = evolve(LOWER, hit_count=hits[1])
    parts = [lower]
    if len(hits) > 2:
        first = node(7, 1, [3], full=on([2]), swa=on([2]), hit_count=hits[1])
        parts = [first, node(2, 7, [4], full=on([3]), swa=on([3]), hit_count=hits[2])]
    return evolve(path(evolve(UPPER, hit_count=hits[0]), *parts), profile=profile)


def test_match_5_hits_are_counted_where_the_profile_says_so() -> None:
    """By profile, a match may count hits at its prefix, and nowhere else."""

    def said(after: Snapshot, prefix: int = 3) -> list[str]:
        return match("MATCH-5", hit(4, 4), matched(prefix, prefix), KEY.prefix(3), after)

    assert said(hit(5, 5, 4)) == []
    assert said(hit(5, 5)) == []  # A node that is used in part counts as a whole.
    assert "hit_count was 4 and is 5" in said(hit(5, 5, 5))[0]
    assert "hit_count was 4 and is 5" in said(hit(5, 5), prefix=2)[0]
    assert match("MATCH-5", hit(4, 4), matched(4, 4), after=hit(5, 5, profile=CANON))


def test_res_7_matches_count_one_hit_where_the_profile_says_so() -> None:
    """By profile, a match counts exactly one hit at each node of its prefix."""

    def said(after: Snapshot, prefix: int = 3) -> list[str]:
        return match("RES-7", hit(4, 4), matched(prefix, prefix), KEY.prefix(3), after)

    assert said(hit(5, 5, 4)) == []
    assert said(hit(5, 5)) == []
    assert said(hit(5, 4), prefix=2) == []
    (some,) = said(hit(5, 4))
    assert "page 2 in node 2 (tokens 2..4) has 4 hits after Match, expected" in some
    assert said(hit(4, 4, 4))
    assert said(hit(6, 5, 4))
    assert match("RES-7", hit(4, 4, profile=CANON), matched(4, 4)) == []


def test_res_7_idle_hits_of_matches_need_not_count_where_the_profile_says_so() -> None:
    """By profile, a match need not count hits where no policy uses them."""
    idle = evolve(COUNTING, idle_hits_counted=False)
    state = hit(4, 4, profile=idle)
    idling = evolve(state, config=evolve(WINDOWED, host_slots=Counts(), write_policy="none"))
    assert match("RES-7", idling, matched(4, 4)) == []
    assert match("RES-7", state, matched(4, 4)) != []


# Inserts are found.


def insert(
    before: Snapshot, after: Snapshot, slots: Slots, present: int, start: int | None = None
) -> list[str]:
    """What the law reports of an insert of `KEY`, from page `start` or from where slots begin."""
    begin = len(KEY) - len(slots.full) if start is None else start
    outcome = Inserted(present, Counts(), Counts())
    return ask("MATCH-6", step(before, Insert(KEY, begin, slots), after, outcome))


def below(full: ComponentState, swa: ComponentState | None = None) -> Snapshot:
    """`UPPER`, and the last two pages of `KEY` with this data."""
    return path(UPPER, node(2, 1, [3, 4], full=full, swa=swa))


BROUGHT = Slots((2, 3), (2, 3))


@pytest.mark.parametrize(
    ("before", "slots", "present"),
    [
        (path(UPPER), BROUGHT, 2),
        (below(on([2, 3])), Slots((8, 9), (2, 3)), 4),
        (below(on(None, [2, 3])), BROUGHT, 2),
        (path(), Slots((0, 1, 2, 3), (0, 1, 2, 3)), 0),
        (HELD, Slots(), 4),
    ],
    ids=["new leaf", "healed", "back on the device", "new prompt", "nothing new"],
)
def test_match_6_inserted_key_holds(before: Snapshot, slots: Slots, present: int) -> None:
    """An insert after which all its data is there holds."""
    assert insert(before, HELD, slots, present) == []


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (path(UPPER), "only 2 of 4 inserted pages are in the tree afterwards"),
        (below(on(None, [2, 3])), "full data of page 2 of an inserted key is not on GPU"),
        (below(on([2, 3], [2, 3], loading=8), on([2, 3])), "full data of page 2"),
        (below(on([2, 3])), "swa data of page 2"),
        (
            path(evolve(UPPER, data={FULL: on([0, 1])}), LOWER),
            "swa data of page 0 of an inserted key",
        ),
    ],
    ids=["not there", "host", "loading", "not healed", "lost"],
)
def test_match_6_missing_data_is_named(after: Snapshot, said: str) -> None:
    """An insert that loses what it brought, or what was there, is reported."""
    found = insert(path(UPPER), after, BROUGHT, 2)
    assert any(said in each for each in found), found
    assert all("afterwards" in each for each in found)


def test_match_6_leaf_without_window_data_may_be_dropped() -> None:
    """By profile, a new leaf without window data may be gone, and no other leaf."""
    kept = path(UPPER)
    dropped = evolve(kept, profile=Profile(tombstone_leaves=False))
    assert insert(kept, dropped, Slots((2, 3)), 2) == []
    assert insert(kept, kept, Slots((2, 3)), 2) != []
    assert insert(kept, dropped, BROUGHT, 2) != []
    half = evolve(path(UPPER, node(2, 1, [3], full=on([2]))), profile=dropped.profile)
    assert insert(kept, half, Slots((2, 3)), 2) != []


def test_match_6_window_data_that_nobody_brought_may_lack() -> None:
    """Window data that the request had freed need not be there."""
    tombstone = below(on([2, 3]))
    assert insert(path(UPPER), tombstone, Slots((2, 3)), 2) == []
    half = path(
        UPPER,
        node(2, 1, [3], full=on([2])),
        node(3, 2, [4], full=on([3]), swa=on([3])),
    )
    assert insert(path(UPPER), half, Slots((2, 3), (3,)), 2) == []
    assert insert(path(UPPER), half, BROUGHT, 2) != []


def test_match_6_windows_out_of_reach_may_be_freed_where_the_profile_says_so() -> None:
    """By profile, new window data before the last window may be freed, not what was there."""
    dropping = Profile(unreachable_windows_kept=False)
    brought = Slots((0, 1, 2, 3), (0, 1, 2, 3))
    bare = evolve(path(evolve(UPPER, data={FULL: on([0, 1])}), LOWER), profile=dropping)
    assert insert(path(), bare, brought, 0) == []
    assert insert(path(), evolve(bare, profile=CANON), brought, 0) != []
    (said,) = insert(path(UPPER), bare, BROUGHT, 2)
    assert "swa data of page 0" in said
    assert "it was there before" in said
    reached = evolve(below(on([2, 3])), profile=dropping)
    assert insert(path(UPPER), reached, BROUGHT, 2) != []


def test_match_6_hole_under_an_insert_is_named() -> None:
    """An insert above pages that are not there is reported."""
    after = path(evolve(UPPER, data={FULL: on(None, [0, 1])}), LOWER)
    found = insert(after, after, Slots(), 0, start=4)
    assert any("full data of page 0" in each and "builds on it" in each for each in found)


def test_match_6_load_in_flight_keeps_its_slots() -> None:
    """An insert that takes window slots of a load in flight is reported."""
    loading = below(on([2, 3]), on([2, 3], [2, 3], loading=8))
    assert insert(loading, loading, Slots(), 4) == []
    (first, *_) = insert(loading, below(on([2, 3]), on(None, [2, 3])), Slots(), 4)
    assert "swa data of page 2" in first
    assert "it was there before" in first


@pytest.mark.parametrize("had", [None, 0], ids=["brought", "was there"])
def test_match_6_keeps_the_state_at_the_end(had: int | None) -> None:
    """A missing mamba state that an insert brought, or that was there, is reported."""

    def with_state(slot: int | None) -> Snapshot:
        data = {FULL: on([2, 3]), MAMBA: on() if slot is None else on([slot])}
        upper = evolve(UPPER, data={FULL: on([0, 1])})
        return path(upper, evolve(LOWER, data=data), config=RECURRENT)

    brought = Slots(mamba=(1,) if had is None else ())
    assert insert(with_state(had), with_state(1), brought, 4) == []
    (said,) = insert(with_state(had), with_state(None), brought, 4)
    assert "mamba data of page 3" in said
    assert ("brought" in said) is (had is None)


def test_match_6_present_pages_are_those_of_before() -> None:
    """A wrong count of pages that were there is reported."""
    (said,) = insert(path(UPPER), HELD, BROUGHT, 3)
    assert "says that 3 of its 4 pages had full data on GPU before, and 2 had" in said


# Loads in flight.


def loading(*, upper: TransferId | None, lower: TransferId | None) -> Snapshot:
    """The path of `KEY` while transfers load it."""
    return path(
        node(1, ROOT, [1, 2], full=on([0, 1], [0, 1], loading=upper), swa=on([0, 1], [0, 1])),
        node(2, 1, [3, 4], full=on([2, 3], [2, 3]), swa=on([2, 3], [2, 3], loading=lower)),
    )


@pytest.mark.parametrize(
    ("state", "prefix_pages", "pending"),
    [
        (loading(upper=None, lower=None), 4, ()),
        (loading(upper=8, lower=9), 4, (8, 9)),
        (loading(upper=8, lower=8), 4, (8,)),
        (loading(upper=8, lower=9), 2, (8,)),
        (loading(upper=8, lower=9), 3, (9, 8)),
        (loading(upper=8, lower=9), 0, ()),
    ],
    ids=["none", "two", "one", "behind the prefix", "any order", "nothing usable"],
)
def test_match_7_names_the_loads_of_the_prefix(
    state: Snapshot, prefix_pages: int, pending: tuple[TransferId, ...]
) -> None:
    """A match that leaves out a load of its prefix, or names another, is reported."""
    assert match("MATCH-7", state, matched(prefix_pages, 0, pending=pending)) == []
    (said,) = match("MATCH-7", state, matched(prefix_pages, 0, pending=(*pending, 77)))
    assert "77" in said
    if pending:
        (said,) = match("MATCH-7", state, matched(prefix_pages, 0, pending=pending[1:]))
        assert f"{sorted(pending)} are loading them" in said
        assert match("MATCH-7", state, matched(prefix_pages, 0, pending=pending * 2)) != []
