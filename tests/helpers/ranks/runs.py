"""Runs four ranks on a workload, each in a process, and compares every decision.

`python -m ranks.runs --trace conversation_trace.jsonl` runs both write policies on a whole trace;
it exits with 1 if two ranks answered differently, and says at which request.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from datetime import timedelta
from multiprocessing import get_context
from multiprocessing.queues import Queue
from pathlib import Path
from queue import Empty
from time import monotonic

import numpy as np
import torch
import torch.distributed as dist
from attrs import asdict, evolve, frozen

from kvcanon.conformance.replay.workloads.chat import Chat
from kvcanon.conformance.replay.workloads.request import Request
from kvcanon.conformance.replay.workloads.trace import load_trace
from kvcanon.optimized.layout import PageLayout
from kvcanon.optimized.pools import Pools
from kvcanon.optimized.prefix_cache import PrefixCache
from kvcanon.optimized.ranks import agree_by
from kvcanon.run_record import with_run
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import FULL, Counts, WritePolicy
from ranks.engine import FlakyEngine
from ranks.server import RankServer

RANKS = 4
COMPARED_EVERY = 64
"""Requests between two comparisons, which find the first request that differs."""
NODES_EVERY = 1024
"""Requests between two looks at all nodes."""


@frozen
class RankRun:
    """What to run on all ranks."""

    config: CacheConfig
    trace: Path | None = None
    """None for generated chats."""
    limit: int | None = None
    fail_share: float = 0.01
    seed: int = 0
    agreeing: bool = True
    """Whether the ranks agree; if not, each settles what has ended on it."""
    timeout_s: float = 60.0
    """How long a rank waits for another."""

    def requests(self) -> tuple[Request, ...]:
        """The requests, the same on every rank."""
        if self.trace is not None:
            return load_trace(self.trace, self.limit)
        return Chat(conversations=60, seed=self.seed).requests()[: self.limit]


@frozen
class RankReport:
    """What one rank did, and the first request at which two ranks differed."""

    rank: int
    counted: dict[str, int]
    engine_failures: int
    differs_at: int | None
    error: str = ""


def run_ranks(run: RankRun, seconds: float) -> list[RankReport]:
    """Run all ranks, and end them after so many seconds at the latest. Raises: TimeoutError."""
    # Each process begins as a copy of one that has imported torch, which takes seconds.
    context = get_context("forkserver")
    context.set_forkserver_preload(["ranks.runs"])
    reports: Queue[RankReport] = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        store = str(Path(folder) / "store")
        ranks = [
            context.Process(target=_rank, args=(rank, run, store, reports), daemon=True)
            for rank in range(RANKS)
        ]
        for each in ranks:
            each.start()
        found: list[RankReport] = []
        ends = monotonic() + seconds
        try:
            while len(found) < RANKS:
                found.append(reports.get(timeout=max(0.0, ends - monotonic())))
        except Empty:
            raise TimeoutError(f"{len(found)} of {RANKS} ranks ended in {seconds:g} s") from None
        finally:
            for each in ranks:
                each.join(timeout=5 if len(found) == RANKS else 0)
                each.kill()
                each.join()
    return sorted(found, key=lambda each: each.rank)


def _rank(rank: int, run: RankRun, store: str, reports: Queue[RankReport]) -> None:
    """One rank, in its process."""
    torch.set_num_threads(1)
    try:
        dist.init_process_group(
            "gloo",
            init_method=f"file://{store}",
            rank=rank,
            world_size=RANKS,
            timeout=timedelta(seconds=run.timeout_s),
        )
        reports.put(_serve(rank, run))
    except Exception as error:  # noqa: BLE001  # The parent shows it.
        reports.put(RankReport(rank, {}, 0, None, f"{type(error).__name__}: {error}"))


def _serve(rank: int, run: RankRun) -> RankReport:
    page = run.config.page_size
    engine = FlakyEngine(run.seed * RANKS + rank, run.fail_share)
    pools = Pools(run.config, {FULL: PageLayout(1, (8,))})
    agree = agree_by() if run.agreeing else None
    cache = PrefixCache(run.config, pools, engine, agree=agree)
    server = RankServer(cache, page)
    said: list[int] = []
    first = 0
    requests = run.requests()
    for number, request in enumerate(requests, 1):
        tokens = np.array(request.make_tokens(), dtype=np.int32)
        if len(tokens) >= page:
            server.serve(tokens)
        if number % NODES_EVERY == 0:
            server.look()
        said.append(server.decisions())
        if number % COMPARED_EVERY == 0:
            at = _first_difference(said)
            if at is not None:
                return _report(rank, server, engine, first + at)
            first, said = number, []
    server.drain()
    server.look()
    said.append(server.decisions())
    said += [0] * (COMPARED_EVERY - len(said))
    at = _first_difference(said)
    return _report(rank, server, engine, None if at is None else first + at)


def _first_difference(said: list[int]) -> int | None:
    """The first place at which two ranks said otherwise."""
    ours = torch.tensor(said, dtype=torch.int64)
    every = [torch.empty_like(ours) for _ in range(RANKS)]
    dist.all_gather(every, ours)
    same = torch.stack([each == every[0] for each in every]).all(dim=0)
    return None if bool(same.all()) else int((~same).nonzero()[0, 0])


def _report(
    rank: int, server: RankServer, engine: FlakyEngine, differs_at: int | None
) -> RankReport:
    engine.close()
    counted = {each: getattr(server.counted, each) for each in server.counted.__slots__[:-1]}
    return RankReport(rank, counted, engine.failed, differs_at)


TRACE_CONFIG = CacheConfig(
    page_size=64,
    device_slots=Counts(full=15_625),
    host_slots=Counts(full=31_250),
    write_policy=WritePolicy.WRITE_THROUGH,
)
"""A million tokens on the device and two on the host; the trace has ninety million."""


def main() -> int:
    """Run four ranks on a trace under both policies; 1 if two differ, 2 if one cannot run."""
    parser = argparse.ArgumentParser("ranks.runs", description="Compare all decisions of ranks.")
    parser.add_argument("--trace", type=Path, required=True, help="a trace in JSON lines")
    parser.add_argument("--limit", type=int, help="only so many requests")
    parser.add_argument("--seconds", type=float, default=1800, help="the most seconds for each run")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was counted")
    given = parser.parse_args()
    if not given.trace.is_file():
        parser.error(f"there is no file {given.trace}; give a trace in JSON lines")
    differ = False
    counted: dict[str, list[dict[str, object]]] = {}
    for policy in (WritePolicy.WRITE_THROUGH, WritePolicy.WRITE_BACK):
        began = monotonic()
        config = evolve(TRACE_CONFIG, write_policy=policy)
        reports = run_ranks(RankRun(config, given.trace, given.limit), given.seconds)
        counted[policy.value] = [asdict(each) for each in sorted(reports, key=lambda r: r.rank)]
        print(f"{policy}: {RANKS} ranks, {monotonic() - began:.0f} s")  # noqa: T201
        for each in reports:
            words = ", ".join(f"{name} {count:,}" for name, count in each.counted.items())
            at = "" if each.differs_at is None else f", DIFFERS at request {each.differs_at}"
            failed = f"{each.engine_failures:,} copies failed here"
            print(f"  rank {each.rank}: {words}, {failed}{at} {each.error}")  # noqa: T201
            differ |= each.differs_at is not None
        if any(each.error for each in reports):
            parser.error("a rank ended in an error; see above")
        if not any(sum(each.counted.values()) for each in reports):
            parser.error(f"{given.trace} has no requests; nothing was compared")
    if given.json is not None:
        command = " ".join(["python -m ranks.runs", *sys.argv[1:]])
        value = with_run({"ranks": counted}, command)
        given.json.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    print("two ranks differ" if differ else "no decision differs")  # noqa: T201
    return int(differ)


if __name__ == "__main__":
    sys.exit(main())
