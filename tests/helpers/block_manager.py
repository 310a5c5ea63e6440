"""A small block manager, judged by requests: blocks with reference counts, found by their hashes.

Each subclass plants one fault, by overriding a method.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from kvcanon.conformance.protocol.adapter import Adapter, CacheKind, Offer
from kvcanon.conformance.protocol.request import Admitted, RequestId
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument, OutOfSlots
from kvcanon.spec.hashing import namespace_seed, page_hashes
from kvcanon.spec.types import Key, Slot, Slots


class BlockManager:
    """Blocks that nobody uses wait in a queue, and keep their hashes until they are used again."""

    def __init__(self, config: CacheConfig) -> None:
        self.config = config
        self.waiting = list(range(config.device_slots.full))
        self.users: Counter[Slot] = Counter()
        self.by_hash: dict[bytes, Slot] = {}
        self.hash_of: dict[Slot, bytes] = {}
        self.tables: dict[RequestId, list[Slot]] = {}
        self.keys: dict[RequestId, Key] = {}

    def admit(self, request_id: RequestId, key: Key) -> Admitted:
        hits = list(self.hits(key))
        fresh = sum(not self.users[slot] for slot in hits)
        self.require(len(key) - len(hits), len(self.waiting) - fresh)
        for slot in hits:
            self.use(slot)
        self.tables[request_id], self.keys[request_id] = hits, key
        return Admitted(len(hits), self.extend(request_id, key))

    def extend(self, request_id: RequestId, key: Key) -> Slots:
        table = self.table(request_id)
        self.require(len(key) - len(table), len(self.waiting))
        self.keys[request_id] = key
        table += [self.take() for _ in range(len(key) - len(table))]
        return Slots(tuple(table))

    def finish(self, request_id: RequestId) -> None:
        table = self.table(request_id)
        for page_hash, slot in zip(self.hashes(self.keys[request_id]), table, strict=True):
            if self.by_hash.setdefault(page_hash, slot) == slot:
                self.hash_of[slot] = page_hash
        self.end(request_id)

    def abort(self, request_id: RequestId) -> None:
        self.table(request_id)
        self.end(request_id)

    def hashes(self, key: Key) -> tuple[bytes, ...]:
        return page_hashes(namespace_seed(key.namespace), key.pages)

    def hits(self, key: Key) -> Iterator[Slot]:
        for page_hash in self.hashes(key):
            if page_hash not in self.by_hash:
                return
            yield self.by_hash[page_hash]

    def require(self, blocks: int, free: int) -> None:
        if blocks > free:
            raise OutOfSlots("full on GPU", blocks, free)

    def table(self, request_id: RequestId) -> list[Slot]:
        if request_id not in self.tables:
            raise BadArgument("request_id", f"is {request_id}, which does not run")
        return self.tables[request_id]

    def use(self, slot: Slot) -> None:
        if not self.users[slot]:
            self.waiting.remove(slot)
        self.users[slot] += 1

    def take(self) -> Slot:
        slot = self.waiting[0]
        self.use(slot)
        self.forget(slot)
        return slot

    def forget(self, slot: Slot) -> None:
        page_hash = self.hash_of.pop(slot, None)
        if page_hash is not None:
            del self.by_hash[page_hash]

    def end(self, request_id: RequestId) -> None:
        for slot in reversed(self.tables.pop(request_id)):
            self.leave(slot)
        del self.keys[request_id]

    def leave(self, slot: Slot) -> None:
        self.users[slot] -= 1
        if not self.users[slot]:
            self.waiting.append(slot)


class KeepsShared(BlockManager):
    """A reference to a shared block is never given back."""

    def end(self, request_id: RequestId) -> None:
        self.tables[request_id] = [
            slot for slot in self.tables[request_id] if self.users[slot] == 1
        ]
        super().end(request_id)


class HashesPagesAlone(BlockManager):
    """The hash of a page leaves its prefix out."""

    def hashes(self, key: Key) -> tuple[bytes, ...]:
        seed = namespace_seed(key.namespace)
        return tuple(page_hashes(seed, (page,))[0] for page in key.pages)


class ForgetsNothing(BlockManager):
    """A block that is used again is still found by its old hash."""

    def forget(self, slot: Slot) -> None:
        """Keep the hash."""


class NoNamespaces(BlockManager):
    """The hash of a page leaves its namespace out."""

    def hashes(self, key: Key) -> tuple[bytes, ...]:
        return super().hashes(Key(key.pages))


class FallsAtAbort(BlockManager):
    """An abort raises an exception that is no refusal."""

    def abort(self, request_id: RequestId) -> None:
        if len(self.table(request_id)) > 1:
            raise ZeroDivisionError("abort")
        super().abort(request_id)


class RefusesAll(BlockManager):
    """Every request is refused."""

    def admit(self, request_id: RequestId, key: Key) -> Admitted:
        raise OutOfSlots("full on GPU", len(key), 0)


OFFER = Offer(windows_tokens=(None,), mamba=(False,))


def __getattr__(name: str) -> Adapter:
    """The adapter of a class: `block_manager:of_KeepsShared`."""
    made = globals().get(name.removeprefix("of_"))
    if not name.startswith("of_") or made is None:
        raise AttributeError(name)
    return Adapter(name, made, OFFER, kind=CacheKind.REQUEST)
