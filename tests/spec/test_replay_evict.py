"""Replays of evictions: the victims on the device and on the host, and the most slots to free."""

from __future__ import annotations

from functools import partial

import pytest
from attrs import evolve

from kvcanon.spec.config import CANON, Profile
from kvcanon.spec.replay.board import Board, board_of
from kvcanon.spec.replay.device import evict_device
from kvcanon.spec.replay.evictable import could_be_free, evictable_slots
from kvcanon.spec.replay.host import HostChoices, ensure_host_slots, evict_host
from kvcanon.spec.snapshot import NodeState
from kvcanon.spec.types import CPU, FULL, GPU, MAMBA, SWA, Component, Counts, Medium
from states import ROOT, node, on, state_of
from states.boards import (
    BACK,
    COLD,
    CONFIG,
    EXPECTED,
    IN_VAIN,
    OTHER,
    STATE,
    TIP,
    TOP,
    Pages,
    config,
    is_of,
    no_page,
    piece_of,
    there,
)

# The device.


def evicted(
    counts: Counts, *nodes: NodeState, write: str = "write_through", profile: Profile = CANON
) -> Board:
    """The board after an eviction of whole victims."""
    board = board_of(evolve(state_of(config(write), *nodes), profile=profile))
    evict_device(board, counts, no_page, IN_VAIN)
    return board


def test_leaves_leave_until_there_is_room() -> None:
    """Whole leaves leave by rank, and no more than are needed."""
    nodes = (TOP, TIP, OTHER)
    assert there(evicted(Counts(), *nodes)) == {(1, 0), (1, 1), (2, 2), (3, 0)}
    assert there(evicted(Counts(1), *nodes)) == {(1, 0), (1, 1), (2, 2)}
    assert there(evicted(Counts(2), *nodes)) == {(1, 0), (1, 1)}
    assert there(evicted(Counts(3), *nodes)) == set()


def test_a_leaf_with_a_host_copy_is_demoted() -> None:
    """A leaf with a host copy stays in the tree, and one without is removed."""
    board = evicted(Counts(4), TOP, TIP)
    assert there(board, FULL, CPU) == {(1, 0), (1, 1)}
    assert board.root.children == board.pieces[1]
    assert piece_of(board, 1).children == []
    assert there(board, MAMBA) == set()


def test_only_the_end_of_the_last_victim_may_leave() -> None:
    """A victim may leave in part only if that part is enough."""
    state = state_of(CONFIG, node(1, ROOT, [1, 2, 3, 4], full=on(range(4))), OTHER)

    def left(count: int, kept: int) -> Pages:
        board = board_of(state)
        evict_device(
            board, Counts(count), lambda piece, _: kept if piece.node_id == 1 else 0, IN_VAIN
        )
        return there(board)

    assert left(2, 2) == {(1, 0), (1, 1), (3, 0)}
    # Three are needed: to keep two is not to be chosen.
    assert left(3, 2) == {(3, 0)}
    # The victim before the last leaves whole.
    assert left(5, 2) == set()


def test_window_data_leaves_by_its_last_use() -> None:
    """Unlocked window data leaves in LRU order, with its mamba state, without full data."""
    board = evicted(Counts(swa=2), TOP, TIP, OTHER)
    assert there(board, SWA) == {(2, 2), (3, 0)}
    assert there(board, MAMBA) == {(2, 2)}
    assert there(board) == {(1, 0), (1, 1), (2, 2), (3, 0)}
    # A leaf leaves as a whole.
    board = evicted(Counts(swa=3), TOP, TIP, OTHER)
    assert there(board) == {(1, 0), (1, 1), (2, 2)}
    held = evolve(TOP, data={**TOP.data, SWA: on([0, 1], lock_refs=1), FULL: on([0, 1])})
    assert there(evicted(Counts(swa=1), held, TIP, OTHER), SWA) == {(1, 0), (1, 1), (2, 2)}


def test_states_leave_alone() -> None:
    """A mamba state leaves without its window, and its node stays."""
    board = evicted(Counts(mamba=1), TOP, TIP)
    assert there(board, MAMBA) == {(2, 2)}
    assert there(board, SWA) == {(1, 0), (1, 1), (2, 2)}


