"""MATCH-1 to MATCH-3: what a match finds and returns."""

from __future__ import annotations

import pytest
from attrs import evolve

from kvcanon.spec.errors import TransferPending
from kvcanon.spec.law import LAWS
from kvcanon.spec.operations import Insert, Lock, Match, Matched, Refused
from kvcanon.spec.snapshot import (
    NodeState,
    Snapshot,
)
from kvcanon.spec.types import (
    FULL,
    MAMBA,
    SWA,
    Key,
    Namespace,
    Slots,
    make_key,
)
from match_cases import HELD, KEY, LOWER, RECURRENT, TENANT, UPPER, match, matched, path
from states import ROOT, node, on
from telling import ask, step

MATCH_LAWS = [law_id for law_id in LAWS if law_id.startswith("MATCH-")]


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
