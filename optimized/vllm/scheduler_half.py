"""The scheduler's half: decides which pages are copied to the host and loaded from there.

Its methods have the names, and are called in the order, of vLLM's connectors. It holds no block of
vLLM's: a step that overwrites a block which a store still reads waits for that store.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attrs import Factory, define, field

from kvcanon.optimized.vllm.device_pages import DevicePages
from kvcanon.optimized.vllm.engine_calls import (
    BlocksOfRequest,
    ConnectorOutput,
    KVCacheManager,
    SchedulerOutput,
    VllmBlockPool,
    VllmRequest,
)
from kvcanon.optimized.vllm.host_pages import HostPages
from kvcanon.optimized.vllm.pages import Page, PageKey, Policy, TierShape, group_suffix
from kvcanon.optimized.vllm.request_tables import RequestTable, RequestTables, settled_tokens
from kvcanon.optimized.vllm.step_copies import EndedStores, StepCopies, TierCopyJob
from kvcanon.optimized.vllm.tier_counts import TierCounts
from kvcanon.optimized.vllm.tier_events import TierEvent, removed_event, stored_event
from kvcanon.optimized.vllm.tier_loads import PagesToLoad, TierLoad, find_pages
from kvcanon.optimized.vllm.tier_stores import TierStore, TierStores

STEPS_AHEAD = 2
"""Under write_back what so many steps may evict is on the host before."""
SHARE_AHEAD = 8
"""But no more than this part of the device."""


@define(eq=False)
class SchedulerHalf:
    """What of each prompt is on the host, and all copies."""

    shape: TierShape
    counts: TierCounts = Factory(TierCounts)
    host: HostPages = field(init=False)
    device: DevicePages = Factory(DevicePages)
    stores: TierStores = field(init=False)
    _tables: RequestTables = field(init=False)
    _requests: dict[str, VllmRequest] = Factory(dict)
    _answers: dict[str, TierLoad] = Factory(dict)
    """Answers that were not taken up; each holds its pages."""
    _loads: dict[str, TierLoad] = Factory(dict)
    _unstarted: dict[str, int] = Factory(dict)
    """Requests that were given blocks to load into and do not compute yet: how many blocks they
    may still need."""
    _failed: set[str] = Factory(set)
    """Live requests of which a load failed: they compute themselves."""
    _untrusted: set[str] = Factory(set)
    """Live requests whose blocks a reset outdated."""
    _new_loads: list[TierCopyJob] = Factory(list)
    _void: set[str] = Factory(set)
    """Requests whose load could not begin."""
    _events: list[TierEvent] = Factory(list)
    _blocks_used: int = 0
    """Blocks that were given since the free queue was walked."""
    _ahead: int = 0
    _step: int = 0
    _shared: bool = False
    """Whether another connector loads into the same blocks: vLLM's MultiConnector gives this one no
    block of what another loads, and none of a request that nobody loads for."""
    _suffixes: tuple[bytes, ...] = ()

    def __attrs_post_init__(self) -> None:
        self.host = HostPages(self.shape.rows, self._removed, self.counts)
        self.stores = TierStores(self.host, self.counts)
        self._tables = RequestTables(self.shape.block_tokens)
        self._suffixes = tuple(map(group_suffix, range(len(self.shape.groups))))

    def bind_kv_cache_manager(self, kv_cache_manager: KVCacheManager) -> None:
        """Take the block pool of the engine's cache manager."""
        self.bind_gpu_block_pool(kv_cache_manager.block_pool)

    def bind_gpu_block_pool(self, gpu_block_pool: VllmBlockPool) -> None:
        """Take the engine's block pool, of which this reads hashes and the free queue."""
        self.device.pool = gpu_block_pool
        blocks = len(gpu_block_pool.blocks)
        self._ahead = max(1, min(STEPS_AHEAD * self.shape.step_blocks, blocks // SHARE_AHEAD))
        self._blocks_used = self._ahead

    def on_new_request(self, request: VllmRequest) -> None:
        """Take note of a request."""
        self._requests[request.request_id] = request

    def get_num_new_matched_tokens(
        self, request: VllmRequest, num_computed_tokens: int
    ) -> tuple[int, bool]:
        """Answer how many tokens after the local hit can be loaded, and hold their pages.

        A later answer for the same request replaces an earlier one. Pages that are being loaded for
        another request are loaded once more: a request that is told to wait could block those
        behind it, whose loads hold the blocks that it needs.

        Returns: the tokens, and True since they are loaded between steps.
        """
        name, size = request.request_id, self.shape.block_tokens
        self._withdraw(name)
        if not self._serves(request) or not self._fits(request):
            return 0, False
        first, last = num_computed_tokens // size, (request.num_tokens - 1) // size
        self.counts.asked_pages += max(0, last - first)
        found = self._find(request, first, last)
        if found is None:
            return 0, False
        pages = [self.host.get(key) for _, _, key in found.places]
        pinned = [each for each in pages if each is not None]
        self.host.pin(pinned)
        self._answers[name] = TierLoad(found, pinned)
        self.counts.answered_pages += found.end - first
        return (found.end - first) * size, True

    def update_state_after_alloc(
        self, request: VllmRequest, blocks: BlocksOfRequest, num_external_tokens: int
    ) -> None:
        """Begin the load that was answered, into the blocks of a request."""
        name, table = request.request_id, blocks.get_block_ids()
        self._shared = self._shared or not any(table)
        answer = self._answers.pop(name, None)
        if num_external_tokens:
            # Before the step's own blocks are known, since the load may come before it.
            self._give(table)
            held = sum(map(len, table))
            self._unstarted[name] = max(0, self._most_blocks(request) - held)
            load = self._taken_up(request, answer, num_external_tokens)
            if load is None:
                self._void.add(name)
            else:
                self._begin_load(name, load, table)
        if answer is not None:
            self.host.unpin(answer.pinned)

    def build_connector_meta(self, scheduler_output: SchedulerOutput) -> StepCopies:
        """Decide the copies that begin with a step."""
        plan = scheduler_output
        for name in plan.preempted_req_ids or ():
            self._learn_preempted(name)
        for name in plan.num_scheduled_tokens:
            self._unstarted.pop(name, None)
            self._learn_of(name)
        for given in self._tables.follow(plan):
            self._give(given)
        if self._moves:
            self._store_ahead()
        self._step += 1
        stores, awaited = self.stores.take_jobs()
        loads, self._new_loads = self._new_loads, []
        void, self._void = frozenset(self._void), set()
        return StepCopies(self._step, stores, loads, awaited, void)

    def update_connector_output(self, connector_output: ConnectorOutput) -> None:
        """Take what all ranks have ended."""
        meta = connector_output.kv_connector_worker_meta
        if isinstance(meta, EndedStores):
            for page in self.stores.settle(meta, self.shape.ranks, self._still_there):
                if self.shape.events:
                    self._events.append(stored_event(page))
        failed = connector_output.failed_recving or set()
        for name in connector_output.finished_recving or ():
            self._end_load(name, failed=name in failed)

    def request_finished_all_groups(
        self, request: VllmRequest, block_ids: tuple[list[int], ...]
    ) -> tuple[bool, dict[str, object] | None]:
        """Take note of what a request has computed, and forget it.

        Returns: False, since its blocks are not held, and nothing for its client.
        """
        del block_ids
        name = request.request_id
        table = self._tables.get(name)
        if table is not None and name not in self._loads:
            # What a step in flight computes is not there yet.
            self._learn(request, table, min(settled_tokens(request), table.computed_tokens))
        self._withdraw(name)
        self._tables.drop(name)
        self._requests.pop(name, None)
        self._unstarted.pop(name, None)
        self._failed.discard(name)
        self._untrusted.discard(name)
        return False, None

    def has_pending_push_work(self) -> bool:
        """Whether copies to the host are in flight, so that steps must go on."""
        return self.stores.in_flight > 0

    def take_events(self) -> Iterable[TierEvent]:
        """The events since the last call."""
        events, self._events = self._events, []
        return events

    def reset_cache(self) -> bool:
        """Forget all pages, on the host, on the device and in copies.

        Returns: False if a load is in flight for a request, which will compute with what it loads.
        """
        self.counts.resets += 1
        for name in list(self._answers):
            self._withdraw(name)
        self.host.clear()
        self.stores.outdate()
        self.device.clear()
        self._tables.clear()
        live = self._loads.keys() & self._requests.keys()
        for load in self._loads.values():
            load.stale = True
        self._untrusted |= live
        return not live

    def gauges(self) -> dict[str, int]:
        """Sizes of now, in pages."""
        return {
            "host_pages": len(self.host),
            "host_rows": self.shape.rows,
            "pinned_pages": self.host.pinned,
            "storing_pages": self.stores.in_flight,
            "loading_requests": len(self._loads),
        }

    @property
    def _moves(self) -> bool:
        """Whether a page is in one place only."""
        return self.shape.policy is Policy.WRITE_BACK

    def _serves(self, request: VllmRequest) -> bool:
        """Whether the host may serve a request."""
        if request.mm_features or request.prompt_embeds is not None:
            self.counts.refused_requests += 1
            return False
        return not request.skip_reading_prefix_cache and request.request_id not in self._failed

    def _fits(self, request: VllmRequest) -> bool:
        """Whether a load leaves the blocks that earlier loads may still need.

        vLLM looks at waiting requests in order, and stops at one that needs more blocks than are
        free, also where those behind it have them for loads that have ended: nobody is served then.
        """
        if not self._unstarted or self.device.pool is None:
            return True
        free = self.device.pool.get_num_free_blocks()
        return self._most_blocks(request) + sum(self._unstarted.values()) <= free

    def _most_blocks(self, request: VllmRequest) -> int:
        """The most blocks that a request holds before it computes its last token."""
        blocks = request.num_tokens // self.shape.block_tokens + 1
        return blocks * len(self.shape.groups)

    def _find(self, request: VllmRequest, first: int, last: int) -> PagesToLoad | None:
        several = len(self.shape.groups) > 1
        has = self._has_anywhere if several else self.host.__contains__
        return find_pages(request.block_hashes, first, last, self.shape, has)

    def _has_anywhere(self, key: PageKey) -> bool:
        """Whether a page is on the host, or on the device.

        With a window the local hit may end before full pages that are on the device still.
        """
        if key in self.host:
            return True
        block = self.device.block_of(key)
        return block is not None and self.device.has_hash(block, key)

    def _withdraw(self, name: str) -> None:
        """Take an answer back."""
        answer = self._answers.pop(name, None)
        if answer is not None:
            self.host.unpin(answer.pinned)

    def _taken_up(
        self, request: VllmRequest, answer: TierLoad | None, tokens: int
    ) -> TierLoad | None:
        """The load of so many tokens, which may be fewer than were answered. None: it cannot be."""
        if answer is None:
            return None
        first, end = answer.found.first, answer.found.first + tokens // self.shape.block_tokens
        if end == answer.found.end:
            return TierLoad(answer.found)
        found = self._find(request, first, end)
        return TierLoad(found) if found is not None and found.end == end else None

    def _begin_load(self, name: str, load: TierLoad, table: Sequence[Sequence[int]]) -> None:
        rows: list[int] = []
        stores: list[TierStore] = []
        for at, group, key in load.found.places:
            hosted = self.host.get(key)
            if hosted is not None:
                # At once, since a store that begins for another page may need a row.
                self.host.pin([hosted])
                load.hosted.append(hosted)
            else:
                store = self._store_of(key)
                if store is None:
                    self.host.unpin(load.hosted)
                    self._void.add(name)
                    return
                stores.append(store)
            source = hosted or stores[-1]
            load.pages.append(source.page)
            rows.append(source.row)
            load.blocks.append(table[group][at])
        for store in stores:
            store.pinned_by.append(load.hosted)
        after = {store.job for store in stores}
        # The blocks may be read by stores, too, which end first.
        after |= self.stores.readers_of(load.blocks)
        self._loads[name] = load
        self.counts.loads += 1
        self.counts.loaded_pages += len(rows)
        groups = [group for _, group, _ in load.found.places]
        number = self.stores.next_number()
        self._new_loads.append(
            TierCopyJob(
                number,
                load.blocks,
                rows,
                groups,
                to_host=False,
                request_id=name,
                after=frozenset(after),
            )
        )

    def _store_of(self, key: PageKey) -> TierStore | None:
        """The store of a page that is being stored; one that is on the device is stored for it."""
        if key not in self.stores:
            block = self.device.block_of(key)
            page = None if block is None else self.device.page_of(block)
            if block is None or page is None or not self.stores.begin(page, block):
                return None
        return self.stores.get(key)

    def _end_load(self, name: str, *, failed: bool) -> None:
        load = self._loads.pop(name, None)
        if failed:
            self.counts.failed_loads += 1
            if name in self._requests:
                self._failed.add(name)
        if load is not None:
            self.host.unpin(load.hosted)
            if failed:
                for hosted in load.hosted:
                    self.host.drop(hosted)
            else:
                self._settle_load(load, live=name in self._requests and not load.stale)

    def _settle_load(self, load: TierLoad, *, live: bool) -> None:
        """Take note that pages are on the device, if a request holds them there."""
        if live:
            for block, page in zip(load.blocks, load.pages, strict=True):
                self.device.learn(block, page)
        for hosted in load.hosted if self._moves else ():
            hosted.moved |= live
            if hosted.moved and not hosted.pins:
                self.host.drop(hosted)

    def _give(self, table: Sequence[Sequence[int]]) -> None:
        """Take note of blocks that requests were given, and save what those held before."""
        pool = self.device.pool
        if pool is None:
            return
        null = pool.null_block.block_id
        for row in table:
            for block in row:
                if block != null:
                    self._give_block(block)

    def _give_block(self, block: int) -> None:
        self._blocks_used += 1
        page = self.device.page_of(block)
        if page is not None and not self.device.has_hash(block, page.key):
            self.device.forget(block)
            if self._moves and not self._shared and not self._stored(page.key):
                self.stores.begin(page, block, late=True)
        self.stores.await_readers(block)

    def _still_there(self, block: int, key: PageKey) -> bool:
        """Whether a page was in a block all the time that a store read it.

        Another connector may load into a block without a word to this one.
        """
        return not self._shared or self.device.has_hash(block, key)

    def _stored(self, key: PageKey) -> bool:
        return key in self.host or key in self.stores

    def _learn_preempted(self, name: str) -> None:
        request, table = self._requests.get(name), self._tables.get(name)
        if request is not None and table is not None:
            self._learn(request, table, table.computed_tokens)
        self._tables.drop(name)
        self._untrusted.discard(name)

    def _learn_of(self, name: str) -> None:
        request, table = self._requests.get(name), self._tables.get(name)
        if request is not None and table is not None:
            self._learn(request, table, min(settled_tokens(request), table.computed_tokens))

    def _learn(self, request: VllmRequest, table: RequestTable, tokens: int) -> None:
        """Take note of the pages that a request has completed."""
        end = min(tokens // self.shape.block_tokens, len(request.block_hashes))
        first, table.known_blocks = table.known_blocks, max(end, table.known_blocks)
        if end <= first or request.request_id in self._untrusted:
            return
        if request.mm_features or request.prompt_embeds is not None:
            return
        for suffix, row in zip(self._suffixes, table.blocks, strict=True):
            for at in range(first, min(end, len(row))):
                key = request.block_hashes[at] + suffix
                # A block that is not found under this hash was given to another request since.
                if not self.device.has_hash(row[at], key):
                    continue
                page = self._page(request, at, key)
                self.device.learn(row[at], page)
                if not self._moves and not self._stored(key):
                    self.stores.begin(page, row[at])

    def _page(self, request: VllmRequest, at: int, key: PageKey) -> Page:
        if not self.shape.events:
            return Page(key)
        size, lora = self.shape.block_tokens, request.lora_request
        return Page(
            key,
            request.block_hashes[at - 1] if at else None,
            tuple(request.all_token_ids[at * size : (at + 1) * size]),
            None if lora is None else lora.lora_int_id,
            None if lora is None else lora.lora_name,
            request.cache_salt,
        )

    def _store_ahead(self) -> None:
        """Store what the device evicts next, once half of what was walked last is used up."""
        pool = self.device.pool
        if pool is None or self._blocks_used * 2 < self._ahead:
            return
        self._blocks_used = 0
        block = pool.free_block_queue.fake_free_list_head.next_free_block
        for _ in range(self._ahead):
            if block is None or block.next_free_block is None:
                return
            page = self.device.page_of(block.block_id)
            if page is not None and block.block_hash == page.key:
                if page.key in self.host:
                    self.host.use(page.key)
                elif page.key not in self.stores:
                    self.stores.begin(page, block.block_id)
            block = block.next_free_block

    def _removed(self, page: Page) -> None:
        if self.shape.events:
            self._events.append(removed_event(page))
