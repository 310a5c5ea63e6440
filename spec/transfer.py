"""Chapter 7. Transfers: copies between media, which take time and can fail.

A cache *enqueues* a copy; an engine performs it, some time later; the cache *settles* it when it
takes the acknowledgement. A transfer settles after every earlier one of its direction that it
builds on, so that a parent's copy is always settled before its child's.

A node that is cut while a copy of it is in flight stays in that copy with both of its parts: each
owns the target slots of its own pages and waits for the one transfer, which names the upper part
first. When the transfer ends, both are filled; if it fails, both lose their target slots.

What readers get wrong: enqueued and resident are different facts. From the enqueue on, the target
slots have an owner and the source slots must not change; only from the acknowledgement on is the
data there. A transfer that fails, or that is cancelled because the copy it builds on failed, leaves
nothing behind but free slots.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Protocol

from attrs import frozen

from kvcanon.spec.types import Component, Slot, TransferId


class Direction(StrEnum):
    """Which way bytes go. Each direction is a queue of its own."""

    BACKUP = "backup"
    """Device to host."""
    LOAD_BACK = "load_back"
    """Host to device."""


class TransferStatus(StrEnum):
    """How a transfer ended."""

    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    """The copy ended, whichever way, after an earlier one on which it builds had failed."""


@frozen
class Copy:
    """Slot by slot, within one component's pools on two media."""

    component: Component
    sources: tuple[Slot, ...]
    targets: tuple[Slot, ...]


@frozen(eq=False)
class TransferOrder:
    """What an engine is asked to do."""

    transfer_id: TransferId
    direction: Direction
    copies: Sequence[Copy]
    perform: Callable[[], None]
    """Moves all bytes, from where they are when it is called to where they go."""


@frozen
class Completion:
    """What an engine reports: the copy was performed (`ok`), or it never will be."""

    transfer_id: TransferId
    ok: bool


class TransferEngine(Protocol):
    """Performs copies. The cache calls it from one thread and never from two at once."""

    def submit(self, order: TransferOrder) -> None:
        """Take an order; return without waiting for it."""

    def poll(self) -> tuple[Completion, ...]:
        """The completions since the last poll, each exactly once, in any order. Never waits."""

    def wait(self, transfer_id: TransferId) -> None:
        """Return once this order, and all before it in its direction, can be polled as complete."""
