"""Replays the backups of an insert: the data that must be copied, and the evictions for it.

The insert must back up the nodes down to the deepest one with enough hits, if they have no host
copy; and window data and mamba states that came back since their node was copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from attrs import frozen

from kvcanon.spec.config import Choosing
from kvcanon.spec.operations import Insert, Inserted
from kvcanon.spec.oracle.backup import backup_chain
from kvcanon.spec.oracle.window import window_nodes, window_start
from kvcanon.spec.replay.board import Board, Piece, board_of, could_be_free, cut_at
from kvcanon.spec.replay.host import HostChoices, ensure_host_slots
from kvcanon.spec.snapshot import NO_POOL, NodeState, Snapshot, TransferState
from kvcanon.spec.types import CPU, FULL, GPU, MAMBA, SWA, Component, Counts, NodeId
from kvcanon.spec.views import Step, path_of

Part = tuple[NodeId, Component]


def _made(step: Step) -> list[TransferState]:
    """The transfers that an insert enqueued, in order."""
    ids = step.outcome.backups if isinstance(step.outcome, Inserted) else ()
    transfers = {each.transfer_id: each for each in step.after.transfers}
    return [transfers[each] for each in ids if each in transfers]


@frozen
class Due:
    """A node that an insert must back up, and the components to copy."""

    node: NodeState
    """The node, in the state after."""
    components: tuple[Component, ...]
    """The components that it has on the device and did not have on the host."""

    def counts(self) -> Counts:
        """The host slots that its copy takes."""
        return Counts.of({c: len(self.node[c].device or ()) for c in self.components})

    def done(self) -> bool:
        """Whether all of it is on the host, or being copied there."""
        return all(self.node[component].host is not None for component in self.components)


def enqueued_parts(step: Step) -> dict[Part, int]:
    """The parts that an insert copies to the host, with the index of their transfer."""
    made = _made(step)
    return {part: number for number, transfer in enumerate(made) for part in transfer.parts}


def due_backups(step: Step) -> list[Due]:
    """The backups that an insert must enqueue: the chain, root first, then healed nodes."""
    assert isinstance(step.operation, Insert)
    state, threshold = step.after, step.after.config.backup_hits
    nodes = [stop.node for stop in path_of(state, step.operation.key)]
    hit = [at for at, node in enumerate(nodes) if threshold and node.hit_count >= threshold]
    return _lacking(step, nodes[: hit[-1] + 1]) if hit else []


def _lacking(step: Step, nodes: list[NodeState]) -> list[Due]:
    """What a backup of the last of these nodes copies: its chain, root first, then healed nodes."""
    state = step.after
    if not nodes:
        return []
    copied = enqueued_parts(step)

    def had(node: NodeState, component: Component) -> bool:
        return node[component].host is not None and (node.node_id, component) not in copied

    backed = tuple([had(node, FULL) for node in nodes])
    chain = [nodes[at] for at in backup_chain(backed, state.config.backed_parents)]
    window_from = _window_from(state, nodes[-1])
    healed = [node for node in nodes if node not in chain and state.end(node) > window_from]
    return [
        Due(node, missing)
        for node in [*chain, *healed]
        if (
            missing := tuple(
                c for c in state.config.components if node[c].resident(GPU) and not had(node, c)
            )
        )
    ]


def _window_from(state: Snapshot, end: NodeState) -> int:
    config = state.config
    if config.window_tokens is None:
        return 0
    return window_start(state.end(end), config.window_tokens, config.page_size)


def copies_fit(step: Step) -> bool:
    """Whether the free host slots were enough for all copies, and for the first that is missing."""
    needed = [counts for counts, _ in _by_transfer(step)]
    needed += [due.counts() for due in due_backups(step) if not due.done()][:1]
    pools = step.before.pools
    return all(
        sum(counts[component] for counts in needed)
        <= len(pools.get((component, CPU), NO_POOL).free)
        for component in step.before.config.components
    )


def copies_several(step: Step) -> bool:
    """Whether an insert enqueued a transfer of several nodes."""
    return any(len({node_id for node_id, _ in each.parts}) > 1 for each in _made(step))


def replay_backups(step: Step, choices: HostChoices, *, node_by_node: bool = False) -> Board:
    """The board after an insert; only its host side is replayed.

    Room is made for one transfer after the other. A transfer of several nodes may also get its room
    as if each node had one of its own.
    """
    board, path = _inserted(step)
    for needed, parts in _by_node(step) if node_by_node else _by_transfer(step):
        ensure_host_slots(board, needed, choices)
        for component in board.config.components:
            board.free[component, CPU] -= needed[component]
        for node_id, component in parts:
            _copy(step.after, path, step.after.nodes.get(node_id), component)
    if choices.tries_in_vain:
        left = next((due for due in _may_be_tried(step) if not due.done()), None)
        if left is not None and not _would_be_made(board, left):
            ensure_host_slots(board, left.counts(), choices)
    return board


def _would_be_made(board: Board, due: Due) -> bool:
    """Whether a copy fits that the cache left out by its own choice: then it was not tried."""
    own = board.profile.backups is Choosing.OWN
    return own and could_be_free(board, due.counts(), CPU)


def _may_be_tried(step: Step) -> list[Due]:
    """The backups that an insert may try: all of its path where the cache chooses by itself."""
    assert isinstance(step.operation, Insert)
    if step.after.profile.backups is not Choosing.OWN:
        return due_backups(step)
    return _lacking(step, [stop.node for stop in path_of(step.after, step.operation.key)])


def _by_transfer(step: Step) -> Iterator[tuple[Counts, Iterable[Part]]]:
    for transfer in _made(step):
        yield Counts.of({c: len(slots) for c, slots in transfer.targets.items()}), transfer.parts


def _by_node(step: Step) -> Iterator[tuple[Counts, Iterable[Part]]]:
    copied = enqueued_parts(step)
    for due in due_backups(step):
        parts = [(due.node.node_id, c) for c in due.components]
        if all(part in copied for part in parts):
            yield due.counts(), parts


def _inserted(step: Step) -> tuple[Board, list[Piece]]:
    """The board with the inserted key on the device, before anything is copied."""
    assert isinstance(step.operation, Insert)
    key, board = step.operation.key, board_of(step.before)
    before = [stop.node for stop in path_of(step.before, key)]
    after = path_of(step.after, key)
    starts = [step.after.starts[stop.node.node_id] for stop in after]
    shared = sum(stop.shared_pages for stop in path_of(step.before, key))
    near_from = _near(step, [stop.shared_pages for stop in after])
    for page in (*starts, near_from, shared):
        # Pages that the key does not share belong to other keys.
        cut_at(board, before, min(page, shared))
    nodes = {start: stop.node for start, stop in zip(starts, after, strict=True)}
    path = [piece for piece in board.path(before) if piece.end <= shared]
    here: NodeState | None = None
    board.arrivals += 1
    for piece in path:
        here = nodes.get(piece.begin, here)
        for component in board.config.components:
            ends_here = component is not MAMBA or here is None or piece.end == step.after.end(here)
            if here is not None and here[component].device is not None and ends_here:
                piece.on[GPU] |= {component}
        if not board.profile.host_order_by_use:
            continue
        if piece.begin >= near_from:
            piece.arrived[SWA, CPU] = 1e9 + board.arrivals
        if piece.end == len(key):
            piece.arrived[MAMBA, CPU] = 1e9 + board.arrivals
    return board, path


def _near(step: Step, lengths: list[int]) -> int:
    """The first page whose window data the insert made recent."""
    config = step.after.config
    if config.window_tokens is None:
        return 0
    tokens = tuple([pages * config.page_size for pages in reversed(lengths)])
    near = window_nodes(tokens, config.window_tokens, config.page_size)
    return sum(lengths[: len(lengths) - near])


def _copy(state: Snapshot, path: list[Piece], node: NodeState | None, component: Component) -> None:
    """Mark the data of a transfer as copied, and hold it and the path above it."""
    if node is None:
        return
    begin, end = state.starts[node.node_id], state.end(node)
    for piece in path:
        if piece.end <= end:
            piece.locked |= {FULL}
        if (
            begin <= piece.begin
            and piece.end <= end
            and (component is not MAMBA or piece.end == end)
        ):
            piece.on[CPU] |= {component}
            piece.locked |= {component}
