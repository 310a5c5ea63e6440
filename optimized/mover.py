"""The mover of one direction: plans its transfers and enqueues each step as a call to the device.

Only `settle` waits for the device. Dependencies between steps are expressed as waits of streams for
events. The host is done when the last step is enqueued, long before the bytes arrive.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from attrs import define, evolve, field, frozen

from kvcanon.optimized.copy_plan import (
    LayerGroup,
    Limits,
    Part,
    Span,
    backup_spans,
    goes_direct,
    load_groups,
    pieces,
    ring_slot_bytes,
)
from kvcanon.optimized.cuda_driver import CudaDriver, Rows
from kvcanon.optimized.cuda_runtime import CudaStream, Event
from kvcanon.optimized.gpu import Gpu
from kvcanon.optimized.kernels.pages import PagedPool, PageRows, gather, paged_pool, scatter
from kvcanon.optimized.page_transfer import Move, SlotArray
from kvcanon.optimized.pools import Pools
from kvcanon.optimized.staging import (
    DONE,
    SUBMITTED,
    Direct,
    Mark,
    MarkKind,
    Record,
    Ring,
    Ship,
    Stage,
    Step,
    StreamRole,
    Wait,
    backup_steps,
    load_steps,
)
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.transfer import Direction
from kvcanon.spec.types import Component


@frozen(eq=False)
class Plan:
    """A transfer that is ready to be enqueued."""

    moves: tuple[Move, ...]
    groups: tuple[LayerGroup, ...]
    """Of a load, in the order in which they arrive."""
    direct: tuple[bool, ...]
    """For each move: whether it skips the ring."""
    steps: Sequence[Step]


@frozen(eq=False)
class _Place:
    """The pools of a component."""

    pool: PagedPool
    slab_address: int
    kernel_address: int | None
    """Address of the slab for kernels; None where they cannot reach it."""


@define(eq=False)
class _Enqueued:
    """State of one transfer while its steps are enqueued."""

    plan: Plan
    marks: dict[Mark, Event]
    slots: list[torch.Tensor] = field(factory=list)
    """The device slots of each move, in memory of the device."""
    slabs: dict[int, PageRows] = field(factory=dict)
    """For each move that skips the ring: its pages on the host."""

    def move(self, span: Span) -> Move:
        return self.plan.moves[span.part]


@define(eq=False)
class Mover:
    """Streams, staging ring and marks of one direction. One thread at a time may use it."""

    pools: Pools
    direction: Direction
    limits: Limits
    gpu: Gpu
    direct_bytes: int = 0
    """A part of at most so many bytes skips the ring."""
    _places: dict[Component, _Place] = field(init=False)
    _attachment: int = field(init=False)
    """Of the pools, when their addresses were read."""
    _streams: dict[StreamRole, CudaStream] = field(init=False)
    _slot_bytes: int = field(init=False)
    _ring_memory: torch.Tensor = field(init=False)
    _ring: Ring = field(init=False)
    _ring_marks: dict[Mark, Event] = field(init=False, factory=dict)

    def __attrs_post_init__(self) -> None:
        self.use_pools()
        self._streams = {role: self.gpu.runtime.stream() for role in StreamRole}
        self._slot_bytes = ring_slot_bytes(self.limits, tuple(self.pools.layouts.values()))
        # Allocated on the mover's stream, so that the ring never reuses memory of the caller's
        # stream.
        with self.gpu.runtime.running_on(self._streams[StreamRole.KERNEL]):
            self._ring_memory = self.gpu.runtime.buffer(self.limits.ring_slots * self._slot_bytes)
        self._ring = Ring(self.limits.ring_slots)

    def use_pools(self) -> None:
        """Read the addresses of the pools. Effects: uploads them; no copy may be running."""
        self._places = {
            component: _place(self.pools, component, self.gpu.driver)
            for component in self.pools.layouts
        }
        self._attachment = self.pools.attachments

    def plan(self, moves: tuple[Move, ...]) -> Plan:
        """Cut a transfer into steps. Effects: takes the next ring slots.

        Raises:
            BadArgument: the pools have other device memory than `use_pools` found.
        """
        if not self.pools.attached or self._attachment != self.pools.attachments:
            raise BadArgument("pools", "were detached behind the engine's back; call use_pools")
        parts = tuple(Part(self.pools.layouts[move.component], len(move.sources)) for move in moves)
        direct = tuple(
            self._places[move.component].kernel_address is not None
            and goes_direct(part, self._host_slots(move), self.direct_bytes, self.limits)
            for part, move in zip(parts, moves, strict=True)
        )
        if self.direction is Direction.BACKUP:
            spans = backup_spans(parts, self._slot_bytes)
            return Plan(moves, (), direct, tuple(backup_steps(spans, direct, self._ring)))
        groups = load_groups(parts, self._slot_bytes, self.limits)
        return Plan(moves, groups, direct, tuple(load_steps(groups, direct, self._ring)))

    def enqueue(self, plan: Plan, submitted: Event, arriving: Callable[[Event], None]) -> Event:
        """Enqueue all steps; return the event after which no byte moves any more.

        Calls `arriving` with the event of each layer group as soon as a stream can wait for it.
        """
        underway = _Enqueued(plan, {SUBMITTED: submitted})
        with self.gpu.runtime.running_on(self._streams[StreamRole.KERNEL]):
            self._upload(underway)
            for step in plan.steps:
                match step:
                    case Wait(stream, mark):
                        event = underway.marks.get(mark) or self._ring_marks.get(mark)
                        if event is not None:
                            self._streams[stream].wait_event(event)
                    case Record(stream, mark):
                        event = self._event(mark, underway)
                        event.record(self._streams[stream])
                        if mark.kind is MarkKind.ARRIVED:
                            arriving(event)
                    case Stage(span, ring_slot):
                        self._stage(underway, span, ring_slot)
                    case Ship(span, ring_slot):
                        self._ship(underway, span, ring_slot)
                    case Direct(span):
                        self._kernel(underway, span, underway.slabs[span.part])
        return underway.marks[DONE]

    def settle(self) -> None:
        """Return once the device has done all work of this mover."""
        for stream in self._streams.values():
            event = self.gpu.runtime.event()
            event.record(stream)
            event.synchronize()

    def _event(self, mark: Mark, underway: _Enqueued) -> Event:
        """The event of a mark: reused for marks of the ring, new for marks of a transfer."""
        of_ring = mark.kind in {MarkKind.FILLED, MarkKind.EMPTIED}
        known = self._ring_marks if of_ring else underway.marks
        if mark not in known:
            known[mark] = self.gpu.runtime.event()
        return known[mark]

    def _upload(self, underway: _Enqueued) -> None:
        """Upload the slots, which kernels read."""
        for part, move in enumerate(underway.plan.moves):
            on_device = move.sources if self.direction is Direction.BACKUP else move.targets
            underway.slots.append(self.gpu.runtime.upload(on_device))
            address = self._places[move.component].kernel_address
            if underway.plan.direct[part] and address is not None:
                page_bytes = self.pools.layouts[move.component].page_bytes
                rows = self.gpu.runtime.upload(self._host_slots(move))
                underway.slabs[part] = PageRows(address, page_bytes, rows)

    def _stage(self, underway: _Enqueued, span: Span, ring_slot: int) -> None:
        layout = self.pools.layouts[underway.move(span).component]
        inset = span.first_layer * layout.layer_bytes
        address = self._ring_address(ring_slot) - inset
        self._kernel(underway, span, PageRows(address, span.layers * layout.layer_bytes))

    def _kernel(self, underway: _Enqueued, span: Span, rows: PageRows) -> None:
        if rows.index is not None:
            rows = evolve(rows, index=rows.index[span.pages_slice])
        move = gather if self.direction is Direction.BACKUP else scatter
        move(
            self._places[underway.move(span).component].pool,
            underway.slots[span.part][span.pages_slice],
            rows,
            span.layers_slice,
        )

    def _ship(self, underway: _Enqueued, span: Span, ring_slot: int) -> None:
        move = underway.move(span)
        layout = self.pools.layouts[move.component]
        slab = self._places[move.component].slab_address
        ring = self._ring_address(ring_slot)
        stream = self._streams[StreamRole.COPY].cuda_stream
        to_host = self.direction is Direction.BACKUP
        cut = pieces(span, layout, self._host_slots(move)[span.pages_slice], self.limits)
        if len(cut.sizes_bytes):
            sides = [
                (cut.host_offsets + slab).astype(np.uint64),
                (cut.ring_offsets + ring).astype(np.uint64),
            ]
            targets, sources = sides if to_host else reversed(sides)
            sizes = cut.sizes_bytes.astype(np.uint64)
            self.gpu.driver.copy_many(targets, sources, sizes, stream, self.limits.batch_pieces)
        for piece in cut.rectangles:
            self.gpu.driver.copy_rectangle(
                Rows(slab + piece.host_offset, layout.page_bytes),
                Rows(ring + piece.ring_offset, piece.row_bytes),
                piece.row_bytes,
                piece.rows,
                stream,
                to_host=to_host,
            )

    def _host_slots(self, move: Move) -> SlotArray:
        return move.targets if self.direction is Direction.BACKUP else move.sources

    def _ring_address(self, ring_slot: int) -> int:
        return self._ring_memory.data_ptr() + ring_slot * self._slot_bytes


def movers(pools: Pools, limits: Limits, gpu: Gpu) -> Mapping[Direction, Mover]:
    """Make a mover for each direction. They share nothing, so that their transfers overlap."""
    return {direction: Mover(pools, direction, limits, gpu) for direction in Direction}


def _place(pools: Pools, component: Component, driver: CudaDriver) -> _Place:
    slab = pools.slab(component)
    address = slab.data_ptr()
    return _Place(
        paged_pool(pools.device_planes(component), pools.layouts[component]),
        address,
        driver.device_address(address) if slab.nbytes else None,
    )
