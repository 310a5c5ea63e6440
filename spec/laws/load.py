"""LOAD: load-back, the copy of a prefix from the host to the device.

A load-back takes slots from each pool for the data that the device lacks: full slots for all pages
of the key, window slots for its last window, one mamba slot for its state. Where a pool is short it
evicts first. If that is not enough, it changes nothing but what it evicted.

What readers get wrong: the shortage of each pool counts separately. A load-back that computes with
`min(full free, swa free)` evicts full pages because window slots are short, and gains nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.law import Kind, LawClass, Need, Premise, law
from kvcanon.spec.laws import bounds, premises, situations, visibility
from kvcanon.spec.laws.comparison import (
    MEDIA,
    Loss,
    differences,
    in_words,
    is_loose_copy,
    joined,
    losses,
    page_in_words,
    pages_changed,
    rest_changed,
    slot_of,
)
from kvcanon.spec.laws.copies import may_be_given_up
from kvcanon.spec.laws.evict import others_untouched
from kvcanon.spec.operations import Flush, LoadDecision, LoadedBack, Poll, Settle
from kvcanon.spec.oracle.eviction import serves_shortage
from kvcanon.spec.replay.board import board_of, could_be_free
from kvcanon.spec.replay.load import (
    Load,
    Missing,
    free_on_device,
    hold_path,
    load_of,
    missing_of,
    window_begin,
)
from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.transfer import Direction
from kvcanon.spec.types import CPU, FULL, GPU, MAMBA, SWA, Component, Counts, Key, Slot, shortage
from kvcanon.spec.views import COLUMN, PageRow, Step, rows_along


@law(
    "LOAD-1",
    Kind.STEP,
    LawClass.POLICY,
    chosen_by="eviction",
    premise=premises.LOAD_EVICTS,
    enabled_if=bounds.has_host_tier,
    from_outside=(visibility.LOADS,),
)
def full_only_pre_evict(step: Step) -> Iterator[str]:
    """A load-back evicts from a pool only for slots of that pool: full data for full slots alone.

    A pool is short where it has fewer free slots than the load takes from it, and then the
    difference is evicted, of full data first, then window data, then states. There is one
    exception to the rule: a leaf loses all its data together. So its full data also leaves where
    its window data or mamba state is the victim, because that pool is short. REC-3 checks that
    nothing leaves once enough slots are free. By profile, a tombstone may leave with the last node
    below it.

    Why: window pools are small and often short. A load-back that takes the lower of two free counts
    as that of the full pool evicts full pages at every load, although full slots are free.

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


@law(
    "LOAD-2",
    Kind.STEP,
    LawClass.SERVING,
    premise=premises.LOAD_EVICTS,
    enabled_if=bounds.has_host_tier,
    from_outside=(visibility.LOADS,),
)
def own_path_spared(step: Step) -> Iterator[str]:
    """A load-back never evicts the prefix that it loads: full data, last window and mamba state.

    Neither from the device nor from the host (by profile, locks need not hold host copies of data
    that is on the device). Window data before the last window does not count as part of the prefix.

    Why: data that is evicted from the loaded path is missing when the copy ends, or was its source.

    Seen broken: https://github.com/sgl-project/sglang/issues/27444
    """
    load = load_of(step)
    if load is None:
        return
    before, after = step.changed
    begin = window_begin(step.before, load.key)
    for index, number in enumerate(step.numbers_of(load.key)):
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


