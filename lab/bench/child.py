"""The child process of one measurement: a job as JSON on stdin, the result in a file.

The result is not printed, because peers also write to stdout and stderr.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias, cast

from attrs import asdict, frozen

from kvcanon.lab.bench.case import BenchCell, WorkloadSource
from kvcanon.lab.bench.driver import MakeDriver
from kvcanon.lab.bench.engine_jobs import JOBS, engine_job
from kvcanon.lab.bench.floor import full_hit
from kvcanon.lab.bench.growth import with_prompt, with_tree
from kvcanon.lab.bench.tails import tails
from kvcanon.lab.bench.throughput import measure
from kvcanon.lab.bench.tier_jobs import TIER_JOBS

Json: TypeAlias = dict[str, Any]


@frozen
class BenchJob:
    """What to measure."""

    what: str
    """One of `requests`, `tails`, `tree`, `prompt` and `full_hit`, or a measurement of engines."""
    driver: str
    """A module of `drivers`."""
    options: Mapping[str, str]
    cell: BenchCell
    source: WorkloadSource
    seconds: float
    nodes: int = 0
    """Nodes of the tree; for `tails`."""

    @classmethod
    def from_json(cls, value: Mapping[str, object]) -> BenchJob:
        """Read a job that went through JSON."""
        given = dict(value)
        cell = BenchCell(**cast("dict[str, Any]", given.pop("cell")))
        source = WorkloadSource(**cast("dict[str, Any]", given.pop("source")))
        return cls(**given, cell=cell, source=source)  # type: ignore[arg-type]


def fill(order: BenchJob) -> Json:
    """Run the measurement of a job. Raises: UsageError, and every exception of the cache."""
    if order.what in JOBS:
        return engine_job(order.what, order.cell, order.options, order.source.seed)
    if order.what in TIER_JOBS:
        return TIER_JOBS[order.what](order.cell, order.options, order.source)
    module = import_module(f"kvcanon.lab.bench.drivers.{order.driver}")
    make: MakeDriver[object] = module.make_driver
    if order.what == "requests":
        requests = order.source.requests()
        return asdict(measure(make, order.cell, order.options, requests, order.seconds))
    if order.what == "tails":
        return asdict(tails(make, order.cell, order.options, order.nodes, order.seconds))
    if order.what == "full_hit":
        return asdict(full_hit(make, order.cell, order.options))
    grow = {"tree": with_tree, "prompt": with_prompt}[order.what]
    return {"points": [asdict(each) for each in grow(make, order.cell, order.options)]}


def main() -> None:
    """Run the job on stdin, and write its result to the file named in the arguments."""
    order = BenchJob.from_json(json.load(sys.stdin))
    Path(sys.argv[1]).write_text(json.dumps(fill(order)), encoding="utf-8")


if __name__ == "__main__":
    main()
