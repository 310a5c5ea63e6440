"""The worker's half: copies pages as the scheduler's half decided, and says what ended.

Its methods have the names, and are called in the order, of vLLM's connectors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from attrs import Factory, define, field, frozen

from kvcanon.optimized.vllm.block_copies import CopyEngine
from kvcanon.optimized.vllm.disk_copies import DiskMover
from kvcanon.optimized.vllm.disk_news import DiskJob
from kvcanon.optimized.vllm.step_copies import EndedStores, LoadResults, StepCopies, TierCopyJob

if TYPE_CHECKING:
    import torch

MakeCopies = Callable[[Mapping[str, "torch.Tensor"]], CopyEngine]
"""Makes the copy engine, once the device's caches are known by layer."""


@frozen
class HeldFailure:
    """A load that failed."""

    number: int
    later: set[str]
    """Requests whose loads were in flight when it failed, and had begun after it."""


@define(eq=False)
class WorkerHalf:
    """The copies of one rank."""

    make_copies: MakeCopies
    make_disk: Callable[[], DiskMover | None] = lambda: None
    """Makes what moves pages to the disk and back, once the copy engine is there."""
    rank: int = 0
    copied_pages: Counter[str] = Factory(Counter)
    """Pages that were copied, by direction."""
    _copies: CopyEngine | None = field(default=None)
    _disk: DiskMover | None = field(default=None)
    _reading: set[int] = Factory(set)
    """Reads of the disk that are in flight."""
    _unread: set[int] = Factory(set)
    """Reads of the disk that failed: their rows are not filled."""
    _awaiting: dict[str, TierCopyJob] = Factory(dict)
    """Loads that wait for reads, by request."""
    _step: StepCopies | None = None
    _stores_begun: int = 0
    _loads_begun: int = 0
    """The last steps of which the stores, and the loads, have begun."""
    _loading: dict[str, int] = Factory(dict)
    """The loads in flight by request, numbered as they began."""
    _failed: dict[str, HeldFailure] = Factory(dict)
    """Failures that are not reported yet."""
    _begun: int = 0
    _stores: EndedStores = Factory(EndedStores)

    def register_kv_caches(self, kv_caches: Mapping[str, torch.Tensor]) -> None:
        """Take the device's caches, and allocate the host memory."""
        self._copies = self.make_copies(kv_caches)
        self._disk = self.make_disk()

    def handle_preemptions(self, kv_connector_metadata: StepCopies) -> None:
        """Begin a step's stores, and wait for those whose blocks it overwrites."""
        step, copies = kv_connector_metadata, self._engine()
        self._step = step
        if step.step == self._stores_begun:
            return
        self._stores_begun = step.step
        copies.mark_step()
        for job in step.stores:
            copies.begin(job)
        copies.wait(step.awaited)
        self._begin_on_disk(step.disk_jobs)
        for name in sorted(step.failed_loads):
            self._number_load(name)
            self._fail(name)

    def bind_connector_metadata(self, connector_metadata: StepCopies) -> None:
        """Take a step; vLLM calls this before the forward, too."""
        self.handle_preemptions(connector_metadata)

    def start_load_kv(self, forward_context: object) -> None:
        """Begin a step's loads."""
        del forward_context
        step = self._step
        if step is None or step.step == self._loads_begun:
            return
        self._loads_begun = step.step
        for job in step.loads:
            self._number_load(job.request_id)
            self._awaiting[job.request_id] = job
        self._begin_read()

    def wait_for_save(self) -> None:
        """Nothing: stores read what earlier steps have computed."""

    def get_transfer_results(self, finished_req_ids: set[str]) -> LoadResults:
        """The loads that ended since the last call; also for requests that were aborted."""
        del finished_req_ids
        results = LoadResults()
        self._take_from_disk()
        for job, moved in self._engine().ended():
            self.copied_pages["to_host" if job.to_host else "to_device"] += len(job.blocks)
            if job.to_host:
                self._stores.count(job.number, moved=moved)
            elif moved:
                self._loading.pop(job.request_id, None)
                results.finished_recving.add(job.request_id)
            else:
                self._fail(job.request_id)
        name = self._failure_to_report()
        if name is not None:
            results.finished_recving.add(name)
            results.failed_recving.add(name)
        return results

    def get_block_ids_with_load_errors(self) -> set[int]:
        """None: failures are named by request."""
        return set()

    def build_connector_worker_meta(self) -> EndedStores | None:
        """The stores that ended since the last call."""
        ended, self._stores = self._stores, EndedStores()
        return ended if ended.ended or ended.disks.ranks else None

    def clear_connector_metadata(self) -> None:
        """Forget the step."""
        self._step = None

    def shutdown(self) -> None:
        """End all copies."""
        if self._disk is not None:
            self._disk.close()
            self._disk = None
        if self._copies is not None:
            self._copies.close()
            self._copies = None

    def _begin_on_disk(self, jobs: Sequence[DiskJob]) -> None:
        if self._disk is None:
            return
        for job in jobs:
            if not job.to_disk:
                self._reading.add(job.number)
            self._disk.begin(job)

    def _take_from_disk(self) -> None:
        """Take what the disk has ended, and begin or fail the loads that waited for it."""
        if self._disk is None:
            return
        for job, moved in self._disk.ended():
            self.copied_pages["to_disk" if job.to_disk else "from_disk"] += len(job.rows)
            self._stores.count(job.number, moved=moved)
            self._reading.discard(job.number)
            if not (job.to_disk or moved):
                self._unread.add(job.number)
        news = self._disk.news()
        if news is not None:
            self._stores.disks.ranks.setdefault(self.rank, news).update(news)
        self._begin_read()

    def _begin_read(self) -> None:
        """Begin the loads whose rows the disk has filled, and fail those that it has not."""
        for name, job in list(self._awaiting.items()):
            if not self._unread.isdisjoint(job.after):
                del self._awaiting[name]
                self._fail(name)
            elif self._reading.isdisjoint(job.after):
                del self._awaiting[name]
                self._engine().begin(job)

    def _number_load(self, name: str) -> None:
        self._begun += 1
        self._loading[name] = self._begun

    def _fail(self, name: str) -> None:
        number = self._loading.get(name, 0)
        later = {other for other, began in self._loading.items() if began > number}
        self._failed[name] = HeldFailure(number, later)

    def _failure_to_report(self) -> str | None:
        """The failure that began last, once the loads that began after it have been reported.

        vLLM frees the blocks of a load that failed, and looks at its request before those behind
        it. If it needs more blocks than are free then, nobody is served any more: those behind it
        have theirs.
        """
        free = [name for name, held in self._failed.items() if not held.later & set(self._loading)]
        if not free:
            return None
        last = max(free, key=lambda name: self._failed[name].number)
        del self._failed[last]
        self._loading.pop(last, None)
        return last

    def _engine(self) -> CopyEngine:
        if self._copies is None:
            raise RuntimeError("vLLM's worker did not register its KV caches")
        return self._copies
