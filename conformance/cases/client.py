"""The client of a tree cache: the keys, slots and receipts that its users hold; and its actions.

An action picks from these, so that it calls the cache as an engine could.

The client is not a model of a cache: laws decide whether an answer is right, and the client works
with the answer it got.

There are two tables of actions. Those in `actions` are drawn at random, and what their picks mean
depends on earlier actions. Those in `exact_actions` name their keys themselves, and are never
drawn. A case may have both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import cast

from attrs import Factory, define, evolve, field, frozen

from kvcanon.conformance.cases.prompts import known_key, long_prompt, new_prompt
from kvcanon.conformance.protocol.adapter import Capability, CopyControl, StoreControl, WaitControl
from kvcanon.spec.cache import Cache, StoredCache
from kvcanon.spec.errors import CacheError, OutOfSlots
from kvcanon.spec.operations import HostPayload, Receipt
from kvcanon.spec.tier import OrderId
from kvcanon.spec.types import (
    DEFAULT_NAMESPACE,
    FULL,
    MAMBA,
    SWA,
    Component,
    Counts,
    Key,
    Namespace,
    Slots,
)
from kvcanon.spec.views import COLUMN, PageNumber, PageNumbers

NAMESPACES = (
    DEFAULT_NAMESPACE,
    Namespace(extra_key="a", lora="bc"),
    Namespace(extra_key="ab", lora="c"),
    Namespace(extra_key="a"),
    Namespace(lora="a"),
    Namespace(cache_salt="a"),
    Namespace(cache_salt=""),
)
"""Pairs of namespaces that differ in one field only, or in where one field ends."""


@define
class Stamps:
    """Bytes of each component's data by page; they depend on all tokens up to its end."""

    slot_bytes: int
    numbers: PageNumbers = Factory(PageNumbers)

    def of_key(self, component: Component, key: Key) -> list[bytes]:
        """Return the right bytes for the slot of each page of a key."""
        return [self.of_page(component, number) for number in self.numbers.of_key(key)]

    def of_page(self, component: Component, number: PageNumber) -> bytes:
        """Return the right bytes for the slot of the page with this number."""
        return (number << 2 | COLUMN[component] + 1).to_bytes(self.slot_bytes, "big")


@define(eq=False)
class ClientRequest:
    """A running request: its key, its lock and its slots."""

    key: Key
    receipt: Receipt | None
    """None once the request has unlocked; a reset needs all requests unlocked."""
    start_pages: int
    slots: Slots
    counted_pages: int = 0
    state_pages: tuple[int, ...] = ()
    """The pages at whose ends its mamba states are; none for the one state at the end."""


