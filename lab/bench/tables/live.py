"""Tables of a watched fleet, and of what the guard in production adds to a request."""

from __future__ import annotations

from collections.abc import Sequence

from kvcanon.lab.bench.tables.table import RunFile, Table, table, us

MIB = 2**20
ENDS = {"SIGINT": "Ctrl-C", "SIGTERM": "SIGTERM"}


def fleet(files: Sequence[RunFile]) -> Table:
    """`python -m kvcanon.lab.soak.fleet`: a row for each way in which the watch was ended."""
    rows = []
    for run in (run for file in files for run in file["fleet"]):
        lag = run["lag_ms"]
        rows.append(
            (
                ENDS[run["signal"]],
                f"{run['publishers']:,}",
                f"{run['gaps_seen']:,} of {run['gaps']:,}",
                f"{run['replayed']:,}",
                f"{run['huge_frames']:,}",
                f"{run['batches']:,}, {run['lost']:,} lost",
                f"{us(lag['p50'])} / {us(lag['p99'])} / {us(lag['most'])}",
                f"{run['most_bytes'] / MIB:,.0f}",
                f"{run['watch_cpu']:.2f}",
                f"{run['end_s']:.2f}",
            )
        )
    heads = (
        *("ended by", "publishers", "gaps seen, of one", "batches of the replay without an end"),
        *("frames of 100 MB", "batches of the others", "folded after ms: p50 / p99 / most"),
        *("most MiB", "cores", "seconds to its end"),
    )
    return table(heads, rows, "one run each; the publishers used the same two cores")


def guard_tails(files: Sequence[RunFile]) -> Table:
    """`python -m kvcanon.lab.bench.guard_tails`."""
    rows = []
    for found in (file["guard_tails"] for file in files):
        cache, added = found["cache_us"], found["added_us"]
        rows.append(
            (
                f"{found['rate']:g}".removeprefix("0"),
                f"{found['requests']:,}",
                f"{us(cache['p50'])} / {us(cache['p99'])}",
                f"{us(added['p50'])} / {us(added['p99'])}",
                us(found["request_us"]),
                f"{100 * found['share']:.2f} %",
            )
        )
    heads = (
        *("rate", "requests without a judged call", "the cache takes us: p50 / p99"),
        *("the guard adds us: p50 / p99", "a request takes us", "added at p99"),
    )
    rounds = sorted({file["guard_tails"]["rounds"] for file in files})
    count = " and ".join(map(str, rounds))
    return table(heads, rows, f"the least of {count} rounds of each request")
