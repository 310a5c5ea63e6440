"""The campaign: several processes judge mutants of the plain cache in parallel."""

from __future__ import annotations

import multiprocessing
import resource
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, as_completed
from concurrent.futures.process import BrokenProcessPool

from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.mutants.detection import MutantVerdict
from kvcanon.conformance.mutants.judge import Budget, judge
from kvcanon.conformance.mutants.place import MutantPlace

MEMORY_BYTES = 4 << 30
"""The memory limit of a process: a mutant may allocate without end."""


def judge_all(
    places: Sequence[MutantPlace], seed: int, budget: Budget, executor: Executor
) -> Iterator[MutantVerdict]:
    """Judge mutants; yields verdicts as they arrive. Raises: UsageError."""
    futures = {executor.submit(_judge, place, seed, budget): place for place in places}
    for future in as_completed(futures):
        try:
            yield future.result()
        except BrokenProcessPool:
            name = futures[future].place_id
            raise UsageError(f"a mutant ended its process, most likely {name}") from None


def _judge(place: MutantPlace, seed: int, budget: Budget) -> MutantVerdict:
    if multiprocessing.parent_process() is not None:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    return judge(place, seed, budget)
