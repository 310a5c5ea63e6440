"""EVICT-3 to EVICT-7: what leaves with a victim, and what stays."""

from __future__ import annotations

import pytest
from attrs import evolve

from evict_cases import ALL, BACK, BACKED, BARE, STEM, THROUGH, TOMBSTONE, evicted, tree, without
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.snapshot import ComponentState, NodeState
from kvcanon.spec.types import (
    CPU,
    FULL,
    GPU,
    MAMBA,
    SWA,
    Component,
    Counts,
    Slot,
)
from states import ROOT, node, on, state_of
from telling import ask


@pytest.mark.parametrize(
    ("asked", "left", "words"),
    [
        (
            Counts(full=2),
            (STEM, without(BACKED, GPU, FULL), BARE, TOMBSTONE),
            "page 2 in node 2 (tokens 2..4) lost its full data on GPU, and still has swa slot 2",
        ),
        (
            Counts(full=2),
            (STEM, without(BACKED, GPU, FULL, SWA), BARE, TOMBSTONE),
            "page 3 in node 2 (tokens 2..4) lost its full data on GPU, and still has mamba slot 0",
        ),
        (
            Counts(swa=2),
            (STEM, without(BACKED, GPU, SWA), BARE, TOMBSTONE),
            "page 3 in node 2 (tokens 2..4) lost its swa data on GPU, and still has mamba slot 0",
        ),
        (
            Counts(swa=2),
            (STEM, without(BACKED, GPU, SWA, MAMBA), BARE, TOMBSTONE),
            "page 2 in node 2 (tokens 2..4) lost only swa data on GPU, though its node was a leaf",
        ),
        (
            Counts(full=1),
            (without(STEM, GPU, SWA), BACKED, TOMBSTONE),
            "page 0 in node 1 (tokens 0..2) lost its swa data on GPU and kept its full data; none",
        ),
    ],
)
def test_evict_3_other_parts_are_named(
    asked: Counts, left: tuple[NodeState, ...], words: str
) -> None:
    """Data that stays without what it needs, or leaves without need, is reported."""
    found = ask("EVICT-3", evicted(tree(), asked, *left))
    assert any(words in each for each in found)


def test_evict_3_a_state_takes_nothing_with_it() -> None:
    """A mamba state inside the tree leaves alone, and not for window slots."""
    inner = evolve(STEM, data={**STEM.data, MAMBA: on([2])})
    before = tree(inner, BACKED)
    alone, both = without(inner, GPU, MAMBA), without(inner, GPU, MAMBA, SWA)
    assert ask("EVICT-3", evicted(before, Counts(mamba=1), alone, BACKED)) == []
    assert ask("EVICT-3", evicted(before, Counts(swa=1), both, BACKED)) == []
    said = ask("EVICT-3", evicted(before, Counts(mamba=1), both, BACKED))
    assert len(said) == 2
    assert "lost its swa data on GPU and kept its full data; none was asked for" in said[0]
    (said_state,) = ask("EVICT-3", evicted(before, Counts(swa=1), alone, BACKED))
    assert "page 1 in node 1 (tokens 0..2) lost its state on GPU" in said_state


def test_evict_3_on_the_host_a_state_outlives_its_window() -> None:
    """On the host a mamba state may stay without its window, but a host leaf leaves whole."""
    inner = node(1, ROOT, [1], full=on(None, [0]), swa=on(None, [0]), mamba=on(None, [0]))
    leaf = node(2, 1, [2], full=on(None, [1]), swa=on(None, [1]))
    before = tree(inner, leaf)
    kept = evicted(before, Counts(swa=1), without(inner, CPU, SWA), leaf, medium=CPU)
    assert ask("EVICT-3", kept) == []
    part = evicted(before, Counts(swa=1), inner, without(leaf, CPU, SWA), medium=CPU)
    (said,) = ask("EVICT-3", part)
    assert "lost only swa data on CPU_PINNED, though its node was a leaf there" in said


