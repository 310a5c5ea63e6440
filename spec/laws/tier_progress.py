"""TIER, continued: what counts of an order, and what is known to be in the store.

An order counts as far as it is done on every rank, and only once the cache has polled. The pages
that are known to be in the store are announced to routers, so they are closed under prefixes, as a
router needs it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from attrs import evolve

from kvcanon.spec.events import BlockRemoved
from kvcanon.spec.law import Kind, LawClass, Need, Premise, law
from kvcanon.spec.laws.page_hashes import short
from kvcanon.spec.laws.placed import ended_order, names_of
from kvcanon.spec.laws.tier import NEEDS, has_a_store
from kvcanon.spec.operations import (
    EndPrefetch,
    HostInserted,
    PollStore,
    Refused,
    Reset,
    StorePolled,
)
from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.tier import OrderId, OrderKind, OrderProgress, OrderState, StoreState
from kvcanon.spec.types import CPU, Key
from kvcanon.spec.views import Step, path_of


def moved_orders(store: StoreState, told: Mapping[OrderId, OrderProgress]) -> list[OrderState]:
    """The open orders, each with the progress that the store has reported on every rank."""
    return [
        evolve(order, pages=at.pages, ended=at.ended)
        if (at := told.get(order.order_id)) is not None
        else order
        for order in store.orders
    ]


def stored_after_poll(store: StoreState, told: Mapping[OrderId, OrderProgress]) -> set[bytes]:
    """The pages that are known to be in the store after a poll."""
    stored = set(store.stored)
    for was, now in zip(store.orders, moved_orders(store, told), strict=True):
        if was.cancelled:
            continue
        names = names_of(was.key)
        for page in range(was.start_pages + was.pages, was.start_pages + now.pages):
            if page == 0 or names[page - 1] in stored:
                stored.add(names[page])
        missing = was.start_pages + now.pages
        if was.kind is OrderKind.FETCH and now.ended and not was.ended and missing < len(names):
            stored -= _with_followers(store, stored, names[missing])
    return stored


def _with_followers(store: StoreState, stored: set[bytes], name: bytes) -> set[bytes]:
    """A page and those that follow it, of the pages that are known to be in the store."""
    parents = {each: event.parent_hash for each, event in store.stored.items()}
    for order in store.orders:
        names = names_of(order.key)
        parents.update(zip(names[1:], names, strict=False))
    gone, more = set[bytes](), {name} & stored
    while more:
        gone |= more
        more = {each for each in stored - gone if parents.get(each) in gone}
    return gone


def _stored_due(step: Step) -> set[bytes] | None:
    """The pages that must be known to be in the store after a step; None without a store."""
    store = step.before.store
    if store is None or step.store is None or step.after.store is None:
        return None
    if isinstance(step.outcome, StorePolled):
        return stored_after_poll(store, step.store.progress)
    if isinstance(step.operation, Reset) and not isinstance(step.outcome, Refused):
        return set()
    return set(store.stored)


def _moves_on(step: Step) -> bool:
    store = step.before.store
    if not isinstance(step.operation, PollStore) or store is None or step.store is None:
        return False
    return moved_orders(store, step.store.progress) != list(store.orders)


WENT_ON = Premise[Step]("a poll after an order to the store went on", _moves_on)


@law(
    "TIER-7",
    Kind.STEP,
    LawClass.SOUND,
    premise=WENT_ON,
    needs=NEEDS,
    enabled_if=has_a_store,
)
def only_what_is_there_counts(step: Step) -> Iterator[str]:
    """A page counts as being in the store only after a poll has said that it was written or read.

    On every rank, and only if the page before it counts. A page that a prefetch did not find counts
    no more, nor do those that follow it; after a reset none does. So the store on DISK or EXTERNAL
    is announced after the acknowledgement, never at the order.

    Why: routers send requests to where a page is said to be. A page that is counted and not there
    is never written again, and lost to every later prompt.

    Seen broken: https://github.com/sgl-project/sglang/pull/22894,
    https://github.com/vllm-project/vllm/issues/57912
    """
    due = _stored_due(step)
    if due is None or step.after.store is None:
        return
    for name in sorted(step.after.store.stored.keys() - due):
        yield (
            f"page {short(name)} counts as being in the store after this "
            f"{type(step.operation).__name__}, and no order has shown that on every rank"
        )


@law(
    "TIER-8",
    Kind.STEP,
    LawClass.SERVING,
    premise=WENT_ON,
    needs=NEEDS,
    enabled_if=has_a_store,
)
def what_was_written_counts(step: Step) -> Iterator[str]:
    """A page that was written or read on every rank counts as being in the store from the poll on.

    It counts until a prefetch does not find it, or a reset: no other call forgets it.

    Why: a page that does not count is written again and again, and no router sends its prompt here.

    Seen broken: not seen
    """
    due = _stored_due(step)
    if due is None or step.after.store is None:
        return
    for name in sorted(due - step.after.store.stored.keys()):
        yield (
            f"page {short(name)} is in the store on every rank, and does not count after this "
            f"{type(step.operation).__name__}"
        )


@law(
    "TIER-9",
    Kind.STEP,
    LawClass.SOUND,
    premise=WENT_ON,
    needs=NEEDS,
    enabled_if=has_a_store,
)
def progress_is_true(step: Step) -> Iterator[str]:
    """A poll of the store answers which orders went on, and how far they are on every rank.

    A write is closed when it has ended, a prefetch when it was given up and has ended; until then
    orders stay open, and change only by a poll, the end of a prefetch, or a reset.

    Why: an engine admits a request by these counts. With a page more than has arrived on one of the
    ranks, that rank computes on bytes that are not there.

    Seen broken: https://github.com/sgl-project/sglang/issues/30760,
    https://github.com/sgl-project/sglang/pull/33442
    """
    store, answer = step.before.store, step.outcome
    if store is None or step.store is None or step.after.store is None:
        return
    if not isinstance(answer, StorePolled):
        if not isinstance(step.operation, EndPrefetch | Reset):
            known = {order.order_id for order in store.orders}
            kept = tuple(o for o in step.after.store.orders if o.order_id in known)
            if kept != store.orders:
                yield f"{type(step.operation).__name__} changed the open orders of the store"
        return
    due = moved_orders(store, step.store.progress)
    moved = [
        OrderProgress(now.order_id, now.pages, now.ended)
        for was, now in zip(store.orders, due, strict=True)
        if was != now
    ]
    if Counter(answer.orders) != Counter(moved):
        yield f"the poll answered {list(answer.orders)}; on every rank it is {moved}"
    closed = {o.order_id for o in due if o.ended and (o.cancelled or o.kind is OrderKind.WRITE)}
    left = tuple(order for order in due if order.order_id not in closed)
    if step.after.store.orders != left:
        ids = [order.order_id for order in step.after.store.orders]
        yield f"after the poll the orders {ids} are open; it is {[o.order_id for o in left]}"


@law(
    "TIER-10",
    Kind.STEP,
    LawClass.SOUND,
    premise=Premise[Step](
        "the end of a prefetch of which pages have arrived",
        lambda step: (order := ended_order(step)) is not None and order.pages > 0,
    ),
    needs=(*NEEDS, Need.BYTES),
    enabled_if=has_a_store,
)
def arrived_pages_are_placed(step: Step) -> Iterator[str]:
    """The end of a prefetch places the pages that have arrived, and no others.

    It accounts for each of them, as a host insert does, and their bytes are those that were written
    for them: a record that does not prove to be the page ends the fetch before it. Pages whose
    beginning has left the tree meanwhile are all dropped.

    Why: a page that has not arrived, or is another's, is served as this one's from then on.

    Seen broken: https://github.com/sgl-project/sglang/issues/39269,
    https://github.com/vllm-project/vllm/issues/54363,
    https://github.com/kvcache-ai/Mooncake/issues/850
    """
    order, answer = ended_order(step), step.outcome
    if order is None or not isinstance(answer, HostInserted):
        return
    counts = (
        answer.placed_pages + answer.refilled_pages + answer.present_pages + answer.dropped_pages
    )
    if counts != order.pages:
        yield f"{order.pages} pages of the prefetch have arrived, and the answer counts {counts}"
    for stamp in step.stamps:
        if stamp.found != stamp.expected:
            yield (
                f"page {stamp.page_index} of the prefetch is on the host as "
                f"{stamp.found[:16].hex()}, not {stamp.expected[:16].hex()}, which was written "
                "for it"
            )


@law(
    "TIER-15",
    Kind.STEP,
    LawClass.SERVING,
    premise=Premise[Step](
        "a record that the cache wrote itself was fetched",
        lambda step: step.store is not None and bool(_fetched_on(step) or step.store.refused),
    ),
    needs=NEEDS,
    enabled_if=has_a_store,
)
def whole_records_are_accepted(step: Step) -> Iterator[str]:
    """A fetch accepts each record that is, bit for bit, the one that the cache wrote.

    Until the prefetch is given up: after that it may refuse what still comes. By profile, it may
    also refuse a page that has come to the host in another way meanwhile (`fetches_all_pages`).

    Why: otherwise the store is written and read, and no prompt ever gets a page from it.

    Seen broken: not seen
    """
    store = step.before.store
    if store is None or step.store is None:
        return
    waited_for = {order.order_id: order for order in store.orders if not order.cancelled}
    for order_id, page in step.store.refused:
        if order_id in waited_for:
            order, may_end = waited_for[order_id], not step.before.profile.fetches_all_pages
            at = order.start_pages + page
            if may_end and _is_on_host(step.before, order.key, at):
                continue
            yield f"prefetch {order_id} did not accept page {at} of its key, which is as written"


def _is_on_host(state: Snapshot, key: Key, at: int) -> bool:
    """Whether the host has a page of a key."""
    walked = path_of(state, key.prefix(at + 1))
    pages = sum(shared for _, shared in walked)
    return pages == at + 1 and walked[-1][0].full.resident(CPU)


def _fetched_on(step: Step) -> bool:
    """Whether a prefetch went on since the step before."""
    store = step.before.store
    told = {} if step.store is None else step.store.progress
    return store is not None and any(
        order.kind is OrderKind.FETCH
        and order.order_id in told
        and told[order.order_id].pages > order.pages
        for order in store.orders
    )


@law(
    "TIER-11",
    Kind.STEP,
    LawClass.SERVING,
    premise=Premise[Step](
        "a prefetch that is ended, or a reset, while the store works on an order",
        lambda step: bool(_given_up(step)),
    ),
    needs=NEEDS,
    enabled_if=has_a_store,
)
def given_up_orders_are_stopped(step: Step) -> Iterator[str]:
    """An order that nobody waits for any more is asked to stop, and counts as cancelled.

    That is a prefetch that is ended before the store has ended it, and every order at a reset. A
    prefetch that is ended after that is closed at once. No other order is stopped.

    Why: a store that goes on reading for nobody takes its speed from those who wait, and the slots
    stay taken until it is done.

    Seen broken: https://github.com/sgl-project/sglang/issues/35181
    """
    if step.store is None or step.after.store is None or step.before.store is None:
        return
    due = {order.order_id for order in _given_up(step)}
    if set(step.store.stopped) != due:
        yield f"the orders {sorted(step.store.stopped)} were asked to stop; {sorted(due)} had to be"
    state = {order.order_id: order for order in step.after.store.orders}
    for order_id in due:
        if order_id not in state or not state[order_id].cancelled:
            yield f"order {order_id} was given up, and is not open as cancelled"
    ended = ended_order(step)
    if ended is not None and ended.ended and ended.order_id in state:
        yield f"prefetch {ended.order_id} had ended, and is open after its end was called"


def _given_up(step: Step) -> list[OrderState]:
    """The orders on which the store works, and for which nobody waits after the step."""
    ended, store = ended_order(step), step.before.store
    if ended is not None:
        return [] if ended.ended else [ended]
    if isinstance(step.operation, Reset) and not isinstance(step.outcome, Refused):
        orders = () if store is None else store.orders
        return [order for order in orders if not (order.ended or order.cancelled)]
    return []


@law(
    "TIER-12",
    Kind.STEP,
    LawClass.SOUND,
    premise=Premise[Step](
        "a reset with a store",
        lambda step: isinstance(step.operation, Reset) and step.before.store is not None,
    ),
    needs=NEEDS,
    enabled_if=has_a_store,
)
def resets_let_go_of_the_store(step: Step) -> Iterator[str]:
    """A reset lets go of the store, unless it is told that the weights are the same.

    All open orders are given up in any case: what they fetch is placed nowhere, and what they write
    does not count. Nothing else lets go of a store, and nothing takes it again.

    Why: the pages in the store are those of the weights before. An engine that goes on with them
    under new weights answers from another model's memory, without an error.

    Seen broken: https://github.com/sgl-project/sglang/issues/38362
    """
    before, after = step.before.store, step.after.store
    if before is None or after is None or isinstance(step.outcome, Refused):
        return
    resets = isinstance(step.operation, Reset)
    keeps = not resets or step.operation.keep_store  # type: ignore[union-attr]  # It is a reset.
    if after.is_open != (before.is_open and keeps):
        yield (
            f"the store is {'open' if after.is_open else 'let go of'} after this "
            f"{type(step.operation).__name__}"
        )
    for order in after.orders if resets else ():
        if not order.cancelled:
            yield f"order {order.order_id} goes on after a reset"


@law(
    "TIER-13",
    Kind.STATE,
    LawClass.SOUND,
    premise=Premise[Snapshot](
        "two pages in the store, one after the other",
        lambda state: (
            state.store is not None and any(e.parent_hash for e in state.store.stored.values())
        ),
    ),
    needs=NEEDS,
    enabled_if=has_a_store,
    follows=lambda difference: "store" not in difference.fields,
)
def stored_pages_have_their_parents(state: Snapshot) -> Iterator[str]:
    """The page before a page that counts as being in the store counts, too.

    Why: a router promises a prefix with a gap; the request computes it, and the rest of it takes
    room in the store for nothing.

    Seen broken: https://github.com/sgl-project/sglang/issues/26886
    """
    if state.store is None:
        return
    for name, event in state.store.stored.items():
        if event.parent_hash is not None and event.parent_hash not in state.store.stored:
            yield (
                f"page {short(name)} counts as being in the store, and {short(event.parent_hash)} "
                "before it does not"
            )


@law(
    "TIER-14",
    Kind.STEP,
    LawClass.POLICY,
    premise=Premise[Step](
        "two pages that a prefetch did not find",
        lambda step: (
            isinstance(step.operation, PollStore)
            and sum(isinstance(event, BlockRemoved) for event in step.events) > 1
        ),
    ),
    needs=(*NEEDS, Need.EVENTS),
    enabled_if=has_a_store,
)
def followers_leave_the_store_first(step: Step) -> Iterator[str]:
    """A page is removed from DISK or EXTERNAL after the pages that follow it.

    Why: otherwise, between the two events, a router promises a prefix whose beginning is gone.

    Seen broken: not seen
    """
    store = step.before.store
    if store is None or not isinstance(step.operation, PollStore):
        return
    removed: set[bytes] = set()
    for event in step.events:
        if isinstance(event, BlockRemoved) and event.medium is store.medium:
            known = store.stored.get(event.block_hash)
            if known is not None and known.parent_hash in removed:
                yield f"page {short(event.block_hash)} was removed after the page before it"
            removed.add(event.block_hash)
