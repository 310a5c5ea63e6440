"""The client of one cache: all that those who use a cache know, and nothing else.

It knows the keys that it used, the slots that it was given and the receipts that it holds. From
these it takes what an action picks, so that it asks for what an engine could ask for.

What readers get wrong: the client is no model of a cache. Whether an answer is right is for the
laws to say; the client only goes on from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from attrs import Factory, define, field

from kvcanon.conformance.cases.prompts import known_key, long_prompt, new_prompt
from kvcanon.conformance.protocol.adapter import Capability, CopyControl
from kvcanon.spec.cache import Cache
from kvcanon.spec.errors import CacheError, OutOfSlots
from kvcanon.spec.operations import HostPayload, Receipt
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
"""Pairs of them differ in one field alone, or where one field ends and the next begins."""


@define
class Stamps:
    """The bytes of each component's data, by page: all tokens up to its end, and its namespace."""

    slot_bytes: int
    numbers: PageNumbers = Factory(PageNumbers)

    def of_key(self, component: Component, key: Key) -> list[bytes]:
        """What is behind the slot of each page of a key, if it is right."""
        return [self.of_page(component, number) for number in self.numbers.of_key(key)]

    def of_page(self, component: Component, number: PageNumber) -> bytes:
        """What is behind the slot of the page of a number, if it is right."""
        return (number << 2 | COLUMN[component] + 1).to_bytes(self.slot_bytes, "big")


@define(eq=False)
class ClientRequest:
    """A client's request: what it computes, and what it holds meanwhile."""

    key: Key
    receipt: Receipt | None
    """None once a reset has made it give its lock back."""
    start_pages: int
    slots: Slots
    counted_pages: int = 0


