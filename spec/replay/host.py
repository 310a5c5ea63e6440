"""Replays an eviction from the host: duplicates first under write_back, then leaves, then the rest.

A duplicate is a host copy of data that is also on the device. A cache may choose which duplicates
it evicts first; the replay takes its choice from the state after.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from attrs import frozen

from kvcanon.spec.replay.board import (
    LAST,
    Board,
    LeafQueue,
    Piece,
    could_be_free,
    is_device_leaf,
    is_duplicate,
    is_host_leaf,
    is_spare,
)
from kvcanon.spec.types import CPU, FULL, GPU, MAMBA, SWA, Component, Counts, NodeId, shortage


@frozen
class HostChoices:
    """The choices of a cache on the host, as the state after shows them."""

    gave_up: Callable[[Piece, Component], bool]
    """Whether a piece lost its host copy of a component."""
    tries_in_vain: bool
    """Whether the cache evicts even if it cannot free enough slots."""
    held_first: bool = False
    """Whether locked duplicates, if locks do not hold them by profile, leave before leaves."""
    failed: Callable[[Piece, Component], bool] | None = None
    """Whether the copy of a victim's component failed while the eviction waited; None if none
    did."""
    states_stay: bool = False
    """Whether no state left with its window data, so that those that left did so in another way."""
    order: tuple[NodeId, ...] = ()
    """The order in which duplicates left; if empty, the smallest first."""

    def place(self, piece: Piece) -> tuple[int, int]:
        """The rank of a duplicate among those that left."""
        if piece.node_id in self.order:
            return self.order.index(piece.node_id), piece.begin
        return len(self.order), piece.size(FULL)


def ensure_host_slots(board: Board, needed: Counts, choices: HostChoices) -> bool:
    """Evict until `needed` host slots are free; returns whether they are.

    Stops at the first pool that stays short, since evictions from the others would be in vain.
    """
    if not choices.tries_in_vain and not could_be_free(board, needed, CPU):
        return False
    for component in board.config.components:
        wanted = Counts.of({component: needed[component]})
        evict_host(board, shortage(wanted, board.free_slot_counts(CPU)), choices)
        if needed[component] > board.free[component, CPU]:
            return False
    return True


def evict_host(board: Board, counts: Counts, choices: HostChoices) -> None:
    """Free `counts` host slots of each component, or as many as possible."""
    before = board.free_slot_counts(CPU)
    for component in board.config.components:
        enough = before[component] + counts[component]
        if component is FULL:
            _give_up_duplicates(board, enough, choices)
            if choices.held_first:
                _give_up_held(board, enough, choices)
            _evict_leaves(board, enough)
            _give_up_held(board, enough, choices)
        else:
            _evict_data(board, component, enough, choices)


def _give_up_duplicates(board: Board, enough: int, choices: HostChoices) -> None:
    if not board.writes_back or board.free[FULL, CPU] >= enough:
        return
    duplicates = [piece for piece in board.every() if is_duplicate(board, piece)]
    duplicates.sort(key=lambda piece: (is_device_leaf(piece), board.rank(piece), piece.begin))
    gone = [piece for piece in duplicates if choices.gave_up(piece, FULL)]
    # The order in which they left is not visible. If the largest was needed last, all were.
    gone.sort(key=choices.place)
    duplicates = gone + [piece for piece in duplicates if piece not in gone]
    for piece in duplicates:
        if board.free[FULL, CPU] >= enough:
            return
        _give_up(board, piece, choices)


def _give_up_held(board: Board, enough: int, choices: HostChoices) -> None:
    """Evict locked duplicates that the cache evicted, if its profile allows that."""
    if not board.writes_back or board.profile.locks_hold_host_copies:
        return
    for piece in sorted(board.every(), key=lambda piece: piece.size(FULL)):
        if board.free[FULL, CPU] >= enough:
            return
        held = piece.locked and not piece.backing
        if held and is_spare(board, piece) and choices.gave_up(piece, FULL):
            _give_up(board, piece, choices)


def _give_up(board: Board, piece: Piece, choices: HostChoices) -> None:
    """Free a duplicate's host slots; by profile those of its full data alone may be enough."""
    for component in board.config.components:
        alone = component is not FULL and not board.profile.whole_nodes_on_host
        on_device = component in piece.on[GPU]
        if not alone or (on_device and choices.gave_up(piece, component)):
            board.drop(piece, component, CPU)


def _evict_leaves(board: Board, enough: int) -> None:
    if board.free[FULL, CPU] >= enough:
        return
    turns = LeafQueue(board, CPU)
    while board.free[FULL, CPU] < enough:
        leaf = turns.next()
        if leaf is None:
            return
        _delete(board, leaf)
        turns.add(leaf.parent)


def _evict_data(board: Board, component: Component, enough: int, choices: HostChoices) -> None:
    pool = component, CPU
    if board.free[pool] >= enough:
        return
    candidates = [
        piece
        for piece in board.in_turn(component, CPU)
        if component not in piece.on[GPU] and not _is_held(board, piece, component, choices)
    ]
    # Data that came to the host in this operation has no place in the order before it.
    unordered = any(board.place(piece, pool) == LAST for piece in candidates)
    # Their order decides who leaves, unless without the smallest too few slots would be free.
    sizes = [piece.size(component) for piece in candidates]
    not_all = board.free[pool] + sum(sizes) - min(sizes, default=0) >= enough
    # Even if all leave, it decides whether an upper piece is a leaf at its turn.
    nested = any(above in candidates for piece in candidates for above in _ancestors(piece))
    board.unsure |= unordered and (not_all or nested)
    for piece in candidates:
        if board.free[pool] >= enough:
            return
        if component not in piece.on[CPU]:
            continue
        if is_host_leaf(piece):
            _delete(board, piece)
            continue
        board.drop(piece, component, CPU)
        # By EVICT-3 a state may leave with its window data, or stay.
        follows = component is SWA and MAMBA in piece.on[CPU] and choices.gave_up(piece, MAMBA)
        if follows and not choices.states_stay:
            board.drop(piece, MAMBA, CPU)


def _ancestors(piece: Piece) -> Iterator[Piece]:
    return iter(()) if piece.parent is None else piece.parent.above()


def _is_held(board: Board, piece: Piece, component: Component, choices: HostChoices) -> bool:
    """Whether a lock keeps window data or a mamba state on the host; by profile it may not."""
    if component not in piece.locked:
        return False
    return board.profile.locks_hold_host_copies or not choices.gave_up(piece, component)


def _delete(board: Board, piece: Piece) -> None:
    board.vacate(piece, CPU)
    board.remove(piece)
