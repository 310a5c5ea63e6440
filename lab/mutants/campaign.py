"""The campaign: several processes judge mutants of the plain cache in parallel."""

from __future__ import annotations

import resource
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, as_completed

from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.workers.ending import ProcessDied
from kvcanon.conformance.workers.notes import NOTE
from kvcanon.lab.mutants.detection import MutantVerdict
from kvcanon.lab.mutants.judge import Budget, judge
from kvcanon.lab.mutants.place import MutantPlace

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
        except ProcessDied as died:
            raise UsageError(f"the mutant {futures[future].place_id} {died}") from None


def _judge(place: MutantPlace, seed: int, budget: Budget) -> MutantVerdict:
    if NOTE.shared:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    return judge(place, seed, budget)
