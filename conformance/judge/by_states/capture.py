"""Step capture: one operation with the states around it, its outcome, its events and bytes.

The guard captures the steps that it judges; an exploration captures every step.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Generic, Protocol, TypeAlias, cast

from attrs import frozen

from kvcanon.conformance.judge.answers import Read, require_answer
from kvcanon.conformance.protocol.adapter import WatchedCopies, ends_known, engine_calls
from kvcanon.conformance.protocol.wrapped_cache import Answer, Arguments
from kvcanon.spec.cache import Cache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.difference import Difference
from kvcanon.spec.errors import CacheError
from kvcanon.spec.operations import (
    Done,
    EndPrefetch,
    Match,
    Matched,
    Operation,
    Outcome,
    Refused,
    Taken,
)
from kvcanon.spec.snapshot import RankView, Snapshot
from kvcanon.spec.transfer import Completion
from kvcanon.spec.types import GPU, Component, Key, ReceiptId
from kvcanon.spec.views import Stamp, Step

if TYPE_CHECKING:
    from kvcanon.conformance.judge.by_states.store_watch import StoreWatch

KnownBytes: TypeAlias = Callable[[Component], Sequence[tuple[bytes, ...]]]
"""The bytes that each page of a key may have; empty where they are unknown."""


@frozen
class CallResult(Generic[Answer]):
    """What a call on a cache returned or raised."""

    outcome: Outcome
    refusal: CacheError | None
    answer: Answer | None
    """None if it was refused."""

    def unwrap(self) -> Answer:
        """Return what the call returned, or raise the refusal that it raised."""
        if self.refusal is not None:
            raise self.refusal
        return cast("Answer", self.answer)


def call_cache(
    call: Callable[Arguments, Answer], *args: Arguments.args, **kwargs: Arguments.kwargs
) -> CallResult[Answer]:
    """Make a call. A `CacheError` is a result; every other exception is raised."""
    try:
        answer = call(*args, **kwargs)
    except CacheError as error:
        return CallResult(Refused(error), error, None)
    outcome = Done() if answer is None else Taken(answer) if isinstance(answer, tuple) else answer
    return CallResult(outcome, None, answer)


class StampReader(Protocol):
    """Reads the bytes of the slots that a match returned."""

    def __call__(self, key: Key, matched: Matched) -> tuple[Stamp, ...]:
        """Return the bytes, slot by slot, of those slots whose right bytes are known."""


@frozen
class StepCapture:
    """Captures the operations of one cache as steps."""

    cache: Cache
    copies: WatchedCopies | None
    """Says how copies ended; None if unknown."""
    read_stamps: StampReader
    ranks: Callable[[], tuple[RankView, ...]] | None = None
    """Shows the last operation on each rank; None for a cache that is no rank."""
    store: StoreWatch | None = None
    """Watches the store below the cache; None without one."""
    thorough: bool = False
    """Whether a state that equals the one before stays another object, and is judged anew."""

    def step(
        self,
        before: Snapshot,
        operation: Operation,
        outcome: Outcome,
        given: Collection[ReceiptId] = frozenset(),
        arrived: tuple[Completion, ...] | None = None,
    ) -> Step:
        """Capture the operation that was called last.

        `given` are the receipts returned before, and `arrived` what `arrived` said before.
        """
        state = self.cache.snapshot()
        require_answer("snapshot", state)
        difference = Difference(before, state)
        if difference.is_none and not self.thorough:
            difference = Difference(before, before)
        elif not (self.thorough or difference.rebuilt):
            state.stand_as(before)
        after = difference.after
        events = after.events
        if not isinstance(outcome, Taken) and events[: len(before.events)] == before.events:
            events = events[len(before.events) :]
        stamps: tuple[Stamp, ...] = ()
        if isinstance(operation, Match) and isinstance(outcome, Matched):
            stamps = self.read_stamps(operation.key, outcome)
        if isinstance(operation, EndPrefetch) and self.store is not None:
            stamps = self.store.stamps(before, operation, after)
        ranks = self.ranks() if self.ranks is not None else ()
        return Step(
            before,
            operation,
            outcome,
            after,
            events,
            stamps,
            given=given,
            ended=ends_known(self.copies, before) if before.transfers else {},
            asked=engine_calls(self.copies),
            arrived=arrived,
            ranks=ranks,
            store=None if self.store is None else self.store.calls(),
            difference=difference,
        )


def read_known_slots(
    matched: Matched, config: CacheConfig, read: Read, known_bytes: KnownBytes
) -> tuple[Stamp, ...]:
    """Read each slot that a match returned, if the bytes of its page are known.

    Slots outside the pools and pages beyond the key are skipped: the laws of matches check them.
    """
    found: list[Stamp] = []
    for component, slots in matched.slots:
        if not slots:
            continue
        known = known_bytes(component)
        capacity = config.capacity(component, GPU)
        for page, slot in enumerate(slots, matched.device_pages - len(slots)):
            if 0 <= page < len(known) and 0 <= slot < capacity and known[page]:
                data = read(component, GPU, slot)
                require_answer("read", data)
                expected = data if data in known[page] else known[page][-1]
                found.append(Stamp(component, page, slot, expected, data))
    return tuple(found)
