"""A small stand-in of the engine around a tier: a pool, requests, steps and a copy engine."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

from attrs import Factory, define, field

from kvcanon.optimized.vllm.disk_news import DiskJob, RankNews
from kvcanon.optimized.vllm.scheduler_half import SchedulerHalf
from kvcanon.optimized.vllm.step_copies import StepCopies, TierCopyJob
from kvcanon.optimized.vllm.tier_shape import PageGroup, Policy, TierShape
from kvcanon.optimized.vllm.worker_half import WorkerHalf

BLOCK_TOKENS = 2


def key_of(block_hash: bytes, group: int) -> bytes:
    """What vLLM's pool has of a block that it finds."""
    return block_hash + group.to_bytes(4, "big")


@define(eq=False)
class FakeBlock:
    """A block of the device."""

    block_id: int
    block_hash: bytes | None = None
    next_free_block: FakeBlock | None = None


@define(eq=False)
class FakePool:
    """A pool whose free queue the test orders."""

    count: int
    blocks: list[FakeBlock] = field(init=False)
    free_block_queue: Any = field(init=False)
    free: int = 100

    def get_num_free_blocks(self) -> int:
        return self.free

    def __attrs_post_init__(self) -> None:
        self.blocks = [FakeBlock(number) for number in range(self.count)]
        self.order([])

    @property
    def null_block(self) -> FakeBlock:
        return self.blocks[0]

    def order(self, free: Sequence[int]) -> None:
        """Let these blocks be free, the one that is evicted next first."""
        chain = [FakeBlock(-1), *(self.blocks[each] for each in free), FakeBlock(-2)]
        for before, after in pairwise(chain):
            before.next_free_block = after
        chain[-1].next_free_block = None
        self.free_block_queue = SimpleNamespace(fake_free_list_head=chain[0])


@define(eq=False)
class FakeCopies:
    """Copies that end when the test says so."""

    jobs: dict[int, TierCopyJob] = Factory(dict)
    waited: list[int] = Factory(list)
    failing: set[int] = Factory(set)

    def mark_step(self) -> None: ...

    def begin(self, job: TierCopyJob) -> None:
        self.jobs[job.number] = job

    def wait(self, numbers: Collection[int]) -> None:
        self.waited.extend(sorted(numbers))

    def ended(self) -> list[tuple[TierCopyJob, bool]]:
        jobs, self.jobs = self.jobs, {}
        return [(job, number not in self.failing) for number, job in jobs.items()]

    def close(self) -> None: ...


@define(eq=False)
class FakeDisk:
    """A disk below a tier, whose jobs end with the step that begins them.

    It outlives the engines over it, and says what it has to each new one.
    """

    jobs: list[DiskJob] = Factory(list)
    """All that were begun."""
    failing: bool = False
    losing: set[tuple[bytes, int]] = Factory(set)
    """Pages that are gone when they are read."""
    is_usable: bool = True
    is_slow: bool = False
    """Whether nothing ends."""
    pages: set[tuple[bytes, int]] = Factory(set)
    _open: list[DiskJob] = Factory(list)
    _news: dict[tuple[bytes, int], bool] = Factory(dict)

    def opened(self) -> FakeDisk:
        """The same for a new engine."""
        return FakeDisk(pages=self.pages, news=dict.fromkeys(self.pages, True))

    def begin(self, job: DiskJob) -> None:
        self.jobs.append(job)
        self._open.append(job)

    def ended(self) -> list[tuple[DiskJob, bool]]:
        if self.is_slow:
            return []
        jobs, self._open = self._open, []
        return [(job, self._moved(job)) for job in jobs]

    def news(self) -> RankNews | None:
        news, self._news = self._news, {}
        return RankNews(news, self.is_usable)

    def close(self) -> None: ...

    def _moved(self, job: DiskJob) -> bool:
        gone = self.losing & set(job.pages)
        if self.failing or (gone and not job.to_disk):
            self._news |= dict.fromkeys(gone, False)
            return False
        if job.to_disk:
            self.pages |= set(job.pages)
            self._news |= dict.fromkeys(job.pages, True)
        return set(job.pages) <= self.pages


