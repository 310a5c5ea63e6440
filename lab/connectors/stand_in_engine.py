"""The engine: requests come, steps run, and the referee looks on.

What the referee checks is in `BreachKind`. The first fault ends the run, since an engine that has
read wrong bytes says nothing true any more.
"""

from __future__ import annotations

from random import Random
from time import sleep
from typing import Any

from kvcanon.lab.connectors.announced import Announced
from kvcanon.lab.connectors.connector_calls import ConnectorHalves
from kvcanon.lab.connectors.engine_request import EngineRequest, RequestState
from kvcanon.lab.connectors.engine_scheduler import EngineScheduler
from kvcanon.lab.connectors.engine_shape import EngineShape
from kvcanon.lab.connectors.finding import BreachKind, BrokenConnector
from kvcanon.lab.connectors.ranks import EngineRank, ForwardPart, ReportCounter
from kvcanon.lab.connectors.stamps import StampedMemory, Stamps, token_stamps
from kvcanon.lab.connectors.step_plan import StepPlan

STALLED_STEPS = 400
"""So many steps without a token, while requests wait, are a hang."""
VOCABULARY = 50_000


class StandInEngine:
    """An engine around a connector."""

    def __init__(
        self,
        shape: EngineShape,
        connector: ConnectorHalves,
        *,
        seed: int = 0,
        loads_first: bool = False,
        announces: bool = True,
        idle_seconds: float = 0.0,
    ) -> None:
        """Make an empty engine.

        `announces` says whether the connector emits events; `idle_seconds` is how long a step
        without tokens takes, for connectors whose copies run in threads.
        """
        self.shape, self.connector = shape, connector
        self.scheduler = EngineScheduler(shape, connector.scheduler)
        self.ranks = [
            EngineRank(number, StampedMemory(shape, number), worker, loads_first)
            for number, worker in enumerate(connector.workers)
        ]
        self.announced = Announced(shape, connector.hash_of_event)
        self.announces = announces
        self.steps = self.finished = 0
        self._idle_seconds = idle_seconds
        self._counter = ReportCounter(len(self.ranks))
        self._random = Random(f"tokens {seed}")
        self._epoch = self._stalled = 0
        self._stamps: dict[str, tuple[int, Stamps]] = {}
        for rank in self.ranks:
            rank.worker.register_kv_caches(rank.memory.layers())
        self._bind_pool()

    def add(self, request: EngineRequest) -> None:
        """Take a new request."""
        self.announced.learn(request)
        self.scheduler.add(request)

    def abort(self, request: EngineRequest) -> None:
        """End a request as its client does that went away."""
        if not request.is_finished():
            self.scheduler.finish(request)
            self._stamps.pop(request.request_id, None)

    def step(self) -> StepPlan:
        """Run one step. Raises: BrokenConnector."""
        plan = self.scheduler.plan()
        plan.kv_connector_metadata = self.connector.scheduler.build_connector_meta(plan)
        parts = [self._part(name, tokens) for name, tokens in plan.num_scheduled_tokens.items()]
        self.scheduler.advance(plan)
        report = self._counter.report_of([rank.step(plan, parts) for rank in self.ranks])
        before = {each.request_id for each in self.scheduler.unfinished()}
        self.scheduler.settle(plan, report, self._random.randrange(VOCABULARY))
        after = self.scheduler.unfinished()
        for request in after:
            self.announced.learn(request)
        ended = before - {each.request_id for each in after}
        self.finished += len(ended)
        for name in ended:
            self._stamps.pop(name, None)
        self.announced.take(self.connector.scheduler.take_events() or ())
        self.steps += 1
        self._count_stalls(plan, ended=bool(ended))
        return plan

    def run_until_idle(self) -> None:
        """Step until vLLM would step no more. Raises: BrokenConnector."""
        while self.scheduler.has_work():
            self.step()

    def reset(self) -> bool:
        """Change the weights, and empty both caches, as an engine does that is trained.

        Requests that a load is in flight for are aborted, running ones begin anew. Returns: whether
        the connector did it; if not, nothing of the device was reset either.
        """
        for request in self.scheduler.loading():
            self.abort(request)
        self.scheduler.preempt_all()
        if self.connector.scheduler.reset_cache() is False:
            return False
        for block in self.scheduler.tables.block_pool.blocks:
            # Blocks may be held still, for copies that end; their bytes are found no more.
            self.scheduler.tables.block_pool.forget(block)
        self._epoch += 1
        self._stamps.clear()
        self.announced.take(self.connector.scheduler.take_events() or ())
        return True

    def check_served(self, request: EngineRequest) -> None:
        """Ask what can be loaded for a prompt, and hold it against what events say.

        The request is new, and ends with this call.
        """
        if not self.announces:
            return
        self.announced.learn(request)
        half = self.connector.scheduler
        half.on_new_request(request)
        answer, _ = half.get_num_new_matched_tokens(request, 0)
        request.state = RequestState.FINISHED
        half.request_finished_all_groups(request, tuple([] for _ in self.shape.groups))
        announced = self.announced.prefix_tokens(request, 0)
        if answer is not None and answer > announced:
            raise BrokenConnector(
                BreachKind.UNANNOUNCED,
                f"{answer} tokens of {request.request_id}, {announced} announced",
            )
        if answer is not None and answer < announced and not self.scheduler.requests:
            raise BrokenConnector(
                BreachKind.NOT_SERVED,
                f"{answer} tokens of {request.request_id}, {announced} announced",
            )

    def check_at_rest(self) -> None:
        """Whether all blocks of the device are free, once everything ended."""
        pool = self.scheduler.tables.block_pool
        held = [block.block_id for block in pool.blocks[1:] if block.ref_cnt]
        if held:
            raise BrokenConnector(BreachKind.BLOCKS_KEPT, f"{len(held)}, the first is {held[0]}")

    def _part(self, name: str, tokens: int) -> ForwardPart:
        request = self.scheduler.requests[name]
        first = request.num_computed_tokens
        table = self.scheduler.tables.blocks_of(name).get_block_ids()
        return ForwardPart(name, table, self._stamps_of(request), first, first + tokens)

    def _stamps_of(self, request: EngineRequest) -> Stamps:
        length, stamps = self._stamps.get(request.request_id, (0, None))
        if stamps is None or length != request.num_tokens:
            stamps = token_stamps(request.namespace, self._epoch, request.all_token_ids)
            self._stamps[request.request_id] = (request.num_tokens, stamps)
        return stamps

    def _count_stalls(self, plan: StepPlan, *, ended: bool) -> None:
        if plan.num_scheduled_tokens or ended or not self.scheduler.requests:
            self._stalled = 0
            return
        self._stalled += 1
        sleep(self._idle_seconds)
        if self._stalled >= STALLED_STEPS:
            waiting = {
                name: f"{each.state.name}, {self.scheduler.tables.held().get(name, 0)} blocks"
                for name, each in self.scheduler.requests.items()
            }
            free = self.scheduler.tables.block_pool.get_num_free_blocks()
            raise BrokenConnector(
                BreachKind.HANG, f"{STALLED_STEPS} steps, {free} blocks are free, {waiting}"
            )

    def _bind_pool(self) -> None:
        """Give the connector the block pool, in the way that it takes it."""
        half: Any = self.connector.scheduler
        if hasattr(half, "bind_kv_cache_manager"):
            half.bind_kv_cache_manager(self.scheduler.tables)
        elif hasattr(half, "bind_gpu_block_pool"):
            half.bind_gpu_block_pool(self.scheduler.tables.block_pool)
