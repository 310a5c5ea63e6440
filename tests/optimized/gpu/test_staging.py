"""The steps of transfers move the right bytes, however the device's streams interleave.

Each stream is a queue here, as on the device, and a seed decides which of them goes on next. A wait
is for the record that was enqueued last before it. Then each wait is left out in turn, to see that
the test notices it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pytest
from attrs import define, field, frozen

from kvcanon.optimized.copy_plan import Limits, Part, Span, backup_spans, load_groups
from kvcanon.optimized.layout import PageLayout
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
from kvcanon.spec.transfer import Direction

PAGES = 5
PARTS = [Part(PageLayout(4, (1,)), PAGES), Part(PageLayout(2, (1,)), PAGES)]
SLOT_BYTES = 4
LIMITS = Limits(piece_bytes=2, group_bytes=1)
GROUPS = load_groups(PARTS, [False, False], SLOT_BYTES, LIMITS)

TRANSFERS = (0, 1)
COMPUTE = "compute"

Queue: TypeAlias = str | StreamRole
Cells: TypeAlias = npt.NDArray[np.int64]
"""By part, page and layer: a number for what is there. Zero is what was there before."""


@define
class Device:
    """A fake device: queues of work, and the marks recorded in them."""

    queues: dict[Queue, list[Callable[[], bool]]] = field(factory=dict)
    last_records: dict[object, int] = field(factory=dict)
    recorded: int = 0
    reached: set[int] = field(factory=set)

    def enqueue(self, queue: Queue, action: Callable[[], object]) -> None:
        """Queue this work."""

        def attempt() -> bool:
            action()
            return True

        self.queues.setdefault(queue, []).append(attempt)

    def wait(self, queue: Queue, mark: object) -> None:
        """Queue a wait for the last record of this mark, if there is one."""
        if (record := self.last_records.get(mark)) is not None:
            self.queues.setdefault(queue, []).append(lambda: record in self.reached)

    def record(self, queue: Queue, mark: object) -> None:
        """Queue a record of this mark."""
        self.recorded += 1
        number = self.last_records[mark] = self.recorded
        self.enqueue(queue, lambda: self.reached.add(number))

    def run(self, rng: Random) -> None:
        """Do all work, in an order that the streams permit: some fast, some slow, some random."""
        pace = {queue: rng.choice((0.001, 0.1, 1)) for queue in self.queues}
        while waiting := [queue for queue, work in self.queues.items() if work]:
            waiting.sort(key=lambda queue: rng.random() * pace[queue])
            for queue in waiting:
                if self.queues[queue][0]():
                    self.queues[queue].pop(0)
                    break
            else:
                pytest.fail("the streams wait for each other")


@define
class Transfer:
    """One transfer on the device, with the memory that it reads and writes."""

    number: int
    direction: Direction
    device: Device
    ring: dict[int, Cells]
    complaints: list[str]
    sources: Cells = field(init=False)
    targets: Cells = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.sources = np.zeros_like(self.content)
        self.targets = np.zeros_like(self.content)

    @property
    def content(self) -> Cells:
        """The data to move: a different number in every cell."""
        numbers = np.arange(1, 2 * PAGES * 4 + 1).reshape(2, PAGES, 4) + 1000 * self.number
        numbers[1, :, 2:] = 0  # The second part has two layers only.
        return numbers

    def begin(self) -> None:
        """Let compute write the source of a backup, or last read the target of a load."""

        def compute() -> None:
            if self.backup:
                self.sources = self.content
            elif self.targets.any():
                self.complaints.append("a load overwrote what compute still read")

        if not self.backup:
            self.sources = self.content
        self.device.enqueue(COMPUTE, compute)
        self.device.record(COMPUTE, self.name(SUBMITTED))

    def take(self, step: Step) -> None:
        """Enqueue a step, as the mover does."""
        device = self.device
        match step:
            case Wait(stream, mark):
                device.wait(stream, self.name(mark))
            case Record(stream, mark):
                device.record(stream, self.name(mark))
                device.enqueue(stream, lambda: self.look(mark))
            case Stage(span, slot):
                device.enqueue(StreamRole.KERNEL, self.half(span, slot, first=self.backup))
            case Ship(span, slot):
                device.enqueue(StreamRole.COPY, self.half(span, slot, first=not self.backup))
            case Direct(span):
                device.enqueue(StreamRole.KERNEL, lambda: self.put(span, self.get(span)))

    def half(self, span: Span, slot: int, *, first: bool) -> Callable[[], None]:
        """Copy into the ring, or out of it."""

        def fill() -> None:
            self.ring[slot] = self.get(span)

        def drain() -> None:
            self.put(span, self.ring.get(slot, np.zeros((0, 0), np.int64)))

        return fill if first else drain

    def get(self, span: Span) -> Cells:
        """The values of the span's cells."""
        return self.sources[span.part, span.pages_slice, span.layers_slice].copy()

    def put(self, span: Span, cells: Cells) -> None:
        """Set the span's cells."""
        fits = cells.shape == (span.pages, span.layers)
        self.targets[span.part, span.pages_slice, span.layers_slice] = cells if fits else -1

    def look(self, mark: Mark) -> None:
        """Check the meaning of a mark, when it is reached."""
        there = self.targets == self.content
        if mark == DONE and not there.all():
            self.complaints.append(f"transfer {self.number} was done before its bytes were there")
        if mark.kind is MarkKind.ARRIVED:
            group = GROUPS[mark.index]
            if not there[group.part, :, group.first_layer : group.end_layer].all():
                self.complaints.append(f"group {mark.index} had not arrived")

    def name(self, mark: Mark) -> object:
        """The ring's marks are shared; others are the transfer's own."""
        shared = mark.kind in {MarkKind.FILLED, MarkKind.EMPTIED}
        return mark if shared else (self.number, mark)

    @property
    def backup(self) -> bool:
        """Whether the direction is to the host."""
        return self.direction is Direction.BACKUP


