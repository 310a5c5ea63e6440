"""Situations: what happens in a step or is present in a state, as predicates for premises."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kvcanon.spec.errors import EngineRaised
from kvcanon.spec.events import BlockRemoved, BlockStored, Event
from kvcanon.spec.laws.comparison import candidates, losses
from kvcanon.spec.operations import (
    Evict,
    Evicted,
    EvictHost,
    Insert,
    InsertHost,
    LoadBack,
    LoadDecision,
    LoadedBack,
    Lock,
    Match,
    Matched,
    Refused,
    Settled,
)
from kvcanon.spec.snapshot import NO_POOL, NodeState, Snapshot
from kvcanon.spec.transfer import Direction, TransferStatus
from kvcanon.spec.types import CPU, FULL, GPU, MAMBA, SWA, Component, Counts, Medium, Slot
from kvcanon.spec.views import PageRow, Step, path_of

AUXILIARY = (SWA, MAMBA)

# States.


def nodes(state: Snapshot) -> int:
    """How many nodes there are below the root."""
    return len(state.nodes) - 1


def is_below_node(state: Snapshot, node: NodeState) -> bool:
    """Whether a node's parent has pages, that is, is not the root."""
    return node.parent_id is not None and node.parent_id != state.root_id


def locked(state: Snapshot, component: Component) -> bool:
    """Whether any node has lock refs of a component."""
    return any(component in node.parts.locked for node in state.below_root())


def held_slots(state: Snapshot, component: Component) -> frozenset[Slot]:
    """The device slots of a component that requests hold."""
    return state.pools.get((component, GPU), NO_POOL).held


def of_requests(state: Snapshot) -> bool:
    """Whether a request has an open receipt."""
    return None in [hold.transfer_id for hold in state.holds]


# Steps.


def sends_both_ways(step: Step) -> bool:
    """Whether a page was stored on one medium and removed from another in one step."""
    stored = {e.block_hash: e.medium for e in step.events if isinstance(e, BlockStored)}
    return any(
        isinstance(e, BlockRemoved) and stored.get(e.block_hash) not in (None, e.medium)
        for e in step.events
    )


def went_well(step: Step) -> bool:
    """Whether a call was served, not refused."""
    return not isinstance(step.outcome, Refused)


def may_evict(step: Step) -> bool:
    """Whether a call evicts from the device where it has to, or something left on its own."""
    left = step.unasked is not None and bool(step.unasked.left)
    return isinstance(step.operation, Evict | LoadBack) or left


def broken_off(step: Step) -> bool:
    """Whether the engine raised while a call waited for a copy of victims that it had ordered."""
    asked = step.asked
    if asked is None or asked.broke_off is None or not isinstance(step.outcome, Refused):
        return False
    return isinstance(step.outcome.error, EngineRaised) and any(
        each.transfer_id == asked.broke_off and each.direction is Direction.BACKUP
        for each in asked.orders
    )


def changed(step: Step) -> bool:
    """Whether any page changed in any way."""
    return any(step.changed)


def finds_of_loads(step: Step) -> bool:
    """Whether a match found pages of nodes that a load-back in flight is filling."""
    operation, outcome = step.operation, step.outcome
    if not isinstance(operation, Match) or not isinstance(outcome, Matched):
        return False
    filled = {
        node_id
        for each in step.before.transfers
        if each.direction is Direction.LOAD_BACK and not each.cancelled
        for node_id, _ in each.parts
    }
    found = operation.key.prefix(max(0, outcome.prefix_pages))
    return bool(filled) and any(node.node_id in filled for node, _ in path_of(step.before, found))


def used_pages(step: Step) -> int:
    """Pages of the prefix that a match or an insert used; 0 for other operations."""
    return 0 if step.used is None else len(step.used)


def others_before(step: Step) -> bool:
    """Whether there were nodes off the path of a call's key."""
    call = step.operation
    if not isinstance(call, Match | Lock | Insert | InsertHost | LoadBack):
        return False
    return went_well(step) and nodes(step.before) > len(path_of(step.before, call.key))


