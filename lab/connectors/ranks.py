"""The ranks of the engine: each with its memory and its worker's half of the connector.

`report_of` counts completions as vLLM's `KVOutputAggregator` does: a request is done when as many
reports came as there are ranks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from attrs import Factory, define, frozen

from kvcanon.lab.connectors.connector_calls import (
    ConnectorOfWorker,
    ConnectorReport,
    TransferResults,
)
from kvcanon.lab.connectors.finding import BreachKind, BrokenConnector
from kvcanon.lab.connectors.stamps import StampedMemory, Stamps
from kvcanon.lab.connectors.step_plan import StepPlan


@frozen
class ForwardPart:
    """What a step computes of one request."""

    request_id: str
    table: Sequence[Sequence[int]]
    stamps: Stamps
    """Of all its tokens up to `end`."""
    first: int
    end: int


@frozen
class RankReport:
    """What one rank says at the end of a step."""

    results: TransferResults
    invalid_block_ids: set[int]
    worker_meta: Any


@define
class EngineRank:
    """One rank."""

    number: int
    memory: StampedMemory
    worker: ConnectorOfWorker
    loads_first: bool = False
    """Whether loads start before the forward, as in vLLM's first model runner."""

    def step(self, plan: StepPlan, parts: Sequence[ForwardPart]) -> RankReport:
        """Run a step. Raises: BrokenConnector: the forward read wrong bytes."""
        worker = self.worker
        worker.handle_preemptions(plan.kv_connector_metadata)
        worker.bind_connector_metadata(plan.kv_connector_metadata)
        if self.loads_first:
            worker.start_load_kv(None)
        self.forward(parts)
        if not self.loads_first:
            worker.start_load_kv(None)
        worker.wait_for_save()
        results = worker.get_transfer_results(plan.finished_req_ids)
        report = RankReport(
            results, worker.get_block_ids_with_load_errors(), worker.build_connector_worker_meta()
        )
        worker.clear_connector_metadata()
        return report

    def forward(self, parts: Sequence[ForwardPart]) -> None:
        """Write the new tokens of all requests, then read all tokens that they attend to."""
        for part in parts:
            self.memory.write(part.table, part.stamps, part.first, part.end)
        for part in parts:
            for layer, token in self.memory.wrong_places(part.table, part.stamps, part.end):
                raise BrokenConnector(
                    BreachKind.WRONG_BYTES,
                    f"{part.request_id} at token {token}, layer {layer}, rank {self.number}, where "
                    f"{part.first} tokens were computed before",
                )


@define
class ReportCounter:
    """Joins what the ranks say."""

    ranks: int
    _receiving: Counter[str] = Factory(Counter)
    _sending: Counter[str] = Factory(Counter)
    _failed: set[str] = Factory(set)

    def report_of(self, reports: Sequence[RankReport]) -> ConnectorReport:
        """What all ranks have finished."""
        received = self._complete(
            self._receiving, (each.results.finished_recving for each in reports)
        )
        sent = self._complete(self._sending, (each.results.finished_sending for each in reports))
        for each in reports:
            self._failed |= set(each.results.failed_recving or ())
        failed = self._failed & received
        self._failed -= failed
        return ConnectorReport(
            sent or None,
            received or None,
            failed,
            set().union(*(each.invalid_block_ids or () for each in reports)),
            _joined([each.worker_meta for each in reports]),
            expected_finished_count=self.ranks,
        )

    def _complete(self, counts: Counter[str], reported: Iterable[Iterable[str] | None]) -> set[str]:
        done = set()
        for names in reported:
            for name in names or ():
                counts[name] += 1
                if counts[name] == self.ranks:
                    done.add(name)
                    del counts[name]
        return done


def _joined(metas: Sequence[Any]) -> Any:  # noqa: ANN401  # The connector's own.
    """The metadata of all ranks in one; None if there is none."""
    joined = metas[0]
    for each in metas[1:]:
        if joined is None:
            joined = each
        elif each is not None:
            joined = joined.aggregate(each)
    return joined
