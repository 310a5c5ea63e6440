"""REFUSE, continued: what a refusal says besides its kind.

A caller acts on the fields of an error: it evicts from the pool that is named, waits for the copy
that is named, or matches again. REFUSE-1 and REFUSE-3 check that the kind of an error is right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kvcanon.spec.errors import (
    CacheBusy,
    CacheError,
    OutOfSlots,
    PrefixNotCached,
    ReceiptSpent,
    SlotNotHeld,
    TransferPending,
)
from kvcanon.spec.law import Kind, LawClass, Premise, law
from kvcanon.spec.laws.comparison import pool_in_words
from kvcanon.spec.operations import Allocate, Free, Insert, Operation, Refused, Write
from kvcanon.spec.snapshot import NO_POOL, Snapshot
from kvcanon.spec.transfer import Direction
from kvcanon.spec.types import GPU, Component, Slot
from kvcanon.spec.views import Step, path_of


@law(
    "REFUSE-5",
    Kind.STEP,
    LawClass.SOUND,
    premise=Premise[Step](
        "a refusal whose error has numbers",
        lambda step: isinstance(step.outcome, Refused) and type(step.outcome.error) in _CHECKS,
    ),
)
def refusals_say_what_is_so(step: Step) -> Iterator[str]:
    """The fields of an error are those of the call and of the state.

    OutOfSlots names a pool that is short, with the slots that were asked for and those that are
    free. SlotNotHeld names a slot of the call that no request holds. PrefixNotCached says that more
    pages are needed than are there. TransferPending names a load-back in flight on the path,
    ReceiptSpent the receipt of the call, and CacheBusy how many receipts are open.

    Why: a caller that is refused evicts from the pool that is named, or polls until the copy that
    is named has settled. After a wrong name it does so for ever.

    Seen broken: not seen
    """
    if not isinstance(step.outcome, Refused):
        return
    error = step.outcome.error
    check = _CHECKS.get(type(error))
    for wrong in check(step.before, step.operation, error) if check is not None else ():
        yield f"{type(step.operation).__name__} was refused ({error}), and {wrong}"


def _out_of_slots(state: Snapshot, call: Operation, error: OutOfSlots) -> Iterator[str]:
    if not isinstance(call, Allocate):
        return
    short = {}
    for component, asked in call.counts:
        free = len(state.pools.get((component, GPU), NO_POOL).free)
        if asked > free:
            short[pool_in_words((component, GPU))] = asked, free
    said = error.asked_slots, error.free_slots
    if short.get(error.pool) != said:
        pools = [f"{pool} ({asked} asked, {free} free)" for pool, (asked, free) in short.items()]
        yield f"what is short is {', '.join(pools) or 'no pool'}"


def _not_held(state: Snapshot, call: Operation, error: SlotNotHeld) -> Iterator[str]:
    named = {
        (pool_in_words((component, GPU)), slot)
        for component, slot in _slots_of(call)
        if slot not in state.pools.get((component, GPU), NO_POOL).held
    }
    if (error.pool, error.slot) not in named and named:
        yield f"the slots of the call that no request holds are {sorted(named)}"


def _slots_of(call: Operation) -> Iterator[tuple[Component, Slot]]:
    if isinstance(call, Write):
        yield call.component, call.slot
    elif isinstance(call, Free | Insert):
        for component, some in call.slots:
            yield from ((component, slot) for slot in some)


def _not_cached(_state: Snapshot, _call: Operation, error: PrefixNotCached) -> Iterator[str]:
    if error.cached_pages >= error.asked_pages:
        yield "then they would be enough"


def _pending(state: Snapshot, call: Operation, error: TransferPending) -> Iterator[str]:
    if isinstance(call, Insert):
        nodes = [stop.node for stop in path_of(state, call.key)]
        loads = {data.loading for node in nodes for data in node.data.values()} - {None}
    else:
        loads = {t.transfer_id for t in state.transfers if t.direction is Direction.LOAD_BACK}
    if loads and error.transfer_id not in loads:
        yield f"the path waits for {sorted(filter(None, loads))}"


def _spent(_state: Snapshot, call: Operation, error: ReceiptSpent) -> Iterator[str]:
    asked = getattr(call, "receipt", None)
    if asked is not None and asked.receipt_id != error.receipt_id:
        yield f"the call is of receipt {asked.receipt_id}"


def _busy(state: Snapshot, _call: Operation, error: CacheBusy) -> Iterator[str]:
    if state.holds and error.open_receipts != len(state.holds):
        yield f"{len(state.holds)} receipts are open"


_CHECKS: Mapping[type[CacheError], Callable[[Snapshot, Any, Any], Iterator[str]]] = {
    OutOfSlots: _out_of_slots,
    SlotNotHeld: _not_held,
    PrefixNotCached: _not_cached,
    TransferPending: _pending,
    ReceiptSpent: _spent,
    CacheBusy: _busy,
}
