"""Tables of replays: the speed of the plain cache, and what the guard costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from kvcanon.lab.bench.tables.table import DASH, RunFile, Table, table

MIB = 2**20
CACHES = {"reference": "reference", "optimized": "fast cache"}
RATES = {0.001: "1 in 1,000", 0.01: "1 in 100", 0.1: "1 in 10", 1.0: "all"}
CALLS = ("match", "insert", "evict")
NO_GUARD, NONE_JUDGED = "no guard", "none judged"

Replayed: TypeAlias = Mapping[str, Any]


def plain_speed(files: Sequence[RunFile]) -> Table:
    """`kvcanon lab bench replay`: requests a second, and times of calls."""
    rows = []
    for events in (False, True):
        for case in (case for file in files for case in file["cases"]):
            sizes, result = case["sizes"], case["result"]
            if sizes["events"] == events:
                calls = (_times(result["operations"][name]) for name in CALLS)
                speed, peak = result["requests_per_second"], case["peak_bytes"] / MIB
                first = (case["components"], str(sizes["page_size"]), "on" if events else "off")
                rows.append((*first, f"{speed:,.0f}", *calls, f"{peak:,.0f}"))
    timed = (f"{name} p50 / p99 us" for name in CALLS)
    heads = ("components", "page size", "events", "req/s", *timed, "peak MiB")
    # By components, as the pages of one are compared with each other.
    rows.sort(key=lambda row: (row[2], row[0]))
    return table(heads, rows, "medians and p99 over the requests of one run")


def guard_whole(files: Sequence[RunFile]) -> Table:
    """`kvcanon replay --guard RATE`: what was judged, in what time, a row a file."""
    rows = []
    for file in files:
        result = file["result"]
        judged = result["judgement"]
        counts = (f"{each:,}" for each in (result["requests"], judged["steps"], judged["judged"]))
        rate = "every step" if judged["rate"] == 1 else f"one step in {1 / judged['rate']:,.0f}"
        seconds = f"{result['processor_seconds']:,.0f}"
        rows.append((f"{file['workload']}, {rate}", *counts, seconds))
    heads = ("", "requests", "steps", "judged", "processor seconds")
    return table(heads, rows, "one run")


def guard_rates(files: Sequence[RunFile]) -> Table:
    """The same requests at several rates, on several caches: a column a rate, a row a cache.

    Where a guard judges nothing, its rate is too small for any step.
    """
    columns = (NO_GUARD, NONE_JUDGED, *RATES.values())
    seconds: dict[str, dict[str, str]] = {}
    judged: dict[str, str] = {}
    for file in files:
        result = file["result"]
        column, count = _rate_of(result)
        cache = CACHES[file["cache"]]
        seconds.setdefault(cache, {})[column] = f"{result['processor_seconds']:,.1f}"
        judged[column] = count
    rows = [
        (name, *(figures.get(column, DASH) for column in columns))
        for name, figures in {**seconds, "operations judged": judged}.items()
    ]
    are = "processor seconds of one run, without the start of Python"
    return table(("", *columns), rows, are)


def _rate_of(result: Replayed) -> tuple[str, str]:
    """The column of a replay, and how many operations were judged."""
    judgement = result["judgement"]
    if judgement is None:
        return NO_GUARD, DASH
    count = judgement["judged"]
    return (RATES[judgement["rate"]] if count else NONE_JUDGED), f"{count:,}"


def _times(latency: Mapping[str, float]) -> str:
    return f"{latency['p50_us']:,.0f} / {latency['p99_us']:,.0f}"
