"""One GPU: what a transfer needs of torch, of the driver, and to know where pools are.

What readers get wrong: a driver can be installed where torch was built without it, and the other
way around. Both must be there, and it is said which is not.
"""

from __future__ import annotations

import torch
from attrs import frozen

from kvcanon.optimized.cuda_driver import CudaDriver, CudaError
from kvcanon.optimized.cuda_runtime import Runtime, TorchRuntime


@frozen(eq=False)
class Gpu:
    """A device with its streams, events and copies."""

    device: torch.device
    runtime: Runtime
    driver: CudaDriver


def gpu_at(device: torch.device) -> Gpu:
    """The GPU at this place. Effects: it is this thread's. Raises: CudaError."""
    # The driver first: where there is none, some builds of torch crash when they are asked.
    driver = CudaDriver()
    if not torch.cuda.is_available():
        raise CudaError(f"torch {torch.__version__} finds no CUDA device here")
    runtime = TorchRuntime(device)
    runtime.enter()
    return Gpu(runtime.device, runtime, driver)
