"""ALLOC: every slot has exactly one owner at any time.

The owners are the free list, a node, a request (held), and a cancelled transfer whose copy may
still be writing (orphaned). A slot changes its owner only in an operation that reports it.

What readers get wrong: a slot that a load in flight will fill is neither free nor orphaned. Its
node owns it already, but nothing may be read there yet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from operator import attrgetter

from kvcanon.spec.cache import Cache
from kvcanon.spec.difference import Difference
from kvcanon.spec.law import Kind, LawClass, Premise, law, node_law, nodes_premise
from kvcanon.spec.laws import bounds, premises, situations, visibility
from kvcanon.spec.laws.comparison import (
    MEDIA,
    in_words,
    owners_of,
    pages_changed,
    pool_in_words,
    slots_lost,
)
from kvcanon.spec.operations import Allocate, Refused, Reset
from kvcanon.spec.oracle.grounds import owned_once
from kvcanon.spec.snapshot import NO_POOL, NodeState, PoolState, Snapshot
from kvcanon.spec.types import GPU, SWA, Component, Slot, Slots
from kvcanon.spec.views import Step


@law(
    "ALLOC-1",
    Kind.STATE,
    LawClass.SOUND,
    premise=premises.ANY_NODE,
    from_outside=visibility.ANSWERS,
    follows=attrgetter("balanced"),
)
def one_owner(state: Snapshot) -> Iterator[str]:
    """No slot has two owners: each is in the free list, or of one node, or held by requests.

    ALLOC-8 checks that each slot has an owner at all; DATA-2 that no copy writes to a slot of
    another owner.

    Why: two prompts share a slot with two owners: each overwrites the other's KV.

    Seen broken: https://github.com/sgl-project/sglang/issues/38269,
    https://github.com/sgl-project/sglang/issues/13483,
    https://github.com/NVIDIA/TensorRT-LLM/issues/12667
    """
    for component in state.config.components:
        for medium in MEDIA:
            pool = state.pools.get((component, medium), NO_POOL)
            owned = list(pool.free)
            owned.extend(pool.held)
            for node in state.below_root():
                owned.extend(node[component].slots(medium) or ())
            if owned_once(owned, pool.capacity):
                continue
            for slot, times in Counter(owned).items():
                if times > 1 or not 0 <= slot < pool.capacity:
                    owners = " and ".join(owners_of(state, component, medium, slot))
                    outside = "" if 0 <= slot < pool.capacity else ", and there is no such slot"
                    yield f"slot {slot} of {component} on {medium} belongs to {owners}{outside}"


def remapped(difference: Difference) -> Collection[NodeState]:
    """The rebuilt nodes, and those whose full slots are mapped to other window slots."""
    moved = difference.remapped
    ids = {node.node_id for node in difference.rebuilt_nodes}
    if moved:
        nodes = difference.after.below_root()
        ids.update(node.node_id for node in nodes if not moved.isdisjoint(node.full.device or ()))
    return difference.nodes_after(ids)


@node_law(
    "ALLOC-4",
    LawClass.SOUND,
    premise=nodes_premise(
        "a page with window data on the device",
        lambda _, node: node.swa.device is not None and node.parent_id is not None,
    ),
    enabled_if=bounds.has_windows,
    over=remapped,
    reads=("swa_of_full",),
)
def mapping_agrees(state: Snapshot, nodes: Collection[NodeState]) -> Iterator[str]:
    """The mapping leads from the full slot of each page to its window slot.

    ALLOC-9 checks that it leads from no other slot.

    Why: attention finds window data only through this mapping. A wrong entry leads to another
    prompt's data.

    Seen broken: https://github.com/sgl-project/sglang/issues/36457
    """
    if SWA not in state.config.components:
        return
    for node in nodes:
        full, swa = node.full.device, node.swa.device
        if full is None or swa is None:
            continue
        if any(map(_differs, map(state.swa_of_full.get, full), swa)):
            for at, (full_slot, swa_slot) in enumerate(zip(full, swa, strict=False)):
                found = state.swa_of_full.get(full_slot)
                if found != swa_slot:
                    yield (
                        f"page {state.starts[node.node_id] + at} in {state.describe(node)} has "
                        f"full slot {full_slot} and swa slot {swa_slot}; the mapping leads to "
                        f"{in_words(found)}"
                    )


@law(
    "ALLOC-5",
    Kind.STEP,
    LawClass.SOUND,
    premise=Premise[Step](
        "an allocation",
        lambda step: isinstance(step.outcome, Slots),
    ),
    from_outside=visibility.ANSWERS,
)
def allocate_takes_free(step: Step) -> Iterator[str]:
    """An allocation returns exactly as many slots as were asked for, each of them free before.

    They are distinct, held by the request afterwards, and the only ones that left the free list.
    The window slots are paired with the last of the full slots, in order. Nothing is evicted.

    Why: a slot that was given out while it had another owner is overwritten by the next token.

    Seen broken: https://github.com/NVIDIA/TensorRT-LLM/issues/12667
    """
    given, operation = step.outcome, step.operation
    if not isinstance(operation, Allocate) or not isinstance(given, Slots):
        return
    for component in step.before.config.components:
        slots = given[component]
        was = step.before.pools.get((component, GPU), NO_POOL)
        now = step.after.pools.get((component, GPU), NO_POOL)
        if len(slots) != operation.counts[component]:
            asked = operation.counts[component]
            yield f"{asked} {component} slots were asked for, and {len(slots)} given"
        if len(set(slots)) != len(slots):
            twice = sorted(slot for slot, times in Counter(slots).items() if times > 1)
            yield f"{component} slots {twice} were given twice"
        yield from _taken(component, slots, was, now)
    if given.swa:
        for full_slot, swa_slot in zip(given.full[-len(given.swa) :], given.swa, strict=False):
            found = step.after.swa_of_full.get(full_slot)
            if found != swa_slot:
                yield (
                    f"swa slot {swa_slot} goes with full slot {full_slot}, and the mapping leads "
                    f"from there to {in_words(found)}"
                )
    yield from pages_changed(step)


@law(
    "ALLOC-6",
    Kind.STEP,
    LawClass.SOUND,
    premise=Premise[Step](
        "a refusal",
        lambda step: not (situations.went_well(step) or situations.broken_off(step)),
    ),
    from_outside=visibility.ANSWERS,
)
def refusals_change_nothing(step: Step) -> Iterator[str]:
    """A refused call leaves tree, slots and counts exactly as they were, and cuts no node.

    REC-7, LOCK-10, ASYNC-7 and EVENT-5 check that recency, receipts and transfers stay and that no
    event is emitted. ASYNC-16 checks an eviction that the engine broke off.

    Why: a caller that is refused tries something else, or tries again. Half of a refused call is a
    lock that nobody can release, or a slot that nobody owns.

    Seen broken: not seen
    """
    if not isinstance(step.outcome, Refused) or step.before is step.after:
        return
    if situations.broken_off(step):
        return
    before, after = step.before, step.after
    said = f"{type(step.operation).__name__} was refused ({step.outcome.error})"
    if before.nodes != after.nodes:
        differ = sorted(
            node_id
            for node_id in before.nodes.keys() | after.nodes.keys()
            if before.nodes.get(node_id) != after.nodes.get(node_id)
        )
        state, first = (before, differ[0]) if differ[0] in before.nodes else (after, differ[0])
        yield (
            f"{said}, and {len(differ)} nodes are not as they were; the first is "
            f"{state.describe(state.nodes[first])}"
        )
    for name in ("pools", "usage", "swa_of_full"):
        if getattr(before, name) != getattr(after, name):
            yield f"{said}, and {name} is not as it was"


@law(
    "ALLOC-7",
    Kind.STEP,
    LawClass.SOUND,
    premise=Premise[Step](
        "a reset of a tree",
        lambda step: (
            isinstance(step.operation, Reset)
            and situations.went_well(step)
            and situations.nodes(step.before) > 0
        ),
    ),
    from_outside=((Cache.reset,),),
)
def reset_frees_the_tree(step: Step) -> Iterator[str]:
    """After a reset the tree is empty, and every slot is free or held by a request.

    Nothing that was computed before is found again, on either medium: a reset is also what an
    engine calls when it has loaded new weights. It is refused while a copy is in flight (REFUSE-2),
    so none ends later. What a running request computed before, it must not insert afterwards: no
    call says when a held slot was written, so its engine ends it first.

    Why: KV of other weights makes every reply wrong that finds it. A running request goes on
    writing into its slots. And a slot without an owner after a reset is lost until the next start.

    Seen broken: not seen
    """
    if not isinstance(step.operation, Reset) or isinstance(step.outcome, Refused):
        return
    if len(step.after.nodes) > 1:
        yield f"{len(step.after.nodes) - 1} nodes are left after a reset"
    for pool, now in step.after.pools.items():
        was = step.before.pools.get(pool, NO_POOL)
        if now.held != was.held:
            moved = sorted(now.held ^ was.held)
            yield f"a reset changed who holds slots {moved} of {pool_in_words(pool)}"
        kept = slots_lost(step.before, pool)  # Reserved, or lost earlier.
        lost = now.capacity - len(now.free) - len(now.held) - len(kept)
        if lost:
            yield f"{lost} slots of {pool_in_words(pool)} are neither free nor held after a reset"


def _differs(found: Slot | None, expected: Slot) -> bool:
    return found != expected


def _taken(
    component: Component, slots: tuple[Slot, ...], was: PoolState, now: PoolState
) -> Iterator[str]:
    """Checks that these slots, and no others, went from the free list to requests."""
    given = set(slots)
    for slot in sorted(given.difference(was.free)):
        yield f"slot {slot} of {component} was given out and had not been free"
    for slot in sorted(given.difference(now.held)):
        yield f"slot {slot} of {component} was given out and is not held"
    if set(was.free).difference(now.free) != given or now.held - given != was.held - given:
        yield (
            f"{component} slots {sorted(given)} were given out, but "
            f"{sorted(set(was.free).symmetric_difference(now.free))} left or entered the free list "
            f"and {sorted(was.held ^ now.held)} are held only before or only after the call"
        )
