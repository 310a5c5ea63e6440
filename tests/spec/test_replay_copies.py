"""Replays of load-backs, host inserts and the backups of inserts."""

from __future__ import annotations

from attrs import evolve

from kvcanon.spec.config import Choosing, Profile
from kvcanon.spec.operations import (
    HostPayload,
    Insert,
    Inserted,
    InsertHost,
    LoadBack,
    LoadDecision,
    LoadedBack,
)
from kvcanon.spec.replay.backup import due_backups, replay_backups
from kvcanon.spec.replay.board import Board, board_of
from kvcanon.spec.replay.compare import expected_changes
from kvcanon.spec.replay.host_insert import replay_host_insert
from kvcanon.spec.replay.load import Load, hold_path, missing_of, replay_load
from kvcanon.spec.snapshot import NodeState, Snapshot, TransferState
from kvcanon.spec.transfer import Direction
from kvcanon.spec.types import CPU, FULL, GPU, MAMBA, SWA, Counts, NodeId, Slots, make_key
from kvcanon.spec.views import Step
from states import ROOT, having, node, on, state_of
from states.boards import (
    COLD,
    CONFIG,
    EXPECTED,
    IN_VAIN,
    KEY,
    OTHER,
    POOLS,
    TIP,
    TOP,
    config,
    no_page,
    see,
    there,
)
from states.judging import step

# Loads.

BELOW = node(2, 1, [3], full=on(None, [2]), swa=on(None, [2]), mamba=on(None, [1]))


def load(state: Snapshot, decision: LoadDecision = LoadDecision.ENQUEUED) -> Load:
    """A load of `KEY`."""
    asked = LoadBack(KEY)
    return Load(asked, LoadedBack(decision), KEY, missing_of(state, KEY))


def test_a_load_holds_its_path_while_room_is_made() -> None:
    """A load keeps its path and its window; other data may be evicted for it."""
    state = state_of(CONFIG, TOP, BELOW, OTHER)
    pieces = hold_path(board_of(state), state, KEY)
    assert [(piece.begin, piece.end) for piece in pieces] == [(0, 1), (1, 2), (2, 3)]
    assert [sorted(piece.locked) for piece in pieces] == [
        [FULL],
        [FULL, SWA],
        [FULL, MAMBA, SWA],
    ]
    whole = evolve(state, profile=Profile(window_lock_exact=False))
    assert [p.end for p in hold_path(board_of(whole), whole, KEY)] == [2, 3]


def loaded(state: Snapshot, decision: LoadDecision = LoadDecision.ENQUEUED) -> Board:
    """The board after a load of `KEY`."""
    return replay_load(state, load(state, decision), no_page, IN_VAIN, evicts=True)


def test_a_load_brings_what_was_missing() -> None:
    """A load copies what is missing, and window data only inside the window."""
    upper = evolve(TOP, data={FULL: on(None, [0, 1]), SWA: on(None, [0, 1])})
    state = state_of(CONFIG, upper, BELOW)
    assert see(loaded(state)) == "112 12 2"
    assert there(loaded(state), SWA) == {(1, 1), (2, 2)}
    assert see(loaded(state), CPU) == "112 112 2"
    assert see(loaded(state, LoadDecision.NO_ROOM)) == "- - -"


def test_a_load_evicts_what_it_is_short_of() -> None:
    """A load evicts only for pools that are short, and not at all if it declines at once."""
    tight = evolve(CONFIG, device_slots=Counts(16, 4, 4))
    state = state_of(tight, TOP, BELOW, OTHER, node(7, ROOT, [7], full=on([5]), swa=on([2])))
    # Of the window of two pages one is there; page 0 of it is the least recent.
    assert there(loaded(state), SWA) == {(1, 1), (2, 2), (3, 0), (7, 0)}
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


HELD = node(7, ROOT, [7], full=on(None, [3], lock_refs=1))
ROOM = Counts(4, 4, 4)


def test_fetched_pages_refill_their_path_and_become_a_leaf() -> None:
    """Pages of the tree get a host copy, and new pages a leaf below them."""
    board = fetched(evolve(TOP, data={FULL: on([0, 1]), SWA: on([0, 1])}), swa=2, mamba=1)
    assert see(board, CPU) == "++11 ++ +"
    assert there(board, MAMBA, CPU) == {(None, 3)}
    assert board.new[-1].parent is not None
    assert board.new[-1].parent.node_id in (1, None)


def test_fetched_pages_stop_at_a_gap() -> None:
    """No pages are placed below a piece whose host copy is missing or in flight."""
    assert see(fetched(evolve(TOP, data={FULL: on([0, 1])}), full=3), CPU) == "- - -"
    backing = evolve(TOP, data={FULL: on([0, 1], [0, 1], backing=9)})
    assert see(fetched(backing), CPU) == "11 - -"


def test_as_many_fetched_pages_are_placed_as_fit() -> None:
    """A leaf gets as many pages as find a free host slot."""
    assert see(fetched(TOP, HELD, host=ROOM), CPU) == "+117 - -"
    # The end of the key is not reached, so that its state has no place.
    assert see(fetched(TOP, HELD, mamba=1, host=ROOM), CPU) == "+117 - -"
    loose = evolve(HELD, data={FULL: on(None, [3])})
    assert see(fetched(TOP, loose, host=ROOM), CPU) == "++11 - -"


# Backups.

