"""Staging: in which order kernels and copies are enqueued, and what each waits for.

A transfer runs on two streams of its direction: on *kernel*, pages move between the pool's planes
and the staging ring; on *copy*, a copy engine moves the bytes of a ring slot to or from the host. A
transfer is a list of steps. Enqueued in this order, they move the right bytes however the two
streams interleave.

A wait refers to the last record that was enqueued *before the wait*. That is why the steps are one
list and not one for each stream, and why a wait for a mark without a record does not wait.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum, auto
from typing import TypeAlias

from attrs import define, frozen

from kvcanon.optimized.copy_plan import LayerGroup, Span


class StreamRole(Enum):
    """The streams of a direction."""

    KERNEL = auto()
    COPY = auto()


class MarkKind(Enum):
    """Kinds of marks."""

    SUBMITTED = auto()
    """The point that the order names is reached: its device slots may be used."""
    FILLED = auto()
    """A ring slot holds its span."""
    EMPTIED = auto()
    """A ring slot was read and may be filled again."""
    KERNELS_ENDED = auto()
    """The kernels of the transfer are done."""
    ARRIVED = auto()
    """A layer group has arrived."""
    DONE = auto()
    """No byte of the transfer moves any more."""


@frozen
class Mark:
    """A point in a stream's work that another stream, or the host, can wait for."""

    kind: MarkKind
    index: int = 0
    """The ring slot or the layer group."""


SUBMITTED = Mark(MarkKind.SUBMITTED)
KERNELS_ENDED = Mark(MarkKind.KERNELS_ENDED)
DONE = Mark(MarkKind.DONE)


@frozen
class Wait:
    """The stream waits for the mark."""

    stream: StreamRole
    mark: Mark


@frozen
class Record:
    """The stream reaches the mark after all work before it."""

    stream: StreamRole
    mark: Mark


@frozen
class Stage:
    """On the kernel stream: between the pool's planes and a ring slot."""

    span: Span
    ring_slot: int


@frozen
class Ship:
    """On the copy stream: between a ring slot and the host."""

    span: Span
    ring_slot: int


@frozen
class Direct:
    """On the kernel stream: between the pool's planes and the host, without the ring."""

    span: Span


Step: TypeAlias = Wait | Record | Stage | Ship | Direct


@define
class Ring:
    """Chooses the next ring slot, across transfers, so that these overlap."""

    slots: int
    taken: int = 0

    def take(self) -> int:
        """Return the slot to fill now."""
        slot = self.taken % self.slots
        self.taken += 1
        return slot


def backup_steps(spans: Sequence[Span], direct: Sequence[bool], ring: Ring) -> Iterator[Step]:
    """The steps of a backup. `direct` says for each part whether it skips the ring."""
    yield Wait(StreamRole.KERNEL, SUBMITTED)
    for span in spans:
        if direct[span.part]:
            yield Direct(span)
        else:
            slot = ring.take()
            stage, ship = (
                (StreamRole.KERNEL, Stage(span, slot)),
                (StreamRole.COPY, Ship(span, slot)),
            )
            yield from _through_ring(slot, stage, ship)
    yield Record(StreamRole.KERNEL, KERNELS_ENDED)
    yield Wait(StreamRole.COPY, KERNELS_ENDED)
    yield Record(StreamRole.COPY, DONE)


def _through_ring(
    slot: int, fill: tuple[StreamRole, Step], empty: tuple[StreamRole, Step]
) -> Iterator[Step]:
    """Fill a slot of the ring on one stream once it is empty, and empty it on the other."""
    filled, emptied = Mark(MarkKind.FILLED, slot), Mark(MarkKind.EMPTIED, slot)
    for stream, step, before, after in ((*fill, emptied, filled), (*empty, filled, emptied)):
        yield Wait(stream, before)
        yield step
        yield Record(stream, after)


def load_steps(groups: Sequence[LayerGroup], direct: Sequence[bool], ring: Ring) -> Iterator[Step]:
    """The steps of a load. `direct` says for each part whether it skips the ring.

    Only the kernels wait for SUBMITTED: the ring can be filled while compute still uses the target
    slots.
    """
    yield Wait(StreamRole.KERNEL, SUBMITTED)
    for index, group in enumerate(groups):
        for span in group.spans:
            if direct[group.part]:
                yield Direct(span)
            else:
                slot = ring.take()
                ship, stage = (
                    (StreamRole.COPY, Ship(span, slot)),
                    (StreamRole.KERNEL, Stage(span, slot)),
                )
                yield from _through_ring(slot, ship, stage)
        yield Record(StreamRole.KERNEL, Mark(MarkKind.ARRIVED, index))
    yield Record(StreamRole.KERNEL, DONE)
