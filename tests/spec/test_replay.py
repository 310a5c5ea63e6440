"""The board of replays, and its comparison with a step."""

from __future__ import annotations

import pytest
from attrs import evolve

from kvcanon.spec.config import Profile
from kvcanon.spec.operations import EvictHost
from kvcanon.spec.replay.board import (
    LeafQueue,
    board_of,
    cut_at,
    is_device_leaf,
    is_duplicate,
    is_host_leaf,
)
from kvcanon.spec.replay.compare import ObservedChanges, PageData, discrepancies, expected_changes
from kvcanon.spec.types import CPU, FULL, GPU, MAMBA, SWA, Counts, NodeId
from states import ROOT, node, on, state_of
from states.boards import BACK, COLD, CONFIG, OTHER, STATE, TIP, TOP, config, piece_of, there
from states.judging import step

# The board.


def test_board_has_what_the_state_has() -> None:
    """Each piece has the data, the place and the rank of its node."""
    board = board_of(STATE)
    assert there(board) == {(1, 0), (1, 1), (2, 2), (3, 0)}
    assert there(board, FULL, CPU) == {(1, 0), (1, 1), (4, 0)}
    assert there(board, MAMBA) == {(1, 1), (2, 2)}
    assert piece_of(board, 2).parent is piece_of(board, 1)
    assert [board.rank(piece_of(board, each)) for each in (1, 2, 3, 4)] == [
        (0, 1),
        (0, 20),
        (0, 10),
        (0, 5),
    ]
    assert board.free_slot_counts(GPU) == Counts(12, 12, 2)
    assert board.free_slot_counts(CPU) == Counts(13, 15, 4)
    assert expected_changes(board, (GPU, CPU)) == {}


def test_ranks_are_those_of_the_policy() -> None:
    """Pieces are ranked by the eviction policy."""
    board = board_of(state_of(config(lru=False), TOP, OTHER))
    assert sorted(board.rank(piece) for piece in board.every()) == [(0, -10), (0, -1)]


def test_cut_leaves_the_state_at_the_end() -> None:
    """A cut keeps the mamba state at the end, all pages, and the number of free slots."""
    board = board_of(STATE)
    lower, room = piece_of(board, 1), board.free_slot_counts(GPU)
    upper = board.cut(lower, 1)
    assert [(piece.begin, piece.end) for piece in board.pieces[1]] == [(0, 1), (1, 2)]
    assert (lower.parent, upper.parent) == (upper, board.root)
    assert upper in board.root.children
    assert upper.on == {GPU: {FULL, SWA}, CPU: {FULL}}
    assert MAMBA in lower.on[GPU]
    assert piece_of(board, 2).parent is lower
    assert board.free_slot_counts(GPU) == room
    assert expected_changes(board, (GPU, CPU)) == {}


def test_cut_at_begins_a_piece_where_none_begins() -> None:
    """A cut is made only inside a piece of the path."""
    board, path = board_of(STATE), [TOP, TIP]
    for page, pieces in ((0, 1), (2, 1), (1, 2), (1, 2)):
        cut_at(board, path, page)
        assert len(board.pieces[1]) == pieces


@pytest.mark.parametrize(
    ("node_id", "device", "host"),
    [(1, False, False), (2, True, False), (3, True, False), (4, False, True)],
)
def test_leaves_of_a_medium(node_id: NodeId, *, device: bool, host: bool) -> None:
    """A piece is a device leaf without device children, a host leaf only off the device."""
    piece = piece_of(board_of(STATE), node_id)
    assert is_device_leaf(piece) is device
    assert is_host_leaf(piece) is host
    piece.locked |= {SWA}
    assert not is_device_leaf(piece)
    assert not is_host_leaf(piece)


def test_duplicates_are_whole_unless_declared() -> None:
    """All host data of a duplicate is on the device; by profile its full data is enough."""
    board = board_of(state_of(BACK, TOP, COLD))
    assert sum(is_duplicate(board, piece) for piece in board.every()) == 1
    piece = piece_of(board, 1)
    assert is_duplicate(board, piece)
    piece.on[GPU] -= {SWA}
    piece.on[CPU] |= {SWA}
    assert not is_duplicate(board, piece)
    board.profile = Profile(whole_nodes_on_host=False)
    assert is_duplicate(board, piece)
    piece.locked |= {FULL}
    assert not is_duplicate(board, piece)


