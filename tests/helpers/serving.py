"""A request cache made from the plain cache: the part that an engine puts around a tree.

Each subclass plants one fault, by overriding a method or two.
"""

from __future__ import annotations

from itertools import chain, groupby
from typing import cast

from attrs import evolve, frozen

from kvcanon.conformance.protocol.adapter import Adapter, CacheKind
from kvcanon.conformance.protocol.request import Admitted, RequestId
from kvcanon.lab.variants.variant import varied
from kvcanon.reference import ReferenceCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument, CacheBusy, OutOfSlots
from kvcanon.spec.events import BlockRemoved, BlockStored, Event
from kvcanon.spec.hashing import namespace_seed, page_hashes
from kvcanon.spec.operations import Evicted, Receipt
from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.types import MAMBA, SWA, Component, Counts, Key, Medium, Slot, Slots, make_key


@frozen
class Served:
    """A running request: its own slots, after those that it shares with the tree."""

    key: Key
    receipt: Receipt
    start_pages: int
    own: Slots
    shared: Slots
    """Slots of the pages before `start_pages`, which the tree owns."""

    def table(self) -> Slots:
        return Slots(
            (*self.shared.full, *self.own.full),
            (*self.shared.swa, *self.own.swa),
            self.own.mamba,
        )


class ServingCache:
    """The plain cache behind a scheduler. `RequestCache` documents the methods."""

    def __init__(self, config: CacheConfig) -> None:
        self.config = config
        self.cache = ReferenceCache(config)
        self.running: dict[RequestId, Served] = {}

    def admit(self, request_id: RequestId, key: Key) -> Admitted:
        matched = self.cache.match(key)
        served = self.start(key, matched.device_pages, matched.slots)
        self.running[request_id] = served
        return Admitted(served.start_pages, served.table())

    def extend(self, request_id: RequestId, key: Key) -> Slots:
        served = self.get(request_id)
        more = self.room(len(key) - len(served.key), state=not served.own.mamba)
        own = Slots(
            (*served.own.full, *more.full),
            (*served.own.swa, *more.swa),
            served.own.mamba or more.mamba,
        )
        self.running[request_id] = evolve(served, key=key, own=own)
        return self.running[request_id].table()

    def finish(self, request_id: RequestId) -> None:
        served = self.get(request_id)
        if len(served.key):
            self.cache.insert(served.key, served.start_pages, served.own)
        self.end(request_id)

    def abort(self, request_id: RequestId) -> None:
        self.cache.free(self.get(request_id).own)
        self.end(request_id)

    def evict(self, counts: Counts) -> Evicted:
        return self.cache.evict(counts)

    def reset(self) -> None:
        if self.running:
            raise CacheBusy(len(self.running))
        self.cache.reset()

    def take_events(self) -> tuple[Event, ...]:
        return self.cache.take_events()

    def snapshot(self) -> Snapshot:
        return self.cache.snapshot()

    def read(self, component: Component, medium: Medium, slot: Slot) -> bytes:
        return self.cache.read(component, medium, slot)

    def write(self, component: Component, slot: Slot, data: bytes) -> None:
        self.cache.write(component, slot, data)

    def get(self, request_id: RequestId) -> Served:
        if request_id not in self.running:
            raise BadArgument("request_id", f"is {request_id}, which does not run")
        return self.running[request_id]

    def start(self, key: Key, start_pages: int, shared: Slots) -> Served:
        receipt = self.cache.lock(key.prefix(start_pages))
        try:
            own = self.room(len(key) - start_pages, state=bool(len(key)))
        except OutOfSlots:
            self.cache.unlock(receipt)
            raise
        held = evolve(shared, swa=shared.swa[-self.config.window_pages :])
        return Served(key, receipt, start_pages, own, held if shared.swa else shared)

    def room(self, pages: int, *, state: bool) -> Slots:
        counts = Counts(
            pages,
            pages if SWA in self.config.components else 0,
            int(state and MAMBA in self.config.components),
        )
        try:
            return self.cache.allocate(counts)
        except OutOfSlots:
            self.cache.evict(counts)
            return self.cache.allocate(counts)

    def end(self, request_id: RequestId) -> None:
        self.cache.unlock(self.running.pop(request_id).receipt)


