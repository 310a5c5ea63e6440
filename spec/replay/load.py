"""Replays a load-back: what it must copy to the device, and what is evicted to make room for it.

Its path is held, then slots are freed in each pool that is short.
A load needs as many slots of each pool as it copies data into, not as many as its key has pages.
"""

from __future__ import annotations

from attrs import frozen

from kvcanon.spec.operations import LoadBack, LoadDecision, LoadedBack
from kvcanon.spec.oracle.window import window_start
from kvcanon.spec.replay.board import Board, Piece, board_of, cut_at, prefix_pieces
from kvcanon.spec.replay.device import Stays, evict_device
from kvcanon.spec.replay.host import HostChoices
from kvcanon.spec.snapshot import NO_POOL, Snapshot
from kvcanon.spec.types import CPU, FULL, GPU, MAMBA, SWA, Component, Counts, Key, shortage
from kvcanon.spec.views import Step, path_of


@frozen
class Missing:
    """The pages, by index in the key, whose data is on the host only and a load must copy."""

    full: tuple[int, ...]
    swa: tuple[int, ...]
    mamba: tuple[int, ...]

    def __getitem__(self, component: Component) -> tuple[int, ...]:
        return {FULL: self.full, SWA: self.swa, MAMBA: self.mamba}[component]

    def counts(self) -> Counts:
        """The slots that a load takes."""
        return Counts(len(self.full), len(self.swa), len(self.mamba))


@frozen
class Load:
    """A load-back that was not refused."""

    operation: LoadBack
    outcome: LoadedBack
    key: Key
    """What is loaded: the key of the call, or as many leading pages of it as the answer says."""
    missing: Missing

    @property
    def may_evict(self) -> bool:
        """Whether the load may evict to get free slots."""
        return self.outcome.decision in (LoadDecision.ENQUEUED, LoadDecision.NO_ROOM)


def load_of(step: Step) -> Load | None:
    """The load of a step; None if the step is no load, or was refused."""
    operation, outcome = step.operation, step.outcome
    if not isinstance(operation, LoadBack) or not isinstance(outcome, LoadedBack):
        return None
    asked, pages = operation.key, outcome.pages
    key = asked if pages is None else asked.prefix(max(0, min(pages, len(asked))))
    return Load(operation, outcome, key, missing_of(step.before, key))


def missing_of(state: Snapshot, key: Key) -> Missing:
    """The data that a load of a key must copy.

    That is full data of all pages, window data of the window (of whole nodes, if locks take whole
    nodes) and the mamba state at the end. Data with a device slot, also one still loading, is not
    missing.
    """
    full: list[int] = []
    swa: list[int] = []
    mamba: list[int] = []
    window = window_begin(state, key)
    start = 0
    for node, shared in path_of(state, key):
        end = start + shared
        if node.full.device is None:
            full.extend(range(start, end))
        if node.swa.device is None and node.swa.host is not None and end > window:
            exact = state.profile.window_lock_exact
            swa.extend(range(max(start, window) if exact else start, end))
        at_end = end == len(key) and shared == len(node.pages)
        if at_end and node.mamba.device is None and node.mamba.host is not None:
            mamba.append(end - 1)
        start = end
    return Missing(tuple(full), tuple(swa), tuple(mamba))


def window_begin(state: Snapshot, key: Key) -> int:
    """The first page of the window at the end of a key; the end itself without a window."""
    if state.config.window_tokens is None:
        return len(key)
    return window_start(len(key), state.config.window_tokens, state.config.page_size)


def free_on_device(state: Snapshot) -> Counts:
    """Free device slots of each pool."""
    return Counts(*[len(state.pools.get((c, GPU), NO_POOL).free) for c in (FULL, SWA, MAMBA)])


def hold_path(board: Board, state: Snapshot, key: Key) -> list[Piece]:
    """Hold a key, as a lock does; returns its pieces."""
    path = [stop.node for stop in path_of(state, key)]
    prefix_pieces(board, path, key)
    window = window_begin(state, key)
    if state.profile.window_lock_exact:
        cut_at(board, path, window)
    pieces = prefix_pieces(board, path, key)
    for piece in pieces:
        piece.locked |= {FULL}
        if SWA in state.config.components and piece.end > window:
            piece.locked |= {SWA}
    if pieces and MAMBA in state.config.components:
        pieces[-1].locked |= {MAMBA}
    return pieces


def replay_load(
    state: Snapshot, load: Load, stays: Stays, choices: HostChoices, *, evicts: bool
) -> Board:
    """The board after a load-back that was enqueued, or found too few free slots."""
    board = board_of(state)
    pieces = hold_path(board, state, load.key)
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
