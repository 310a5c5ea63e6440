"""Replays of evictions: the victims on the device and on the host, and the most slots to free."""

from __future__ import annotations

from functools import partial

import pytest
from attrs import evolve, frozen

from kvcanon.spec.config import CANON, Profile
from kvcanon.spec.replay.board import Board, board_of, could_be_free, evictable_slots
from kvcanon.spec.replay.device import evict_device
from kvcanon.spec.replay.host import HostChoices, ensure_host_slots, evict_host
from kvcanon.spec.snapshot import NodeState
from kvcanon.spec.types import CPU, FULL, GPU, MAMBA, SWA, Component, Counts, Medium
from states import ROOT, having, node, on, state_of
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
    config,
    is_of,
    no_page,
    piece_of,
    see,
)


@frozen
class Evicted:
    """An eviction, and what is left: by component, the node of each page that has it."""

    counts: Counts
    nodes: tuple[NodeState, ...]
    device: str
    host: str | None = None
    write: str = "write_through"
    profile: Profile = CANON
    medium: Medium = GPU

    def replay(self) -> Board:
        """The board after whole victims have left."""
        board = board_of(state_of(config(self.write), *self.nodes, profile=self.profile))
        if self.medium is GPU:
            evict_device(board, self.counts, no_page, IN_VAIN)
        else:
            evict_host(board, self.counts, IN_VAIN)
        return board


ALL, PATH = (TOP, TIP, OTHER), (TOP, TIP)
WINDOW_HELD = having(TOP, swa=on([0, 1], lock_refs=1), full=on([0, 1]))
BARE = evolve(TOP, data={FULL: on([0, 1])})
UNCOVERED = Profile(uncovered_tombstones_stay=False)
CHAIN = (
    node(5, ROOT, [5], full=on(None, [5]), swa=on(None, [5]), last_access=1),
    node(6, 5, [6], full=on(None, [6]), swa=on(None, [6]), mamba=on(None, [1]), last_access=2),
)
BOTH = having(TOP, swa=on([0, 1], [0, 1]))

EVICTED = [
    # Whole leaves leave by rank, and no more than are needed.
    Evicted(Counts(), ALL, "1123 1123 12"),
    Evicted(Counts(1), ALL, "112 112 12"),
    Evicted(Counts(2), ALL, "11 11 1"),
    Evicted(Counts(3), ALL, "- - -"),
    # A leaf with a host copy stays in the tree, and one without is removed.
    Evicted(Counts(4), PATH, "- - -", "11 - -"),
    # Unlocked window data leaves in LRU order, with its mamba state; a leaf leaves as a whole.
    Evicted(Counts(swa=2), ALL, "1123 23 2"),
    Evicted(Counts(swa=3), ALL, "112 2 2"),
    Evicted(Counts(swa=1), (WINDOW_HELD, TIP, OTHER), "112 112 12"),
    # A mamba state leaves without its window, and its node stays.
    Evicted(Counts(mamba=1), PATH, "112 112 2"),
    # Window slots that a leaf freed count, and no more window data leaves.
    Evicted(Counts(1, 1), ALL, "112 112 12"),
    Evicted(Counts(1, 2), ALL, "112 2 2"),
    # A tombstone leaves with its last child only if the profile says so.
    Evicted(Counts(1), (BARE, TIP), "11 - -"),
    Evicted(Counts(1), (BARE, TIP), "- - -", profile=UNCOVERED),
    Evicted(Counts(1), PATH, "11 11 1", profile=UNCOVERED),
    # Under write_back leaves, and window data inside the tree, are copied to the host.
    Evicted(Counts(1), ALL, "112 112 12", "113 3 -", "write_back"),
    Evicted(Counts(swa=2), PATH, "112 2 2", "11 11 1", "write_back"),
    # Host leaves leave before their parents; pieces on the device stay.
    Evicted(Counts(1), (TOP, COLD, *CHAIN), "11 11 1", "1145 45 -", medium=CPU),
    Evicted(Counts(9), (TOP, COLD, *CHAIN), "11 11 1", "11 - -", medium=CPU),
    # Under write_back duplicates leave the host first, and stay on the device.
    Evicted(Counts(1), (TOP, COLD), "11 11 1", "4 4 -", "write_back", medium=CPU),
    # Window data leaves the host only if it is not on the device; a host leaf leaves whole.
    Evicted(Counts(swa=1), (*CHAIN, COLD), "- - -", "456 46 6", medium=CPU),
    Evicted(Counts(swa=2), (*CHAIN, COLD), "- - -", "45 4 -", medium=CPU),
    Evicted(Counts(swa=1), (BOTH,), "11 11 1", "11 11 -", medium=CPU),
]


@pytest.mark.parametrize("evicted", EVICTED)
def test_evictions_leave_what_they_should(evicted: Evicted) -> None:
    """Each replay leaves this data, on the device and on the host."""
    board = evicted.replay()
    assert see(board, GPU) == evicted.device
    assert evicted.host is None or see(board, CPU) == evicted.host


def test_what_has_left_the_tree_is_nobody_s_child() -> None:
    """A piece that is nowhere is removed from its parent's children."""
    board = Evicted(Counts(4), PATH, "").replay()
    assert board.root.children == board.pieces[1]
    assert piece_of(board, 1).children == []
    board = Evicted(Counts(1), (TOP, COLD, *CHAIN), "", medium=CPU).replay()
    assert piece_of(board, 5).children == []