@law(
    "LOAD-3",
    Kind.STEP,
    LawClass.SOUND,
    premise=Premise[Step](
        "a load-back that does not fit",
        lambda step: situations.decision_of(step) is LoadDecision.NO_ROOM,
    ),
    enabled_if=bounds.has_host_tier,
)
def failure_changes_nothing(step: Step) -> Iterator[str]:
    """A load-back that is not enqueued changes nothing, except that it may have evicted for slots.

    No lock remains, and LOCK-10 and ASYNC-7 check that no receipt and no transfer does. Nodes may
    be cut.

    Why: the request then computes its prefix itself. Nobody ever releases what a load-back that did
    not happen has taken.

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


@law(
    "LOAD-4",
    Kind.STEP,
    LawClass.SERVING,
    premise=premises.LOAD_ENQUEUED,
    needs=(Need.SNAPSHOT, Need.HOLDS, Need.TRANSFERS),
    enabled_if=bounds.has_host_tier,
)
def whole_prefix_comes(step: Step) -> Iterator[str]:
    """Once a load-back is enqueued, all data that its key needs is on the device or on its way.

    Every page has a full slot; the last window and the mamba state have slots if they were on any
    medium. No other data comes, and no window data from before the window. The transfer is the last
    in flight, copies exactly what was missing, from the host slots to the new ones, and holds a
    receipt. The outcome counts these slots. By profile, a load-back can be used at its enqueue;
    then no page waits for it.

    Why: a prefix with a missing part cannot be used, and the copy was for nothing.

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
            reported = load.outcome.loading[component]
            yield f"{reported} {component} slots are reported as loading, and pages gained {count}"
    yield from _transfer_of(step, load.outcome, gained)


@law(
    "LOAD-5",
    Kind.STEP,
    LawClass.POLICY,
    premise=premises.LOAD_ENQUEUED,
    enabled_if=bounds.has_host_tier,
)
def host_copy_stays(step: Step) -> Iterator[str]:
    """Loaded data keeps its host copy, from the enqueue to the end of the copy and afterwards.

    By profile, under write_back, all data of a node that is on the device may leave the host in the
    poll or flush that settles the load-back of the node, and not before.

    Why: a source that is given up while the copy reads it becomes another prompt's data. Once the
    copy is done it saves the next one: the page can leave the device without a backup.

    Seen broken: https://github.com/sgl-project/sglang/issues/27444
    """
    load = load_of(step)
    enqueued = load is not None and load.outcome.decision is LoadDecision.ENQUEUED
    if not enqueued and not isinstance(step.operation, (Settle, Poll, Flush)):
        return
    for change in step.changes:
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


@law(
    "LOAD-6",
    Kind.STEP,
    LawClass.SERVING,
    premise=Premise[Step](
        "a load-back",
        lambda step: situations.decision_of(step) is not None,
    ),
    enabled_if=bounds.has_host_tier,
    from_outside=(visibility.LOADS,),
)
def decisions(step: Step) -> Iterator[str]:
    """A load-back gives the one right reason where it is not enqueued.

    `nothing_to_load`: all data is on the device or on its way. `below_threshold`:
    fewer full pages than are worth a copy, and no other data. `over_quota`: more full pages than
    the quota. `no_room`: some pool would have too few free slots even if everything that may be
    evicted were evicted, except the prefix itself; whether the cache evicts for a load-back that
    cannot fit is free. By profile, the leading pages that fit are loaded then, if they reach the
    threshold, and the outcome says how many; `no_room` says that none do.

    Why: the reason decides what the engine does next: wait, compute, or try again.

    Seen broken: not seen
    """
    load = load_of(step)
    if load is None:
        return
    config, reported = step.before.config, load.outcome.decision
    asked, quota = load.operation.key, load.operation.quota_pages
    needed = missing_of(step.before, asked).counts()
    reasons = [
        reason
        for reason, applies in (
            (LoadDecision.NOTHING_TO_LOAD, not needed),
            (LoadDecision.BELOW_THRESHOLD, bool(needed) and not _is_worth_a_copy(config, needed)),
            (LoadDecision.OVER_QUOTA, quota is not None and needed.full > quota),
        )
        if applies
    ]
    want = f"{needed.full} full, {needed.swa} swa and {needed.mamba} mamba slots have to be loaded"
    if reported not in (reasons or (LoadDecision.ENQUEUED, LoadDecision.NO_ROOM)):
        right = " or ".join(reasons or (LoadDecision.ENQUEUED, LoadDecision.NO_ROOM))
        yield (
            f"{want}; the threshold is {config.load_back_threshold_pages}, the quota "
            f"{in_words(quota)}; the decision was {reported}, expected {right}"
        )
    elif reported is LoadDecision.NO_ROOM and _could_fit(step.after, load.missing, asked):
        free = free_on_device(step.after)
        yield (
            f"{want}, and there is room or could be made: {free.full} full, {free.swa} swa and "
            f"{free.mamba} mamba slots are free, and the decision was {reported}"
        )
    yield from _leading_pages(step, load)


