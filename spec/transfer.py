"""Chapter 7. Transfers: copies between media, which take time and can fail.

A cache *enqueues* a copy; an engine performs it, some time later; the cache *settles* it when it
takes the acknowledgement. A transfer settles after every earlier transfer of its direction that it
builds on, so the copy of a parent always settles before the copies of its children.

If a node is cut while a copy of it is in flight, both parts stay in that copy: each part owns the
target slots of its own pages, and the transfer lists the upper part first. When the transfer is
done, both parts are filled; if it fails, both lose their target slots.

*Arrived* does not mean settled. A copy has arrived when the engine reports its end; that depends on
timing. It is settled when the cache counts its outcome; that is a decision, and ranks that share
their decisions must settle the same. So an engine gathers what has arrived on each rank (`Agree`,
`arrived_on_all`), and every rank settles that.

Enqueued does not mean resident. From the enqueue on, the target slots have an owner and the source
slots must not change; only the acknowledgement says that the data is there. After a transfer that
failed, or was cancelled because the copy it builds on failed, its target slots are free.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum, StrEnum
from typing import Protocol, Self, TypeAlias

from attrs import frozen

from kvcanon.spec.types import CPU, GPU, Component, Medium, Slot, TransferId


class Direction(StrEnum):
    """The direction of a copy. Each direction is a queue of its own."""

    source: Medium
    """The medium that its copies read."""
    target: Medium
    """The medium that its copies write."""

    BACKUP = "backup", GPU, CPU
    """Device to host."""
    LOAD_BACK = "load_back", CPU, GPU
    """Host to device."""

    def __new__(cls, name: str, source: Medium, target: Medium) -> Self:
        """A direction, whose value is its name."""
        member = str.__new__(cls, name)
        member._value_ = name
        member.source, member.target = source, target
        return member


class TransferStatus(StrEnum):
    """How a transfer ended."""

    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    """An earlier copy on which this copy builds failed; how this copy ended does not matter."""


@frozen
class Copy:
    """Copies of one component, slot by slot, from its pool on one medium to that on another."""

    component: Component
    sources: tuple[Slot, ...]
    targets: tuple[Slot, ...]


@frozen(eq=False)
class TransferOrder:
    """An order to an engine: copies to perform."""

    transfer_id: TransferId
    direction: Direction
    copies: Sequence[Copy]
    perform: Callable[[], None]
    """Copies all bytes, as they are when it is called, from the sources to the targets."""


@frozen(eq=False)
class EngineCalls:
    """The calls that a cache made to its copy engine in one operation."""

    orders: tuple[TransferOrder, ...] = ()
    waits: tuple[TransferId, ...] = ()
    """The transfers that it waited for."""
    failed: frozenset[TransferId] = frozenset()
    """Of these orders, those whose copies failed in the same call."""
    broke_off: TransferId | None = None
    """The transfer whose wait the engine broke off: it raised, and the copy has not ended."""


@frozen
class Completion:
    """An engine's report: the order was performed (`ok`), or it never will be."""

    transfer_id: TransferId
    ok: bool


class Arrival(IntEnum):
    """How far a copy is on one rank. The least of all ranks is what they may settle."""

    WAITING = 0
    """It has not ended: its slots must not be given to anyone."""
    FAILED = 1
    DONE = 2


Agree: TypeAlias = Callable[[Sequence[int]], Sequence[int]]
"""Takes how far each copy in flight is on this rank (`Arrival`), and returns the least of all ranks
for each: `all_reduce` with MIN. It is collective: all ranks call it, in the same order, for the
same copies."""


def arrived_on_all(by_rank: Sequence[Sequence[Completion]]) -> tuple[Completion, ...]:
    """The transfers that have arrived on every rank, as failed if they failed on any.

    `by_rank` has what `arrived` returned on each rank. A transfer that is still in flight on one
    rank is left out, even if it failed on another: its slots are still in use there.
    """
    ends = [{each.transfer_id: each.ok for each in arrived} for arrived in by_rank]
    return tuple(
        Completion(transfer_id, all(each[transfer_id] for each in ends))
        for transfer_id in (ends[0] if ends else ())
        if all(transfer_id in each for each in ends)
    )


class TransferEngine(Protocol):
    """Performs copies. The cache never calls it from two threads at once.

    Only `wait` may raise. Where ranks share their decisions, it raises on all of them or on none:
    those that go on settle and evict what the others keep.
    """

    def submit(self, order: TransferOrder) -> None:
        """Accept an order; return without waiting for it."""

    def poll(self) -> tuple[Completion, ...]:
        """The completions since the last poll, each exactly once, in any order. Never waits."""

    def wait(self, transfer_id: TransferId) -> None:
        """Return once this order, and all before it in its direction, can be polled as complete.

        Raises: anything; then the order is still open, and completes later.
        """