def test_evict_4_nodes_that_move_up_are_named() -> None:
    """A node that moved up because its parent was removed is reported."""
    child = evolve(BARE, parent_id=ROOT)
    found = ask("EVICT-4", evicted(tree(), Counts(full=2), child, TOMBSTONE))
    assert (
        "page 0 in node 3 (tokens 0..1) was not in the tree before; the node above it was removed"
    ) in found


def test_evict_4_backed_pages_that_vanish_are_named() -> None:
    """An eviction that removes a page which is also on the other medium is reported."""
    (said, _) = ask("EVICT-4", evicted(tree(), Counts(full=2), STEM, BARE, TOMBSTONE))
    assert said == (
        "an eviction from GPU removed page 2 in node 2 (tokens 2..4) from the tree, though it had "
        "full slot 2 on CPU_PINNED"
    )
    (said, _) = ask("EVICT-4", evicted(tree(), Counts(full=2), STEM, BARE, TOMBSTONE, medium=CPU))
    assert "an eviction from CPU_PINNED removed" in said
    assert "though it had full slot 2 on GPU" in said


def test_evict_4_write_back_may_drop_a_subtree() -> None:
    """Under write_back a leaf that cannot be copied may take the pages below it along."""
    leaf = node(3, ROOT, [5], full=on([4]))
    below = node(4, 3, [6], full=on(None, [4]))
    assert ask("EVICT-4", evicted(tree(leaf, below, config=BACK), Counts(full=1))) == []
    (said,) = ask("EVICT-4", evicted(tree(leaf, below), Counts(full=1)))
    assert "removed page 1 in node 4 (tokens 1..2) from the tree" in said


@pytest.mark.parametrize("config", [THROUGH, BACK])
def test_evict_5_backups_that_go_are_named(config: CacheConfig) -> None:
    """A page with a host copy that loses it, moves there or leaves the tree is reported."""
    backed = node(2, 1, [3], full=on([3], [3]), swa=on([3], [3]))
    before = tree(STEM, backed, config=config)
    here = node(2, 1, [3], full=on(None, [3]), swa=on(None, [3]))
    assert ask("EVICT-5", evicted(before, Counts(full=1), STEM, here)) == []
    (said, _) = ask("EVICT-5", evicted(before, Counts(full=1), STEM))
    assert said == (
        "page 2 in node 2 (tokens 2..3) was evicted from GPU with a host copy; its full slot on "
        "CPU_PINNED was 3 and is none"
    )
    moved = node(2, 1, [3], full=on(None, [5]), swa=on(None, [3]))
    (said,) = ask("EVICT-5", evicted(before, Counts(full=1), STEM, moved))
    assert said.endswith("its full slot on CPU_PINNED was 3 and is 5")
    lost = node(2, 1, [3], full=on(None, [3]), swa=on())
    (said,) = ask("EVICT-5", evicted(before, Counts(full=1), STEM, lost))
    assert said.endswith("its swa slot on CPU_PINNED was 3 and is none")


def test_evict_5_write_back_may_need_the_room() -> None:
    """Under write_back a host copy may make way for that of another page."""
    backed = node(2, ROOT, [3], full=on([3], [3]))
    bare = node(3, ROOT, [5], full=on([4]))
    copied = node(3, ROOT, [5], full=on(None, [3]))
    before = tree(backed, bare, config=BACK)
    assert ask("EVICT-5", evicted(before, Counts(full=2), copied)) == []
    # What hangs on nothing that had to be copied must keep its copy.
    assert len(ask("EVICT-5", evicted(before, Counts(full=1), bare))) == 1


