"""REFUSE: when a call may be refused.

That a refusal changes nothing is ALLOC-6. Here it is whether the reason that it gives is true.

What readers get wrong: a cache that refuses too much breaks no other law. It is never wrong about
anything, and it is never of use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from kvcanon.spec.errors import (
    CacheBusy,
    CacheError,
    OutOfSlots,
    PrefixNotCached,
    ReceiptSpent,
    SlotNotHeld,
    TransferPending,
)
from kvcanon.spec.law import Kind, Need, law
from kvcanon.spec.operations import (
    Allocate,
    Free,
    Insert,
    InsertHost,
    LoadBack,
    Lock,
    Operation,
    Refused,
    Unlock,
    UnlockWindow,
)
from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.types import FULL, GPU, Component, Key, Slot
from kvcanon.spec.views import Step, path_of, present_pages


@law("REFUSE-1", Kind.STEP)
def refusals_are_true(step: Step) -> Iterator[str]:
    """A call is refused only for a reason that the state bears out.

    Out of slots: a pool has fewer free than were asked. Prefix not cached: fewer pages are there
    than the call relies on. Slot not held: one of the slots is not, or is not twice. Transfer
    pending: a load-back of the path is in flight. What is wrong with an argument as such is not
    judged.

    Why: whoever is told to evict, to match again or to wait does so, for nothing, and for ever.

    Seen broken: not seen
    """
    yield from _untrue(step, _DOUBTS)


@law("REFUSE-2", Kind.STEP, needs=(Need.SNAPSHOT, Need.HOLDS))
def receipts_are_refused_truly(step: Step) -> Iterator[str]:
    """A receipt is refused only if it is not open, and a reset only while some receipt is.

    Why: a lock whose release is refused is never given back; a cache that is never idle can never
    be reset.

    Seen broken: not seen
    """
    yield from _untrue(step, _DOUBTS_OF_RECEIPTS)


def _untrue(
    step: Step, doubts: Mapping[type[CacheError], Callable[[Snapshot, Operation], str | None]]
) -> Iterator[str]:
    """What gives the reason of a refusal the lie."""
    if not isinstance(step.outcome, Refused):
        return
    doubt = doubts.get(type(step.outcome.error))
    truth = doubt(step.before, step.operation) if doubt is not None else None
    if truth is not None:
        name = type(step.operation).__name__
        yield f"{name} was refused ({step.outcome.error}), but {truth}"


def _has_room(state: Snapshot, asked: Operation) -> str | None:
    if isinstance(asked, Allocate) and all(
        asked.counts[component] <= len(state.pools[component, GPU].free)
        for component in state.config.components
    ):
        return "every pool has as many free slots as were asked"
    return None


def _is_cached(state: Snapshot, asked: Operation) -> str | None:
    relied, found = _relied_on(state, asked)
    return (
        f"{found} pages of the key are there and {relied} are needed" if found >= relied else None
    )


def _is_open(state: Snapshot, asked: Operation) -> str | None:
    if not isinstance(asked, Unlock | UnlockWindow):
        return None
    receipt = asked.receipt
    path = path_of(state, receipt.key)
    end = path[-1].node if path else state.root
    for hold in state.holds:
        of_a_request = hold.receipt_id == receipt.receipt_id and hold.transfer_id is None
        of_this_key = hold.node_id == end.node_id and state.end(end) == len(receipt.key)
        if of_a_request and of_this_key:
            return f"receipt {receipt.receipt_id} is open"
    return None


def _holds_all(state: Snapshot, asked: Operation) -> str | None:
    if isinstance(asked, Free | Insert) and all(
        len(set(slots)) == len(slots) and _held(state, component).issuperset(slots)
        for component, slots in asked.slots
    ):
        return "requests hold every one of the slots"
    return None


def _nothing_loads(state: Snapshot, asked: Operation) -> str | None:
    if isinstance(asked, Insert) and all(
        data.loading is None for node, _ in path_of(state, asked.key) for data in node.data.values()
    ):
        return "nothing on the key's path is being loaded"
    return None


def _is_idle(state: Snapshot, _: Operation) -> str | None:
    return None if state.holds else "no receipt is open"


_DOUBTS: Mapping[type[CacheError], Callable[[Snapshot, Operation], str | None]] = {
    OutOfSlots: _has_room,
    PrefixNotCached: _is_cached,
    SlotNotHeld: _holds_all,
    TransferPending: _nothing_loads,
}
"""For each reason, what in the state gives it the lie; None where it is true."""

_DOUBTS_OF_RECEIPTS: Mapping[type[CacheError], Callable[[Snapshot, Operation], str | None]] = {
    ReceiptSpent: _is_open,
    CacheBusy: _is_idle,
}


def _relied_on(state: Snapshot, asked: Operation) -> tuple[int, int]:
    """How many pages a call needs to be there, and how many are, as it needs them."""
    if isinstance(asked, Insert):
        return asked.start_pages, _pages_on_device(state, asked.key)
    if isinstance(asked, InsertHost):
        return asked.start_pages, present_pages(state, asked.key)
    if isinstance(asked, Lock | LoadBack):
        return len(asked.key), present_pages(state, asked.key)
    return 0, 0


def _pages_on_device(state: Snapshot, key: Key) -> int:
    """Leading pages of a key with full data on the device."""
    pages = 0
    for node, shared in path_of(state, key):
        if not node[FULL].resident(GPU):
            break
        pages += shared
    return pages


def _held(state: Snapshot, component: Component) -> frozenset[Slot]:
    """Slots of a component that requests hold; none where there is no such pool."""
    pool = state.pools.get((component, GPU))
    return frozenset() if pool is None else pool.held