@define(eq=False)
class Client:
    """All that the users of one cache know."""

    cache: Cache
    can: frozenset[Capability]
    copies: CopyControl | None
    stamps: Stamps
    namespaces: tuple[Namespace, ...] = NAMESPACES
    keys: list[Key] = field(factory=list)
    requests: list[ClientRequest] = field(factory=list)
    receipts: list[Receipt] = field(factory=list)
    spent: list[Receipt] = field(factory=list)
    blocks: list[Slots] = field(factory=list)
    """Slots that are held to the end of the case, and are of no request."""
    components: tuple[Component, ...] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.components = self.cache.config.components

    # Keys.

    def known(self, a: int, b: int) -> Key:
        """A key that was used before, or a prefix of it; the empty key at the start."""
        return known_key(self.keys, a, b)

    def prompt(self, a: int, b: int, c: int) -> Key:
        """A new prompt, which shares its beginning with a known key."""
        return new_prompt(self.keys, self.namespaces, self.cache.config, (a, b, c))

    def long_prompt(self, a: int, b: int, c: int) -> Key:
        """A new prompt that is as long as the pools allow."""
        return long_prompt(self.keys, self.namespaces, self.cache.config, (a, b, c))

    def on_host(self, a: int, b: int, tries: int) -> Key:
        """A known key that is usable from the host, if there is one among a few."""
        key = self.known(a, b)
        for another in range(tries):
            matched = self.cache.match(key)
            if matched.prefix_pages > matched.device_pages:
                return key.prefix(matched.prefix_pages)
            key = self.known(a + another, 1)
        return key

    # Requests, from match to insert.

    def start(self, key: Key, start_pages: int, counted_pages: int) -> ClientRequest:
        """Lock what is there, and allocate and fill the rest. Raises: CacheError."""
        receipt = self.cache.lock(key.prefix(start_pages))
        try:
            slots = self.allocate(key, start_pages)
        except OutOfSlots:
            self.cache.unlock(receipt)
            self.spent.append(receipt)
            raise
        request = ClientRequest(key, receipt, start_pages, slots, counted_pages)
        self.requests.append(request)
        return request

    def allocate(self, key: Key, start_pages: int) -> Slots:
        """Room for a key from some page on, made if need be, and written. Raises: OutOfSlots."""
        pages = len(key) - start_pages
        wanted = Counts(
            pages,
            pages if SWA in self.components else 0,
            int(MAMBA in self.components and len(key) > 0),
        )
        try:
            slots = self.cache.allocate(wanted)
        except OutOfSlots:
            if Capability.EVICT not in self.can:
                raise
            self.cache.evict(wanted)
            slots = self.cache.allocate(wanted)
        self.write(key, slots)
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
        """Hand over what a request computed, and end it. Raises: CacheError."""
        if not len(request.key):
            self.abort(request)
            return
        self.cache.insert(
            request.key,
            request.start_pages,
            request.slots,
            counted_pages=request.counted_pages,
            priority=priority,
        )
        self.end(request)

    def hit(self, key: Key, priority: int) -> bool:
        """Insert what of a key is on the device, without slots; returns whether there is any."""
        there = key.prefix(self.cache.match(key).device_pages)
        if len(there):
            self.cache.insert(there, len(there), Slots(), priority=priority)
        return len(there) > 0

    def hand_over(self, key: Key, start_pages: int, slots: Slots) -> None:
        """Insert slots that no request has, or give them back. Raises: CacheError."""
        try:
            self.cache.insert(key, start_pages, slots)
        except CacheError:
            self.cache.free(slots)
            raise

    def abort(self, request: ClientRequest) -> None:
        """End a request, and give back what it was given."""
        self.cache.free(request.slots)
        self.end(request)

    def end(self, request: ClientRequest) -> None:
        """Forget a request, and unlock what it locked."""
        self.requests.remove(request)
        self.let_go(request)

    def let_go(self, request: ClientRequest) -> None:
        """Unlock what a request locked; what it was given stays its own."""
        receipt, request.receipt = request.receipt, None
        if receipt is not None:
            self.cache.unlock(receipt)
            self.spent.append(receipt)

    def unlock(self, receipt: Receipt) -> None:
        """Give back a lock that no request holds."""
        self.receipts.remove(receipt)
        self.cache.unlock(receipt)
        self.spent.append(receipt)

    def fetch(self, key: Key, start_pages: int, swa_pages: int) -> None:
        """Place stamped bytes of a key on the host, from some page on. Raises: CacheError."""
        count = len(key) - start_pages

        def some(component: Component, last: int) -> tuple[bytes, ...]:
            given = last if component in self.components else 0
            return tuple(self.stamps.of_key(component, key)[len(key) - given :])

        payload = HostPayload(some(FULL, count), some(SWA, swa_pages), some(MAMBA, min(1, count)))
        self.cache.insert_host(key, start_pages, payload)

    def settle(self) -> None:
        """Let every copy in flight end, and take the acknowledgements."""
        if Capability.FLUSH in self.can:
            self.cache.flush()
        elif Capability.POLL in self.can:
            if self.copies is not None:
                for transfer_id in self.copies.open_transfer_ids:
                    self.copies.acknowledge(transfer_id)
            self.cache.poll()

    # The end.

    def drain(self, order: Iterable[Component]) -> None:
        """Give everything back, let every copy end, and evict slot by slot until nothing is left.

        What is hidden in orders of recency shows in the order of the victims.
        """
        for request in list(self.requests):
            self.abort(request)
        for receipt in list(self.receipts):
            self.unlock(receipt)
        self.settle()
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
        # Last, so that few slots were free while many looks were taken at them.
        for slots in self.blocks:
            self.cache.free(slots)
        self.blocks.clear()
        if Capability.TAKE_EVENTS in self.can:
            self.cache.take_events()

    def _evict_all(self, evict: Callable[[Counts], object], component: Component) -> None:
        one = Counts(**{component.value: 1})
        config = self.cache.config
        # A cache that frees more slots than there are does not stop saying so.
        for _ in range(config.device_slots[component] + config.host_slots[component] + 1):
            if not getattr(evict(one), "freed", Counts())[component]:
                return
