"""One GPU: torch's streams and the driver's copies for it.

Both the CUDA driver and a torch with CUDA must be installed; the error says which is missing.
"""

from __future__ import annotations

import logging

import numpy as np
import torch
from attrs import frozen

from kvcanon.optimized.cuda_driver import CudaDriver, CudaError
from kvcanon.optimized.cuda_runtime import Runtime, TorchRuntime
from kvcanon.optimized.host_slab import HostSlab

logger = logging.getLogger(__name__)

PROOF_BYTES = 4096


@frozen(eq=False)
class Gpu:
    """A device with its streams, events and copies."""

    device: torch.device
    runtime: Runtime
    driver: CudaDriver


def gpu_at(device: torch.device) -> Gpu:
    """Open a GPU. The caller's current device stays as it is. Raises: CudaError."""
    # The driver first: without one, some builds of torch crash in `is_available`.
    driver = CudaDriver()
    if not torch.cuda.is_available():
        raise CudaError(f"torch {torch.__version__} finds no CUDA device here")
    runtime = TorchRuntime(device, driver)
    gpu = Gpu(runtime.device, runtime, driver)
    with runtime.on_device():
        prove_batches(gpu, HostSlab(1, PROOF_BYTES, gpu.device, driver))
    return gpu


def prove_batches(gpu: Gpu, slab: HostSlab) -> None:
    """Try a batch of copies; if the driver refuses it, log that and use single copies."""
    memory, stream = gpu.runtime.buffer(PROOF_BYTES), gpu.runtime.stream()
    ready, end = gpu.runtime.event(), gpu.runtime.event()
    # The caller's stream may still use the memory for its former owner.
    ready.record(gpu.runtime.current_stream())
    stream.wait_event(ready)
    half = PROOF_BYTES // 2
    starts = np.array([0, half], np.uint64)
    try:
        gpu.driver.copy_many(
            starts + np.uint64(memory.data_ptr()),
            starts + np.uint64(slab.pages.data_ptr()),
            np.full(2, half, np.uint64),
            stream.cuda_stream,
            at_once=2,
        )
    except CudaError as error:
        logger.warning("copies go one by one, which is slower for small pages: %s", error)
        gpu.driver.forgo_batches()
    end.record(stream)
    end.synchronize()
