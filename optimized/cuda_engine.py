"""An engine that copies with a GPU's copy engines and kernels, beside the model's compute.

A thread for each direction enqueues the submitted orders. An order names a point in a stream's work
(`event_after`): a backup reads after the kernels that wrote its slots, and a load writes after the
last kernels that used its slots, beside the kernels that were enqueued later. Without a point it is
all work that the current stream has at `submit`. A load arrives some layers at a time, and
`wait_layer` lets compute begin on the first layers.

`wait_layer` does not block until the copy is done: it makes the caller's current stream wait, and
returns. Kernels that are enqueued on this stream afterwards find the layer in place. Only `wait`
blocks.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial

from attrs import define, field

from kvcanon.optimized.calibration import calibrated_direct_bytes
from kvcanon.optimized.copy_plan import LayerGroup, Limits, group_to_await
from kvcanon.optimized.copy_workers import CopyWorker, WorkerEngine, require_layer
from kvcanon.optimized.cuda_runtime import Event, Runtime
from kvcanon.optimized.gpu import Gpu, gpu_at
from kvcanon.optimized.mover import Mover, movers
from kvcanon.optimized.page_transfer import PageTransfer
from kvcanon.optimized.pools import Pools
from kvcanon.optimized.stream_gates import Gates
from kvcanon.spec.errors import BadArgument, CacheUnusable
from kvcanon.spec.transfer import Direction, TransferOrder
from kvcanon.spec.types import CPU, GPU, Medium, TransferId

logger = logging.getLogger(__name__)


class CudaEngine(WorkerEngine["_CudaWorker"]):
    """Copies between the pools of one GPU and the host.

    A transfer that cannot be enqueued is logged, and completes as failed. The threads end with
    `close`, with the `with` block, or when the engine is collected.

    Raises:
        BadArgument: the pools are not on a GPU.
        CudaError: there is no GPU.
    """

    def __init__(
        self,
        pools: Pools,
        limits: Limits | None = None,
        *,
        direct_bytes: int | None = None,
        gpu: Gpu | None = None,
    ) -> None:
        """Set up both directions: allocate their memory, compile kernels, and wait for the device.

        `direct_bytes` is the size up to which a part of a transfer goes without the staging ring;
        None measures it here, in a few dozen milliseconds. `gpu` is the pools' own by default.
        Compiling takes seconds where Triton has no kernels of an earlier run.
        """
        if gpu is None:
            if pools.device.type != "cuda":
                raise BadArgument("pools", f"are on {pools.device}; a CudaEngine needs a GPU's")
            gpu = gpu_at(pools.device)
        limits = limits or Limits()
        self._pools = pools
        self._runtime = gpu.runtime
        self._gates = Gates(gpu.runtime)
        with gpu.runtime.on_device():
            ready = _ready_movers(pools, limits, gpu, direct_bytes)
        super().__init__({each: _CudaWorker(mover=mover) for each, mover in ready.items()})
        self.start()

    @property
    def memory_bytes(self) -> dict[Medium, int]:
        """Bytes beside the pools: staging rings on the device, and slot numbers on both media."""
        lanes = [worker.mover.lane for worker in self._workers.values()]
        return {medium: sum(lane.memory_bytes[medium] for lane in lanes) for medium in (GPU, CPU)}

    @property
    def direct_bytes(self) -> dict[Direction, int]:
        """The size up to which a part of a transfer goes without the staging ring."""
        return {direction: worker.mover.direct_bytes for direction, worker in self._workers.items()}

    def event_after(self, point: object) -> Event:
        """Return an event for the work until now of a stream or of an event; None: current stream.

        Pass it as `after` of a `PageTransfer`. Give the stream that last wrote the slots of a
        backup or last used the slots of a load, or an event on it. Recording the given event again
        later changes nothing.

        Raises:
            BadArgument: the point is neither a stream nor an event, or the stream is being
                captured into a graph.
        """
        with self._runtime.beside_captures():
            return self._gates.event_after(point)

    def submit(self, order: TransferOrder) -> None:
        """Queue an order and return without waiting.

        The order uses device slots after its `after`; without one, after all work that the current
        stream has now.

        Raises:
            BadArgument: the order does not perform a `PageTransfer`, is of other pools, has an
                `after` that is no event, or the engine was closed.
        """
        transfer = order.perform
        if not isinstance(transfer, PageTransfer):
            kind = type(transfer).__name__
            raise BadArgument("order", f"performs a {kind}; a GPU needs a PageTransfer")
        if transfer.pools is not self._pools:
            raise BadArgument("order", "is of other pools; make an engine for those")
        after = self.event_after(None) if transfer.after is None else transfer.after
        if not isinstance(after, Event):
            kind = type(after).__name__
            raise BadArgument("after", f"is a {kind}; give what `event_after` returns")
        self._workers[order.direction].submit(_Job(order.transfer_id, transfer, after))

    def use_pools(self) -> None:
        """Read the addresses of the pools again, and compile what they need; waits for the device.

        No copy may be running.
        """
        with self._runtime.on_device():
            for worker in self._workers.values():
                worker.mover.use_pools()
            _make_ready([worker.mover for worker in self._workers.values()], self._runtime)

    def wait_layer(self, transfer_id: TransferId, layer: int) -> bool:
        """Let the current stream wait for this layer and those below; False if the copy failed.

        Any thread may call this, also after the order has ended. It may block until the copies are
        enqueued, never until they are done. Layers count as in `PageTransfer`.

        Raises:
            BadArgument: the layer is below 0, or the current stream is being captured into a graph.
        """
        require_layer(layer)
        stream = self._runtime.current_stream()
        for worker in self._workers.values():
            coming, event = worker.arrival(transfer_id, layer)
            if event is not None:
                if self._runtime.capturing(stream):
                    raise BadArgument(
                        "stream", "is being captured; wait for layers before you replay the graph"
                    )
                stream.wait_event(event)
            if not coming:
                return False
        return True


@define(eq=False)
class _Job:
    """An order, and how much of it the worker has enqueued."""

    transfer_id: TransferId
    transfer: PageTransfer
    submitted: Event
    groups: tuple[LayerGroup, ...] | None = None
    """None until it was planned."""
    arrivals: list[Event] = field(factory=list)
    """Events of the layer groups that were enqueued."""
    done: Event | None = None
    """None until all steps are enqueued, and for ever if that failed."""
    enqueued: bool = False
    ok: bool = False
    """Whether it was performed; decided when it has ended."""

    def arrival(self, layer: int) -> Event | None:
        """The event after which a layer is in place; None while there is none to wait for.

        A backup arrives all at once.
        """
        group = None if self.groups is None else group_to_await(self.groups, layer)
        if group is None:
            return self.done
        return self.arrivals[group] if group < len(self.arrivals) else None


@define(eq=False, kw_only=True)
class _CudaWorker(CopyWorker[_Job]):
    """The orders of one direction, and the thread that enqueues them."""

    mover: Mover
    open: dict[TransferId, _Job] = field(factory=dict)
    """Orders that were not reported as completed, in the order of submission."""

    def submit(self, job: _Job) -> None:
        with self.changed:
            self.open[job.transfer_id] = job
            try:
                self.put(job)
            except (BadArgument, CacheUnusable):
                del self.open[job.transfer_id]
                raise

    def look(self) -> None:
        """Orders that ended, up to the first that has not: later ones are behind it on a stream."""
        while (job := next(iter(self.open.values()), None)) is not None and self.has_ended(job):
            job.ok = job.done is not None
            # One call of C code, which no interrupt cuts in two.
            self.ended.extend(map(self.open.pop, (job.transfer_id,)))

    def has_ended(self, job: _Job) -> bool:
        """Whether no byte of the order moves any more."""
        if not job.enqueued or job.done is None:
            return job.enqueued
        try:
            with self.mover.gpu.runtime.beside_captures():
                return job.done.query()
        except RuntimeError:
            logger.exception("%r %d was lost", job.transfer, job.transfer_id)
            self.settle()
            self.end(job, None)
            return True

    def settle(self) -> None:
        """Return once the device moves no byte of this direction.

        An error may be that of one call, and its copy goes on. Only a lost device refuses both ways
        to wait, and it moves nothing.
        """
        runtime = self.mover.gpu.runtime
        for done in (self.mover.lane.settle, runtime.synchronize):
            with suppress(RuntimeError), runtime.beside_captures():
                done()
                return

    def wait(self, transfer_id: TransferId) -> None:
        """Earlier orders were enqueued before it on the same streams, so they end before it."""
        job = self.open.get(transfer_id)
        if job is None:
            return
        self.until(lambda: job.enqueued)
        if job.done is None:
            return
        try:
            with self.mover.gpu.runtime.beside_captures():
                job.done.synchronize()
        except RuntimeError:
            # The poll that follows finds and tells what was lost.
            self.settle()

    def arrival(self, transfer_id: TransferId, layer: int) -> tuple[bool, Event | None]:
        """Whether the layer is there or coming, and the event to wait for, if there is one."""
        job = self.open.get(transfer_id)
        if job is None:
            return self.succeeded(transfer_id), None
        self.until(lambda: job.enqueued or job.arrival(layer) is not None)
        return transfer_id not in self.failed, job.arrival(layer)

    def finish(self) -> None:
        """Wait for the queue, then for the streams; a lost device moves nothing more."""
        if self.died is None:
            for transfer_id in list(self.open):
                self.wait(transfer_id)
        else:
            try:
                self.mover.lane.settle()
            except RuntimeError as error:
                raise CacheUnusable(f"{self.died}; the device is lost: {error}") from error
        self.waiting.clear()
        self.open.clear()

    def planned(self, job: _Job, groups: tuple[LayerGroup, ...]) -> None:
        with self.changed:
            job.groups = groups
            self.changed.notify_all()

    def arriving(self, job: _Job, event: Event) -> None:
        with self.changed:
            job.arrivals.append(event)
            self.changed.notify_all()

    def end(self, job: _Job, done: Event | None) -> None:
        with self.changed:
            job.done = done
            job.enqueued = True
            if done is None:
                self.fail(job.transfer_id)
            self.changed.notify_all()

    def enter(self) -> None:
        """Make the device that of the thread."""
        self.mover.gpu.runtime.enter()

    def work(self) -> None:
        while _work_one(self):
            pass
        # Memory of the lane is released here, pools when this thread ends: no copy may be running.
        self.settle()
        self.mover.lane.release()


def _ready_movers(
    pools: Pools, limits: Limits, gpu: Gpu, direct_bytes: int | None
) -> Mapping[Direction, Mover]:
    """Make movers that are ready to serve: nothing is compiled, allocated or measured later."""
    made = movers(pools, limits, gpu)
    _make_ready(made.values(), gpu.runtime)
    for mover in made.values():
        mover.direct_bytes = (
            calibrated_direct_bytes(mover) if direct_bytes is None else direct_bytes
        )
    return made


def _make_ready(movers: Iterable[Mover], runtime: Runtime) -> None:
    # The caller's streams may still use what was allocated, or fill the pools with zeros.
    runtime.synchronize()
    for mover in movers:
        mover.warm_up()


def _work_one(worker: _CudaWorker) -> bool:
    """Enqueue the next order and drop all references to it: an idle thread must not keep arrays."""
    job = worker.next_job()
    if job is None:
        return False
    done = None
    try:
        if job.transfer.begin():
            plan = worker.mover.plan(job.transfer.moves)
            worker.planned(job, plan.groups)
            done = worker.mover.enqueue(plan, job.submitted, partial(worker.arriving, job))
    except BaseException:
        # Whatever was raised, callers wait for this order and for later ones. Steps that were
        # enqueued still move bytes, and the slots come free once the order completes as failed.
        logger.exception("%r %d failed", job.transfer, job.transfer_id)
        worker.settle()
    worker.end(job, done)
    return True
