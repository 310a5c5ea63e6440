"""The tables of `kvcanon lab bench tiers`: what host tiers find, and their schedulers' time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kvcanon.lab.bench.tables.table import DASH, RunFile, Table, table
from kvcanon.lab.bench.tier_hits import NO_HOST


def tier_hits(files: Sequence[RunFile]) -> Table:
    """Hits in % of the prompt tokens; a column has hosts of so many times the device."""
    device = files[0]["device_blocks"]
    found = {(row["tier"], row["host_blocks"]): row["hit_rate"] for row in files[0]["hits"]}
    hosts = sorted({blocks for _, blocks in found if blocks})
    rows = []
    for tier in dict.fromkeys(tier for tier, _ in found):
        rates = (found.get((tier, 0 if tier == NO_HOST else blocks)) for blocks in hosts)
        rows.append((tier, *(DASH if rate is None else f"{100 * rate:.2f}" for rate in rates)))
    heads = ("host = device" if blocks == device else f"{blocks / device:g} x" for blocks in hosts)
    return table(("tier", *heads), rows, "one run; hits do not vary")


def tier_times(files: Sequence[RunFile]) -> Table:
    """Microseconds a request in the scheduler's half: mean and median of each run, by its seed."""
    runs = [{row["tier"]: row for row in run["times"]} for run in files]
    first = next(iter(runs[0]))
    rows = [
        (
            tier,
            *(f"{run[tier]['request_us']:,.0f} / {run[tier]['p50_us']:,.0f}" for run in runs),
            " to ".join(f"{each:.2f}" for each in sorted(_of_first(runs, tier, first))),
        )
        for tier in runs[0]
    ]
    heads = (f"seed {run['seed']}: mean / p50" for run in files)
    return table(("tier", *heads, "mean, of the first tier's"), rows, "one run a seed")


def _of_first(
    runs: Sequence[Mapping[str, Mapping[str, float]]], tier: str, first: str
) -> list[float]:
    return [run[tier]["request_us"] / run[first]["request_us"] for run in runs]
