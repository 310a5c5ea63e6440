"""Replays a load-back: its path is held, then slots are freed in each pool that is short."""

from __future__ import annotations

from kvcanon.spec.operations import LoadDecision
from kvcanon.spec.replay.board import Board, Piece, board_of, cut_at, prefix_pieces
from kvcanon.spec.replay.device import Stays, evict_device
from kvcanon.spec.replay.host import HostChoices
from kvcanon.spec.replay.missing import Load, window_begin
from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.types import CPU, FULL, GPU, MAMBA, SWA, shortage
from kvcanon.spec.views import path_of


def hold_path(board: Board, state: Snapshot, load: Load) -> list[Piece]:
    """Hold the key of a load, as a lock does; returns the pieces of the key."""
    path = [stop.node for stop in path_of(state, load.key)]
    prefix_pieces(board, path, load.key)
    window = window_begin(state, load.key)
    if state.profile.window_lock_exact:
        cut_at(board, path, window)
    pieces = prefix_pieces(board, path, load.key)
    for piece in pieces:
        piece.locked.add(FULL)
        if SWA in state.config.components and piece.end > window:
            piece.locked.add(SWA)
    if pieces and MAMBA in state.config.components:
        pieces[-1].locked.add(MAMBA)
    return pieces


def replay_load(
    state: Snapshot, load: Load, stays: Stays, choices: HostChoices, *, evicts: bool
) -> Board:
    """The board after a load-back that was enqueued, or found too few free slots."""
    board = board_of(state)
    pieces = hold_path(board, state, load)
    if evicts:
        short = shortage(load.missing.counts(), board.free_slot_counts(GPU))
        evict_device(board, short, stays, choices)
    if load.outcome.decision is LoadDecision.ENQUEUED:
        window = window_begin(state, load.key)
        for piece in pieces:
            for component in board.config.components:
                of_use = {
                    FULL: True,
                    SWA: piece.end > window,
                    MAMBA: piece is pieces[-1],
                }[component]
                missing = component not in piece.on[GPU] and component in piece.on[CPU]
                if of_use and missing:
                    board.put(piece, component, GPU)
    return board
