"""Unasked: what a cache did in a call without being asked, and the step without it.

A cache may act on its own, in any call: data that nobody holds expires, copies begin, data moves to
other slots. `without_unasked` takes that out of a step, so that the laws of steps judge what the
call itself did: data that left or moved on its own does so before the call, and a copy that nobody
asked for begins after it. Only what a cache may do on its own is taken out: whatever else the call
changed is left for the laws. The laws of states judge the states as shown, and those of `asked`
whether the profile of the cache allows what was taken out.

What a call evicts by itself counts as its eviction, not as an expiry. A call that is refused for
lack of slots has evicted nothing, and nothing is taken out of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import TypeAlias

from attrs import evolve

from kvcanon.spec.errors import OutOfSlots
from kvcanon.spec.events import AllBlocksCleared, BlockRemoved, Event, Resident
from kvcanon.spec.laws.accounting import usage_of
from kvcanon.spec.laws.comparison import writes_back
from kvcanon.spec.laws.expected_events import emits_at_enqueue, may_give_up, replaces_events
from kvcanon.spec.laws.lock import covered_refs
from kvcanon.spec.laws.page_hashes import PageHashes
from kvcanon.spec.operations import (
    Evict,
    EvictHost,
    Insert,
    InsertHost,
    LoadBack,
    Outcome,
    Refused,
    Reset,
)
from kvcanon.spec.snapshot import NO_POOL, ComponentState, NodeState, Pool, Snapshot, TransferState
from kvcanon.spec.transfer import Direction
from kvcanon.spec.types import CPU, FULL, GPU, SWA, Component, Medium, NodeId, Slot
from kvcanon.spec.views import COLUMN, LostSlot, Step, Unasked, pages_by_node

Nodes: TypeAlias = Mapping[NodeId, NodeState]
Left: TypeAlias = Mapping[NodeId, set[Pool]]
"""The data of each node that left its medium."""

NOTHING: Mapping[Pool, Collection[Slot]] = {}

EVICTING: Mapping[Medium, tuple[type, ...]] = {
    GPU: (Evict, EvictHost, LoadBack, Reset),
    CPU: (Evict, EvictHost, LoadBack, Insert, InsertHost, Reset),
}
"""The calls that may evict from a medium by themselves."""


def without_unasked(step: Step) -> Step:
    """The step without what the cache did on its own (`Step.unasked`)."""
    if step.before is step.after or _lacked_slots(step.outcome):
        return step
    begun = _begun(step) if "transfers" in step.difference.fields else []
    if not begun and not any(_is_unasked(step, each) for each in step.lost):
        return step
    after = _without_copies(step.after, begun, like=step.before)
    inner = evolve(step, after=after, difference=None)
    left = _left(inner)
    kept = _without_data(inner, left)
    before, moved = _moved(evolve(step, before=kept, after=after, difference=None))
    if before is step.before and after is step.after:
        return step
    passing = _passing(step) if left else set()
    removes = passing | set(_removed(step.before, left))
    stores = passing | {*_announced(step.after, begun), *_saved(step.before, kept)}
    events = tuple(_without_events(step.events, removes, stores))
    unasked = Unasked(step.before, step.after, left, moved, begun)
    asked = evolve(
        step, before=before, after=after, events=events, unasked=unasked, difference=None
    )
    if not replaces_events(asked) or may_give_up(asked):
        return asked
    # Its own events were too many to wait, so that those that wait tell of the state instead.
    return evolve(asked, before=evolve(before, events=after.events), events=(), difference=None)


def _lacked_slots(outcome: Outcome) -> bool:
    return isinstance(outcome, Refused) and isinstance(outcome.error, OutOfSlots)


def _is_unasked(step: Step, lost: LostSlot) -> bool:
    """Whether a call that lost this slot may have done it unasked."""
    if lost.now is not None:
        return lost.medium is GPU
    return not isinstance(step.operation, EVICTING[lost.medium])


# Copies that begin.


def _begun(step: Step) -> list[TransferState]:
    """The copies that a call began, which its answer does not name and need not."""
    begins = {
        Direction.BACKUP: isinstance(step.operation, Insert | Evict | LoadBack),
        Direction.LOAD_BACK: isinstance(step.operation, LoadBack),
    }
    known = {each.transfer_id for each in step.before.transfers}
    return [
        each
        for each in step.after.transfers
        if each.transfer_id not in known
        and not each.cancelled
        and not begins[each.direction]
        and all(_names_data(step.after, *part) for part in each.parts)
    ]


def _names_data(state: Snapshot, node_id: NodeId, component: Component) -> bool:
    """Whether a node has a component; a copy that names another is left for ASYNC-3."""
    return node_id in state.nodes and component in state.nodes[node_id].data


def _target(transfer: TransferState) -> Medium:
    return GPU if transfer.direction is Direction.LOAD_BACK else CPU


def _without_copies(state: Snapshot, begun: Collection[TransferState], like: Snapshot) -> Snapshot:
    """A state as it would be without these copies: their targets free, their holds released."""
    if not begun:
        return state
    ids = {each.transfer_id for each in begun}
    data = {node_id: dict(node.data) for node_id, node in state.nodes.items()}
    for transfer in begun:
        for node_id, component in transfer.parts:
            part, medium = data[node_id][component], _target(transfer)
            data[node_id][component] = _emptied(part, medium)
    held = [each for each in state.holds if each.transfer_id in ids]
    for node_id, refs in covered_refs(state, held).items():
        for component, part in data[node_id].items():
            lower = refs[COLUMN[component]]
            data[node_id][component] = evolve(part, lock_refs=part.lock_refs - lower)
    nodes = {node_id: _with_data(node, data[node_id]) for node_id, node in state.nodes.items()}
    free: dict[Pool, list[Slot]] = {}
    for transfer in begun:
        for component, targets in transfer.targets.items():
            free.setdefault((component, _target(transfer)), []).extend(targets)
    return evolve(
        _rebuilt(state, nodes, free, like=like),
        holds=tuple([each for each in state.holds if each.transfer_id not in ids]),
        transfers=tuple([each for each in state.transfers if each.transfer_id not in ids]),
    )


# Data that leaves.


def _left(step: Step) -> Left:
    """The data that left a medium though the call did not evict there, of the lowest nodes first.

    It expires, or makes room for copies that begin on their own.
    """
    before = step.before
    media = [each for each in (GPU, CPU) if not isinstance(step.operation, EVICTING[each])]
    left: dict[NodeId, set[Pool]] = {}
    changed = step.difference.changed[0] if media else []
    for node in sorted(changed, key=lambda each: -len(before.upwards[each.node_id])):
        now = step.after.nodes.get(node.node_id)
        if now is not None and now.pages != node.pages:
            continue
        for pool in _gone(node, now, media):
            component, medium = pool
            idle = _is_idle(node) if component is FULL else _is_free(node[component])
            if idle and (component is not FULL or _is_leaf(step, node, medium, left)):
                left.setdefault(node.node_id, set()).add(pool)
    return left


def _is_idle(node: NodeState) -> bool:
    """Whether no request and no copy needs any data of a node."""
    return all(_is_free(part) for part in node.data.values())


def _is_free(part: ComponentState) -> bool:
    """Whether no request and no copy needs this data."""
    return not part.lock_refs and part.loading is None and part.backing is None


def _gone(node: NodeState, now: NodeState | None, media: Iterable[Medium]) -> Iterator[Pool]:
    """The data of a node that is not there any more, on the device first."""
    for medium in media:
        for component, part in node.data.items():
            kept = None if now is None else now[component].slots(medium)
            if part.slots(medium) is not None and kept is None:
                yield component, medium


def _is_leaf(step: Step, node: NodeState, medium: Medium, left: Left) -> bool:
    """Whether a node is a leaf of a medium once other data has `left`."""

    def has(each: NodeState, there: Medium) -> bool:
        gone = left.get(each.node_id, ())
        return each.full.slots(there) is not None and (FULL, there) not in gone

    children, now = step.before.children(node), step.after.nodes.get(node.node_id)
    if now is None and any(has(child, GPU) or has(child, CPU) for child in children):
        return False
    if medium is CPU and has(node, GPU):
        return writes_back(step.before)  # It is a duplicate there.
    return not any(has(child, medium) for child in children)


def _without_data(step: Step, left: Left) -> Snapshot:
    """The state before a step, without the data that left; a node without any data is gone.

    Under write_back, data that leaves the device goes to the host.
    """
    state = step.before
    if not left:
        return state
    nodes, gone = dict(state.nodes), set[NodeId]()
    freed, taken = dict[Pool, list[Slot]](), dict[Pool, list[Slot]]()
    for node_id, pools in left.items():
        node, now = nodes[node_id], step.after.nodes.get(node_id)
        data = dict(node.data)
        for component, medium in pools:
            freed.setdefault((component, medium), []).extend(data[component].slots(medium) or ())
            data[component] = _emptied(data[component], medium)
        copied = now is not None and writes_back(state) and any(each[1] is GPU for each in pools)
        for component, part in now.data.items() if now is not None and copied else ():
            if part.host is not None and part.host != data[component].host:
                freed.setdefault((component, CPU), []).extend(data[component].host or ())
                taken.setdefault((component, CPU), []).extend(part.host)
                data[component] = evolve(data[component], host=part.host)
        nodes[node_id] = _with_data(node, data)
        if not any(each.anywhere for each in data.values()):
            gone.add(node_id)
    for node_id in gone:
        parent_id = nodes[node_id].parent_id
        if parent_id is not None and parent_id not in gone:
            parent = nodes[parent_id]
            below = tuple([each for each in parent.child_ids if each not in gone])
            nodes[parent_id] = evolve(parent, child_ids=below)
    kept = {node_id: node for node_id, node in nodes.items() if node_id not in gone}
    return _rebuilt(state, kept, freed, taken, like=step.after)


# Data that moves.


def _moved(step: Step) -> tuple[Snapshot, Collection[NodeId]]:
    """The state before a step with idle data in the device slots to which it moved, and its nodes.

    What moves goes to slots that were free, or that other data left in the same call.
    """
    before = step.before
    if not any(each.now is not None and each.medium is GPU for each in step.lost):
        return before, ()
    rows, numbers = step.changed[1], pages_by_node(step.changed[0])
    nodes, came, went = dict(before.nodes), dict[Pool, list[Slot]](), dict[Pool, list[Slot]]()
    moved: dict[NodeId, None] = {}
    for node in step.difference.changed[0]:
        if not _is_idle(node) and not _is_idle(step.after.nodes.get(node.node_id, node)):
            continue
        now = [rows.get(number) for number in numbers.get(node.node_id, ())]
        for component, part in node.data.items():
            column = COLUMN[component]
            places = now if component in (FULL, SWA) else now[-1:]
            found = [None if row is None else row.device[column] for row in places]
            slots = tuple([slot for slot in found if slot is not None])
            if part.device is None or part.device == slots or len(slots) != len(part.device):
                continue
            data = {**nodes[node.node_id].data, component: evolve(part, device=slots)}
            nodes[node.node_id] = _with_data(nodes[node.node_id], data)
            came.setdefault((component, GPU), []).extend(slots)
            went.setdefault((component, GPU), []).extend(part.device)
            moved[node.node_id] = None
    for pool, slots_there in came.items():
        if not set(slots_there) <= before.pools.get(pool, NO_POOL).free_set | set(went[pool]):
            return before, ()
    if not moved:
        return before, ()
    return _rebuilt(before, nodes, went, came, like=step.after), tuple(moved)


# States without something.


def _emptied(part: ComponentState, medium: Medium) -> ComponentState:
    if medium is GPU:
        return evolve(part, device=None, loading=None)
    return evolve(part, host=None, backing=None)


def _with_data(node: NodeState, data: Mapping[Component, ComponentState]) -> NodeState:
    return node if data == node.data else evolve(node, data=data)


def _rebuilt(
    state: Snapshot,
    nodes: Nodes,
    freed: Mapping[Pool, Collection[Slot]],
    taken: Mapping[Pool, Collection[Slot]] = NOTHING,
    *,
    like: Snapshot,
) -> Snapshot:
    """A state with other nodes, and with all that follows from them.

    `freed` slots are free now, and `taken` ones are not. Free lists with the slots of those in
    `like` have their order.
    """
    recency = {
        (component, medium): tuple([each for each in order if _has(nodes, each, component, medium)])
        for (component, medium), order in state.recency.items()
    }
    pools = {
        name: evolve(
            pool,
            free=_free(
                pool.free,
                freed.get(name, ()),
                taken.get(name, ()),
                like.pools.get(name, NO_POOL).free,
            ),
        )
        for name, pool in state.pools.items()
    }
    usage = {component: usage_of(nodes.values(), component) for component in state.usage}
    full, swa = (set(freed.get((each, GPU), ())) for each in (FULL, SWA))
    window_of = {a: b for a, b in state.swa_of_full.items() if a not in full and b not in swa}
    for node_id, node in nodes.items():
        if node is not state.nodes[node_id] and node.swa.device is not None:
            window_of.update(zip(node.full.device or (), node.swa.device, strict=False))
    return evolve(
        state, nodes=nodes, recency=recency, pools=pools, usage=usage, swa_of_full=window_of
    )


def _has(nodes: Nodes, node_id: NodeId, component: Component, medium: Medium) -> bool:
    node = nodes.get(node_id)
    return node is not None and node[component].slots(medium) is not None


def _free(
    free: Sequence[Slot], freed: Collection[Slot], taken: Collection[Slot], like: Sequence[Slot]
) -> tuple[Slot, ...]:
    """A free list with some slots more, and without some; in the order of `like`, if it can be."""
    slots = tuple([slot for slot in (*free, *freed) if slot not in taken])
    return tuple(like) if sorted(slots) == sorted(like) else slots


# Events.


def _removed(state: Snapshot, left: Left) -> Iterator[Resident]:
    """The pages whose full data left a medium on its own."""
    hashes = PageHashes(state)
    for node_id, pools in left.items():
        for component, medium in pools:
            if component is FULL:
                yield from zip(repeat(medium), hashes.of(state.nodes[node_id]), strict=False)


def _saved(before: Snapshot, without: Snapshot) -> Iterator[Resident]:
    """The pages that went to the host as their data left the device."""
    hashes = PageHashes(before)
    for node_id, node in without.nodes.items() if without is not before else ():
        if node.full.host is not None and before.nodes[node_id].full.host is None:
            yield from zip(repeat(CPU), hashes.of(before.nodes[node_id]), strict=False)


def _passing(step: Step) -> set[Resident]:
    """The pages that came to the host and left it again, or the other way round, in one call.

    Under write_back the host copy of one victim may have to make way for the copy of the next.
    """
    said: dict[bool, set[Resident]] = {True: set(), False: set()}
    for event in step.events if writes_back(step.before) else ():
        if not isinstance(event, AllBlocksCleared) and event.medium is CPU:
            said[isinstance(event, BlockRemoved)].add((CPU, event.block_hash))
    return said[True] & said[False]


def _announced(state: Snapshot, begun: Iterable[TransferState]) -> Iterator[Resident]:
    """The pages whose loads began on their own, where a load is announced at its enqueue."""
    hashes = PageHashes(state)
    for transfer in begun if emits_at_enqueue(state) else ():
        for node_id, component in transfer.parts:
            if transfer.direction is Direction.LOAD_BACK and component is FULL:
                yield from zip(repeat(GPU), hashes.of(state.nodes[node_id]), strict=False)


def _without_events(
    events: Iterable[Event], removes: set[Resident], stores: set[Resident]
) -> Iterator[Event]:
    """The events of a step without the first remove and the first store of each such page."""
    for event in events:
        pages = removes if isinstance(event, BlockRemoved) else stores
        page = None if isinstance(event, AllBlocksCleared) else (event.medium, event.block_hash)
        if page in pages:
            pages.remove(page)
        else:
            yield event
