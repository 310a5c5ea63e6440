"""Retelling: a reduced case played once more, with every call and its answer written down.

What readers get wrong: a case says what clients try, and calls are what came of it on one cache. So
calls are not kept with a failure: they are heard from the cache itself, whenever somebody asks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from itertools import takewhile
from typing import TypeAlias, TypeVar

from attrs import field, frozen

from kvcanon.conformance.cases.actions import act
from kvcanon.conformance.cases.case import Case
from kvcanon.conformance.cases.client import NAMESPACES, Client, Stamps
from kvcanon.conformance.cases.request_client import RequestClient, act_by_requests
from kvcanon.conformance.errors import UsageError, ViolationError
from kvcanon.conformance.observe.wrapped_cache import Answer, Arguments, WrappedCache
from kvcanon.conformance.protocol.adapter import Adapter, CacheKind, Capability, CopyControl
from kvcanon.conformance.protocol.request import Admitted, FullRequestCache, RequestId
from kvcanon.conformance.search.finding import Grounds
from kvcanon.conformance.search.play import JudgeConfig, laws_of, make_judged, make_judged_requests
from kvcanon.conformance.search.result import Failure
from kvcanon.conformance.search.time_limit import ACTION_SECONDS, CacheSilent, within
from kvcanon.spec.cache import Cache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.events import Event
from kvcanon.spec.law import Level
from kvcanon.spec.operations import Evict, Evicted, Operation, Read, Reset, TakeEvents, Write
from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.types import (
    DEFAULT_NAMESPACE,
    Component,
    Counts,
    Key,
    Medium,
    Namespace,
    Slot,
    Slots,
    TransferId,
)

Result = TypeVar("Result")


@frozen
class Fill:
    """A client writes behind slots what belongs to the last pages of a key."""

    key: Key
    slots: Slots
    start_pages: int = 0
    """Pages before this one are there already."""


@frozen
class Ask:
    """Something is asked of a cache that is used by requests."""

    how: str
    """`admit`, `extend`, `finish` or `abort`."""
    request_id: RequestId
    key: Key | None = None


@frozen
class Decide:
    """Something is decided about a copy in flight."""

    how: str
    """`perform`, `acknowledge` or `fail`."""
    index: int
    """Which of the open transfers it is."""
    transfer_id: TransferId


Asked: TypeAlias = Operation | Ask | Fill | Decide


@frozen
class ReplayedCall:
    """What was asked in an action, and what came of it."""

    action: int
    number: int | None
    """Which operation of the cache it was, counted from 1; None where it was none."""
    asked: Asked
    answer: object = field(eq=False)
    """What was returned, or the exception that was raised."""


class Notebook:
    """Where calls are written down."""

    def __init__(self) -> None:
        self.calls: list[ReplayedCall] = []
        self.action = 0
        self._operations = 0
        self._inside = False

    def hear(self, asked: Asked, call: Callable[[], Result], *, operation: bool = False) -> Result:
        """Make a call and write it down, unless it is a part of one that is being written down."""
        if self._inside:
            return call()
        number = None
        if operation:
            self._operations += 1
            number = self._operations
        try:
            answer = call()
        except (Exception, CacheSilent) as error:
            self.calls.append(ReplayedCall(self.action, number, asked, error))
            raise
        self.calls.append(ReplayedCall(self.action, number, asked, answer))
        return answer

    def hear_whole(self, asked: Asked, call: Callable[[], None]) -> None:
        """Write a call down as one, whatever is called inside."""

        def inside() -> None:
            self._inside = True
            try:
                call()
            finally:
                self._inside = False

        self.hear(asked, inside)


class HeardCache(WrappedCache):
    """A cache whose calls are written down, those that are no operations too."""

    def __init__(self, cache: Cache, notebook: Notebook) -> None:
        super().__init__(cache)
        self._notebook = notebook

    def _around(
        self,
        operation: Operation,
        call: Callable[Arguments, Answer],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Answer:
        return self._notebook.hear(operation, lambda: call(*args, **kwargs), operation=True)

    def read(self, component: Component, medium: Medium, slot: Slot) -> bytes:
        """The bytes behind a slot."""
        asked = Read(component, medium, slot)
        return self._notebook.hear(asked, lambda: self._cache.read(component, medium, slot))

    def write(self, component: Component, slot: Slot, data: bytes) -> None:
        """Set the bytes behind a device slot that a request holds."""
        asked = Write(component, slot, data)
        self._notebook.hear(asked, lambda: self._cache.write(component, slot, data))


class HeardClient(Client):
    """A client that says of many writes what they are together."""

    notebook: Notebook

    def write(self, key: Key, slots: Slots) -> None:
        """Write the stamps of the last pages of a key into slots."""
        if Capability.WRITE in self.can and slots.counts():
            write = super().write
            self.notebook.hear_whole(Fill(key, slots), lambda: write(key, slots))


class HeardRequests:
    """A cache that is used by requests, whose calls are written down."""

    def __init__(self, cache: FullRequestCache, notebook: Notebook) -> None:
        self._cache = cache
        self._notebook = notebook

    @property
    def config(self) -> CacheConfig:
        """What the cache was asked to be."""
        return self._cache.config

    def admit(self, request_id: RequestId, key: Key) -> Admitted:
        """Let a request in."""
        asked = Ask("admit", request_id, key)
        return self._hear(asked, lambda: self._cache.admit(request_id, key))

    def extend(self, request_id: RequestId, key: Key) -> Slots:
        """Make room for a longer key."""
        asked = Ask("extend", request_id, key)
        return self._hear(asked, lambda: self._cache.extend(request_id, key))

    def finish(self, request_id: RequestId) -> None:
        """End a request."""
        self._hear(Ask("finish", request_id), lambda: self._cache.finish(request_id))

    def abort(self, request_id: RequestId) -> None:
        """End a request before its time."""
        self._hear(Ask("abort", request_id), lambda: self._cache.abort(request_id))

    def evict(self, counts: Counts) -> Evicted:
        """Free device slots."""
        return self._hear(Evict(counts), lambda: self._cache.evict(counts))

    def reset(self) -> None:
        """Forget what no running request holds."""
        self._hear(Reset(), self._cache.reset)

    def take_events(self) -> tuple[Event, ...]:
        """The events since the last call."""
        return self._hear(TakeEvents(), self._cache.take_events)

    def write(self, component: Component, slot: Slot, data: bytes) -> None:
        """Set the bytes behind a slot of a running request."""
        asked = Write(component, slot, data)
        self._notebook.hear(asked, lambda: self._cache.write(component, slot, data))

    def read(self, component: Component, medium: Medium, slot: Slot) -> bytes:
        """The bytes behind a slot."""
        asked = Read(component, medium, slot)
        return self._notebook.hear(asked, lambda: self._cache.read(component, medium, slot))

    def snapshot(self) -> Snapshot:
        """The whole state, as a value."""
        return self._cache.snapshot()

    def _hear(self, asked: Asked, call: Callable[[], Result]) -> Result:
        return self._notebook.hear(asked, call, operation=True)


class HeardRequestClient(RequestClient):
    """A client of requests that says of many writes what they are together."""

    notebook: Notebook

    def compute(self, key: Key, computed_pages: int, table: Slots) -> None:
        """Write the stamps of the pages from some page on."""
        if Capability.WRITE in self.can and computed_pages < len(key):
            compute = super().compute
            asked = Fill(key, table, computed_pages)
            self.notebook.hear_whole(asked, lambda: compute(key, computed_pages, table))


class HeardCopies:
    """The hand on the copies of a cache, watched."""

    def __init__(self, copies: CopyControl, notebook: Notebook) -> None:
        self._copies = copies
        self._notebook = notebook

    @property
    def open_transfer_ids(self) -> tuple[TransferId, ...]:
        """Copies that neither completed nor failed."""
        return tuple(self._copies.open_transfer_ids)

    def perform(self, transfer_id: TransferId) -> None:
        """Move the bytes now."""
        self._hear("perform", transfer_id, self._copies.perform)

    def acknowledge(self, transfer_id: TransferId) -> None:
        """Let the next poll report the copy as done."""
        self._hear("acknowledge", transfer_id, self._copies.acknowledge)

    def fail(self, transfer_id: TransferId) -> None:
        """Let the next poll report that the copy failed."""
        self._hear("fail", transfer_id, self._copies.fail)

    def _hear(self, how: str, transfer_id: TransferId, do: Callable[[TransferId], None]) -> None:
        index = self.open_transfer_ids.index(transfer_id)
        self._notebook.hear(Decide(how, index, transfer_id), lambda: do(transfer_id))


@frozen
class Retelling:
    """The calls of a failure."""

    calls: tuple[ReplayedCall, ...]
    again: bool
    """Whether the same was found again; a cache that is not deterministic may do otherwise."""


def judges_of(failure: Failure, asked: Collection[str]) -> JudgeConfig:
    """JudgeConfig who are sure to say what was found, and nothing else before; of the laws asked.

    They raise what should be kept, too, which may have been broken before what must be.
    """
    laws = laws_of(failure.finding.broken or asked)
    if laws and not failure.finding.only_should:
        laws = tuple(law for law in laws if law.level is Level.MUST) or laws
    return JudgeConfig(failure.black_box, laws)


def retell(failure: Failure, adapter: Adapter, judges: JudgeConfig) -> Retelling:
    """Play a failure's case again on a new cache, and write down what is called and answered."""
    notebook = Notebook()
    raised: BaseException | None = None
    play = _play_requests if adapter.kind is CacheKind.REQUEST else _play
    try:
        play(failure.case, adapter, judges, notebook)
    except (Exception, CacheSilent) as error:  # noqa: BLE001  # Whatever it is, it is to be told.
        raised = error
    return Retelling(_up_to_the_finding(notebook.calls, failure), _is_again(raised, failure))


