"""Calls that clients made while a case was played, as values."""

from __future__ import annotations

from typing import TypeAlias

from attrs import field, frozen

from kvcanon.conformance.protocol.request import RequestId
from kvcanon.spec.operations import Operation
from kvcanon.spec.types import Key, Slots, TransferId


@frozen
class StampWrite:
    """A client writes the stamps of the last pages of a key into slots."""

    key: Key
    slots: Slots
    start_pages: int = 0
    """Pages before this one are written already."""


@frozen
class RequestCall:
    """A call of a request cache."""

    method: str
    """`admit`, `extend`, `finish` or `abort`."""
    request_id: RequestId
    key: Key | None = None


@frozen
class TransferDecision:
    """A client decides what happens to a copy in flight."""

    method: str
    """`perform`, `acknowledge` or `fail`."""
    index: int
    """Index of the transfer among the open transfers."""
    transfer_id: TransferId


@frozen
class WaitDecision:
    """A client decides how the next wait of the cache ends."""

    end: str


@frozen
class StoreDecision:
    """A client decides what becomes of the store below the cache, or of an order to it."""

    method: str
    """`go_on`, `end`, `finish`, `lose` or `damage`."""
    picks: tuple[int, ...] = ()


Call: TypeAlias = (
    Operation | RequestCall | StampWrite | TransferDecision | WaitDecision | StoreDecision
)


@frozen
class RecordedCall:
    """A call in an action of a case, and its answer."""

    action: int
    """Index of the action; the number of actions for the drain."""
    number: int | None
    """The number of the cache's operation, from 1; None if the call is no operation."""
    call: Call
    answer: object = field(eq=False)
    """The returned value, or the raised exception."""


class CacheEnded(Exception):
    """In place of the answer of a call that ended its process, or never ended."""
