"""Handmade boards of replays: a small state, and the data on its board."""

from __future__ import annotations

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.replay.board import Board, Piece
from kvcanon.spec.replay.host import HostChoices
from kvcanon.spec.types import (
    FULL,
    GPU,
    MAMBA,
    Component,
    Counts,
    EvictionPolicy,
    Medium,
    NodeId,
    make_key,
)
from states import ROOT, node, on, state_of

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
    """Every victim lost all of its pages."""
    return 0


def is_of(node_id: NodeId, piece: Piece, _: Component) -> bool:
    """Whether a piece is of a node: whose host copy was evicted."""
    return piece.node_id == node_id


# A path of 2 + 1 pages, a leaf of another prompt, and a leaf on the host alone.

TOP = node(1, ROOT, [1, 2], full=on([0, 1], [0, 1]), swa=on([0, 1]), mamba=on([0]), last_access=1)
TIP = node(2, 1, [3], full=on([2]), swa=on([2]), mamba=on([1]), last_access=20)
OTHER = node(3, ROOT, [8], full=on([3]), swa=on([3]), last_access=10)
COLD = node(4, ROOT, [9], full=on(None, [4]), swa=on(None, [4]), last_access=5)
STATE = state_of(CONFIG, TOP, TIP, OTHER, COLD)
KEY = make_key([1, 2, 3], 1)
"""The key of `TOP` and `TIP`."""

Pages = set[tuple[NodeId | None, int]]


def there(board: Board, component: Component = FULL, medium: Medium = GPU) -> Pages:
    """The nodes and pages with a component on a medium; a mamba state is at its last page."""
    return {
        (piece.node_id, page)
        for piece in board.every()
        if component in piece.on[medium]
        for page in range(piece.end - 1 if component is MAMBA else piece.begin, piece.end)
    }


def see(board: Board, medium: Medium = GPU) -> str:
    """By component, the node of each page that has it on a medium; `+` is a new node."""
    return " ".join(
        "".join(sorted(str(n or "+") for n, _ in there(board, component, medium))) or "-"
        for component in board.config.components
    )


def piece_of(board: Board, node_id: NodeId) -> Piece:
    """The last piece of a node."""
    return board.pieces[node_id][-1]
