"""The judged cache: what every judge of a cache by prefixes is, and counts of served calls.

A cache that refuses all calls breaks few laws. So judges count how often each operation was served.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from attrs import Factory, define

from kvcanon.conformance.judge.one_thread import OneThread
from kvcanon.conformance.protocol.wrapped_cache import Answer, Arguments, WrappedCache
from kvcanon.conformance.workers.notes import NOTE
from kvcanon.spec.cache import Cache
from kvcanon.spec.errors import CacheError
from kvcanon.spec.operations import (
    METHODS,
    Allocate,
    Evict,
    EvictHost,
    Free,
    Insert,
    InsertHost,
    LoadBack,
    Lock,
    Match,
    Operation,
    Unlock,
    UnlockWindow,
)


@define
class Service:
    """How often each operation of a cache was served and refused, by method."""

    served: Counter[str] = Factory(Counter)
    refused: Counter[str] = Factory(Counter)

    def note(self, operation: Operation, *, refused: bool) -> None:
        """Count a call, unless its arguments are empty: no page, no slot."""
        asks_for = _ASKS_FOR.get(type(operation))
        if asks_for is None or asks_for(operation):
            counts = self.refused if refused else self.served
            counts[METHODS[type(operation)]] += 1


_ASKS_FOR: Mapping[type[Operation], Callable[[Any], object]] = {
    **dict.fromkeys((Match, Lock, InsertHost), lambda asked: asked.key),
    # Every cache refuses a quota below zero.
    LoadBack: lambda asked: asked.key and (asked.quota_pages or 0) >= 0,
    **dict.fromkeys((Unlock, UnlockWindow), lambda asked: asked.receipt.key),
    **dict.fromkeys((Allocate, Evict, EvictHost), lambda asked: asked.counts),
    **dict.fromkeys((Free, Insert), lambda asked: asked.slots.counts()),
}
"""The arguments of operations that may be empty; a cache serves an empty call by doing nothing."""


class JudgedCache(WrappedCache):
    """A cache that is judged while it works. `Cache` documents its methods."""

    def __init__(self, cache: Cache) -> None:
        super().__init__(cache)
        self.steps = 0
        """How many operations were called."""
        self.service = Service()
        """The operations that were served."""
        self._one_thread = OneThread()

    @abstractmethod
    def _judge_call(
        self,
        operation: Operation,
        call: Callable[Arguments, Answer],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Answer:
        """Make the call of the operation, judge it, and return its answer."""

    def _around(
        self,
        operation: Operation,
        call: Callable[Arguments, Answer],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Answer:
        with self._one_thread:
            self.steps += 1
            NOTE.operation(METHODS[type(operation)])
            try:
                answer = self._judge_call(operation, call, *args, **kwargs)
            except CacheError:
                self.service.note(operation, refused=True)
                raise
            self.service.note(operation, refused=False)
            return answer
