"""The campaign on the native core: several hosts judge its mutants in parallel."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from queue import SimpleQueue
from time import monotonic

from attrs import frozen

from kvcanon.conformance.check.plan import QUICK_CASES, STANDARD_CASES
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.workers.ending import tied
from kvcanon.lab.mutants.detection import MutantVerdict, Sight
from kvcanon.lab.mutants.native.build import Build
from kvcanon.lab.mutants.place import MutantPlace

HOST = "kvcanon.lab.mutants.native.host"


@frozen
class NativeBudget:
    """The most cases to play on a mutant."""

    first: int
    """Cases judged by states and compared, played first."""
    checked: int
    """Cases played as `check` does: some by states, some compared, the others from outside."""


NATIVE_BUDGETS = {
    "quick": NativeBudget(first=12, checked=QUICK_CASES),
    "standard": NativeBudget(first=12, checked=STANDARD_CASES),
}
"""By effort; as many cases as a check of that effort."""

Process = subprocess.Popen[str]


@contextmanager
def judge_native(
    built: Build, places: Sequence[MutantPlace], seed: int, budget: NativeBudget, jobs: int
) -> Iterator[Iterator[MutantVerdict]]:
    """Judge the mutants of a build; yields verdicts as they arrive. Raises: UsageError."""
    command = [sys.executable, "-m", HOST, str(built.library)]
    idle: SimpleQueue[Process] = SimpleQueue()
    hosts = [_start(command) for _ in range(jobs)]
    for host in hosts:
        idle.put(host)

    def judge(place: MutantPlace) -> MutantVerdict:
        host = idle.get()
        try:
            job = {
                "number": built.numbers[place.place_id],
                "seed": seed,
                "first": budget.first,
                "checked": budget.checked,
            }
            return _ask(host, place, job)
        finally:
            idle.put(host)

    executor = ThreadPoolExecutor(jobs)
    try:
        futures = [executor.submit(judge, place) for place in places]
        yield (future.result() for future in as_completed(futures))
    finally:
        executor.shutdown(wait=False, cancel_futures=True)
        for host in hosts:
            host.kill()
            host.wait()


def _start(command: Sequence[str]) -> Process:
    return subprocess.Popen(  # noqa: S603
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=tied(),  # noqa: PLW1509  # It makes two calls of the system.
    )


def _ask(host: Process, place: MutantPlace, job: dict[str, int]) -> MutantVerdict:
    """Let a host judge a mutant. Raises: UsageError."""
    began = monotonic()
    if host.stdin is None or host.stdout is None:
        raise UsageError("a host of mutants has no pipes")
    print(json.dumps(job), file=host.stdin, flush=True)
    line = host.stdout.readline()
    if not line:
        raise UsageError(f"the host of the native mutants ended at {place.place_id}")
    said = json.loads(line)
    return MutantVerdict(
        place,
        Sight(said["sight"]),
        tuple(said["seen"]),
        said["how"],
        said["text"],
        monotonic() - began,
    )
