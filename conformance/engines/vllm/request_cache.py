"""Translates request operations to the calls that vLLM's scheduler makes for them.

vLLM has no call that evicts: allocating blocks for other requests evicts. So `evict` allocates
blocks for no request, and frees them.
"""

from __future__ import annotations

from collections import Counter

from attrs import Factory, define, field

from kvcanon.conformance.adapter_parts.running_requests import RunningRequests
from kvcanon.conformance.engines.installed_names import EngineObject
from kvcanon.conformance.engines.vllm.events import FULL_GROUP, BlockCounter, VLLMEventTranslator
from kvcanon.conformance.engines.vllm.factory import NAMES, make_manager
from kvcanon.conformance.engines.vllm.prompts import make_request
from kvcanon.conformance.protocol.request import Admitted, RequestId
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument, CacheBusy, OutOfSlots
from kvcanon.spec.events import Event
from kvcanon.spec.operations import Evicted
from kvcanon.spec.types import FULL, SWA, Component, Counts, Key, Slots


@define(eq=False)
class ManagedCache:
    """A `RequestCache` around vLLM's manager."""

    config: CacheConfig
    manager: EngineObject = field(init=False)
    translator: VLLMEventTranslator = Factory(VLLMEventTranslator)
    running: RunningRequests[EngineObject] = Factory(RunningRequests)

    def __attrs_post_init__(self) -> None:
        self.manager = make_manager(self.config)

    def admit(self, request_id: RequestId, key: Key) -> Admitted:
        """Admit a request with its prefix hit, and allocate the rest."""
        request = self._request(request_id, key)
        with self.running.admission(request_id, request, lambda _: None):
            if not len(key):
                # Nothing to look up or compute, so a scheduler would not call the manager.
                return Admitted(0, Slots())
            found, tokens, boundary = self.manager.get_computed_blocks(request)
            request.shared_prefix_boundary = boundary
            self._allocate(request, tokens, found)
        return Admitted(tokens // self.config.page_size, self._table(request))

    def extend(self, request_id: RequestId, key: Key) -> Slots:
        """Allocate slots for the pages that a request has grown by."""
        before = self.running.get(request_id)
        # A new object, so that a refusal leaves the old one unchanged.
        request = self._request(request_id, key)
        request.num_computed_tokens = before.num_computed_tokens
        request.shared_prefix_boundary = before.shared_prefix_boundary
        if request.num_tokens > request.num_computed_tokens:
            self._allocate(request, 0, None)
        self.running.end(request_id)
        self.running.start(request_id, request)
        return self._table(request)

    def finish(self, request_id: RequestId) -> None:
        """Free the blocks of a request; vLLM has no other way to end it."""
        self.manager.free(self.running.end(request_id))

    abort = finish

    def evict(self, counts: Counts) -> Evicted:
        """Allocate as many blocks of the free queue as it takes, and free them."""
        for component in Component:
            if counts[component] < 0:
                raise BadArgument(str(component), f"{counts[component]} slots; ask for 0 or more")
            if counts[component] and component not in self.config.components:
                raise BadArgument(str(component), "is no component of this cache")
        pool = self.manager.block_pool
        queue = [_component(block) for block in pool.free_block_queue.get_all_free_blocks()]
        taken = _reach(queue, counts)
        if taken:
            pool.free_blocks(pool.get_new_blocks(taken))
        freed = Counter(queue[:taken])
        return Evicted(Counts(freed[FULL], freed[SWA]))

    def reset(self) -> None:
        """Empty the cache; vLLM refuses while a request has blocks."""
        if not self.manager.reset_prefix_cache():
            raise CacheBusy(len(self.running.handles()))

    def take_events(self) -> tuple[Event, ...]:
        """The events of full data since the last call."""
        return tuple(self.translator.translate(self.manager.take_events()))

    def _request(self, request_id: RequestId, key: Key) -> EngineObject:
        request = make_request(request_id, key, self.config.page_size)
        self.translator.learn(key, request.block_hashes)
        return request

    def _allocate(
        self, request: EngineObject, found_tokens: int, found: EngineObject | None
    ) -> None:
        """Allocate blocks for all tokens of a request. Raises: OutOfSlots."""
        missing = request.num_tokens - request.num_computed_tokens - found_tokens
        if self.manager.allocate_slots(request, missing, found_tokens, found) is None:
            free = self.manager.block_pool.get_num_free_blocks()
            raise OutOfSlots("blocks on GPU", missing // self.config.page_size, free)
        request.num_computed_tokens = request.num_tokens

    def _table(self, request: EngineObject) -> Slots:
        """The block table of a request; block 0 is the null block, so slots begin at 1."""
        groups = self.manager.get_blocks(request.request_id).blocks
        slots: list[tuple[int, ...]] = []
        for blocks in groups:
            # Null blocks stand for pages that have left the window.
            gone = max((at for at, block in enumerate(blocks, 1) if block.is_null), default=0)
            slots.append(tuple(block.block_id - 1 for block in blocks[gone:]))
        return Slots(*slots)


def _component(block: EngineObject) -> Component | None:
    """The component whose cached data a block holds; None if it holds none."""
    if block.block_hash is None:
        return None
    group = NAMES["get_group_id"](block.block_hash)
    return FULL if group == FULL_GROUP else SWA


def _reach(queue: list[Component | None], counts: Counts) -> int:
    """How many blocks to take from the free queue to evict these counts, or all that there are."""
    reach = 0
    missing = Counter({component: counts[component] for component in (FULL, SWA)})
    for at, component in enumerate(queue, 1):
        if component is not None and missing[component]:
            missing[component] -= 1
            reach = at
    return reach


@define(eq=False)
class CountedCache(ManagedCache):
    """A `ManagedCache` whose events pass through a `BlockCounter`."""

    copies: BlockCounter = Factory(BlockCounter)

    def take_events(self) -> tuple[Event, ...]:
        """The first store and the last remove of each page."""
        return tuple(self.copies.distinct(super().take_events()))
