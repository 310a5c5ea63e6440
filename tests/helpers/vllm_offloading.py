"""An offloading spec for a vLLM without a GPU, which vLLM loads by name.

Manager and events are vLLM's own; its worker copies with CUDA, so that this one copies by index.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from vllm.v1.kv_offload.base import OffloadingManager, OffloadingWorker, TransferResult
from vllm.v1.kv_offload.cpu.spec import CPUOffloadingSpec

from offloading_judge import JudgedManager

MADE: list[JudgedManager] = []
"""The managers of this process."""


class IndexWorker(OffloadingWorker):  # type: ignore[misc]  # vLLM has no types here.
    """Copies blocks at once, by index."""

    def __init__(self, device: Sequence[torch.Tensor], chunks: int) -> None:
        self.device = device
        self.host = [torch.empty((chunks, *each.shape[1:]), dtype=each.dtype) for each in device]
        self._ended: list[TransferResult] = []

    def submit_store(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:  # noqa: ANN401
        return self._copy(job_id, (self.device, src_spec), (self.host, dst_spec))

    def submit_load(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:  # noqa: ANN401
        return self._copy(job_id, (self.host, src_spec), (self.device, dst_spec))

    def get_finished(self) -> list[TransferResult]:
        ended, self._ended = self._ended, []
        return ended

    def wait(self, job_ids: set[int]) -> None:
        """Every copy has ended."""

    def _copy(self, job_id: int, source: tuple[Any, Any], target: tuple[Any, Any]) -> bool:
        rows, places = (torch.as_tensor(each[1].block_ids).long() for each in (source, target))
        for values, into in zip(source[0], target[0], strict=True):
            into[places] = values[rows]
        self._ended.append(TransferResult(job_id, success=True))
        return True


class IndexSpec(CPUOffloadingSpec):  # type: ignore[misc]
    """VLLM's own host tier, with a worker that needs no GPU, and a manager that is judged."""

    _judged: JudgedManager | None = None
    _copying: IndexWorker | None = None

    def get_manager(self) -> OffloadingManager:
        if self._judged is None:
            self._judged = JudgedManager(super().get_manager(), self.num_chunks)
            MADE.append(self._judged)
        return self._judged

    def get_worker(self, kv_caches: Any) -> OffloadingWorker:  # noqa: ANN401
        if self._copying is None:
            if self.blocks_per_chunk != 1:
                raise ValueError("blocks_per_chunk: this worker copies chunks of one block")
            tensors = [each.tensor for each in kv_caches.tensors]
            self._copying = IndexWorker(tensors, self.num_chunks)
        return self._copying
