"""The host pool of one component: contiguous pages, pinned where a GPU copies them.

The memory is mapped here and registered with the driver; torch only gets a view. Torch's own pinned
memory is rounded up to a power of two, which wastes up to half of a server's largest buffer.

The mapping lives as long as the last tensor over it, but the registration ends with `close` or with
the slab. A copy that is still running then reads memory that may move.
"""

from __future__ import annotations

import mmap
import weakref

import torch

from kvcanon.spec.errors import BadArgument

PORTABLE = 1
"""cudaHostRegisterPortable: pinned for every GPU, not only the current one."""
MAPPED = 2
"""cudaHostRegisterMapped: kernels may read and write it, too, as they do for small transfers."""


class HostSlab:
    """Zeroed host memory for pages of one size.

    Raises:
        BadArgument: the driver does not pin that much memory. Unpinned memory is no fallback: every
            copy would be several times slower and would block the thread that enqueues it.
    """

    def __init__(self, slots: int, page_bytes: int, *, pinned: bool) -> None:
        self.pages = _zeroed_pages(slots, page_bytes)
        """One row a slot."""
        self._unpin: weakref.finalize[[int], HostSlab] | None = None
        if pinned and slots:
            _pin(self.pages)
            self._unpin = weakref.finalize(self, _unpin, self.pages.data_ptr())

    @property
    def pinned(self) -> bool:
        """Whether the memory is pinned."""
        return self._unpin is not None and self._unpin.alive

    def close(self) -> None:
        """Unpin the memory; no copy may be running."""
        if self._unpin is not None:
            self._unpin()


def _zeroed_pages(slots: int, page_bytes: int) -> torch.Tensor:
    size_bytes = slots * page_bytes
    if not size_bytes:
        return torch.zeros((slots, page_bytes), dtype=torch.uint8)
    memory = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        # Pages are accessed in random order, so most accesses would miss a TLB of 4 KiB entries.
        memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=torch.uint8).view(slots, page_bytes)


def _pin(pages: torch.Tensor) -> None:
    runtime = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    error = runtime.cudaHostRegister(pages.data_ptr(), pages.nbytes, PORTABLE | MAPPED)
    if error != runtime.cudaError.success:
        raise BadArgument(
            "host_slots",
            f"need {pages.nbytes} bytes of pinned memory, and the driver gives none ({error}); "
            "ask for fewer, or raise the limit on locked memory",
        )


def _unpin(address: int) -> None:
    torch.cuda.cudart().cudaHostUnregister(address)  # type: ignore[no-untyped-call]
