"""A stopwatch for single calls, and the limit that each of them must keep.

A call is given the time for what it names: pages of its prompt or of its receipt's prompt, slots,
victims, events, transfers. It is not given time for the size of the tree.

Times are those of the calling thread alone, so that other work on the machine does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from time import thread_time_ns
from typing import TypeVar

import numpy as np
from attrs import Factory, asdict, define, frozen

LIMIT_US = 1000.0
"""Time of a call that names nothing."""
NAMED_US = 2.0
"""More time for each thing that a call names."""
RARE_LIMIT_US = 5000.0
"""The limit of one call in ten thousand, in which a table may grow."""
RARELY = 1e-4

Answer = TypeVar("Answer")


@frozen
class CallTimes:
    """Times of one operation in one scene, in microseconds."""

    scene: str
    operation: str
    calls: int
    p50_us: float
    p99_us: float
    p999_us: float
    max_us: float
    over: int
    """Calls above the limit."""
    far_over: int
    """Calls above the limit of rare calls."""
    worst_named: int
    """What the call named that was nearest to its limit, or farthest above."""
    worst_us: float

    @property
    def holds(self) -> bool:
        """Whether every call kept its limit, but for rare ones."""
        return self.far_over == 0 and self.over <= self.calls * RARELY

    def to_json(self) -> dict[str, object]:
        """The times as a value for JSON."""
        return {**asdict(self), "holds": self.holds}


@define
class Stopwatch:
    """Times the calls of a scene, by operation."""

    took_ns: dict[str, list[int]] = Factory(dict)
    named: dict[str, list[int]] = Factory(dict)

    def time(
        self,
        operation: str,
        action: Callable[[], Answer],
        named: int | Callable[[Answer], int],
    ) -> Answer:
        """Time one call, which names so many things; the answer may say how many."""
        began = thread_time_ns()
        answer = action()
        took = thread_time_ns() - began
        self.took_ns.setdefault(operation, []).append(took)
        count = named if isinstance(named, int) else named(answer)
        self.named.setdefault(operation, []).append(count)
        return answer

    def times(self, scene: str) -> Iterable[CallTimes]:
        """The times of each operation."""
        for operation, took in self.took_ns.items():
            yield call_times(scene, operation, took, self.named[operation])


def call_times(
    scene: str, operation: str, took_ns: Sequence[int], named: Sequence[int]
) -> CallTimes:
    """Compare the times of calls with their limits."""
    took = np.asarray(took_ns, dtype=np.float64) / 1e3
    more = np.asarray(named, dtype=np.float64) * NAMED_US
    worst = int(np.argmax(took / (LIMIT_US + more)))
    p50, p99, p999 = np.percentile(took, (50, 99, 99.9))
    return CallTimes(
        scene=scene,
        operation=operation,
        calls=len(took),
        p50_us=float(p50),
        p99_us=float(p99),
        p999_us=float(p999),
        max_us=float(took.max()),
        over=int(np.count_nonzero(took > LIMIT_US + more)),
        far_over=int(np.count_nonzero(took > RARE_LIMIT_US + more)),
        worst_named=named[worst],
        worst_us=float(took[worst]),
    )
