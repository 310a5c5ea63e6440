"""The engine: requests come, steps run, and the referee looks on.

What the referee checks is in `BreachKind`. The first fault ends the run, since an engine that has
read wrong bytes says nothing true any more.
"""

from __future__ import annotations

from random import Random
from time import sleep

from kvcanon.lab.connectors.announced import Announced
from kvcanon.lab.connectors.connector_calls import ConnectorHalves
from kvcanon.lab.connectors.engine_request import StandInRequest
from kvcanon.lab.connectors.engine_scheduler import EngineScheduler
from kvcanon.lab.connectors.engine_shape import EngineShape
from kvcanon.lab.connectors.finding import BreachKind, BrokenConnector
from kvcanon.lab.connectors.ranks import EngineRank, ForwardPart, ReportCounter
from kvcanon.lab.connectors.stamps import StampedMemory, Stamps, token_stamps
from kvcanon.lab.connectors.step_scheduler import MakeScheduler

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
        scheduler: MakeScheduler | None = None,
        seed: int = 0,
        loads_first: bool = False,
        announces: bool = True,
        idle_seconds: float = 0.0,
    ) -> None:
        """Make an empty engine.

        `scheduler` makes one that is used instead of our own, such as vLLM's. `announces` says
        whether the connector emits events; `idle_seconds` is how long a step without tokens takes,
        for connectors whose copies run in threads.
        """
        self.shape, self.connector = shape, connector
        make: MakeScheduler = scheduler or EngineScheduler
        self.scheduler = make(shape, connector.scheduler)
        self.ranks = [
            EngineRank(number, StampedMemory(shape, number), worker, loads_first)
            for number, worker in enumerate(connector.workers)
        ]
        self.announced = Announced(shape, connector.hash_of_event)
        self.announces = announces
        self.steps = self.finished = 0
        self.own_hangs = 0
        """How often the scheduler hung though every load had ended."""
        self._idle_seconds = idle_seconds
        self._counter = ReportCounter(len(self.ranks))
        self._random = Random(f"tokens {seed}")
        self._epoch = self._stalled = 0
        self._stamps: dict[str, tuple[int, Stamps]] = {}
        for rank in self.ranks:
            rank.worker.register_kv_caches(rank.memory.layers())

    def add(self, request: StandInRequest) -> StandInRequest:
        """Take a new request. Returns: the request as the scheduler has it."""
        request = self.scheduler.made(request)
        self.announced.learn(request)
        self.scheduler.add(request)
        return request

    def abort(self, request: StandInRequest) -> None:
        """End a request as its client does that went away."""
        if not request.is_finished():
            self.scheduler.finish(request)
            self._stamps.pop(request.request_id, None)

    def step(self) -> None:
        """Run one step. Raises: BrokenConnector."""
        plan = self.scheduler.plan()
        live = {each.request_id: each for each in self.scheduler.unfinished()}
        parts = [
            self._part(live[name], tokens) for name, tokens in plan.num_scheduled_tokens.items()
        ]
        report = self._counter.report_of([rank.step(plan, parts) for rank in self.ranks])
        self.scheduler.settle(plan, report, self._random.randrange(VOCABULARY))
        after = self.scheduler.unfinished()
        for request in after:
            self.announced.learn(request)
        ended = live.keys() - {each.request_id for each in after}
        self.finished += len(ended)
        for name in ended:
            self._stamps.pop(name, None)
        self.announced.take(self.scheduler.take_events())
        self.steps += 1
        self._count_stalls(computes=bool(parts), ended=bool(ended))

    def run_until_idle(self) -> None:
        """Step until vLLM would step no more. Raises: BrokenConnector."""
        while self.scheduler.has_work():
            self.step()

    def reset(self) -> bool:
        """Change the weights, and empty both caches, as an engine does that is trained.

        Requests that a load is in flight for are aborted, running ones begin anew. Returns: whether
        the caches were emptied; if not, the weights are as before.
        """
        for request in self.scheduler.loading():
            self.abort(request)
        if not self.scheduler.reset():
            return False
        self._epoch += 1
        self._stamps.clear()
        self.announced.take(self.scheduler.take_events())
        return True

    def check_served(self, request: StandInRequest) -> None:
        """Ask what can be loaded for a prompt, and hold it against what events say.

        The request is new, and ends with this call.
        """
        if not self.announces:
            return
        request = self.scheduler.made(request)
        self.announced.learn(request)
        half = self.connector.scheduler
        half.on_new_request(request)
        answer, _ = half.get_num_new_matched_tokens(request, 0)
        self.scheduler.end_unscheduled(request)
        # A connector may go by way of the host for what the device has.
        most = self.announced.prefix_tokens(request, self.scheduler.has_on_device)
        announces_all = self.connector.next_process is None
        if answer is not None and answer > most and announces_all:
            raise BrokenConnector(
                BreachKind.UNANNOUNCED, f"{answer} tokens of {request.request_id}, {most} announced"
            )
        announced = self.announced.prefix_tokens(request)
        if answer is not None and answer < announced and not self.scheduler.open_requests():
            raise BrokenConnector(
                BreachKind.NOT_SERVED,
                f"{answer} tokens of {request.request_id}, {announced} announced",
            )

    def check_at_rest(self) -> None:
        """Whether all blocks of the device are free, once everything ended."""
        held = self.scheduler.held_blocks()
        if held:
            raise BrokenConnector(BreachKind.BLOCKS_KEPT, f"{len(held)}, the first is {held[0]}")

    def _part(self, request: StandInRequest, tokens: int) -> ForwardPart:
        end = request.num_computed_tokens
        return ForwardPart(
            request.request_id,
            self.scheduler.table_of(request),
            self._stamps_of(request),
            end - tokens,
            end,
        )

    def _stamps_of(self, request: StandInRequest) -> Stamps:
        length, stamps = self._stamps.get(request.request_id, (0, None))
        if stamps is None or length != request.num_tokens:
            # Each process begins with the same weights, and is given others than any other.
            weights = (request.process, self._epoch) if self._epoch else None
            stamps = token_stamps(request.stamped, weights, request.all_token_ids)
            self._stamps[request.request_id] = (request.num_tokens, stamps)
        return stamps

    def _count_stalls(self, *, computes: bool, ended: bool) -> None:
        waiting = self.scheduler.open_requests()
        if computes or ended or not waiting:
            self._stalled = 0
            return
        self._stalled += 1
        sleep(self._idle_seconds)
        if self._stalled < STALLED_STEPS:
            return
        if self._hangs_by_itself():
            # A client that waits in vain goes away in the end.
            self.own_hangs += 1
            self._stalled = 0
            self.abort(next(each for each in self.scheduler.unfinished() if not self._holds(each)))
            return
        held = len(self.scheduler.held_blocks())
        raise BrokenConnector(
            BreachKind.HANG, f"{STALLED_STEPS} steps, {held} blocks are held, {dict(waiting)}"
        )

    def _hangs_by_itself(self) -> bool:
        """Whether only requests hold blocks that a load has ended for, while one without waits.

        That one is looked at first, finds too few blocks, and so keeps vLLM's scheduler from the
        others: it asked again after its own load had failed.
        """
        ended = self.scheduler.ended_loads()
        kept = {block for each in ended for row in self.scheduler.table_of(each) for block in row}
        waits = any(not self._holds(each) for each in self.scheduler.unfinished())
        return bool(ended) and waits and kept.issuperset(self.scheduler.held_blocks())

    def _holds(self, request: StandInRequest) -> bool:
        return any(map(len, self.scheduler.table_of(request)))
