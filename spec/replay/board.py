"""The board: a copy of the tree for a replay, in pieces that can be cut and evicted.

A piece is a node of the state before, or a part of one. The board knows whether a piece has data of
a component on a medium, and how many slots that is; which slots does not matter to an eviction.

It also knows the most slots that evictions could free: a cache may decline at once what cannot fit.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping

from attrs import Factory, define, field

from kvcanon.spec.config import CacheConfig, Profile
from kvcanon.spec.oracle.eviction import may_leave_device, may_leave_host, policy_key
from kvcanon.spec.snapshot import NodeState, Pool, Snapshot
from kvcanon.spec.types import (
    CPU,
    FULL,
    GPU,
    MAMBA,
    Component,
    Counts,
    Key,
    Medium,
    NodeId,
    WritePolicy,
)

Rank = tuple[int, int]

LAST = float("inf")


@define(eq=False)
class Piece:
    """Consecutive pages whose data is on the same media."""

    node_id: NodeId | None
    """The node of the state before that has its pages; None for new pages."""
    begin: int
    """Pages before it."""
    end: int
    parent: Piece | None
    children: list[Piece] = Factory(list)
    on: dict[Medium, frozenset[Component]] = Factory(lambda: {GPU: frozenset(), CPU: frozenset()})
    """The components on each medium, filled or being filled."""
    was: dict[Medium, frozenset[Component]] = Factory(lambda: {GPU: frozenset(), CPU: frozenset()})
    """The same in the state before."""
    locked: frozenset[Component] = frozenset()
    loading: frozenset[Component] = frozenset()
    """The components being copied to the device."""
    backing: frozenset[Component] = frozenset()
    """The components being copied to the host."""
    arrived: dict[Pool, float] = Factory(dict)
    """Its places in the LRU orders of which it became the most recent during the replay."""

    def size(self, component: Component) -> int:
        """The slots of its data: one a page, or one for a mamba state."""
        return 1 if component is MAMBA else self.end - self.begin

    def subtree(self) -> list[Piece]:
        """The piece and all pieces below it, each parent before its children."""
        found = [self]
        for piece in found:
            found.extend(piece.children)
        return found

    def above(self) -> Iterator[Piece]:
        """The piece and its ancestors, without the root."""
        piece = self
        while piece.parent is not None:
            yield piece
            piece = piece.parent


@define(eq=False)
class Board:
    """A tree in pieces, with the number of free slots of each pool."""

    state: Snapshot
    """The state before."""
    config: CacheConfig
    profile: Profile
    root: Piece
    pieces: dict[NodeId, list[Piece]]
    """The pieces of each node of the state before, the upper first."""
    new: list[Piece] = Factory(list)
    """Pieces of pages that the state before lacks."""
    free: dict[Pool, int] = Factory(dict)
    arrivals: int = 0
    """How often data became the most recent of an LRU order during the replay."""
    unsure: bool = field(default=False)
    """Whether a victim depended on an order that the state before does not show."""
    _places: dict[Pool, Mapping[NodeId, int]] = Factory(dict)
    """The places of nodes in those LRU orders of the state before that were asked for."""

    @property
    def writes_back(self) -> bool:
        """Whether data is copied to the host when it leaves the device."""
        return self.config.write_policy is WritePolicy.WRITE_BACK

    def free_slot_counts(self, medium: Medium) -> Counts:
        """Free slots of each pool of a medium."""
        return Counts.of({c: self.free[c, medium] for c in self.config.components})

    def every(self) -> Iterator[Piece]:
        """All pieces, also those that left the tree."""
        for parts in self.pieces.values():
            yield from parts
        yield from self.new

    def path(self, nodes: Iterable[NodeState]) -> list[Piece]:
        """The pieces of the nodes of a path, from below the root down."""
        return [piece for node in nodes for piece in self.pieces[node.node_id]]

    def put(self, piece: Piece, component: Component, medium: Medium) -> None:
        """Give a piece data on a medium, in free slots."""
        piece.on[medium] |= {component}
        self.free[component, medium] -= piece.size(component)

    def drop(self, piece: Piece, component: Component, medium: Medium) -> None:
        """Free the slots that a piece has for a component on a medium."""
        if component in piece.on[medium]:
            piece.on[medium] -= {component}
            self.free[component, medium] += piece.size(component)

    def vacate(self, piece: Piece, medium: Medium) -> None:
        """Free all slots that a piece has on a medium."""
        for component in self.config.components:
            self.drop(piece, component, medium)

    def remove(self, piece: Piece) -> None:
        """Take a piece without children out of the tree."""
        assert piece.parent is not None
        piece.parent.children.remove(piece)

    def cut(self, piece: Piece, at: int) -> Piece:
        """Cut a piece before page `at` of its path; returns the upper part, which is new."""
        assert piece.parent is not None
        assert piece.begin < at < piece.end
        upper = Piece(piece.node_id, piece.begin, at, piece.parent)
        for medium in (GPU, CPU):
            upper.on[medium] = piece.on[medium] - {MAMBA}
            upper.was[medium] = piece.was[medium] - {MAMBA}
        upper.locked, upper.loading = piece.locked - {MAMBA}, piece.loading - {MAMBA}
        upper.backing = piece.backing - {MAMBA}
        upper.arrived = dict(piece.arrived)
        siblings = piece.parent.children
        siblings[siblings.index(piece)] = upper
        upper.children, piece.parent, piece.begin = [piece], upper, at
        parts = self.new if piece.node_id is None else self.pieces[piece.node_id]
        parts.insert(parts.index(piece), upper)
        return upper

    def in_turn(self, component: Component, medium: Medium) -> list[Piece]:
        """The pieces with a component's data on a medium, least recently used first."""
        pool = component, medium
        there = [piece for piece in self.every() if component in piece.on[medium]]
        return sorted(there, key=lambda piece: (self.place(piece, pool), piece.begin))

    def place(self, piece: Piece, pool: Pool) -> float:
        """A piece's place in an LRU order, the least recent first; LAST if it has none there."""
        arrived = piece.arrived.get(pool)
        if arrived is not None:
            return arrived
        places = self._places.get(pool)
        if places is None:
            order = self.state.recency.get(pool, ())
            places = self._places[pool] = {node_id: place for place, node_id in enumerate(order)}
        return LAST if piece.node_id is None else places.get(piece.node_id, LAST)

    def rank(self, piece: Piece) -> Rank:
        """A piece's policy key; the piece with the smallest is evicted first."""
        if piece.node_id is None:
            return 0, 0
        node, policy = self.state.nodes[piece.node_id], self.config.eviction_policy
        return policy_key(policy, node.hit_count, node.last_access, node.created, node.priority)

    def arrive(self, piece: Piece, component: Component, medium: Medium) -> None:
        """Make a piece's data the most recent of its LRU order."""
        self.arrivals += 1
        piece.arrived[component, medium] = 1e9 + self.arrivals


