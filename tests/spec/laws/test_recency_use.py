"""REC-1, REC-2 and REC-5: what a use makes recent, and what it leaves alone."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from attrs import evolve

from kvcanon.spec.config import MambaRefresh, Profile
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.operations import (
    Insert,
    Lock,
    Match,
    Matched,
    Operation,
    Outcome,
    Refused,
)
from kvcanon.spec.snapshot import Pool, Snapshot
from kvcanon.spec.types import (
    CPU,
    MAMBA,
    SWA,
    NodeId,
    Slots,
    make_key,
)
from recency_cases import BEFORE, CONFIG, KEY, USES, config, insert, match, ordered, prompt, use
from states import ROOT, node, on, state_of
from telling import ask, step

LAWS_OF_USE = ["REC-1", "REC-2", "REC-5"]


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


@pytest.mark.parametrize("law_id", ["REC-1", "REC-2", "REC-5"])
def test_a_prefix_that_is_not_in_the_tree_is_no_use(law_id: str) -> None:
    """REC laws do not raise on a match that reports pages which are not in the tree."""
    other = state_of(CONFIG, node(9, ROOT, [7], full=on([9]), swa=on([9])))
    assert use(law_id, other, other, match(2)) == []
