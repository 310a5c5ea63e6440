"""DATA: each law on a case where it holds, and on cases where a slot has the wrong bytes."""

from __future__ import annotations

import pytest
from attrs import evolve

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.operations import Match
from kvcanon.spec.snapshot import Pool, Snapshot, TransferState
from kvcanon.spec.transfer import Direction
from kvcanon.spec.types import CPU, FULL, GPU, SWA, Component, Counts, Medium, Slot, make_key
from kvcanon.spec.views import Stamp
from states import node, on, state_of
from telling import ask, step

POOLS = Counts(full=8, swa=8)
CONFIG = CacheConfig(
    device_slots=POOLS, host_slots=POOLS, write_policy="write_through", window_tokens=1
)
MATCH = Match(make_key([1, 2], 1))


def copying(
    *,
    sources: tuple[Slot, ...] = (0, 1),
    targets: tuple[Slot, ...] = (4, 5),
    cancelled: bool = False,
    component: Component = FULL,
) -> Snapshot:
    """A backup in flight of node 1: device slots 0 and 1 to host slots 4 and 5."""
    transfer = TransferState(
        9,
        Direction.BACKUP,
        ((1, component),),
        {component: sources},
        {component: targets},
        cancelled,
    )
    leaf = node(1, 0, [1, 2], full=on((0, 1), (4, 5), backing=9), swa=on((2, 3)))
    if cancelled:
        leaf = evolve(leaf, data={FULL: on((0, 1)), SWA: on((2, 3))})
    return state_of(CONFIG, leaf, transfers=(transfer,))


def with_pool(
    state: Snapshot, pool: Pool, *, free: tuple[Slot, ...] = (), held: tuple[Slot, ...] = ()
) -> Snapshot:
    """A state in which one pool has these slots."""
    pools = {**state.pools, pool: evolve(state.pools[pool], free=free, held=frozenset(held))}
    return evolve(state, pools=pools)


# DATA-1.


def test_bytes_are_the_pages_holds() -> None:
    """Bytes that are read as they were written hold."""
    state = state_of(CONFIG)
    stamp = Stamp(FULL, 0, 4, b"page", b"page")
    assert ask("DATA-1", evolve(step(state, MATCH, state), stamps=(stamp,))) == []
    assert ask("DATA-1", step(state, MATCH, state)) == []


def test_bytes_are_the_pages_sees_other_bytes() -> None:
    """Another page's bytes are reported with the slot that they are in."""
    state = state_of(CONFIG)
    stamps = (Stamp(FULL, 0, 4, b"a", b"a"), Stamp(SWA, 1, 5, b"\x01" * 20, b""))
    (said,) = ask("DATA-1", evolve(step(state, MATCH, state), stamps=stamps))
    assert "page 1 of the key is in swa slot 5" in said
    assert "nothing" in said
    assert "01010101010101010101010101010101..." in said


# DATA-2.


def test_copy_slots_untouched_holds() -> None:
    """A copy that has its slots to itself holds."""
    assert ask("DATA-2", copying()) == []
    assert ask("DATA-2", state_of(CONFIG)) == []


@pytest.mark.parametrize(
    ("medium", "slot", "verb"), [(CPU, 4, "writes to"), (GPU, 1, "reads from")]
)
def test_copy_slots_untouched_sees_free_slots(medium: Medium, slot: Slot, verb: str) -> None:
    """Free slots that a copy reads or writes are reported (sgl#27444)."""
    (said,) = ask("DATA-2", with_pool(copying(), (FULL, medium), free=(slot, 7)))
    assert f"transfer 9 {verb} full slot {slot} on {medium}, which is in the free list" in said


def test_copy_slots_untouched_sees_held_slots() -> None:
    """Slots of a request that a copy reads or writes are reported."""
    (said,) = ask("DATA-2", with_pool(copying(), (FULL, GPU), held=(0,)))
    assert "reads from full slot 0 on GPU, which a request holds" in said


def test_copy_slots_untouched_sees_two_copies_into_one_slot() -> None:
    """Two copies that write one slot, or one that writes it twice, are reported."""
    state = copying()
    again = evolve(state.transfers[0], transfer_id=10)
    said = ask("DATA-2", evolve(state, transfers=(state.transfers[0], again)))
    assert said == [
        "full slot 4 on CPU_PINNED is the target of 2 copies in flight",
        "full slot 5 on CPU_PINNED is the target of 2 copies in flight",
    ]


@pytest.mark.parametrize("sources", [(1, 0), (0,), (0, 3)])
def test_copy_slots_untouched_sees_foreign_sources(sources: tuple[Slot, ...]) -> None:
    """A copy that reads other slots than those of its nodes, in order, is reported."""
    said = ask("DATA-2", copying(sources=sources))
    assert any("the nodes that it copies have device slots [0, 1]" in each for each in said)


def test_copy_slots_untouched_follows_a_cut() -> None:
    """A node that was cut shares its source slots with its upper part."""
    transfer = TransferState(
        9, Direction.LOAD_BACK, ((2, FULL), (1, FULL)), {FULL: (4, 5)}, {FULL: (0, 1)}
    )
    nodes = (
        node(2, 0, [1], full=on((0,), (4,), loading=9)),
        node(1, 2, [2], full=on((1,), (5,), loading=9)),
    )
    assert ask("DATA-2", state_of(CONFIG, *nodes, transfers=(transfer,))) == []
    swapped = evolve(transfer, parts=transfer.parts[::-1])
    (said,) = ask("DATA-2", state_of(CONFIG, *nodes, transfers=(swapped,)))
    assert "have host slots [5, 4]" in said


def test_copy_slots_untouched_lets_go_of_what_a_cancelled_copy_reads() -> None:
    """Slots that a cancelled copy reads may have any owner; those that it writes may not."""
    state = copying(cancelled=True)
    assert ask("DATA-2", with_pool(state, (FULL, GPU), free=(0, 1))) == []
    assert ask("DATA-2", with_pool(state, (FULL, CPU), free=(4,)))