def calls_of(case: Case, adapter: Adapter) -> tuple[ReplayedCall, ...]:
    """The calls of a case on a cache in which nothing is wrong with it. Raises: ViolationError."""
    notebook = Notebook()
    _play(case, adapter, JudgeConfig(black_box=True), notebook)
    return tuple(notebook.calls)


def _up_to_the_finding(calls: Sequence[ReplayedCall], failure: Failure) -> tuple[ReplayedCall, ...]:
    """The calls as far as they matter: where two caches differ, both of them go on."""
    last = failure.finding.operation
    kept = list(takewhile(lambda call: call.number is None or call.number <= last, calls))
    while kept and kept[-1].number is None and not isinstance(kept[-1].answer, BaseException):
        kept.pop()
    return tuple(kept)


def _is_again(raised: BaseException | None, failure: Failure) -> bool:
    match failure.finding.grounds:
        case Grounds.LAW:
            broken = raised.violations if isinstance(raised, ViolationError) else ()
            return failure.finding.name in {each.law.law_id for each in broken}
        case Grounds.CRASH:
            # A cache that could not even be made was asked nothing.
            kind = UsageError.__name__ if not failure.finding.operation else failure.finding.name
            return type(raised).__name__ == kind
        case Grounds.AGREEMENT:
            # It takes two to differ, and only one of them was asked.
            return raised is None


