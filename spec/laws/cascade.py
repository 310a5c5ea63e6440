"""EVICT, continued: what leaves with a victim, and what stays."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from kvcanon.spec.law import Kind, LawClass, Premise, law
from kvcanon.spec.laws import bounds, situations, visibility
from kvcanon.spec.laws.comparison import (
    in_words,
    losses,
    page_in_words,
    parts_on_host,
    slot_of,
    writes_back,
)
from kvcanon.spec.operations import Evict, EvictHost
from kvcanon.spec.snapshot import Snapshot, is_device_leaf, is_host_leaf
from kvcanon.spec.types import CPU, FULL, GPU, MAMBA, SWA, Component, Medium
from kvcanon.spec.views import COLUMN, PageRow, Step


@law(
    "EVICT-3",
    Kind.STEP,
    LawClass.POLICY,
    chosen_by="eviction",
    premise=Premise[Step](
        "an eviction of a node with more than full data",
        situations.cascades,
    ),
    enabled_if=bounds.has_windows_or_states,
    from_outside=(visibility.DEVICE_EVICTIONS,),
)
def cascade(step: Step) -> Iterator[str]:
    """Full data is evicted with its window data and mamba state, window data with its mamba state.

    A leaf leaves as a whole. Inside the tree, where full data stays, window data leaves only if
    window slots were asked for, and a mamba state only with its window or if mamba slots were asked
    for. On the host a mamba state may stay without its window data; by profile, both may stay there
    without full data while the device has it.

    Why: window data without full data, or a state without its window, can never be matched and
    wastes its slot. And data that leaves without need is computed again.

    Seen broken: https://github.com/sgl-project/sglang/issues/25068,
    https://github.com/sgl-project/sglang/issues/28161
    """
    medium = situations.eviction_medium(step)
    if medium is None or not isinstance(step.operation, (Evict, EvictHost)):
        return
    asked = step.operation.counts
    is_leaf = is_device_leaf if medium is GPU else is_host_leaf
    for change in step.changes:
        was, now = change.before, change.after
        if was is None or now is None:
            continue
        gone = {c for c in step.before.config.components if _lost(was, now, c, medium)}
        page = page_in_words(step.before, was)
        for above, below in _outlived(step.after, now, gone, medium):
            kept = now.slot(below, medium)
            yield f"{page} lost its {above} data on {medium}, and still has {below} slot {kept}"
        if FULL in gone or not gone:
            continue
        if SWA in gone and not asked.swa:
            yield f"{page} lost its swa data on {medium} and kept its full data; none was asked for"
        if MAMBA in gone and SWA not in gone and not asked.mamba:
            yield f"{page} lost its state on {medium} and kept its full data; none was asked for"
        if is_leaf(step.before, step.before.nodes[was.node_id]):
            lost = " and ".join(sorted(gone))
            yield f"{page} lost only {lost} data on {medium}, though its node was a leaf there"


def _outlived(
    state: Snapshot, row: PageRow, gone: Collection[Component], medium: Medium
) -> Iterator[tuple[Component, Component]]:
    """Data that was evicted, and data that is of no use without it and is still there."""
    may_be_alone = medium is CPU and parts_on_host(state) and row.slot(FULL, GPU) is not None
    for above, below in ((FULL, SWA), (FULL, MAMBA), (SWA, MAMBA)):
        asked = (not may_be_alone) if above is FULL else medium is GPU
        if asked and above in gone and row.slot(below, medium) is not None:
            yield above, below


@law(
    "EVICT-4",
    Kind.STEP,
    LawClass.SERVING,
    premise=Premise[Step](
        "an eviction that takes pages out of the tree",
        situations.left_the_tree,
    ),
)
def no_orphan(step: Step) -> Iterator[str]:
    """A page that leaves the tree leaves nothing behind: no page below it, no copy elsewhere.

    An eviction from the device removes from the tree only pages without a host copy, and one from
    the host only pages that are not on the device. Under write_back a leaf that cannot be copied
    takes the pages below it, which are on the host alone, with it.

    Why: nobody can find, match or free a node whose parent is gone. And if a page leaves the tree
    although another medium has a copy of it, that copy was paid for and is thrown away.

    Seen broken: https://github.com/NVIDIA/TensorRT-LLM/issues/4596,
    https://github.com/sgl-project/sglang/issues/33713
    """
    medium = situations.eviction_medium(step)
    if medium is None:
        return
    for change in step.changes:
        was, now = change.before, change.after
        if was is None and now is not None:
            yield (
                f"{page_in_words(step.after, now)} was not in the tree before; the node above it "
                "was removed"
            )
        if was is None or now is not None:
            continue
        other = CPU if medium is GPU else GPU
        left = was.slot(FULL, other)
        if left is None or (medium is GPU and writes_back(step.before)):
            continue
        yield (
            f"an eviction from {medium} removed {page_in_words(step.before, was)} from the tree, "
            f"though it had full slot {left} on {other}"
        )


@law(
    "EVICT-5",
    Kind.STEP,
    LawClass.SERVING,
    premise=Premise[Step](
        "an eviction from the device of data with a host copy",
        lambda step: any(
            row.slot(FULL, CPU) is not None for row, _ in situations.lost_from(step, GPU)
        ),
    ),
    enabled_if=bounds.has_host_tier,
    from_outside=(visibility.EVENTS,),
)
def demote_keeps_backup(step: Step) -> Iterator[str]:
    """A page with a host copy that leaves the device stays in the tree, in its host slots.

    Under write_back a host copy may make way for that of another page in the same step, but only
    where some victim had to be copied.

    Why: this copy is what the host tier is for. Without it the prompt is computed again, although
    its data had been saved.

    Seen broken: https://github.com/sgl-project/sglang/pull/25065,
    https://github.com/sgl-project/sglang/issues/33713
    """
    if situations.eviction_medium(step) is not GPU:
        return
    if writes_back(step.before) and _had_to_copy(step):
        return
    for change in step.changes:
        was, now = change.before, change.after
        if was is None or not _lost(was, now, FULL, GPU) or was.backing[COLUMN[FULL]] is not None:
            continue
        for component in step.before.config.components if was.slot(FULL, CPU) is not None else ():
            old, new = was.slot(component, CPU), slot_of(now, component, CPU)
            if old is not None and new != old:
                yield (
                    f"{page_in_words(step.before, was)} was evicted from {GPU} with a host copy; "
                    f"its {component} slot on {CPU} was {old} and is {in_words(new)}"
                )


def _lost(was: PageRow, now: PageRow | None, component: Component, medium: Medium) -> bool:
    return was.slot(component, medium) is not None and slot_of(now, component, medium) is None


def _had_to_copy(step: Step) -> bool:
    """Whether some victim had data on the device and not on the host."""
    return any(
        data.device is not None and data.host is None
        for victim in losses(step, GPU)
        for data in victim.node.data.values()
    )
