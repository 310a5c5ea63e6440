"""Tables of runs over a whole trace: ranks that decide the same, and NVIDIA Dynamo's indexer."""

from __future__ import annotations

from collections.abc import Sequence

from kvcanon.lab.bench.tables.table import RunFile, Table, table


def ranks(files: Sequence[RunFile]) -> Table:
    """`make ranks`: a row a write policy, of whose ranks all count the same."""
    rows = []
    for policy, reports in (pair for file in files for pair in file["ranks"].items()):
        first = reports[0]["counted"]
        failed = ", ".join(f"{each['engine_failures']:,}" for each in reports)
        names = ("requests", "calls", "load_backs", "settled", "failed")
        counts = (f"{first[name]:,}" for name in names)
        differ = sum(each["differs_at"] is not None for each in reports)
        rows.append((f"`{policy}`", *counts, failed, str(differ)))
    heads = (
        *("policy", "requests", "calls of the cache on each rank", "load-backs", "settled"),
        *("of them failed or cancelled", "copies that failed on ranks 0 to 3"),
        "ranks that found a difference",
    )
    return table(heads, rows, "one run")


def dynamo(files: Sequence[RunFile]) -> Table:
    """`make dynamo`: a row a page size."""
    rows = [
        (
            size,
            f"{done['requests']:,}",
            f"{done['pages']:,}",
            f"{done['device_tokens']:,}, and {done['host_tokens']:,}",
            f"{done['differs']:,}",
        )
        for file in files
        for size, done in file["dynamo"].items()
    ]
    heads = (
        *("pages", "requests", "page events"),
        "tokens that were cached on the device, and more on the host",
        "requests that differ",
    )
    return table(heads, rows, "one run")
