"""A plain random driver: any list of small numbers is a run of a cache.

Every action is *total*: a pick is a number modulo the candidates there are, and an action without
candidates does nothing. So any part of a run is a run, and Hypothesis can shrink freely.

What readers get wrong: the driver is no model of a cache. It knows only what a client knows: the
keys it used, the slots it was given, the receipts it holds. Whether the answers are right is for
the laws to say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attrs import define, field

from kvcanon.reference import ManualEngine
from kvcanon.spec.cache import Cache
from kvcanon.spec.errors import CacheError, OutOfSlots
from kvcanon.spec.operations import HostPayload, Receipt
from kvcanon.spec.types import (
    DEFAULT_NAMESPACE,
    FULL,
    GPU,
    MAMBA,
    SWA,
    Component,
    Counts,
    Key,
    Namespace,
    Slots,
    make_key,
)

NAMESPACES = (DEFAULT_NAMESPACE, Namespace(extra_key="a", lora="bc"), Namespace(extra_key="ab"))

Action = tuple[int, int, int, int]
"""Which action, and three picks for it."""


@define
class Request:
    """A client's request: what it computes, and what it holds meanwhile."""

    key: Key
    receipt: Receipt
    start_pages: int
    slots: Slots
    counted_pages: int = 0


@define
class Driver:
    """A cache, the engine that copies for it, and all that clients know."""

    cache: Cache
    engine: ManualEngine
    keys: list[Key] = field(factory=list)
    requests: list[Request] = field(factory=list)
    receipts: list[Receipt] = field(factory=list)
    spent: list[Receipt] = field(factory=list)
    stamp: int = 0
    refusals: list[CacheError] = field(factory=list)

    def run(self, actions: Sequence[Action]) -> None:
        """Do all actions, then drain."""
        for action in actions:
            self.act(action)
        self.drain()

    def act(self, action: Action) -> None:
        """Do one action; a refusal is an answer like any other."""
        which, a, b, c = action
        try:
            _ACTIONS[which % len(_ACTIONS)](self, a, b, c)
        except CacheError as refusal:
            self.refusals.append(refusal)

    def drain(self) -> None:
        """Give everything back, let every copy end, and evict slot by slot until nothing is left.

        What is hidden in orders of recency shows in the order of the victims.
        """
        for request in list(self.requests):
            self._abort(request)
        for receipt in list(self.receipts):
            self._unlock(receipt)
        self.cache.flush()
        for evict in (self.cache.evict, self.cache.evict_host):
            for component in Component:
                one = Counts(**{component.value: 1})
                while evict(one).freed[component]:
                    pass
        self.cache.flush()
        self.cache.take_events()

    # What requests do.

    def _prompt(self, a: int, b: int, c: int) -> Key:
        """A new prompt: some pages of a known key, and a few tokens of a tiny alphabet."""
        size = self.cache.config.page_size
        namespace = NAMESPACES[max(0, c % 7 - 4)]
        tail = [(b >> shift) % 3 for shift in range(0, 2 * (1 + c % 6 * size), 2)]
        made = make_key([*tail, 0], size, namespace, bigram=self.cache.config.bigram)
        known = [key for key in self.keys if key.namespace == namespace]
        if not known:
            return made
        base = known[a % len(known)]
        shared = base if b % 2 else base.prefix(b % (len(base) + 1))
        return Key((*shared.pages, *made.pages)[:12], namespace)

    def serve(self, a: int, b: int, c: int) -> None:
        """A whole request: a known prompt again, or a new one, from match to insert."""
        key = self._known(a, 1) if c % 3 == 0 and self.keys else self._prompt(a, b, c)
        self.keys.append(key)
        self._start(key, self.cache.match(key).device_pages, counted_pages=0)
        self._insert(self.requests[-1], priority=0)

    def admit(self, a: int, b: int, c: int) -> None:
        """Match, lock what is on the device, and allocate the rest."""
        key = self._prompt(a, b, c)
        self.keys.append(key)
        matched = self.cache.match(key)
        self._start(key, matched.device_pages, counted_pages=0)

    def _start(self, key: Key, start_pages: int, counted_pages: int) -> None:
        receipt = self.cache.lock(key.prefix(start_pages))
        try:
            slots = self._allocate(len(key) - start_pages)
        except CacheError:
            self.cache.unlock(receipt)
            self.spent.append(receipt)
            raise
        self.requests.append(Request(key, receipt, start_pages, slots, counted_pages))

    def _allocate(self, pages: int) -> Slots:
        components = self.cache.config.components
        wanted = Counts(pages, pages if SWA in components else 0, int(MAMBA in components))
        try:
            slots = self.cache.allocate(wanted)
        except OutOfSlots:
            self.cache.evict(wanted)
            slots = self.cache.allocate(wanted)
        for component, some in slots:
            for slot in some:
                self.stamp += 1
                data = self.stamp.to_bytes(self.cache.config.slot_bytes, "big")
                self.cache.write(component, slot, data)
        return slots

    def slide(self, a: int, b: int, c: int) -> None:
        """A request's window moves on: it frees window slots of its oldest pages."""
        if self.requests:
            request = self.requests[a % len(self.requests)]
            gone = b % (len(request.slots.swa) + 1)
            self.cache.free(Slots(swa=request.slots.swa[:gone]))
            slots = request.slots
            request.slots = Slots(slots.full, slots.swa[gone:], slots.mamba)

    def finish(self, a: int, b: int, c: int) -> None:
        """Insert all that a request computed, and end it."""
        if self.requests:
            self._insert(self.requests[a % len(self.requests)], priority=c % 3)

    def grow(self, a: int, b: int, c: int) -> None:
        """Insert what a request computed, and go on with a longer prompt."""
        if not self.requests:
            return
        request = self.requests[a % len(self.requests)]
        self._insert(request, priority=0)
        more = self._prompt(a, b, c).pages[-1:]
        longer = Key((*request.key.pages, *more), request.key.namespace)
        self.keys.append(longer)
        start = self.cache.match(longer).device_pages
        self._start(longer, start, counted_pages=min(len(request.key), start))

    def _insert(self, request: Request, priority: int) -> None:
        if not len(request.key):
            self._abort(request)
            return
        self.cache.insert(
            request.key,
            request.start_pages,
            request.slots,
            counted_pages=request.counted_pages,
            priority=priority,
        )
        self._end(request)

    def abort(self, a: int, b: int, c: int) -> None:
        """End a request without an insert."""
        if self.requests:
            self._abort(self.requests[a % len(self.requests)])

    def _abort(self, request: Request) -> None:
        self.cache.free(request.slots)
        self._end(request)

    def _end(self, request: Request) -> None:
        self.requests.remove(request)
        self.cache.unlock(request.receipt)
        self.spent.append(request.receipt)

    # What can be asked directly.

    def match(self, a: int, b: int, c: int) -> None:
        """Match a known key, or a part of it."""
        self.cache.match(self._known(a, b))

    def lock(self, a: int, b: int, c: int) -> None:
        """Lock a known key, which may not be there any more."""
        self.receipts.append(self.cache.lock(self._known(a, b)))

    def unlock(self, a: int, b: int, c: int) -> None:
        """Unlock; sometimes a receipt that was spent before."""
        if self.spent and c % 5 == 0:
            self.cache.unlock(self.spent[a % len(self.spent)])
        elif self.receipts:
            self._unlock(self.receipts[a % len(self.receipts)])

    def _unlock(self, receipt: Receipt) -> None:
        self.receipts.remove(receipt)
        self.cache.unlock(receipt)
        self.spent.append(receipt)

    def unlock_window(self, a: int, b: int, c: int) -> None:
        """Release the window of a lock early; sometimes twice."""
        held = [*self.receipts, *(request.receipt for request in self.requests)]
        if held:
            self.cache.unlock_window(held[a % len(held)])

    def evict(self, a: int, b: int, c: int) -> None:
        """Press on the device pools."""
        self.cache.evict(self._pressure(a, b, c))

    def evict_host(self, a: int, b: int, c: int) -> None:
        """Press on the host pools."""
        self.cache.evict_host(self._pressure(a, b, c))

    def load_back(self, a: int, b: int, c: int) -> None:
        """Load back a known key: one that is usable from the host, if there is one among a few."""
        key = self._known(a, b)
        for another in range(8):
            matched = self.cache.match(key)
            if matched.prefix_pages > matched.device_pages:
                key = key.prefix(matched.prefix_pages)
                break
            key = self._known(a + another, 1)
        self.cache.load_back(key, quota_pages=None if c % 4 else c % 7)

    def insert_host(self, a: int, b: int, c: int) -> None:
        """Bring pages of a key from storage."""
        key = self._known(a, 0) if c % 2 else self._prompt(a, b, c)
        self.keys.append(key)
        start = b % (len(key) + 1)
        count = len(key) - start
        components = self.cache.config.components
        swa = c % (count + 1) if SWA in components else 0
        mamba = min(count, int(MAMBA in components))
        self.cache.insert_host(key, start, self._payload(count, swa, mamba))

    def _payload(self, full: int, swa: int, mamba: int) -> HostPayload:
        def some(count: int) -> tuple[bytes, ...]:
            self.stamp += count
            size = self.cache.config.slot_bytes
            return tuple((self.stamp - at).to_bytes(size, "big") for at in range(count))

        return HostPayload(some(full), some(swa), some(mamba))

    def copy(self, a: int, b: int, c: int) -> None:
        """Decide something about a copy in flight, in any order."""
        orders = self.engine.open_orders
        if orders:
            transfer_id = orders[a % len(orders)].transfer_id
            decide = (self.engine.acknowledge, self.engine.perform, self.engine.fail)
            decide[(0, 0, 1, 2)[b % 4]](transfer_id)

    def poll(self, a: int, b: int, c: int) -> None:
        """Take acknowledgements."""
        self.cache.poll()

    def flush(self, a: int, b: int, c: int) -> None:
        """Wait for all copies, now and then."""
        if a % 4 == 0:
            self.cache.flush()

    def reset(self, a: int, b: int, c: int) -> None:
        """Forget everything, now and then; mostly it is refused."""
        if a % 12 == 0:
            self.cache.reset()

    def take_events(self, a: int, b: int, c: int) -> None:
        """Read the events."""
        self.cache.take_events()

    def ask_nonsense(self, a: int, b: int, c: int) -> None:
        """Call with arguments that are wrong in one way."""
        key = self._known(a, b)
        nowhere = self.cache.config.capacity(FULL, GPU) + c
        foreign = Slots(full=tuple(range(nowhere, nowhere + len(key))))
        wrong: tuple[Callable[[], object], ...] = (
            lambda: self.cache.free(foreign),
            lambda: self.cache.insert(key, 0, foreign),
            lambda: self.cache.insert(key, len(key) + 1, Slots()),
            lambda: self.cache.allocate(Counts(full=1 << 20)),
            lambda: self.cache.allocate(Counts(full=-1)),
            lambda: self.cache.evict(Counts(swa=-1)),
            lambda: self.cache.write(FULL, c, b""),
            lambda: self.cache.read(FULL, GPU, -1),
            lambda: self.cache.load_back(key, quota_pages=-1),
        )
        wrong[c % len(wrong)]()

    def _known(self, a: int, b: int) -> Key:
        """A key that was used before, or a prefix of it; the empty key at the start."""
        if not self.keys:
            return Key(())
        key = self.keys[-1 - a % len(self.keys)]
        return key if b % 3 else key.prefix(len(key) - b % (len(key) + 1))

    def _pressure(self, a: int, b: int, c: int) -> Counts:
        components = self.cache.config.components
        return Counts(a % 4, b % 4 * (SWA in components), c % 2 * (MAMBA in components))


_WEIGHTS: dict[Callable[[Driver, int, int, int], None], int] = {
    Driver.serve: 5,
    Driver.admit: 2,
    Driver.finish: 3,
    Driver.grow: 2,
    Driver.abort: 1,
    Driver.slide: 1,
    Driver.match: 1,
    Driver.lock: 1,
    Driver.unlock: 2,
    Driver.unlock_window: 1,
    Driver.evict: 3,
    Driver.evict_host: 1,
    Driver.load_back: 4,
    Driver.insert_host: 1,
    Driver.copy: 3,
    Driver.poll: 3,
    Driver.flush: 1,
    Driver.reset: 1,
    Driver.take_events: 1,
    Driver.ask_nonsense: 1,
}
_ACTIONS = tuple(action for action, weight in _WEIGHTS.items() for _ in range(weight))
