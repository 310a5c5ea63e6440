"""Faults of connectors, planted in the plain one. A run of the engine must find each.

Most are bugs that users of vLLM's connectors have reported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from hashlib import blake2b

from attrs import evolve, frozen

from kvcanon.lab.connectors.connector_calls import ConnectorHalves, ConnectorReport, TransferResults
from kvcanon.lab.connectors.drawn_run import DrawnRun, RunOutcome, draw_run, play_run
from kvcanon.lab.connectors.engine_request import StandInRequest
from kvcanon.lab.connectors.late_copies import BlockCopy
from kvcanon.lab.connectors.plain_connector import (
    BlocksStored,
    EndedJobs,
    HostKey,
    PinnedLoad,
    PlainMetadata,
    PlainScheduler,
    PlainWorker,
    plain_connector,
)
from kvcanon.lab.connectors.step_plan import StepPlan

MOST_RUNS = 60
"""A fault that so many runs do not find is not found."""


class FailureUnreported(PlainWorker):
    """A load that failed is reported as one that ended."""

    def get_transfer_results(self, finished_req_ids: set[str]) -> TransferResults:
        results = super().get_transfer_results(finished_req_ids)
        return evolve(results, failed_recving=frozenset())


class FailedLoadRepeated(PlainScheduler):
    """What could not be loaded is answered again."""

    def forget_failed(self, load: PinnedLoad) -> None:
        pass


class FailureByBlocks(PlainWorker):
    """Failures are named by block ids, also with several groups."""

    def get_block_ids_with_load_errors(self) -> set[int]:
        return {
            each.block_id
            for job, moved in self._ended
            if not (job.to_host or moved)
            for each in job.blocks
        }


class WrongBlock(PlainWorker):
    """A load puts its blocks one place too far."""

    def bind_connector_metadata(self, connector_metadata: PlainMetadata) -> None:
        jobs = tuple(map(_rotated, connector_metadata.jobs))
        super().bind_connector_metadata(evolve(connector_metadata, jobs=jobs))


class TwoLoadsIntoOneBlock(PlainWorker):
    """A second load goes into the blocks of a load, with other bytes."""

    def start_load_kv(self, forward_context: object) -> None:
        super().start_load_kv(forward_context)
        for job in self._metadata.jobs:
            if not job.to_host:
                self.copies.begin(_rotated(evolve(job, request_id="")))

    def get_transfer_results(self, finished_req_ids: set[str]) -> TransferResults:
        results = super().get_transfer_results(finished_req_ids)
        return TransferResults(
            finished_recving=results.finished_recving - {""},
            failed_recving=results.failed_recving - {""},
        )


class EndReportedEarly(PlainWorker):
    """A load is reported as ended when it begins."""

    def get_transfer_results(self, finished_req_ids: set[str]) -> TransferResults:
        super().get_transfer_results(finished_req_ids)
        return TransferResults(
            finished_recving=frozenset(
                job.request_id for job in self._metadata.jobs if not job.to_host
            )
        )


class EndReportedTwice(PlainWorker):
    """A rank reports each load in two steps."""

    _before: TransferResults = TransferResults()

    def get_transfer_results(self, finished_req_ids: set[str]) -> TransferResults:
        results = super().get_transfer_results(finished_req_ids)
        before, self._before = self._before, results
        return TransferResults(
            finished_recving=results.finished_recving | before.finished_recving,
            failed_recving=results.failed_recving,
        )


class AbortedLoadForgotten(PlainWorker):
    """A load whose request was aborted is never reported."""

    _aborted: frozenset[str] = frozenset()

    def get_transfer_results(self, finished_req_ids: set[str]) -> TransferResults:
        self._aborted |= finished_req_ids
        results = super().get_transfer_results(finished_req_ids)
        return TransferResults(
            finished_recving=results.finished_recving - self._aborted,
            failed_recving=results.failed_recving - self._aborted,
        )


class SourceNotHeld(PlainScheduler):
    """A store reads blocks that a preemption frees: vllm#52360."""

    def hold_source(self, block_id: int) -> None:
        pass

    def free_source(self, block_id: int) -> None:
        pass


