"""Retelling: a reduced case played once more, with every call and its answer written down.

What readers get wrong: a case says what clients try, and calls are what came of it on one cache. So
calls are not kept with a failure: they are heard from the cache itself, whenever somebody asks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import takewhile
from typing import TypeAlias, TypeVar

from attrs import field, frozen

from kvcanon.conformance.adapters.adapter import Adapter, Capability, CopyControl
from kvcanon.conformance.cases.actions import act
from kvcanon.conformance.cases.client import NAMESPACES, Client, Stamps
from kvcanon.conformance.judging.finding import Grounds
from kvcanon.conformance.judging.play import Judges, make_judged
from kvcanon.conformance.judging.result import Failure
from kvcanon.conformance.verdict import LawsBroken
from kvcanon.conformance.wrapping import Answer, Arguments, WrappedCache
from kvcanon.spec.cache import Cache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.law import LAWS
from kvcanon.spec.operations import Operation
from kvcanon.spec.types import DEFAULT_NAMESPACE, Component, Key, Medium, Slot, Slots, TransferId


Result = TypeVar("Result")


@frozen
class Fill:
    """A client writes behind slots what belongs to the last pages of a key."""

    key: Key
    slots: Slots


@frozen
class Write:
    """Some bytes are written behind a slot."""

    component: Component
    slot: Slot
    data: bytes


@frozen
class Read:
    """The bytes behind a slot are read."""

    component: Component
    medium: Medium
    slot: Slot


@frozen
class Decide:
    """Something is decided about a copy in flight."""

    how: str
    """`perform`, `acknowledge` or `fail`."""
    index: int
    """Which of the open transfers it is."""
    transfer_id: TransferId


Asked: TypeAlias = Operation | Fill | Write | Read | Decide


@frozen
class Call:
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
        self.calls: list[Call] = []
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
        except Exception as error:
            self.calls.append(Call(self.action, number, asked, error))
            raise
        self.calls.append(Call(self.action, number, asked, answer))
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
        if Capability.WRITE in self.can:
            write = super().write
            self.notebook.hear_whole(Fill(key, slots), lambda: write(key, slots))


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

    calls: tuple[Call, ...]
    again: bool
    """Whether the same was found again; a cache that is not deterministic may do otherwise."""


def judges_of(failure: Failure, asked: Collection[str]) -> Judges:
    """Judges who are sure to say what was found, and nothing else before; of the laws asked."""
    laws = failure.finding.broken or asked
    return Judges(failure.black_box, tuple(LAWS[law_id] for law_id in laws))


def retell(failure: Failure, adapter: Adapter, judges: Judges) -> Retelling:
    """Play a failure's case again on a new cache, and write down what is called and answered."""
    notebook = Notebook()
    raised: Exception | None = None
    try:
        client = _client(adapter, failure.case.config, judges, notebook)
        for action in failure.case.actions:
            act(client, *action)
            notebook.action += 1
        client.drain(failure.case.drain)
    except Exception as error:  # noqa: BLE001  # Whatever it is, it is what is being told.
        raised = error
    return Retelling(_up_to_the_finding(notebook.calls, failure), _is_again(raised, failure))


def _up_to_the_finding(calls: Sequence[Call], failure: Failure) -> tuple[Call, ...]:
    """The calls as far as they matter: where two caches differ, both of them go on."""
    last = failure.finding.operation
    kept = list(takewhile(lambda call: call.number is None or call.number <= last, calls))
    while kept and kept[-1].number is None and not isinstance(kept[-1].answer, Exception):
        kept.pop()
    return tuple(kept)


def _is_again(raised: Exception | None, failure: Failure) -> bool:
    match failure.finding.grounds:
        case Grounds.LAW:
            broken = raised.violations if isinstance(raised, LawsBroken) else ()
            return failure.finding.name in {each.law.law_id for each in broken}
        case Grounds.CRASH:
            return type(raised).__name__ == failure.finding.name
        case Grounds.AGREEMENT:
            # It takes two to differ, and only one of them was asked.
            return raised is None


def _client(
    adapter: Adapter, config: CacheConfig, judges: Judges, notebook: Notebook
) -> HeardClient:
    subject, judge = make_judged(adapter, config, judges)
    client = HeardClient(
        HeardCache(judge, notebook),
        subject.can,
        None if subject.copies is None else HeardCopies(subject.copies, notebook),
        Stamps(config.slot_bytes),
        NAMESPACES if adapter.offer.namespaces else (DEFAULT_NAMESPACE,),
    )
    client.notebook = notebook
    return client
