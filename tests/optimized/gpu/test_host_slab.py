"""Host slabs: pinned memory behind host pages, and when it is released."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from attrs import define, field

from gpu.fake import DriverLibrary
from gpu.scene import CONFIG, LAYOUTS
from kvcanon.optimized import host_memory, host_slab, pools
from kvcanon.optimized.cuda_driver import CudaDriver
from kvcanon.optimized.host_slab import HostSlab
from kvcanon.optimized.pools import Pools
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.types import CPU, FULL

GPU_1 = torch.device("cuda", 1)
CPU_MEMORY = torch.device("cpu")


@define(eq=False)
class Machine:
    """A driver, and torch's current device of two GPUs."""

    library: DriverLibrary
    driver: CudaDriver
    current: int = 0
    contexts: list[torch.device] = field(factory=list)

    @property
    def pinned_bytes(self) -> int:
        """Bytes that are pinned now."""
        return self.library.asked("pinned_bytes")

    @contextmanager
    def on(self, device: torch.device) -> Iterator[None]:
        """As `torch.cuda.device`."""
        before, self.current = self.current, device.index
        try:
            yield
        finally:
            self.current = before


@pytest.fixture
def machine(library: DriverLibrary, driver: CudaDriver, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine on which device 0 is current."""
    made = Machine(library, driver)
    monkeypatch.setattr(torch.cuda, "device", made.on)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: made.current)
    monkeypatch.setattr(host_slab, "make_context", made.contexts.append)
    monkeypatch.setattr(host_slab, "CudaDriver", lambda: driver)
    return made


def test_a_slab_is_pinned_whole_and_no_more(machine: Machine) -> None:
    """A slab is pinned exactly, on its own device, from a page boundary on, until `close`."""
    slab = HostSlab(1_000, 3_000, GPU_1)
    assert machine.contexts == [GPU_1]
    assert machine.current == 0
    assert slab.pages.data_ptr() % 4_096 == 0
    assert machine.pinned_bytes == 3_000_000
    assert slab.pages.untyped_storage().nbytes() == 3_000_000
    assert slab.pinned
    slab.close()
    slab.close()
    assert not slab.pinned
    assert (machine.current, machine.pinned_bytes) == (0, 0)


def test_a_slab_that_was_not_closed_is_unpinned_with_it(machine: Machine) -> None:
    """Without `close`, a slab is unpinned when it is collected, and its tensors stay valid."""
    slab = HostSlab(2, 8, GPU_1)
    rows = slab.pages
    rows[1] = 5
    assert machine.pinned_bytes == 16
    del slab
    assert machine.pinned_bytes == 0
    assert rows[1].tolist() == [5] * 8


def test_pools_let_go_of_every_slab(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing pools unpins the memory of all components."""
    monkeypatch.setattr(pools, "HostSlab", lambda slots, size, _: HostSlab(slots, size, GPU_1))
    made = Pools(CONFIG, LAYOUTS)
    assert machine.pinned_bytes == sum(
        CONFIG.capacity(component, CPU) * layout.page_bytes for component, layout in LAYOUTS.items()
    )
    made.close()
    assert machine.pinned_bytes == 0


def test_memory_that_cannot_be_pinned_is_refused(machine: Machine) -> None:
    """A slab that cannot be pinned raises, and leaves the device and a second try alone."""
    machine.library.refuse_with(2)
    with pytest.raises(BadArgument, match=r"host_slots: need 16 bytes of pinned memory.*error 2"):
        HostSlab(2, 8, GPU_1)
    assert (machine.current, machine.pinned_bytes) == (0, 0)
    machine.library.refuse_with(0)
    assert HostSlab(2, 8, GPU_1).pinned
    # More memory than there are addresses cannot even be mapped.
    with pytest.raises(
        BadArgument, match=r"host_slots: need .* bytes of memory: .*; ask for fewer"
    ):
        HostSlab(1 << 30, 1 << 30, CPU_MEMORY)


def test_nothing_is_pinned_without_a_gpu(machine: Machine) -> None:
    """Pools on the CPU and empty slabs need no driver."""
    made = Pools(CONFIG, LAYOUTS)
    made.slab(FULL).fill_(3)
    empty = HostSlab(0, 8, GPU_1)
    assert machine.pinned_bytes == 0
    assert not empty.pinned
    empty.close()
    made.close()
    assert made.read(FULL, CPU, 0) == bytes([3] * LAYOUTS[FULL].page_bytes)


def test_a_forked_process_does_not_have_the_memory(machine: Machine) -> None:
    """Pinned memory is not mapped in children, which unpin nothing either."""
    slab = HostSlab(2, mmap.PAGESIZE, GPU_1)
    address = slab.pages.data_ptr()
    child = os.fork()
    if not child:
        mapped = any(
            int(start, 16) <= address < int(end, 16)
            for start, end in (
                line.split()[0].split("-")
                for line in Path("/proc/self/maps").read_text(encoding="ascii").splitlines()
            )
        )
        slab.close()
        os._exit(int(mapped) + 2 * int(machine.pinned_bytes != slab.pages.nbytes))
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    slab.close()
    assert machine.pinned_bytes == 0


def test_every_page_is_touched_before_it_is_pinned(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several threads page the memory in, each a part, and the driver finds it there."""
    monkeypatch.setattr(host_memory, "TOUCHED_AT_ONCE", 2 * mmap.PAGESIZE)
    monkeypatch.setattr(host_memory, "_processors", lambda: 3)
    resident = list[float]()
    monkeypatch.setattr(
        machine.driver, "pin", lambda address, size: resident.append(resident_bytes(address) / size)
    )
    HostSlab(9, mmap.PAGESIZE, GPU_1)
    assert resident == [1.0]


def resident_bytes(address: int) -> int:
    """Bytes of the mapping at an address that are in memory."""
    lines = iter(Path("/proc/self/smaps").read_text(encoding="ascii").splitlines())
    for line in lines:
        if line.startswith(f"{address:08x}-"):
            break
    found = next(line for line in lines if line.startswith("Rss:"))
    return 1024 * int(found.split()[1])


@pytest.mark.parametrize(
    ("bus_id", "node"),
    [("0000:3B:00.0", 1), ("00000000:3B:00.0", 1), ("0000:AF:00.0", None), ("0000:00:00.0", None)],
)
def test_the_node_of_a_gpu_is_read_from_its_bus(
    bus_id: str, node: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel says the node of a PCI device: -1 where there is one only."""
    for device, text in (("0000:3b:00.0", "1\n"), ("0000:af:00.0", "-1\n")):
        (tmp_path / device).mkdir()
        (tmp_path / device / "numa_node").write_text(text, encoding="ascii")
    monkeypatch.setattr(host_memory, "DEVICES", tmp_path)
    assert host_memory.node_of_bus(bus_id) == node


def bind_by(patch: pytest.MonkeyPatch, mbind: Callable[..., bool], node: int) -> None:
    """Put something in the place of the system's call; the GPU is on this node."""
    patch.setattr(host_memory, "_mbind", mbind)
    patch.setattr(host_memory, "MBIND", dict.fromkeys(("x86_64", "aarch64", "arm64"), 5))
    patch.setattr(host_slab, "node_of_bus", {"0000:3B:00.0": node}.get)


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("node", [0, 1, 63, 64, 70])
def test_memory_is_bound_to_the_node(node: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel gets the whole mapping and a mask with one bit, before any page is touched."""
    asked = []

    def mbind(number: int, address: int, size_bytes: int, mask: list[int], bits: int) -> bool:
        asked.append((number, address, size_bytes, list(mask), bits, resident_bytes(address)))
        return True

    bind_by(monkeypatch, mbind, node)
    slab = HostSlab(4, mmap.PAGESIZE, torch.device("cuda", 0))
    mask = [0] * (node // 64) + [1 << node % 64]
    place = slab.pages.data_ptr()
    assert asked == [(5, place, 4 * mmap.PAGESIZE, mask, 64 * len(mask) + 1, 0)]


@pytest.mark.usefixtures("machine")
def test_a_system_that_forbids_binding_is_told_of(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the right to bind, the slab is made, and the log says what is slower and why."""

    def refuse(*_: object) -> bool:
        ctypes.set_errno(1)
        return False

    bind_by(monkeypatch, refuse, 1)
    assert HostSlab(4, 8, torch.device("cuda", 0)).pinned
    said = "host memory is not bound to NUMA node 1 of the GPU: Operation not permitted"
    assert said in caplog.text
