"""The engine's scheduler: queues, admission, preemption, and what it tells a connector.

The order of calls is that of vLLM's `Scheduler.schedule` and `update_from_output`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attrs import Factory, define, field

from kvcanon.lab.connectors.block_tables import BlockTables, Table
from kvcanon.lab.connectors.connector_calls import ConnectorOfScheduler, ConnectorReport
from kvcanon.lab.connectors.engine_request import RequestState, StandInRequest
from kvcanon.lab.connectors.engine_shape import EngineShape, Queueing
from kvcanon.lab.connectors.finding import BreachKind, BrokenConnector
from kvcanon.lab.connectors.step_plan import NewRequestPlan, StepPlan

LOADS_A_REQUEST = 8
"""More loads than these and one a preemption are one load that is asked for again and again."""


@define
class _Skipped:
    """The requests that a step passed over, in order."""

    holding: list[StandInRequest] = Factory(list)
    others: list[StandInRequest] = Factory(list)


@define(eq=False)
class EngineScheduler:
    """Decides what each step computes."""

    shape: EngineShape
    connector: ConnectorOfScheduler
    tables: BlockTables = field(
        default=Factory(lambda self: BlockTables(self.shape), takes_self=True)
    )
    requests: dict[str, StandInRequest] = Factory(dict)
    """All that have not given back their blocks."""
    waiting: deque[StandInRequest] = Factory(deque)
    skipped: deque[StandInRequest] = Factory(deque)
    """Under `HOLDERS_FIRST` those that hold blocks, under `SKIPPED_FIRST` all that were skipped."""
    running: list[StandInRequest] = Factory(list)
    external_tokens: int = 0
    """Tokens that connectors were asked to load."""
    local_tokens: int = 0
    """Tokens that were found on the device."""
    preemptions: int = 0
    failed_loads: int = 0
    _finished: set[str] = Factory(set)
    _preempted: set[str] = Factory(set)
    """Requests that ended, and that were preempted, since the last plan."""
    _loaded: set[str] = Factory(set)
    _failed: set[str] = Factory(set)
    _in_flight: dict[str, StandInRequest] = Factory(dict)
    """Requests that hold blocks and need more of them to end their prompt."""

    def __attrs_post_init__(self) -> None:
        half: Any = self.connector
        if hasattr(half, "bind_kv_cache_manager"):
            half.bind_kv_cache_manager(self.tables)
        elif hasattr(half, "bind_gpu_block_pool"):
            half.bind_gpu_block_pool(self.tables.block_pool)

    def add(self, request: StandInRequest) -> None:
        """Take a new request."""
        self.requests[request.request_id] = request
        self.waiting.append(request)
        self.connector.on_new_request(request)

    def has_work(self) -> bool:
        """Whether vLLM would make another step."""
        return bool(self.requests or self._finished or self.connector.has_pending_push_work())

    def unfinished(self) -> list[StandInRequest]:
        """The requests that did not end."""
        return [each for each in self.requests.values() if not each.is_finished()]

    def loading(self) -> list[StandInRequest]:
        """The requests that a connector loads for."""
        waits = RequestState.WAITING_FOR_REMOTE_KVS
        return [each for each in self.requests.values() if each.state is waits]

    def ended_loads(self) -> list[StandInRequest]:
        """Those of them whose load has ended, so that a step need only look at them."""
        return [each for each in self.loading() if each.request_id in self._loaded]

    def plan(self) -> StepPlan:
        """Decide what the next step computes, and tell the connector."""
        plan = StepPlan()
        budget, preempted = self._plan_running(plan, self.shape.step_tokens)
        if not preempted:
            self._plan_waiting(plan, budget)
        plan.preempted_req_ids, self._preempted = self._preempted, set()
        plan.finished_req_ids, self._finished = self._finished, set()
        plan.kv_connector_metadata = self.connector.build_connector_meta(plan)
        # Only now, so that a connector sees what earlier steps have computed.
        for name, tokens in plan.num_scheduled_tokens.items():
            self.requests[name].num_computed_tokens += tokens
        return plan

    def settle(self, plan: StepPlan, report: ConnectorReport, token: int) -> None:
        """Take what a step has computed, and what a connector has finished."""
        self._take_failures(report)
        for name in plan.num_scheduled_tokens:
            request = self.requests.get(name)
            if request is None or request.state is not RequestState.RUNNING:
                continue
            if request.num_computed_tokens < request.num_tokens:
                continue
            self._in_flight.pop(name, None)
            request.append_token(token)
            if request.num_output_tokens >= request.max_tokens:
                self.finish(request)
        self.connector.update_connector_output(report)
        self._take_finished(report)

    def finish(self, request: StandInRequest) -> None:
        """End a request in whatever state it is."""
        name, loading = request.request_id, False
        if request.state is RequestState.WAITING_FOR_REMOTE_KVS:
            loading = name not in self._loaded
            self._loaded.discard(name)
            self._failed.discard(name)
        for queue in (self.waiting, self.skipped, self.running):
            if request in queue:
                queue.remove(request)
        request.state = RequestState.FINISHED
        self._in_flight.pop(name, None)
        computed = request.num_computed_tokens
        self.tables.drop_skipped(request, computed)
        whole = -(-computed // self.shape.block_tokens)
        ids = tuple(row[:whole] for row in self.tables.blocks_of(name).get_block_ids())
        keep, _ = self.connector.request_finished_all_groups(request, ids)
        self._finished.add(name)
        if not keep and not loading:
            self._let_go(request)

    def table_of(self, request: StandInRequest) -> Sequence[Sequence[int]]:
        """The block ids of a request, by group."""
        return self.tables.blocks_of(request.request_id).get_block_ids()

    def has_on_device(self, block_hash: bytes, group: int) -> bool:
        """Whether a block of a group is found on the device."""
        return self.tables.block_pool.get_cached_block(block_hash, [group]) is not None

    def held_blocks(self) -> Sequence[int]:
        """The ids of all blocks that something holds."""
        return [block.block_id for block in self.tables.block_pool.blocks[1:] if block.ref_cnt]

    def open_requests(self) -> Mapping[str, str]:
        """Those that hold blocks or wait, by id, each with a word on where it is."""
        held = self.tables.held()
        return {
            name: f"{each.state.name}, {held.get(name, 0)} blocks"
            for name, each in self.requests.items()
        }

    def take_events(self) -> Iterable[Any]:
        """The connector's events since the last call."""
        return self.connector.take_events() or ()

    def end_unscheduled(self, request: StandInRequest) -> None:
        """End a request that was never added, of which the connector was only asked."""
        request.state = RequestState.FINISHED
        no_blocks: tuple[list[int], ...] = tuple([] for _ in self.shape.groups)
        self.connector.request_finished_all_groups(request, no_blocks)

    def made(self, request: StandInRequest) -> StandInRequest:
        """The request as this scheduler takes it."""
        return request

    def reset(self) -> bool:
        """Empty both caches. Returns: whether the connector did it; if not, nothing was reset."""
        self.preempt_all()
        if self.connector.reset_cache() is False:
            return False
        for block in self.tables.block_pool.blocks:
            # Blocks may be held still, for copies that end; what they hold is found no more.
            self.tables.block_pool.forget(block)
        return True

    def preempt_all(self) -> None:
        """Send all requests that hold blocks back to wait, as a reset of the cache does."""
        while self.running:
            self._preempt(self.running.pop())
        for request in (*self.waiting, *self.skipped):
            # A load has ended for it, and it did not run yet.
            self.tables.free(request)
            request.num_computed_tokens = 0
        # Nothing holds a block any more.
        self.waiting.extendleft(reversed(self.skipped))
        self.skipped.clear()

    def _plan_running(self, plan: StepPlan, budget: int) -> tuple[int, bool]:
        preempted, at = False, 0
        while at < len(self.running) and budget:
            request = self.running[at]
            tokens = min(request.num_tokens - request.num_computed_tokens, budget)
            new = self._grown(request, tokens)
            while new is None:
                if self._frees_soon():
                    return budget, preempted
                victim = self.running.pop()
                self._preempt(victim)
                preempted = True
                if victim is request:
                    return budget, True
                new = self._grown(request, tokens)
            cached = plan.scheduled_cached_reqs
            cached.req_ids.append(request.request_id)
            cached.new_block_ids.append(new if any(new) else None)
            cached.num_computed_tokens.append(request.num_computed_tokens)
            cached.num_output_tokens.append(request.num_output_tokens)
            plan.num_scheduled_tokens[request.request_id] = tokens
            budget -= tokens
            at += 1
        return budget, preempted

    def _grown(self, request: StandInRequest, tokens: int) -> tuple[list[int], ...] | None:
        """Allocate slots for more tokens. Returns: the new blocks; None if there are too few."""
        computed = request.num_computed_tokens
        self.tables.drop_skipped(request, computed)
        wanted = computed + tokens
        needed = self.tables.need(request, wanted, computed)
        if needed > self.tables.block_pool.get_num_free_blocks():
            return None
        new = self.tables.grow(request, wanted)
        self.tables.cache(request, min(wanted, request.num_tokens))
        return new

    def _frees_soon(self) -> bool:
        soon = getattr(self.connector, "has_pending_block_frees", None)
        return soon is not None and bool(soon())

    def _preempt(self, request: StandInRequest) -> None:
        self.tables.free(request)
        request.num_computed_tokens = 0
        request.num_preemptions += 1
        request.state = RequestState.PREEMPTED
        self.preemptions += 1
        self._preempted.add(request.request_id)
        self._in_flight.pop(request.request_id, None)
        self.waiting.appendleft(request)

    def _plan_waiting(self, plan: StepPlan, budget: int) -> None:
        skipped = _Skipped()
        while budget and len(self.running) < self.shape.running:
            queue = self.skipped or self.waiting
            if not queue:
                break
            request = queue[0]
            if not self._ready(request):
                queue.popleft()
                self._skip(request, skipped)
                continue
            tokens = self._admit(plan, request, budget)
            if tokens is None:
                break
            queue.popleft()
            if tokens:
                budget -= tokens
            else:
                self._skip(request, skipped)
        self.skipped.extendleft(reversed(skipped.holding))
        self.waiting.extendleft(reversed(skipped.others))

    def _skip(self, request: StandInRequest, skipped: _Skipped) -> None:
        """Put a request aside until the next step."""
        holds = request.request_id in self.tables.held()
        first = self.shape.queueing is Queueing.SKIPPED_FIRST or holds
        (skipped.holding if first else skipped.others).append(request)

    def _ready(self, request: StandInRequest) -> bool:
        """Whether a request may be admitted: not while a load is in flight."""
        if request.state is not RequestState.WAITING_FOR_REMOTE_KVS:
            return True
        name = request.request_id
        if name not in self._loaded:
            return False
        if name in self._failed and not request.num_computed_tokens:
            self.tables.free(request)
        else:
            self.tables.cache(request, request.num_computed_tokens)
        self._failed.discard(name)
        self._loaded.discard(name)
        self._in_flight.pop(name, None)
        again = request.num_preemptions > 0
        request.state = RequestState.PREEMPTED if again else RequestState.WAITING
        return True

    def _admit(self, plan: StepPlan, request: StandInRequest, budget: int) -> int | None:
        """Admit a request. Returns: its tokens; 0 to skip it, None to stop for lack of blocks."""
        computed, external, hits = request.num_computed_tokens, 0, None
        if not computed:
            hits, local = self.tables.local_hit(request)
            answer = self._asked(request, local)
            if answer is None:
                return 0
            computed, external = local + answer, answer
        tokens = 0 if external else min(request.num_tokens - computed, budget)
        if not self._fits(request, computed, tokens, hits, external):
            return None
        if hits is not None:
            self.tables.adopt(request, hits, computed)
            self.local_tokens += computed - external
        else:
            self.tables.drop_skipped(request, computed)
        if tokens:
            self.tables.grow(request, computed + tokens)
            self.tables.cache(request, min(computed + tokens, request.num_tokens))
        else:
            self.tables.cache(request, computed - external)
        name = request.request_id
        self.connector.update_state_after_alloc(request, self.tables.blocks_of(name), external)
        request.num_computed_tokens = computed
        if external:
            self._begin_load(request, external)
            return 0
        self._begin(plan, request, tokens)
        return tokens

    def _asked(self, request: StandInRequest, local: int) -> int | None:
        """Ask the connector what it can load beyond a local hit; None to ask again later."""
        answer, loads_later = self.connector.get_num_new_matched_tokens(request, local)
        if request.skip_reading_prefix_cache:
            answer = 0
        check_answer(request, local, answer, self.shape.block_tokens, loads_later=loads_later)
        return answer

    def _fits(
        self,
        request: StandInRequest,
        computed: int,
        tokens: int,
        hits: Table | None,
        external: int,
    ) -> bool:
        """Whether there are blocks for a request, and for all of its prompt."""
        free = self.tables.block_pool.get_num_free_blocks()
        if self.tables.need_of_whole(request, computed, hits) > free:
            return False
        reserved = 0
        if external and self.shape.reserving:
            reserved = sum(
                self.tables.need_of_whole(each, each.num_computed_tokens)
                for each in self._in_flight.values()
            )
        return self.tables.need(request, computed + tokens, computed, hits) <= free - reserved

    def _begin_load(self, request: StandInRequest, external: int) -> None:
        request.state = RequestState.WAITING_FOR_REMOTE_KVS
        request.loads += 1
        self.external_tokens += external
        self._in_flight[request.request_id] = request
        check_loads(request, request.loads)

    def _begin(self, plan: StepPlan, request: StandInRequest, tokens: int) -> None:
        """Let an admitted request compute tokens in this step."""
        name, resumed = request.request_id, request.state is RequestState.PREEMPTED
        request.state = RequestState.RUNNING
        self.running.append(request)
        ids = self.tables.blocks_of(name).get_block_ids()
        computed = request.num_computed_tokens
        if resumed:
            cached = plan.scheduled_cached_reqs
            cached.req_ids.append(name)
            cached.resumed_req_ids.add(name)
            cached.new_block_ids.append(ids)
            cached.num_computed_tokens.append(computed)
            cached.num_output_tokens.append(request.num_output_tokens)
            cached.all_token_ids[name] = list(request.all_token_ids)
        else:
            plan.scheduled_new_reqs.append(
                NewRequestPlan(name, request.prompt_token_ids, ids, computed, request.lora_request)
            )
        plan.num_scheduled_tokens[name] = tokens
        if computed + tokens < request.num_tokens:
            self._in_flight[name] = request

    def _take_failures(self, report: ConnectorReport) -> None:
        """Let requests whose load failed compute what is missing themselves."""
        for name in report.failed_recving:
            request = self.requests.get(name)
            if request and request.state is RequestState.WAITING_FOR_REMOTE_KVS:
                request.num_computed_tokens = 0
                self._failed.add(name)
                self.failed_loads += 1
        if not report.invalid_block_ids:
            return
        if len(self.shape.groups) > 1:
            raise BrokenConnector(BreachKind.UNDECLARED_IDS, f"{sorted(report.invalid_block_ids)}")
        for request in self.loading():
            (row,) = self.tables.blocks_of(request.request_id).get_block_ids()
            whole = row[: request.num_computed_tokens // self.shape.block_tokens]
            wrong = next(
                (at for at, each in enumerate(whole) if each in report.invalid_block_ids), None
            )
            if wrong is not None:
                request.num_computed_tokens = wrong * self.shape.block_tokens
                self._failed.add(request.request_id)
                self.failed_loads += 1

    def _take_finished(self, report: ConnectorReport) -> None:
        for name in _in_order(report.finished_recving):
            request = self._known(name, "a load")
            if request.state is RequestState.WAITING_FOR_REMOTE_KVS:
                self._loaded.add(name)
            elif request.is_finished():
                self._let_go(request)
            else:
                raise BrokenConnector(BreachKind.UNKNOWN_REQUEST, f"a load of {name}, which runs")
        for name in _in_order(report.finished_sending):
            request = self._known(name, "a store")
            if not request.is_finished():
                raise BrokenConnector(BreachKind.UNKNOWN_REQUEST, f"a store of {name}, which runs")
            self._let_go(request)

    def _known(self, name: str, what: str) -> StandInRequest:
        if name not in self.requests:
            raise BrokenConnector(BreachKind.UNKNOWN_REQUEST, f"{what} of {name}, which is gone")
        return self.requests[name]

    def _let_go(self, request: StandInRequest) -> None:
        self.tables.free(request)
        del self.requests[request.request_id]


def check_answer(
    request: StandInRequest,
    local: int,
    answer: int | None,
    block_tokens: int,
    *,
    loads_later: bool,
) -> None:
    """Check what a connector answered. Raises: BrokenConnector: vLLM takes no such answer."""
    if not answer:
        return
    name = request.request_id
    if answer < 0 or answer % block_tokens or local + answer > request.num_tokens - 1:
        raise BrokenConnector(
            BreachKind.WRONG_ANSWER,
            f"{answer} tokens after {local} for {name}, which has {request.num_tokens} tokens in "
            f"blocks of {block_tokens}",
        )
    if not loads_later:
        raise BrokenConnector(BreachKind.WRONG_ANSWER, f"a load of {name} within the step")


def check_loads(request: StandInRequest, loads: int) -> None:
    """Check how many loads began for a request. Raises: BrokenConnector."""
    if loads > LOADS_A_REQUEST + request.num_preemptions:
        raise BrokenConnector(
            BreachKind.REPEATED_LOADS,
            f"{request.request_id} began {loads} loads, and was preempted "
            f"{request.num_preemptions} times",
        )


def _in_order(names: Iterable[str] | None) -> Sequence[str]:
    return sorted(names or ())
