"""What the guard in production adds to a request, outside the calls that it judges.

The same requests go through a bare fast cache and through a guarded one, in turns. Of each request
the least time of its rounds counts, so that other work on the machine counts little; the figure is
what the guard added to the request in which it added the most, but one in a hundred.

A request's time is that of the whole server in lab/bench/measured/server.json.

Run it as `python -m kvcanon.lab.bench.guard_tails --json guard_tails.json`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from time import perf_counter_ns
from typing import Any, cast

from attrs import asdict, define, field, frozen

from kvcanon.conformance import ProductionGuard, production_guard
from kvcanon.conformance.protocol.adapter import subject_of
from kvcanon.conformance.protocol.wrapped_cache import Answer, Arguments, WrappedCache
from kvcanon.conformance.replay.engine import TreeEngine
from kvcanon.conformance.replay.workloads.chat import Chat
from kvcanon.lab.site.measured import read_measured
from kvcanon.run_record import with_run
from kvcanon.spec.cache import Cache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.operations import Operation
from kvcanon.spec.types import Counts

MODULE = "kvcanon.lab.bench.guard_tails"
RATE = 0.01
PAGE_SIZE = 16
POOL_TOKENS = 32_768
MOST_SHARE = 0.03
"""Of a request's time, which the guard may add at p99."""


@frozen
class GuardTail:
    """What the guard adds to a request none of whose calls is judged."""

    rate: float
    requests: int
    """Those that were not judged, in any round."""
    rounds: int
    calls: int
    judged: int
    """Calls of all rounds, and how many of them were judged."""
    cache_us: dict[str, float]
    """The time of a request in the bare cache: p50 and p99."""
    added_us: dict[str, float]
    """What the guard added to it: p50, p99 and the most."""
    request_us: float
    """The time of a request in a whole server."""

    @property
    def share(self) -> float:
        """The share of a request's time that is added at p99."""
        return self.added_us["p99"] / self.request_us

    def to_json(self) -> dict[str, Any]:
        """All figures."""
        return asdict(self) | {"share": self.share}


class TimedByRequest(WrappedCache):
    """A cache whose calls are timed, all of a request together."""

    def __init__(self, cache: Cache) -> None:
        super().__init__(cache)
        self.taken_ns = 0

    def _around(
        self,
        operation: Operation,  # noqa: ARG002  # They are timed together.
        call: Callable[Arguments, Answer],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Answer:
        """Add the time of a call."""
        began = perf_counter_ns()
        try:
            return call(*args, **kwargs)
        finally:
            self.taken_ns += perf_counter_ns() - began


@define
class TimedRun:
    """A cache, and how long each request took in it."""

    cache: Cache
    guard: ProductionGuard | None
    timed: TimedByRequest = field(init=False)
    engine: TreeEngine = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.timed = TimedByRequest(self.cache)
        self.engine = TreeEngine(self.timed, stamped=False, can=subject_of(self.cache).can)

    def serve(self, request: Any) -> tuple[int, bool]:  # noqa: ANN401  # A request of a workload.
        """Serve a request: its nanoseconds, and whether a call of it was judged."""
        before = 0 if self.guard is None else self.guard.counts.judged
        self.timed.taken_ns = 0
        self.engine.serve(request)
        judged = 0 if self.guard is None else self.guard.counts.judged
        return self.timed.taken_ns, judged > before


def guard_tail(rounds: int, conversations: int, request_us: float) -> GuardTail:
    """Serve the same requests with the guard and without."""
    requests = Chat(conversations=conversations).requests()
    bare: list[list[int]] = [[] for _ in requests]
    guarded: list[list[int]] = [[] for _ in requests]
    is_judged = [False] * len(requests)
    calls = judged = 0
    for number in range(rounds):
        plain = TimedRun(_cache(), None)
        guard = production_guard(_cache(), RATE, seed=number)
        watched = TimedRun(cast("Cache", guard), guard)
        for at, request in enumerate(requests):
            # Neither is always the one whose tokens are in the processor's cache.
            pair = (plain, watched) if (at + number) % 2 else (watched, plain)
            for served in pair:
                taken, was_judged = served.serve(request)
                (bare if served is plain else guarded)[at].append(taken)
                is_judged[at] |= was_judged
        if guard.counts.violations or guard.counts.errors:
            sys.exit(f"the guard of a sound cache says {guard.counts}")
        calls, judged = calls + guard.counts.calls, judged + guard.counts.judged
    kept = [at for at in range(len(requests)) if not is_judged[at]]
    least = [min(bare[at]) / 1000 for at in kept]
    added = [min(guarded[at]) / 1000 - before for at, before in zip(kept, least, strict=True)]
    return GuardTail(
        RATE,
        len(kept),
        rounds,
        calls,
        judged,
        {"p50": statistics.median(least), "p99": _at(least, 0.99)},
        {"p50": statistics.median(added), "p99": _at(added, 0.99), "most": max(added)},
        request_us,
    )


def _cache() -> Cache:
    config = CacheConfig(
        page_size=PAGE_SIZE, device_slots=Counts(POOL_TOKENS // PAGE_SIZE), events=True
    )
    # The judge loads the fast cache by name, as it loads any cache.
    return cast("Cache", import_module("kvcanon.optimized").OptimizedCache(config))


def _at(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def request_us(checkout: Path) -> float:
    """The time of a request in a whole server, from what its cache takes and is a share of."""
    server = read_measured(checkout)["server"]
    spent = float(server.cell("kvcanon", "cache, us a request"))
    return 100 * spent / float(server.cell("kvcanon", "of a request's time").removesuffix(" %"))


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="What the guard adds to a request.")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--conversations", type=int, default=200)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures")
    given = parser.parse_args()
    found = guard_tail(given.rounds, given.conversations, request_us(Path.cwd()))
    print(
        f"rate {found.rate}: {found.requests:,} requests without a judged call; the cache takes "
        f"{found.cache_us['p50']:.1f} us of each (p99 {found.cache_us['p99']:.1f}), the guard adds "
        f"{found.added_us['p50']:.1f} us (p99 {found.added_us['p99']:.1f}, most "
        f"{found.added_us['most']:.1f}): {found.share:.2%} of the {found.request_us:,.0f} us of a "
        "request at p99"
    )
    if given.json is not None:
        command = " ".join([f"python -m {MODULE}", *sys.argv[1:]])
        value = with_run({"guard_tails": found.to_json()}, command)
        given.json.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    if found.share > MOST_SHARE:
        print(f"missed: {found.share:.2%} of at most {MOST_SHARE:.0%}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
