"""The call recorder: clients whose every call is recorded with its answer.

Calls are not stored with a failure. A case says what clients try; which calls follow depends on the
answers of the cache, so they are recorded when the case is replayed on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar, cast

from kvcanon.conformance.cases.client import Client, Stamps
from kvcanon.conformance.cases.request_client import RequestClient
from kvcanon.conformance.check.play import ClientFactory
from kvcanon.conformance.check.recorded_calls import (
    Call,
    RecordedCall,
    RequestCall,
    StampWrite,
    StoreDecision,
    TransferDecision,
    WaitDecision,
)
from kvcanon.conformance.judge import RequestBlackboxGuard
from kvcanon.conformance.protocol.adapter import (
    Capability,
    CopyControl,
    RequestSubject,
    StoreControl,
    Subject,
    WaitControl,
)
from kvcanon.conformance.protocol.request import ESSENTIAL, FullRequestCache
from kvcanon.conformance.protocol.wrapped_cache import Answer, Arguments, WrappedCache
from kvcanon.spec.cache import Cache
from kvcanon.spec.operations import Evict, Operation, Read, Reset, TakeEvents, Write
from kvcanon.spec.tier import OrderId, OrderProgress, StoreCalls
from kvcanon.spec.types import Component, Key, Medium, Namespace, Slot, Slots, TransferId

Result = TypeVar("Result")


class CallRecorder(ClientFactory):
    """Makes clients whose calls it records."""

    def __init__(self) -> None:
        self.calls: list[RecordedCall] = []
        self.action = 0
        """Index of the current action; the player of the case counts it up."""
        self._operations = 0
        self._within_call = False

    def tree_client(
        self, cache: Cache, subject: Subject, stamps: Stamps, namespaces: tuple[Namespace, ...]
    ) -> Client:
        """Make a client whose calls are recorded."""
        self.made(subject)
        copies = None if subject.copies is None else _recording(subject.copies, self)
        recording, on_ranks = RecordingCache(cache, self), subject.ranks is not None
        client = RecordingClient(recording, subject.can, copies, stamps, namespaces, on_ranks)
        client.calls = self
        return client

    def store_of(self, subject: Subject) -> StoreControl | None:
        """The control of the store below a cache, whose decisions are recorded."""
        return None if subject.store is None else RecordingStore(subject.store, self)

    def request_client(
        self,
        cache: RequestBlackboxGuard,
        subject: RequestSubject,
        stamps: Stamps,
        namespaces: tuple[Namespace, ...],
    ) -> RequestClient:
        """Make a client of requests whose calls are recorded."""
        self.made(subject)
        recording = cast("FullRequestCache", RecordingRequestCache(cache, self))
        client = RecordingRequestClient(recording, subject.can, stamps, namespaces)
        client.calls = self
        return client

    def record(self, call: Call, do: Callable[[], Result], *, operation: bool = False) -> Result:
        """Make a call and record it, unless it is a part of a call that `record_whole` records."""
        if self._within_call:
            return do()
        number = None
        if operation:
            self._operations += 1
            number = self._operations
        self.began(RecordedCall(self.action, number, call, None))
        try:
            answer = do()
        except BaseException as error:
            self.calls.append(RecordedCall(self.action, number, call, error))
            raise
        self.calls.append(RecordedCall(self.action, number, call, answer))
        return answer

    def made(self, subject: Subject | RequestSubject) -> None:
        """Note a cache that was made, before its first call."""

    def began(self, call: RecordedCall) -> None:
        """Note a call before it is made; its answer is not known yet."""

    def record_whole(self, call: Call, do: Callable[[], None]) -> None:
        """Record one call for all calls that are made inside."""

        def inside() -> None:
            self._within_call = True
            try:
                do()
            finally:
                self._within_call = False

        self.record(call, inside)


class RecordingCache(WrappedCache):
    """A cache whose operations, reads and writes are recorded."""

    def __init__(self, cache: Cache, calls: CallRecorder) -> None:
        super().__init__(cache)
        self._calls = calls

    def _around(
        self,
        operation: Operation,
        call: Callable[Arguments, Answer],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Answer:
        return self._calls.record(operation, lambda: call(*args, **kwargs), operation=True)

    def read(self, component: Component, medium: Medium, slot: Slot) -> bytes:
        """The bytes behind a slot."""
        call = Read(component, medium, slot)
        return self._calls.record(call, lambda: self._cache.read(component, medium, slot))

    def write(self, component: Component, slot: Slot, data: bytes) -> None:
        """Set the bytes behind a device slot that a request holds."""
        call = Write(component, slot, data)
        self._calls.record(call, lambda: self._cache.write(component, slot, data))


class RecordingClient(Client):
    """A client that records all writes of a key as one call."""

    calls: CallRecorder

    def write(self, key: Key, slots: Slots) -> None:
        """Write the stamps of the last pages of a key into slots."""
        if Capability.WRITE in self.can and slots.counts():
            write = super().write
            self.calls.record_whole(StampWrite(key, slots), lambda: write(key, slots))


CALLS_OF_REQUESTS: Mapping[str, Callable[..., Call]] = {
    **{name: partial(RequestCall, name) for name in ESSENTIAL},
    "evict": Evict,
    "reset": Reset,
    "take_events": TakeEvents,
    "read": Read,
    "write": Write,
}
"""The calls of a request cache by method, each made of the method's arguments."""


