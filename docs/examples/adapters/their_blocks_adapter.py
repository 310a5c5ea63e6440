"""The adapter of `their_blocks.py`: requests become sequences, and their events are translated.

kvcanon check their_blocks_adapter:ADAPTER
"""

from __future__ import annotations

from attrs import evolve
from their_blocks import BlockManager, Sequence

from kvcanon.conformance import (
    FULL_ATTENTION,
    Adapter,
    Admitted,
    CacheKind,
    EventLog,
    RunningRequests,
    SlotMemory,
    extra_key_of,
    namespace_of_extra_key,
    tokens_of,
)
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import OutOfSlots
from kvcanon.spec.events import Event
from kvcanon.spec.types import Key, Slots


class TheirBlocks:
    """Their block manager as a `RequestCache`."""

    def __init__(self, config: CacheConfig) -> None:
        self.config = config
        self.manager = BlockManager(config.device_slots.full, config.page_size)
        self.running, self.log = RunningRequests[Sequence](), EventLog()
        self.memory = SlotMemory(config)
        self.read, self.write = self.memory.read, self.memory.write

    def admit(self, request_id: int, key: Key) -> Admitted:
        seq = Sequence(tokens_of(key), extra_key_of(key.namespace))
        if not self.manager.allocate(seq):
            raise OutOfSlots("blocks", len(key), len(self.manager.free_blocks))
        reused = seq.computed_blocks
        return Admitted(reused, self.computed(self.running.start(request_id, seq), key))

    def extend(self, request_id: int, key: Key) -> Slots:
        seq = self.running.get(request_id)
        if not self.manager.append(seq, tokens_of(key)[len(seq.tokens) :]):
            raise OutOfSlots("blocks", len(key), len(self.manager.free_blocks))
        return self.computed(seq, key)

    def finish(self, request_id: int) -> None:
        self.manager.release(self.running.end(request_id))

    abort = finish

    def computed(self, seq: Sequence, key: Key) -> Slots:
        # The judge writes the new pages before its next call, as a model's step does.
        self.log.learn(key, self.manager.block_hashes(seq))
        self.manager.mark_computed(seq)
        return Slots(tuple(seq.block_table))

    def take_events(self) -> tuple[Event, ...]:
        for event in self.manager.take_events():
            if event.stored:
                namespace = namespace_of_extra_key(event.salt)
                self.log.stored(event.block_hash, event.parent_hash, event.tokens, namespace)
            else:
                self.log.removed(event.block_hash)
        return self.log.take()


OFFER = evolve(FULL_ATTENTION, events=(True,))
ADAPTER = Adapter("their block manager", TheirBlocks, OFFER, kind=CacheKind.REQUEST)
