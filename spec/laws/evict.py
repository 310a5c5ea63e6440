"""EVICT: how much an eviction frees, and that it touches nothing but its victims.

Full data leaves with whole leaves. Window data and mamba states can also leave from inside the
tree; their node stays. REC laws check the order of victims.

What readers get wrong: pools are separate, but a leaf leaves as a whole. A short window pool is a
reason to evict a whole leaf with window data, never one without.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from kvcanon.spec.cache import Cache
from kvcanon.spec.law import Kind, LawClass, Level, Premise, law
from kvcanon.spec.laws import bounds, premises, situations, visibility
from kvcanon.spec.laws.comparison import (
    Loss,
    candidates,
    differences,
    in_words,
    is_duplicate,
    is_loose_copy,
    joined,
    losses,
    page_in_words,
    parts_on_host,
    slot_of,
    total,
    writes_back,
)
from kvcanon.spec.operations import Evict, EvictHost
from kvcanon.spec.oracle.eviction import last_was_needed
from kvcanon.spec.snapshot import NodeState, Snapshot
from kvcanon.spec.types import CPU, FULL, GPU, MAMBA, SWA, Component, Counts, Medium, NodeId
from kvcanon.spec.views import COLUMN, PageNumber, Step


@law(
    "EVICT-1",
    Kind.STEP,
    LawClass.SERVING,
    premise=Premise[Step](
        "an eviction",
        lambda step: isinstance(step.operation, Evict | EvictHost) and situations.went_well(step),
    ),
    from_outside=(visibility.EVICTIONS,),
)
def asked_is_freed(step: Step) -> Iterator[str]:
    """An eviction frees as many slots of each component as were asked for, or no victim is left.

    Why: a request waits for these slots. If victims were left, it fails or waits for ever beside
    memory that nobody needs.

    Seen broken: https://github.com/sgl-project/sglang/issues/22592,
    https://github.com/LMCache/LMCache/issues/1756
    """
    medium = situations.eviction_medium(step)
    if medium is None or not isinstance(step.operation, (Evict, EvictHost)):
        return
    freed, asked = total(losses(step, medium)), step.operation.counts
    for component in step.before.config.components:
        if freed[component] >= asked[component]:
            continue
        for node in candidates(step.after, component, medium):
            if medium is CPU and component is FULL and _was_no_duplicate(step, node):
                continue
            yield (
                f"{asked[component]} {component} slots were asked for on {medium} and "
                f"{freed[component]} freed, but {step.after.describe(node)} could still be evicted"
            )
            break


@law(
    "EVICT-2",
    Kind.STEP,
    LawClass.POLICY,
    chosen_by="eviction",
    premise=premises.EVICTION_FREES,
    from_outside=((Cache.evict,),),
)
def overshoot_is_one_victim(step: Step) -> Iterator[str]:
    """An eviction stops once it has freed enough: without its last victim it had freed too few.

    Components are served in the order full, swa, mamba; slots that one frees on the way count for
    the next. If nothing is asked for, nothing is evicted. This law holds for any order of victims;
    REC-3 checks exactly who leaves where that order is known. By profile, a tombstone leaves with
    the last node below it; then the two are one victim.

    Why: each page that is evicted without need is computed again.

    Seen broken: https://github.com/sgl-project/sglang/issues/4987
    """
    medium = situations.eviction_medium(step)
    if medium is not None and isinstance(step.operation, (Evict, EvictHost)):
        victims = joined(step, losses(step, medium), medium)
        yield from _overshoot(step.before, step.operation.counts, victims, medium)


@law("EVICT-6", Kind.STEP, LawClass.SOUND, premise=premises.EVICTION_FREES)
def victims_only(step: Step) -> Iterator[str]:
    """An eviction takes slots of nodes that are not locked, and changes nothing else.

    Nodes that are no victims keep slots, locks and hits (REC-7: and their place in the LRU order);
    slots that requests hold stay theirs. Under write_back victims are copied to the host, and
    unlocked nodes may lose their host copies for that. By profile, the window before a victim may
    be copied with it, and locks need not hold host copies.

    Why: nobody asked for other changes and no answer reports them, so that a request, a router or
    the engine goes on with what is no longer true.

    Seen broken: https://github.com/NVIDIA/TensorRT-LLM/issues/17926,
    https://github.com/sgl-project/sglang/issues/27444
    """
    medium = situations.eviction_medium(step)
    if medium is None:
        return
    yield from others_untouched(step, medium, spared=set())


@law(
    "EVICT-7",
    Kind.STEP,
    LawClass.POLICY,
    chosen_by="eviction",
    premise=Premise[Step](
        "an eviction of full data from the host while there are duplicates",
        lambda step: (
            situations.evicts_from(step) is CPU
            and writes_back(step.before)
            and any(is_duplicate(step.before, node) for node in step.before.below_root())
        ),
    ),
    level=Level.SHOULD,
    enabled_if=bounds.writes_back,
)
def duplicates_leave_first(step: Step) -> Iterator[str]:
    """Under write_back, a host eviction for full slots takes duplicates before any host leaf.

    A duplicate is the host copy of data that is still on the device.

    Why: to drop a duplicate loses nothing, and costs another copy at worst; a host leaf is lost.

    Seen broken: not seen
    """
    call = step.operation
    if not (isinstance(call, EvictHost) and writes_back(step.before)):
        return
    if call.counts.swa or call.counts.mamba:
        return
    gone = [loss.node for loss in losses(step, CPU) if loss.node.full.device is None]
    stayed = [node for node in step.after.below_root() if is_duplicate(step.after, node)]
    if gone and stayed:
        yield (
            f"{step.before.describe(gone[0])}, on the host only, was evicted from there while the "
            f"host copy of {step.after.describe(stayed[0])}, which the device has, stayed"
        )


def others_untouched(step: Step, medium: Medium, spared: Collection[PageNumber]) -> Iterator[str]:
    """What an eviction changed besides taking unlocked slots of `medium`.

    Pages in `spared` are not checked.
    """
    copies = medium is GPU and writes_back(step.before)
    victims = {each.node.node_id for each in losses(step, medium)}
    before_victims = _ancestors(step.before, victims) if parts_on_host(step.before) else set()
    for change in step.changes:
        was, now = change.before, change.after
        if was is None or change.number in spared:
            continue
        moved = [
            (component, where)
            for component in step.before.config.components
            for where in (GPU, CPU)
            if was.slot(component, where) != slot_of(now, component, where)
        ]
        for component, where in moved:
            old, new = was.slot(component, where), slot_of(now, component, where)
            taken = new is None and (where is medium or copies)
            copied = where is CPU and copies and was.node_id in victims
            copied |= component is SWA and where is CPU and copies and was.node_id in before_victims
            refs = was.lock_refs[COLUMN[component]]
            held = (
                refs and old is not None and not is_loose_copy(step.before, was, component, where)
            )
            if held or not (taken or copied):
                yield (
                    f"{page_in_words(step.before, was)}, with {refs} {component} lock_refs: its "
                    f"{component} slot on {where} was {in_words(old)} and is {in_words(new)}"
                )
        if now is not None:
            yield from differences(step, change, but=("device", "host"))
    for pool, was_pool in step.before.pools.items():
        now_pool = step.after.pools.get(pool, was_pool)
        if was_pool.held != now_pool.held:
            moved_slots = sorted(was_pool.held ^ now_pool.held)
            yield (
                f"{pool[0]} slots {moved_slots} on {pool[1]} are held only before or only after "
                "the call"
            )


def _ancestors(state: Snapshot, below: Collection[NodeId]) -> set[NodeId]:
    """All nodes above some nodes."""
    found: set[NodeId] = set()
    for node_id in below:
        above = state.nodes[node_id].parent_id
        while above is not None and above not in found:
            found.add(above)
            above = state.nodes[above].parent_id
    return found


def _overshoot(state: Snapshot, asked: Counts, lost: list[Loss], medium: Medium) -> Iterator[str]:
    """Victims that were evicted although enough slots were free by then.

    The order of victims is not known here, so only conclusions that hold for every order are drawn:
    the last victim of all was needed, and so was the last of those that can have been chosen for
    one component only.
    """
    if not lost:
        return
    freed = total(lost)
    needed = [c for c in Component if asked[c]]
    if not any(_needed_last(freed[c], asked[c], c, lost) for c in needed):
        whole = " and ".join(f"{freed[c]} {c}" for c in Component if freed[c])
        want = " and ".join(f"{asked[c]} {c}" for c in needed) or "nothing"
        yield (
            f"{want} asked for on {medium} and {whole} slots evicted; without any one victim, "
            f"as {state.describe(lost[-1].node)}, it would still have been enough"
        )
        return
    only_full = [each for each in lost if each.full and not each.swa and not each.mamba]
    only_swa = [each for each in lost if each.swa and not each.full]
    only_mamba = [each for each in lost if each.mamba and not each.full and not each.swa]
    later = {
        FULL: total(
            each for each in lost if (each.swa and asked.swa) or (each.mamba and asked.mamba)
        ).full,
        SWA: total(each for each in lost if each.full and each.mamba and asked.mamba).swa,
        MAMBA: 0,
    }
    for component, chosen in ((FULL, only_full), (SWA, only_swa), (MAMBA, only_mamba)):
        by_then = freed[component] - later[component]
        if chosen and not _needed_last(by_then, asked[component], component, lost):
            yield (
                f"{state.describe(chosen[-1].node)} lost {component} slots on {medium}, of which "
                f"{asked[component]} were asked for and at least {by_then} freed by then: without "
                f"any one of the victims it would still have been enough"
            )


def _needed_last(freed: int, asked: int, component: Component, lost: list[Loss]) -> bool:
    """Whether a component was short before some victim that has data of it."""
    largest = max(each[component] for each in lost)
    return last_was_needed(freed, asked, largest)


def _was_no_duplicate(step: Step, node: NodeState) -> bool:
    """Whether a node became a duplicate only by later evictions of the same step."""
    old = step.before.nodes.get(node.node_id)
    return node.full.device is not None and (old is None or not is_duplicate(step.before, old))
