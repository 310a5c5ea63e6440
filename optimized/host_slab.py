"""The host pool of one component: contiguous pages, pinned where a GPU copies them.

The memory is mapped here and registered with the driver; torch only gets a view. Torch's own pinned
memory is rounded up to a power of two, which wastes up to half of a server's largest buffer.

The mapping lives as long as the last tensor over it, but the registration ends with `close` or with
the slab. A copy that is still running then reads memory that may move.
"""

from __future__ import annotations

import os
import weakref
from contextlib import suppress
from typing import TypeAlias

import torch

from kvcanon.optimized.cuda_driver import CudaDriver, CudaError
from kvcanon.optimized.cuda_runtime import make_context
from kvcanon.optimized.host_memory import (
    keep_from_children,
    mapped,
    node_of_bus,
    page_in,
    prefer_node,
)
from kvcanon.spec.errors import BadArgument

Unpin: TypeAlias = "weakref.finalize[[int, CudaDriver, torch.device, int], HostSlab]"


class HostSlab:
    """Zeroed host memory for pages of one size, pinned if `device` is a GPU.

    Pinned memory comes from the GPU's NUMA node where the system permits it. It is paged in here,
    and a process that is forked does not have it: there, any access ends the process.

    Raises:
        BadArgument: the system does not map, or the driver does not pin, that much memory. Unpinned
            memory is no fallback: every copy would be several times slower and would block the
            thread that enqueues it.
    """

    def __init__(
        self,
        slots: int,
        page_bytes: int,
        device: torch.device,
        driver: CudaDriver | None = None,
    ) -> None:
        """Map the memory. `driver` is the installed one by default; only a GPU needs one."""
        self._unpin: Unpin | None = None
        size_bytes = slots * page_bytes
        if not size_bytes:
            self.pages = torch.zeros((slots, page_bytes), dtype=torch.uint8, device="cpu")
            return
        try:
            memory = mapped(size_bytes)
        except OSError as error:
            raise BadArgument(
                "host_slots", f"need {size_bytes} bytes of memory: {error.strerror}; ask for fewer"
            ) from error
        self.pages = torch.frombuffer(memory, dtype=torch.uint8).view(slots, page_bytes)
        """One row a slot."""
        if device.type != "cuda":
            return
        driver = driver or CudaDriver()
        keep_from_children(memory)
        address = self.pages.data_ptr()
        with torch.cuda.device(device):
            make_context(device)
            prefer_node(memory, _node_of_current(driver))
            page_in(memory)
            _pin(address, size_bytes, driver)
        self._unpin = weakref.finalize(self, _unpin, address, driver, device, os.getpid())

    @property
    def pinned(self) -> bool:
        """Whether the memory is pinned."""
        return self._unpin is not None and self._unpin.alive

    def close(self) -> None:
        """Unpin the memory; no copy may be running."""
        if self._unpin is not None:
            self._unpin()


def _node_of_current(driver: CudaDriver) -> int | None:
    try:
        return node_of_bus(driver.bus_id(torch.cuda.current_device()))
    except CudaError:
        return None


def _pin(address: int, size_bytes: int, driver: CudaDriver) -> None:
    try:
        driver.pin(address, size_bytes)
    except CudaError as error:
        raise BadArgument(
            "host_slots",
            f"need {size_bytes} bytes of pinned memory, and the driver gives none ({error}); "
            "ask for fewer, or raise the limit on locked memory",
        ) from error


def _unpin(address: int, driver: CudaDriver, device: torch.device, process: int) -> None:
    # A forked process has neither the memory nor a context.
    if os.getpid() != process:
        return
    # A device that was lost has nothing pinned any more.
    with suppress(CudaError, RuntimeError), torch.cuda.device(device):
        driver.unpin(address)