@define(eq=False)
class FakeRequest:
    """A request whose hashes are readable."""

    request_id: str
    blocks: int
    start: str = "p"
    num_computed_tokens: int = 0
    cache_salt: str | None = None
    skip_reading_prefix_cache: bool | None = None
    lora_request: Any = None
    mm_features: Sequence[object] = ()
    prompt_embeds: object = None
    num_output_placeholders: int = 0
    process: str = ""
    """What its hashes begin with, as those of vLLM with a number of the process."""

    @property
    def num_tokens(self) -> int:
        return self.blocks * BLOCK_TOKENS + 1

    @property
    def all_token_ids(self) -> list[int]:
        return [1000 * ord(self.start) + at for at in range(self.num_tokens)]

    @property
    def block_hashes(self) -> list[bytes]:
        own = f"{self.process}{self.cache_salt or ''}{self.start}"
        return [f"{own}{at}".encode() for at in range(self.blocks)]

    def is_finished(self) -> bool:
        return False


@define(eq=False)
class TierEngine:
    """A tier over one rank, and what an engine does with it."""

    rows: int = 8
    device_blocks: int = 17
    policy: Policy = Policy.WRITE_BACK
    groups: Sequence[PageGroup] = (PageGroup(),)
    half: SchedulerHalf = field(init=False)
    worker: WorkerHalf = field(init=False)
    pool: FakePool = field(init=False)
    copies: FakeCopies = Factory(FakeCopies)
    disk: FakeDisk | None = None
    events: bool = True

    def __attrs_post_init__(self) -> None:
        self.half = SchedulerHalf(
            TierShape(
                self.rows,
                BLOCK_TOKENS,
                self.groups,
                step_blocks=4,
                policy=self.policy,
                events=self.events,
                disk=self.disk is not None,
            )
        )
        self.pool = FakePool(self.device_blocks)
        self.half.bind_gpu_block_pool(self.pool)
        self.worker = WorkerHalf(lambda _: self.copies, lambda: self.disk)
        self.worker.register_kv_caches({})

    def compute(self, request: FakeRequest, *tables: list[int]) -> StepCopies:
        """Let a request compute all its blocks in these, and end."""
        self.half.on_new_request(request)
        for group, table in enumerate(tables):
            for at, block in enumerate(table):
                if block:
                    self.pool.blocks[block].block_hash = key_of(request.block_hashes[at], group)
        copies = self.step(new=[(request, tables)])
        request.num_computed_tokens = request.blocks * BLOCK_TOKENS
        self.half.request_finished_all_groups(request, tuple(tables))
        return copies

    def step(
        self,
        new: Sequence[tuple[FakeRequest, Sequence[list[int]]]] = (),
        preempted: Collection[str] = (),
    ) -> StepCopies:
        """Run a step of the engine; copies end with it."""
        copies = self.decide(new, preempted)
        self.work(copies)
        return copies

    def decide(
        self,
        new: Sequence[tuple[FakeRequest, Sequence[list[int]]]] = (),
        preempted: Collection[str] = (),
    ) -> StepCopies:
        """Let the scheduler's half decide a step."""
        cached = SimpleNamespace(
            req_ids=[], resumed_req_ids=set(), new_block_ids=[], num_computed_tokens=[]
        )
        plan = SimpleNamespace(
            scheduled_new_reqs=[
                SimpleNamespace(req_id=each.request_id, block_ids=table, num_computed_tokens=0)
                for each, table in new
            ],
            scheduled_cached_reqs=cached,
            num_scheduled_tokens={each.request_id: each.blocks * BLOCK_TOKENS for each, _ in new},
            scheduled_spec_decode_tokens={},
            preempted_req_ids=set(preempted),
        )
        return self.half.build_connector_meta(plan)

    def work(self, copies: StepCopies) -> None:
        """Let the worker's half run a step, and the scheduler's take what ended."""
        self.worker.handle_preemptions(copies)
        self.worker.bind_connector_metadata(copies)
        self.worker.start_load_kv(None)
        results = self.worker.get_transfer_results(set())
        meta = self.worker.build_connector_worker_meta()
        self.worker.clear_connector_metadata()
        self.half.update_connector_output(
            SimpleNamespace(
                finished_recving=results.finished_recving,
                failed_recving=results.failed_recving,
                kv_connector_worker_meta=meta,
            )
        )

    def ask(self, request: FakeRequest, local_tokens: int = 0) -> int | None:
        """Ask what can be loaded for a request; None for later."""
        self.half.on_new_request(request)
        return self.half.get_num_new_matched_tokens(request, local_tokens)[0]

    def load(self, request: FakeRequest, tokens: int, *tables: list[int]) -> None:
        """Give a request blocks, into which what was answered is loaded."""
        for row in tables:
            for block in row:
                self.pool.blocks[block].block_hash = None
        blocks = SimpleNamespace(get_block_ids=lambda: tuple(tables))
        self.half.update_state_after_alloc(request, blocks, tokens)
