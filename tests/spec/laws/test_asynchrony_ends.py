"""ASYNC-2 to ASYNC-5: what copies hold in flight, and what their ends leave."""

from __future__ import annotations

import pytest
from attrs import evolve

from copy_cases import (
    BACKUP,
    CANCELLED,
    CONFIG,
    DONE,
    FAILED,
    LOAD_BACK,
    backups,
    copy,
    settled,
    state,
)
from kvcanon.spec.config import CANON, Profile, StoreMoment
from kvcanon.spec.events import Event
from kvcanon.spec.operations import Match, Poll
from kvcanon.spec.snapshot import (
    Snapshot,
    TransferState,
)
from kvcanon.spec.transfer import TransferStatus
from kvcanon.spec.types import (
    CPU,
    FULL,
    MAMBA,
    SWA,
    Component,
    NodeId,
    Slot,
    TransferId,
    WritePolicy,
    make_key,
)
from states import node, on
from telling import ask, step, stores

MATCH = Match(make_key([1], 1))


def test_every_end_gives_back_holds() -> None:
    """Copies hold a receipt from enqueue to settlement, cancelled ones too."""
    assert ask("ASYNC-2", step(backups(), MATCH, backups(8, 9))) == []
    assert ask("ASYNC-2", step(backups(8, 9), Poll(), backups(done=(8, 9)))) == []
    assert ask("ASYNC-2", step(backups(8, 9), Poll(), backups(8, cancelled=(9,)))) == []


def test_every_end_gives_back_sees_a_receipt_left_open() -> None:
    """A receipt of a settled transfer is reported."""
    before = backups(8)
    after = evolve(backups(done=(8,)), holds=before.holds)
    (said,) = ask("ASYNC-2", step(before, Poll(), after))
    assert "1 receipts belong to transfer 8, which is not in flight" in said


def test_every_end_gives_back_sees_a_copy_that_holds_nothing() -> None:
    """A transfer in flight without a receipt, or with two, is reported."""
    there = backups(8)
    (said,) = ask("ASYNC-2", step(there, MATCH, evolve(there, holds=())))
    assert "transfer 8 is in flight and has 0 receipts" in said
    (said,) = ask("ASYNC-2", step(there, MATCH, evolve(there, holds=there.holds * 2)))
    assert "has 2 receipts" in said


def test_every_end_gives_back_sees_a_node_that_still_waits() -> None:
    """A node that waits for a settled transfer is reported."""
    before = backups(8)
    after = evolve(before, transfers=(), holds=())
    (said,) = ask("ASYNC-2", step(before, Poll(), after))
    assert "node 1 (tokens 0..2) still waits for its full data" in said


def cut_in_flight(*parts: tuple[NodeId, Component]) -> Snapshot:
    """Node 1 was loaded back with all its data, and cut: node 2 is its upper part."""
    transfer = TransferState(
        9,
        LOAD_BACK,
        parts,
        {FULL: (0, 1, 2), SWA: (0, 1, 2), MAMBA: (0,)},
        {FULL: (5, 6, 7), SWA: (8, 9, 10), MAMBA: (3,)},
    )
    upper = node(
        2, 0, [1], full=on((5,), (0,), loading=9), swa=on((8,), (0,), loading=9), mamba=on()
    )
    lower = node(
        1,
        2,
        [2, 3],
        full=on((6, 7), (1, 2), loading=9),
        swa=on((9, 10), (1, 2), loading=9),
        mamba=on((3,), (0,), loading=9),
    )
    return state(upper, lower, transfers=(transfer,))


def test_parts_share_the_copy_holds_across_a_cut() -> None:
    """A copy names both parts, the upper first; the mamba state stays below."""
    by_node = ((2, FULL), (2, SWA), (1, FULL), (1, SWA), (1, MAMBA))
    by_component = ((2, FULL), (1, FULL), (2, SWA), (1, SWA), (1, MAMBA))
    assert ask("ASYNC-3", cut_in_flight(*by_node)) == []
    assert ask("ASYNC-3", cut_in_flight(*by_component)) == []
    assert ask("ASYNC-3", backups(8, 9)) == []
    assert ask("ASYNC-3", backups(8, cancelled=(9,))) == []


def test_parts_share_the_copy_sees_a_part_left_out() -> None:
    """A part of a cut node that the copy does not name is reported (sgl#16946)."""
    said = ask("ASYNC-3", cut_in_flight((1, FULL), (2, SWA), (1, SWA), (1, MAMBA)))
    assert "transfer 9 fills full slots [5, 6, 7], and the nodes that it names own [6, 7]" in said
    assert any("node 2 (tokens 0..1) waits" in s and "does not name its full" in s for s in said)


def test_parts_share_the_copy_sees_the_lower_part_first() -> None:
    """A copy that names the lower part first is reported."""
    said = ask("ASYNC-3", cut_in_flight((1, FULL), (2, FULL), (2, SWA), (1, SWA), (1, MAMBA)))
    assert "transfer 9 names node 2 (tokens 0..1) after one below it" in said


