"""REC-4: LRU orders and ranks that hold, and others."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from attrs import evolve

from kvcanon.spec.config import CANON, Profile
from kvcanon.spec.operations import (
    Evict,
    Evicted,
)
from kvcanon.spec.snapshot import Pool, Snapshot
from kvcanon.spec.types import (
    CPU,
    FULL,
    GPU,
    SWA,
    Counts,
    Medium,
    NodeId,
)
from recency_cases import BEFORE, CONFIG, leaves, ordered, prompt, use
from states import ROOT, node, on, state_of
from telling import ask, step


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