class SourceNeverFreed(PlainScheduler):
    """Blocks that a store has read are not let go."""

    def free_source(self, block_id: int) -> None:
        pass


class StoredInItsStep(PlainScheduler):
    """A store is begun for what the step is about to compute, and taken as ended at once."""

    def build_connector_meta(self, scheduler_output: StepPlan) -> PlainMetadata:
        for name, tokens in scheduler_output.num_scheduled_tokens.items():
            self._known[name].num_computed_tokens += tokens
        try:
            metadata = super().build_connector_meta(scheduler_output)
        finally:
            for name, tokens in scheduler_output.num_scheduled_tokens.items():
                self._known[name].num_computed_tokens -= tokens
        for job in metadata.jobs:
            if job.to_host:
                self.end_store(job.number, moved=True)
        return evolve(metadata, jobs=tuple(job for job in metadata.jobs if not job.to_host))


class StaleAfterReset(PlainScheduler):
    """A store that was in flight at a reset is found after it."""

    def reset_cache(self) -> bool | None:
        super().reset_cache()
        for store in self._stores.values():
            store.reset = False
        return True


class ResetIgnored(PlainScheduler):
    """A reset empties nothing."""

    def reset_cache(self) -> bool | None:
        return True


class SaltIgnored(PlainScheduler):
    """Prompts of all salts and adapters share rows."""

    def key_of(self, request: StandInRequest, at: int, group: int) -> HostKey:
        tokens = request.all_token_ids[: (at + 1) * self.shape.block_tokens]
        return blake2b(repr(tokens).encode()).digest(), group


class TokensOfBlockAlone(PlainScheduler):
    """A key is made of the tokens of its block, without those before."""

    def key_of(self, request: StandInRequest, at: int, group: int) -> HostKey:
        size = self.shape.block_tokens
        tokens = request.all_token_ids[at * size : (at + 1) * size]
        return blake2b(repr((request.namespace, tokens)).encode()).digest(), group


class WindowBlockMissing(PlainScheduler):
    """A load has one block of the window too few."""

    def first_needed(self, group: int, end: int) -> int:
        first = super().first_needed(group, end)
        return min(end, first + 1) if self.shape.groups[group].window_tokens else first


class PinLeaked(PlainScheduler):
    """The rows of an answer stay pinned if its request ends before it is taken up."""

    def request_finished_all_groups(
        self, request: StandInRequest, block_ids: tuple[list[int], ...]
    ) -> tuple[bool, Mapping[str, object] | None]:
        self._pinned.pop(request.request_id, None)
        return super().request_finished_all_groups(request, block_ids)


class NothingPinned(PlainScheduler):
    """The rows of a load may be used for others while it reads them."""

    def pin(self, load: PinnedLoad) -> None:
        pass

    def unpin(self, load: PinnedLoad) -> None:
        pass


class EventBeforeBytes(PlainScheduler):
    """A block is announced when its copy begins."""

    def begin_store(self, key: HostKey, block_id: int, stored: BlocksStored) -> None:
        before = len(self._stores)
        super().begin_store(key, block_id, stored)
        if len(self._stores) > before:
            self._events.append(stored)


class RemovalUnannounced(PlainScheduler):
    """A block leaves the host without an event."""

    def forget(self, key: HostKey) -> None:
        super().forget(key)
        self._events.pop()


class ParentMissing(PlainScheduler):
    """Events have no parents."""

    def begin_store(self, key: HostKey, block_id: int, stored: BlocksStored) -> None:
        super().begin_store(key, block_id, evolve(stored, parent_block_hash=None))


class OneRankIsEnough(PlainScheduler):
    """A store is taken as ended when the first rank has ended it."""

    def end_store(self, number: int, *, moved: bool) -> None:
        if number in self._stores:
            super().end_store(number, moved=moved)

    def update_connector_output(self, connector_output: ConnectorReport) -> None:
        ended: EndedJobs | None = connector_output.kv_connector_worker_meta
        if ended is not None:
            ranks = self.shape.ranks
            # Later ranks are not counted again.
            all_ranks = {each: ranks for each in ended.ended if each in self._stores}
            moved = {each: ranks for each in ended.ended if ended.moved[each]}
            enough = EndedJobs(Counter(all_ranks), Counter(moved))
            connector_output = evolve(connector_output, kv_connector_worker_meta=enough)
        super().update_connector_output(connector_output)


