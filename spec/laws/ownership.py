"""ALLOC, continued: who owns a slot, to the last one.

A slot that a cancelled copy still writes to is *orphaned*: its nodes have forgotten it, and it
comes free when the copy ends. With these, what is free, held and in the tree is all that there is.

What readers get wrong: attention finds a window slot by the full slot, wherever both are. The
mapping is as much a part of who owns what as the slots themselves, for requests as for the tree.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from kvcanon.spec.difference import Difference
from kvcanon.spec.law import Kind, Need, law
from kvcanon.spec.laws import premises
from kvcanon.spec.laws.comparing import MEDIA, in_words, orphaned_slots, owners_of
from kvcanon.spec.operations import Insert, Inserted
from kvcanon.spec.snapshot import NO_POOL, Snapshot
from kvcanon.spec.types import FULL, GPU, SWA, Slot
from kvcanon.spec.views import Step, rows_along

NEEDS = (Need.SNAPSHOT, Need.TRANSFERS)


def owners_follow(difference: Difference) -> bool:
    """Whether slots went from owner to owner, and the same ones are orphaned."""
    before, after = difference.before, difference.after
    if "transfers" not in difference.fields:
        return difference.balanced
    return difference.balanced and all(
        orphaned_slots(before, component, medium) == orphaned_slots(after, component, medium)
        for component in after.config.components
        for medium in MEDIA
    )


@law("ALLOC-8", Kind.STATE, premises.ANY_NODE, needs=NEEDS, outlasts=owners_follow)
def no_slot_is_lost(state: Snapshot) -> Iterator[str]:
    """Every slot has an owner: the free list, a node, a request, or a cancelled copy alone.

    So that free + evictable + protected + held + orphaned slots are the pool. A copy owns slots
    only once it is cancelled; then nobody else does.

    Why: a slot without an owner is lost until a restart. A pool that leaks a slot with each request
    stands empty and full at once before the day is over.

    Seen broken: https://github.com/sgl-project/sglang/issues/7130,
    https://github.com/sgl-project/sglang/issues/38355,
    https://github.com/sgl-project/sglang/issues/10637
    """
    for component in state.config.components:
        for medium in MEDIA:
            pool = state.pools.get((component, medium), NO_POOL)
            orphaned = orphaned_slots(state, component, medium)
            in_tree = sum(len(node[component].slots(medium) or ()) for node in state.below_root())
            parts = (len(pool.free), in_tree, len(pool.held), len(orphaned))
            if sum(parts) == pool.capacity and not orphaned:
                continue
            others = [*pool.free, *pool.held]
            for node in state.below_root():
                others.extend(node[component].slots(medium) or ())
            for slot in sorted(set(range(pool.capacity)).difference(others, orphaned)):
                yield f"slot {slot} of {component} on {medium} has no owner"
            for slot in sorted(set(orphaned).intersection(others)):
                owners = " and ".join(owners_of(state, component, medium, slot))
                yield f"slot {slot} of {component} on {medium} belongs to {owners}"


def mapping_follows(difference: Difference) -> bool:
    """Whether no entry of the mapping is left that was good for something that is gone."""
    if difference.unchanged("swa_of_full", "pools", "transfers"):
        return True
    before, after = difference.before, difference.after
    suspects = set(difference.remapped)
    for (fulls, windows), (fulls_now, windows_now) in zip(
        _pairs_outside(before), _pairs_outside(after), strict=True
    ):
        suspects.update(fulls - fulls_now)
        if not windows <= windows_now:
            gone = windows - windows_now
            suspects.update(full for full, swa in after.swa_of_full.items() if swa in gone)
    for node in difference.rebuilt_nodes_before():
        suspects.update(node[FULL].device or ())
    for node in difference.rebuilt_nodes():
        if node[SWA].device is not None:
            suspects.difference_update(node[FULL].device or ())
    suspects.intersection_update(after.swa_of_full)
    return next(_strays(after, suspects), None) is None


@law("ALLOC-9", Kind.STATE, premises.MAPPED_SLOT, needs=NEEDS, outlasts=mapping_follows)
def no_stale_mapping(state: Snapshot) -> Iterator[str]:
    """The mapping leads from full slots of pages with window data, and from no other of the tree.

    A page without window data on the device has no entry. Slots that are held by requests may have
    entries, from held to held, and so may those that a cancelled copy still writes to.

    Why: a stale entry frees, with its full slot, a window slot that somebody else has by then.

    Seen broken: https://github.com/sgl-project/sglang/issues/27586,
    https://github.com/sgl-project/sglang/issues/25834
    """
    if SWA not in state.config.components or not state.swa_of_full:
        return
    others = set(state.swa_of_full)
    for node in state.below_root():
        if node[FULL].device is not None and node[SWA].device is not None:
            others.difference_update(node[FULL].device or ())
    yield from _strays(state, others)


@law("ALLOC-10", Kind.STEP, premises.MAPPING_CHANGE)
def pairs_of_requests_last(step: Step) -> Iterator[str]:
    """Where a request holds a full slot and its window slot, nothing that others do parts them.

    Neither a reset, nor an eviction, nor another request's insert: the pair lasts until one of the
    two is given back or handed over.

    Why: a request goes on computing through the mapping. Without its entry it reads and writes no
    window data; with another it reads and writes somebody else's.

    Seen broken: https://github.com/sgl-project/sglang/issues/36457
    """
    before, after = step.before, step.after
    if before is after or before.swa_of_full == after.swa_of_full:
        return
    full, swa = (
        before.pools.get((component, GPU), NO_POOL).held
        & after.pools.get((component, GPU), NO_POOL).held
        for component in (FULL, SWA)
    )
    for full_slot, swa_slot in before.swa_of_full.items():
        now = after.swa_of_full.get(full_slot)
        if full_slot in full and swa_slot in swa and now != swa_slot:
            yield (
                f"requests hold full slot {full_slot} and swa slot {swa_slot}, which was its own; "
                f"after {type(step.operation).__name__} the mapping leads to {in_words(now)}"
            )


@law("ALLOC-11", Kind.STEP, premises.INSERT_OF_SLOTS)
def slots_go_to_their_pages(step: Step) -> Iterator[str]:
    """An insert puts each slot at the page that it was handed over for, and moves no other.

    What a page has on the device it keeps. By profile, a page that gets window data again may take
    the full slot that came with it in place of its own.

    Why: a slot at the page of its neighbour is read as that page, by every prompt that shares it.

    Seen broken: https://github.com/sgl-project/sglang/issues/25991
    """
    asked = step.operation
    if not isinstance(asked, Insert) or not isinstance(step.outcome, Inserted):
        return
    before = rows_along(step.before, asked.key)
    for component, slots in asked.slots:
        first = len(asked.key) - len(slots)
        for page, row in enumerate(rows_along(step.after, asked.key)):
            old = before[page].slot(component, GPU) if page < len(before) else None
            given = slots[page - first] if page >= first else None
            now = row.slot(component, GPU)
            replaced = component is FULL and not step.before.profile.heals_in_place
            if now not in ((old, given) if replaced else (given if old is None else old,)) and (
                now is not None
            ):
                yield (
                    f"page {page} of the key had {component} slot {in_words(old)}, slot "
                    f"{in_words(given)} was handed over for it, and it has slot {now}"
                )


def _pairs_outside(state: Snapshot) -> tuple[tuple[frozenset[Slot], frozenset[Slot]], ...]:
    """The full and window slots that may be mapped though no node has them.

    Those that requests hold, and those that cancelled copies still write to.
    """
    full, swa = (state.pools.get((component, GPU), NO_POOL).held for component in (FULL, SWA))
    orphans = [frozenset(orphaned_slots(state, component, GPU)) for component in (FULL, SWA)]
    return (full, swa), (orphans[0], orphans[1])


def _strays(state: Snapshot, full_slots: Collection[Slot]) -> Iterator[str]:
    """Entries of the mapping from slots that no node has which lead from nothing or to nothing."""
    outside = _pairs_outside(state)
    for full_slot in sorted(full_slots):
        swa_slot = state.swa_of_full[full_slot]
        if not any(full_slot in fulls and swa_slot in windows for fulls, windows in outside):
            full_owner, swa_owner = (
                " and ".join(owners_of(state, component, GPU, slot)) or "nobody"
                for component, slot in ((FULL, full_slot), (SWA, swa_slot))
            )
            yield (
                f"the mapping leads from full slot {full_slot} to swa slot {swa_slot}; these "
                f"belong to {full_owner} and {swa_owner}"
            )
