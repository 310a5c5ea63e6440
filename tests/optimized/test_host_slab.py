"""Host slabs: pinned memory behind host pages, and when it is released."""

from __future__ import annotations

from enum import Enum

import pytest
import torch
from attrs import define, field

from kvcanon.optimized import pools
from kvcanon.optimized.host_slab import HostSlab
from kvcanon.optimized.layout import PageLayout
from kvcanon.optimized.pools import Pools
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.types import CPU, FULL, MAMBA, SWA, Counts

CONFIG = CacheConfig(
    window_tokens=2,
    mamba=True,
    device_slots=Counts(7, 5, 2),
    host_slots=Counts(6, 4, 3),
    write_policy="write_through",
)
LAYOUTS = {FULL: PageLayout(3, (4, 2)), SWA: PageLayout(5, (3,)), MAMBA: PageLayout(2, (1, 8, 2))}


class Error(Enum):
    """Error codes of the driver."""

    success = 0
    refused = 2


@define
class Driver:
    """A fake CUDA runtime: records registrations, or refuses them."""

    answer: Error = Error.success
    registered: dict[int, int] = field(factory=dict)
    cudaError = Error  # noqa: N815 - the runtime's own name.

    def cudaHostRegister(self, address: int, size_bytes: int, flags: int) -> Error:  # noqa: N802
        """Pin, unless `answer` is an error."""
        assert flags == 3, "for every GPU, and for kernels"
        if self.answer is Error.success:
            self.registered[address] = size_bytes
        return self.answer

    def cudaHostUnregister(self, address: int) -> None:  # noqa: N802
        """Unpin; a second time is an error of the caller."""
        del self.registered[address]


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    """A fake driver in place of the real one."""
    made = Driver()
    monkeypatch.setattr(torch.cuda, "cudart", lambda: made)
    return made


def test_a_slab_is_pinned_whole_and_no_more(driver: Driver) -> None:
    """A slab is pinned exactly, from a page boundary on, until `close`."""
    slab = HostSlab(1_000, 3_000, pinned=True)
    assert slab.pages.data_ptr() % 4_096 == 0
    assert driver.registered == {slab.pages.data_ptr(): 3_000_000}
    assert slab.pages.untyped_storage().nbytes() == 3_000_000
    assert slab.pinned
    slab.close()
    slab.close()
    assert not slab.pinned
    assert driver.registered == {}


def test_a_slab_that_was_not_closed_is_unpinned_with_it(driver: Driver) -> None:
    """Without `close`, a slab is unpinned when it is collected, and its tensors stay valid."""
    slab = HostSlab(2, 8, pinned=True)
    pages = slab.pages
    pages[1] = 5
    assert driver.registered
    del slab
    assert driver.registered == {}
    assert pages[1].tolist() == [5] * 8


def test_pools_let_go_of_every_slab(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing pools unpins the memory of all components."""
    monkeypatch.setattr(pools, "HostSlab", lambda *sizes, pinned: HostSlab(*sizes, pinned=True))
    made = Pools(CONFIG, LAYOUTS)
    assert len(driver.registered) == 3
    made.close()
    assert driver.registered == {}


def test_memory_that_cannot_be_pinned_is_refused(driver: Driver) -> None:
    """A slab that cannot be pinned raises."""
    driver.answer = Error.refused
    with pytest.raises(BadArgument, match=r"host_slots: need 16 bytes of pinned memory.*refused"):
        HostSlab(2, 8, pinned=True)


def test_nothing_is_pinned_without_a_gpu(driver: Driver) -> None:
    """Pools on the CPU and empty slabs need no driver."""
    made = Pools(CONFIG, LAYOUTS)
    made.slab(FULL).fill_(3)
    empty = HostSlab(0, 8, pinned=True)
    assert driver.registered == {}
    assert not empty.pinned
    empty.close()
    made.close()
    assert made.read(FULL, CPU, 0) == bytes([3] * 18)
