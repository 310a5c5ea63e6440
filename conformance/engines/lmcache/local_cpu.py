"""Translates operations on prefixes to calls of LMCache's local CPU backend.

A page is a chunk, and a slot the place of a chunk in the backend's memory. A lock is a lookup that
pins, and ends with an unpin of the same keys. The memory objects that an allocation gives are a
request's until the backend has taken them over.

LMCache evicts inside an allocation. Here an allocation is asked to evict nothing, and an eviction
allocates what is free and as many objects more as are to be evicted, and frees them all.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import define, evolve, field

from kvcanon.conformance.adapter_parts.arguments import check_evict, check_key
from kvcanon.conformance.adapter_parts.offers import FULL_ATTENTION
from kvcanon.conformance.adapter_parts.receipts import Receipts
from kvcanon.conformance.adapter_parts.slot_ledger import CountedPool, SlotLedger
from kvcanon.conformance.adapter_parts.token_slots import extra_key_of, tokens_of
from kvcanon.conformance.engines.installed_names import EngineObject, InstalledNames
from kvcanon.conformance.protocol.adapter import Adapter
from kvcanon.spec.config import CacheConfig, Choosing, Profile
from kvcanon.spec.errors import BadArgument, PrefixNotCached
from kvcanon.spec.operations import Evicted, Inserted, Matched, Receipt
from kvcanon.spec.types import FULL, GPU, Component, Counts, Key, Medium, Slot, Slots

NAMES = InstalledNames(
    "lmcache",
    "LMCache",
    "lmcache==0.5.6",
    {
        "ChunkedTokenDatabase": "lmcache.v1.token_database",
        "LMCacheEngineConfig": "lmcache.v1.config",
        "LMCacheMetadata": "lmcache.v1.metadata",
        "LocalCPUBackend": "lmcache.v1.storage_backend.local_cpu_backend",
        "PinMonitor": "lmcache.v1.pin_monitor",
        "uint8": "torch",
    },
)
NAMES.version()

ALIGNMENT = 4096
"""The memory of a chunk is a multiple of this."""
KEYS_AND_VALUES = 2


@define(eq=False)
class LocalChunks:
    """A `TreeCache` around a `LocalCPUBackend`, and the database of tokens that makes its keys."""

    config: CacheConfig
    backend: EngineObject = field(init=False)
    tokens: EngineObject = field(init=False)
    shape: EngineObject = field(init=False)
    chunk_bytes: int = field(init=False)
    receipts: Receipts[list[EngineObject]] = field(init=False, factory=Receipts)
    ledger: SlotLedger = field(init=False)
    objects: dict[Slot, EngineObject] = field(init=False, factory=dict)
    """The memory objects that requests hold."""

    def __attrs_post_init__(self) -> None:
        size = self.config.page_size
        width = -(-self.config.slot_bytes // (KEYS_AND_VALUES * size))
        self.chunk_bytes = -(-KEYS_AND_VALUES * size * width // ALIGNMENT) * ALIGNMENT
        settings = NAMES["LMCacheEngineConfig"].from_defaults(
            chunk_size=size,
            local_cpu=True,
            max_local_cpu_size=self.config.device_slots.full * self.chunk_bytes / 2**30,
        )
        model = NAMES["LMCacheMetadata"](
            "model",
            world_size=1,
            local_world_size=1,
            worker_id=0,
            local_worker_id=0,
            kv_dtype=NAMES["uint8"],
            kv_shape=(1, KEYS_AND_VALUES, size, 1, width),
            chunk_size=size,
        )
        NAMES["PinMonitor"].GetOrCreate(settings)
        self.shape = (model.get_shapes(), model.get_dtypes())
        self.backend = NAMES["LocalCPUBackend"](settings, model)
        self.tokens = NAMES["ChunkedTokenDatabase"](settings, model)
        self.ledger = SlotLedger({FULL: CountedPool(self._free_chunks)})

    def match(self, key: Key) -> Matched:
        """Look up the chunks of a key, and get those that are there."""
        keys = self._keys(key)
        found = keys[: self.backend.batched_contains(keys)]
        objects = self.backend.batched_get_blocking(found)
        slots = self._slots_of(objects)
        _release(objects)
        return Matched(len(found), len(found), slots)

    def lock(self, key: Key) -> Receipt:
        """Look up the chunks of a key with a pin."""
        keys = self._keys(key)
        self._require(keys)
        self.backend.batched_contains(keys, pin=True)
        self.backend.touch_cache()
        return self.receipts.issue(key, keys)

    def unlock(self, receipt: Receipt) -> None:
        """Unpin the keys of a lookup."""
        for key in self.receipts.spend(receipt):
            self.backend.unpin(key)

    def allocate(self, counts: Counts) -> Slots:
        """Allocate memory objects, and evict nothing."""
        self.ledger.check_allocate(counts)
        objects = [self._allocated(eviction=False) for _ in range(counts.full)]
        slots = self._slots_of(objects)
        self.objects.update(zip(slots.full, objects, strict=True))
        return self.ledger.hold(slots)

    def free(self, slots: Slots) -> None:
        """Release memory objects that no chunk was put with."""
        self.ledger.hand_over(slots)
        _release([self.objects.pop(slot) for slot in slots.full])

    def insert(
        self, key: Key, start_pages: int, slots: Slots, *, counted_pages: int = 0, priority: int = 0
    ) -> Inserted:
        """Put memory objects under the keys of their chunks, and release them."""
        del priority
        self.ledger.check_insert(key, start_pages, slots, counted_pages)
        keys = self._keys(key)
        self._require(keys[:start_pages])
        before, present = self.ledger.counts(), self.backend.batched_contains(keys)
        objects = [self.objects.pop(slot) for slot in slots.full]
        self.backend.batched_submit_put_task(keys[start_pages:], objects)
        _release(objects)
        return self.ledger.insert_counted(slots, present, before)

    def evict(self, counts: Counts) -> Evicted:
        """Allocate more than is free, so that the backend evicts, and release it."""
        check_evict(counts)
        free = self._free_chunks()
        objects: list[EngineObject] = []
        while len(objects) < free + counts.full and (made := self._allocated(eviction=True)):
            objects.append(made)
        _release(objects)
        return Evicted(Counts(len(objects) - free))

    def reset(self) -> None:
        """Clear the backend."""
        self.receipts.check_none_open()
        self.backend.clear()

    def free_slots(self, component: Component, medium: Medium) -> tuple[Slot, ...]:
        """The places that the allocator gives out, seen by taking them all for a moment."""
        if (component, medium) != (FULL, GPU):
            return ()
        addresses = self._addresses()
        places = addresses.batched_allocate(self.chunk_bytes, self._free_chunks())
        for place in places:
            addresses.free(*place)
        return tuple([address // self.chunk_bytes for address, _ in places])

    def read(self, component: Component, medium: Medium, slot: Slot) -> bytes:
        """The bytes at a place in the backend's memory."""
        if (component, medium) != (FULL, GPU) or slot >= self.config.device_slots.full:
            raise BadArgument("slot", f"{slot} of {component} on {medium} is not there")
        begin = slot * self.chunk_bytes
        memory = self.backend.get_memory_allocator().buffer
        return bytes(memory[begin : begin + self.config.slot_bytes].tolist())

    def write(self, component: Component, slot: Slot, data: bytes) -> None:
        """Set the bytes of a memory object that a request holds."""
        self.ledger.check_writable(component, slot)
        if len(data) != self.config.slot_bytes:
            raise BadArgument("data", f"has {len(data)} bytes")
        self.objects[slot].byte_array.cast("B")[: len(data)] = data

    def _keys(self, key: Key) -> list[EngineObject]:
        """LMCache's key of each chunk."""
        check_key(self.config, key)
        extra = extra_key_of(key.namespace)
        configs = None if extra is None else {"lmcache.tag.namespace": extra}
        chunks = self.tokens.process_tokens(tokens_of(key), request_configs=configs)
        return [chunk_key for _, _, chunk_key in chunks]

    def _require(self, keys: Sequence[EngineObject]) -> None:
        """Check that all chunks are there. Raises: PrefixNotCached."""
        if (found := self.backend.batched_contains(keys)) < len(keys):
            raise PrefixNotCached(len(keys), found)

    def _allocated(self, *, eviction: bool) -> EngineObject:
        """A new memory object; None if there is no memory for it."""
        return self.backend.allocate(*self.shape, eviction=eviction, busy_loop=False)

    def _slots_of(self, objects: Sequence[EngineObject]) -> Slots:
        return Slots(tuple([each.metadata.address // self.chunk_bytes for each in objects]))

    def _free_chunks(self) -> int:
        return int(self._addresses().get_free_size() // self.chunk_bytes)

    def _addresses(self) -> EngineObject:
        """The part of the allocator that knows which places are free."""
        return self.backend.get_memory_allocator().pin_allocator.address_manager


def _release(objects: Sequence[EngineObject]) -> None:
    for each in objects:
        each.ref_count_down()


OFFER = evolve(FULL_ATTENTION, events=(False,), most_slots=1_500)
PROFILE = Profile(recency=Choosing.OWN)
LOCAL = Adapter("lmcache", LocalChunks, OFFER, PROFILE)
