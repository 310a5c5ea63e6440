"""How long a server's scheduler spends in its prefix cache, counted in the server itself.

The plugin times the calls by which the scheduler uses `UnifiedRadixCache`, outermost calls alone,
and adds them up in a file of two numbers that another process reads at any time. A call costs less
than a microsecond more, over every core alike.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Sequence
from ctypes import c_double
from pathlib import Path
from time import perf_counter
from typing import Any

from attrs import frozen

CLOCK = "KVCANON_SERVING_CLOCK"
"""The variable that names the file."""
CALLS = (
    *("match_prefix", "touch_prefix", "lock", "unlock", "checkpoint", "insert", "evict"),
    *("evict_for_alloc", "path_device_indices", "prefix_device_indices", "take_events"),
    *("init_load_back", "ready_to_load_host_cache", "check_hicache_events"),
)
"""What a scheduler calls for a request. Sizes, which it asks for all the time, are left out."""

_Numbers = c_double * 2


@frozen
class CacheTime:
    """What the cache of a server took so far."""

    seconds: float
    calls: int

    def __sub__(self, earlier: CacheTime) -> CacheTime:
        return CacheTime(self.seconds - earlier.seconds, self.calls - earlier.calls)


def make_clock(file: Path) -> None:
    """Make the file of a server that has not started. Raises: OSError."""
    file.write_bytes(bytes(_Numbers()))


def read_clock(file: Path) -> CacheTime:
    """What the cache of a server took until now. Raises: OSError."""
    seconds, calls = _Numbers.from_buffer_copy(file.read_bytes())
    return CacheTime(seconds, int(calls))


def time_calls(cache: type[Any], file: Path, calls: Sequence[str] = CALLS) -> None:
    """Add what each outermost call of a class takes to the numbers of a file. Raises: OSError."""
    with file.open("r+b") as opened:
        shared = _Numbers.from_buffer(mmap.mmap(opened.fileno(), 0))
    depth = [0]
    for name in calls:
        if hasattr(cache, name):
            setattr(cache, name, _timed(getattr(cache, name), shared, depth))


def _timed(call: Callable[..., Any], shared: Any, depth: list[int]) -> Callable[..., Any]:  # noqa: ANN401
    def timed(*given: Any, **named: Any) -> Any:  # noqa: ANN401 # As the call.
        if depth[0]:
            return call(*given, **named)
        depth[0] = 1
        began = perf_counter()
        try:
            return call(*given, **named)
        finally:
            shared[0] += perf_counter() - began
            shared[1] += 1
            depth[0] = 0

    return timed
