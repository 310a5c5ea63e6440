"""Emission: which events each operation emits, for which pages and media, in which order.

This is the only table of it. `kvcanon laws --emissions` prints it, EVENT-5 and EVENT-10 read from
it what an operation may emit, and the caches are tested against it row by row. EVENT-10 demands an
event for every page that comes to a medium or leaves it.

Only full data causes events: window data and mamba states cause none, on any medium. An operation
without a row emits nothing.

*Order.* The rows of an operation stand in the order of its events for each victim. Under write_back
store(CPU) of a victim comes before its remove(GPU), so that routers never see it nowhere. Where a
victim is deleted, the pages below it that are on the host alone are removed from there first,
deepest page first, and then the victim from the device. No other order holds between media, nor
between victims that do not build on each other. EVENT-1, EVENT-12 and EVENT-14 say how much of this
order is demanded; the rest is what the reference cache does. By `Profile.removes_end_first` the
pages of one node may be removed in any order.

*Twice.* A host copy is stored once, when its copy ends. A page that is loaded back keeps its host
copy (LOAD-5), so that its next eviction emits remove(GPU) alone. Only if the host copy was given up
in between, which emitted remove(CPU), is the page copied again and store(CPU) emitted again; in an
exclusive tier (`Profile.loads_keep_host_copies`) that happens each time.

What readers get wrong: the enqueue of a transfer emits nothing. Stores of backups and load-backs
are emitted when the copy is acknowledged, unless `Profile.load_back_announced` is *enqueued*.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import get_args

from attrs import frozen

from kvcanon.spec.config import CacheConfig, Profile, StoreMoment
from kvcanon.spec.events import AllBlocksCleared, BlockRemoved, BlockStored, Event
from kvcanon.spec.operations import (
    EndPrefetch,
    Evict,
    EvictHost,
    Flush,
    Insert,
    InsertHost,
    LoadBack,
    Operation,
    Poll,
    PollStore,
    Reset,
    Settle,
    method_of,
)
from kvcanon.spec.types import CPU, DISK, EXTERNAL, FULL, GPU, Component, Medium, WritePolicy


class Order(StrEnum):
    """The order in which one operation emits the events of one row.

    On the host under write_back, where parents may lack a copy, it holds within each node only.
    """

    ROOT_FIRST = "root first"
    """A page after the page before it in its prompt."""
    LEAF_FIRST = "leaf first"
    """A page after every page that builds on it."""
    ALONE = "alone"
    """The only event of the operation."""


@frozen
class Condition:
    """The configurations and profiles under which a row applies."""

    words: str
    holds: Callable[[CacheConfig, Profile], bool]


ALWAYS = Condition("", lambda _config, _profile: True)
WRITE_THROUGH = Condition("write-through", lambda config, _: config.backup_hits is not None)
"""Under `write_through` and `write_through_selective`: an insert causes backups."""
WRITE_BACK = Condition(
    "write_back", lambda config, _: config.write_policy is WritePolicy.WRITE_BACK
)
"""Under `write_back`: an eviction copies its victims to the host first."""
LOADS_ACKNOWLEDGED = Condition(
    "acknowledged", lambda _, profile: profile.load_back_announced is StoreMoment.ACKNOWLEDGED
)
"""By `Profile.load_back_announced`: a load-back emits its stores when it is acknowledged."""
LOADS_EXCLUSIVE = Condition(
    "exclusive",
    lambda config, profile: (
        WRITE_BACK.holds(config, profile) and not profile.loads_keep_host_copies
    ),
)
"""By `Profile.loads_keep_host_copies`, under write_back: what is loaded leaves the host."""
LOADS_ENQUEUED = Condition(
    "enqueued", lambda _, profile: profile.load_back_announced is StoreMoment.ENQUEUED
)
"""By the same field: a load-back emits its stores at its enqueue."""


@frozen
class Emission:
    """One row: an event that some operations emit."""

    operations: tuple[type[Operation], ...]
    """The operations that emit it; none stands for the making of a cache."""
    medium: Medium | None
    """The medium that the event names; None for an event about all media."""
    event: type[Event]
    pages: str
    """The pages that the event is emitted for."""
    order: Order
    condition: Condition = ALWAYS


EMISSIONS: tuple[Emission, ...] = (
    Emission((), None, AllBlocksCleared, "all", Order.ALONE),
    Emission((Insert,), GPU, BlockStored, "new on the device", Order.ROOT_FIRST),
    Emission(
        (Insert,),
        CPU,
        BlockRemoved,
        "host victims, for backups",
        Order.LEAF_FIRST,
        WRITE_THROUGH,
    ),
    Emission(
        (InsertHost,),
        CPU,
        BlockRemoved,
        "host victims",
        Order.LEAF_FIRST,
    ),
    Emission((InsertHost,), CPU, BlockStored, "placed, or refilled", Order.ROOT_FIRST),
    Emission((EndPrefetch,), CPU, BlockStored, "placed, or refilled", Order.ROOT_FIRST),
    Emission(
        (Evict, LoadBack),
        CPU,
        BlockRemoved,
        "host victims, or below them",
        Order.LEAF_FIRST,
        WRITE_BACK,
    ),
    Emission(
        (Evict, LoadBack),
        CPU,
        BlockStored,
        "victims, once they are copied",
        Order.ROOT_FIRST,
        WRITE_BACK,
    ),
    Emission((Evict, LoadBack), GPU, BlockRemoved, "victims", Order.LEAF_FIRST),
    Emission((EvictHost,), CPU, BlockRemoved, "victims", Order.LEAF_FIRST),
    Emission(
        (LoadBack,), GPU, BlockStored, "loaded, at the enqueue", Order.ROOT_FIRST, LOADS_ENQUEUED
    ),
    Emission(
        (Settle, Poll, Flush),
        CPU,
        BlockStored,
        "backed up, at the copy's end",
        Order.ROOT_FIRST,
    ),
    Emission(
        (Settle, Poll, Flush),
        GPU,
        BlockStored,
        "loaded, at the copy's end",
        Order.ROOT_FIRST,
        LOADS_ACKNOWLEDGED,
    ),
    Emission(
        (Settle, Poll, Flush),
        CPU,
        BlockRemoved,
        "loaded, once on the device",
        Order.LEAF_FIRST,
        LOADS_EXCLUSIVE,
    ),
    Emission(
        (Settle, Poll, Flush),
        GPU,
        BlockRemoved,
        "loaded, if the copy failed",
        Order.LEAF_FIRST,
        LOADS_ENQUEUED,
    ),
    Emission((PollStore,), DISK, BlockRemoved, "not found there", Order.LEAF_FIRST),
    Emission((PollStore,), DISK, BlockStored, "written, or found there", Order.ROOT_FIRST),
    Emission((PollStore,), EXTERNAL, BlockRemoved, "not found there", Order.LEAF_FIRST),
    Emission((PollStore,), EXTERNAL, BlockStored, "written, or found there", Order.ROOT_FIRST),
    Emission((Reset,), None, AllBlocksCleared, "all", Order.ALONE),
)
"""The table. The rows of an operation stand in the order of its events, for each victim or page:
under write_back a page is stored on the host before it is removed from the device."""

HEADS = ("operation", "medium", "event", "of the pages", "order", "only under")

_FIELDS: dict[type[Event], tuple[str, str, str]] = {
    BlockStored: ("stored", "of the page", "hash of the page before; none for a first page"),
    BlockRemoved: ("removed", "of the page", "not named"),
    AllBlocksCleared: ("cleared", "not named", "not named"),
}
"""The name of each event, and what it carries as hash and parent."""


def _concerns(row: Emission, operation: type[Operation] | None) -> bool:
    return operation in row.operations if operation is not None else not row.operations


def emissions(
    operation: type[Operation] | None,
    component: Component,
    config: CacheConfig,
    profile: Profile,
) -> tuple[Emission, ...]:
    """The rows of an operation (None: the making of a cache) for data of one component."""
    rows = _BY_OPERATION[operation] if component is FULL else ()
    return tuple([row for row in rows if row.condition.holds(config, profile)])


_BY_OPERATION: Mapping[type[Operation] | None, tuple[Emission, ...]] = {
    operation: tuple(row for row in EMISSIONS if _concerns(row, operation))
    for operation in (None, *get_args(Operation))
}


def cells(row: Emission) -> tuple[str, ...]:
    """A row in words: a text for each of `HEADS`."""
    return (
        ", ".join(map(method_of, row.operations)) or "(new cache)",
        "all" if row.medium is None else row.medium.name,
        _FIELDS[row.event][0],
        row.pages,
        row.order.value,
        row.condition.words,
    )


def table() -> list[str]:
    """The table as lines of text, narrow enough for a docstring."""
    silent = ("(any)", "all", "none", "window data and states alone", "", "")
    events = [("event", "hash", "parent"), *_FIELDS.values()]
    return [*_aligned([HEADS, *map(cells, EMISSIONS), silent]), "", *_aligned(events)]


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows with their cells in columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
