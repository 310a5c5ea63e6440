"""Translates request operations to the calls that transformers' scheduler makes for them.

A prompt is prefilled in one step, and what comes behind it in another. After each step the blocks
that it filled get their hashes; one with the content of another block is given up, and the request
goes on with the other. Blocks that no request has stay cached until memory is short: then all of
them are evicted at once.

Layers with a sliding window share no blocks in transformers, so none are offered; nor are
namespaces, which it does not have, and events.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import define, evolve, field, frozen

from kvcanon.conformance.adapter_parts.arguments import check_evict, check_prompt
from kvcanon.conformance.adapter_parts.offers import FULL_ATTENTION
from kvcanon.conformance.adapter_parts.running_requests import RunningRequests
from kvcanon.conformance.adapter_parts.slot_memory import SlotMemory
from kvcanon.conformance.adapter_parts.small_tokens import SmallTokens
from kvcanon.conformance.engines.installed_names import EngineObject, InstalledNames
from kvcanon.conformance.protocol.adapter import Adapter, CacheKind
from kvcanon.conformance.protocol.request import Admitted, RequestId
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import OutOfSlots
from kvcanon.spec.operations import Evicted
from kvcanon.spec.types import FULL, GPU, Component, Counts, Key, Medium, Slot, Slots

_BATCHING = "transformers.generation.continuous_batching"
NAMES = InstalledNames(
    "transformers",
    "transformers",
    "transformers==5.24.0",
    {
        "ContinuousBatchingConfig": "transformers.generation.configuration_utils",
        "DistributedHelper": f"{_BATCHING}.distributed",
        "LlamaConfig": "transformers",
        "PagedAttentionCache": f"{_BATCHING}.cache",
        "RequestState": f"{_BATCHING}.requests",
    },
    quiet=True,
)
NAMES.version()

TRASH_BLOCKS = 2
"""The first blocks, which are never given out."""
HEAD_DIM = 32
"""With this head and two bytes a number, the least memory that the cache takes is a block."""


def new_cache(config: CacheConfig) -> EngineObject:
    """A cache of one layer of full attention, with as many blocks as the configuration says."""
    model = NAMES["LlamaConfig"](
        hidden_size=HEAD_DIM,
        head_dim=HEAD_DIM,
        intermediate_size=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        num_hidden_layers=1,
        vocab_size=2,
    )
    batching = NAMES["ContinuousBatchingConfig"](
        page_size=config.page_size,
        num_blocks=config.device_slots.full,
        max_batch_tokens=1,
        max_memory_percent=1.0,
        max_blocks_per_request=0,
    )
    return NAMES["PagedAttentionCache"](
        model, batching, "cpu", NAMES["DistributedHelper"](None, None)
    )


@frozen(eq=False)
class PagedRequest:
    """A running request: transformers' state of it, which has its tokens."""

    state: EngineObject


@define(eq=False)
class PagedBlocks:
    """A `RequestCache` around a `PagedAttentionCache`."""

    config: CacheConfig
    cache: EngineObject = field(init=False)
    running: RunningRequests[PagedRequest] = field(init=False, factory=RunningRequests)
    small: SmallTokens = field(init=False, factory=SmallTokens)
    memory: SlotMemory = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.cache, self.memory = new_cache(self.config), SlotMemory(self.config)

    def admit(self, request_id: RequestId, key: Key) -> Admitted:
        """Look for a prefix, and prefill the rest."""
        check_prompt(key)
        tokens = self.small.tokens_of(key)
        name = str(request_id)
        state = NAMES["RequestState"](request_id=name, initial_tokens=tokens)
        request = PagedRequest(state)
        with self.running.admission(request_id, request, lambda _: self.cache.free_blocks(name)):
            state.position_offset = self.cache.search_prefix_match(name, tokens)
            reused = state.position_offset // self.config.page_size
            self._step(request, tokens)
        return Admitted(reused, self._table(request))

    def extend(self, request_id: RequestId, key: Key) -> Slots:
        """Compute the tokens that a request has grown by, which are generated ones."""
        request = self.running.get(request_id)
        self._step(request, self.small.tokens_of(key))
        return self._table(request)

    def finish(self, request_id: RequestId) -> None:
        """Free the blocks of a request; whole ones stay cached."""
        self.cache.free_blocks(str(self.running.get(request_id).state.request_id))
        self.running.end(request_id)

    abort = finish

    def evict(self, counts: Counts) -> Evicted:
        """Evict all cached blocks, if any are asked for."""
        check_evict(counts)
        before = self._free_blocks()
        if counts.full:
            self._make_room()
        return Evicted(Counts(self._free_blocks() - before))

    def reset(self) -> None:
        """Forget everything."""
        self.running.check_none()
        self.cache.reset()

    def read(self, component: Component, medium: Medium, slot: Slot) -> bytes:
        """The bytes of a slot."""
        return self.memory.read(component, medium, slot)

    def write(self, component: Component, slot: Slot, data: bytes) -> None:
        """Set the bytes of a slot."""
        self.memory.write(component, slot, data)

    def _step(self, request: PagedRequest, tokens: Sequence[int]) -> None:
        """Store and compute what a request has not computed yet. Raises: OutOfSlots."""
        state = request.state
        more = len(tokens) - state.position_offset
        if not self.cache.can_store_request_tokens(state, more):
            # The scheduler evicts what is cached, and schedules the request again.
            self._make_room()
            if not self.cache.can_store_request_tokens(state, more):
                needed = -(-more // self.config.page_size)
                raise OutOfSlots(f"{FULL} on {GPU}", needed, self._free_blocks())
        filled = self.cache.count_new_complete_blocks(state, more)
        state.generated_tokens = list(tokens[len(state.initial_tokens) :])
        state.position_offset = len(tokens)
        self.cache.mark_complete_blocks(state, filled)

    def _make_room(self) -> None:
        self.cache.evict_cached_blocks()
        self.cache.pool.try_to_free_sectors()

    def _free_blocks(self) -> int:
        """How many blocks are free; a sector is one block here."""
        pool = self.cache.pool
        return int(pool.num_free_sectors + pool.count_free_blocks(self._allocator().index))

    def _allocator(self) -> EngineObject:
        """The allocator of full attention, which is the only one."""
        (allocator,) = self.cache.cache_allocators.values()
        return allocator

    def _table(self, request: PagedRequest) -> Slots:
        blocks = self._allocator().block_table[request.state.request_id]
        return Slots(tuple(block - TRASH_BLOCKS for block in blocks))


OFFER = evolve(FULL_ATTENTION, events=(False,), namespaces=False, most_slots=1_500)
PAGED = Adapter("transformers", PagedBlocks, OFFER, kind=CacheKind.REQUEST)