def is_device_leaf(piece: Piece) -> bool:
    """Whether a whole piece may be evicted from the device."""
    return piece.parent is not None and may_leave_device(
        FULL in piece.on[GPU],
        bool(piece.locked),
        any(FULL in child.on[GPU] for child in piece.children),
    )


def is_host_leaf(piece: Piece) -> bool:
    """Whether a whole piece may be evicted from the host, and so leave the tree."""
    return piece.parent is not None and may_leave_host(
        FULL in piece.on[GPU], FULL in piece.on[CPU], bool(piece.locked), bool(piece.children)
    )


def is_duplicate(board: Board, piece: Piece) -> bool:
    """Whether a piece is a duplicate: an unlocked host copy of data that is on the device."""
    return not piece.locked and is_spare(board, piece)


def is_spare(board: Board, piece: Piece) -> bool:
    """Whether the device has all data that a piece would free on the host.

    By profile that is the full data alone.
    """
    whole = board.profile.whole_nodes_on_host
    given = piece.on[CPU] if whole else piece.on[CPU] & {FULL}
    return FULL in piece.on[CPU] and given <= piece.on[GPU]


class LeafQueue:
    """The evictable leaves of a medium, by policy key; a parent joins when it becomes a leaf."""

    def __init__(self, board: Board, medium: Medium) -> None:
        self._rank = board.rank
        self._is_leaf = is_device_leaf if medium is GPU else is_host_leaf
        self._heap = [
            (board.rank(piece), piece.begin, number, piece)
            for number, piece in enumerate(board.every())
            if self._is_leaf(piece) and piece in piece.parent.children  # type: ignore[union-attr]
        ]
        self._count = len(self._heap)
        heapq.heapify(self._heap)

    def next(self) -> Piece | None:
        """The leaf that is evicted next; None if no leaf is left."""
        while self._heap:
            piece = heapq.heappop(self._heap)[3]
            if self._is_leaf(piece):
                return piece
        return None

    def add(self, piece: Piece | None) -> None:
        """Add a piece, if it has become a leaf."""
        if piece is not None and self._is_leaf(piece):
            self._count += 1
            heapq.heappush(self._heap, (self._rank(piece), piece.begin, self._count, piece))


def board_of(state: Snapshot) -> Board:
    """The board of a state."""
    root = Piece(state.root_id, 0, 0, None)
    board = Board(state, state.config, state.profile, root, {})
    pieces: dict[NodeId | None, Piece] = {state.root_id: root}
    for node in state.reachable()[1:]:
        parent = pieces[node.parent_id]
        piece = _piece_of(node, state.starts[node.node_id], parent)
        parent.children.append(piece)
        pieces[node.node_id] = piece
        board.pieces[node.node_id] = [piece]
    for component in state.config.components:
        for medium in (GPU, CPU):
            pool_state = state.pools.get((component, medium))
            board.free[component, medium] = 0 if pool_state is None else len(pool_state.free)
    return board


def _piece_of(node: NodeState, begin: int, parent: Piece) -> Piece:
    """A node as a piece that begins at a page, below the piece of its parent."""
    parts = node.parts
    return Piece(
        node.node_id,
        begin,
        begin + len(node.pages),
        parent,
        on={GPU: parts.device, CPU: parts.host},
        was={GPU: parts.device, CPU: parts.host},
        locked=parts.locked,
        loading=parts.loading,
        backing=parts.backing,
    )


def cut_at(board: Board, path: Iterable[NodeState], page: int) -> None:
    """Cut a path so that a piece begins at a page."""
    for piece in board.path(path):
        if piece.begin < page < piece.end:
            board.cut(piece, page)
            return


def prefix_pieces(board: Board, path: list[NodeState], key: Key) -> list[Piece]:
    """The pieces of a key; the last one is cut where the key ends."""
    cut_at(board, path, len(key))
    return [piece for piece in board.path(path) if piece.end <= len(key)]


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