class RecordingRequestCache:
    """A request cache whose calls are recorded; what is no call passes through."""

    def __init__(self, cache: FullRequestCache, calls: CallRecorder) -> None:
        self._cache = cache
        self._calls = calls

    def __getattr__(self, name: str) -> object:
        """A method that records its calls, or what else the cache has."""
        method, call_of = getattr(self._cache, name), CALLS_OF_REQUESTS.get(name)
        if call_of is None:
            return method
        is_operation = name not in {"read", "write"}
        return lambda *given: self._calls.record(
            call_of(*given), lambda: method(*given), operation=is_operation
        )


class RecordingRequestClient(RequestClient):
    """A client of requests that records all writes of a key as one call."""

    calls: CallRecorder

    def compute(self, key: Key, computed_pages: int, table: Slots) -> None:
        """Write the stamps of the pages that are not computed yet."""
        if Capability.WRITE in self.can and computed_pages < len(key):
            compute = super().compute
            call = StampWrite(key, table, computed_pages)
            self.calls.record_whole(call, lambda: compute(key, computed_pages, table))


class RecordingCopies:
    """The control of a cache's copies, whose calls are recorded."""

    def __init__(self, copies: CopyControl, calls: CallRecorder) -> None:
        self._copies = copies
        self._calls = calls

    @property
    def open_transfer_ids(self) -> tuple[TransferId, ...]:
        """Copies that neither completed nor failed."""
        return tuple(self._copies.open_transfer_ids)

    def perform(self, transfer_id: TransferId) -> None:
        """Move the bytes now."""
        self._record("perform", transfer_id, self._copies.perform)

    def acknowledge(self, transfer_id: TransferId) -> None:
        """Let the next poll report the copy as done."""
        self._record("acknowledge", transfer_id, self._copies.acknowledge)

    def fail(self, transfer_id: TransferId) -> None:
        """Let the next poll report the copy as failed."""
        self._record("fail", transfer_id, self._copies.fail)

    def _record(
        self, method: str, transfer_id: TransferId, do: Callable[[TransferId], None]
    ) -> None:
        index = self.open_transfer_ids.index(transfer_id)
        call = TransferDecision(method, index, transfer_id)
        self._calls.record(call, lambda: do(transfer_id))


class RecordingWaits(RecordingCopies):
    """The same, where the end of waits is decided, too."""

    def __init__(self, copies: CopyControl, waits: WaitControl, calls: CallRecorder) -> None:
        super().__init__(copies, calls)
        self._waits = waits

    @property
    def wait_end(self) -> str:
        """How the next wait for an open copy ends."""
        return self._waits.wait_end

    def next_wait(self, end: str) -> None:
        """Say how the next wait ends; recorded if it would end otherwise."""
        if end != self.wait_end:
            self._calls.record(WaitDecision(end), lambda: self._waits.next_wait(end))


class RecordingStore:
    """The control of the store below a cache, whose decisions are recorded."""

    def __init__(self, store: StoreControl, calls: CallRecorder) -> None:
        self._store = store
        self._calls = calls

    @property
    def open_order_ids(self) -> Sequence[OrderId]:
        """The orders that have not ended."""
        return self._store.open_order_ids

    @property
    def progress(self) -> Mapping[OrderId, OrderProgress]:
        """How far each order is."""
        return self._store.progress

    def go_on(self, order_id: OrderId, pages: int) -> None:
        """Let an order go on."""
        call = StoreDecision("go_on", (order_id, pages))
        self._calls.record(call, lambda: self._store.go_on(order_id, pages))

    def end(self, order_id: OrderId) -> None:
        """Let an order end where it is."""
        self._calls.record(StoreDecision("end", (order_id,)), lambda: self._store.end(order_id))

    def finish(self) -> None:
        """Let all orders end where they are."""
        self._calls.record(StoreDecision("finish"), self._store.finish)

    def lose(self, at: int) -> None:
        """Let the store lose a page."""
        self._calls.record(StoreDecision("lose", (at,)), lambda: self._store.lose(at))

    def damage(self, at: int, how: int) -> None:
        """Let the store give a page with other bytes."""
        call = StoreDecision("damage", (at, how))
        self._calls.record(call, lambda: self._store.damage(at, how))

    def take_calls(self) -> StoreCalls:
        """The calls of the cache to its store since the last call; not recorded."""
        return self._store.take_calls()


def _recording(copies: CopyControl, calls: CallRecorder) -> RecordingCopies:
    if isinstance(copies, WaitControl):
        return RecordingWaits(copies, copies, calls)
    return RecordingCopies(copies, calls)
