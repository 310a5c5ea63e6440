"""EVICT-1 and EVICT-2: how much an eviction frees."""

from __future__ import annotations

import pytest
from attrs import evolve

from evict_cases import ALL, BACK, BACKED, BARE, STEM, TOMBSTONE, evicted, tree, without
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.operations import Evict, Poll, Refused
from kvcanon.spec.snapshot import NodeState
from kvcanon.spec.types import (
    CPU,
    FULL,
    GPU,
    MAMBA,
    SWA,
    Counts,
)
from kvcanon.spec.views import Step
from states import ROOT, node, on
from telling import ask, step

LAWS_OF_EVICTION = ["EVICT-1", "EVICT-2", "EVICT-3", "EVICT-4", "EVICT-5", "EVICT-6", "EVICT-7"]

DEMOTED = node(2, 1, [3, 4], full=on(None, [2, 3]), swa=on(), mamba=on())

LAWFUL: dict[str, Step] = {
    "nothing asked": evicted(tree(), Counts(), *ALL),
    "a leaf is demoted": evicted(tree(), Counts(full=2), STEM, DEMOTED, BARE, TOMBSTONE),
    "a leaf is deleted": evicted(tree(), Counts(full=1), STEM, BACKED, TOMBSTONE),
    "leaf after leaf": evicted(tree(), Counts(full=6), STEM, DEMOTED),
    "a tombstone is made": evicted(
        tree(), Counts(swa=1), without(STEM, GPU, SWA), BACKED, BARE, TOMBSTONE
    ),
    "a leaf goes for its window": evicted(tree(), Counts(swa=1), STEM, BACKED, TOMBSTONE),
    "a leaf goes for its state": evicted(tree(), Counts(mamba=2), STEM, DEMOTED, TOMBSTONE),
    "by the way": evicted(tree(), Counts(full=1, swa=1, mamba=1), STEM, BACKED, TOMBSTONE),
    "all that there is": evicted(
        tree(),
        Counts(full=99),
        node(1, ROOT, [1, 2], full=on(None, [0, 1]), swa=on(None, [0, 1])),
        DEMOTED,
    ),
}


@pytest.mark.parametrize("law_id", LAWS_OF_EVICTION)
@pytest.mark.parametrize("lawful", LAWFUL.values(), ids=list(LAWFUL))
def test_lawful_evictions(law_id: str, lawful: Step) -> None:
    """Correct evictions hold."""
    assert ask(law_id, lawful) == []


@pytest.mark.parametrize("law_id", LAWS_OF_EVICTION)
def test_other_calls_are_no_evictions(law_id: str) -> None:
    """Refused evictions and other calls are not checked."""
    assert ask(law_id, step(tree(), Poll(), tree(STEM))) == []
    refused = Refused(BadArgument("full", "is wrong"))
    assert ask(law_id, step(tree(), Evict(Counts(full=-1)), tree(STEM), refused)) == []


def test_evict_1_victims_that_are_left_are_named() -> None:
    """An eviction that frees too few slots with victims left is reported."""
    (said,) = ask("EVICT-1", evicted(tree(), Counts(full=4), STEM, DEMOTED, BARE, TOMBSTONE))
    assert said == (
        "4 full slots were asked for on GPU and 2 freed, but node 3 (tokens 2..3) could still be "
        "evicted"
    )
    (said,) = ask("EVICT-1", evicted(tree(), Counts(swa=2), STEM, BACKED, TOMBSTONE))
    assert said.startswith(
        "2 swa slots were asked for on GPU and 1 freed, but node 1 (tokens 0..2)"
    )
    (said,) = ask("EVICT-1", evicted(tree(), Counts(mamba=1), *ALL))
    assert said.startswith("1 mamba slots were asked for on GPU and 0 freed, but node 2")


def test_evict_1_locked_data_is_no_victim() -> None:
    """Locked data is no victim that is left."""
    locked = node(4, ROOT, [6], full=on([5], lock_refs=1), swa=on([5], lock_refs=1))
    before = tree(locked)
    assert ask("EVICT-1", evicted(before, Counts(full=1, swa=1), locked)) == []
    released = node(4, ROOT, [6], full=on([5], lock_refs=1), swa=on([5]))
    before = tree(released)
    assert ask("EVICT-1", evicted(before, Counts(full=1), released)) == []
    assert len(ask("EVICT-1", evicted(before, Counts(swa=1), released))) == 1


