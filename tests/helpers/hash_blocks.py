"""A request cache without a tree: blocks found by page hash, with a count of users.

It differs from the plain cache wherever the laws leave a choice. A page is cached as soon as a
request has a slot for it, so running requests share pages; an aborted request's pages stay; the
last page of a key is never reused, but computed again in its slot.
"""

from __future__ import annotations

from attrs import define

from kvcanon.conformance.protocol.adapter import Adapter, CacheKind, Offer
from kvcanon.conformance.protocol.request import Admitted, RequestId
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument, CacheBusy, OutOfSlots
from kvcanon.spec.events import AllBlocksCleared, BlockRemoved, BlockStored, Event
from kvcanon.spec.hashing import namespace_seed, page_hashes
from kvcanon.spec.operations import Evicted
from kvcanon.spec.types import GPU, Counts, Key, Slots, WritePolicy


@define(eq=False)
class Block:
    """A slot, and the page that it is cached for."""

    slot: int
    name: bytes | None = None
    users: int = 0


class HashBlockCache:
    """Blocks in eviction order: the least recently freed first."""

    def __init__(self, config: CacheConfig) -> None:
        self.config = config
        self.waiting = [Block(slot) for slot in range(config.device_slots.full)]
        self.cached: dict[bytes, Block] = {}
        self.running: dict[RequestId, list[Block]] = {}
        self.events: list[Event] = [AllBlocksCleared()]

    def admit(self, request_id: RequestId, key: Key) -> Admitted:
        found: list[Block] = []
        for name in names_of(key)[: max(0, len(key) - 1)]:
            if name not in self.cached:
                break
            found.append(self.cached[name])
        idle = sum(not block.users for block in found)
        self.require_room(len(key) - len(found), len(self.waiting) - idle)
        for block in found:
            self.use(block)
        self.running[request_id] = found
        reused = len(found)
        return Admitted(reused, self.extend(request_id, key))

    def extend(self, request_id: RequestId, key: Key) -> Slots:
        table = self.get(request_id)
        self.require_room(len(key) - len(table), len(self.waiting))
        names = names_of(key)
        for page in range(len(table), len(key)):
            name = names[page]
            block = self.shared(name)
            if block is None:
                block = self.waiting[0]
                self.forget(block)
            self.use(block)
            table.append(block)
            if name not in self.cached:
                self.cached[name], block.name = block, name
                parent = names[page - 1] if page else None
                self.events.append(BlockStored(name, parent, key.pages[page], GPU, key.namespace))
        return Slots(tuple(block.slot for block in table))

    def finish(self, request_id: RequestId) -> None:
        for block in reversed(self.get(request_id)):
            block.users -= 1
            if not block.users:
                self.waiting.append(block)
        del self.running[request_id]

    abort = finish

    def evict(self, counts: Counts) -> Evicted:
        victims = [block for block in self.waiting if block.name is not None][: counts.full]
        for block in victims:
            self.forget(block)
        return Evicted(Counts(len(victims)))

    def reset(self) -> None:
        if self.running:
            raise CacheBusy(len(self.running))
        for block in self.cached.values():
            block.name = None
        self.cached.clear()
        self.events.append(AllBlocksCleared())

    def take_events(self) -> tuple[Event, ...]:
        taken, self.events = tuple(self.events), []
        return taken

    def shared(self, name: bytes) -> Block | None:
        return self.cached.get(name)

    def get(self, request_id: RequestId) -> list[Block]:
        if request_id not in self.running:
            raise BadArgument("request_id", f"is {request_id}, which does not run")
        return self.running[request_id]

    def require_room(self, pages: int, room: int) -> None:
        if pages > room:
            raise OutOfSlots("full on GPU", pages, room)

    def use(self, block: Block) -> None:
        if not block.users:
            self.waiting.remove(block)
        block.users += 1

    def forget(self, block: Block) -> None:
        if block.name is not None:
            del self.cached[block.name]
            self.events.append(BlockRemoved(block.name, GPU))
            block.name = None


class ComputesTwice(HashBlockCache):
    """Computes a cached last page again in a separate slot, which is not cached.

    When the cached copy is evicted, the pages after it stay.
    """

    def shared(self, name: bytes) -> Block | None:
        return None


def names_of(key: Key) -> tuple[bytes, ...]:
    """The page hashes of a key."""
    return page_hashes(namespace_seed(key.namespace), key.pages)


OFFER = Offer(
    windows_tokens=(None,), mamba=(False,), write_policies=(WritePolicy.NONE,), events=(True,)
)
ADAPTER = Adapter("hash blocks", HashBlockCache, OFFER, kind=CacheKind.REQUEST)
DUPLICATING = Adapter("computes twice", ComputesTwice, OFFER, kind=CacheKind.REQUEST)