def test_what_one_component_frees_counts_for_the_next() -> None:
    """Window slots that a leaf freed count, and no more window data leaves."""
    board = evicted(Counts(1, 1, 0), TOP, TIP, OTHER)
    assert there(board, SWA) == {(1, 0), (1, 1), (2, 2)}
    board = evicted(Counts(1, 2, 0), TOP, TIP, OTHER)
    assert there(board, SWA) == {(2, 2)}


def test_a_bare_tombstone_goes_along_where_that_is_declared() -> None:
    """A tombstone leaves with its last child only if the profile says so."""
    bare, declared = evolve(TOP, data={FULL: on([0, 1])}), Profile(uncovered_tombstones_stay=False)
    assert there(evicted(Counts(1), bare, TIP)) == {(1, 0), (1, 1)}
    assert there(evicted(Counts(1), bare, TIP, profile=declared)) == set()
    assert there(evicted(Counts(1), TOP, TIP, profile=declared)) == {(1, 0), (1, 1)}


def test_under_write_back_victims_are_copied_first() -> None:
    """Under write_back leaves, and window data inside the tree, are copied to the host."""
    board = evicted(Counts(1), TOP, TIP, OTHER, write="write_back")
    assert (3, 0) in there(board, FULL, CPU)
    assert (3, 0) in there(board, SWA, CPU)
    board = evicted(Counts(swa=2), TOP, TIP, write="write_back")
    assert there(board, SWA, CPU) == {(1, 0), (1, 1)}
    assert there(board, MAMBA, CPU) == {(1, 1)}


def test_what_finds_no_room_takes_what_hangs_below_it_along() -> None:
    """A leaf that cannot be copied leaves together with the host pieces below it."""
    above = node(1, ROOT, [1, 2], full=on([0, 1]), last_access=1)
    below = node(2, 1, [3], full=on(None, [0]), last_access=2)
    held = node(3, ROOT, [4], full=on(None, [1], lock_refs=1))
    state = state_of(config("write_back", host=Counts(2)), above, below, held)
    for choices in (EXPECTED, IN_VAIN):
        board = board_of(state)
        evict_device(board, Counts(1), no_page, choices)
        assert there(board) == set()
        assert there(board, FULL, CPU) == {(3, 0)}
        assert board.root.children == [piece_of(board, 3)]


# The host.


def host_evicted(counts: Counts, *nodes: NodeState, write: str = "write_through") -> Board:
    """The board after an eviction from the host."""
    board = board_of(state_of(config(write), *nodes))
    evict_host(board, counts, IN_VAIN)
    return board


CHAIN = (
    node(5, ROOT, [5], full=on(None, [5]), swa=on(None, [5]), last_access=1),
    node(6, 5, [6], full=on(None, [6]), swa=on(None, [6]), mamba=on(None, [1]), last_access=2),
)


def test_host_leaves_leave_with_their_nodes() -> None:
    """Host leaves leave before their parents; pieces on the device stay."""
    board = host_evicted(Counts(1), TOP, COLD, *CHAIN)
    assert there(board, FULL, CPU) == {(1, 0), (1, 1), (4, 0), (5, 0)}
    assert piece_of(board, 5).children == []
    board = host_evicted(Counts(9), TOP, COLD, *CHAIN)
    assert there(board, FULL, CPU) == {(1, 0), (1, 1)}


def test_under_write_back_duplicates_leave_the_host_first() -> None:
    """Under write_back duplicates leave the host first, and stay on the device."""
    board = host_evicted(Counts(1), TOP, COLD, write="write_back")
    assert there(board, FULL, CPU) == {(4, 0)}
    assert there(board) == {(1, 0), (1, 1)}


def test_the_duplicate_that_left_is_the_one_that_is_chosen() -> None:
    """The replay evicts the duplicate that the cache evicted."""
    both = [node(n, ROOT, [n], full=on([n], [n])) for n in (1, 2, 3)]
    for gone in (1, 2, 3):
        board = board_of(state_of(BACK, *both))
        choices = HostChoices(partial(is_of, gone), tries_in_vain=True)
        evict_host(board, Counts(1), choices)
        assert {n for n, _ in there(board, FULL, CPU)} == {1, 2, 3} - {gone}