def test_evict_1_host_victims() -> None:
    """Host leaves, window data on the host alone, and duplicates are victims that are left."""
    only = node(2, 1, [3, 4], full=on(None, [2, 3]), swa=on(None, [2, 3]))
    (said,) = ask("EVICT-1", evicted(tree(STEM, only), Counts(full=1), STEM, only, medium=CPU))
    assert said.startswith("1 full slots were asked for on CPU_PINNED and 0 freed, but node 2")
    below = node(5, 2, [9], full=on(None, [9], lock_refs=1))
    nodes = (STEM, evolve(only, data={**only.data, FULL: on(None, [2, 3], lock_refs=1)}), below)
    assert ask("EVICT-1", evicted(tree(*nodes), Counts(full=1), *nodes, medium=CPU)) == []
    (said,) = ask("EVICT-1", evicted(tree(*nodes), Counts(swa=1), *nodes, medium=CPU))
    assert "but node 2 (tokens 2..4) could still be evicted" in said
    # A host copy of what is on the device is a duplicate, which only write_back gives up.
    assert ask("EVICT-1", evicted(tree(STEM), Counts(full=1), STEM, medium=CPU)) == []
    duplicates = evicted(tree(STEM, config=BACK), Counts(full=1), STEM, medium=CPU)
    (said,) = ask("EVICT-1", duplicates)
    assert "but node 1 (tokens 0..2) could still be evicted" in said


def test_evict_1_duplicate_that_states_had_hidden() -> None:
    """A node that became a duplicate only when its state left is no victim that was left."""
    hidden = evolve(STEM, data={**STEM.data, MAMBA: on(None, [3])})
    bared = evolve(STEM, data={**STEM.data, MAMBA: on()})
    before = tree(hidden, config=BACK)
    assert ask("EVICT-1", evicted(before, Counts(full=1, mamba=1), bared, medium=CPU)) == []


@pytest.mark.parametrize(
    ("asked", "left", "words"),
    [
        (
            Counts(),
            (STEM, BACKED, TOMBSTONE),
            "nothing asked for on GPU and 1 full and 1 swa and 1 ma",
        ),
        (
            Counts(full=1),
            (STEM, DEMOTED, TOMBSTONE),
            "1 full asked for on GPU and 3 full and 3 swa",
        ),
        (
            Counts(full=3),
            (STEM, DEMOTED),
            "3 full asked for on GPU and 6 full and 3 swa and 2 mamba",
        ),
        (
            Counts(swa=1),
            (STEM, BACKED, BARE),
            "1 swa asked for on GPU and 3 full slots evicted; without any one victim",
        ),
        (
            Counts(swa=1),
            (STEM, BACKED),
            "node 4 (tokens 0..3) lost full slots on GPU, of which 0 were asked for and at least 3",
        ),
        (
            Counts(full=1, swa=1),
            (without(STEM, GPU, SWA), DEMOTED, TOMBSTONE),
            "1 full and 1 swa asked for on GPU and 3 full and 5 swa and 2 mamba slots",
        ),
        (
            Counts(swa=1, mamba=2),
            (without(STEM, GPU, SWA), BACKED),
            "node 4 (tokens 0..3) lost full slots on GPU, of which 0 were asked for",
        ),
    ],
)
def test_evict_2_needless_victims_are_named(
    asked: Counts, left: tuple[NodeState, ...], words: str
) -> None:
    """An eviction that goes on once enough slots are free is reported."""
    (said,) = ask("EVICT-2", evicted(tree(), asked, *left))
    assert words in said


def test_evict_2_any_order_of_victims_is_allowed() -> None:
    """An eviction is reported only if its last victim was needless in every order."""
    left = (without(STEM, GPU, SWA), DEMOTED, BARE, TOMBSTONE)
    assert ask("EVICT-2", evicted(tree(), Counts(swa=1, mamba=1), *left)) == []
    (said,) = ask("EVICT-2", evicted(tree(), Counts(swa=1), *left))
    assert said.startswith("1 swa asked for on GPU and 2 full and 4 swa and 1 mamba slots evicted")


def test_evict_2_states_leave_one_by_one() -> None:
    """A mamba state inside the tree that leaves although enough have left is reported."""
    inner = evolve(STEM, data={**STEM.data, MAMBA: on([2])})
    before = tree(inner, BACKED, BARE)
    left = (STEM, DEMOTED)
    assert ask("EVICT-2", evicted(before, Counts(full=3, mamba=3), *left)) == []
    (said,) = ask("EVICT-2", evicted(before, Counts(full=3, mamba=2), *left))
    assert "node 1 (tokens 0..2) lost mamba slots on GPU, of which 2 were asked for" in said


def test_evict_2_host_overshoot_is_named() -> None:
    """An eviction from the host that goes on once enough slots are free is reported."""
    first, second = (node(i, ROOT, [i], full=on(None, [i])) for i in (1, 2))
    before = tree(first, second)
    assert ask("EVICT-2", evicted(before, Counts(full=2), medium=CPU)) == []
    (said,) = ask("EVICT-2", evicted(before, Counts(full=1), medium=CPU))
    assert said.startswith("1 full asked for on CPU_PINNED and 2 full slots evicted")
