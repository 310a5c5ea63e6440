"""ASYNC: copies take time, end in any order, and can fail.

Between the enqueue and the settlement of a copy the cache goes on: it matches, cuts, inserts and
evicts around the copy. It must always know which node waits for which copy, and release everything
when the copy ends, in whichever way.

What readers get wrong: an engine may finish copies in any order. It is the cache that settles a
copy only after those that it builds on, so that a child's data never counts before its parent's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from kvcanon.spec.cache import Cache
from kvcanon.spec.difference import Difference
from kvcanon.spec.events import BlockStored
from kvcanon.spec.law import Kind, LawClass, Need, Premise, law, node_law
from kvcanon.spec.laws import bounds, premises, situations, visibility
from kvcanon.spec.laws.copies import builds_on, copies_changed, settled_transfers
from kvcanon.spec.laws.expected_events import emits_at_enqueue
from kvcanon.spec.laws.page_hashes import PageHashes, short
from kvcanon.spec.operations import Flush, Settled
from kvcanon.spec.snapshot import NO_POOL, NodeState, Snapshot, TransferState
from kvcanon.spec.transfer import Direction, TransferStatus
from kvcanon.spec.types import CPU, FULL, GPU, Component, Slot, TransferId
from kvcanon.spec.views import Step

NEEDS = (Need.SNAPSHOT, Need.TRANSFERS)


@law(
    "ASYNC-1",
    Kind.STEP,
    LawClass.SOUND,
    premise=Premise[Step](
        "the end of one of two copies of a direction",
        situations.settled_out_of_two,
    ),
    needs=NEEDS,
    enabled_if=bounds.has_host_tier,
    from_outside=(visibility.SETTLEMENTS,),
)
def settles_in_order(step: Step) -> Iterator[str]:
    """A transfer settles after every earlier transfer that it builds on.

    It builds on those of its direction that copy full data at or above its own nodes. Others settle
    in any order, and so do cancelled ones. A poll or a flush reports each transfer that it settles
    once, in the order in which it settled them, and no others. An eviction under write_back waits
    for its own copies and does not report them.

    Why: otherwise a child's copy counts while its parent's may still fail, and then the child's
    data is below a gap.

    Seen broken: not seen
    """
    settled = step.outcome.transfers if isinstance(step.outcome, Settled) else ()
    if not settled and not copies_changed(step):
        return
    flying = {transfer.transfer_id for transfer in step.after.transfers}
    order, ends = [each for each, _ in settled], dict(settled)
    for direction in Direction:
        queue = [each for each in step.before.transfers if each.direction is direction]
        for at, later in enumerate(queue):
            cancelled = ends.get(later.transfer_id) is TransferStatus.CANCELLED
            if later.transfer_id not in flying and not cancelled:
                yield from _overtaken(step.before, later, queue[:at], flying, order)
        if isinstance(step.outcome, Settled):
            known = {each.transfer_id for each in queue}
            left, reported = sorted(known - flying), [each for each in order if each in known]
            if sorted(reported) != left:
                yield f"{direction} transfers {left} settled; reported are {reported}"
    known = {transfer.transfer_id for transfer in step.before.transfers}
    for transfer_id in order:
        if transfer_id not in known:
            yield f"transfer {transfer_id} is reported as settled, and was not in flight"


@law(
    "ASYNC-2",
    Kind.STEP,
    LawClass.SERVING,
    premise=premises.COPY_ENDED,
    needs=(*NEEDS, Need.HOLDS),
    enabled_if=bounds.has_host_tier,
)
def every_end_gives_back(step: Step) -> Iterator[str]:
    """A transfer has one receipt from its enqueue to its settlement, and none afterwards.

    So has a cancelled one, until its copy ends. Once a transfer has settled, no node waits for it.

    Why: pages that a finished copy still holds can never be evicted, and the cache fills up with
    them.

    Seen broken: https://github.com/vllm-project/vllm/issues/49829,
    https://github.com/LMCache/LMCache/issues/1756
    """
    state = step.after
    receipts = [hold.transfer_id for hold in state.holds if hold.transfer_id is not None]
    flying = {transfer.transfer_id for transfer in state.transfers}
    for transfer_id in dict.fromkeys(receipts):
        if transfer_id not in flying:
            count = receipts.count(transfer_id)
            yield f"{count} receipts belong to transfer {transfer_id}, which is not in flight"
    for transfer_id in flying:
        count = receipts.count(transfer_id)
        if count != 1:
            yield f"transfer {transfer_id} is in flight and has {count} receipts, not one"
    for transfer in step.before.transfers:
        if transfer.transfer_id in flying:
            continue
        for node_id, component in transfer.parts:
            node = state.nodes.get(node_id)
            if node is None:
                continue
            if node[component].pending(transfer.direction.target) == transfer.transfer_id:
                yield (
                    f"transfer {transfer.transfer_id} has settled, and {state.describe(node)} "
                    f"still waits for its {component} data"
                )


def named(difference: Difference) -> Collection[NodeState]:
    """The nodes that may wait for no copy: rebuilt nodes, and those that copies named before."""
    ids = {node.node_id for node in difference.rebuilt_nodes}
    ids.update(node_id for each in difference.before.transfers for node_id, _ in each.parts)
    return difference.nodes_after(ids)


@node_law(
    "ASYNC-3",
    LawClass.SOUND,
    premise=Premise[Snapshot](
        "a copy in flight",
        lambda state: any(not each.cancelled for each in state.transfers),
    ),
    needs=NEEDS,
    enabled_if=bounds.has_host_tier,
    over=named,
    reads=("transfers",),
)
def parts_share_the_copy(state: Snapshot, nodes: Collection[NodeState]) -> Iterator[str]:
    """The nodes that a transfer names wait for it, and their slots are its targets.

    They are named from the root down, and their slots together are its targets, each once and in
    order. A node that is cut while its copy is in flight is named as both parts, the upper first. A
    node waits only for a transfer in flight that names it. By profile, a load-back can be used at
    its enqueue; then no node waits for it.

    Why: if a cut leaves out a part of a node, its data is never stored, or its slots are never
    freed.

    Seen broken: https://github.com/sgl-project/sglang/issues/16946,
    https://github.com/sgl-project/sglang/issues/27072
    """
    live = {t.transfer_id: t for t in state.transfers if not t.cancelled}
    for transfer in live.values():
        yield from _misnamed(state, transfer)
    parts = {t.transfer_id: frozenset(t.parts) for t in live.values()}
    for node in nodes:
        for component, data in node.data.items():
            for medium in (GPU, CPU):
                pending = data.pending(medium)
                if pending is None:
                    continue
                waits = f"{state.describe(node)} waits for transfer {pending} on {medium}"
                if pending not in live or live[pending].direction.target is not medium:
                    yield f"{waits}, and no such copy is in flight"
                elif (node.node_id, component) not in parts[pending]:
                    yield f"{waits}, which does not name its {component} data"


@law(
    "ASYNC-4",
    Kind.STEP,
    LawClass.SOUND,
    premise=Premise[Step](
        "a copy that is done",
        lambda step: TransferStatus.DONE in situations.ended(step),
    ),
    needs=(*NEEDS, Need.EVENTS),
    enabled_if=bounds.has_host_tier,
)
def done_copies_emit_stores(step: Step) -> Iterator[str]:
    """When a transfer is done, a store is emitted for each page that it copied, parents first.

    ASYNC-8 checks that the data is there. By profile, load-backs emit their stores at the enqueue;
    then they emit none here.

    Why: a router does not use a copy that no event reported. Seen in an engine: a node was cut
    during its copy, and only one half was reported and stored.

    Seen broken: https://github.com/sgl-project/sglang/issues/16946,
    https://github.com/sgl-project/sglang/issues/27072
    """
    # Hashes before the step: since then nodes may have been joined with others.
    hashes = PageHashes(step.before)
    for transfer, status in settled_transfers(step):
        if status is not TransferStatus.DONE:
            continue
        medium, pages = transfer.direction.target, list[bytes]()
        for node_id, component in transfer.parts:
            node = step.before.nodes.get(node_id)
            if component is FULL and node is not None:
                pages.extend(hashes.of(node))
        said_before = medium is GPU and emits_at_enqueue(step.after)
        if not step.after.config.events or said_before:
            continue
        stores = [e for e in step.events if isinstance(e, BlockStored) and e.medium is medium]
        copied = frozenset(pages)
        announced = [event.block_hash for event in stores if event.block_hash in copied]
        if announced != pages:
            unsaid = [short(name) for name in pages if name not in announced]
            yield (
                f"transfer {transfer.transfer_id} brought {len(pages)} pages to {medium}; "
                + (
                    f"no store was emitted for {', '.join(unsaid)}"
                    if unsaid
                    else "stores are out of order"
                )
            )


@law(
    "ASYNC-5",
    Kind.STEP,
    LawClass.SERVING,
    premise=Premise[Step](
        "a copy that failed",
        lambda step: TransferStatus.FAILED in situations.ended(step),
    ),
    needs=NEEDS,
    enabled_if=bounds.has_host_tier,
    from_outside=(visibility.SETTLEMENTS,),
)
def failure_leaves_nothing(step: Step) -> Iterator[str]:
    """A transfer that failed or was cancelled leaves free slots, and nothing else.

    Its targets are in the free list, and no node has them; a store for one of them would break
    EVENT-10. A copy that builds on a failed one of the same direction is cancelled.

    Why: slots that a failed copy keeps are lost; data that it claims to have copied is garbage.

    Seen broken: https://github.com/sgl-project/sglang/issues/27108,
    https://github.com/sgl-project/sglang/issues/30986,
    https://github.com/ai-dynamo/dynamo/issues/15079
    """
    settled = settled_transfers(step)
    statuses = {transfer.transfer_id: status for transfer, status in settled}
    for transfer, status in settled:
        if transfer.cancelled and status is not TransferStatus.CANCELLED:
            yield f"transfer {transfer.transfer_id} was cancelled and is reported as {status}"
        if status is TransferStatus.DONE:
            continue
        yield from _left_behind(step, transfer, status)
        if status is TransferStatus.FAILED:
            yield from _built_on(step, transfer, statuses)


@law(
    "ASYNC-6",
    Kind.STEP,
    LawClass.SERVING,
    premise=Premise[Step](
        "a flush of copies in flight",
        lambda step: isinstance(step.operation, Flush) and bool(step.before.transfers),
    ),
    needs=NEEDS,
    enabled_if=bounds.has_host_tier,
    from_outside=((Cache.flush,),),
)
def flush_ends_all(step: Step) -> Iterator[str]:
    """After a flush nothing is in flight.

    Why: after a flush an engine shuts down or resets. If a copy were still running, it would read
    or write memory that is freed by then.

    Seen broken: not seen
    """
    if isinstance(step.operation, Flush) and isinstance(step.outcome, Settled):
        for transfer in step.after.transfers:
            yield f"{transfer.direction} transfer {transfer.transfer_id} is in flight after a flush"


def _overtaken(
    state: Snapshot,
    later: TransferState,
    queue: Iterable[TransferState],
    flying: Collection[TransferId],
    order: Sequence[TransferId],
) -> Iterator[str]:
    """Earlier transfers that a transfer builds on, and that had not settled when it did."""
    for earlier in queue:
        if later.cancelled or earlier.cancelled or not builds_on(state, later, earlier):
            continue
        one, other = later.transfer_id, earlier.transfer_id
        before = one in order and other in order and order.index(one) < order.index(other)
        if before or other in flying:
            still = ", and which is still in flight" if other in flying else ""
            yield (
                f"{later.direction} transfer {one} settled before transfer {other}, on which it "
                f"builds{still}"
            )


def _misnamed(state: Snapshot, transfer: TransferState) -> Iterator[str]:
    """Where the nodes that a transfer names do not add up to its targets."""
    slots: dict[Component, list[Slot]] = {component: [] for component in transfer.targets}
    reached: dict[Component, int] = {}
    for node_id, component in transfer.parts:
        node = state.nodes.get(node_id)
        if node is None:
            yield f"transfer {transfer.transfer_id} names node {node_id}, which is not in the tree"
            continue
        data, medium = node[component], transfer.direction.target
        if state.nodes_wait_for(transfer) and data.pending(medium) != transfer.transfer_id:
            yield (
                f"transfer {transfer.transfer_id} names the {component} data of "
                f"{state.describe(node)}, which does not wait for it"
            )
        if state.starts[node_id] < reached.get(component, 0):
            yield f"transfer {transfer.transfer_id} names {state.describe(node)} after one below it"
        reached[component] = state.end(node)
        slots.setdefault(component, []).extend(data.slots(medium) or ())
    for component, run in slots.items():
        targets = transfer.targets.get(component, ())
        if tuple(run) != targets:
            yield (
                f"transfer {transfer.transfer_id} fills {component} slots {list(targets)}, and the "
                f"nodes that it names own {run}"
            )


def _left_behind(step: Step, transfer: TransferState, status: TransferStatus) -> Iterator[str]:
    """What is left of a transfer that did not succeed."""
    state, medium = step.after, transfer.direction.target
    ended = f"transfer {transfer.transfer_id} {'failed' if status == 'failed' else 'was cancelled'}"
    for component, targets in transfer.targets.items():
        lost = sorted(set(targets).difference(state.pools.get((component, medium), NO_POOL).free))
        if lost:
            yield f"{ended}, and its {component} slots {lost} on {medium} did not come free"
    for node_id, component in transfer.parts:
        node = state.nodes.get(node_id)
        run = node[component].slots(medium) if node is not None else None
        if node is not None and set(run or ()).intersection(transfer.targets.get(component, ())):
            yield f"{ended}, and {state.describe(node)} has its {component} slots on {medium}"


def _built_on(
    step: Step, failed: TransferState, statuses: dict[TransferId, TransferStatus]
) -> Iterator[str]:
    """Transfers that go on although a copy that they build on has failed."""
    state = step.before
    if failed.direction is Direction.BACKUP and not state.config.backed_parents:
        return
    after = {transfer.transfer_id: transfer for transfer in step.after.transfers}
    for other in state.transfers[state.transfers.index(failed) + 1 :]:
        status, flying = statuses.get(other.transfer_id), after.get(other.transfer_id)
        ends = status is TransferStatus.CANCELLED or (flying is not None and flying.cancelled)
        if not ends and builds_on(state, other, failed):
            yield (
                f"transfer {failed.transfer_id} failed, and transfer {other.transfer_id}, which "
                "builds on it, was not cancelled"
            )
