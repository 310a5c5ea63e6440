"""Faults of the tier below the host: orders to the store, their progress, and what counts of them.

Most leave the cache itself as it should be. What is wrong shows in the store, in the slots that
prefetches hold, or only after a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from attrs import evolve

from kvcanon.lab.mutants.planted.entry import mutant
from kvcanon.lab.variants.wrapped_rules import Original, around, instead
from kvcanon.reference import cache, events, tier
from kvcanon.reference.host_insert import insert_host
from kvcanon.reference.match import match
from kvcanon.reference.state import OpenOrder, State, Tier
from kvcanon.spec.events import BlockStored
from kvcanon.spec.operations import HostInserted, Matched, Ordered
from kvcanon.spec.tier import (
    SEAL_BYTES,
    OrderId,
    OrderKind,
    OrderProgress,
    StoreOrder,
    StoreQueue,
    seal,
)
from kvcanon.spec.types import CPU, FULL, Key

Rewrite = Callable[[StoreOrder], StoreOrder | None]


class _Rewriting:
    """A queue that gets other orders than the cache gives: None for one that it never gets."""

    def __init__(self, queue: StoreQueue, rewrite: Rewrite) -> None:
        self.queue, self.rewrite, self.medium = queue, rewrite, queue.medium

    def submit(self, order: StoreOrder) -> None:
        """Submit the other order, if there is one."""
        other = self.rewrite(order)
        if other is not None:
            self.queue.submit(other)

    def stop(self, order_id: OrderId) -> None:
        """Stop an order."""
        self.queue.stop(order_id)

    def poll(self) -> tuple[OrderProgress, ...]:
        """Poll the queue."""
        return self.queue.poll()


@contextmanager
def _orders_are(state: State, rewrite: Rewrite) -> Iterator[None]:
    """Rewrite the orders that are given inside."""
    below = state.tier
    if below is None:
        yield
        return
    queue, below.queue = below.queue, _Rewriting(below.queue, rewrite)
    try:
        yield
    finally:
        below.queue = queue


# Orders.


@mutant("TIER-1", stores=True)
@around(tier.store)
def stores_are_answered_and_not_ordered(
    store: Original[Ordered], state: State, key: Key
) -> Ordered:
    """A store answers with an order that the store never gets."""
    with _orders_are(state, lambda _: None):
        return store(state, key)


@mutant("TIER-1", stores=True)
@around(match, cache)
def matches_prefetch_unasked(find: Original[Matched], state: State, key: Key) -> Matched:
    """A match also begins a prefetch of what it does not find."""
    if state.tier is not None:
        tier.prefetch(state, key)
    return find(state, key)


@mutant("TIER-2", "vllm#52360", stores=True)
@around(tier.store)
def host_slots_are_read_late(store: Original[Ordered], state: State, key: Key) -> Ordered:
    """A write reads the host slots when the store gets to them, and nothing holds them."""
    slots = tier._leading_host_slots(state, key)
    payloads, blank = state.pools[FULL, CPU].payloads, bytes(state.config.slot_bytes)

    def late(order: StoreOrder) -> StoreOrder:
        names = tier._hashes(order.key)[order.start_pages :]
        own = slots[order.start_pages :]
        return evolve(order, record=lambda page: seal(names[page], payloads.get(own[page], blank)))

    with _orders_are(state, late):
        return store(state, key)


@mutant("TIER-2", "sgl#39269", stores=True)
@around(tier.store)
def pages_are_written_without_a_seal(store: Original[Ordered], state: State, key: Key) -> Ordered:
    """A write puts the bare bytes of a page into the store."""

    def bare(order: StoreOrder) -> StoreOrder:
        record = order.record
        assert record is not None
        return evolve(order, record=lambda page: record(page)[SEAL_BYTES:])

    with _orders_are(state, bare):
        return store(state, key)


@mutant("TIER-3", stores=True)
@instead(tier.store)
def nothing_is_ever_written(state: State, key: Key) -> Ordered:  # It is the rule's.
    """A store never gives an order."""
    return Ordered(None, 0, 0)


@mutant("TIER-3", "sgl#26886", stores=True)
@around(tier.store)
def beginnings_are_not_written(store: Original[Ordered], state: State, key: Key) -> Ordered:
    """A store leaves out the first page that it has to write, if more follow."""
    slots = tier._leading_host_slots(state, key)
    names = tier._hashes(key)[: len(slots)]
    stored = {} if state.tier is None else state.tier.stored
    start = next((at for at, name in enumerate(names) if name not in stored), len(names))
    if state.tier is None or start + 1 >= len(names):
        return store(state, key)
    known = dict(state.tier.stored)
    state.tier.stored[names[start]] = BlockStored(
        names[start], None, key.pages[start], state.tier.queue.medium
    )
    try:
        return store(state, key)
    finally:
        state.tier.stored = known


@mutant("TIER-3", "sgl#39444", stores=True)
@around(tier.store)
def one_page_is_written(store: Original[Ordered], state: State, key: Key) -> Ordered:
    """A store writes one page only, however many there are."""
    slots = tier._leading_host_slots(state, key)
    names = tier._hashes(key)[: len(slots)]
    stored = {} if state.tier is None else state.tier.stored
    start = next((at for at, name in enumerate(names) if name not in stored), len(names))
    return store(state, key.prefix(min(start + 1, len(key))))


@mutant("TIER-4", stores=True)
@around(tier.prefetch)
def nothing_is_ever_fetched(prefetch: Original[Ordered], state: State, key: Key) -> Ordered:
    """A prefetch never gives an order."""
    return prefetch(state, key.prefix(0))


@mutant("TIER-4", stores=True)
@around(tier.prefetch)
def known_pages_alone_are_fetched(prefetch: Original[Ordered], state: State, key: Key) -> Ordered:
    """A prefetch asks only for pages that this process wrote itself."""
    stored = {} if state.tier is None else state.tier.stored
    names = tier._hashes(key)
    start = tier._pages_there(state, key)
    known = [at for at in range(start, len(names)) if names[at] not in stored]
    return prefetch(state, key.prefix(known[0] if known else len(key)))


# Slots.


@mutant("TIER-5", "sgl#13483", stores=True)
@instead(tier._close)
def closed_orders_keep_their_slots(state: State, below: Tier, order: OpenOrder) -> None:
    """What a prefetch did not fill stays reserved when it is closed."""
    del below.orders[order.order_id]
    below.reported.pop(order.order_id, None)


@mutant("TIER-5", "sgl#31296", stores=True)
@around(tier.end_prefetch)
def slots_come_free_under_a_read(
    end: Original[HostInserted], state: State, order_id: OrderId
) -> HostInserted:
    """The end of a prefetch frees all of its slots, though the store may still write to them."""
    placed = end(state, order_id)
    order = None if state.tier is None else state.tier.orders.get(order_id)
    if order is not None:
        tier._give_back(state, order.slots)
    return placed


@mutant("TIER-5", stores=True)
@around(tier.start_anew)
def resets_forget_orders(start: Original[None], state: State, *, keep_store: bool) -> None:
    """A reset forgets all orders, with the slots that they hold."""
    start(state, keep_store=keep_store)
    if state.tier is not None:
        state.tier.orders.clear()


@mutant("TIER-6", stores=True)
@around(tier.prefetch)
def prefetches_make_recent(prefetch: Original[Ordered], state: State, key: Key) -> Ordered:
    """A prefetch matches its key first, which makes its beginning recent."""
    match(state, key)
    return prefetch(state, key)


# OrderProgress.


@mutant("TIER-7", "C2 sgl#22894", stores=True)
@around(tier.store)
def pages_count_at_the_order(store: Original[Ordered], state: State, key: Key) -> Ordered:
    """A page is announced as stored when its write is ordered, before the store has it."""
    answer = store(state, key)
    below = state.tier
    if below is not None and answer.order_id is not None:
        for page in range(answer.pages):
            tier._note_stored(state, below, below.orders[answer.order_id], page)
    return answer


@mutant("TIER-7", "vllm#57912", stores=True)
@instead(tier._note_missing)
def missing_pages_still_count(state: State, below: Tier, name: bytes) -> None:
    """A page that a prefetch did not find counts on, so that it is never written again."""


@mutant("TIER-8", stores=True)
@around(tier._note_stored)
def fetched_pages_do_not_count(
    note: Original[None], state: State, below: Tier, order: OpenOrder, page: int
) -> None:
    """A page that came from the store does not count as being there."""
    if order.kind is OrderKind.WRITE:
        note(state, below, order, page)


@mutant("ASYNC-11", "sgl#30760", stores=True)
@instead(tier._on_all_ranks)
def ranks_count_what_arrived_here(
    state: State,  # It is the rule's.
    below: Tier,
) -> Mapping[OrderId, OrderProgress]:
    """A poll counts what the rank's own store has done, and asks no other rank."""
    none = {each: OrderProgress(each, 0, ended=False) for each in below.orders}
    return {each: below.reported.get(each, none[each]) for each in below.orders}


