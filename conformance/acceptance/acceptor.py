"""The acceptor: a cache that is judged by what it answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection

from kvcanon.conformance.adapters.adapter import Subject
from kvcanon.conformance.wrapping import Answer, Arguments, WrappedCache
from kvcanon.spec.config import Profile
from kvcanon.spec.law import Law
from kvcanon.spec.operations import Operation


class Acceptor(WrappedCache):
    """A cache that is judged by what it answers."""

    def __init__(self, subject: Subject, profile: Profile, laws: Collection[Law]) -> None:
        super().__init__(subject.cache)
        self.steps = 0
        self.laws_judged: Counter[str] = Counter()

    def _around(
        self,
        operation: Operation,
        call: Callable[Arguments, Answer],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Answer:
        self.steps += 1
        return call(*args, **kwargs)