def _play(case: Case, adapter: Adapter, judges: JudgeConfig, notebook: Notebook) -> None:
    subject, judge = make_judged(adapter, case.config, judges.of_case(case))
    copies = None if subject.copies is None else HeardCopies(subject.copies, notebook)
    cache, stamps = HeardCache(judge, notebook), Stamps(case.config.slot_bytes)
    client = HeardClient(cache, subject.can, copies, stamps, _namespaces_of(adapter))
    client.notebook = notebook
    for action in case.actions:
        within(ACTION_SECONDS, partial(act, client, *action))
        notebook.action += 1
    if case.drain:
        within(ACTION_SECONDS, partial(client.drain, case.drain))


def _play_requests(case: Case, adapter: Adapter, judges: JudgeConfig, notebook: Notebook) -> None:
    subject, judge = make_judged_requests(adapter, case.config, judges)
    cache, stamps = HeardRequests(judge, notebook), Stamps(case.config.slot_bytes)
    client = HeardRequestClient(cache, subject.can, stamps, _namespaces_of(adapter))
    client.notebook = notebook
    for action in case.actions:
        within(ACTION_SECONDS, partial(act_by_requests, client, *action))
        notebook.action += 1
    if case.drain:
        within(ACTION_SECONDS, partial(client.drain, case.drain))


def _namespaces_of(adapter: Adapter) -> tuple[Namespace, ...]:
    """The namespaces of which a client's keys are."""
    return NAMESPACES if adapter.offer.namespaces else (DEFAULT_NAMESPACE,)
