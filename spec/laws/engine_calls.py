"""ASYNC, continued: what a cache asks of its engine, and of the other ranks.

The engine is not the cache's own: it performs the copies that an order lists, and a call that waits
for it blocks the scheduler of a server. `agree` is a collective: a rank that calls it more or less
often than the others hangs all of them.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvcanon.spec.cache import Cache
from kvcanon.spec.law import Kind, LawClass, Need, Premise, law
from kvcanon.spec.laws import bounds, situations, visibility
from kvcanon.spec.laws.comparison import page_in_words, writes_back
from kvcanon.spec.laws.evict import others_untouched
from kvcanon.spec.operations import Flush, Poll, PollStore
from kvcanon.spec.snapshot import TransferState
from kvcanon.spec.transfer import Completion, Direction, TransferOrder
from kvcanon.spec.types import GPU, Component, Slot
from kvcanon.spec.views import Step

NEEDS = (Need.SNAPSHOT, Need.TRANSFERS, Need.ENDS)


@law(
    "ASYNC-12",
    Kind.STEP,
    LawClass.SOUND,
    premise=Premise[Step](
        "an order to the engine for a copy that is in flight after the call",
        lambda step: step.asked is not None and bool(step.asked.orders) and bool(_new(step)),
    ),
    needs=NEEDS,
    enabled_if=bounds.has_host_tier,
)
def orders_list_their_copies(step: Step) -> Iterator[str]:
    """Each transfer is ordered from the engine once, and the order lists exactly its copies.

    The lists have the transfer's sources and targets, slot by slot, in its direction. This is
    checked of caches that are given the judge's engine.

    Why: an engine that copies by the lists, as with one kernel for a batch, moves other bytes than
    `perform` does. A transfer that was never ordered never ends.

    Seen broken: not seen
    """
    if step.asked is None:
        return
    ordered = {order.transfer_id: order for order in step.asked.orders}
    for transfer in _new(step):
        times = sum(o.transfer_id == transfer.transfer_id for o in step.asked.orders)
        if times != 1:
            yield f"transfer {transfer.transfer_id} was ordered {times} times, not once"
        else:
            yield from _misordered(transfer, ordered[transfer.transfer_id])


def _new(step: Step) -> list[TransferState]:
    """The transfers in flight that a step began."""
    if step.before.transfers is step.after.transfers:
        return []
    before = {each.transfer_id for each in step.before.transfers}
    return [each for each in step.after.transfers if each.transfer_id not in before]


def _misordered(transfer: TransferState, order: TransferOrder) -> Iterator[str]:
    listed = {copy.component: (copy.sources, copy.targets) for copy in order.copies}
    right = {each: (transfer.sources[each], transfer.targets[each]) for each in transfer.sources}
    if order.direction is not transfer.direction:
        yield f"transfer {transfer.transfer_id} was ordered as a {order.direction}"
    for component in right.keys() | listed.keys():
        if listed.get(component) != right.get(component):
            yield (
                f"the order of transfer {transfer.transfer_id} lists {component} slots "
                f"{_arrow(listed.get(component))}; it copies {_arrow(right.get(component))}"
            )


def _arrow(slots: tuple[tuple[int, ...], tuple[int, ...]] | None) -> str:
    return "none" if slots is None else f"{list(slots[0])} to {list(slots[1])}"


@law(
    "ASYNC-13",
    Kind.STEP,
    LawClass.SERVING,
    premise=Premise[Step](
        "a call that must not wait, while a copy is in flight",
        lambda step: step.asked is not None and bool(step.before.transfers) and not _may_wait(step),
    ),
    needs=NEEDS,
    enabled_if=bounds.has_host_tier,
)
def only_flush_and_write_back_wait(step: Step) -> Iterator[str]:
    """No call waits for a copy, but a flush, and under write_back an eviction and a load-back.

    Those must: after a flush nothing is in flight, and under write_back data must reach the host
    before its device slots are free. What a cache evicts on its own waits like an eviction.

    Why: the scheduler of a server calls between two forward passes. A call that waits for a copy
    holds up every request.

    Seen broken: not seen
    """
    if step.asked is not None and step.asked.waits and not _may_wait(step):
        yield f"{type(step.operation).__name__} waited for transfers {list(step.asked.waits)}"


def _may_wait(step: Step) -> bool:
    evicts = situations.may_evict(step) or situations.broken_off(step)
    waits = writes_back(step.before) and evicts
    return waits or isinstance(step.operation, Flush)


@law(
    "ASYNC-14",
    Kind.STEP,
    LawClass.SERVING,
    premise=Premise[Step](
        "ended copies that are asked for, to settle them by name",
        lambda step: step.arrived is not None and bool(step.ended),
    ),
    needs=NEEDS,
    enabled_if=bounds.has_host_tier,
)
def arrived_says_what_can_settle(step: Step) -> Iterator[str]:
    """`arrived` names the copies of each direction that have ended, up to the first that has not.

    Each has its true result, as the engine reported it.

    Why: an engine with several ranks settles what has arrived on all of them. What a rank never
    names is never settled anywhere, and its pages stay locked.

    Seen broken: not seen
    """
    if step.arrived is None:
        return
    waiting: set[Direction] = set()
    right: set[Completion] = set()
    for each in step.before.transfers:
        ok = step.ended.get(each.transfer_id)
        if ok is None:
            waiting.add(each.direction)
        elif each.direction not in waiting:
            right.add(Completion(each.transfer_id, ok))
    if set(step.arrived) != right or len(step.arrived) != len(right):
        yield f"arrived said {_ends(step.arrived)}; what has ended in order is {_ends(right)}"


def _ends(completions: tuple[Completion, ...] | set[Completion]) -> str:
    each = sorted(completions, key=lambda one: one.transfer_id)
    words = [f"{one.transfer_id} {'done' if one.ok else 'failed'}" for one in each]
    return ", ".join(words) or "nothing"


@law(
    "ASYNC-15",
    Kind.STEP,
    LawClass.SERVING,
    premise=Premise[Step]("a call on several ranks", lambda step: bool(step.ranks)),
    needs=(Need.SNAPSHOT, Need.TRANSFERS, Need.HOLDS, Need.RANKS),
    enabled_if=bounds.has_host_tier,
)
def ranks_agree_where_they_settle(step: Step) -> Iterator[str]:
    """A poll and a flush call `agree` once if copies are in flight, and no other call does.

    A poll of the store does so if orders are open, with as many numbers for each, two at least.

    Except under write_back: an eviction and a load-back call it once each time that they wait for a
    copy. A poll and a flush name every copy in flight. All ranks call it equally often, each time
    for equally many copies.

    Why: `agree` is a collective of all ranks. Each call costs as much as a step of the model's own
    collectives, and one that a rank leaves out or makes twice hangs all of them.

    Seen broken: not seen
    """
    flying = len(step.before.transfers)
    settles = isinstance(step.operation, Poll | Flush | PollStore)
    if isinstance(step.operation, PollStore):
        # Of each order, how many of its pages are done, whether it has ended, and what else a cache
        # needs to know of all ranks.
        orders = 0 if step.before.store is None else len(step.before.store.orders)
        named = step.ranks[0].agreed[:1] if step.ranks else ()
        per_order = max(2, named[0] // orders) if named and orders else 2
        flying = per_order * orders
    for number, rank in enumerate(step.ranks):
        if rank.agreed != step.ranks[0].agreed:
            yield (
                f"rank {number} agreed on {list(rank.agreed)} copies in a "
                f"{type(step.operation).__name__}, and rank 0 on {list(step.ranks[0].agreed)}"
            )
        waits = rank.waits if _may_wait(step) else 0
        most = min(1, flying) if settles else waits
        if len(rank.agreed) > most or (settles and any(size != flying for size in rank.agreed)):
            yield (
                f"rank {number} agreed on {list(rank.agreed)} copies in a "
                f"{type(step.operation).__name__} with {flying} in flight and {rank.waits} waits"
            )


@law(
    "ASYNC-16",
    Kind.STEP,
    LawClass.SOUND,
    premise=Premise[Step](
        "an eviction that the engine broke off with copies of victims open",
        lambda step: situations.broken_off(step) and bool(_still_open(step)),
    ),
    needs=(Need.SNAPSHOT, Need.TRANSFERS, Need.ENDS),
    enabled_if=bounds.writes_back,
    from_outside=(visibility.DEVICE_EVICTIONS, (Cache.free_slots,)),
)
def engine_faults_lose_nothing(step: Step) -> Iterator[str]:
    """If the engine raises while an eviction waits for it, the victims that it copies stay.

    Their data keeps its device slots, and may be evicted later. The copy is given up: its host
    slots are free once the engine has completed it. What left before may be gone, also from the
    host; all else is as it was, with its locks. The call raises what the engine raised. A load-back
    that evicts begins no load then, and holds nothing of its path. Ranks whose engines all raise
    stay alike (ASYNC-11).

    Why: an engine raises for an interrupt, a lost device or a timeout, and the server goes on or
    ends its requests. Victims that belong to no node any more are slots that nobody ever frees.

    Seen broken: not seen
    """
    if not situations.broken_off(step):
        return
    stays = _still_open(step)
    for lost in step.lost:
        if lost.medium is GPU and (lost.component, lost.slot) in stays:
            yield (
                f"{page_in_words(step.before, lost.before)} lost its {lost.component} slot "
                f"{lost.slot} on {GPU} in a call whose copy of it the engine broke off"
            )
    yield from others_untouched(step, GPU, spared=())


def _still_open(step: Step) -> set[tuple[Component, Slot]]:
    """The device slots of the copy whose wait the engine broke off."""
    asked = step.asked
    return {
        (copy.component, source)
        for order in ([] if asked is None else asked.orders)
        if asked is not None and order.transfer_id == asked.broke_off
        for copy in order.copies
        for source in copy.sources
    }
