"""Tiers: variations of when stores are emitted, what a lock holds, and how copies are bundled.

If a store is emitted at the enqueue and the copy fails, removes must be emitted for its pages, the
deepest first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kvcanon.lab.variants.override import Overrides
from kvcanon.lab.variants.registry import lone_variation, variation
from kvcanon.lab.variants.wrapped_rules import (
    Original,
    around,
    everywhere,
    instead,
    wrap,
    wrap_everywhere,
)
from kvcanon.reference import backup, cache, events, load, lock, transfer, tree
from kvcanon.reference.events import emit_removed, emit_stored
from kvcanon.reference.host import ensure_host_slots
from kvcanon.reference.snapshot import take_snapshot
from kvcanon.reference.state import Hold, Node, State, Transfer
from kvcanon.reference.tree import PathNode, path_to, upwards
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.operations import LoadedBack
from kvcanon.spec.oracle.window import window_start
from kvcanon.spec.replay.board import board_of, could_be_free
from kvcanon.spec.transfer import Copy, Direction, TransferStatus
from kvcanon.spec.types import (
    CPU,
    FULL,
    GPU,
    MAMBA,
    SWA,
    Component,
    Counts,
    Key,
    Medium,
    TransferId,
)

Announce = Callable[[State, Node, Medium], None]
Enqueue = Callable[[State, Direction, list[tuple[Node, Component]], Hold], Transfer]
Undo = Callable[[State, Transfer], None]


@lone_variation
def loads_announced_early(overrides: Overrides) -> None:
    """The stores of loaded pages are emitted at the enqueue."""
    wrap(overrides, load, transfer.enqueue, _telling)
    wrap(overrides, transfer, emit_stored, _silent_on_arrival)
    wrap(overrides, events, events._is_announced, _announced_at_enqueue)
    wrap(overrides, transfer, transfer._undo, _taking_back)


@variation
def loads_of_use_early(overrides: Overrides) -> None:
    """A load copies, is usable and emits its stores at the enqueue."""
    wrap(overrides, load, transfer.enqueue, _telling)
    wrap(overrides, load, transfer.enqueue, _copying_at_once)
    wrap(overrides, transfer, emit_stored, _silent_on_arrival)
    wrap(overrides, events, events._is_announced, _announced_at_enqueue)
    wrap(overrides, transfer, transfer._settle_one, _never_failing)
    wrap_everywhere(overrides, tree.cut, _naming_both_parts)


@variation
def whole_node_windows(overrides: Overrides) -> None:
    """A lock, and a load, holds the whole node in which its window begins."""

    def start_wrapper(start: Original[int | None], state: State, end: Node) -> int | None:
        begin = start(state, end)
        for node in upwards(end) if begin is not None else ():
            if node.start <= (begin or 0):
                return node.start
        return begin

    def needed_wrapper(
        needed: Original[Counts], state: State, stops: list[PathNode], end_pages: int
    ) -> Counts:
        exact = needed(state, stops, end_pages)
        window = window_start(end_pages, state.config.window_tokens or 1, state.config.page_size)
        before_window = sum(
            window - node.start
            for node, shared in stops
            if SWA in state.config.components
            and load._on_host_only(node, SWA)
            and node.start < window < node.start + shared
        )
        return Counts(exact.full, exact.swa + before_window, exact.mamba)

    wrap_everywhere(overrides, lock.held_window_start, start_wrapper)
    wrap(overrides, load, load._needed, needed_wrapper)


@variation
@around(backup.back_up, *everywhere(backup.back_up))
def chains_in_one_copy(
    back_up: Original[tuple[TransferId, ...]], state: State, node: Node
) -> tuple[TransferId, ...]:
    """A node is backed up together with its chain, in one transfer, if all of it fits.

    If it cannot fit, nothing is evicted for it, since no answer would show the attempt.
    """
    parts = [(each, component) for each in path_to(node) for component in backup._missing(each)]
    needed = {
        component: sum(len(n.data[component].device or ()) for n, c in parts if c is component)
        for component in state.config.components
    }
    counts = Counts(**{component.value: count for component, count in needed.items()})
    # A receipt holds the mamba state at its end, and none before.
    inner = any(component is MAMBA and each is not node for each, component in parts)
    in_vain = not could_be_free(board_of(take_snapshot(state)), counts, CPU)
    if not parts or inner or in_vain or not ensure_host_slots(state, counts):
        return back_up(state, node)
    key = Key(tuple(p for each in path_to(node) for p in each.pages), node.namespace)
    held = lock.hold(state, node, key, 0 if SWA in node.data else None)
    return (transfer.enqueue(state, Direction.BACKUP, parts, held).transfer_id,)


@variation
@instead(transfer._in_order)
def independent_copies_settle_early(
    state: State, ends: Mapping[TransferId, bool]
) -> list[Transfer]:
    """A copy settles as soon as it ends and the copies that it builds on have settled."""
    found: list[Transfer] = []
    waiting: list[Transfer] = []
    for each in state.transfers.values():
        may = each.transfer_id in ends and not any(
            earlier.direction is each.direction
            and transfer._builds_on(each, {node for node, c in earlier.parts if c is FULL})
            for earlier in waiting
        )
        (found if may else waiting).append(each)
    return found


@variation
@around(load.load_back, cache)
def loads_without_quota(
    usual: Original[LoadedBack], state: State, key: Key, quota_pages: int | None
) -> LoadedBack:
    """A load-back with a quota is refused."""
    if quota_pages is not None:
        raise BadArgument("quota_pages", "is given; this cache takes none")
    return usual(state, key, quota_pages)


def _telling(
    enqueue: Enqueue,
    state: State,
    direction: Direction,
    parts: list[tuple[Node, Component]],
    held: Hold,
) -> Transfer:
    """Wrap the enqueue of a load: emit the stores of its pages."""
    made = enqueue(state, direction, parts, held)
    for node, component in parts:
        if component is FULL:
            emit_stored(state, node, GPU)
    return made


def _copying_at_once(
    enqueue: Enqueue,
    state: State,
    direction: Direction,
    parts: list[tuple[Node, Component]],
    held: Hold,
) -> Transfer:
    """Wrap the enqueue of a load: copy at once, so that no node waits."""
    made = enqueue(state, direction, parts, held)
    copies = tuple(Copy(c, made.sources[c], made.targets[c]) for c in made.sources)
    transfer._perform(state, made, copies)
    for node, component in parts:
        node.data[component].loading = None
    return made


def _never_failing(
    settle: Original[TransferStatus], state: State, ended: Transfer, *, ok: bool
) -> TransferStatus:
    """Settle a copy that was done at its enqueue; the engine's failure is ignored."""
    return settle(state, ended, ok=ok or ended.direction is Direction.LOAD_BACK)