def test_parts_share_the_copy_sees_a_node_that_does_not_wait() -> None:
    """A named node that does not wait, or is not in the tree, is reported."""
    there = backups(8)
    idle = evolve(backups(done=(8,)), transfers=there.transfers)
    (said,) = ask("ASYNC-3", idle)
    assert "names the full data of node 1 (tokens 0..2), which does not wait for it" in said
    gone = evolve(state(), transfers=there.transfers)
    assert any("names node 1, which is not in the tree" in s for s in ask("ASYNC-3", gone))


def test_parts_share_the_copy_of_a_load_that_is_of_use_at_once() -> None:
    """By profile, no node waits for a load-back that can be used at once."""
    named: dict[Component, tuple[Slot, ...]] = {FULL: (5,)}
    load = TransferState(9, LOAD_BACK, ((1, FULL),), {FULL: (0,)}, named)
    there = state(node(1, 0, [1], full=on((5,), (0,))), transfers=(load,))
    assert ask("ASYNC-3", there) != []
    early = Profile(load_back_usable=StoreMoment.ENQUEUED)
    assert ask("ASYNC-3", evolve(there, profile=early)) == []
    idle = backups(done=(8,))
    waiting = evolve(idle, transfers=backups(8).transfers, profile=early)
    assert ask("ASYNC-3", waiting) != []


def test_parts_share_the_copy_sees_a_node_that_waits_for_nothing() -> None:
    """A node that waits for no copy in flight, or for a cancelled one, is reported."""
    there = backups(8)
    for transfers in ((), (evolve(there.transfers[0], cancelled=True),)):
        (said,) = ask("ASYNC-3", evolve(there, transfers=transfers))
        assert "node 1 (tokens 0..2) waits for transfer 8 on CPU_PINNED" in said
        assert "no such copy is in flight" in said


def test_done_is_announced_holds() -> None:
    """Copied data that is there and stored, parents first, holds."""
    before, after = backups(8, 9), backups(done=(8, 9))
    events: tuple[Event, ...] = (*stores(after, 1, CPU), *stores(after, 2, CPU))
    outcome = settled((8, DONE), (9, DONE))
    assert ask("ASYNC-4", step(before, Poll(), after, outcome, events)) == []
    assert ask("ASYNC-4", step(before, Poll(), before, settled())) == []


def test_done_is_announced_sees_a_part_unsaid() -> None:
    """A part of a node that was cut in flight without a store is reported (sgl#16946)."""
    before, after = backups(8), backups(done=(8,))
    events = stores(after, 1, CPU)
    (said,) = ask("ASYNC-4", step(before, Poll(), after, settled((8, DONE)), events[1:]))
    assert "transfer 8 brought 2 pages to CPU_PINNED; no store was emitted for" in said
    assert events[0].block_hash.hex()[:8] in said
    (said,) = ask("ASYNC-4", step(before, Poll(), after, settled((8, DONE)), events[::-1]))
    assert "stores are out of order" in said


def test_done_is_announced_whatever_nodes_are_joined() -> None:
    """A cache may join nodes when their copies have settled."""
    before = backups(8, 9)
    joined = state(node(2, 0, [1, 2, 3], full=on((0, 1, 2), (0, 1, 2))))
    told = stores(joined, 2, CPU)
    ended = settled((8, DONE), (9, DONE))
    assert ask("ASYNC-4", step(before, Poll(), joined, ended, told)) == []
    assert ask("ASYNC-4", step(before, Poll(), joined, ended, told[:2])) != []


@pytest.mark.parametrize(
    ("profile", "broken"),
    [(CANON, True), (Profile(load_back_announced=StoreMoment.ENQUEUED), False)],
)
def test_done_is_announced_follows_the_profile(profile: Profile, broken: bool) -> None:
    """By profile, a load-back emits its stores at the enqueue and not again when done."""
    load = copy(9, LOAD_BACK, (5,), (4,), 1)
    before = evolve(state(node(1, 0, [1], full=on((4,), (5,), loading=9)), transfers=(load,)))
    after = evolve(state(node(1, 0, [1], full=on((4,), (5,)))), profile=profile)
    assert bool(ask("ASYNC-4", step(before, Poll(), after, settled((9, DONE))))) is broken


def test_done_is_announced_asks_for_no_events_where_they_are_off() -> None:
    """A cache without events emits no stores."""
    mute = evolve(CONFIG, events=False)
    before, after = (evolve(each, config=mute) for each in (backups(8), backups(done=(8,))))
    assert ask("ASYNC-4", step(before, Poll(), after, settled((8, DONE)))) == []


def test_failure_leaves_nothing_holds() -> None:
    """A failed copy frees its slots at once; what builds on it is cancelled, then freed."""
    before, middle, after = backups(8, 9), backups(cancelled=(9,)), backups()
    assert ask("ASYNC-5", step(before, Poll(), middle, settled((8, FAILED)))) == []
    assert ask("ASYNC-5", step(middle, Poll(), after, settled((9, CANCELLED)))) == []
    both = settled((8, FAILED), (9, CANCELLED))
    assert ask("ASYNC-5", step(before, Poll(), after, both)) == []
    below = backups(8, done=())
    assert ask("ASYNC-5", step(before, Poll(), below, settled((9, FAILED)))) == []