class ForgetsNamespaces(ServingCache):
    """Requests of all namespaces share pages, as when vLLM once left the salt out of its hashes."""

    def admit(self, request_id: RequestId, key: Key) -> Admitted:
        return super().admit(request_id, Key(key.pages))

    def extend(self, request_id: RequestId, key: Key) -> Slots:
        return super().extend(request_id, Key(key.pages))


class ReusesTooMuch(ServingCache):
    """Reports one page more as reused than is cached."""

    def admit(self, request_id: RequestId, key: Key) -> Admitted:
        admitted = super().admit(request_id, key)
        return evolve(admitted, reused_pages=min(len(key), admitted.reused_pages + 1))


class SharesSlots(ServingCache):
    """Two running requests compute in one slot: a slot was freed but is still used."""

    def admit(self, request_id: RequestId, key: Key) -> Admitted:
        others = [served for served in self.running.values() if served.own.full]
        admitted = super().admit(request_id, key)
        if not others or admitted.reused_pages == len(key):
            return admitted
        table = (*admitted.slots.full[:-1], others[0].own.full[-1])
        return evolve(admitted, slots=evolve(admitted.slots, full=table))


class KeepsWhatWasAborted(ServingCache):
    """An aborted request's pages are still found, in slots that other requests got since."""

    def __init__(self, config: CacheConfig) -> None:
        super().__init__(config)
        self.aborted: dict[Key, Slots] = {}

    def admit(self, request_id: RequestId, key: Key) -> Admitted:
        admitted = super().admit(request_id, key)
        stale = self.aborted.get(key)
        if stale is None or admitted.reused_pages:
            return admitted
        return Admitted(len(key), evolve(stale, mamba=admitted.slots.mamba))

    def abort(self, request_id: RequestId) -> None:
        served = self.get(request_id)
        self.aborted[served.key] = served.table()
        super().abort(request_id)


class EvictsMoreThanItSays(ServingCache):
    """Evicts all that nobody holds, and says that it was what was asked for."""

    def evict(self, counts: Counts) -> Evicted:
        freed = self.cache.evict(self.config.device_slots if counts.full else counts).freed
        return Evicted(Counts(min(counts.full, freed.full), freed.swa, freed.mamba))


class Varied(ServingCache):
    """A lawful cache with a choice of its own."""

    name = ""

    def __init__(self, config: CacheConfig) -> None:
        super().__init__(config)
        self.cache = cast("ReferenceCache", varied(self.name, [self.name]).make(config))

    def admit(self, request_id: RequestId, key: Key) -> Admitted:
        self.cache.poll()
        return super().admit(request_id, key)


class Expiring(ServingCache):
    """What nobody holds leaves at every third admission."""

    def admit(self, request_id: RequestId, key: Key) -> Admitted:
        if request_id % 3 == 0:
            self.cache.evict(self.config.device_slots)
        return super().admit(request_id, key)


class SeenTwice(Varied):
    """What a request computed is kept at the second time."""

    name = "seen_twice_is_admitted"


class Compacting(Varied):
    """What nobody holds moves to other slots, before an admission."""

    name = "compaction"


class LosesLastPage(ServingCache):
    """Drops the last page of a request: an off-by-one in the number of whole pages."""

    def finish(self, request_id: RequestId) -> None:
        served = self.get(request_id)
        pages = len(served.key) - 1
        if pages < served.start_pages:
            self.abort(request_id)
            return
        last = Slots(served.own.full[-1:], served.own.swa[-1:])
        self.cache.free(last)
        own = evolve(served.own, full=served.own.full[:-1], swa=served.own.swa[:-1])
        if pages:
            self.cache.insert(served.key.prefix(pages), served.start_pages, own)
        else:
            self.cache.free(own)
        self.end(request_id)


class SwallowsEvents(ServingCache):
    """Loses the last of several events taken at one time."""

    def take_events(self) -> tuple[Event, ...]:
        events = super().take_events()
        return events[:-1] if len(events) > 1 else events


class LeaksOnAbort(ServingCache):
    """An aborted request leaks a slot."""

    def abort(self, request_id: RequestId) -> None:
        own = self.get(request_id).own
        self.cache.free(evolve(own, full=own.full[1:]))
        self.end(request_id)


