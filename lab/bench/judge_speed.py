"""How fast the judge is: steps per second, where the time goes, and what larger trees cost.

Rates are measured without inner clocks. Shares are measured in separate runs with them: a clock
around every law slows a step, but all its parts alike.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import update_wrapper
from itertools import count
from random import Random
from statistics import linear_regression
from time import perf_counter_ns, process_time
from typing import Any, cast

from attrs import evolve, frozen

import kvcanon.spec.laws  # noqa: F401  # Importing the laws registers them.
from kvcanon.conformance.cases.actions import act
from kvcanon.conformance.cases.case import PICKS
from kvcanon.conformance.cases.client import Client, Stamps
from kvcanon.conformance.cases.draw import draw_case
from kvcanon.conformance.check.trial import Trial
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.judge import GuardedCache, JudgeConfig, guard_states, make_judged
from kvcanon.conformance.protocol.adapter import Adapter
from kvcanon.conformance.protocol.drawn_config import usual_config
from kvcanon.conformance.protocol.wrapped_cache import Answer, Arguments, WrappedCache
from kvcanon.spec.cache import Cache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.law import LAWS, Law
from kvcanon.spec.operations import Operation
from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.types import Component, Counts, Medium, Slot

INSIDE = JudgeConfig()
THOROUGH = JudgeConfig(thorough=True)
OUTSIDE = JudgeConfig(black_box=True)
PARTS = ("laws", "snapshot", "cache")
"""The timed parts; the rest is the judge's and the clients' own time."""


@frozen
class Rate:
    """How many steps were judged in how much time of one core."""

    steps: int
    seconds: float

    @property
    def per_second(self) -> float:
        """Steps per second."""
        return self.steps / self.seconds if self.seconds else 0.0


def rate(adapter: Adapter, judges: JudgeConfig, seconds: float) -> Rate:
    """Play the walker's cases on the usual configuration for some seconds. Raises: UsageError."""
    trial, config, steps = Trial(adapter, judges), usual_config(), 0
    began = process_time()
    for seed in count():
        finding, tally = trial.play(draw_case(seed, adapter.offer, config))
        if finding is not None:
            raise UsageError(f"{adapter.name} is not sound, in case {seed}: {finding.text}")
        steps += tally.steps
        if process_time() - began >= seconds:
            break
    return Rate(steps, process_time() - began)


# Where the time goes.


class Clock:
    """Time spent in parts that do not call each other."""

    def __init__(self) -> None:
        self.spent_ns: Counter[str] = Counter()

    def taken(self, part: str, call: Callable[Arguments, Any]) -> Callable[Arguments, Any]:
        """Wrap a call so that its time counts for this part."""

        def timed(*args: Arguments.args, **kwargs: Arguments.kwargs) -> object:
            began_ns = perf_counter_ns()
            try:
                return call(*args, **kwargs)
            finally:
                self.spent_ns[part] += perf_counter_ns() - began_ns

        return timed


