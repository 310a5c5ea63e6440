"""EVICT: each law on a case where it holds, and on cases with a single fault."""

from __future__ import annotations

import pytest
from attrs import evolve

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.laws.comparison import losses as losses_of
from kvcanon.spec.laws.comparison import total
from kvcanon.spec.operations import Evict, Evicted, EvictHost, Poll, Refused
from kvcanon.spec.snapshot import ComponentState, NodeState, Snapshot
from kvcanon.spec.types import (
    CPU,
    FULL,
    GPU,
    MAMBA,
    SWA,
    Component,
    Counts,
    Medium,
    Slot,
    WritePolicy,
)
from kvcanon.spec.views import Step
from states import ROOT, node, on, state_of
from telling import ask, step

POOLS = Counts(full=16, swa=16, mamba=4)
LAWS_OF_EVICTION = ["EVICT-1", "EVICT-2", "EVICT-3", "EVICT-4", "EVICT-5", "EVICT-6", "EVICT-7"]
THROUGH, BACK = (
    CacheConfig(
        window_tokens=2, mamba=True, device_slots=POOLS, host_slots=POOLS, write_policy=policy
    )
    for policy in (WritePolicy.WRITE_THROUGH, WritePolicy.WRITE_BACK)
)

STEM = node(1, ROOT, [1, 2], full=on([0, 1], [0, 1]), swa=on([0, 1], [0, 1]))
BACKED = node(2, 1, [3, 4], full=on([2, 3], [2, 3]), swa=on([2, 3]), mamba=on([0]))
"""A leaf whose full data is on the host, too."""
DEMOTED = node(2, 1, [3, 4], full=on(None, [2, 3]), swa=on(), mamba=on())
BARE = node(3, 1, [5], full=on([4]), swa=on([4]), mamba=on([1]))
"""A leaf that is on the device only."""
TOMBSTONE = node(4, ROOT, [6, 7, 8], full=on([5, 6, 7]), swa=on())
"""A leaf without window data, on the device only."""
ALL = (STEM, BACKED, BARE, TOMBSTONE)


def tree(*nodes: NodeState, config: CacheConfig = THROUGH) -> Snapshot:
    """A state of these nodes."""
    return state_of(config, *(nodes or ALL))


def without(old: NodeState, medium: Medium, *components: Component) -> NodeState:
    """A node without these components' data on a medium."""
    data = dict(old.data)
    for component in components:
        had = data[component]
        data[component] = evolve(had, device=None) if medium is GPU else evolve(had, host=None)
    return evolve(old, data=data)


def evicted(
    before: Snapshot,
    asked: Counts,
    *left: NodeState,
    medium: Medium = GPU,
    freed: Counts | None = None,
) -> Step:
    """An eviction that left these nodes, and reports correctly what it freed, unless given."""
    after = state_of(before.config, *left)
    operation = Evict(asked) if medium is GPU else EvictHost(asked)
    moved = step(before, operation, after)
    return step(before, operation, after, Evicted(freed or total(losses_of(moved, medium))))


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
        "page 2 in node 2 (tokens 2..4) is gone from the tree with an eviction from GPU; it had "
        "full slot 2 on CPU_PINNED"
    )
    (said, _) = ask("EVICT-4", evicted(tree(), Counts(full=2), STEM, BARE, TOMBSTONE, medium=CPU))
    assert "with an eviction from CPU_PINNED; it had full slot 2 on GPU" in said


def test_evict_4_write_back_may_drop_a_subtree() -> None:
    """Under write_back a leaf that cannot be copied may take the pages below it along."""
    leaf = node(3, ROOT, [5], full=on([4]))
    below = node(4, 3, [6], full=on(None, [4]))
    assert ask("EVICT-4", evicted(tree(leaf, below, config=BACK), Counts(full=1))) == []
    (said,) = ask("EVICT-4", evicted(tree(leaf, below), Counts(full=1)))
    assert "page 1 in node 4 (tokens 1..2) is gone from the tree" in said


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
    assert said == "full slots [9] on GPU are held in one state only"


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