def test_failure_leaves_nothing_sees_slots_lost() -> None:
    """Target slots of a failed copy that do not become free are reported."""
    before, after = backups(8), backups()
    pools = {**after.pools, (FULL, CPU): evolve(after.pools[FULL, CPU], free=(0, 2))}
    (said,) = ask("ASYNC-5", step(before, Poll(), evolve(after, pools=pools), settled((8, FAILED))))
    assert "transfer 8 failed, and its full slots [1] on CPU_PINNED did not come free" in said


def test_failure_leaves_nothing_sees_a_node_that_keeps_them() -> None:
    """A node that keeps the slots of a failed backup is reported (sgl#27108)."""
    said = ask("ASYNC-5", step(backups(8), Poll(), backups(done=(8,)), settled((8, FAILED))))
    assert "transfer 8 failed, and node 1 (tokens 0..2) has its full slots on CPU_PINNED" in said


@pytest.mark.parametrize(
    ("after", "ends"),
    [
        (backups(9), ((8, FAILED),)),
        (backups(done=(9,)), ((8, FAILED), (9, DONE))),
        (backups(), ((8, FAILED), (9, FAILED))),
    ],
    ids=["goes on", "done", "failed"],
)
def test_failure_leaves_nothing_sees_a_child_go_on(
    after: Snapshot, ends: tuple[tuple[TransferId, TransferStatus], ...]
) -> None:
    """A child's copy that is not cancelled with its parent's is reported, however it ends."""
    said = ask("ASYNC-5", step(backups(8, 9), Poll(), after, settled(*ends)))
    assert "transfer 8 failed, and transfer 9, which builds on it, was not cancelled" in said


def test_failure_leaves_nothing_lets_write_back_children_go_on() -> None:
    """Under write_back a child's backup does not build on its parent's."""
    config = evolve(CONFIG, write_policy=WritePolicy.WRITE_BACK)
    before, after = (evolve(each, config=config) for each in (backups(8, 9), backups(9)))
    assert ask("ASYNC-5", step(before, Poll(), after, settled((8, FAILED)))) == []


def test_failure_leaves_nothing_lets_neighbours_go_on() -> None:
    """A copy elsewhere, above it, or in the other direction does not build on a failed one."""
    nodes = (
        node(1, 0, [1], full=on((0,), (0,), backing=7)),
        node(2, 1, [2], full=on((1,), (1,), backing=8)),
        node(3, 0, [3], full=on((2,), (2,), backing=9)),
        node(4, 2, [4], full=on((3,), (3,), loading=10)),
    )
    seven, eight = copy(7, BACKUP, (0,), (0,), 1), copy(8, BACKUP, (1,), (1,), 2)
    nine, ten = copy(9, BACKUP, (2,), (2,), 3), copy(10, LOAD_BACK, (3,), (3,), 4)
    before = state(*nodes, transfers=(eight, seven, nine, ten))
    forgot = evolve(nodes[1], data={FULL: on((1,))})
    after = state(nodes[0], forgot, *nodes[2:], transfers=(seven, nine, ten))
    assert ask("ASYNC-5", step(before, Poll(), after, settled((8, FAILED)))) == []


def test_failure_leaves_nothing_sees_window_data_that_builds_on_it() -> None:
    """A copy of window data builds on that of its page's full data."""
    loading = node(1, 0, [1], full=on((0,), (0,), loading=8), swa=on((0,), (0,), loading=9))
    eight = copy(8, LOAD_BACK, (0,), (0,), 1)
    nine = copy(9, LOAD_BACK, (0,), (0,), 1, component=SWA)
    before = state(loading, transfers=(eight, nine))
    after = state(
        node(1, 0, [1], full=on(None, (0,)), swa=on((0,), (0,), loading=9)), transfers=(nine,)
    )
    (said,) = ask("ASYNC-5", step(before, Poll(), after, settled((8, FAILED))))
    assert "transfer 9, which builds on it, was not cancelled" in said
    # The other way round nothing is lost that the first needs.
    nine_first = state(loading, transfers=(nine, eight))
    after = state(
        node(1, 0, [1], full=on((0,), (0,), loading=8), swa=on(None, (0,))), transfers=(eight,)
    )
    assert ask("ASYNC-5", step(nine_first, Poll(), after, settled((9, FAILED)))) == []


@pytest.mark.parametrize("status", [DONE, FAILED])
def test_failure_leaves_nothing_sees_a_cancelled_copy_end_otherwise(
    status: TransferStatus,
) -> None:
    """A cancelled copy that is reported as done or failed is reported."""
    said = ask("ASYNC-5", step(backups(cancelled=(9,)), Poll(), backups(), settled((9, status))))
    assert f"transfer 9 was cancelled and is reported as {status}" in said
