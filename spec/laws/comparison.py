"""Comparison: what a step changed and what it left alone, in words; shared by step laws.

States are compared page by page, so that a cut, which may happen at any time, is no difference. A
slot that moves from one page to another in a step counts as lost by the first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from attrs import evolve, frozen

from kvcanon.spec.snapshot import NO_POOL, NodeState, Pool, Snapshot, is_device_leaf, is_host_leaf
from kvcanon.spec.types import (
    CPU,
    FULL,
    GPU,
    MAMBA,
    SWA,
    Component,
    Counts,
    Medium,
    NodeId,
    Slot,
    WritePolicy,
)
from kvcanon.spec.views import COLUMN, Change, PageRow, Step


def page_in_words(state: Snapshot, row: PageRow) -> str:
    """A page, as "page 5 in node 7 (tokens 4..8)"."""
    return f"page {row.depth} in {state.describe(state.nodes[row.node_id])}"


def slot_of(row: PageRow | None, component: Component, medium: Medium) -> Slot | None:
    """A page's slot in a pool; None also for a page that does not exist."""
    return None if row is None else row.slot(component, medium)


def refs_of(row: PageRow, component: Component) -> int:
    """The lock refs of a component at a page."""
    return row.lock_refs[COLUMN[component]] or 0


def in_words(value: int | None) -> str:
    """A number, or "none"."""
    return "none" if value is None else str(value)


PER_COMPONENT = {
    "device": f"slot on {GPU}",
    "host": f"slot on {CPU}",
    "loading": "load in flight",
    "backing": "backup in flight",
    "lock_refs": "lock_refs",
}
"""The fields of a row that have one value for each component, in words."""


def differences(step: Step, change: Change, but: Collection[str] = ()) -> Iterator[str]:
    """The fields of one page that changed, except those in `but`.

    Ticks, ages and priorities are not compared: the REC laws check them.
    """
    was, now = change.before, change.after
    if was is None or now is None:
        if now is not None:
            yield f"{page_in_words(step.after, now)} appeared"
        elif was is not None:
            yield f"{page_in_words(step.before, was)} vanished"
        return
    if was[2:] != now[2:]:
        yield from _fields_changed(step, was, now, but)


def _fields_changed(step: Step, was: PageRow, now: PageRow, but: Collection[str]) -> Iterator[str]:
    for name, words in PER_COMPONENT.items():
        olds, news = getattr(was, name), getattr(now, name)
        if name in but or olds == news:
            continue
        for component in step.before.config.components:
            old, new = olds[COLUMN[component]], news[COLUMN[component]]
            if old != new:
                page = page_in_words(step.before, was)
                yield f"{page}: {component} {words} was {in_words(old)} and is {in_words(new)}"
    if was.hit_count != now.hit_count:
        page = page_in_words(step.before, was)
        yield f"{page}: hit_count was {was.hit_count} and is {now.hit_count}"


def pages_changed(step: Step, but: Collection[str] = ()) -> Iterator[str]:
    """The fields of all pages that changed, except those in `but`."""
    for change in step.changes:
        yield from differences(step, change, but)


def rest_changed(step: Step) -> Iterator[str]:
    """What changed in the pools (free and held slots) and in the mapping.

    Recency is checked by REC-7, receipts by LOCK-10, transfers by ASYNC-7, events by EVENT-5.
    """
    before, after = step.before, step.after
    for pool in before.pools.keys() | after.pools.keys():
        was, now = before.pools.get(pool, NO_POOL), after.pools.get(pool, NO_POOL)
        if was == now:
            continue
        for words, old, new in (("free", was.free, now.free), ("held", was.held, now.held)):
            if set(old) != set(new):
                moved = sorted(set(old) ^ set(new))
                yield (
                    f"slots {moved} of {pool_in_words(pool)} are {words} only before or only after "
                    "the call"
                )
    if before.swa_of_full != after.swa_of_full:
        pairs = sorted(set(before.swa_of_full.items()) ^ set(after.swa_of_full.items()))
        yield (
            f"the mapping leads from full to window slots {pairs} only before or only after the "
            "call"
        )


def pool_in_words(pool: Pool) -> str:
    """A pool, as "full on GPU"."""
    component, medium = pool
    return f"{component} on {medium}"


@frozen
class Loss:
    """The slots of a medium that pages of one node lost in a step."""

    node: NodeState
    """The node in the state before."""
    full: int
    swa: int
    mamba: int

    def __getitem__(self, component: Component) -> int:
        return (self.full, self.swa, self.mamba)[COLUMN[component]]


def losses(step: Step, medium: Medium) -> list[Loss]:
    """What each node lost on a medium: the victims of an eviction."""
    counted: dict[int, list[int]] = {}
    for each in step.lost:
        if each.medium is medium:
            counted.setdefault(each.before.node_id, [0, 0, 0])[COLUMN[each.component]] += 1
    return [Loss(step.before.nodes[node_id], *lost) for node_id, lost in counted.items()]


def total(lost: Iterable[Loss]) -> Counts:
    """The slots of all losses together."""
    lost = list(lost)
    return Counts(*[sum(each[component] for each in lost) for component in (FULL, SWA, MAMBA)])


def uncopied(node: NodeState) -> Counts:
    """The slots of data that a node has on the device and not on the host."""
    return Counts(
        *[
            len(node[c].device or ()) if node[c].resident(GPU) and node[c].host is None else 0
            for c in Component
        ]
    )


def total_uncopied(nodes: Iterable[NodeState]) -> Counts:
    """The same, of several nodes together."""
    each = [uncopied(node) for node in nodes]
    return Counts(*[sum(counts[component] for counts in each) for component in Component])


