"""MATCH-5, and RES-7 of matches: what a match changes."""

from __future__ import annotations

import pytest
from attrs import evolve

from kvcanon.spec.config import CANON, Profile
from kvcanon.spec.snapshot import (
    Snapshot,
    Usage,
)
from kvcanon.spec.types import (
    FULL,
    GPU,
    Counts,
    Slot,
)
from match_cases import HELD, KEY, LOWER, UPPER, WINDOWED, match, matched, path
from states import node, on


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
