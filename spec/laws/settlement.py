"""ASYNC, continued: when transfers are enqueued and settled, and what a settlement changes.

A cache reports which transfers it enqueues, and how each ended. In between nothing about them
changes, and when they end, nothing else does.

What readers get wrong: the engine knows which copy failed, but the cache decides what that means
for others. A copy that builds on no failed one goes on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from attrs import evolve

from kvcanon.spec.config import StoreMoment
from kvcanon.spec.law import Kind, LawClass, Need, Premise, law
from kvcanon.spec.laws import bounds, premises, situations
from kvcanon.spec.laws.comparison import (
    differences,
    in_words,
    page_in_words,
    pool_in_words,
    refs_of,
    slot_of,
    writes_back,
)
from kvcanon.spec.laws.copies import builds_on, copies_changed, may_be_given_up, settled_transfers
from kvcanon.spec.laws.lock import NO_REFS, covered_refs
from kvcanon.spec.operations import Flush, Inserted, LoadedBack, Settle, Settled
from kvcanon.spec.snapshot import NO_POOL, Pool, TransferState
from kvcanon.spec.transfer import Direction, TransferStatus
from kvcanon.spec.types import CPU, GPU, MAMBA, Slot, TransferId
from kvcanon.spec.views import COLUMN, Change, Step, pages_by_node

NEEDS = (Need.SNAPSHOT, Need.TRANSFERS)


@law(
    "ASYNC-7",
    Kind.STEP,
    LawClass.SOUND,
    premise=Premise[Step](
        "a call that enqueues a copy",
        lambda step: (
            copies_changed(step) and len(step.after.transfers) > len(step.before.transfers)
        ),
    ),
    needs=NEEDS,
    enabled_if=bounds.has_host_tier,
)
def transfers_are_reported(step: Step) -> Iterator[str]:
    """An operation reports exactly the transfers that it enqueues, in order, after all others.

    An insert reports its backups, a load-back its load; no other operation enqueues a transfer that
    lasts. In flight, a transfer changes only by cuts of nodes, and it leaves by a poll or a flush;
    only an eviction under write_back, also one of its own, may settle a backup without reporting
    it, or leave one that is given up if the engine raises.

    Why: an engine does not wait for a copy that it does not know of, and waits for ever for one
    that does not exist.

    Seen broken: https://github.com/vllm-project/vllm/issues/49829
    """
    outcome = step.outcome
    if not isinstance(outcome, Inserted | LoadedBack) and not copies_changed(step):
        return
    name = type(step.operation).__name__
    before = {each.transfer_id: each for each in step.before.transfers}
    after = {each.transfer_id: each for each in step.after.transfers}
    reported: tuple[TransferId, ...] = ()
    if isinstance(outcome, Inserted):
        reported = outcome.backups
    elif isinstance(outcome, LoadedBack) and outcome.transfer_id is not None:
        reported = (outcome.transfer_id,)
    given_up = situations.broken_off(step)  # ASYNC-16 checks the copy that was given up.
    new = [
        transfer_id
        for transfer_id, each in after.items()
        if transfer_id not in before and not (given_up and each.cancelled)
    ]
    if new != list(reported):
        yield f"{name} reported transfers {list(reported)}, and enqueued {new}"
    stayed = [transfer_id for transfer_id in before if transfer_id in after]
    if not given_up and list(after) != [*stayed, *new]:
        yield f"transfers {stayed} and then {new} are in flight, listed as {list(after)}"
    settles = isinstance(outcome, Settled)
    waits = writes_back(step.before) and situations.may_evict(step)
    for transfer_id, was in before.items():
        now = after.get(transfer_id)
        if now is None:
            if not settles and not (waits and was.direction is Direction.BACKUP):
                yield f"transfer {transfer_id} was in flight, and is not after {name}"
        elif was != now and _without_parts(was) != _without_parts(now):
            yield f"{name} changed transfer {transfer_id}: {now}"


@law(
    "ASYNC-8",
    Kind.STEP,
    LawClass.SOUND,
    premise=Premise[Step](
        "a copy that is cancelled for one that failed",
        situations.cancelled_some,
    ),
    needs=NEEDS,
    enabled_if=bounds.has_host_tier,
)
def ends_have_reasons(step: Step) -> Iterator[str]:
    """A done copy's data is there; a cancelled copy builds on one that failed in the same step.

    A copy builds on another of its direction if its data is at or below the other's full data. A
    cancelled copy is reported as cancelled when it ends, and never resumed.

    Why: a copy that is cancelled without need is computed again. If a copy is reported as done and
    its data is not there, a request uses what is not there, or waits for ever.

    Seen broken: https://github.com/ai-dynamo/dynamo/issues/15079
    """
    if not isinstance(step.outcome, Settled) and not copies_changed(step):
        return
    statuses = {each.transfer_id: status for each, status in settled_transfers(step)}
    after = {each.transfer_id: each for each in step.after.transfers}
    failed = [each for each, status in settled_transfers(step) if status is TransferStatus.FAILED]
    for transfer in step.before.transfers:
        status, now = statuses.get(transfer.transfer_id), after.get(transfer.transfer_id)
        name = f"transfer {transfer.transfer_id}"
        if status is TransferStatus.DONE:
            yield from _not_there(step, transfer)
        elif transfer.cancelled:
            if now is not None and not now.cancelled:
                yield f"{name} was cancelled, and is not any more"
        elif (
            status is TransferStatus.CANCELLED or (now is not None and now.cancelled)
        ) and not any(builds_on(step.before, transfer, each) for each in failed):
            ids = [each.transfer_id for each in failed]
            yield f"{name} was cancelled; it builds on none of {ids}, which failed in this step"


@law(
    "ASYNC-9",
    Kind.STEP,
    LawClass.SOUND,
    premise=premises.COPY_ENDED,
    needs=(*NEEDS, Need.HOLDS),
    enabled_if=bounds.has_host_tier,
)
def settling_moves_nothing_else(step: Step) -> Iterator[str]:
    """A poll or a flush changes only data and locks of the transfers that it settles.

    Where a copy is done, its nodes wait for it no more; where it failed or was cancelled, its nodes
    also lose its target slots. Each receipt that closes takes its lock refs along. No other slot,
    lock or hit changes, no other node begins or ceases to wait, no page comes or goes, and only
    target slots become free. By profile, host copies may be given up for a load-back that is done
    (LOAD-5).

    Why: an engine polls at any time, between any two calls. Whatever else a poll evicts, moves or
    releases is gone for a caller that has just matched it.

    Seen broken: https://github.com/sgl-project/sglang/issues/35769,
    https://github.com/sgl-project/sglang/issues/24972
    """
    if not isinstance(step.outcome, Settled):
        return
    gave_up = _given_up(step)
    done = {
        each.transfer_id
        for each, status in settled_transfers(step)
        if status is TransferStatus.DONE
    }
    open_after = {hold.receipt_id for hold in step.after.holds}
    closed = [
        hold
        for hold in step.before.holds
        if hold.receipt_id not in open_after and hold.transfer_id is not None
    ]
    released = covered_refs(step.before, closed)
    for node_id, refs in released.items():
        node = step.before.nodes[node_id]
        if any(refs) and step.after.nodes.get(node_id) == node:
            yield (
                f"{step.before.describe(node)} was held by transfers that ended, and its lock_refs "
                "did not change"
            )
    for change in step.changes:
        but = ("device", "host", "loading", "backing", "lock_refs")
        yield from differences(step, change, but=but)
        yield from _moved(step, change, gave_up=gave_up, done=done)
        if change.before is None or change.after is None:
            continue
        node = step.before.nodes[change.before.node_id]
        lower = released.get(node.node_id, NO_REFS)
        for component in step.before.config.components:
            at_end = component is not MAMBA or change.before.depth == step.before.end(node) - 1
            old, new = refs_of(change.before, component), refs_of(change.after, component)
            wanted = old - (lower[COLUMN[component]] if at_end else 0)
            if new != wanted:
                yield (
                    f"{page_in_words(step.before, change.before)}: {component} lock_refs went from "
                    f"{old} to {new} with the transfers that ended, expected {wanted}"
                )
    yield from _freed_besides(step)


@law(
    "ASYNC-10",
    Kind.STEP,
    LawClass.SERVING,
    premise=Premise[Step](
        "a poll or a flush after a copy has ended",
        lambda step: isinstance(step.outcome, Settled) and bool(step.ended),
    ),
    needs=(*NEEDS, Need.ENDS),
    enabled_if=bounds.has_host_tier,
)
def what_ended_is_settled(step: Step) -> Iterator[str]:
    """A poll settles every copy that has ended, once all earlier ones have, with its true result.

    A copy that was performed is done, one that was not is failed; either may be cancelled instead,
    for a copy that it builds on (ASYNC-8). A copy that has not ended is not settled. A settle call
    settles the copies that it names, with the results that it names, and no others. By profile, a
    load-back can be used at its enqueue; then one that failed may be reported as done, whether a
    poll or a settle call settles it.

    Why: a copy that is never settled holds its pages for ever. A failed copy that is reported as
    done is garbage that counts as cached; a done one that is reported as failed is computed again.

    Seen broken: https://github.com/LMCache/LMCache/issues/1756
    """
    if not isinstance(step.outcome, Settled):
        return
    if isinstance(step.operation, Settle):
        yield from _not_as_named(step, step.operation, dict(step.outcome.transfers))
        return
    statuses = dict(step.outcome.transfers)
    waiting: set[Direction] = set()
    for transfer in step.before.transfers:
        status, ok = statuses.get(transfer.transfer_id), step.ended.get(transfer.transfer_id)
        name = f"{transfer.direction} transfer {transfer.transfer_id}"
        if ok is None:
            waiting.add(transfer.direction)
            # A flush waits until a copy has ended, which is not known outside.
            if status is not None and not isinstance(step.operation, Flush):
                yield f"{name} is reported as {status}, and its copy has not ended"
        elif status is None:
            if transfer.direction not in waiting:
                yield f"{name} has ended, with all before it, and was not settled"
        elif status is not TransferStatus.CANCELLED and not transfer.cancelled:
            right = TransferStatus.DONE if ok else TransferStatus.FAILED
            if status is not right and not _usable_early(step, transfer):
                yield f"{name} is reported as {status}; its copy {'succeeded' if ok else 'failed'}"


def _not_as_named(
    step: Step, asked: Settle, statuses: Mapping[TransferId, TransferStatus]
) -> Iterator[str]:
    """Transfers that a settle call settled otherwise than it named them."""
    named = {each.transfer_id: each.ok for each in asked.completions}
    for transfer in step.before.transfers:
        status, ok = statuses.get(transfer.transfer_id), named.get(transfer.transfer_id)
        name = f"{transfer.direction} transfer {transfer.transfer_id}"
        if ok is None:
            if status is not None:
                yield f"{name} is reported as {status}, and was not named"
        elif status is None:
            yield f"{name} was named, and was not settled"
        elif step.ended.get(transfer.transfer_id) is None:
            yield f"{name} is reported as {status}, and its copy has not ended"
        elif status is not TransferStatus.CANCELLED and not transfer.cancelled:
            right = TransferStatus.DONE if ok else TransferStatus.FAILED
            if status is not right and not _usable_early(step, transfer):
                yield f"{name} is reported as {status}; it was named as {right}"


def _usable_early(step: Step, transfer: TransferState) -> bool:
    """Whether a transfer is a load-back that could be used at its enqueue."""
    early = step.before.profile.load_back_usable is StoreMoment.ENQUEUED
    return early and transfer.direction is Direction.LOAD_BACK


def _not_there(step: Step, transfer: TransferState) -> Iterator[str]:
    """Data that a done transfer should have copied, on whichever node it is now."""
    carried, medium = pages_by_node(step.changed[0]), transfer.direction.target
    for node_id, component in transfer.parts:
        numbers = carried.get(node_id, [])
        rows = [step.changed[1].get(number) for number in numbers]
        there = [row for row in rows if row is not None and row.resident(component, medium)]
        if len(there) < (1 if component is MAMBA else max(1, len(rows))):
            node = step.before.nodes.get(node_id)
            words = f"node {node_id}" if node is None else step.before.describe(node)
            yield (
                f"transfer {transfer.transfer_id} is done, and the {component} data of {words} is "
                f"not on {medium}"
            )


def _without_parts(transfer: TransferState) -> TransferState:
    return evolve(transfer, parts=(), cancelled=False)


def _given_up(step: Step) -> set[TransferId]:
    """Transfers whose data is dropped in a step: they failed in it, or were cancelled."""
    ended = {
        each.transfer_id
        for each, status in settled_transfers(step)
        if status is not TransferStatus.DONE
    }
    return ended | {each.transfer_id for each in step.after.transfers if each.cancelled}


def _moved(
    step: Step, change: Change, *, gave_up: set[TransferId], done: set[TransferId]
) -> Iterator[str]:
    """Slots and marks of a page that changed, other than by the end of the page's own copy."""
    was, now = change.before, change.after
    if was is None:
        return
    for component in step.before.config.components:
        column = COLUMN[component]
        for medium, pending in ((GPU, was.loading[column]), (CPU, was.backing[column])):
            old, new = was.slot(component, medium), slot_of(now, component, medium)
            given = medium is CPU and may_be_given_up(step, was, now, component)
            if old != new and not (new is None and (pending in gave_up or given)):
                yield (
                    f"{page_in_words(step.before, was)}: its {component} slot on {medium} was "
                    f"{in_words(old)} and is {in_words(new)}; no copy to it failed"
                )
            waits = None if now is None else (now.loading if medium is GPU else now.backing)[column]
            if waits != pending and not (waits is None and pending in gave_up | done):
                yield (
                    f"{page_in_words(step.before, was)} waited for transfer {in_words(pending)} to "
                    f"fill its {component} slot on {medium}, and now for {in_words(waits)}"
                )


def _freed_besides(step: Step) -> Iterator[str]:
    """Slots that became free or held, or no longer are, and are no targets of ended copies."""
    targets: dict[Pool, set[Slot]] = {}
    for transfer, _ in settled_transfers(step):
        for component, slots in transfer.targets.items():
            targets.setdefault((component, transfer.direction.target), set()).update(slots)
    for _, row, left in step.changes:
        for component in step.before.config.components if row is not None else ():
            slot = slot_of(row, component, CPU)
            if row is not None and slot is not None and may_be_given_up(step, row, left, component):
                targets.setdefault((component, CPU), set()).add(slot)
    for pool, now in step.after.pools.items():
        was = step.before.pools.get(pool, NO_POOL)
        if was == now:
            continue
        taken = set(was.free).difference(now.free)
        freed = set(now.free).difference(was.free, targets.get(pool, ()))
        moved = sorted(taken | freed | (was.held ^ now.held))
        if moved:
            yield f"slots {moved} of {pool_in_words(pool)} became free or held, or ceased to be so"