@mutant("ASYNC-11", stores=True)
@around(tier.poll_store)
def given_up_slots_come_free_here(
    poll: Original[tuple[OrderProgress, ...]], state: State
) -> tuple[OrderProgress, ...]:
    """The slots of a prefetch that was given up come free once this rank's store is done."""
    moved, below = poll(state), state.tier
    for order_id, order in ({} if below is None else dict(below.orders)).items():
        here = None if below is None else below.reported.get(order_id)
        if order.cancelled and here is not None and here.ended:
            tier._give_back(state, order.slots)
            order.slots = ()
    return moved


@mutant("TIER-9", stores=True)
@around(tier.poll_store)
def progress_is_reported_as_whole(
    poll: Original[tuple[OrderProgress, ...]], state: State
) -> tuple[OrderProgress, ...]:
    """A poll answers that every order that ended has done all of its pages."""
    orders = {} if state.tier is None else dict(state.tier.orders)
    return tuple(
        evolve(each, pages=len(orders[each.order_id].hashes)) if each.ended else each
        for each in poll(state)
    )


@mutant("TIER-10", "vllm#54363", stores=True)
@around(tier.prefetch)
def unproved_pages_are_placed(prefetch: Original[Ordered], state: State, key: Key) -> Ordered:
    """A prefetch takes whatever bytes the store gives for a page."""
    pool, size = state.pools[FULL, CPU], state.config.slot_bytes

    def trusting(order: StoreOrder) -> StoreOrder:
        below = state.tier
        assert below is not None
        slots = below.orders[order.order_id].slots

        def accept(page: int, record: bytes) -> bool:
            pool.payloads[slots[page]] = record[SEAL_BYTES:].ljust(size, b"\0")[:size]
            return True

        return evolve(order, accept=accept)

    with _orders_are(state, trusting):
        return prefetch(state, key)


