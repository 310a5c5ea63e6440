"""ALLOC, continued: no slot is lost, and the mapping follows the owners.

A slot that a cancelled copy still writes to is *orphaned*: its nodes have dropped it, and it
becomes free when the copy ends. Free, held, orphaned and tree slots are all slots of a pool.

Attention finds a window slot through the full slot, for requests as for the tree. So the mapping
must follow the owners of both slots.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from kvcanon.spec.difference import Difference
from kvcanon.spec.law import Kind, LawClass, Need, Premise, law
from kvcanon.spec.laws import bounds, situations
from kvcanon.spec.laws.comparison import MEDIA, in_words, orphaned_slots, owners_of, slots_lost
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


@law(
    "ALLOC-8",
    Kind.STEP,
    LawClass.SERVING,
    premise=Premise[Step](
        "a step that changes who has a slot",
        lambda step: not step.difference.unchanged("pools"),
    ),
    needs=NEEDS,
)
def no_slot_is_lost(step: Step) -> Iterator[str]:
    """No call leaves a slot without an owner.

    Owners are the free list, a node, a request, and a cancelled copy, which is then the only owner
    of its slots. Slots that nobody has from the start are reserved (ASK-6).

    Why: a slot without an owner is lost until a restart. A pool that leaks one slot with each
    request is exhausted within a day, though nothing is cached.

    Seen broken: https://github.com/sgl-project/sglang/issues/7130,
    https://github.com/sgl-project/sglang/issues/38355,
    https://github.com/sgl-project/sglang/issues/10637
    """
    if not owners_follow(step.difference):
        yield from owners_lost(step.before, step.after)


def owners_lost(before: Snapshot, after: Snapshot) -> Iterator[str]:
    """The slots that had an owner and have none, and those of cancelled copies that have two."""
    for component in after.config.components:
        for medium in MEDIA:
            pool = component, medium
            for slot in sorted(slots_lost(after, pool) - slots_lost(before, pool)):
                yield f"slot {slot} of {component} on {medium} has no owner"
            for slot in orphaned_slots(after, component, medium):
                owners = list(owners_of(after, component, medium, slot))
                if len(owners) > 1:
                    words = " and ".join(owners)
                    yield f"slot {slot} of {component} on {medium} belongs to {words}"


def mapping_follows(difference: Difference) -> bool:
    """Whether no mapping entry is left whose full or window slot lost its owner."""
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
    for node in difference.rebuilt_nodes_before:
        suspects.update(node.full.device or ())
    for node in difference.rebuilt_nodes:
        if node.swa.device is not None:
            suspects.difference_update(node.full.device or ())
    suspects.intersection_update(after.swa_of_full)
    return not suspects or next(_strays(after, suspects), None) is None


@law(
    "ALLOC-9",
    Kind.STATE,
    LawClass.SOUND,
    premise=Premise[Snapshot](
        "a mapping entry",
        lambda state: bool(state.swa_of_full),
    ),
    needs=NEEDS,
    enabled_if=bounds.has_windows,
    follows=mapping_follows,
)
def no_stale_mapping(state: Snapshot) -> Iterator[str]:
    """The mapping has entries only for full slots of pages that have window data.

    Slots that requests hold may have entries, from held to held, and so may slots that a cancelled
    copy still writes to.

    Why: when its full slot is freed, a stale entry also frees a window slot that has another owner
    by then.

    Seen broken: https://github.com/sgl-project/sglang/issues/27586,
    https://github.com/sgl-project/sglang/issues/25834
    """
    if SWA not in state.config.components or not state.swa_of_full:
        return
    others = set(state.swa_of_full)
    for node in state.below_root():
        if node.full.device is not None and node.swa.device is not None:
            others.difference_update(node.full.device or ())
    yield from _strays(state, others)


@law(
    "ALLOC-10",
    Kind.STEP,
    LawClass.SOUND,
    premise=Premise[Step](
        "a change of the mapping while a request has slots with window data",
        lambda step: (
            step.before.swa_of_full != step.after.swa_of_full
            and bool(
                situations.held_slots(step.before, SWA) & situations.held_slots(step.after, SWA)
            )
        ),
    ),
    enabled_if=bounds.has_requests_with_windows,
)
def pairs_of_requests_last(step: Step) -> Iterator[str]:
    """While a request holds a full slot and its window slot, no other operation parts the pair.

    Neither a reset, nor an eviction, nor another request's insert: the pair lasts until one of the
    two slots is given back or handed over.

    Why: a running request computes through the mapping. Without its entry it reads and writes no
    window data; with another, somebody else's.

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


@law(
    "ALLOC-11",
    Kind.STEP,
    LawClass.SOUND,
    premise=Premise[Step](
        "an insert that hands over slots",
        lambda step: (
            isinstance(step.operation, Insert)
            and isinstance(step.outcome, Inserted)
            and bool(step.operation.slots.counts())
        ),
    ),
)
def slots_go_to_their_pages(step: Step) -> Iterator[str]:
    """An insert puts each slot at the page that it was handed over for, and moves no other.

    A page keeps the slots that it has on the device. By profile, a page that gets window data again
    may take the full slot that came with it in place of its own.

    Why: a slot at its neighbour's page is read as that page, by every prompt that shares it.

    Seen broken: https://github.com/sgl-project/sglang/issues/25991
    """
    call = step.operation
    if not isinstance(call, Insert) or not isinstance(step.outcome, Inserted):
        return
    before = rows_along(step.before, call.key)
    for component, slots in call.slots:
        handed = dict(zip(call.pages_of(component), slots, strict=False))
        for page, row in enumerate(rows_along(step.after, call.key)):
            old = before[page].slot(component, GPU) if page < len(before) else None
            given = handed.get(page)
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

    Requests hold them, or cancelled copies still write to them.
    """
    full, swa = (state.pools.get((component, GPU), NO_POOL).held for component in (FULL, SWA))
    if not state.transfers:
        return (full, swa), (frozenset(), frozenset())
    orphans = [frozenset(orphaned_slots(state, component, GPU)) for component in (FULL, SWA)]
    return (full, swa), (orphans[0], orphans[1])


def _strays(state: Snapshot, full_slots: Collection[Slot]) -> Iterator[str]:
    """Mapping entries from slots that no node has, unless both slots have one outside owner."""
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
