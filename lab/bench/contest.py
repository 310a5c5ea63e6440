"""The contest: runs one process after the other, the caches in turns; takes medians of the rounds.

Compare ratios, not single figures. Other work on the machine slows all caches alike, since they
take turns.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median

from attrs import Factory, asdict, define, frozen

from kvcanon.conformance.errors import UsageError
from kvcanon.lab.bench.case import BenchCell, HostSetup, WorkloadSource
from kvcanon.lab.bench.child import BenchJob, Json
from kvcanon.lab.bench.contestants import Contestant, Field
from kvcanon.lab.bench.floor import FullHit
from kvcanon.lab.bench.growth import Point
from kvcanon.lab.bench.tails import tail_cell
from kvcanon.lab.bench.throughput import Throughput
from kvcanon.lab.tied_program import run_tied

Fill = Callable[[Contestant, BenchJob], Json]
"""Runs a job for a contestant."""

ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""One thread: a scheduler's thread has one core; idle threads that spin slow the others."""

_OUR_ERROR = re.compile(r"^kvcanon(\.\w+)+: ")
"""What a traceback puts before the text of a UsageError; the text alone says enough."""


@frozen
class Result:
    """The measurements of a cache in a cell."""

    contestant: str
    runs: tuple[Throughput, ...]
    """One measurement per round."""

    @property
    def complete(self) -> bool:
        """Whether every request was served, in every round."""
        return all(run.complete for run in self.runs)

    def of(self, figure: Callable[[Throughput], float]) -> float:
        """Return the median of a figure over the rounds."""
        return median(figure(run) for run in self.runs)

    @property
    def requests_per_second(self) -> float:
        """The median over the rounds."""
        return self.of(lambda run: run.requests_per_second)

    @property
    def hit_rate(self) -> float:
        """The median over the rounds."""
        return self.of(lambda run: run.hit_rate)

    @property
    def cache_bytes(self) -> float:
        """The median over the rounds, in bytes."""
        return self.of(lambda run: run.cache_bytes)

    def p50_us(self, step: str) -> float | None:
        """The median over the rounds; None if the cache has no such step."""
        return self._latency(step, lambda run: run.steps[step].p50_us)

    def p99_us(self, step: str) -> float | None:
        """The median over the rounds; None if the cache has no such step."""
        return self._latency(step, lambda run: run.steps[step].p99_us)

    def p999_us(self, step: str) -> float | None:
        """The median over the rounds; None if the cache has no such step."""
        return self._latency(step, lambda run: run.steps[step].p999_us)

    def max_us(self, step: str) -> float | None:
        """The median over the rounds; None if the cache has no such step."""
        return self._latency(step, lambda run: run.steps[step].max_us)

    def _latency(self, step: str, figure: Callable[[Throughput], float]) -> float | None:
        return self.of(figure) if all(step in run.steps for run in self.runs) else None


CURVES = BenchCell(page_size=16, pool_tokens=0)
"""The cells for full hits and growth, whose pools fit the prompts."""


@frozen
class ContestPlan:
    """What is measured."""

    source: WorkloadSource
    cells: tuple[BenchCell, ...]
    rounds: int = 3
    seconds: float = 120.0
    """No request begins after this many seconds."""
    growth: bool = False
    """Whether to measure full hits and growth, too."""
    tail_nodes: tuple[int, ...] = ()
    """Sizes of trees in which single calls are timed."""
    tail_hosts: tuple[HostSetup | None, ...] = (None,)
    """The host tiers of these trees; their sizes are those of the tree."""


@define
class ContestOutcome:
    """All results of a contest."""

    cells: dict[BenchCell, list[Result]] = Factory(dict)
    tails: dict[tuple[int, BenchCell], list[Result]] = Factory(dict)
    """By the nodes of the tree, and the cell."""
    full_hits: dict[str, FullHit] = Factory(dict)
    with_tree: dict[str, list[Point]] = Factory(dict)
    with_prompt: dict[str, list[Point]] = Factory(dict)


def orders(
    plan: ContestPlan, contestants: Sequence[Contestant]
) -> list[tuple[Contestant, BenchJob]]:
    """Return all jobs, in turns."""

    def order(
        contestant: Contestant, what: str, cell: BenchCell, nodes: int = 0
    ) -> tuple[Contestant, BenchJob]:
        return contestant, BenchJob(
            what, contestant.driver, contestant.options, cell, plan.source, plan.seconds, nodes
        )

    requests = [
        order(each, "requests", cell)
        for cell in plan.cells
        for _ in range(plan.rounds)
        for each in contestants
    ]
    tails = [
        order(each, "tails", tail_cell(host, nodes), nodes)
        for nodes in plan.tail_nodes
        for host in plan.tail_hosts
        for each in contestants
    ]
    curves = ("full_hit", "tree", "prompt") if plan.growth else ()
    return requests + tails + [order(each, what, CURVES) for what in curves for each in contestants]


def run_contest(jobs: Iterable[tuple[Contestant, BenchJob]], fill: Fill) -> ContestOutcome:
    """Run the jobs, and gather their results. Raises: UsageError."""
    outcome = ContestOutcome()
    runs: dict[tuple[int, BenchCell, str], list[Throughput]] = {}
    for contestant, order in jobs:
        filled = fill(contestant, order)
        name = contestant.name
        if order.what in ("requests", "tails"):
            key = (order.nodes, order.cell, name)
            runs.setdefault(key, []).append(Throughput(**filled))
        elif order.what == "full_hit":
            outcome.full_hits[name] = FullHit(**filled)
        else:
            curves = outcome.with_tree if order.what == "tree" else outcome.with_prompt
            curves[name] = [Point(**point) for point in filled["points"]]
    for (nodes, cell, name), measured in runs.items():
        result = Result(name, tuple(measured))
        if nodes:
            outcome.tails.setdefault((nodes, cell), []).append(result)
        else:
            outcome.cells.setdefault(cell, []).append(result)
    return outcome


def in_a_process(entrants: Field) -> Fill:
    """Return a function that runs each job in a fresh process, in its contestant's environment."""

    def fill(contestant: Contestant, order: BenchJob) -> Json:
        python, variables = sys.executable, dict(os.environ)
        if contestant.release is not None:
            peer = entrants.peers[contestant.release.name]
            python, variables = str(peer.python), peer.variables
        with tempfile.TemporaryDirectory() as folder:
            result = Path(folder) / "result.json"
            done = run_tied(
                [python, "-m", "kvcanon.lab.bench.child", str(result)],
                input=json.dumps(asdict(order)),
                env=variables | ONE_THREAD,
            )
            if done.returncode:
                said = (done.stderr.strip() or "it said nothing").splitlines()[-1]
                raise UsageError(f"{contestant.name}, {order.cell}: {_OUR_ERROR.sub('', said)}")
            filled: Json = json.loads(result.read_text(encoding="utf-8"))
            return filled

    return fill
