"""Replays a host insert: full data down the path, then the window and mamba state at the end."""

from __future__ import annotations

from attrs import evolve

from kvcanon.spec.operations import InsertHost
from kvcanon.spec.replay.board import Board, Piece, board_of, cut_at
from kvcanon.spec.replay.host import HostChoices, ensure_host_slots
from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.types import CPU, FULL, GPU, MAMBA, SWA, Component, Counts
from kvcanon.spec.views import path_of


def replay_host_insert(state: Snapshot, operation: InsertHost, choices: HostChoices) -> Board:
    """The board after a host insert."""
    board = board_of(state)
    stops = path_of(state, operation.key)
    nodes, walked = [stop.node for stop in stops], sum(stop.shared_pages for stop in stops)
    cut_at(board, nodes, walked)
    path = [piece for piece in board.path(nodes) if piece.end <= walked]
    locked_before = {piece: piece.locked for piece in path}
    for piece in path:
        piece.locked |= {FULL}
    if path and MAMBA in state.config.components:
        path[-1].locked |= {MAMBA}
    end = _place_full(board, operation, path, choices)
    if end is not None and end.end == len(operation.key):
        _place_window(board, operation, end, choices)
        _place_state(board, operation, end, choices)
    for piece, locked in locked_before.items():
        piece.locked = locked
    return board


def _place_full(
    board: Board, operation: InsertHost, path: list[Piece], choices: HostChoices
) -> Piece | None:
    """Refill the path and add a leaf; returns the last piece down to which host copies reach."""
    end: Piece | None = None
    for piece in path:
        if not _refill(board, operation, piece, choices):
            return end
        end = piece
    reached = 0 if end is None else end.end
    wanted = len(operation.key) - reached
    if wanted:
        # The insert places as many pages as fit, so no eviction is in vain.
        ensure_host_slots(board, Counts(full=wanted), evolve(choices, tries_in_vain=True))
        fitting = min(wanted, board.free[FULL, CPU])
        if fitting:
            leaf = Piece(None, reached, reached + fitting, end or board.root)
            leaf.locked |= {FULL}
            (end or board.root).children.append(leaf)
            board.new.append(leaf)
            board.put(leaf, FULL, CPU)
            return leaf
    return end


def _refill(board: Board, operation: InsertHost, piece: Piece, choices: HostChoices) -> bool:
    """Give a piece a host copy if it lacks one; returns whether pieces below may get one."""
    if FULL in piece.on[CPU]:
        return FULL not in piece.backing
    begin = max(piece.begin, operation.start_pages)
    if begin > piece.begin and board.config.backed_parents:
        return False
    if begin >= piece.end:
        return True
    if not ensure_host_slots(board, Counts(full=piece.end - begin), choices):
        return False
    if begin > piece.begin:
        board.cut(piece, begin)
    board.put(piece, FULL, CPU)
    return True


def _place_window(board: Board, operation: InsertHost, end: Piece, choices: HostChoices) -> None:
    """Give the pieces at the end the window data that they lack on the host, all or none."""
    if not operation.payload.swa:
        return
    begin = len(operation.key) - len(operation.payload.swa)
    for piece in end.above():
        if piece.begin < begin < piece.end:
            board.cut(piece, begin)
            break
    window = [piece for piece in end.above() if piece.begin >= begin]
    held = [piece for piece in window if SWA not in piece.locked]
    for piece in held:
        piece.locked |= {SWA}
    lacking = [piece for piece in window if _lacks(piece, SWA)]
    if ensure_host_slots(board, Counts(swa=sum(piece.size(SWA) for piece in lacking)), choices):
        for piece in lacking:
            _arrive(board, piece, SWA)
    for piece in held:
        piece.locked -= {SWA}


def _place_state(board: Board, operation: InsertHost, end: Piece, choices: HostChoices) -> None:
    """Give the end the mamba state that it lacks on the host."""
    if (
        operation.payload.mamba
        and _lacks(end, MAMBA)
        and ensure_host_slots(board, Counts(mamba=1), choices)
    ):
        _arrive(board, end, MAMBA)


def _lacks(piece: Piece, component: Component) -> bool:
    """Whether a piece with a settled host copy lacks a component there."""
    settled = FULL in piece.on[CPU] and FULL not in piece.backing
    return settled and component not in piece.on[CPU]


def _arrive(board: Board, piece: Piece, component: Component) -> None:
    board.put(piece, component, CPU)
    if component not in piece.on[GPU]:
        board.arrive(piece, component, CPU)