@frozen
class Play:
    """Two transfers in one direction, one after the other, so that the ring is in use."""

    direction: Direction
    direct: Sequence[bool]
    ring_slots: int

    def steps(self) -> list[tuple[int, Step]]:
        """The steps of both transfers, each with the number of its transfer."""
        ring = Ring(self.ring_slots)
        return [(number, step) for number in TRANSFERS for step in self._steps(ring)]

    def run(self, seed: int, left_out: int | None = None) -> list[str]:
        """Run both transfers, optionally without one step; return what went wrong."""
        device, ring, complaints = Device(), dict[int, Cells](), list[str]()
        transfers = dict[int, Transfer]()
        for at, (number, step) in enumerate(self.steps()):
            if number not in transfers:
                transfers[number] = Transfer(number, self.direction, device, ring, complaints)
                transfers[number].begin()
            if at != left_out:
                transfers[number].take(step)
        device.run(Random(seed))
        return complaints

    def needed_waits(self) -> list[int]:
        """The index of each wait for a mark that was recorded."""
        needed, emptied = [], set[Mark]()
        for at, (_, step) in enumerate(self.steps()):
            if isinstance(step, Record) and step.mark.kind is MarkKind.EMPTIED:
                emptied.add(step.mark)
            elif isinstance(step, Wait):
                unused = step.mark.kind is MarkKind.EMPTIED and step.mark not in emptied
                # At its end a backup waits for kernels that write to the host; there may be none.
                idle = step.mark.kind is MarkKind.KERNELS_ENDED and not any(self.direct)
                if not unused and not idle:
                    needed.append(at)
        return needed

    def _steps(self, ring: Ring) -> Iterable[Step]:
        if self.direction is Direction.BACKUP:
            return backup_steps(backup_spans(PARTS, SLOT_BYTES), self.direct, ring)
        return load_steps(GROUPS, self.direct, ring)


@pytest.mark.parametrize("ring_slots", [1, 2, 3])
@pytest.mark.parametrize("direct", [[False, False], [False, True], [True, True]], ids=str)
@pytest.mark.parametrize("direction", list(Direction))
def test_any_interleaving_moves_the_right_bytes(
    direction: Direction, direct: Sequence[bool], ring_slots: int
) -> None:
    """Two transfers through one ring, in many orders: nothing is early, lost or overwritten."""
    for seed in range(60):
        assert Play(direction, direct, ring_slots).run(seed) == []


@pytest.mark.parametrize("direct", [[False, False], [False, True]], ids=str)
@pytest.mark.parametrize("direction", list(Direction))
def test_every_wait_is_needed(direction: Direction, direct: Sequence[bool]) -> None:
    """Without any one wait some interleaving goes wrong, and the test finds it."""
    play = Play(direction, direct, 2)
    assert play.needed_waits()
    for wait in play.needed_waits():
        found = (play.run(seed, wait) for seed in range(400))
        assert any(found), f"not needed: {play.steps()[wait]}"


def test_the_ring_goes_on_from_transfer_to_transfer() -> None:
    """The next transfer takes the ring slot after the last used one."""
    ring = Ring(3)
    assert [ring.take() for _ in range(4)] == [0, 1, 2, 0]
    steps = backup_steps([Span(0, 0, 1, 0, 1)], [False], ring)
    assert [step.ring_slot for step in steps if isinstance(step, Ship)] == [1]
    # An empty transfer has a mark to wait for.
    assert list(backup_steps([], [], Ring(1)))[-1] == Record(StreamRole.COPY, DONE)
    assert list(load_steps([], [], Ring(1)))[-1] == Record(StreamRole.KERNEL, DONE)