class _ClockedCache(WrappedCache):
    """A cache that times all calls of the judge."""

    def __init__(self, cache: Cache, clock: Clock) -> None:
        super().__init__(cache)
        self._clock = clock

    def _around(
        self,
        operation: Operation,  # noqa: ARG002  # All operations are timed alike.
        call: Callable[Arguments, Answer],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Answer:
        answer: Answer = self._clock.taken("cache", call)(*args, **kwargs)
        return answer

    def snapshot(self) -> Snapshot:
        """Return the whole state, as a value."""
        state: Snapshot = self._clock.taken("snapshot", super().snapshot)()
        return state

    def read(self, component: Component, medium: Medium, slot: Slot) -> bytes:
        """Return the bytes of a slot."""
        data: bytes = self._clock.taken("cache", super().read)(component, medium, slot)
        return data

    def write(self, component: Component, slot: Slot, data: bytes) -> None:
        """Set the bytes of a device slot that a request holds."""
        self._clock.taken("cache", super().write)(component, slot, data)


def shares(adapter: Adapter, judges: JudgeConfig, seconds: float) -> dict[str, float]:
    """Return the share of each part in the time of a step. Raises: UsageError."""
    clock = Clock()
    with _clocked_laws(clock):
        began_ns = perf_counter_ns()
        rate(_clocked(adapter, clock), judges, seconds)
        total_ns = perf_counter_ns() - began_ns
    parts = {part: clock.spent_ns[part] / total_ns for part in PARTS}
    return {**parts, "rest": 1 - sum(parts.values())}


def _clocked(adapter: Adapter, clock: Clock) -> Adapter:
    def make(*args: Any, **kwargs: Any) -> Cache:  # noqa: ANN401  # As the factory's own.
        return _ClockedCache(cast("Cache", adapter.make(*args, **kwargs)), clock)

    # Only the signature matters: it shows whether the factory takes an engine.
    return evolve(adapter, make=update_wrapper(make, adapter.make, assigned=(), updated=()))


@contextmanager
def _clocked_laws(clock: Clock) -> Iterator[None]:
    """Put a clock around every law until the end of the `with`."""

    def clocked(law: Law) -> Law:
        timed = clock.taken("laws", lambda subject: list(law.check(subject)))
        return evolve(law, check=lambda subject: iter(timed(subject)))

    book = dict(LAWS)
    LAWS.update({law_id: clocked(law) for law_id, law in book.items()})
    try:
        yield
    finally:
        LAWS.update(book)


# What larger trees cost.


@frozen
class Cost:
    """The cost of a step on a tree of some size."""

    nodes: float
    """The average of the tree's size before and after."""
    us_per_step: float


NODES = (50, 100, 200, 500)
LIGHT = ("match", "lock", "unlock", "serve", "evict", "copy", "poll", "take_events")
"""Actions that leave a tree about as large as it was."""
FILLED_BY = 8
"""Requests between two readings of the size of a growing tree."""


def cost_at(adapter: Adapter, judges: JudgeConfig, nodes: int, actions: int = 100) -> Cost:
    """Fill a cache up to this many nodes, and measure light work on it. Raises: UsageError."""
    config = _roomy(nodes)
    subject, judge = make_judged(adapter, config, judges)
    # A judge by states may start later; a black-box judge must see every call from the start.
    client = Client(
        subject.cache if isinstance(judge, GuardedCache) else judge,
        subject.can,
        subject.copies,
        Stamps(config.slot_bytes),
    )
    random = Random(nodes)
    while (before := _size(subject.cache)) < nodes:
        for _ in range(FILLED_BY):
            act(client, "serve", *(random.randrange(PICKS) for _ in range(3)))
    client.cache.flush()
    client.cache.take_events()
    if isinstance(judge, GuardedCache):
        judge = guard_states(subject.cache, thorough=judges.thorough)
        client.cache = judge
    steps, began = judge.steps, process_time()
    for _ in range(actions):
        # Known prompts: `serve` makes a new one unless 3 divides its last pick.
        a, b, c = (random.randrange(PICKS) for _ in range(3))
        act(client, random.choice(LIGHT), a, b, 3 * c)
    us = (process_time() - began) / (judge.steps - steps) * 1e6
    return Cost((before + _size(subject.cache)) / 2, us)


def growth(costs: Sequence[Cost]) -> float:
    """Return the power of the tree's size with which the cost grows: 1 is linear."""
    sizes = [math.log(cost.nodes) for cost in costs]
    times = [math.log(cost.us_per_step) for cost in costs]
    return linear_regression(sizes, times).slope


def _roomy(nodes: int) -> CacheConfig:
    """Return the usual configuration, with pools for a tree of this size."""
    room = Counts(full=4 * nodes, swa=4 * nodes)
    return evolve(usual_config(), device_slots=room, host_slots=room)


def _size(cache: Cache) -> int:
    return len(cache.snapshot().nodes)
