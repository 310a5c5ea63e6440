"""ALLOC, continued: the slot counts that a cache reports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kvcanon.spec.difference import Difference
from kvcanon.spec.law import Kind, LawClass, Premise, law
from kvcanon.spec.laws import bounds, premises, visibility
from kvcanon.spec.laws.comparison import freed_slots, losses, pool_in_words, row_slots, total
from kvcanon.spec.operations import (
    Evict,
    Evicted,
    EvictHost,
    Free,
    Insert,
    Inserted,
    LoadBack,
    LoadedBack,
    Refused,
)
from kvcanon.spec.snapshot import NO_POOL, NodeState, Snapshot, Usage
from kvcanon.spec.types import CPU, FULL, GPU, Component, Counts, Medium, Slot, Slots
from kvcanon.spec.views import Step


def counts_follow(difference: Difference) -> bool:
    """Whether the counts of slots changed exactly as those of the rebuilt nodes did."""
    if difference.unchanged("usage"):
        return True
    was, now = difference.before.usage, difference.after.usage
    if was.keys() != now.keys():
        return False
    for component in now:
        old, new = (
            usage_of(difference.rebuilt_nodes_before, component),
            usage_of(difference.rebuilt_nodes, component),
        )
        if (
            now[component].evictable - was[component].evictable != new.evictable - old.evictable
            or now[component].protected - was[component].protected != new.protected - old.protected
        ):
            return False
    return True


@law(
    "ALLOC-2",
    Kind.STATE,
    LawClass.SOUND,
    premise=Premise[Snapshot](
        "evictable and protected slots in one pool",
        lambda state: any(usage.evictable and usage.protected for usage in state.usage.values()),
    ),
    enabled_if=bounds.has_locks,
    follows=counts_follow,
)
def accounting(state: Snapshot) -> Iterator[str]:
    """The counts of evictable and protected slots that a cache reports are right.

    Evictable are the device slots of nodes whose component is not locked, protected those of nodes
    where it is. Together with the slots that are free, held by requests, or owned by a cancelled
    copy (orphaned), these are all slots of a pool (ALLOC-8).

    Why: an engine admits requests by these counts. If they are too high, the slots that it promised
    are not there; if too low, the pool stays idle, or an idle check stops the server.

    Seen broken: https://github.com/sgl-project/sglang/issues/35270,
    https://github.com/sgl-project/sglang/issues/10637,
    https://github.com/NVIDIA/TensorRT-LLM/issues/12834
    """
    for component, usage in state.usage.items():
        counted = usage_of(state.below_root(), component)
        for name, reported, found in (
            ("evictable", usage.evictable, counted.evictable),
            ("protected", usage.protected, counted.protected),
        ):
            if reported != found:
                yield f"{reported} {component} slots are reported as {name}, and {found} are"


@law(
    "ALLOC-3",
    Kind.STEP,
    LawClass.SOUND,
    premise=premises.EVICTION_FREES,
    from_outside=visibility.ANSWERS,
)
def counts_are_true(step: Step) -> Iterator[str]:
    """The slots that an operation reports as freed or taken entered or left the free lists.

    Slots that are given back or handed over were held by requests. By profile, a page that gets
    window data again may take the full slot that came with it; then its old full slot is freed, and
    the new one does not count as adopted.

    Why: an engine that believes in too many free slots fails when it takes them; one that believes
    in too few evicts again, and loses pages without need.

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


def usage_of(nodes: Iterable[NodeState], component: Component) -> Usage:
    """The device slots of some nodes, by whether the component is locked there."""
    evictable = protected = 0
    for node in nodes:
        data = node[component]
        if data.lock_refs > 0:
            protected += len(data.device or ())
        else:
            evictable += len(data.device or ())
    return Usage(evictable, protected)


def _freed_is(step: Step, reported: Counts, medium: Medium) -> Iterator[str]:
    """Checks that as many slots of a medium became free as were reported."""
    for component in step.before.config.components:
        freed = freed_slots(step, component, medium)
        if len(freed) != reported[component]:
            yield (
                f"{reported[component]} {component} slots are said to be freed on {medium}, and "
                f"{len(freed)} came free{f': {sorted(freed)}' if freed else ''}"
            )


def _were_held(step: Step, slots: Slots, said: str) -> Iterator[str]:
    """Checks that requests held these slots before."""
    for component, some in slots:
        held = step.before.pools.get((component, GPU), NO_POOL).held
        for slot in sorted(set(some).difference(held)):
            yield f"slot {slot} of {component} was {said}, and no request held it"


def _now_free(step: Step, slots: Slots) -> Iterator[str]:
    """Checks that slots that were given back are free, and not held."""
    for component, some in slots:
        if some:
            pool = step.after.pools.get((component, GPU), NO_POOL)
            for slot in sorted(set(some).difference(pool.free)):
                yield f"slot {slot} of {component} was given back and is not free"
            for slot in sorted(pool.held.intersection(some)):
                yield f"slot {slot} of {component} was given back and is still held"


def _handed_over(step: Step, slots: Slots, outcome: Inserted) -> Iterator[str]:
    """Checks that each slot of an insert is in the tree or free, as often as reported."""
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
                f"{adopted} {component} slots are reported as adopted; the tree has "
                f"{sorted(kept)}{instead}"
            )
        for slot in sorted(set(some).difference(pool.free, kept)):
            yield f"slot {slot} of {component} was handed over and is neither in the tree nor free"


def _loaded_and_evicted(step: Step, outcome: LoadedBack) -> Iterator[str]:
    """Checks the slots that a load-back reports as evicted and as loading."""
    lost = total(losses(step, GPU))
    for component in step.before.config.components:
        if lost[component] != outcome.evicted[component]:
            yield (
                f"{outcome.evicted[component]} {component} slots are reported as evicted for the "
                f"load, and pages lost {lost[component]}"
            )
        was = step.before.pools.get((component, GPU), NO_POOL)
        now = step.after.pools.get((component, GPU), NO_POOL)
        gain = outcome.evicted[component] - outcome.loading[component]
        if len(now.free) - len(was.free) != gain:
            yield (
                f"{pool_in_words((component, GPU))} had {len(was.free)} free slots and has "
                f"{len(now.free)}, with {outcome.evicted[component]} reported as evicted and "
                f"{outcome.loading[component]} loading"
            )
