"""The engines of the plain cache: when they perform a copy, and when they report it."""

from __future__ import annotations

import pytest
from attrs import define, field

from kvcanon.reference import InlineEngine, ManualEngine, ReferenceCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.transfer import Completion, Direction, TransferOrder, TransferStatus
from kvcanon.spec.types import CPU, FULL, GPU, Counts, TransferId, make_key

BACKUP, LOAD_BACK = Direction.BACKUP, Direction.LOAD_BACK


@define
class Orders:
    """Makes transfer orders, and records which were performed."""

    performed: list[TransferId] = field(factory=list)

    def make(self, transfer_id: TransferId, direction: Direction = BACKUP) -> TransferOrder:
        """Return an order without slots."""
        return TransferOrder(transfer_id, direction, (), lambda: self.performed.append(transfer_id))


def test_manual_engine_does_nothing_by_itself() -> None:
    """No copy is performed or reported before the caller says so."""
    engine, orders = ManualEngine(), Orders()
    first, second = orders.make(1), orders.make(2, LOAD_BACK)
    engine.submit(first)
    engine.submit(second)
    assert engine.poll() == ()
    assert orders.performed == []
    assert engine.open_orders == (first, second)


def test_manual_engine_performs_once_and_reports_later() -> None:
    """A performed copy is reported only when it is acknowledged, and is not performed again."""
    engine, orders = ManualEngine(), Orders()
    engine.submit(orders.make(1))
    engine.perform(1)
    engine.perform(1)
    assert engine.poll() == ()
    engine.acknowledge(1)
    assert orders.performed == [1]
    assert engine.poll() == (Completion(1, ok=True),)
    assert engine.poll() == ()
    assert engine.open_orders == ()


def test_manual_engine_reports_in_the_order_of_the_caller() -> None:
    """Completions are polled in the order in which the caller caused them."""
    engine, orders = ManualEngine(), Orders()
    for transfer_id in (1, 2, 3):
        engine.submit(orders.make(transfer_id))
    engine.acknowledge(3)
    engine.fail(1)
    engine.acknowledge(2)
    assert orders.performed == [3, 2]
    assert engine.poll() == (
        Completion(3, ok=True),
        Completion(1, ok=False),
        Completion(2, ok=True),
    )


def test_manual_engine_waits_for_all_before_in_the_direction() -> None:
    """A wait completes the copy and all earlier ones of its direction, and no others."""
    engine, orders = ManualEngine(), Orders()
    for transfer_id, direction in ((1, BACKUP), (2, LOAD_BACK), (3, BACKUP), (4, BACKUP)):
        engine.submit(orders.make(transfer_id, direction))
    engine.wait(3)
    assert orders.performed == [1, 3]
    assert [order.transfer_id for order in engine.open_orders] == [2, 4]
    engine.wait(3)
    engine.wait(99)
    assert [completion.transfer_id for completion in engine.poll()] == [1, 3]


def test_manual_engine_refuses_what_is_not_open() -> None:
    """An order that has ended, or never existed, is refused."""
    engine, orders = ManualEngine(), Orders()
    engine.submit(orders.make(1))
    engine.fail(1)
    for decide in (engine.perform, engine.acknowledge, engine.fail):
        for transfer_id in (1, 2):
            with pytest.raises(BadArgument, match="no open order"):
                decide(transfer_id)
    assert engine.poll() == (Completion(1, ok=False),)
    assert orders.performed == []


def test_inline_engine_performs_at_the_poll() -> None:
    """A copy is performed and reported at the poll, not before."""
    engine, orders = InlineEngine(), Orders()
    engine.submit(orders.make(1))
    engine.submit(orders.make(2, LOAD_BACK))
    engine.wait(1)
    assert orders.performed == []
    assert engine.poll() == (Completion(1, ok=True), Completion(2, ok=True))
    assert orders.performed == [1, 2]
    assert engine.poll() == ()


@pytest.mark.parametrize("policy", ["write_through", "write_back"])
def test_cache_has_an_inline_engine_by_default(policy: str) -> None:
    """Without an engine a cache performs its copies at the next poll."""
    cache = ReferenceCache(
        CacheConfig(device_slots=Counts(4), host_slots=Counts(4), write_policy=policy)
    )
    key = make_key([1, 2], 1)
    slots = cache.allocate(Counts(2))
    cache.write(FULL, slots.full[1], b"page two")
    inserted = cache.insert(key, 0, slots)
    assert cache.poll().transfers == tuple((each, TransferStatus.DONE) for each in inserted.backups)
    assert cache.evict(Counts(2)).freed == Counts(2)
    loaded = cache.load_back(key)
    assert cache.flush().transfers == ((loaded.transfer_id, TransferStatus.DONE),)
    assert cache.read(FULL, GPU, cache.match(key).slots.full[1]) == b"page two"
    assert len(cache.snapshot().pools[FULL, CPU].free) == 2
