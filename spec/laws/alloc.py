"""ALLOC: slots, each of which has exactly one owner at any time.

The owners are the free list, a node, a request (held), and a cancelled transfer whose copy may
still be writing (orphaned). A slot changes hands in an operation that says so, and its count is
told.

What readers get wrong: a slot that a load in flight will fill is not free and not orphaned. Its
node owns it already; it is only that nothing may be read there yet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator

from kvcanon.spec.difference import Difference
from kvcanon.spec.law import Kind, law, node_law
from kvcanon.spec.laws import premises
from kvcanon.spec.laws.comparing import (
    MEDIA,
    freed_slots,
    in_words,
    losses,
    owners_of,
    pages_changed,
    pool_in_words,
    row_slots,
    total,
)
from kvcanon.spec.operations import (
    Allocate,
    Evict,
    Evicted,
    EvictHost,
    Free,
    Insert,
    Inserted,
    LoadBack,
    LoadedBack,
    Refused,
    Reset,
)
from kvcanon.spec.oracle.ownership import owned_once
from kvcanon.spec.snapshot import NO_POOL, NodeState, PoolState, Snapshot, Usage
from kvcanon.spec.types import CPU, FULL, GPU, SWA, Component, Counts, Medium, Slot, Slots
from kvcanon.spec.views import Step


@law("ALLOC-1", Kind.STATE, premises.ANY_NODE, outlasts=lambda step: step.balanced)
def one_owner(state: Snapshot) -> Iterator[str]:
    """No slot has two owners: each belongs to the free list, to one node, or to requests.

    And to none besides. That each has an owner at all is ALLOC-8; that no copy writes to a slot of
    somebody else is DATA-2.

    Why: a slot with two owners is two prompts in one place: each overwrites the other.

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


def counts_follow(difference: Difference) -> bool:
    """Whether the counts of slots rose and fell as those of the rebuilt nodes did."""
    if difference.unchanged("usage"):
        return True
    was, now = difference.before.usage, difference.after.usage
    if was.keys() != now.keys():
        return False
    for component in now:
        old, new = (
            _usage(difference.rebuilt_nodes_before(), component),
            _usage(difference.rebuilt_nodes(), component),
        )
        if (
            now[component].evictable - was[component].evictable != new.evictable - old.evictable
            or now[component].protected - was[component].protected != new.protected - old.protected
        ):
            return False
    return True


@law("ALLOC-2", Kind.STATE, premises.EVICTABLE_AND_PROTECTED, outlasts=counts_follow)
def accounting(state: Snapshot) -> Iterator[str]:
    """The counts that a cache gives of its slots are true.

    Evictable are the device slots of nodes whose component is not locked, protected those of nodes
    where it is. That with the free, the held and the orphaned ones these are all there are follows
    from ALLOC-8.

    Why: an engine admits requests by these counts. Too high, and it finds no room for what it
    promised; too low, and the pool stands idle, or an idle check stops the server.

    Seen broken: https://github.com/sgl-project/sglang/issues/35270,
    https://github.com/sgl-project/sglang/issues/10637,
    https://github.com/NVIDIA/TensorRT-LLM/issues/12834
    """
    for component, usage in state.usage.items():
        counted = _usage(state.below_root(), component)
        for name, told, found in (
            ("evictable", usage.evictable, counted.evictable),
            ("protected", usage.protected, counted.protected),
        ):
            if told != found:
                yield f"{told} {component} slots are said to be {name}, and {found} are"