@define(eq=False)
class Client:
    """All keys, requests and slots that the users of one cache hold."""

    cache: Cache
    can: frozenset[Capability]
    copies: CopyControl | None
    stamps: Stamps
    namespaces: tuple[Namespace, ...] = NAMESPACES
    on_ranks: bool = False
    """Whether the cache stands for several ranks, on each of which a copy may end otherwise."""
    states_within: bool = False
    """Whether the cache takes mamba states at several pages of an insert."""
    store: StoreControl | None = None
    """The control of the store below the cache; None without one."""
    prefetches: list[OrderId] = field(factory=list)
    """The prefetches that were begun and not ended."""
    keys: list[Key] = field(factory=list)
    requests: list[ClientRequest] = field(factory=list)
    receipts: list[Receipt] = field(factory=list)
    spent: list[Receipt] = field(factory=list)
    blocks: list[Slots] = field(factory=list)
    """Slots that no request holds and that stay allocated until the end of the case."""
    components: tuple[Component, ...] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.components = self.cache.config.components

    # Keys.

    def known(self, a: int, b: int) -> Key:
        """Return a key that was used before, or a prefix of it; the empty key at the start."""
        return known_key(self.keys, a, b)

    def prompt(self, a: int, b: int, c: int) -> Key:
        """Return a new prompt that shares its beginning with a known key."""
        return new_prompt(self.keys, self.namespaces, self.cache.config, (a, b, c))

    def long_prompt(self, a: int, b: int, c: int) -> Key:
        """Return a new prompt that is as long as the pools allow."""
        return long_prompt(self.keys, self.namespaces, self.cache.config, (a, b, c))

    def on_host(self, a: int, b: int, tries: int) -> Key:
        """Return a known key that is usable from the host; tries at most `tries` keys."""
        key = self.known(a, b)
        for another in range(tries):
            matched = self.cache.match(key)
            if matched.prefix_pages > matched.device_pages:
                return key.prefix(matched.prefix_pages)
            key = self.known(a + another, 1)
        return key

    # Requests, from match to insert.

    def start(
        self, key: Key, start_pages: int, counted_pages: int, state_pages: tuple[int, ...] = ()
    ) -> ClientRequest:
        """Lock the cached prefix, and allocate and write the rest. Raises: CacheError."""
        receipt = self.cache.lock(key.prefix(start_pages))
        try:
            slots = self.allocate(key, start_pages, state_pages)
        except CacheError:
            self.cache.unlock(receipt)
            self.spent.append(receipt)
            raise
        request = ClientRequest(key, receipt, start_pages, slots, counted_pages, state_pages)
        self.requests.append(request)
        return request

    def allocate(self, key: Key, start_pages: int, state_pages: tuple[int, ...] = ()) -> Slots:
        """Allocate and write slots from a page on, evicting if needed. Raises: OutOfSlots."""
        pages = len(key) - start_pages
        at_end = int(MAMBA in self.components and len(key) > 0)
        windowed = pages if SWA in self.components else 0
        wanted = Counts(pages, windowed, len(state_pages) or at_end)
        return self.take(key, wanted, state_pages)

    def take(self, key: Key, wanted: Counts, state_pages: tuple[int, ...] = ()) -> Slots:
        """Allocate slots for the last pages of a key, evicting if needed, and write them.

        Raises: OutOfSlots.
        """
        try:
            slots = self.cache.allocate(wanted)
        except OutOfSlots:
            if Capability.EVICT not in self.can:
                raise
            self.cache.evict(wanted)
            slots = self.cache.allocate(wanted)
        if not state_pages:
            self.write(key, slots)
            return slots
        self.write(key, evolve(slots, mamba=()))
        for page, state in zip(state_pages, slots.mamba, strict=True):
            self.write(key.prefix(page), Slots(mamba=(state,)))
        return slots

    def write(self, key: Key, slots: Slots) -> None:
        """Write the stamps of the last pages of a key into slots."""
        if Capability.WRITE not in self.can:
            return
        for component, some in slots:
            if some:
                stamps = self.stamps.of_key(component, key)[-len(some) :]
                for slot, stamp in zip(some, stamps, strict=True):
                    self.cache.write(component, slot, stamp)

    def insert(self, request: ClientRequest, priority: int) -> None:
        """Insert the pages that a request computed, and end it. Raises: CacheError."""
        if not len(request.key):
            self.abort(request)
            return
        insert = self.cache.insert
        if request.state_pages:
            insert = partial(insert, state_pages=request.state_pages)
        insert(
            request.key,
            request.start_pages,
            request.slots,
            counted_pages=request.counted_pages,
            priority=priority,
        )
        self.end(request)

    def hit(self, key: Key, priority: int) -> bool:
        """Insert the prefix that is on the device, without slots; returns whether there is one."""
        there = key.prefix(self.cache.match(key).device_pages)
        if len(there):
            self.cache.insert(there, len(there), Slots(), priority=priority)
        return len(there) > 0

    def hand_over(self, key: Key, start_pages: int, slots: Slots) -> None:
        """Insert slots of no request; if that is refused, free them. Raises: CacheError."""
        try:
            self.cache.insert(key, start_pages, slots)
        except CacheError:
            self.cache.free(slots)
            raise

    def put(self, key: Key) -> None:
        """Compute and insert what the device lacks, for no request. Raises: CacheError."""
        start = self.cache.match(key).device_pages
        self.hand_over(key, start, self.allocate(key, start))

    def abort(self, request: ClientRequest) -> None:
        """End a request, and free its slots."""
        self.cache.free(request.slots)
        self.end(request)

    def end(self, request: ClientRequest) -> None:
        """Forget a request, and release its lock."""
        self.requests.remove(request)
        self.let_go(request)

    def let_go(self, request: ClientRequest) -> None:
        """Release the lock of a request, which keeps its slots."""
        receipt, request.receipt = request.receipt, None
        if receipt is not None:
            self.cache.unlock(receipt)
            self.spent.append(receipt)

    def unlock(self, receipt: Receipt) -> None:
        """Release a lock that no request holds."""
        self.receipts.remove(receipt)
        self.cache.unlock(receipt)
        self.spent.append(receipt)

    def fetch(self, key: Key, start_pages: int, swa_pages: int) -> None:
        """Insert stamped bytes of a key on the host, from some page on. Raises: CacheError."""
        count = len(key) - start_pages

        def some(component: Component, last: int) -> tuple[bytes, ...]:
            given = last if component in self.components else 0
            return tuple(self.stamps.of_key(component, key)[len(key) - given :])

        payload = HostPayload(some(FULL, count), some(SWA, swa_pages), some(MAMBA, min(1, count)))
        self.cache.insert_host(key, start_pages, payload)

    def settle(self) -> None:
        """Let every copy in flight end, and settle it."""
        if Capability.FLUSH in self.can:
            self.cache.flush()
        elif Capability.POLL in self.can:
            if self.copies is not None:
                for transfer_id in self.copies.open_transfer_ids:
                    self.copies.acknowledge(transfer_id)
            self.cache.poll()

    # The end.

    def release_all(self) -> None:
        """End all requests, release all locks, and let every copy and wait end well."""
        if isinstance(self.copies, WaitControl):
            self.copies.next_wait("done")
        for request in list(self.requests):
            self.abort(request)
        for receipt in list(self.receipts):
            self.unlock(receipt)
        self.settle()
        if self.store is not None:
            self.end_orders(self.store)

    def end_orders(self, store: StoreControl) -> None:
        """Let every order to the store end, and end all prefetches."""
        cache = cast("StoredCache", self.cache)
        store.finish()
        cache.poll_store()
        for order_id in self.prefetches:
            with suppress(CacheError):  # A reset has given it up.
                cache.end_prefetch(order_id)
        self.prefetches.clear()

    def drain(self, order: Iterable[Component]) -> None:
        """Release everything, let every copy end, and evict slot by slot until nothing is left.

        The order of the victims shows the orders of recency.
        """
        self.release_all()
        evictions: list[Callable[[Counts], object]] = []
        if Capability.EVICT in self.can:
            evictions.append(self.cache.evict)
        if Capability.EVICT_HOST in self.can and self.cache.config.host_tier:
            evictions.append(self.cache.evict_host)
        order = [component for component in order if component in self.components]
        for evict in evictions:
            for component in order:
                self._evict_all(evict, component)
        self.settle()
        # Last, so that the free list stays short while the judge reads it often.
        for slots in self.blocks:
            self.cache.free(slots)
        self.blocks.clear()
        if Capability.TAKE_EVENTS in self.can:
            self.cache.take_events()

    def _evict_all(self, evict: Callable[[Counts], object], component: Component) -> None:
        one = Counts(**{component.value: 1})
        config = self.cache.config
        # A faulty cache may go on to free slots that do not exist.
        for _ in range(config.device_slots[component] + config.host_slots[component] + 1):
            if not getattr(evict(one), "freed", Counts())[component]:
                return


Do = Callable[[Client, int, int, int], None]


@frozen
class ActionKind:
    """The function, weight and needs of one action."""

    name: str
    do: Do
    weight: int
    """How often it is drawn, relative to the others; 0 for never."""
    needs: frozenset[Capability]
    host: bool
    """Whether it needs a host tier."""


def enter(
    table: dict[str, ActionKind], weight: int, *needs: Capability, host: bool = False
) -> Callable[[Do], Do]:
    """Enter a function into a table of actions, under its own name."""

    def entered(do: Do) -> Do:
        table[do.__name__] = ActionKind(do.__name__, do, weight, frozenset(needs), host)
        return do

    return entered
