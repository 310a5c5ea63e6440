"""Orders whose `submit` was interrupted: they move no bytes, or end as any other."""

from __future__ import annotations

import numpy as np
import pytest

from array_api import counted, insert, new_cache
from kvcanon.optimized import PrefixCache
from kvcanon.reference.engine import ManualEngine
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.transfer import TransferOrder, TransferStatus
from kvcanon.spec.types import CPU, FULL, Counts

DONE, FAILED = TransferStatus.DONE, TransferStatus.FAILED
THROUGH = CacheConfig(
    device_slots=Counts(full=8), host_slots=Counts(full=8), write_policy="write_through"
)
FIRST = np.arange(4, dtype=np.uint32)


def counts(cache: PrefixCache) -> tuple[int, ...]:
    """Free slots on both media, open receipts, transfers in flight."""
    free = cache.tree.free_counts(0)[0], cache.tree.free_counts(1)[0]
    return (*free, counted(cache, "receipts"), counted(cache, "transfers_in_flight"))


def test_interrupt_after_an_order_was_taken() -> None:
    """If `submit` is interrupted after the engine took the order, it never moves a byte."""

    class Late(ManualEngine):
        """An engine that is interrupted after it took an order."""

        def submit(self, order: TransferOrder) -> None:
            super().submit(order)
            raise KeyboardInterrupt

    engine = Late()
    cache = new_cache(THROUGH, engine)
    assert cache.pools is not None
    with pytest.raises(KeyboardInterrupt):
        insert(cache, FIRST)
    ((taken, status),) = cache.flush()
    assert status is FAILED
    assert counts(cache) == (4, 8, 0, 0)
    # The host slots have another owner when the engine comes to the order.
    for slot in range(8):
        cache.pools.write_host(FULL, [slot], [bytes([slot])])
    engine.acknowledge(taken)
    assert cache.poll() == []
    assert [cache.pools.read(FULL, CPU, slot)[0] for slot in range(8)] == [*range(8)]
    cache.tree.check()


def test_interrupt_after_a_copy_had_begun() -> None:
    """If the copy has begun when `submit` is interrupted, it ends as any other."""

    class Eager(ManualEngine):
        """An engine that copies at once, and is interrupted then."""

        def submit(self, order: TransferOrder) -> None:
            super().submit(order)
            self.acknowledge(order.transfer_id)
            raise KeyboardInterrupt

    cache = new_cache(THROUGH, Eager())
    with pytest.raises(KeyboardInterrupt):
        insert(cache, FIRST)
    ((_, status),) = cache.poll()
    assert status is DONE
    assert counts(cache) == (4, 4, 0, 0)
    cache.tree.check()
