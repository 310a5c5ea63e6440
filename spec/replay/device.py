"""Replays an eviction from the device: full slots first, then window slots, then mamba states.

A leaf leaves with all its data; window data and mamba states are also evicted from pieces that
stay. Under write_back data is copied to the host before it leaves, if host slots are free or can be
freed.
"""

from __future__ import annotations

from collections.abc import Callable

from kvcanon.spec.oracle.eviction import pre_evict_need
from kvcanon.spec.replay.board import Board, LeafQueue, Piece, is_device_leaf
from kvcanon.spec.replay.host import HostChoices, ensure_host_slots
from kvcanon.spec.types import CPU, FULL, GPU, MAMBA, SWA, Component, Counts

Stays = Callable[[Piece, int], int]
"""How many pages of a leaf, from its first page, stay on the device, given the missing slots."""


def evict_device(board: Board, counts: Counts, stays: Stays, choices: HostChoices) -> None:
    """Free `counts` device slots of each component, or as many as possible."""
    before = board.free_slot_counts(GPU)
    for component in board.config.components:
        enough = before[component] + counts[component]
        if component is FULL:
            _evict_leaves(board, enough, stays, choices)
        else:
            _evict_data(board, component, enough, choices)
    if choices.failed is not None:
        _give_up_failed(board, choices.failed)


def _give_up_failed(board: Board, failed: Callable[[Piece, Component], bool]) -> None:
    """Drop the copies that failed, and the pieces that have no other, with those below them."""
    for piece in board.every():
        for component in piece.on[CPU] - piece.was[CPU]:
            if failed(piece, component):
                board.drop(piece, component, CPU)
    for piece in list(board.every()):
        in_tree = piece.parent is not None and piece in piece.parent.children
        if in_tree and FULL not in piece.on[GPU] | piece.on[CPU]:
            _remove_all(board, piece)


def _evict_leaves(board: Board, enough: int, stays: Stays, choices: HostChoices) -> None:
    if board.free[FULL, GPU] >= enough:
        return
    turns = LeafQueue(board, GPU)
    while (short := pre_evict_need(enough, board.free[FULL, GPU])) > 0:
        leaf = turns.next()
        if leaf is None:
            return
        kept = stays(leaf, short)
        if kept == leaf.end - leaf.begin and _must_stay(board, leaf):
            continue
        if 0 < kept <= leaf.end - leaf.begin - short:
            # The last victim may lose only the pages at its end that are needed.
            board.cut(leaf, leaf.begin + kept)
        turns.add(_evict_leaf(board, leaf, choices))


def _must_stay(board: Board, leaf: Piece) -> bool:
    """Whether a leaf may be unable to leave under write_back: a piece below it is locked."""
    return board.writes_back and any(piece.locked for piece in leaf.subtree()[1:])


def _goes_along(board: Board, piece: Piece) -> bool:
    """Whether a tombstone leaves together with its last child, by profile."""
    stays = board.profile.uncovered_tombstones_stay or SWA not in board.config.components
    return not stays and SWA not in piece.on[GPU] and is_device_leaf(piece)


def _evict_data(board: Board, component: Component, enough: int, choices: HostChoices) -> None:
    pool = component, GPU
    if board.free[pool] >= enough:
        return
    for piece in board.in_turn(component, GPU):
        if board.free[pool] >= enough:
            return
        if component not in piece.on[GPU] or component in piece.locked:
            continue
        if is_device_leaf(piece):
            _evict_leaf(board, piece, choices)
            continue
        if board.writes_back:
            _copy(board, piece, choices)
        board.drop(piece, component, GPU)
        if component is SWA:
            board.drop(piece, MAMBA, GPU)


def _copy(board: Board, piece: Piece, choices: HostChoices) -> None:
    """Copy to the host all data that a piece has on the device only, or none of it."""
    missing = [c for c in piece.on[GPU] if c not in piece.on[CPU] and c not in piece.loading]
    needed = Counts.of({c: piece.size(c) for c in missing})
    if missing and ensure_host_slots(board, needed, choices):
        for component in missing:
            board.put(piece, component, CPU)


def _evict_leaf(board: Board, leaf: Piece, choices: HostChoices) -> Piece | None:
    """Evict a leaf, and tombstones that leave with it; returns the piece above them."""
    above = leaf.parent
    _evict_one(board, leaf, choices)
    while above is not None and _goes_along(board, above):
        _evict_one(board, above, choices)
        above = above.parent
    return above


def _evict_one(board: Board, leaf: Piece, choices: HostChoices) -> None:
    """Demote a leaf, or remove it with the pieces below it, which are on the host."""
    if board.writes_back:
        _copy(board, leaf, choices)
    board.vacate(leaf, GPU)
    if FULL in leaf.on[CPU]:
        return
    _remove_all(board, leaf)


def _remove_all(board: Board, piece: Piece) -> None:
    """Take a piece that is not on the device out of the tree, with all pieces below it."""
    for each in reversed(piece.subtree()):
        board.vacate(each, CPU)
        board.remove(each)
