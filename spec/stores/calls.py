"""Calls of a store and their answers, as values, and a call with what was known before it.

A `StoreStep` is what the laws of stores judge: one call, its answer and how long it took, beside
what was known of every page before it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

from attrs import field, frozen

from kvcanon.spec.stores.known import KnownPages
from kvcanon.spec.stores.pages import PageKey, StoreIdentity


class Ability(StrEnum):
    """What a store can do, besides put, get and exists. A law may need some of them."""

    DURABLE = "durable"
    """Pages outlive the process that put them, and its crash."""
    SHARED = "shared"
    """Several processes open the store at once."""
    EVICTS = "evicts"
    """It has a capacity, and makes room by removing pages."""
    REMOVES = "removes"
    """Pages can be removed by name."""
    RUNS = "runs"
    """It counts the leading run of a prompt itself."""
    POOLS = "pools"
    """A page may have several pools."""
    FILES = "files"
    """Its pages are in files that can be damaged."""
    STALLS = "stalls"
    """Its medium or its server can be stopped and continued."""
    NAMESPACES = "namespaces"
    """It makes the names of pages from tokens and namespace, or takes whole names."""


class Interruption(StrEnum):
    """What happened to a put while it ran."""

    NONE = "none"
    KILLED = "killed"
    """Its process was killed."""
    WRITES_FAIL = "writes fail"
    """Files could not grow beyond a size."""
    OVERTAKEN = "overtaken"
    """It was stopped half-way while another writer put the same pages, and went on."""


@frozen
class PageRead:
    """What a get gave for one page."""

    length: int | None
    """The answer: bytes of the page, or None."""
    data: bytes
    """The first `length` bytes of the buffer."""


@frozen
class PutCall:
    """A put of pages."""

    pages: tuple[tuple[PageKey, bytes], ...]
    interruption: Interruption = Interruption.NONE


@frozen
class GetCall:
    """A get of pages into buffers of these sizes."""

    keys: tuple[PageKey, ...]
    sizes: tuple[int, ...]


@frozen
class ExistsCall:
    """A call that asks which pages are there."""

    keys: tuple[PageKey, ...]
    census: bool = False
    """Whether it is about all pages that were ever put, to see what evictions left."""


@frozen
class RunCall:
    """A call that asks for the leading run of a prompt."""

    keys: tuple[PageKey, ...]


@frozen
class RemoveCall:
    """A removal of pages."""

    keys: tuple[PageKey, ...]


@frozen
class OpenCall:
    """An open of the store: at first, after a close, or after a crash or damage."""

    after: str = ""
    """What happened before it, as "its process was killed"; empty for nothing."""


@frozen
class LookCall:
    """A look at the memory that earlier gets were given, and at the size of the store."""


@frozen
class Looked:
    """What a look found."""

    late_writes: tuple[str, ...]
    """Buffers that changed after their get had returned, in words."""
    used_bytes: int | None
    """The size of the store; None if it cannot be told."""


@frozen
class Failed:
    """A call that did not answer: it raised, or its process ended."""

    words: str
    killed: bool = False
    """Whether the judge killed the process in the call."""
    silent: bool = False
    """Whether there was no answer in the time that the judge waits."""


@frozen
class Answered:
    """An answer, and what else the judge saw of the call."""

    value: object
    strayed: str = ""
    """In words, where a get wrote outside of its buffers; empty if nowhere."""


StoreCall: TypeAlias = PutCall | GetCall | ExistsCall | RunCall | RemoveCall | OpenCall | LookCall


@frozen
class Handle:
    """An open store, as one process sees it."""

    writer: int
    """Its number among the writers."""
    identity: StoreIdentity
    life: int
    """Counts up with each open."""


@frozen
class Situation:
    """What disturbs the store while a call runs."""

    stalled: bool = False
    """Its medium or server is stopped."""
    timeouts: tuple[float, ...] = ()
    """How long the earlier calls of this handle took since it was stopped, in seconds."""
    resumed: bool = False
    """It was stopped before, is running again, and has had the time to notice that it claims."""
    recovering: bool = False
    """It was stopped and is running again, and has not yet had that time."""
    damaged: bool = False
    """Files of it were damaged at some time before."""


@frozen
class StoreTerms:
    """What a store says of itself, in numbers."""

    abilities: frozenset[Ability] = frozenset()
    deadline_seconds: float | None = None
    """No call takes longer; None if the store promises none."""
    capacity_bytes: int | None = None
    """Its capacity in this run; None if it was given none."""
    slack_bytes: int = 0
    """How much of the capacity it may need for itself: as long as the rest holds all pages, it has
    no reason to evict."""


@frozen
class StoreStep:
    """A call of a store, its answer, and what was known before."""

    handle: Handle
    call: StoreCall
    answer: Answered | Failed
    before: KnownPages
    terms: StoreTerms = StoreTerms()
    seconds: float = 0.0
    situation: Situation = field(factory=Situation)
    judges_time: bool = True
    """Whether the time of the call was measured."""