@law(
    "LOAD-7",
    Kind.STEP,
    LawClass.SOUND,
    premise=Premise[Step](
        "a load-back while there are nodes off its path",
        lambda step: (
            situations.decision_of(step) is LoadDecision.ENQUEUED and situations.others_before(step)
        ),
    ),
    enabled_if=bounds.has_host_tier,
)
def others_left_alone(step: Step) -> Iterator[str]:
    """A load-back changes nothing off its key except its victims, which were not locked.

    On its key it changes slots, locks and copies in flight, but neither hits nor backups. It makes
    nothing recent (REC-7).

    Why: a load-back is for one prompt. Whatever else it changes decides which data of other prompts
    is evicted next.

    Seen broken: not seen
    """
    load = load_of(step)
    if load is None or load.outcome.decision is not LoadDecision.ENQUEUED:
        return
    own = set(step.numbers_of(load.key))
    yield from others_untouched(step, GPU, spared=own)
    for change in step.changes:
        if change.number in own and change.before is not None:
            yield from differences(step, change, but=("device", "host", "loading", "lock_refs"))


def serves(lost: Loss, short: Counts) -> bool:
    """Whether data that a node lost to a load-back served a pool that was short."""
    given = (lost.full, lost.swa, lost.mamba)
    return not lost.full or serves_shortage(given, (short.full, short.swa, short.mamba))


@frozen
class _Gain:
    """A device slot that a page of the key did not have before the load-back."""

    row: PageRow
    component: Component
    source: Slot | None
    target: Slot


def _is_worth_a_copy(config: CacheConfig, needed: Counts) -> bool:
    """Whether so much data reaches the threshold of a load-back."""
    return bool(needed.swa or needed.mamba or needed.full >= config.load_back_threshold_pages)


def _could_fit(state: Snapshot, missing: Missing, key: Key) -> bool:
    """Whether a load-back would fit if everything left that its path does not need."""
    board = board_of(state)
    hold_path(board, state, key)
    return could_be_free(board, missing.counts(), GPU)


def _that_fits(state: Snapshot, key: Key, loaded_pages: int) -> int | None:
    """The first number of leading pages, more than are loaded, that would fit, and be worth it."""
    for pages in range(loaded_pages + 1, len(key) + 1):
        leading = key.prefix(pages)
        missing = missing_of(state, leading)
        needed = missing.counts()
        # What is loaded already has reached the threshold.
        worth = bool(loaded_pages) or _is_worth_a_copy(state.config, needed)
        if needed and worth and _could_fit(state, missing, leading):
            return pages
    return None


def _leading_pages(step: Step, load: Load) -> Iterator[str]:
    """What is wrong with the leading pages that a load-back says it loads, or with loading none."""
    asked, pages, decision = load.operation.key, load.outcome.pages, load.outcome.decision
    enqueued, declared = decision is LoadDecision.ENQUEUED, not step.before.profile.loads_whole_keys
    if pages is not None and not (enqueued and declared and 0 < pages < len(asked)):
        yield (
            f"the answer to a load of {len(asked)} pages, {decision}, is for {pages} leading pages"
        )
    elif enqueued and pages is not None:
        if not _is_worth_a_copy(step.before.config, load.missing.counts()):
            yield f"{pages} leading pages are loaded, with less data than is worth a copy"
        longer = _that_fits(step.after, asked, pages)
        if longer is not None:
            yield (
                f"{pages} of {len(asked)} pages are loaded, and there is room, or could be made, "
                f"for the first {longer}"
            )
    elif declared and decision is LoadDecision.NO_ROOM:
        some = _that_fits(step.after, asked, 0)
        if some is not None:
            yield f"nothing is loaded, and there is room, or could be made, for the first {some}"


def _transfer_of(step: Step, outcome: LoadedBack, gained: list[_Gain]) -> Iterator[str]:
    """What is wrong with the transfer of a load-back that was enqueued."""
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
                f"that transfer {transfer_id} does not fill"
            )
    if not any(hold.transfer_id == transfer_id for hold in step.after.holds):
        yield f"transfer {transfer_id} holds no receipt"
