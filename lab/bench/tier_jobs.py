"""The measurements of `kvcanon lab bench tiers`, as jobs of the bench's child process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from attrs import asdict

from kvcanon.lab.bench.case import BenchCell, WorkloadSource
from kvcanon.lab.bench.tier_hits import TierSizes, tier_hits
from kvcanon.lab.bench.tier_speed import tier_times
from kvcanon.lab.bench.tiers import SIMULATED, tiers_here

Options = Mapping[str, str]
HITS, TIMES = "tier_hits", "tier_times"


def _hits(cell: BenchCell, options: Options, source: WorkloadSource) -> dict[str, Any]:
    device = cell.pool_tokens // cell.page_size
    hosts = tuple(device * int(times) for times in options["hosts"].split(","))
    sizes = TierSizes(cell.page_size, device, hosts)
    return {"hits": [asdict(each) for each in tier_hits(source.requests(), sizes, tiers_here())]}


def _times(_: BenchCell, options: Options, source: WorkloadSource) -> dict[str, Any]:
    # What simulates a tier takes no time that says anything.
    tiers = {name: make for name, make in tiers_here().items() if name not in SIMULATED}
    measured = tier_times(tiers, int(options["host_blocks"]), int(options["requests"]), source.seed)
    return {"times": [asdict(each) for each in measured]}


TIER_JOBS: Mapping[str, Callable[[BenchCell, Options, WorkloadSource], dict[str, Any]]] = {
    HITS: _hits,
    TIMES: _times,
}
