"""The worker's half: copies pages as the scheduler's half decided, and says what ended.

Its methods have the names, and are called in the order, of vLLM's connectors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from attrs import Factory, define, field

from kvcanon.optimized.vllm.block_copies import CopyEngine
from kvcanon.optimized.vllm.step_copies import EndedStores, LoadResults, StepCopies

if TYPE_CHECKING:
    import torch

MakeCopies = Callable[[Mapping[str, "torch.Tensor"]], CopyEngine]
"""Makes the copy engine, once the device's caches are known by layer."""


@define(eq=False)
class WorkerHalf:
    """The copies of one rank."""

    make_copies: MakeCopies
    copied_pages: Counter[str] = Factory(Counter)
    """Pages that were copied, by direction."""
    _copies: CopyEngine | None = field(default=None)
    _step: StepCopies | None = None
    _stores_begun: int = 0
    _loads_begun: int = 0
    """The last steps of which the stores, and the loads, have begun."""
    _failed: set[str] = Factory(set)
    _stores: EndedStores = Factory(EndedStores)

    def register_kv_caches(self, kv_caches: Mapping[str, torch.Tensor]) -> None:
        """Take the device's caches, and make room on the host."""
        self._copies = self.make_copies(kv_caches)

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
        self._failed |= step.failed_loads

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
            self._engine().begin(job)

    def wait_for_save(self) -> None:
        """Nothing: stores read what earlier steps have computed."""

    def get_transfer_results(self, finished_req_ids: set[str]) -> LoadResults:
        """The loads that ended since the last call; also for requests that were aborted."""
        del finished_req_ids
        results = LoadResults(set(self._failed), set(self._failed))
        self._failed.clear()
        for job, moved in self._engine().ended():
            if job.to_host:
                self._stores.ended[job.number] += 1
                self._stores.moved[job.number] += moved
                self.copied_pages["to_host"] += len(job.blocks)
                continue
            self.copied_pages["to_device"] += len(job.blocks)
            results.finished_recving.add(job.request_id)
            if not moved:
                results.failed_recving.add(job.request_id)
        return results

    def get_block_ids_with_load_errors(self) -> set[int]:
        """None: failures are named by request."""
        return set()

    def build_connector_worker_meta(self) -> EndedStores | None:
        """The stores that ended since the last call."""
        ended, self._stores = self._stores, EndedStores()
        return ended if ended.ended else None

    def clear_connector_metadata(self) -> None:
        """Forget the step."""
        self._step = None

    def shutdown(self) -> None:
        """End all copies."""
        if self._copies is not None:
            self._copies.close()
            self._copies = None

    def _engine(self) -> CopyEngine:
        if self._copies is None:
            raise RuntimeError("vLLM's worker did not register its KV caches")
        return self._copies
