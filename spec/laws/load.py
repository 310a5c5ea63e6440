"""LOAD: load-back, or how what is on the host only comes to the device again.

A load takes room in each pool for what that pool lacks: full slots for all pages of the key, window
slots for its window, one slot for its state. Where a pool is short it evicts first; and where that
does not help it leaves all but the evicted as it was.

What readers get wrong: `min(full free, swa free)` is the free room of no pool. A load that counts
so evicts full pages because window slots are short, and nothing is gained by it.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen

from kvcanon.spec.law import Kind, Need, law
from kvcanon.spec.laws import premises
from kvcanon.spec.laws.comparing import (
    MEDIA,
    Loss,
    changes,
    differences,
    in_words,
    is_loose_copy,
    losses,
    page_in_words,
    pages_changed,
    rest_changed,
    slot_of,
)
from kvcanon.spec.laws.copies import may_be_given_up
from kvcanon.spec.laws.evict import others_untouched
from kvcanon.spec.laws.uncovered import joined
from kvcanon.spec.operations import Flush, LoadDecision, LoadedBack, Poll
from kvcanon.spec.oracle.eviction import serves_shortage
from kvcanon.spec.replay.board import board_of
from kvcanon.spec.replay.evictable import could_be_free
from kvcanon.spec.replay.load import hold_path
from kvcanon.spec.replay.missing import Load, free_on_device, load_of, window_begin
from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.transfer import Direction
from kvcanon.spec.types import CPU, FULL, GPU, MAMBA, SWA, Component, Counts, Slot, shortage
from kvcanon.spec.views import COLUMN, PageRow, Step, rows_along


@law("LOAD-1", Kind.STEP, premises.LOAD_EVICTS)
def full_only_pre_evict(step: Step) -> Iterator[str]:
    """A load evicts from a pool only what that pool is short of: full data for full slots alone.

    Where full slots are not short, a leaf leaves only for its window data or its state, and only
    where that pool is short. That nothing leaves once there is room, REC-3 says. By profile, a
    tombstone may leave with what uncovered it.

    Why: window pools are small and always short. A load that takes their free room for that of the
    full pool empties the full pool, which had room, each time that it loads.

    Seen broken: https://github.com/sgl-project/sglang/pull/26302
    """
    load = load_of(step)
    if load is None or not load.may_evict:
        return
    needed = load.missing.counts()
    free = free_on_device(step.before)
    short = shortage(needed, free)
    for each in joined(step, losses(step, GPU), GPU):
        if not serves(each, short):
            yield (
                f"{step.before.describe(each.node)} lost {each.full} full slots to a load that "
                f"needed {needed.full} full and had {free.full} free; swa: {needed.swa} needed, "
                f"{free.swa} free; mamba: {needed.mamba} needed, {free.mamba} free"
            )


@law("LOAD-2", Kind.STEP, premises.LOAD_EVICTS)
def own_path_spared(step: Step) -> Iterator[str]:
    """A load never evicts what it is for: its key's full data, its window and the state at its end.

    Neither from the device nor from the host (unless the profile says that locks do not hold what
    is there, and the device has it). Window data before the window is no part of it.

    Why: what is evicted from its own path is missing when the copy ends, or was the copy's source.

    Seen broken: https://github.com/sgl-project/sglang/issues/27444
    """
    load = load_of(step)
    if load is None:
        return
    before, after = step.changed
    begin = window_begin(step.before, load.key)
    for index, number in enumerate(step.numbers.of_key(load.key)):
        was = before.get(number)
        if was is None:
            continue
        own = (FULL, *((SWA,) if index >= begin else ()))
        for component in (*own, MAMBA) if index == len(load.key) - 1 else own:
            for medium in MEDIA:
                old, new = (
                    was.slot(component, medium),
                    slot_of(after.get(number), component, medium),
                )
                loose = new is None and is_loose_copy(step.before, was, component, medium)
                copied = loose and was.slot(component, GPU) is not None
                if old is not None and new != old and not copied:
                    yield (
                        f"{page_in_words(step.before, was)} is page {index} of the key that was to "
                        f"be loaded; its {component} slot on {medium} was {old} and is "
                        f"{in_words(new)}"
                    )


@law("LOAD-3", Kind.STEP, premises.LOAD_WITHOUT_ROOM)
def failure_changes_nothing(step: Step) -> Iterator[str]:
    """A load that is not enqueued leaves no trace but what it evicted for want of room.

    No lock remains, nor, say LOCK-10 and ASYNC-7, a receipt or a transfer. Nodes may be cut.

    Why: a request whose prefix could not be loaded computes it, and nobody will ever release what
    the attempt had taken.

    Seen broken: https://github.com/sgl-project/sglang/issues/30986
    """
    load = load_of(step)
    if load is None or load.outcome.decision is LoadDecision.ENQUEUED:
        return
    if load.outcome.decision is not LoadDecision.NO_ROOM:
        yield from pages_changed(step)
        yield from rest_changed(step)
        return
    yield from others_untouched(step, GPU, spared=())


@law("LOAD-4", Kind.STEP, premises.LOAD_ENQUEUED, needs=(Need.SNAPSHOT, Need.HOLDS, Need.TRANSFERS))
def whole_prefix_comes(step: Step) -> Iterator[str]:
    """Once a load is enqueued, its key is on the device as far as it is of use, or on its way.

    Every page has a full slot; window pages and the state have one where they were on any medium.
    Nothing else comes: no window data from before the window. The transfer is the last in flight,
    carries exactly what was missing, from the host slots to the new ones, and holds a receipt. The
    outcome counts it. Where the profile says that a load is of use at its enqueue, no page waits
    for it.

    Why: a prefix of which a part never comes is no prefix, and the copy was for nothing.

    Seen broken: https://github.com/sgl-project/sglang/issues/25088,
    https://github.com/sgl-project/sglang/issues/24869
    """
    load = load_of(step)
    if load is None or load.outcome.decision is not LoadDecision.ENQUEUED:
        return
    gained: list[_Gain] = []
    begin, end = window_begin(step.before, load.key), len(load.key)
    olds, news = rows_along(step.before, load.key), rows_along(step.after, load.key)
    if len(news) < end:
        yield f"of the {end} pages of the key {len(news)} are in the tree after the load"
    for index, (old, new) in enumerate(zip(olds, news, strict=False)):
        for component in step.before.config.components:
            source, target = old.slot(component, CPU), new.slot(component, GPU)
            own = {FULL: True, SWA: index >= begin, MAMBA: index == end - 1}[component]
            there = component is FULL or source is not None or old.slot(component, GPU) is not None
            if own and there and target is None:
                yield f"{page_in_words(step.after, new)} has no {component} slot on {GPU}"
            if target is not None and old.slot(component, GPU) is None:
                gained.append(_Gain(new, component, source, target))
                if index not in load.missing[component]:
                    yield (
                        f"{page_in_words(step.after, new)} got {component} slot {target} on {GPU}, "
                        "which is of no use at the end of the key"
                    )
    for component in step.before.config.components:
        count = sum(each.component is component for each in gained)
        if count != load.outcome.loading[component]:
            told = load.outcome.loading[component]
            yield f"{told} {component} slots are said to be loading, and pages gained {count}"
    yield from _transfer_of(step, load.outcome, gained)


@law("LOAD-5", Kind.STEP, premises.LOAD_ENQUEUED)
def host_copy_stays(step: Step) -> Iterator[str]:
    """What is loaded keeps its host copy, from the enqueue to the end of the copy, and then too.

    By profile, under write_back, all that the device has of a node may leave the host when the load
    of the node is done: in the poll or flush that settles it, and not before.

    Why: a source that is given up while the copy reads it becomes another prompt's data. Once the
    copy is done it saves the next one: the page can leave the device without a backup.

    Seen broken: https://github.com/sgl-project/sglang/issues/27444
    """
    load = load_of(step)
    enqueued = load is not None and load.outcome.decision is LoadDecision.ENQUEUED
    if not enqueued and not isinstance(step.operation, (Poll, Flush)):
        return
    for change in changes(step):
        was, now = change.before, change.after
        if was is None:
            continue
        for component in step.before.config.components:
            arrived = was.slot(component, GPU) is None and slot_of(now, component, GPU) is not None
            if not arrived and was.loading[COLUMN[component]] is None:
                continue
            old, new = was.slot(component, CPU), slot_of(now, component, CPU)
            gone = new is None and may_be_given_up(step, was, now, component)
            if old != new and not gone:
                yield (
                    f"{page_in_words(step.before, was)} is loaded from {component} slot "
                    f"{in_words(old)} on {CPU}, which is {in_words(new)} now"
                )


@law("LOAD-6", Kind.STEP, premises.LOAD)
def decisions(step: Step) -> Iterator[str]:
    """A load is not enqueued for the reason that it gives, and for no other.

    Nothing to load: all is on the device, or on its way. Below the threshold: fewer full pages than
    are worth a copy, and nothing else. Over the quota: more full pages than were allowed. No room:
    some pool would have too few free slots even if all left that may leave, but for what the load
    is for; whether what is impossible is tried, and so evicts something, is free.

    Why: the reason decides what the engine does next: wait, compute, or try again.

    Seen broken: not seen
    """
    load = load_of(step)
    if load is None:
        return
    config, told = step.before.config, load.outcome.decision
    needed, quota = load.missing.counts(), load.operation.quota_pages
    small = needed.full < config.load_back_threshold_pages and not needed.swa and not needed.mamba
    reasons = [
        reason
        for reason, applies in (
            (LoadDecision.NOTHING_TO_LOAD, not needed),
            (LoadDecision.BELOW_THRESHOLD, bool(needed) and small),
            (LoadDecision.OVER_QUOTA, quota is not None and needed.full > quota),
        )
        if applies
    ]
    want = f"{needed.full} full, {needed.swa} swa and {needed.mamba} mamba slots have to be loaded"
    if told not in (reasons or (LoadDecision.ENQUEUED, LoadDecision.NO_ROOM)):
        right = " or ".join(reasons or (LoadDecision.ENQUEUED, LoadDecision.NO_ROOM))
        yield (
            f"{want}; the threshold is {config.load_back_threshold_pages}, the quota "
            f"{in_words(quota)}; the decision was {told}, expected {right}"
        )
    elif told is LoadDecision.NO_ROOM and _could_fit(step.after, load):
        free = free_on_device(step.after)
        yield (
            f"{want}, and there is room or could be made: {free.full} full, {free.swa} swa and "
            f"{free.mamba} mamba slots are free, and the decision was {told}"
        )


@law("LOAD-7", Kind.STEP, premises.LOAD_BESIDE_OTHERS)
def others_left_alone(step: Step) -> Iterator[str]:
    """Besides the pages of its key a load changes only victims, which were not locked.

    And on its key it changes slots, locks and what is in flight; not hits, nor what is backed up.
    Nor does it make anything recent, says REC-7: a load is no use.

    Why: a load is for one prompt. What it does to others decides who is evicted next.

    Seen broken: not seen
    """
    load = load_of(step)
    if load is None or load.outcome.decision is not LoadDecision.ENQUEUED:
        return
    own = set(step.numbers.of_key(load.key))
    yield from others_untouched(step, GPU, spared=own)
    for change in changes(step):
        if change.number in own and change.before is not None:
            yield from differences(step, change, but=("device", "host", "loading", "lock_refs"))


def serves(lost: Loss, short: Counts) -> bool:
    """Whether what a node lost to a load was of use to a pool that is short."""
    given = (lost.full, lost.swa, lost.mamba)
    return not lost.full or serves_shortage(given, (short.full, short.swa, short.mamba))


@frozen
class _Gain:
    """A device slot that a page of the key did not have before the load."""

    row: PageRow
    component: Component
    source: Slot | None
    target: Slot


def _could_fit(state: Snapshot, load: Load) -> bool:
    """Whether there is room for a load, or would be if all left that its path does not need."""
    board = board_of(state)
    hold_path(board, state, load)
    return could_be_free(board, load.missing.counts(), GPU)


def _transfer_of(step: Step, outcome: LoadedBack, gained: list[_Gain]) -> Iterator[str]:
    """What is wrong with the transfer of a load that was enqueued."""
    transfer_id = outcome.transfer_id
    last = step.after.transfers[-1] if step.after.transfers else None
    if last is None or last.transfer_id != transfer_id:
        found = "there is none" if last is None else f"that is {last.transfer_id}"
        yield f"transfer {in_words(transfer_id)} should be the last in flight; {found}"
        return
    if any(each.transfer_id == transfer_id for each in step.before.transfers):
        yield f"transfer {transfer_id} was in flight before the load"
    if last.direction is not Direction.LOAD_BACK or last.cancelled:
        yield f"transfer {transfer_id} is a {last.direction}, cancelled: {last.cancelled}"
    for component in step.before.config.components:
        wanted = {(each.source, each.target) for each in gained if each.component is component}
        sources, targets = last.sources.get(component, ()), last.targets.get(component, ())
        if wanted != set(zip(sources, targets, strict=False)) or len(sources) != len(targets):
            yield (
                f"transfer {transfer_id} copies {component} slots {list(sources)} on {CPU} to "
                f"{list(targets)} on {GPU}; what came to the key is {sorted(wanted, key=str)}"
            )
    parts = {(each.row.node_id, each.component) for each in gained}
    if parts != set(last.parts):
        odd = sorted((node_id, component.value) for node_id, component in parts ^ set(last.parts))
        yield f"transfer {transfer_id} and the key do not agree on the parts {odd}"
    for each in gained if step.after.nodes_wait_for(last) else ():
        if each.row.loading[COLUMN[each.component]] != transfer_id:
            yield (
                f"{page_in_words(step.after, each.row)} has a new {each.component} slot on {GPU} "
                f"that transfer {transfer_id} is not said to fill"
            )
    if not any(hold.transfer_id == transfer_id for hold in step.after.holds):
        yield f"transfer {transfer_id} holds no receipt"