HIT = (evolve(TOP, hit_count=1), evolve(TIP, hit_count=1))
ENQUEUED = on([2], [2], backing=9)
COPIED = (
    having(HIT[0], swa=on([0, 1], [0, 1]), mamba=on([0], [0])),
    having(HIT[1], ENQUEUED, ENQUEUED, on([1], [1], backing=9)),
)
SLOTS = {FULL: (2,), SWA: (2,), MAMBA: (1,)}
BACKUP = TransferState(9, Direction.BACKUP, ((2, FULL), (2, SWA), (2, MAMBA)), SLOTS, SLOTS)


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


def due(insert: Step) -> list[tuple[NodeId, str, bool]]:
    """The backups that an insert must enqueue, and whether it did."""
    return [
        (each.node.node_id, " ".join(each.components), each.done()) for each in due_backups(insert)
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
    observed = inserted(HIT, COPIED, BACKUP)
    # The window is the last two pages; node 1 has one of them.
    assert due(observed) == [(2, "full swa mamba", True)]
    observed = inserted(HIT, (HIT[0], COPIED[1]), BACKUP)
    assert due(observed) == [(2, "full swa mamba", True), (1, "swa mamba", False)]
    far = evolve(CONFIG, window_tokens=1)
    state = state_of(far, HIT[0], COPIED[1], transfers=(BACKUP,))
    assert due(evolve(observed, before=state_of(far, *HIT), after=state)) == [
        (2, "full swa mamba", True)
    ]


TIGHT = Counts(3, 4, 2)
"""Room for the path, or for `COLD` and two pages of it."""
EDGE = evolve(COLD, data={FULL: on(None, [2]), SWA: on(None, [3])})


def test_backups_evict_what_is_short_and_in_turn() -> None:
    """An insert evicts from the host exactly what its copies need."""
    board = replay_backups(inserted((*HIT, EDGE), COPIED, BACKUP, host=TIGHT), IN_VAIN)
    assert see(board, CPU).startswith("112 ")
    board = replay_backups(inserted((*HIT, EDGE), COPIED, BACKUP), IN_VAIN)
    assert see(board, CPU).startswith("1124 ")


JOINT_SLOTS = {FULL: (2,), SWA: (2, 0, 1), MAMBA: (1, 0)}
JOINT = evolve(
    BACKUP,
    parts=(*BACKUP.parts, (1, SWA), (1, MAMBA)),
    sources=JOINT_SLOTS,
    targets=JOINT_SLOTS,
)
"""The backup of both nodes as one transfer."""


def test_room_for_a_joint_backup_may_be_made_node_by_node() -> None:
    """The state that leaves for the lower node frees a window page for the upper one."""
    leaves = [
        node(
            at,
            ROOT,
            [at],
            full=on(None, [at]),
            swa=on(None, [at - 4]) if at < 8 else None,
            mamba=on(None, [at - 7]) if at > 6 else None,
            last_access=at,
        )
        for at in (4, 5, 6, 7, 8)
    ]
    observed = inserted((*HIT, *leaves), COPIED, JOINT, host=Counts(16, 4, 2))
    path = {(1, 0), (1, 1), (2, 2)}
    assert there(replay_backups(observed, IN_VAIN), FULL, CPU) == path
    assert there(replay_backups(observed, IN_VAIN, node_by_node=True), FULL, CPU) == {*path, (6, 0)}


def test_what_is_declined_may_have_been_tried() -> None:
    """For a backup that cannot fit a cache may evict or not."""
    held = evolve(EDGE, data={FULL: on(None, [2], lock_refs=1)})
    small = Counts(3, 4, 1)
    state = evolve(node(8, ROOT, [7], full=on([9], None)), hit_count=0)
    observed = inserted((*HIT, held, state), (*HIT, held, state), host=small)
    assert due(observed)[0] == (2, "full swa mamba", False)
    assert there(replay_backups(observed, EXPECTED), FULL, CPU) == {(1, 0), (1, 1), (4, 0)}
    loose = inserted((*HIT, EDGE), (*HIT, EDGE), host=Counts(3, 4, 0))
    assert there(replay_backups(loose, EXPECTED), FULL, CPU) == {(1, 0), (1, 1), (4, 0)}
    assert there(replay_backups(loose, IN_VAIN), FULL, CPU) == {(1, 0), (1, 1)}


def test_a_cache_that_chooses_its_backups_may_have_tried_any() -> None:
    """Where a cache copies nodes without enough hits it may evict for them, if they cannot fit."""
    cold = tuple([evolve(each, hit_count=0) for each in HIT])
    left = {(1, 0), (1, 1)}

    def on_host(host: Counts, backups: Choosing) -> set[tuple[NodeId | None, int]]:
        seen = inserted((*cold, EDGE), (*cold, EDGE), host=host)
        before, after = (
            evolve(each, profile=evolve(each.profile, backups=backups))
            for each in (seen.before, seen.after)
        )
        board = replay_backups(evolve(seen, before=before, after=after), IN_VAIN)
        return there(board, FULL, CPU)

    no_states = Counts(3, 4, 0)
    assert on_host(no_states, Choosing.OWN) == left
    assert on_host(no_states, Choosing.AS_CANON) == {*left, (4, 0)}
    # One that fits was not tried: it would be there.
    assert on_host(TIGHT, Choosing.OWN) == {*left, (4, 0)}
