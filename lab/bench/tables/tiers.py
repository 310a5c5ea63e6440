"""The table of `kvcanon lab bench tiers`: what host tiers find, by their size."""

from __future__ import annotations

from collections.abc import Sequence

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
