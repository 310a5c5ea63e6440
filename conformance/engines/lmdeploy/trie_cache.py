"""Translates operations on prefixes to calls of LMDeploy's block trie and its allocator.

A match gives a sequence the blocks that it finds, with a reference on each: that is a lock, too.
So `match` makes a sequence and frees it again, and `lock` keeps it. An insert makes a sequence with
the given blocks, lets the trie keep them, and frees the sequence, as LMDeploy does at the end of a
request.

**Help.** LMDeploy has one call for a match and a lock, and a free makes the blocks of a sequence
recent. The operations are separate here, and a lock and an unlock must leave recency alone. So the
adapter puts the times of the last use back after a lock, an unlock and a refusal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import cast

from attrs import define, field

from kvcanon.conformance.adapter_parts.arguments import check_evict, check_insert
from kvcanon.conformance.adapter_parts.receipts import Receipts
from kvcanon.conformance.adapter_parts.slot_ledger import SlotLedger
from kvcanon.conformance.adapter_parts.token_slots import extra_key_of, tokens_of
from kvcanon.conformance.engines.installed_names import EngineObject
from kvcanon.conformance.engines.lmdeploy.factory import LMDEPLOY, array_of, make_scheduler
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import PrefixNotCached
from kvcanon.spec.operations import Evicted, Inserted, Matched, Receipt
from kvcanon.spec.types import FULL, Counts, Key, Namespace, Slot, Slots


@define(eq=False)
class FreeBlocks:
    """The free blocks of LMDeploy's allocator."""

    allocator: EngineObject

    def count(self) -> int:
        """How many blocks are free."""
        return int(self.allocator.get_num_free_blocks())

    def take(self, count: int) -> Sequence[Slot]:
        """Take free blocks."""
        return cast("list[Slot]", self.allocator.allocate(count).tolist())

    def give_back(self, slots: Sequence[Slot]) -> None:
        """Free blocks."""
        self.allocator.free(array_of(slots))


@define(eq=False)
class TrieCache:
    """A `TreeCache` around LMDeploy's block trie."""

    config: CacheConfig
    scheduler: EngineObject = field(init=False)
    session: EngineObject = field(init=False)
    ledger: SlotLedger = field(init=False)
    receipts: Receipts[EngineObject] = field(factory=Receipts)

    def __attrs_post_init__(self) -> None:
        self.scheduler = make_scheduler(self.config)
        self.session = self.scheduler.add_session(0)
        self.ledger = SlotLedger({FULL: FreeBlocks(self.allocator)})

    @property
    def allocator(self) -> EngineObject:
        """LMDeploy's allocator of blocks."""
        return self.scheduler.block_manager.allocator

    def match(self, key: Key) -> Matched:
        """Match a sequence, and free it."""
        sequence = self._matched(key)
        blocks = _blocks(sequence)
        self.scheduler.block_manager.free(sequence)
        return Matched(len(blocks), len(blocks), Slots(blocks))

    def lock(self, key: Key) -> Receipt:
        """Match a sequence, and keep it."""
        with self._same_recency():
            return self.receipts.issue(key, self._covering(key))

    def unlock(self, receipt: Receipt) -> None:
        """Free the sequence of a lock."""
        sequence = self.receipts.spend(receipt)
        with self._same_recency():
            self.scheduler.block_manager.free(sequence)

    def allocate(self, counts: Counts) -> Slots:
        """Take free blocks."""
        return self.ledger.allocate(counts)

    def free(self, slots: Slots) -> None:
        """Free blocks."""
        self.ledger.free(slots)

    def insert(
        self, key: Key, start_pages: int, slots: Slots, *, counted_pages: int = 0, priority: int = 0
    ) -> Inserted:
        """Let the trie keep the blocks of a sequence, and free the sequence."""
        del priority
        check_insert(key, start_pages, slots, counted_pages)
        self.ledger.check_held(slots)
        with self._same_recency():
            covered = self._covering(key.prefix(start_pages))
        sequence = self._sequence(tokens_of(key), key.namespace)
        # The references of the covered blocks are the new sequence's from here on.
        sequence.logical_blocks.append(array_of([*_blocks(covered), *slots.full]))
        self.ledger.hand_over(slots)
        self.scheduler.block_trie.allocate(sequence)
        own = zip(_blocks(sequence)[start_pages:], slots.full, strict=True)
        replaced = sum(now != before for now, before in own)
        self.scheduler.block_manager.free(sequence)
        adopted = int((self.allocator.get_ref_count(array_of(slots.full)) > 0).sum())
        freed = Counts(len(slots.full) - adopted)
        return Inserted(start_pages + replaced, Counts(adopted), freed)

    def evict(self, counts: Counts) -> Evicted:
        """Evict blocks from the trie."""
        check_evict(counts)
        return Evicted(Counts(self.scheduler.block_trie.evict(counts.full)))

    # Inside.

    def _sequence(self, tokens: list[int], namespace: Namespace) -> EngineObject:
        """Make a sequence that the scheduler does not know."""
        sequence = self.scheduler.seq_meta.strategy.make_sequence(
            seq_id=0,
            session=self.session,
            sampling_param=LMDEPLOY["SamplingParam"](),
            adapter_name=extra_key_of(namespace),
        )
        sequence.update_token_ids(array_of(tokens), mode=LMDEPLOY["UpdateTokenMode"].INPUTS)
        return sequence

    def _matched(self, key: Key) -> EngineObject:
        """A sequence with the blocks of the cached prefix of a key.

        A match leaves a token to compute, so the sequence has one more.
        """
        sequence = self._sequence([*tokens_of(key), 0], key.namespace)
        self.scheduler.block_trie.match(sequence)
        return sequence

    def _covering(self, key: Key) -> EngineObject:
        """A sequence with the blocks of all of a key. Raises: PrefixNotCached."""
        sequence = self._matched(key)
        found = len(sequence.logical_blocks)
        if found < len(key):
            self.scheduler.block_manager.free(sequence)
            raise PrefixNotCached(len(key), found)
        return sequence

    @contextmanager
    def _same_recency(self) -> Iterator[None]:
        """Put the times of the last use back at the end."""
        memory = self.allocator._log_mem  # noqa: SLF001 # LMDeploy has no call that sets a time.
        times = memory.access_time.copy()
        try:
            yield
        finally:
            memory.access_time[:] = times


@define(eq=False)
class FineTrieCache(TrieCache):
    """A `TrieCache` whose times of the last use have fractions of seconds.

    LMDeploy rounds them down to whole seconds, in an array of integers. Here the array has floats,
    so that the report shows what else there is to find.
    """

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        memory = self.allocator._log_mem  # noqa: SLF001 # As above.
        memory.access_time = memory.access_time.astype(float)


def _blocks(sequence: EngineObject) -> tuple[Slot, ...]:
    return tuple(sequence.logical_blocks.get_real_blocks().tolist())