def _naming_both_parts(cut: Original[Node], state: State, node: Node, at: int) -> Node:
    """Wrap a cut: both parts belong to the node's loads in flight, and wait for none."""
    upper = cut(state, node, at)
    for each in state.transfers.values():
        for component in (FULL, SWA):
            if (node, component) in each.parts and (upper, component) not in each.parts:
                each.parts.insert(each.parts.index((node, component)), (upper, component))
    return upper


def _silent_on_arrival(announce: Announce, state: State, node: Node, medium: Medium) -> None:
    """Wrap the stores of a settled copy: those of the device were emitted at the enqueue."""
    if medium is not GPU:
        announce(state, node, medium)


def _announced_at_enqueue(
    is_announced: Callable[[Node, Medium], bool], node: Node, medium: Medium
) -> bool:
    """Wrap what a given-up log describes: also the pages of the device that are being loaded."""
    return is_announced(node, medium) or (medium is GPU and node.data[FULL].device is not None)


def _taking_back(undo: Undo, state: State, failed: Transfer) -> None:
    """Wrap the undoing of a failed load: emit removes for it and for the loads that build on it."""
    if failed.direction is Direction.LOAD_BACK:
        lost = {node for node, component in failed.parts if component is FULL}
        for later in reversed(state.transfers.values()):
            if later.direction is failed.direction and transfer._builds_on(later, lost):
                _announce_gone(state, later)
        _announce_gone(state, failed)
    undo(state, failed)


def _announce_gone(state: State, loading: Transfer) -> None:
    for node, component in reversed(loading.parts):
        if component is FULL:
            emit_removed(state, node, GPU)