@law("ALLOC-3", Kind.STEP, premises.EVICTION_FREES)
def counts_are_true(step: Step) -> Iterator[str]:
    """What an operation says it freed or took is what came into the free lists, or left them.

    What is given back or handed over comes from the requests: each of these slots was held. Where
    the profile says that healing puts incoming slots in the place of others, those others are freed
    and the tree has adopted none.

    Why: an engine that was told of more room than there is fails when it takes it; one that was
    told of less evicts again, and loses what it need not have lost.

    Seen broken: https://github.com/sgl-project/sglang/issues/4987
    """
    match step.operation, step.outcome:
        case Evict(), Evicted(freed=freed):
            yield from _freed_is(step, freed, GPU)
        case EvictHost(), Evicted(freed=freed):
            yield from _freed_is(step, freed, CPU)
        case Insert(slots=slots), Inserted() as outcome:
            yield from _were_held(step, slots, "handed over")
            yield from _freed_is(step, outcome.freed, GPU)
            yield from _handed_over(step, slots, outcome)
        case Free(slots=slots), outcome if not isinstance(outcome, Refused):
            yield from _were_held(step, slots, "given back")
            yield from _freed_is(step, slots.counts(), GPU)
            yield from _now_free(step, slots)
        case LoadBack(), LoadedBack() as outcome:
            yield from _loaded_and_evicted(step, outcome)
        case _:
            return


def remapped(difference: Difference) -> Collection[NodeState]:
    """The nodes that were rebuilt, or whose full slots the mapping leads from to elsewhere."""
    moved = difference.remapped
    ids = {node.node_id for node in difference.rebuilt_nodes()}
    if moved:
        nodes = difference.after.below_root()
        ids.update(node.node_id for node in nodes if not moved.isdisjoint(node[FULL].device or ()))
    return difference.nodes_after(ids)


@node_law("ALLOC-4", premises.WINDOW_DATA, over=remapped, reads=("swa_of_full",))
def mapping_agrees(state: Snapshot, nodes: Collection[NodeState]) -> Iterator[str]:
    """The mapping leads from the full slot of each page to its window slot.

    That it leads from no other slot is ALLOC-9.

    Why: attention finds window data by this mapping alone. A wrong entry is another prompt's data.

    Seen broken: https://github.com/sgl-project/sglang/issues/36457
    """
    if SWA not in state.config.components:
        return
    for node in nodes:
        full, swa = node[FULL].device, node[SWA].device
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


@law("ALLOC-5", Kind.STEP, premises.ALLOCATION)
def allocate_takes_free(step: Step) -> Iterator[str]:
    """An allocation gives exactly as many slots as were asked for, each of them free until then.

    They are distinct, held by the request afterwards, and gone from the free list with no others;
    the window slots are paired with the last of the full slots, in order. Nothing is evicted.

    Why: a slot that was given out while something else had it is overwritten by the next token.

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


@law("ALLOC-6", Kind.STEP, premises.REFUSAL)
def refusals_change_nothing(step: Step) -> Iterator[str]:
    """A refused call leaves tree, slots and counts exactly as they were: not a node is cut.

    That recency, receipts and transfers stay too is REC-7, LOCK-10 and ASYNC-7, and that nothing is
    sent EVENT-5.

    Why: whoever is refused tries something else, or again. Half of a call that was refused is a
    lock that nobody can release, or a slot that nobody owns.

    Seen broken: not seen
    """
    if not isinstance(step.outcome, Refused) or step.before is step.after:
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


@law("ALLOC-7", Kind.STEP, premises.RESET_OF_TREE)
def reset_frees_the_tree(step: Step) -> Iterator[str]:
    """After a reset the tree is empty and all slots are free, but for those that requests hold.

    Why: a request that is being computed goes on writing into its slots; and a slot that nobody has
    after a reset is lost until the next start.

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
        if len(now.free) + len(now.held) != now.capacity:
            lost = now.capacity - len(now.free) - len(now.held)
            yield f"{lost} slots of {pool_in_words(pool)} are neither free nor held after a reset"


def _usage(nodes: Iterable[NodeState], component: Component) -> Usage:
    """The device slots of some nodes, by whether the component is locked there."""
    evictable = protected = 0
    for node in nodes:
        data = node[component]
        if data.lock_refs > 0:
            protected += len(data.device or ())
        else:
            evictable += len(data.device or ())
    return Usage(evictable, protected)


def _differs(found: Slot | None, expected: Slot) -> bool:
    return found != expected