class EndsTwice(ServingCache):
    """Accepts the end of a request that does not run."""

    def abort(self, request_id: RequestId) -> None:
        if request_id in self.running:
            super().abort(request_id)


class TurnsTables(ServingCache):
    """Returns the block table of reused pages in the wrong order."""

    def admit(self, request_id: RequestId, key: Key) -> Admitted:
        admitted = super().admit(request_id, key)
        full = admitted.slots.full
        turned = (*full[1 : admitted.reused_pages], *full[:1], *full[admitted.reused_pages :])
        if admitted.reused_pages < 2:
            return admitted
        return evolve(admitted, slots=evolve(admitted.slots, full=turned))


class LetsGoAtOnce(ServingCache):
    """Does not lock reused pages while a request runs."""

    def admit(self, request_id: RequestId, key: Key) -> Admitted:
        admitted = super().admit(request_id, key)
        self.cache.unlock(self.running[request_id].receipt)
        return admitted

    def end(self, request_id: RequestId) -> None:
        del self.running[request_id]


class ShortTables(ServingCache):
    """Returns a block table without its last page."""

    def extend(self, request_id: RequestId, key: Key) -> Slots:
        table = super().extend(request_id, key)
        return evolve(table, full=table.full[:-1])


class ChildrenLast(ServingCache):
    """Emits remove events from the beginning of a prefix on, parents before children."""

    def take_events(self) -> tuple[Event, ...]:
        events = super().take_events()
        runs = groupby(events, lambda event: isinstance(event, BlockRemoved) and event.medium)
        return tuple(chain.from_iterable(list(run)[:: -1 if medium else 1] for medium, run in runs))


class SilentReset(ServingCache):
    """Emits no event for a reset."""

    def reset(self) -> None:
        super().reset()
        self.cache.take_events()


class RemembersAfterReset(ServingCache):
    """Finds a prompt again after a reset, which emptied the pools."""

    def __init__(self, config: CacheConfig) -> None:
        super().__init__(config)
        self.before: set[Key] = set()
        self.seen: set[Key] = set()

    def admit(self, request_id: RequestId, key: Key) -> Admitted:
        admitted = super().admit(request_id, key)
        remembered = key in self.before
        self.seen.add(key)
        return evolve(admitted, reused_pages=len(key)) if remembered else admitted

    def reset(self) -> None:
        super().reset()
        self.before = set(self.seen)


class EvictsNothing(ServingCache):
    """Evicts nothing, and reports that there was no victim."""

    def evict(self, counts: Counts) -> Evicted:
        return Evicted(Counts())


class BoastsOfRoom(ServingCache):
    """Reports more evicted slots than there are."""

    def evict(self, counts: Counts) -> Evicted:
        freed = super().evict(counts).freed
        return Evicted(evolve(freed, full=freed.full + 100)) if freed.full else Evicted(freed)


class AnnouncesWhatLeft(ServingCache):
    """Emits store events for the pages that it evicts."""

    def __init__(self, config: CacheConfig) -> None:
        super().__init__(config)
        self.untrue: list[Event] = []

    def evict(self, counts: Counts) -> Evicted:
        key = make_key([1] * self.config.page_size, self.config.page_size)
        evicted = super().evict(counts)
        if self.config.bigram:
            return evicted
        name = page_hashes(b"", key.pages)[0]
        self.untrue.append(BlockStored(name, None, key.pages[0], Medium.GPU))
        return evicted

    def take_events(self) -> tuple[Event, ...]:
        told, self.untrue = (*super().take_events(), *self.untrue), []
        return told


class AnnouncesRefused(ServingCache):
    """Emits a store event for the first page of a refused request."""

    def __init__(self, config: CacheConfig) -> None:
        super().__init__(config)
        self.untrue: list[Event] = []

    def admit(self, request_id: RequestId, key: Key) -> Admitted:
        try:
            return super().admit(request_id, key)
        except OutOfSlots:
            name = page_hashes(namespace_seed(key.namespace), key.pages)[0]
            stored = BlockStored(name, None, key.pages[0], Medium.GPU, key.namespace)
            self.untrue.append(stored)
            raise

    def take_events(self) -> tuple[Event, ...]:
        told, self.untrue = (*super().take_events(), *self.untrue), []
        return told


ADAPTER = Adapter("serving", ServingCache, kind=CacheKind.REQUEST)
