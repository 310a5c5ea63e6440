"""The scheduler's half: decides which pages are copied to the host and loaded from there.

Its methods have the names, and are called in the order, of vLLM's connectors. It holds no block of
vLLM's: a step that overwrites a block which a store still reads waits for that store.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attrs import Factory, define, field

from kvcanon.optimized._core import HashedPages
from kvcanon.optimized.vllm.disk_half import DiskHalf
from kvcanon.optimized.vllm.disk_names import PromptNames
from kvcanon.optimized.vllm.engine_calls import (
    BlocksOfRequest,
    ConnectorOutput,
    KVCacheManager,
    SchedulerOutput,
    VllmBlockPool,
    VllmRequest,
)
from kvcanon.optimized.vllm.request_tables import RequestTable, RequestTables, settled_tokens
from kvcanon.optimized.vllm.step_copies import EndedStores, StepCopies, TierCopyJob
from kvcanon.optimized.vllm.store_jobs import StoreJobs
from kvcanon.optimized.vllm.tier_counts import TierCounts
from kvcanon.optimized.vllm.tier_events import EventPrompt, TierEvent, event_of, event_prompt
from kvcanon.optimized.vllm.tier_loads import PagesToLoad, TierLoad, find_pages
from kvcanon.optimized.vllm.tier_shape import Policy, TierShape

STEPS_AHEAD = 2
"""Under write_back what so many steps may evict is on the host before."""
SHARE_AHEAD = 8
"""But no more than this part of the device."""


@define(eq=False)
class SchedulerHalf:
    """What of each prompt is on the host, and all copies."""

    shape: TierShape
    counts: TierCounts = Factory(TierCounts)
    pages: HashedPages = field(init=False)
    jobs: StoreJobs = field(init=False)
    disk: DiskHalf | None = None
    _pool: VllmBlockPool | None = None
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
    _blocks_used: int = 0
    """Blocks that were given since the free queue was walked."""
    _ahead: int = 0
    _step: int = 0
    _shared: bool = False
    """Whether another connector beside this one, in vLLM's MultiConnector, has loaded into blocks
    between steps: what such blocks held is not saved late, since nothing waits for that."""
    _given: dict[str, Sequence[Sequence[int]]] = Factory(dict)
    """The blocks that requests were given since the last step, without a load of this tier."""
    _events: list[TierEvent] = Factory(list)

    def __attrs_post_init__(self) -> None:
        shape = self.shape
        self.pages = HashedPages(shape.rows, events=shape.events or shape.disk)
        self.jobs = StoreJobs(self.pages, shape.ranks)
        if shape.disk:
            self.disk = DiskHalf.below(shape, self.pages, self.jobs, self.counts)
        self._tables = RequestTables(self.shape.block_tokens)

    def bind_kv_cache_manager(self, kv_cache_manager: KVCacheManager) -> None:
        """Take the block pool of the engine's cache manager."""
        self.bind_gpu_block_pool(kv_cache_manager.block_pool)

    def bind_gpu_block_pool(self, gpu_block_pool: VllmBlockPool) -> None:
        """Take the engine's block pool, to read its hashes and its free queue."""
        self._pool = gpu_block_pool
        self.pages.watch(gpu_block_pool.blocks, gpu_block_pool.null_block.block_id)
        blocks = len(gpu_block_pool.blocks)
        self._ahead = max(1, min(STEPS_AHEAD * self.shape.step_blocks, blocks // SHARE_AHEAD))
        self._blocks_used = self._ahead

    def on_new_request(self, request: VllmRequest) -> None:
        """Take note of a request."""
        self._requests[request.request_id] = request

    def get_num_new_matched_tokens(
        self, request: VllmRequest, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        """Answer how many tokens after the local hit can be loaded, and hold their pages.

        A later answer for the same request replaces an earlier one. Pages that are being loaded for
        another request are loaded once more: a request that is told to wait could block those
        behind it, whose loads hold the blocks that it needs.

        Returns: the tokens, and True since they are loaded between steps; None before the ranks
            have said what their disks have.
        """
        name, size = request.request_id, self.shape.block_tokens
        self._withdraw(name)
        if not self._serves(request) or not self._fits(request):
            return 0, False
        if self.disk is not None and self.disk.must_ask_later(self._step):
            return None, False
        first, last = num_computed_tokens // size, (request.num_tokens - 1) // size
        self.counts.asked_pages += max(0, last - first)
        found = self._find(request, first, last)
        if found is None:
            return 0, False
        self._answers[name] = answer = TierLoad(found)
        for run in found.runs:
            answer.rows += self.pages.hold(found.hashes, run.group, run.first, run.end)
        self.counts.answered_pages += found.end - first
        return (found.end - first) * size, True

    def update_state_after_alloc(
        self, request: VllmRequest, blocks: BlocksOfRequest, num_external_tokens: int
    ) -> None:
        """Begin the load that was answered, into the blocks of a request."""
        name, table = request.request_id, blocks.get_block_ids()
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
                self._begin_load(request, load, table)
        else:
            self._given[name] = table
        if answer is not None:
            self.pages.let_go(answer.rows)

    def tokens_from_disk(self, request: VllmRequest) -> int:
        """How many tokens of the load that has begun for a request come from the disk."""
        load = self._loads.get(request.request_id)
        return 0 if load is None else load.read_pages * self.shape.block_tokens

    def build_connector_meta(self, scheduler_output: SchedulerOutput) -> StepCopies:
        """Decide the copies that begin with a step."""
        plan = scheduler_output
        given, self._given = self._given, {}
        for name, table in given.items():
            if name not in plan.num_scheduled_tokens:
                # It waits for a load of another connector, which begins with this step.
                self._shared = True
                self._give(table)
        for name in plan.preempted_req_ids or ():
            self._learn_preempted(name)
        for name in plan.num_scheduled_tokens:
            self._unstarted.pop(name, None)
            self._learn_of(name)
        for table in self._tables.follow(plan):
            self._give(table)
        if self._moves:
            self._store_ahead()
        self._step += 1
        stores, awaited = self.jobs.take()
        loads, self._new_loads = self._new_loads, []
        void, self._void = frozenset(self._void), set()
        on_disk = () if self.disk is None else self.disk.take_jobs()
        return StepCopies(self._step, stores, loads, awaited, void, on_disk)

    def update_connector_output(self, connector_output: ConnectorOutput) -> None:
        """Take what all ranks have ended."""
        meta = connector_output.kv_connector_worker_meta
        if isinstance(meta, EndedStores):
            # Another connector may load into a block without a word to this one.
            settled = self.jobs.settle(meta, check_blocks=self._shared)
            if self.disk is not None:
                self.disk.settle(meta.disks, settled)
                self._note_events(self.disk)
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
        if self.disk is not None:
            self.disk.forget(name)
        return False, None

    def has_pending_push_work(self) -> bool:
        """Whether copies to the host or the disk are in flight, so that steps must go on."""
        return self.pages.storing > 0 or (self.disk is not None and self.disk.is_busy)

    def take_events(self) -> Iterable[TierEvent]:
        """The events since the last call."""
        if self.disk is None:
            return [event_of(each) for each in self.pages.take_events()]
        self._note_events(self.disk)
        events, self._events = self._events, []
        return events

    def reset_cache(self) -> bool:
        """Forget all pages, on the host, on the device and in copies.

        Returns: False if a load is in flight for a request, which will compute with what it loads.
        """
        self.counts.resets += 1
        for name in list(self._answers):
            self._withdraw(name)
        self.pages.clear()
        self._tables.clear()
        if self.disk is not None:
            self._note_events(self.disk)
            self.disk.reset()
        live = self._loads.keys() & self._requests.keys()
        for load in self._loads.values():
            load.stale = True
        self._untrusted |= live
        return not live

    def totals(self) -> dict[str, int]:
        """All counters by name."""
        return {**self.counts.as_dict(), **self.pages.counts()}

    def gauges(self) -> dict[str, int]:
        """Present sizes, in pages."""
        return {
            "host_pages": self.pages.on_host,
            "host_rows": self.shape.rows,
            "pinned_pages": self.pages.held,
            "storing_pages": self.pages.storing,
            "loading_requests": len(self._loads),
            **({} if self.disk is None else self.disk.gauges()),
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
        if not self._unstarted or self._pool is None:
            return True
        free = self._pool.get_num_free_blocks()
        return self._most_blocks(request) + sum(self._unstarted.values()) <= free

    def _most_blocks(self, request: VllmRequest) -> int:
        """The most blocks that a request holds before it computes its last token."""
        blocks = request.num_tokens // self.shape.block_tokens + 1
        return blocks * len(self.shape.groups)

    def _find(self, request: VllmRequest, first: int, last: int) -> PagesToLoad | None:
        if self.disk is not None:
            return self.disk.find(request, first, last)
        return find_pages(request.block_hashes, first, last, self.shape, self.pages)

    def _withdraw(self, name: str) -> None:
        """Take an answer back."""
        answer = self._answers.pop(name, None)
        if answer is not None:
            self.pages.let_go(answer.rows)

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

    def _begin_load(self, request: VllmRequest, load: TierLoad, table: Sequence[list[int]]) -> None:
        name = request.request_id
        blocks: list[int] = []
        groups: list[int] = []
        for run in load.found.runs:
            if self.disk is not None:
                prompt = self._event_prompt(request)
                read = self.disk.read(request, load.found.hashes, run, prompt)
                windowed = self.shape.groups[run.group].window_tokens is not None
                load.read_pages += 0 if windowed else read
            # At once, since a store that begins for another page may need a row.
            rows = self.pages.hold_all(
                load.found.hashes, run.group, run.first, run.end, self.jobs.ahead
            )
            if rows is None:
                self.pages.let_go(load.rows)
                self._void.add(name)
                return
            load.rows += rows
            blocks += table[run.group][run.first : run.end]
            groups += [run.group] * len(rows)
        load.table = table
        self._loads[name] = load
        self.counts.loads += 1
        self.counts.loaded_pages += len(blocks)
        self._new_loads.append(
            TierCopyJob(
                self.jobs.next_number(),
                blocks,
                load.rows,
                groups,
                to_host=False,
                request_id=name,
                # Its rows may be filled yet, and its blocks read, by stores.
                after=frozenset(self.pages.jobs_before(blocks, load.rows)),
            )
        )

    def _end_load(self, name: str, *, failed: bool) -> None:
        load, request = self._loads.pop(name, None), self._requests.get(name)
        if failed:
            self.counts.failed_loads += 1
            if request is not None:
                self._failed.add(name)
        if load is None:
            return
        if failed:
            self.pages.drop(load.rows)
            self.pages.let_go(load.rows)
            return
        # Only a request that lives holds the blocks.
        live = request is not None and not load.stale
        if request is not None and live:
            prompt = self._event_prompt(request)
            for run in load.found.runs:
                blocks, hashes = load.table[run.group], load.found.hashes
                span = (run.group, run.first, run.end)
                self.pages.learn(blocks, hashes, *span, prompt, loaded=True)
        self.pages.let_go(load.rows, moved=live and self._moves)

    def _give(self, table: Sequence[Sequence[int]]) -> None:
        """Take note of blocks that requests were given, and save what those held before."""
        if self._pool is None:
            return
        null = self._pool.null_block.block_id
        late = self.jobs.late if self._moves and not self._shared else None
        for row in table:
            self._blocks_used += len(row) - row.count(null)
            self.jobs.wait_for(self.pages.give(row, late))

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
        if self._pool is None or end <= first or request.request_id in self._untrusted:
            return
        if request.mm_features or request.prompt_embeds is not None:
            return
        prompt = self._event_prompt(request)
        for group, row in enumerate(table.blocks):
            # Those blocks alone that vLLM finds under these hashes: others were given away since.
            learnt = self.pages.learn(row, request.block_hashes, group, first, end, prompt)
            if not self._moves:
                self.pages.store(learnt, self.jobs.ahead)

    def _event_prompt(self, request: VllmRequest) -> object:
        """What `HashedPages` keeps for the events of pages, or for their names alone."""
        names = None if self.disk is None else self.disk.names_of(request)
        if not self.shape.events:
            return names
        return event_prompt(request, self.shape.block_tokens, names)

    def _note_events(self, disk: DiskHalf) -> None:
        """Let pages that came to the host go on to the disk, and keep the events of all."""
        for each in self.pages.take_events():
            came, block_hash, group, prompt, at = each
            names = prompt.names if isinstance(prompt, EventPrompt) else prompt
            if came and isinstance(names, PromptNames):
                disk.note_stored(block_hash, group, names, at)
            if self.shape.events:
                self._events.append(event_of(each))

    def _store_ahead(self) -> None:
        """Store what the device evicts next, once half of what was walked last is used up."""
        if self._pool is None or self._blocks_used * 2 < self._ahead:
            return
        self._blocks_used = 0
        queue = self._pool.free_block_queue
        self.pages.store_ahead(queue.fake_free_list_head, self._ahead, self.jobs.ahead)