@mutant("TIER-10", "sgl#27550", stores=True)
@around(tier.end_prefetch)
def pages_are_placed_before_they_arrive(
    end: Original[HostInserted], state: State, order_id: OrderId
) -> HostInserted:
    """The end of a prefetch places all of its pages, also those that have not arrived."""
    order = None if state.tier is None else state.tier.orders.get(order_id)
    if order is not None and not order.cancelled and order.kind is OrderKind.FETCH:
        order.pages = len(order.hashes)
        for slot in order.slots:
            state.pools[FULL, CPU].payloads.setdefault(slot, bytes(state.config.slot_bytes))
    return end(state, order_id)


@mutant("TIER-15", stores=True)
@around(tier.prefetch)
def no_record_is_accepted(prefetch: Original[Ordered], state: State, key: Key) -> Ordered:
    """A prefetch refuses every record, as if none proved to be its page."""
    with _orders_are(state, lambda order: evolve(order, accept=lambda _page, _record: False)):
        return prefetch(state, key)


@mutant("TIER-15", stores=True)
@around(tier.prefetch)
def last_records_are_refused(prefetch: Original[Ordered], state: State, key: Key) -> Ordered:
    """A prefetch of several pages refuses the record of its last one."""

    def without_the_last(order: StoreOrder) -> StoreOrder:
        accept, last = order.accept, len(order.key) - order.start_pages - 1
        assert accept is not None
        return evolve(
            order, accept=lambda page, record: not 0 < page == last and accept(page, record)
        )

    with _orders_are(state, without_the_last):
        return prefetch(state, key)