def _freed_is(step: Step, told: Counts, medium: Medium) -> Iterator[str]:
    """Whether exactly as many slots came into the free lists of a medium as was told."""
    for component in step.before.config.components:
        freed = freed_slots(step, component, medium)
        if len(freed) != told[component]:
            yield (
                f"{told[component]} {component} slots are said to be freed on {medium}, and "
                f"{len(freed)} are free that were not: {sorted(freed)}"
            )


def _were_held(step: Step, slots: Slots, said: str) -> Iterator[str]:
    """Whether requests held all of some slots until now."""
    for component, some in slots:
        held = step.before.pools.get((component, GPU), NO_POOL).held
        for slot in sorted(set(some).difference(held)):
            yield f"slot {slot} of {component} was {said}, and no request held it"


def _now_free(step: Step, slots: Slots) -> Iterator[str]:
    """Whether slots that were given back are free, and not held."""
    for component, some in slots:
        if some:
            pool = step.after.pools.get((component, GPU), NO_POOL)
            for slot in sorted(set(some).difference(pool.free)):
                yield f"slot {slot} of {component} was given back and is not free"
            for slot in sorted(pool.held.intersection(some)):
                yield f"slot {slot} of {component} was given back and is still held"


def _handed_over(step: Step, slots: Slots, outcome: Inserted) -> Iterator[str]:
    """Whether each slot of an insert is in the tree or free, in the numbers that were told."""
    for component, some in slots:
        if not some:
            continue
        adopted, freed = outcome.adopted[component], outcome.freed[component]
        if adopted + freed != len(some):
            yield (
                f"{len(some)} {component} slots were handed over, and {adopted} adopted + {freed} "
                f"freed is {adopted + freed}"
            )
        pool = step.after.pools.get((component, GPU), NO_POOL)
        kept = row_slots(step.changed[1].values(), component, GPU).intersection(some)
        replaced = set[Slot]()
        if component is FULL and not step.after.profile.heals_in_place:
            replaced = row_slots(step.changed[0].values(), component, GPU).intersection(pool.free)
        if len(kept) - len(replaced) != adopted:
            instead = f" in place of {sorted(replaced)}" if replaced else ""
            yield (
                f"{adopted} {component} slots are said to be adopted; the tree has "
                f"{sorted(kept)}{instead}"
            )
        for slot in sorted(set(some).difference(pool.free, kept)):
            yield f"slot {slot} of {component} was handed over and is neither in the tree nor free"


def _loaded_and_evicted(step: Step, outcome: LoadedBack) -> Iterator[str]:
    """Whether a load freed what it says, and took for itself what it says."""
    lost = total(losses(step, GPU))
    for component in step.before.config.components:
        if lost[component] != outcome.evicted[component]:
            yield (
                f"{outcome.evicted[component]} {component} slots are said to be evicted for the "
                f"load, and pages lost {lost[component]}"
            )
        was = step.before.pools.get((component, GPU), NO_POOL)
        now = step.after.pools.get((component, GPU), NO_POOL)
        gain = outcome.evicted[component] - outcome.loading[component]
        if len(now.free) - len(was.free) != gain:
            yield (
                f"{pool_in_words((component, GPU))} had {len(was.free)} free slots and has "
                f"{len(now.free)}, with {outcome.evicted[component]} said to be evicted and "
                f"{outcome.loading[component]} loading"
            )


def _taken(
    component: Component, slots: tuple[Slot, ...], was: PoolState, now: PoolState
) -> Iterator[str]:
    """Whether slots went from the free list to the requests, and no others."""
    given = set(slots)
    for slot in sorted(given.difference(was.free)):
        yield f"slot {slot} of {component} was given out and had not been free"
    for slot in sorted(given.difference(now.held)):
        yield f"slot {slot} of {component} was given out and is not held"
    if set(was.free).difference(now.free) != given or now.held - given != was.held - given:
        yield (
            f"{component} slots {sorted(given)} were given out, but "
            f"{sorted(set(was.free).symmetric_difference(now.free))} left or entered the free list "
            f"and {sorted(was.held ^ now.held)} are held in one state only"
        )
