"""The mover of one direction: plans its transfers and enqueues each step as a call to the device.

It waits for the device only where a lane has no place for more slot numbers. Dependencies between
steps are expressed as waits of streams for events. The host is done when the last step is enqueued,
long before the bytes arrive.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from attrs import Factory, define, evolve, field, frozen

from kvcanon.optimized.copy_plan import (
    LayerGroup,
    Limits,
    Part,
    Span,
    backup_spans,
    goes_direct,
    load_groups,
    pieces,
)
from kvcanon.optimized.cuda_driver import CudaDriver, Rows
from kvcanon.optimized.cuda_runtime import Event
from kvcanon.optimized.gpu import Gpu
from kvcanon.optimized.kernels.pages import (
    HOST_PROGRAMS,
    PROGRAMS,
    PagedPool,
    PageRows,
    gather,
    paged_pool,
    scatter,
    warm_up,
)
from kvcanon.optimized.lane import Lane, make_lane
from kvcanon.optimized.page_transfer import Move, SlotArray
from kvcanon.optimized.pools import Pools
from kvcanon.optimized.staging import (
    DONE,
    SUBMITTED,
    Direct,
    Mark,
    MarkKind,
    Record,
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
    """Moves pages of pools through the lane of one direction. One thread at a time may use it."""

    pools: Pools
    direction: Direction
    limits: Limits
    gpu: Gpu
    direct_bytes: int = 0
    """A part of at most so many bytes skips the ring."""
    lane: Lane = field(
        default=Factory(lambda self: make_lane(self.pools, self.limits, self.gpu), takes_self=True)
    )
    _places: dict[Component, _Place] = field(init=False)
    _attachment: int = field(init=False)
    """Of the pools, when their addresses were read."""

    def __attrs_post_init__(self) -> None:
        self.use_pools()

    def warm_up(self) -> None:
        """Compile every kernel that a transfer may launch. Moves nothing.

        Compiling takes seconds, and loading a kernel breaks the capture of a graph.
        """
        some = self.lane.uploads.device[:1]
        with self.gpu.runtime.running_on(self.lane.streams[StreamRole.KERNEL]):
            for component, place in self._places.items():
                page_bytes = self.pools.layouts[component].page_bytes
                rows = [PageRows(self.lane.ring_address(0), page_bytes)]
                if place.kernel_address is not None:
                    rows.append(PageRows(place.kernel_address, page_bytes, some))
                for each in rows:
                    warm_up(place.pool, some, each, to_rows=self.direction is Direction.BACKUP)

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
            spans = backup_spans(parts, self.lane.slot_bytes)
            return Plan(moves, (), direct, tuple(backup_steps(spans, direct, self.lane.ring)))
        groups = load_groups(parts, direct, self.lane.slot_bytes, self.limits)
        return Plan(moves, groups, direct, tuple(load_steps(groups, direct, self.lane.ring)))

    def enqueue(self, plan: Plan, submitted: Event, arriving: Callable[[Event], None]) -> Event:
        """Enqueue all steps; return the event after which no byte moves any more.

        Calls `arriving` with the event of each layer group as soon as a stream can wait for it.
        """
        underway = _Enqueued(plan, {SUBMITTED: submitted})
        with self.gpu.runtime.running_on(self.lane.streams[StreamRole.KERNEL]):
            self._upload(underway)
            for step in plan.steps:
                match step:
                    case Wait(stream, mark):
                        event = underway.marks.get(mark) or self.lane.marks.get(mark)
                        if event is not None:
                            self.lane.streams[stream].wait_event(event)
                    case Record(stream, mark):
                        event = self._event(mark, underway)
                        event.record(self.lane.streams[stream])
                        if mark.kind is MarkKind.ARRIVED:
                            arriving(event)
                    case Stage(span, ring_slot):
                        self._stage(underway, span, ring_slot)
                    case Ship(span, ring_slot):
                        self._ship(underway, span, ring_slot)
                    case Direct(span):
                        self._kernel(underway, span, underway.slabs[span.part])
        return underway.marks[DONE]

    def _event(self, mark: Mark, underway: _Enqueued) -> Event:
        """The event of a mark: reused for marks of the ring, new for marks of a transfer."""
        of_ring = mark.kind in {MarkKind.FILLED, MarkKind.EMPTIED}
        known = self.lane.marks if of_ring else underway.marks
        if mark not in known:
            known[mark] = self.gpu.runtime.event()
        return known[mark]

    def _upload(self, underway: _Enqueued) -> None:
        """Upload the slots, which kernels read."""
        moves, direct = underway.plan.moves, underway.plan.direct
        on_device = [
            move.sources if self.direction is Direction.BACKUP else move.targets for move in moves
        ]
        skipping = [part for part in range(len(moves)) if direct[part]]
        on_host = [self._host_slots(moves[part]) for part in skipping]
        stream = self.lane.streams[StreamRole.KERNEL]
        uploaded = self.lane.uploads.upload([*on_device, *on_host], stream)
        underway.slots.extend(uploaded[: len(moves)])
        for part, rows in zip(skipping, uploaded[len(moves) :], strict=True):
            component = moves[part].component
            address = self._places[component].kernel_address
            if address is not None:
                page_bytes = self.pools.layouts[component].page_bytes
                underway.slabs[part] = PageRows(address, page_bytes, rows)

    def _stage(self, underway: _Enqueued, span: Span, ring_slot: int) -> None:
        layout = self.pools.layouts[underway.move(span).component]
        inset = span.first_layer * layout.layer_bytes
        address = self.lane.ring_address(ring_slot) - inset
        self._kernel(underway, span, PageRows(address, span.layers * layout.layer_bytes))

    def _kernel(self, underway: _Enqueued, span: Span, rows: PageRows) -> None:
        programs = PROGRAMS
        if rows.index is not None:
            rows, programs = evolve(rows, index=rows.index[span.pages_slice]), HOST_PROGRAMS
        move = gather if self.direction is Direction.BACKUP else scatter
        move(
            self._places[underway.move(span).component].pool,
            underway.slots[span.part][span.pages_slice],
            rows,
            span.layers_slice,
            programs=programs,
        )

    def _ship(self, underway: _Enqueued, span: Span, ring_slot: int) -> None:
        move = underway.move(span)
        layout = self.pools.layouts[move.component]
        slab = self._places[move.component].slab_address
        ring = self.lane.ring_address(ring_slot)
        stream = self.lane.streams[StreamRole.COPY].cuda_stream
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
