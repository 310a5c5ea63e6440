"""The replay of evictions: the board, the victims, and the comparison with a step."""

from __future__ import annotations

from functools import partial

import pytest
from attrs import evolve

from kvcanon.spec.config import CANON, CacheConfig, Profile
from kvcanon.spec.operations import (
    EvictHost,
    HostPayload,
    Insert,
    Inserted,
    InsertHost,
    LoadBack,
    LoadDecision,
    LoadedBack,
)
from kvcanon.spec.replay.backup import due_backups, replay_backups
from kvcanon.spec.replay.board import (
    Board,
    LeafQueue,
    Piece,
    board_of,
    cut_at,
    is_device_leaf,
    is_duplicate,
    is_host_leaf,
)
from kvcanon.spec.replay.compare import ObservedChanges, PageData, discrepancies, expected_changes
from kvcanon.spec.replay.device import evict_device
from kvcanon.spec.replay.evictable import could_be_free, evictable_slots
from kvcanon.spec.replay.host import HostChoices, ensure_host_slots, evict_host
from kvcanon.spec.replay.host_insert import replay_host_insert
from kvcanon.spec.replay.load import hold_path, replay_load
from kvcanon.spec.replay.missing import Load, missing_of
from kvcanon.spec.snapshot import NodeState, Snapshot, TransferState
from kvcanon.spec.transfer import Direction
from kvcanon.spec.types import (
    CPU,
    FULL,
    GPU,
    MAMBA,
    SWA,
    Component,
    Counts,
    EvictionPolicy,
    Medium,
    NodeId,
    Slots,
    make_key,
)
from kvcanon.spec.views import Step
from states import ROOT, node, on, state_of
from telling import step

POOLS = Counts(16, 16, 4)


def config(write: str = "write_through", *, host: Counts = POOLS, lru: bool = True) -> CacheConfig:
    """Every component, a window of two pages and a host tier."""
    return CacheConfig(
        window_tokens=2,
        mamba=True,
        device_slots=POOLS,
        host_slots=host,
        write_policy=write,
        eviction_policy=EvictionPolicy.LRU if lru else EvictionPolicy.MRU,
    )


CONFIG, BACK = config(), config("write_back")
IN_VAIN = HostChoices(lambda *_: False, tries_in_vain=True)
EXPECTED = HostChoices(lambda *_: False, tries_in_vain=False)


def no_page(_: Piece, _short: int) -> int:
    """All pages of every victim left."""
    return 0


def is_of(node_id: NodeId, piece: Piece, _: Component) -> bool:
    """Whether a piece is of a node: whose host copy was evicted."""
    return piece.node_id == node_id


# A path of 2 + 1 pages, a leaf of another prompt, and one that is on the host alone.

TOP = node(1, ROOT, [1, 2], full=on([0, 1], [0, 1]), swa=on([0, 1]), mamba=on([0]), last_access=1)
TIP = node(2, 1, [3], full=on([2]), swa=on([2]), mamba=on([1]), last_access=20)
OTHER = node(3, ROOT, [8], full=on([3]), swa=on([3]), last_access=10)
COLD = node(4, ROOT, [9], full=on(None, [4]), swa=on(None, [4]), last_access=5)
STATE = state_of(CONFIG, TOP, TIP, OTHER, COLD)
Pages = set[tuple[NodeId | None, int]]


def there(board: Board, component: Component = FULL, medium: Medium = GPU) -> Pages:
    """Where a component is on a medium: nodes and pages; a mamba state is at its last page."""
    return {
        (piece.node_id, page)
        for piece in board.every()
        if component in piece.on[medium]
        for page in range(piece.end - 1 if component is MAMBA else piece.begin, piece.end)
    }


def piece_of(board: Board, node_id: NodeId) -> Piece:
    """The last piece of a node."""
    return board.pieces[node_id][-1]


# The board.