class WholePromptAnswered(PlainScheduler):
    """The last token of a prompt counts as loaded, so that nothing is left to compute."""

    def end_of_hit(self, request: StandInRequest, computed: int) -> int:
        end = super().end_of_hit(request, computed)
        whole = request.num_tokens // self.shape.block_tokens
        keys = [self.key_of(request, whole - 1, group) for group in range(len(self.shape.groups))]
        return whole if end == whole - 1 and all(map(self.has, keys)) else end


class ResumedTableExtended(PlainScheduler):
    """The blocks of a request that was preempted are added to those that it had."""

    def build_connector_meta(self, scheduler_output: StepPlan) -> PlainMetadata:
        cached = scheduler_output.scheduled_cached_reqs
        plan = evolve(
            scheduler_output,
            preempted_req_ids=set(),
            scheduled_cached_reqs=evolve(cached, resumed_req_ids=set()),
        )
        return super().build_connector_meta(plan)


class LaterForEver(PlainScheduler):
    """A prompt that is being stored is put off, and a store that failed is never forgotten."""

    def get_num_new_matched_tokens(
        self, request: StandInRequest, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        if any((each, 0) in self._storing for each in request.block_hashes):
            return None, False
        return super().get_num_new_matched_tokens(request, num_computed_tokens)

    def end_store(self, number: int, *, moved: bool) -> None:
        key = self._stores[number].key
        super().end_store(number, moved=moved)
        if not moved:
            self._storing.add(key)


@frozen
class ConnectorFault:
    """A planted fault."""

    name: str
    what: str
    """The first sentence of its docstring."""
    make: Callable[[DrawnRun], ConnectorHalves]


def _planted(faulty: type[PlainScheduler | PlainWorker]) -> ConnectorFault:
    halves = (
        (faulty, PlainWorker) if issubclass(faulty, PlainScheduler) else (PlainScheduler, faulty)
    )

    def make(run: DrawnRun) -> ConnectorHalves:
        return plain_connector(run.shape, run.times, run.seed, run.host_blocks, halves)

    what = (faulty.__doc__ or "").strip().partition("\n")[0]
    return ConnectorFault(faulty.__name__, what, make)


CONNECTOR_FAULTS = {
    each.__name__: _planted(each)
    for each in (
        FailureUnreported,
        FailedLoadRepeated,
        FailureByBlocks,
        WrongBlock,
        TwoLoadsIntoOneBlock,
        EndReportedEarly,
        EndReportedTwice,
        AbortedLoadForgotten,
        SourceNotHeld,
        SourceNeverFreed,
        StoredInItsStep,
        StaleAfterReset,
        ResetIgnored,
        SaltIgnored,
        TokensOfBlockAlone,
        WindowBlockMissing,
        PinLeaked,
        NothingPinned,
        EventBeforeBytes,
        RemovalUnannounced,
        ParentMissing,
        OneRankIsEnough,
        WholePromptAnswered,
        ResumedTableExtended,
        LaterForEver,
    )
}
"""The faults, by name."""


def find_fault(fault: ConnectorFault, first_seed: int, runs: int = MOST_RUNS) -> RunOutcome | None:
    """Play runs until one finds a fault. Returns: that run; None if none does."""
    for seed in range(first_seed, first_seed + runs):
        outcome = play_run(draw_run(seed), fault.make)
        if outcome.fault is not None:
            return outcome
    return None


def _rotated(job: BlockCopy) -> BlockCopy:
    """The same copy with its rows one place further."""
    rows = [each.row for each in job.blocks]
    moved = rows[1:] + rows[:1]
    blocks = tuple(evolve(each, row=row) for each, row in zip(job.blocks, moved, strict=True))
    return job if job.to_host else evolve(job, blocks=blocks)