def freed_slots(step: Step, component: Component, medium: Medium) -> frozenset[Slot]:
    """Slots of a pool that are free after the step and were not before."""
    old = step.before.pools.get((component, medium), NO_POOL).free
    new = step.after.pools.get((component, medium), NO_POOL).free
    return frozenset() if old == new else frozenset(new).difference(old)


def reserved_in(state: Snapshot, pool: Pool) -> int:
    """How many slots of a pool the cache keeps for itself, by profile."""
    component, medium = pool
    return state.profile.reserved_slots[component] if medium is GPU else 0


def slots_lost(state: Snapshot, pool: Pool) -> frozenset[Slot]:
    """The slots of a pool that nobody has: no free list, request, node or cancelled copy."""
    component, medium = pool
    there = state.pools.get(pool, NO_POOL)
    owned = {*there.free, *there.held, *orphaned_slots(state, component, medium)}
    for node in state.below_root():
        owned.update(node[component].slots(medium) or ())
    return frozenset(range(there.capacity)) - owned


def orphaned_slots(state: Snapshot, component: Component, medium: Medium) -> list[Slot]:
    """Slots that cancelled transfers still write to; they become free when the copy ends."""
    return [
        slot
        for each in state.transfers
        if each.cancelled and each.direction.target is medium
        for slot in each.targets.get(component, ())
    ]


def owners_of(state: Snapshot, component: Component, medium: Medium, slot: Slot) -> Iterator[str]:
    """The owners of a slot, in words, each as often as it lists the slot."""
    pool = state.pools.get((component, medium), NO_POOL)
    yield from ["the free list"] * pool.free.count(slot)
    if slot in pool.held:
        yield "a request"
    yield from ["a cancelled copy"] * orphaned_slots(state, component, medium).count(slot)
    for node in state.below_root():
        times = (node[component].slots(medium) or ()).count(slot)
        yield from [state.describe(node)] * times


def row_slots(rows: Iterable[PageRow], component: Component, medium: Medium) -> set[Slot]:
    """The slots that pages have in a pool."""
    slots = (row.slot(component, medium) for row in rows)
    return {slot for slot in slots if slot is not None}


def is_loose_copy(state: Snapshot, row: PageRow, component: Component, medium: Medium) -> bool:
    """Whether locks do not hold this data, by profile: a host copy that no other data depends on.

    A node depends on the full data that it has nowhere else.
    """
    rests = component is FULL and row.slot(FULL, GPU) is None
    return medium is CPU and not rests and not state.profile.locks_hold_host_copies


MEDIA = (GPU, CPU)
"""The media that a cache has slots on."""


def candidates(state: Snapshot, component: Component, medium: Medium) -> Iterator[NodeState]:
    """The nodes that an eviction could still choose for a component."""
    for node in state.below_root():
        if component is FULL:
            leaf = is_device_leaf if medium is GPU else is_host_leaf
            if leaf(state, node) or (medium is CPU and is_duplicate(state, node)):
                yield node
            continue
        data = node[component]
        on_device_too = medium is CPU and data.device is not None
        if (
            data.slots(medium) is not None
            and not on_device_too
            and not data.lock_refs
            and data.loading is None
            and data.backing is None
        ):
            yield node


def writes_back(state: Snapshot) -> bool:
    """Whether data is copied to the host only when the device evicts it."""
    return state.config.write_policy is WritePolicy.WRITE_BACK


def parts_on_host(state: Snapshot) -> bool:
    """Whether window data or a mamba state may be on the host without its full data."""
    return writes_back(state) and not state.profile.whole_nodes_on_host


def is_duplicate(state: Snapshot, node: NodeState) -> bool:
    """Whether a node may leave the host because all that it has there is on the device too."""
    data = [node[component] for component in state.config.components]
    return (
        writes_back(state)
        and node.full.host is not None
        and not any(each.lock_refs or each.loading or each.backing for each in data)
        and all(each.device is not None for each in data if each.host is not None)
    )


def uncovered(step: Step, medium: Medium) -> dict[NodeId, NodeState]:
    """The tombstones that left the device with everything below them, as they were before.

    By profile they leave together with the last node below them. Such a tombstone is no victim of
    its own: it counts as part of the victim that uncovered it, both for how much that one freed and
    for whose turn it was.
    """
    state = step.before
    stay = state.profile.uncovered_tombstones_stay or SWA not in state.config.components
    if stay or medium is not GPU:
        return {}
    return {
        loss.node.node_id: loss.node
        for loss in losses(step, GPU)
        if loss.full
        and loss.node.swa.device is None
        and any(child.full.device is not None for child in state.children(loss.node))
    }


def joined(step: Step, lost: list[Loss], medium: Medium) -> list[Loss]:
    """What each victim lost on a medium, including the tombstones that it uncovered there.

    The order in which children left is not known; the last may be the one that lost most.
    """
    victims = {each.node.node_id: each for each in lost}
    carriers: dict[NodeId, NodeId] = {}
    for node in sorted(uncovered(step, medium).values(), key=step.before.end, reverse=True):
        below = [carriers.get(child.node_id, child.node_id) for child in step.before.children(node)]
        last = max((each for each in below if each in victims), key=lambda each: victims[each].full)
        with_it, own = victims[last], victims.pop(node.node_id)
        victims[last] = evolve(
            with_it,
            full=with_it.full + own.full,
            swa=with_it.swa + own.swa,
            mamba=with_it.mamba + own.mamba,
        )
        carriers[node.node_id] = last
    return list(victims.values())
