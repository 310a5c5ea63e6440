"""A plain connector: a dictionary of host rows by block hash, written through.

The engine is proved on it: faults are planted in it that the engine must find. It is sound, and has
nothing else to recommend it.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Any

from attrs import Factory, define, evolve, field, frozen

from kvcanon.lab.connectors.block_pool import NULL_BLOCK_ID, StandInPool
from kvcanon.lab.connectors.block_tables import BlocksByGroup, BlockTables
from kvcanon.lab.connectors.connector_calls import ConnectorHalves, ConnectorReport, TransferResults
from kvcanon.lab.connectors.engine_request import StandInRequest
from kvcanon.lab.connectors.engine_shape import EngineShape
from kvcanon.lab.connectors.late_copies import BlockCopy, CopiedBlock, CopyTimes, LateCopies
from kvcanon.lab.connectors.step_plan import StepPlan

HostKey = tuple[bytes, int]
"""Block hash and group."""


@frozen
class BlocksStored:
    """An event: blocks are in the host."""

    block_hashes: tuple[bytes, ...]
    parent_block_hash: bytes | None
    token_ids: tuple[int, ...]
    block_size: int
    group_idx: int
    lora_name: str | None
    medium: str = "CPU"


@frozen
class BlocksRemoved:
    """An event: blocks are no longer in the host."""

    block_hashes: tuple[bytes, ...]
    group_idx: int
    medium: str = "CPU"


@frozen
class PlainMetadata:
    """The copies that begin with a step."""

    jobs: tuple[BlockCopy, ...]
    preempted: bool


@frozen
class EndedJobs:
    """How many ranks ended each store, and how many moved its bytes."""

    ended: Counter[int]
    moved: Counter[int]

    def aggregate(self, other: EndedJobs) -> EndedJobs:
        """The sums."""
        return EndedJobs(self.ended + other.ended, self.moved + other.moved)


@define(eq=False)
class HostRow:
    """A block in the host."""

    row: int
    stored: BlocksStored
    pins: int = 0
    found: bool = True
    """Whether it is in the dictionary; a pinned row outlives that."""


@define
class StoreBegun:
    """A store in flight."""

    key: HostKey
    host: HostRow
    block_id: int
    reset: bool = False
    """Whether the cache was reset since it began."""


@define
class PinnedLoad:
    """What was answered for a request, or is being loaded for it."""

    places: tuple[tuple[int, int], ...]
    """Of each block its place in the prompt, and its group."""
    keys: tuple[HostKey, ...]
    blocks: tuple[CopiedBlock, ...] = ()
    rows: tuple[HostRow, ...] = ()


@define(eq=False)
class PlainScheduler:
    """The scheduler's half."""

    shape: EngineShape
    rows: int
    """Blocks that the host has room for."""
    pool: StandInPool = field(init=False)
    _host: OrderedDict[HostKey, HostRow] = Factory(OrderedDict)
    """Least recently used first."""
    _free_rows: list[int] = Factory(list)
    _known: dict[str, StandInRequest] = Factory(dict)
    _tables: dict[str, list[list[int]]] = Factory(dict)
    _pinned: dict[str, PinnedLoad] = Factory(dict)
    """Answers that were not taken up yet."""
    _loads: dict[str, PinnedLoad] = Factory(dict)
    _new_jobs: list[BlockCopy] = Factory(list)
    _stores: dict[int, StoreBegun] = Factory(dict)
    _storing: set[HostKey] = Factory(set)
    _next_job: int = 0
    _ended: Counter[int] = Factory(Counter)
    _moved: Counter[int] = Factory(Counter)
    _events: list[object] = Factory(list)

    def __attrs_post_init__(self) -> None:
        self._free_rows = list(range(self.rows))

    def bind_kv_cache_manager(self, manager: BlockTables) -> None:
        """Take the engine's block pool."""
        self.pool = manager.block_pool

    def on_new_request(self, request: StandInRequest) -> None:
        """Remember a request."""
        self._known[request.request_id] = request

    def get_num_new_matched_tokens(
        self, request: StandInRequest, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        """Answer how many tokens after the local ones are in the host, and pin them."""
        self._unpin(request.request_id)
        if request.skip_reading_prefix_cache:
            return 0, False
        size = self.shape.block_tokens
        first, end = num_computed_tokens // size, self.end_of_hit(request, num_computed_tokens)
        if end <= first:
            return 0, False
        places = tuple(
            (at, number)
            for number in range(len(self.shape.groups))
            for at in range(max(first, self.first_needed(number, end)), end)
        )
        keys = tuple(self.key_of(request, at, number) for at, number in places)
        load = PinnedLoad(places, keys, rows=tuple(self._host[key] for key in keys))
        self.pin(load)
        self._pinned[request.request_id] = load
        return (end - first) * size, True

    def update_state_after_alloc(
        self, request: StandInRequest, blocks: BlocksByGroup, num_external_tokens: int
    ) -> None:
        """Begin the load that was answered."""
        name, ids = request.request_id, blocks.get_block_ids()
        if not num_external_tokens:
            self._unpin(name)
            return
        load = self._pinned.pop(name)
        load.blocks = tuple(
            CopiedBlock(ids[group][at], host.row, group)
            for (at, group), host in zip(load.places, load.rows, strict=True)
        )
        self._loads[name] = load
        self._begin(load.blocks, to_host=False, request_id=name)

    def build_connector_meta(self, scheduler_output: StepPlan) -> PlainMetadata:
        """Begin stores of what earlier steps have computed."""
        self._follow_tables(scheduler_output)
        for name in scheduler_output.num_scheduled_tokens:
            self._store_computed(name)
        jobs, self._new_jobs = tuple(self._new_jobs), []
        return PlainMetadata(jobs, bool(scheduler_output.preempted_req_ids))

    def update_connector_output(self, connector_output: ConnectorReport) -> None:
        """Take what ended."""
        ended = connector_output.kv_connector_worker_meta
        if ended is not None:
            self._ended += ended.ended
            self._moved += ended.moved
            for number in [job for job, ranks in self._ended.items() if ranks == self.shape.ranks]:
                moved = self._moved.pop(number, 0)
                del self._ended[number]
                self.end_store(number, moved=moved == self.shape.ranks)
        for name in connector_output.finished_recving or ():
            load = self._loads.pop(name)
            self.unpin(load)
            if name in connector_output.failed_recving:
                self.forget_failed(load)

    def request_finished_all_groups(
        self, request: StandInRequest, block_ids: tuple[list[int], ...]
    ) -> tuple[bool, Mapping[str, object] | None]:
        """Forget a request; blocks that a store reads are held by touch."""
        del block_ids
        self._unpin(request.request_id)
        self._known.pop(request.request_id, None)
        self._tables.pop(request.request_id, None)
        return False, None

    def has_pending_push_work(self) -> bool:
        """Whether stores are in flight."""
        return bool(self._stores)

    def take_events(self) -> Iterable[object]:
        """The events since the last call."""
        events, self._events = self._events, []
        return events

    def reset_cache(self) -> bool | None:
        """Forget all that is stored, or being stored."""
        for store in self._stores.values():
            store.reset = True
        for name in list(self._pinned):
            self._unpin(name)
        for key in list(self._host):
            self.forget(key)
        return True

    def end_of_hit(self, request: StandInRequest, computed: int) -> int:
        """The block at which the longest hit ends that all groups have."""
        size = self.shape.block_tokens
        first, end = computed // size, (request.num_tokens - 1) // size
        for number in range(len(self.shape.groups)):
            there = [at < first or self.has(self.key_of(request, at, number)) for at in range(end)]
            if self.shape.groups[number].window_tokens is None:
                end = next((at for at, held in enumerate(there) if not held), end)
            else:
                while end > first and not all(there[self.first_needed(number, end) : end]):
                    end -= 1
        return end

    def first_needed(self, group: int, end: int) -> int:
        """The first block that a group needs of a hit that ends there."""
        needed = self.shape.groups[group].blocks_of_hit(self.shape.block_tokens)
        return 0 if needed is None else max(0, end - needed)

    def has(self, key: HostKey) -> bool:
        """Whether a block is in the host."""
        return key in self._host

    def pin(self, load: PinnedLoad) -> None:
        """Hold the rows of a load."""
        for key, host in zip(load.keys, load.rows, strict=True):
            host.pins += 1
            self._host.move_to_end(key)

    def unpin(self, load: PinnedLoad) -> None:
        """Let go of the rows of a load."""
        for host in load.rows:
            host.pins -= 1
            self.free_row_of(host)

    def free_row_of(self, host: HostRow) -> None:
        """Use a row again that nothing holds and nothing finds."""
        if not host.pins and not host.found:
            self._free_rows.append(host.row)

    def forget_failed(self, load: PinnedLoad) -> None:
        """Forget what could not be loaded, so that nobody asks for it again."""
        for key in load.keys:
            if key in self._host:
                self.forget(key)

    def forget(self, key: HostKey) -> None:
        """Take a block out of the host."""
        host = self._host.pop(key)
        host.found = False
        self._events.append(BlocksRemoved((key[0],), key[1]))
        self.free_row_of(host)

    def key_of(self, request: StandInRequest, at: int, group: int) -> HostKey:
        """Under which key a block is stored."""
        return request.block_hashes[at], group

    def hold_source(self, block_id: int) -> None:
        """Hold the block that a store reads."""
        self.pool.touch([self.pool.blocks[block_id]])

    def free_source(self, block_id: int) -> None:
        """Let go of the block that a store has read."""
        self.pool.free_blocks([self.pool.blocks[block_id]])

    def begin_store(self, key: HostKey, block_id: int, stored: BlocksStored) -> None:
        """Copy a block into the host, if there is a row for it."""
        row = self._row()
        if row is None:
            return
        self.hold_source(block_id)
        number = self._begin((CopiedBlock(block_id, row, key[1]),), to_host=True)
        self._stores[number] = StoreBegun(key, HostRow(row, stored), block_id)
        self._storing.add(key)

    def end_store(self, number: int, *, moved: bool) -> None:
        """Let a block be found that was stored."""
        store = self._stores.pop(number)
        self._storing.discard(store.key)
        self.free_source(store.block_id)
        if moved and not store.reset and store.key not in self._host:
            self._host[store.key] = store.host
            self._events.append(store.host.stored)
        else:
            self._free_rows.append(store.host.row)

    def _unpin(self, name: str) -> None:
        load = self._pinned.pop(name, None)
        if load is not None:
            self.unpin(load)

    def _begin(self, blocks: Sequence[CopiedBlock], *, to_host: bool, request_id: str = "") -> int:
        number, self._next_job = self._next_job, self._next_job + 1
        self._new_jobs.append(BlockCopy(number, tuple(blocks), to_host, request_id))
        return number

    def _row(self) -> int | None:
        """A free row; the least recently used block that nobody pins makes room for it."""
        if not self._free_rows:
            key = next((key for key, host in self._host.items() if not host.pins), None)
            if key is None:
                return None
            self.forget(key)
        return self._free_rows.pop()

    def _follow_tables(self, plan: StepPlan) -> None:
        for name in plan.preempted_req_ids:
            self._tables.pop(name, None)
        for new in plan.scheduled_new_reqs:
            self._tables[new.req_id] = [list(row) for row in new.block_ids]
        cached = plan.scheduled_cached_reqs
        for name, added in zip(cached.req_ids, cached.new_block_ids, strict=True):
            if name in cached.resumed_req_ids:
                self._tables[name] = [list(row) for row in added or ()]
            else:
                for row, new_ids in zip(self._tables[name], added or (), strict=False):
                    row.extend(new_ids)

    def _store_computed(self, name: str) -> None:
        request = self._known[name]
        computed = request.num_computed_tokens
        size = self.shape.block_tokens
        for group, row in enumerate(self._tables[name]):
            first = self.shape.groups[group].skipped_blocks(computed, size)
            for at in range(first, min(computed // size, len(row))):
                key = self.key_of(request, at, group)
                if row[at] == NULL_BLOCK_ID or self.has(key) or key in self._storing:
                    continue
                self.begin_store(key, row[at], self._event_of(request, at, group))

    def _event_of(self, request: StandInRequest, at: int, group: int) -> BlocksStored:
        size, adapter = self.shape.block_tokens, request.lora_request
        return BlocksStored(
            (request.block_hashes[at],),
            request.block_hashes[at - 1] if at else None,
            tuple(request.all_token_ids[at * size : (at + 1) * size]),
            size,
            group,
            adapter.lora_name if adapter else None,
        )


@define(eq=False)
class PlainWorker:
    """The worker's half."""

    shape: EngineShape
    rows: int
    times: CopyTimes
    random: Random
    copies: LateCopies = field(init=False)
    _metadata: PlainMetadata = PlainMetadata((), preempted=False)
    _ended: list[tuple[BlockCopy, bool]] = Factory(list)

    def register_kv_caches(self, kv_caches: Mapping[str, Any]) -> None:
        """Take the device's memory, and make the host's."""
        self.copies = LateCopies(kv_caches, self.shape.groups, self.rows, self.times, self.random)

    def handle_preemptions(self, kv_connector_metadata: PlainMetadata) -> None:
        """Do nothing: the scheduler's half holds what stores read."""

    def bind_connector_metadata(self, connector_metadata: PlainMetadata) -> None:
        """Take what begins with this step."""
        self._metadata = connector_metadata

    def start_load_kv(self, forward_context: object) -> None:
        """Begin the loads."""
        del forward_context
        for job in self._metadata.jobs:
            if not job.to_host:
                self.copies.begin(job)

    def wait_for_save(self) -> None:
        """Begin the stores."""
        for job in self._metadata.jobs:
            if job.to_host:
                self.copies.begin(job)

    def get_transfer_results(self, finished_req_ids: set[str]) -> TransferResults:
        """Say which loads ended."""
        del finished_req_ids
        self._ended = self.copies.tick()
        loads = [(job, moved) for job, moved in self._ended if not job.to_host]
        return TransferResults(
            finished_recving=frozenset(job.request_id for job, _ in loads),
            failed_recving=frozenset(job.request_id for job, moved in loads if not moved),
        )

    def get_block_ids_with_load_errors(self) -> set[int]:
        """None: failures are named by request."""
        return set()

    def build_connector_worker_meta(self) -> EndedJobs:
        """Say which stores ended."""
        stores = [(job.number, moved) for job, moved in self._ended if job.to_host]
        return EndedJobs(
            Counter(number for number, _ in stores),
            Counter(number for number, moved in stores if moved),
        )

    def clear_connector_metadata(self) -> None:
        """Forget the step."""
        self._metadata = evolve(self._metadata, jobs=(), preempted=False)


def plain_connector(
    shape: EngineShape,
    times: CopyTimes,
    seed: int,
    rows: int,
    halves: tuple[type[PlainScheduler], type[PlainWorker]] = (PlainScheduler, PlainWorker),
) -> ConnectorHalves:
    """Make both halves of a plain connector, or of classes that are derived from its own."""
    scheduler, worker = halves
    return ConnectorHalves(
        scheduler(shape, rows),
        [
            worker(shape, rows, times, Random(f"copies {seed} {rank}"))
            for rank in range(shape.ranks)
        ],
    )