def test_turns_come_by_rank_and_to_parents_that_become_leaves() -> None:
    """Leaves come by rank, each once, and a parent after its children."""
    board = board_of(STATE)
    turns = LeafQueue(board, GPU)
    assert turns.next() is piece_of(board, 3)
    second = turns.next()
    assert second is piece_of(board, 2)
    turns.add(second.parent)
    assert turns.next() is None
    board.vacate(second, GPU)
    turns.add(second.parent)
    assert turns.next() is piece_of(board, 1)


def test_data_is_in_the_order_of_its_last_use() -> None:
    """Data without a place comes last; of one node the upper piece comes first."""
    board = board_of(STATE)
    cut_at(board, [TOP], 1)
    assert [(p.node_id, p.begin) for p in board.in_turn(SWA, GPU)] == [
        (1, 0),
        (1, 1),
        (3, 0),
        (2, 2),
    ]
    board.arrive(piece_of(board, 3), SWA, GPU)
    assert board.in_turn(SWA, GPU)[-1] is piece_of(board, 3)
    board = board_of(evolve(STATE, recency={(SWA, GPU): (1, 2)}))
    assert board.in_turn(SWA, GPU)[-1] is piece_of(board, 3)


# The comparison.


def test_changes_are_those_of_pages() -> None:
    """A cut, or data in another slot, is no change; data that came or left is."""
    halves = (
        evolve(TOP, node_id=7, pages=TOP.pages[:1], data={FULL: on([0], [0]), SWA: on([0])}),
        evolve(TOP, parent_id=7, pages=TOP.pages[1:], data={FULL: on([1], [1]), MAMBA: on([0])}),
    )
    tip = evolve(TIP, data={FULL: on([9], [9]), SWA: on([2]), MAMBA: on([1])})
    seen = ObservedChanges(step(STATE, EvictHost(Counts(1)), state_of(CONFIG, *halves, tip, OTHER)))
    assert seen.changes((GPU, CPU)) == {
        PageData(1, 1, SWA, GPU): False,
        PageData(2, 2, FULL, CPU): True,
        PageData(4, 0, FULL, CPU): False,
        PageData(4, 0, SWA, CPU): False,
    }
    assert seen.changes((GPU,)) == {PageData(1, 1, SWA, GPU): False}


def test_what_stays_is_counted_from_the_front() -> None:
    """Only the leading pages that keep their full data count as staying."""
    long = node(1, ROOT, [1, 2, 3], full=on([0, 1, 2]))
    kept = node(1, ROOT, [1], full=on([0]))
    before = state_of(CONFIG, long, OTHER)
    seen = ObservedChanges(step(before, EvictHost(Counts()), state_of(CONFIG, kept, OTHER)))
    board = board_of(before)
    assert seen.stays(piece_of(board, 1)) == 1
    assert seen.stays(piece_of(board, 3)) == 1
    board.cut(piece_of(board, 1), 2)
    assert seen.stays(piece_of(board, 1)) == 0


def test_given_up_is_a_host_copy_that_went_though_another_may_have_come() -> None:
    """A host copy counts as evicted even if a new one was made; a missing one does not."""
    before = state_of(BACK, TOP, TIP)
    moved = evolve(TOP, data={**TOP.data, FULL: on([0, 1], [5, 6])})
    seen = ObservedChanges(step(before, EvictHost(Counts()), state_of(BACK, moved, TIP)))
    board = board_of(before)
    assert seen.gave_up(piece_of(board, 1), FULL)
    assert not seen.gave_up(piece_of(board, 1), SWA)
    assert not seen.gave_up(piece_of(board, 2), FULL)


def test_discrepancies_are_found_node_by_node() -> None:
    """Each node and direction has one sentence for all its pages; agreement has none."""
    observed = step(STATE, EvictHost(Counts()), STATE)
    expected = {
        PageData(1, 0, FULL, GPU): False,
        PageData(1, 1, FULL, GPU): False,
        PageData(2, 2, SWA, CPU): True,
        PageData(3, 0, FULL, GPU): False,
    }
    found = {PageData(3, 0, FULL, GPU): False, PageData(None, 4, FULL, CPU): True}
    assert list(discrepancies(observed, expected, found)) == [
        "full data of pages 0..1 in node 1 (tokens 0..2) should have left GPU, and did not",
        "swa data of page 2 in node 2 (tokens 2..3) should have come to CPU_PINNED, and did not",
        "full data of page 4 in new pages came to CPU_PINNED, and should not have",
    ]
    assert list(discrepancies(observed, expected, expected)) == []