def window_left_behind(step: Step) -> bool:
    """Whether the used prefix has window data out of reach of its end."""
    used, config = step.used, step.after.config
    if used is None or config.window_tokens is None:
        return False
    reach = config.window_tokens + config.page_size
    return any(
        node.swa.anywhere and (len(used) - step.after.end(node)) * config.page_size >= reach
        for node, _ in path_of(step.after, used)
    )


def freed(step: Step) -> Counts:
    """The slots that an eviction or a load-back says that it evicted."""
    if isinstance(step.outcome, Evicted):
        return step.outcome.freed
    return step.outcome.evicted if isinstance(step.outcome, LoadedBack) else Counts()


def eviction_medium(step: Step) -> Medium | None:
    """The medium that an eviction takes slots from; None where the step is no eviction."""
    if isinstance(step.outcome, Evicted):
        return CPU if isinstance(step.operation, EvictHost) else GPU
    return None


def evicts_from(step: Step) -> Medium | None:
    """The medium that an eviction freed slots on; None where it freed none."""
    if not isinstance(step.outcome, Evicted) or not step.outcome.freed:
        return None
    return GPU if isinstance(step.operation, Evict) else CPU


def chose_a_victim(step: Step) -> bool:
    """Whether slots of one component were evicted while other nodes could have left instead."""
    medium, call = evicts_from(step), step.operation
    if medium is None or not isinstance(call, Evict | EvictHost):
        return False
    one = [component for component in Component if call.counts[component]]
    return len(one) == 1 and next(candidates(step.after, one[0], medium), None) is not None


def lost_from(step: Step, medium: Medium) -> Iterator[tuple[PageRow, PageRow | None]]:
    """The rows, before and after, of pages that lost full data on a medium in an eviction."""
    for each in step.lost if evicts_from(step) is medium else ():
        if each.component is FULL and each.medium is medium and each.now is None:
            yield each.before, each.after


def had_to_copy(step: Step) -> bool:
    """Whether an eviction took data that was on the device alone."""
    return any(
        data.resident(GPU) and data.host is None
        for each in losses(step, GPU)
        for data in each.node.data.values()
    )


def cascades(step: Step) -> bool:
    """Whether a victim had window data or a mamba state besides full data."""
    medium = evicts_from(step)
    if medium is None:
        return False
    return any(each[component] for each in losses(step, medium) for component in AUXILIARY)


def left_the_tree(step: Step) -> bool:
    """Whether an eviction removed pages from the tree."""
    return evicts_from(step) is not None and bool(step.changed[0].keys() - step.changed[1].keys())


def decision_of(step: Step) -> LoadDecision | None:
    """The decision of a load-back; None for other operations, and where it was refused."""
    return step.outcome.decision if isinstance(step.outcome, LoadedBack) else None


def ended(step: Step) -> set[TransferStatus]:
    """The statuses with which copies were settled in a poll or a flush."""
    if not isinstance(step.outcome, Settled):
        return set()
    return {status for _, status in step.outcome.transfers}


def settled_out_of_two(step: Step) -> bool:
    """Whether a copy was settled while another of the same direction was in flight."""
    if not ended(step):
        return False
    directions = [each.direction for each in step.before.transfers]
    return len(directions) > len(set(directions))


def cancelled_some(step: Step) -> bool:
    """Whether a copy failed and another was cancelled for it."""
    return TransferStatus.FAILED in ended(step) and (
        TransferStatus.CANCELLED in ended(step)
        or any(each.cancelled for each in step.after.transfers)
    )


def stores_a_child(events: Iterable[Event]) -> bool:
    """Whether a store names a parent page."""
    return any(isinstance(event, BlockStored) and event.parent_hash is not None for event in events)


def named_anew(step: Step) -> bool:
    """Whether a node with hashes is new, or was cut."""
    if not step.difference.touched:
        return False
    before = step.before.nodes.keys()
    return any(
        step.after.nodes[node_id].hashes is not None for node_id in step.after.nodes.keys() - before
    )
