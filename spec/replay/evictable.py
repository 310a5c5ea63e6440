"""The most slots that evictions could free, so that a cache may decline at once what cannot fit."""

from __future__ import annotations

from kvcanon.spec.replay.board import Board, Piece, is_duplicate
from kvcanon.spec.types import CPU, FULL, GPU, Component, Counts, Medium


def could_be_free(board: Board, needed: Counts, medium: Medium) -> bool:
    """Whether `needed` slots of each pool are free, or would be if all that may be evicted were."""
    return all(
        needed[component]
        <= board.free[component, medium] + evictable_slots(board, component, medium)
        for component in board.config.components
        if needed[component]
    )


def evictable_slots(board: Board, component: Component, medium: Medium) -> int:
    """The slots of a pool that evictions could free, one victim after the other."""
    return sum(
        piece.size(component)
        for piece in _leaving(board, component, medium)
        if component in piece.on[medium]
    )


def _leaving(board: Board, component: Component, medium: Medium) -> list[Piece]:
    """The pieces whose data of a component may be evicted from a medium."""
    if component is not FULL:
        return [
            piece
            for piece in board.every()
            if component not in piece.locked and not (medium is CPU and component in piece.on[GPU])
        ]
    may_go: dict[Piece, bool] = {}
    for piece in sorted(board.every(), key=lambda piece: piece.begin, reverse=True):
        # A piece leaves the host with all pieces below it, the device with those on the device.
        here = medium is GPU or FULL not in piece.on[GPU]
        below = [each for each in piece.children if medium is CPU or FULL in each.on[GPU]]
        may_go[piece] = here and not piece.locked and all(may_go[each] for each in below)
    leaving = [piece for piece, may in may_go.items() if may]
    if medium is CPU and board.writes_back:
        leaving += [piece for piece in board.every() if is_duplicate(board, piece)]
    return leaving