def test_board_has_what_the_state_has() -> None:
    """Each piece has the data, the place and the rank of its node."""
    board = board_of(STATE)
    assert there(board) == {(1, 0), (1, 1), (2, 2), (3, 0)}
    assert there(board, FULL, CPU) == {(1, 0), (1, 1), (4, 0)}
    assert there(board, MAMBA) == {(1, 1), (2, 2)}
    assert piece_of(board, 2).parent is piece_of(board, 1)
    assert [piece_of(board, each).rank for each in (1, 2, 3, 4)] == [
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
    assert sorted(piece.rank for piece in board.every()) == [(0, -10), (0, -1)]


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
    piece.locked.add(SWA)
    assert not is_device_leaf(piece)
    assert not is_host_leaf(piece)


def test_duplicates_are_whole_unless_declared() -> None:
    """All host data of a duplicate is on the device; by profile its full data is enough."""
    board = board_of(state_of(BACK, TOP, COLD))
    assert sum(is_duplicate(board, piece) for piece in board.every()) == 1
    piece = piece_of(board, 1)
    assert is_duplicate(board, piece)
    piece.on[GPU].discard(SWA)
    piece.on[CPU].add(SWA)
    assert not is_duplicate(board, piece)
    board.profile = Profile(whole_nodes_on_host=False)
    assert is_duplicate(board, piece)
    piece.locked.add(FULL)
    assert not is_duplicate(board, piece)


def test_turns_come_by_rank_and_to_parents_that_become_leaves() -> None:
    """Leaves come by rank, each once, and a parent after its children."""
    board = board_of(STATE)
    turns = LeafQueue(board, GPU)
    first = turns.next()
    assert first is piece_of(board, 3)
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
    piece_of(board, 3).places.clear()
    assert board.in_turn(SWA, GPU)[-1] is piece_of(board, 3)


# The device.


def evicted(
    asked: Counts, *nodes: NodeState, write: str = "write_through", profile: Profile = CANON
) -> Board:
    """The board after an eviction of whole victims."""
    state = evolve(state_of(config(write), *nodes), profile=profile)
    board = board_of(state)
    evict_device(board, asked, no_page, IN_VAIN)
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
    long = node(1, ROOT, [1, 2, 3, 4], full=on(range(4)))
    state = state_of(CONFIG, long, OTHER)

    def left(asked: int, kept: int) -> Pages:
        board = board_of(state)
        evict_device(
            board, Counts(asked), lambda piece, _: kept if piece.node_id == 1 else 0, IN_VAIN
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


def host_evicted(asked: Counts, *nodes: NodeState, write: str = "write_through") -> Board:
    """The board after an eviction from the host."""
    board = board_of(state_of(config(write), *nodes))
    evict_host(board, asked, IN_VAIN)
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


# The most room that there could be.


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
    piece_of(board, 1).locked.add(FULL)
    assert evictable_slots(board, FULL, CPU) == 1


# Loads.

KEY = make_key([1, 2, 3], 1)
BELOW = node(2, 1, [3], full=on(None, [2]), swa=on(None, [2]), mamba=on(None, [1]))


def load(state: Snapshot, decision: LoadDecision = LoadDecision.ENQUEUED) -> Load:
    """A load of `KEY`."""
    asked = LoadBack(KEY)
    return Load(asked, LoadedBack(decision), missing_of(state, KEY))


def test_a_load_holds_its_path_while_room_is_made() -> None:
    """A load keeps its path and its window; other data may be evicted for it."""
    state = state_of(CONFIG, TOP, BELOW, OTHER)
    board = board_of(state)
    pieces = hold_path(board, state, load(state))
    assert [(piece.begin, piece.end) for piece in pieces] == [(0, 1), (1, 2), (2, 3)]
    assert [sorted(piece.locked) for piece in pieces] == [
        [FULL],
        [FULL, SWA],
        [FULL, MAMBA, SWA],
    ]
    whole = evolve(state, profile=Profile(window_lock_exact=False))
    assert [p.end for p in hold_path(board_of(whole), whole, load(whole))] == [2, 3]


def test_a_load_brings_what_was_missing() -> None:
    """A load copies what is missing, and window data only inside the window."""
    upper = evolve(TOP, data={FULL: on(None, [0, 1]), SWA: on(None, [0, 1])})
    state = state_of(CONFIG, upper, BELOW)
    board = replay_load(state, load(state), no_page, IN_VAIN, evicts=True)
    assert there(board) == {(1, 0), (1, 1), (2, 2)}
    assert there(board, SWA) == {(1, 1), (2, 2)}
    assert there(board, MAMBA) == {(2, 2)}
    assert there(board, FULL, CPU) == {(1, 0), (1, 1), (2, 2)}
    none = load(state, LoadDecision.NO_ROOM)
    assert there(replay_load(state, none, no_page, IN_VAIN, evicts=True)) == set()


def test_a_load_evicts_what_it_is_short_of() -> None:
    """A load evicts only for pools that are short, and not at all if it declines at once."""
    tight = evolve(CONFIG, device_slots=Counts(16, 4, 4))
    state = state_of(tight, TOP, BELOW, OTHER, node(7, ROOT, [7], full=on([5]), swa=on([2])))
    board = replay_load(state, load(state), no_page, IN_VAIN, evicts=True)
    # Of the window of two pages one is there; page 0 of it is the least recent.
    assert there(board, SWA) == {(1, 1), (2, 2), (3, 0), (7, 0)}
    none = load(state, LoadDecision.NO_ROOM)
    declined = replay_load(state, none, no_page, EXPECTED, evicts=False)
    assert expected_changes(declined, (GPU, CPU)) == {}


# Fetched pages.

BYTES = bytes(8)


def fetched(
    *nodes: NodeState, full: int = 4, swa: int = 0, mamba: int = 0, host: Counts = POOLS
) -> Board:
    """The board after a host insert of the last pages of four."""
    key = make_key([1, 2, 3, 4], 1)
    payload = HostPayload((BYTES,) * full, (BYTES,) * swa, (BYTES,) * mamba)
    state = state_of(config(host=host), *nodes)
    return replay_host_insert(state, InsertHost(key, 4 - full, payload), IN_VAIN)


def test_fetched_pages_refill_their_path_and_become_a_leaf() -> None:
    """Pages of the tree get a host copy, and new pages a leaf below them."""
    bare = evolve(TOP, data={FULL: on([0, 1]), SWA: on([0, 1])})
    board = fetched(bare, swa=2, mamba=1)
    assert there(board, FULL, CPU) == {(1, 0), (1, 1), (None, 2), (None, 3)}
    assert there(board, SWA, CPU) == {(None, 2), (None, 3)}
    assert there(board, MAMBA, CPU) == {(None, 3)}
    assert board.new[-1].parent is not None
    assert board.new[-1].parent.node_id in (1, None)


def test_fetched_pages_stop_at_a_gap() -> None:
    """No pages are placed below a piece whose host copy is missing or in flight."""
    bare = evolve(TOP, data={FULL: on([0, 1])})
    assert there(fetched(bare, full=3), FULL, CPU) == set()
    backing = evolve(TOP, data={FULL: on([0, 1], [0, 1], backing=9)})
    assert there(fetched(backing), FULL, CPU) == {(1, 0), (1, 1)}


def test_as_many_fetched_pages_are_placed_as_fit() -> None:
    """A leaf gets as many pages as find a free host slot."""
    held = node(7, ROOT, [7], full=on(None, [3], lock_refs=1))
    room = Counts(4, 4, 4)
    assert there(fetched(TOP, held, host=room), FULL, CPU) == {(1, 0), (1, 1), (None, 2), (7, 0)}
    # The end of the key is not reached, so that its state has no place.
    assert there(fetched(TOP, held, mamba=1, host=room), MAMBA, CPU) == set()
    loose = evolve(held, data={FULL: on(None, [3])})
    assert there(fetched(TOP, loose, host=room), FULL, CPU) == {
        (1, 0),
        (1, 1),
        (None, 2),
        (None, 3),
    }


# Backups.

HIT = (evolve(TOP, hit_count=1), evolve(TIP, hit_count=1))
COPIED = (
    evolve(HIT[0], data={**TOP.data, SWA: on([0, 1], [0, 1]), MAMBA: on([0], [0])}),
    evolve(
        HIT[1],
        data={
            FULL: on([2], [2], backing=9),
            SWA: on([2], [2], backing=9),
            MAMBA: on([1], [1], backing=9),
        },
    ),
)
BACKUP = TransferState(
    9,
    Direction.BACKUP,
    ((2, FULL), (2, SWA), (2, MAMBA)),
    {FULL: (2,), SWA: (2,), MAMBA: (1,)},
    {FULL: (2,), SWA: (2,), MAMBA: (1,)},
)


def inserted(
    before: tuple[NodeState, ...],
    after: tuple[NodeState, ...],
    *transfers: TransferState,
    host: Counts = POOLS,
) -> Step:
    """An insert of `KEY`, all of which is in the tree, that enqueued these backups."""
    chosen = config(host=host)
    outcome = Inserted(3, Counts(), Counts(), tuple(each.transfer_id for each in transfers))
    return step(
        state_of(chosen, *before),
        Insert(KEY, 3, Slots()),
        state_of(chosen, *after, transfers=transfers),
        outcome,
    )


def due(told: Step) -> list[tuple[NodeId, str, bool]]:
    """The backups that an insert must enqueue, and whether it did."""
    return [
        (each.node.node_id, " ".join(each.components), each.done()) for each in due_backups(told)
    ]


def test_what_was_hit_is_due_with_what_is_above_it() -> None:
    """Nodes with enough hits must be backed up, with all nodes above them, root first."""
    bare = tuple([evolve(each, data={FULL: on(each[FULL].device)}) for each in HIT])
    assert due(inserted(bare, bare)) == [(1, "full", False), (2, "full", False)]
    cold = (bare[0], evolve(bare[1], hit_count=0))
    assert due(inserted(cold, cold)) == [(1, "full", False)]
    lower = (evolve(bare[0], hit_count=0), bare[1])
    assert due(inserted(lower, lower)) == [(1, "full", False), (2, "full", False)]
    assert due(inserted((TOP, TIP), (TOP, TIP))) == []


def test_what_was_healed_in_the_window_is_due_behind_the_chain() -> None:
    """Healed window data in reach must be backed up, after the chain."""
    told = inserted(HIT, COPIED, BACKUP)
    # The window is the last two pages; node 1 has one of them.
    assert due(told) == [(2, "full swa mamba", True)]
    told = inserted(HIT, (HIT[0], COPIED[1]), BACKUP)
    assert due(told) == [(2, "full swa mamba", True), (1, "swa mamba", False)]
    far = evolve(CONFIG, window_tokens=1)
    state = state_of(far, HIT[0], COPIED[1], transfers=(BACKUP,))
    assert due(evolve(told, before=state_of(far, *HIT), after=state)) == [
        (2, "full swa mamba", True)
    ]


TIGHT = Counts(3, 4, 2)
"""Room for the path, or for `COLD` and two pages of it."""
EDGE = evolve(COLD, data={FULL: on(None, [2]), SWA: on(None, [3])})


def test_backups_evict_what_is_short_and_in_turn() -> None:
    """An insert evicts from the host exactly what its copies need."""
    told = inserted((*HIT, EDGE), COPIED, BACKUP, host=TIGHT)
    board = replay_backups(told, IN_VAIN)
    assert there(board, FULL, CPU) == {(1, 0), (1, 1), (2, 2)}
    board = replay_backups(inserted((*HIT, EDGE), COPIED, BACKUP), IN_VAIN)
    assert there(board, FULL, CPU) == {(1, 0), (1, 1), (2, 2), (4, 0)}


def test_what_is_declined_may_have_been_tried() -> None:
    """For a backup that cannot fit a cache may evict or not."""
    held = evolve(EDGE, data={FULL: on(None, [2], lock_refs=1)})
    small = Counts(3, 4, 1)
    state = evolve(node(8, ROOT, [7], full=on([9], None)), hit_count=0)
    told = inserted((*HIT, held, state), (*HIT, held, state), host=small)
    assert due(told)[0] == (2, "full swa mamba", False)
    assert there(replay_backups(told, EXPECTED), FULL, CPU) == {(1, 0), (1, 1), (4, 0)}
    loose = inserted((*HIT, EDGE), (*HIT, EDGE), host=Counts(3, 4, 0))
    assert there(replay_backups(loose, EXPECTED), FULL, CPU) == {(1, 0), (1, 1), (4, 0)}
    assert there(replay_backups(loose, IN_VAIN), FULL, CPU) == {(1, 0), (1, 1)}


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
    told = step(STATE, EvictHost(Counts()), STATE)
    expected = {
        PageData(1, 0, FULL, GPU): False,
        PageData(1, 1, FULL, GPU): False,
        PageData(2, 2, SWA, CPU): True,
        PageData(3, 0, FULL, GPU): False,
    }
    found = {PageData(3, 0, FULL, GPU): False, PageData(None, 4, FULL, CPU): True}
    assert list(discrepancies(told, expected, found)) == [
        "full data of pages 0..1 in node 1 (tokens 0..2) should have left GPU, and did not",
        "swa data of page 2 in node 2 (tokens 2..3) should have come to CPU_PINNED, and did not",
        "full data of page 4 in new pages came to CPU_PINNED, and should not have",
    ]
    assert list(discrepancies(told, expected, expected)) == []