@pytest.mark.parametrize(
    ("count", "left"),
    [
        (2, "113 3 -"),
        # Three are needed: to keep two is not to be chosen.
        (3, "3 3 -"),
        # The victim before the last leaves whole.
        (5, "- - -"),
    ],
)
def test_only_the_end_of_the_last_victim_may_leave(count: int, left: str) -> None:
    """A victim may leave in part only if that part is enough."""
    long = node(1, ROOT, [1, 2, 3, 4], full=on(range(4)))
    board = board_of(state_of(CONFIG, long, OTHER))
    evict_device(board, Counts(count), lambda piece, _: 2 if piece.node_id == 1 else 0, IN_VAIN)
    assert see(board) == left


@pytest.mark.parametrize("choices", [EXPECTED, IN_VAIN])
def test_what_finds_no_room_takes_what_hangs_below_it_along(choices: HostChoices) -> None:
    """A leaf that cannot be copied leaves together with the host pieces below it."""
    above = node(1, ROOT, [1, 2], full=on([0, 1]), last_access=1)
    below = node(2, 1, [3], full=on(None, [0]), last_access=2)
    held = node(3, ROOT, [4], full=on(None, [1], lock_refs=1))
    board = board_of(state_of(config("write_back", host=Counts(2)), above, below, held))
    evict_device(board, Counts(1), no_page, choices)
    assert (see(board), see(board, CPU)) == ("- - -", "3 - -")
    assert board.root.children == [piece_of(board, 3)]


# The host.


@pytest.mark.parametrize("gone", [1, 2, 3])
def test_the_duplicate_that_left_is_the_one_that_is_chosen(gone: int) -> None:
    """The replay evicts the duplicate that the cache evicted."""
    board = board_of(state_of(BACK, *[node(n, ROOT, [n], full=on([n], [n])) for n in (1, 2, 3)]))
    evict_host(board, Counts(1), HostChoices(partial(is_of, gone), tries_in_vain=True))
    assert see(board, CPU) == f"{'123'.replace(str(gone), '')} - -"


@pytest.mark.parametrize("leaves", [False, True])
def test_state_may_leave_the_host_with_its_window_data(*, leaves: bool) -> None:
    """Both are allowed by EVICT-3; another node's state stays."""
    inner = having(CHAIN[0], mamba=on(None, [3]))
    # The tip is on the device, so that its window data has no turn.
    tip = having(CHAIN[1], swa=on([9], [6]))
    board = board_of(state_of(config(), inner, tip, COLD))
    gone = HostChoices(partial(is_of, 5), tries_in_vain=True)
    evict_host(board, Counts(swa=1), gone if leaves else IN_VAIN)
    assert see(board, CPU) == ("456 46 6" if leaves else "456 46 56")


def test_host_slots_are_freed_where_they_are_short() -> None:
    """Host slots are freed only if they are short, and the result says whether they are free."""
    bare = [evolve(each, data={FULL: on(None, [n])}) for n, each in enumerate((CHAIN[0], COLD))]
    board = board_of(state_of(config(host=Counts(2, 2)), *bare))
    for needed, choices, fits, left in (
        (Counts(0, 2), IN_VAIN, True, "45 - -"),
        (Counts(1), IN_VAIN, True, "4 - -"),
        (Counts(3), EXPECTED, False, "4 - -"),
        (Counts(3), IN_VAIN, False, "- - -"),
    ):
        assert ensure_host_slots(board, needed, choices) is fits
        assert see(board, CPU) == left


def test_no_later_pool_is_emptied_where_one_stays_short() -> None:
    """Window data stays where full slots stay short; full data leaves before that is known."""
    inner = node(5, ROOT, [5], full=on(None, [0], lock_refs=1), swa=on(None, [0]), last_access=1)
    tip = node(6, 5, [6], full=on(None, [1], lock_refs=1), last_access=2)
    free = evolve(COLD, data={FULL: on(None, [2])})
    board = board_of(state_of(config(host=Counts(3, 1)), inner, tip, free))
    assert not ensure_host_slots(board, Counts(2, 1), IN_VAIN)
    assert see(board, CPU) == "56 5 -"
    assert ensure_host_slots(board, Counts(1, 1), IN_VAIN)
    assert see(board, CPU) == "56 - -"


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
    needed = Counts(**{component.value: free + count})
    assert could_be_free(board, needed, medium)
    assert not could_be_free(board, Counts(**{component.value: free + count + 1}), medium)


def test_what_is_above_a_lock_cannot_leave() -> None:
    """A locked child keeps its parent; a locked window keeps only its own window data."""
    board = board_of(STATE)
    piece_of(board, 2).locked |= {FULL, SWA}
    assert evictable_slots(board, FULL, GPU) == 1
    assert evictable_slots(board, SWA, GPU) == 3
    board = board_of(state_of(BACK, TOP, COLD))
    assert evictable_slots(board, FULL, CPU) == 3
    piece_of(board, 1).locked |= {FULL}
    assert evictable_slots(board, FULL, CPU) == 1
