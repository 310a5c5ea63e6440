"""Host memory for pages: mapped, near the GPU, paged in by several threads, and not forked.

Memory that a GPU copies is used for as long as the process runs, and all of it is used: it is
paged in at once, because the driver would otherwise do so with one thread, at about a minute for
256 GiB.
"""

from __future__ import annotations

import ctypes
import logging
import mmap
import os
import platform
from concurrent.futures import ThreadPoolExecutor
from ctypes import c_int, c_long, c_ulong, c_void_p
from pathlib import Path

import numpy as np

logger = logging.getLogger(__name__)

MBIND = {"x86_64": 237, "aarch64": 235}
"""Number of the system call; the C library has no function for it."""
PREFERRED = 1
"""MPOL_PREFERRED: other nodes are used once this one is full."""
BITS = 8 * ctypes.sizeof(c_ulong)

TOUCHED_AT_ONCE = 256 << 20
"""Bytes that a thread pages in before it takes the next ones."""
MOST_THREADS = 16
"""More do not page in faster: the kernel clears pages at the speed of the memory."""

DEVICES = Path("/sys/bus/pci/devices")


def mapped(size_bytes: int) -> mmap.mmap:
    """Map zeroed memory that nothing has touched, in huge pages where there are any."""
    memory = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        # Pages are accessed in random order, so most accesses would miss a TLB of 4 KiB entries.
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


def keep_from_children(memory: mmap.mmap) -> None:
    """Leave the memory out of forked processes, which would share pages that a GPU writes."""
    if hasattr(mmap, "MADV_DONTFORK"):
        memory.madvise(mmap.MADV_DONTFORK)


def page_in(memory: mmap.mmap) -> None:
    """Touch every page, with several threads. Returns when all are there."""
    first_bytes = np.frombuffer(memory, dtype=np.uint8)[:: mmap.PAGESIZE]
    step = TOUCHED_AT_ONCE // mmap.PAGESIZE
    starts = range(0, len(first_bytes), step)

    def touch(start: int) -> None:
        # NumPy releases the GIL here.
        first_bytes[start : start + step] = 0

    with ThreadPoolExecutor(min(MOST_THREADS, len(starts), _processors())) as threads:
        list(threads.map(touch, starts))


def prefer_node(memory: mmap.mmap, node: int | None) -> bool:
    """Take pages that are touched from now on from a NUMA node; returns whether the system does.

    A container often forbids it: the pages then come from the node of the thread that touches
    them, and copies may be slower. That is logged.
    """
    number = MBIND.get(platform.machine())
    if node is None or number is None or platform.system() != "Linux":
        return False
    words = node // BITS + 1
    mask = (c_ulong * words)()
    mask[node // BITS] = 1 << node % BITS
    address = np.frombuffer(memory, dtype=np.uint8).ctypes.data
    # The kernel reads one bit less than it is given.
    if _mbind(number, address, len(memory), mask, words * BITS + 1):
        return True
    reason = os.strerror(ctypes.get_errno())
    logger.warning("host memory is not bound to NUMA node %d of the GPU: %s", node, reason)
    return False


def node_of_bus(bus_id: str) -> int | None:
    """The NUMA node of a PCI device; None where there is one node only, or it is not known."""
    # The driver's addresses have 4 digits of a domain in upper case, or 8.
    domain, _, rest = bus_id.lower().partition(":")
    file = DEVICES / f"{int(domain, 16):04x}:{rest}" / "numa_node"
    try:
        node = int(file.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None


def _mbind(number: int, address: int, size_bytes: int, mask: object, bits: int) -> bool:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = c_long
    error: int = libc.syscall(
        c_long(number),
        c_void_p(address),
        c_ulong(size_bytes),
        c_int(PREFERRED),
        mask,
        c_ulong(bits),
        c_int(0),
    )
    return error == 0


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