def test_window_data_leaves_the_host_where_it_is_nowhere_else() -> None:
    """Window data leaves the host only if it is not on the device; inner nodes stay."""
    board = host_evicted(Counts(swa=1), *CHAIN, COLD)
    assert there(board, SWA, CPU) == {(4, 0), (6, 1)}
    assert (5, 0) in there(board, FULL, CPU)
    # A host leaf leaves whole.
    board = host_evicted(Counts(swa=2), *CHAIN, COLD)
    assert there(board, FULL, CPU) == {(4, 0), (5, 0)}
    both = evolve(TOP, data={FULL: on([0, 1], [0, 1]), SWA: on([0, 1], [0, 1])})
    assert there(host_evicted(Counts(swa=1), both), SWA, CPU) == {(1, 0), (1, 1)}


def test_state_may_leave_the_host_with_its_window_data() -> None:
    """Both are allowed by EVICT-3; another node's state stays."""
    inner = evolve(CHAIN[0], data={**CHAIN[0].data, MAMBA: on(None, [3])})
    # The tip is on the device, so that its window data has no turn.
    tip = node(6, 5, [6], full=on(None, [6]), swa=on([9], [6]), mamba=on(None, [1]), last_access=2)
    for leaves in (False, True):
        board = board_of(state_of(config(), inner, tip, COLD))
        gone = HostChoices(partial(is_of, 5), tries_in_vain=True)
        evict_host(board, Counts(swa=1), gone if leaves else IN_VAIN)
        assert (5, 0) not in there(board, SWA, CPU)
        assert there(board, MAMBA, CPU) == {(6, 1)} | (set() if leaves else {(5, 0)})


def test_host_slots_are_freed_where_they_are_short() -> None:
    """Host slots are freed only if they are short, and the result says whether they are free."""
    bare = [evolve(each, data={FULL: on(None, [n])}) for n, each in enumerate((CHAIN[0], COLD))]
    board = board_of(state_of(config(host=Counts(2, 2)), *bare))
    assert ensure_host_slots(board, Counts(0, 2), IN_VAIN)
    assert there(board, FULL, CPU) == {(4, 0), (5, 0)}
    assert ensure_host_slots(board, Counts(1), IN_VAIN)
    assert there(board, FULL, CPU) == {(4, 0)}
    assert not ensure_host_slots(board, Counts(3), EXPECTED)
    assert there(board, FULL, CPU) == {(4, 0)}
    assert not ensure_host_slots(board, Counts(3), IN_VAIN)
    assert there(board, FULL, CPU) == set()


def test_no_later_pool_is_emptied_where_one_stays_short() -> None:
    """Window data stays where full slots stay short; full data leaves before that is known."""
    inner = node(5, ROOT, [5], full=on(None, [0], lock_refs=1), swa=on(None, [0]), last_access=1)
    tip = node(6, 5, [6], full=on(None, [1], lock_refs=1), last_access=2)
    free = evolve(COLD, data={FULL: on(None, [2])})
    board = board_of(state_of(config(host=Counts(3, 1)), inner, tip, free))
    assert not ensure_host_slots(board, Counts(2, 1), IN_VAIN)
    assert there(board, FULL, CPU) == {(5, 0), (6, 1)}
    assert there(board, SWA, CPU) == {(5, 0)}
    assert ensure_host_slots(board, Counts(1, 1), IN_VAIN)
    assert there(board, SWA, CPU) == set()


# Evictable slots.


@pytest.mark.parametrize(
    ("component", "medium", "count"),
    [(FULL, GPU, 4), (SWA, GPU, 4), (MAMBA, GPU, 2), (FULL, CPU, 1), (SWA, CPU, 1)],
)
def test_evictable_is_what_could_leave(component: Component, medium: Medium, count: int) -> None:
    """Locked pieces, pieces above them, and duplicates are not counted as evictable."""
    board = board_of(STATE)
    assert evictable_slots(board, component, medium) == count
    free = board.free[component, medium]
    assert could_be_free(board, Counts(**{component.value: free + count}), medium)
    assert not could_be_free(board, Counts(**{component.value: free + count + 1}), medium)


def test_what_is_above_a_lock_cannot_leave() -> None:
    """A locked child keeps its parent; a locked window keeps only its own window data."""
    board = board_of(STATE)
    piece_of(board, 2).locked |= {FULL, SWA}
    assert evictable_slots(board, FULL, GPU) == 1
    assert evictable_slots(board, SWA, GPU) == 3
    board = board_of(state_of(BACK, TOP, COLD))
    assert evictable_slots(board, FULL, CPU) == 3
    piece_of(board, 1).locked.add(FULL)
    assert evictable_slots(board, FULL, CPU) == 1
