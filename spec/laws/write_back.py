"""EVICT, continued: under write_back, an eviction copies its victims to the host first.

Data that leaves from inside the tree must be copied as well as leaves: its node stays, and nobody
misses the window until a prompt ends there.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import evolve

from kvcanon.spec.cache import Cache
from kvcanon.spec.law import Kind, LawClass, Premise, law
from kvcanon.spec.laws import bounds, situations, visibility
from kvcanon.spec.laws.comparison import (
    Loss,
    is_duplicate,
    losses,
    page_in_words,
    parts_on_host,
    slot_of,
    total_uncopied,
    uncopied,
    writes_back,
)
from kvcanon.spec.laws.copies import failed_victims
from kvcanon.spec.operations import Evict, Evicted, LoadedBack
from kvcanon.spec.snapshot import NO_POOL, Snapshot
from kvcanon.spec.types import CPU, GPU, MAMBA, SWA, Component, Counts, NodeId
from kvcanon.spec.views import COLUMN, Change, Step


@law(
    "EVICT-8",
    Kind.STEP,
    LawClass.SERVING,
    premise=Premise[Step](
        "an eviction under write_back of data without a host copy",
        lambda step: (
            writes_back(step.before)
            and situations.evicts_from(step) is GPU
            and situations.had_to_copy(step)
        ),
    ),
    enabled_if=bounds.writes_back,
    from_outside=((Cache.evict,), visibility.EVENTS, (Cache.free_slots,)),
)
def write_back_copies(step: Step) -> Iterator[str]:
    """Under write_back, data that leaves the device without a host copy has one afterwards.

    It may be lost only if the host has too few slots for all data that its node has on the device
    alone. It must be copied in two cases: if all data that the victims of the step lack on the host
    fits into free slots; or if one node was the only victim and fits into free slots and those of
    nodes that may be evicted. (Of several victims one may lose its copy to the next.) By profile,
    the window before a node is copied with it and counts as part of it. Data whose copy failed
    while the eviction waited for it is lost.

    Why: under this policy there is no other moment to copy. Data that is not copied now is computed
    again.

    Seen broken: https://github.com/sgl-project/sglang/issues/29204,
    https://github.com/sgl-project/sglang/issues/27108
    """
    if not writes_back(step.before) or not isinstance(step.outcome, (Evicted, LoadedBack)):
        return
    failed = failed_victims(step)
    lost = [
        (change, component)
        for change in step.changes
        for component in step.before.config.components
        if _is_lost(change, component)
        and not (failed and (component, slot_of(change.before, component, GPU)) in failed)
    ]
    if not lost:
        return
    victims = losses(step, GPU)
    needed = total_uncopied(each.node for each in victims)
    needed = evolve(needed, swa=needed.swa + _windows_before(step.before, victims))
    available = _free(step.before)
    if len(victims) == 1 and isinstance(step.operation, Evict):
        available = _free_or_evictable(step.before)
    if any(needed[component] > available[component] for component in Component):
        return
    for change, component in lost:
        if change.before is not None:
            yield (
                f"{page_in_words(step.before, change.before)} lost its {component} data on {GPU} "
                f"and has no copy on {CPU}, where there was room: {needed.full} full, {needed.swa} "
                f"swa and {needed.mamba} mamba slots had to be copied, and {available.full}, "
                f"{available.swa} and {available.mamba} were free or could be freed"
            )


def _is_lost(change: Change, component: Component) -> bool:
    """Whether a page had a component's data on the device alone, and has it nowhere now."""
    was, now = change.before, change.after
    return (
        was is not None
        and was.slot(component, GPU) is not None
        and was.loading[COLUMN[component]] is None
        and was.slot(component, CPU) is None
        and slot_of(now, component, GPU) is None
        and slot_of(now, component, CPU) is None
    )


def _windows_before(state: Snapshot, victims: list[Loss]) -> int:
    """Window slots that may be copied together with victims, by profile.

    How far a window reaches is not considered: this allows for the largest such copy.
    """
    if not parts_on_host(state):
        return 0
    above: dict[NodeId, int] = {}
    for victim in victims:
        node = state.parent(victim.node)
        while node is not None and node.node_id not in above:
            above[node.node_id] = uncopied(node).swa
            node = state.parent(node)
    return sum(above.values())


def _free(state: Snapshot) -> Counts:
    """Free slots of each pool on the host."""
    return Counts(*[len(state.pools.get((c, CPU), NO_POOL).free) for c in Component])


def _free_or_evictable(state: Snapshot) -> Counts:
    """Host slots that are free or can be freed, for each pool separately."""
    free, may_go = _free(state), dict[NodeId, bool]()
    for node in sorted(state.below_root(), key=state.end, reverse=True):
        only_here = node.full.device is None and not any(d.lock_refs for d in node.data.values())
        may_go[node.node_id] = only_here and all(may_go[child] for child in node.child_ids)
    full = sum(
        len(node.full.host or ())
        for node in state.below_root()
        if may_go[node.node_id] or is_duplicate(state, node)
    )
    swa, mamba = (
        sum(
            len(node[component].host or ())
            for node in state.below_root()
            if node[component].device is None and not node[component].lock_refs
        )
        for component in (SWA, MAMBA)
    )
    return Counts(free.full + full, free.swa + swa, free.mamba + mamba)