def changed(old: NodeState, component: Component, data: ComponentState) -> NodeState:
    """A node with other data of one component."""
    return evolve(old, data={**old.data, component: data})


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (changed(STEM, FULL, on([0, 9], [0, 1])), "its full slot on GPU was 1 and is 9"),
        (changed(STEM, FULL, on([0, 1], [0, 9])), "its full slot on CPU_PINNED was 1 and is 9"),
        (changed(STEM, SWA, on([0, 1])), "its swa slot on CPU_PINNED was 0 and is none"),
        (changed(STEM, MAMBA, on(None, [3])), "its mamba slot on CPU_PINNED was none and is 3"),
        (changed(STEM, FULL, on([0, 1], [0, 1], lock_refs=1)), "full lock_refs was 0 and is 1"),
        (evolve(STEM, hit_count=4), "hit_count was 0 and is 4"),
    ],
)
def test_evict_6_changes_of_others_are_named(other: NodeState, words: str) -> None:
    """An eviction that changes nodes other than victims is reported."""
    found = ask("EVICT-6", evicted(tree(), Counts(full=1), other, BACKED, TOMBSTONE))
    assert any(
        each.startswith("page") and "in node 1 (tokens 0..2)" in each and words in each
        for each in found
    )


def test_evict_6_locked_victims_are_named() -> None:
    """An eviction that takes locked data is reported."""
    locked = changed(STEM, SWA, on([0, 1], [0, 1], lock_refs=1))
    before = tree(locked, BACKED)
    said = ask("EVICT-6", evicted(before, Counts(swa=2), without(locked, GPU, SWA), BACKED))
    assert said[0] == (
        "page 0 in node 1 (tokens 0..2), with 1 swa lock_refs: its swa slot on GPU was 0 and is "
        "none"
    )


def test_evict_6_slots_of_requests_are_kept() -> None:
    """An eviction that takes slots of a request is reported."""
    lawful = evicted(tree(), Counts(full=1), STEM, BACKED, TOMBSTONE)
    held: dict[Component, set[Slot]] = {FULL: {9}}
    holding = state_of(THROUGH, *ALL, held=held)
    (said,) = ask("EVICT-6", evolve(lawful, before=holding))
    assert said == "full slots [9] on GPU are held only before or only after the call"


def test_evict_6_write_back_copies_victims() -> None:
    """Under write_back victims may be copied to the host, and no other nodes."""
    inner = node(1, ROOT, [1, 2], full=on([0, 1], lock_refs=1), swa=on([0, 1]), mamba=on([2]))
    other = node(4, ROOT, [6], full=on([5]), swa=on([5]))
    before = tree(inner, other, config=BACK)
    copied = node(
        1, ROOT, [1, 2], full=on([0, 1], [4, 5], lock_refs=1), swa=on([0, 1]), mamba=on(None, [2])
    )
    assert ask("EVICT-6", evicted(before, Counts(mamba=1), copied, other)) == []
    both = changed(other, FULL, on([5], [6]))
    (said,) = ask("EVICT-6", evicted(before, Counts(mamba=1), copied, both))
    assert "page 0 in node 4 (tokens 0..1), with 0 full lock_refs: its full slot on CPU" in said


def test_evict_7_host_leaf_before_a_duplicate_is_named() -> None:
    """Under write_back a host leaf that leaves before a duplicate is reported."""
    only = node(5, ROOT, [9], full=on(None, [4]), swa=on(), mamba=on())
    before = tree(STEM, only, config=BACK)
    (said,) = ask("EVICT-7", evicted(before, Counts(full=1), STEM, medium=CPU))
    assert said == (
        "node 5 (tokens 0..1), on the host only, was evicted from there while the host copy of "
        "node 1 (tokens 0..2), which the device has, stayed"
    )


def test_evict_7_duplicates_go_first() -> None:
    """A host leaf may leave once no duplicate is left."""
    only = node(5, ROOT, [9], full=on(None, [4]), swa=on(), mamba=on())
    bare = without(STEM, CPU, FULL, SWA)
    before = tree(STEM, only, config=BACK)
    assert ask("EVICT-7", evicted(before, Counts(full=3), bare, medium=CPU)) == []
    held = changed(STEM, FULL, on([0, 1], [0, 1], lock_refs=1))
    before = tree(held, only, config=BACK)
    assert ask("EVICT-7", evicted(before, Counts(full=1), held, medium=CPU)) == []
    before = tree(STEM, only, config=THROUGH)
    assert ask("EVICT-7", evicted(before, Counts(full=1), STEM, medium=CPU)) == []