@mutant("RES-11", stores=True)
@instead(insert_host, tier)
def fetched_pages_are_dropped(
    state: State,  # It is the rule's.
    key: Key,
    start: int,
    payload: object,
) -> HostInserted:
    """What a prefetch brought is dropped, and so never found."""
    return HostInserted(0, 0, 0, len(key) - start)


@mutant("TIER-11", "sgl#35181", stores=True)
@around(tier.end_prefetch)
def reads_go_on_for_nobody(
    end: Original[HostInserted], state: State, order_id: OrderId
) -> HostInserted:
    """A prefetch that is given up is never stopped."""
    below = state.tier
    if below is None:
        return end(state, order_id)
    queue = below.queue
    below.queue = _Unstoppable(queue, lambda order: order)
    try:
        return end(state, order_id)
    finally:
        below.queue = queue


class _Unstoppable(_Rewriting):
    """A queue that is never asked to stop an order."""

    def stop(self, order_id: OrderId) -> None:
        """Ask nothing."""


@mutant("TIER-12", "sgl#38362", stores=True)
@around(tier.start_anew)
def resets_keep_the_store(start: Original[None], state: State, *, keep_store: bool) -> None:
    """After a reset for new weights the cache goes on with the pages of the old ones."""
    start(state, keep_store=True)


@mutant("TIER-12", stores=True)
@around(tier.start_anew)
def prefetches_outlive_a_reset(start: Original[None], state: State, *, keep_store: bool) -> None:
    """A reset leaves prefetches open, whose pages may be those of the weights before."""
    start(state, keep_store=keep_store)
    for order in () if state.tier is None else state.tier.orders.values():
        order.cancelled = order.kind is OrderKind.WRITE


@mutant("TIER-13", stores=True)
@instead(tier._note_missing)
def followers_of_missing_pages_count(state: State, below: Tier, name: bytes) -> None:
    """A page counts on when the page before it was not found."""
    if name in below.stored:
        events.emit_not_in_store(state, below.stored.pop(name))


@mutant("TIER-14", stores=True)
@instead(tier._note_missing)
def missing_pages_leave_before_their_followers(state: State, below: Tier, name: bytes) -> None:
    """The remove of a page that was not found comes before those of the pages that follow it."""
    leaving = [name]
    while leaving:
        gone = below.stored.pop(leaving.pop(), None)
        if gone is not None:
            events.emit_not_in_store(state, gone)
            leaving += [
                each for each, e in below.stored.items() if e.parent_hash == gone.block_hash
            ]


@mutant("EVENT-10", "C2 sgl#22894", stores=True)
@instead(events.emit_in_store, tier)
def stores_below_the_host_are_silent(state: State, event: BlockStored) -> None:
    """No event says that a page is on DISK or EXTERNAL."""


@mutant("ASYNC-15", "sgl#28429", stores=True)
@around(tier.poll_store)
def polls_agree_twice(
    poll: Original[tuple[OrderProgress, ...]], state: State
) -> tuple[OrderProgress, ...]:
    """A poll of the store asks the other ranks a second time."""
    moved = poll(state)
    if state.agree is not None:
        state.agree([])
    return moved
