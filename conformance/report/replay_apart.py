"""Replays the failures of a check in workers, so that the cache cannot end the report."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from kvcanon.conformance.check.campaign import adapter_as
from kvcanon.conformance.check.deaths import is_death
from kvcanon.conformance.check.result import Failure
from kvcanon.conformance.check.time_limit import CacheSilent
from kvcanon.conformance.report.failure_replay import replay_in_copy
from kvcanon.conformance.report.report import Replay, ReplayedFailure, replayed
from kvcanon.conformance.workers.ending import ProcessDied
from kvcanon.conformance.workers.workers import workers


def replay_apart(seed: int) -> Replay:
    """How to replay failures in a worker, under the seed of the check."""
    return partial(_replay, seed)


def _replay(
    seed: int, name: str, failures: Sequence[Failure], law_ids: Sequence[str]
) -> list[ReplayedFailure]:
    with workers(1, apart=True, seed=seed) as by:
        shown = []
        for failure in failures:
            job = by.executor.submit(replay_one, name, failure, list(law_ids), False)
            try:
                shown.append(job.result())
            except ProcessDied:
                again = by.executor.submit(replay_one, name, failure, list(law_ids), True)
                shown.append(again.result())
        return shown


def replay_one(
    name: str,
    failure: Failure,
    law_ids: list[str],
    in_copy: bool,  # Of a job.
) -> ReplayedFailure:
    """Replay a failure; one that ends or blocks its process in a copy of this one."""
    finding = failure.finding
    adapter = adapter_as(name)
    if in_copy or is_death(finding) or finding.name == CacheSilent.__name__:
        return replayed(failure, adapter, law_ids, replay_in_copy)
    return replayed(failure, adapter, law_ids)
