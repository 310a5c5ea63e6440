"""The index of the disk tier: which page is evicted next, and what large prompts cost."""

from __future__ import annotations

import hashlib
import time

from kvcanon.disk.index import PageIndex
from kvcanon.disk.index_filling import filled_index
from kvcanon.disk.records import DiskRecord, RecordKind, whole_records

FINGERPRINT = bytes(16)
MANY = 100_000


def name_of(number: int) -> bytes:
    """A name."""
    return hashlib.sha256(b"%d" % number).digest()


def record(number: int, parent: int | None, pool: int = 0) -> DiskRecord:
    """The record of a page."""
    above = bytes(32) if parent is None else name_of(parent)
    return DiskRecord(
        RecordKind.PAGE, number + 1, FINGERPRINT, number, 1, pool, bytes(16), name_of(number), above
    )


def add(index: PageIndex, number: int, parent: int | None, pool: int = 0) -> None:
    """Add a page."""
    made = record(number, parent, pool)
    index.add(made, made.packed(), proved=True)


def evicted(index: PageIndex) -> list[bytes]:
    """Evict all pages, one by one."""
    order = []
    while (name := index.victim(frozenset())) is not None:
        for pool in index.pools_of(name):
            index.drop(name, pool)
        order.append(name)
    return order


def test_a_long_prompt_is_evicted_from_its_end() -> None:
    """A hundred thousand pages that follow each other, each eviction at the cost of one."""
    index = PageIndex()
    for number in range(MANY):
        add(index, number, number - 1 if number else None)
    began = time.process_time()
    order = evicted(index)
    assert order == [name_of(number) for number in reversed(range(MANY))]
    assert time.process_time() - began < 20
    assert not index.entries
    assert not index.count


def test_many_pages_after_one_are_evicted_before_it() -> None:
    """In the order of their use, and the one last."""
    index = PageIndex()
    add(index, 0, None)
    for number in range(1, MANY):
        add(index, number, 0)
    index.use(name_of(1))
    order = evicted(index)
    assert order[:2] == [name_of(2), name_of(3)]
    assert order[-2:] == [name_of(1), name_of(0)]
    assert len(order) == MANY


def test_a_page_whose_parent_comes_later_is_evicted_first() -> None:
    """The end of a prompt may be stored before its beginning."""
    index = PageIndex()
    add(index, 2, 1)
    add(index, 1, 0)
    add(index, 0, None)
    assert evicted(index) == [name_of(2), name_of(1), name_of(0)]


def test_a_removed_page_keeps_its_place_in_the_prompt() -> None:
    """The pages before it are evicted after those behind it, as before."""
    index = PageIndex()
    for number in range(4):
        add(index, number, number - 1 if number else None)
    index.drop(name_of(2), 0)
    assert index.victim({name_of(3)}) is None
    assert evicted(index) == [name_of(3), name_of(1), name_of(0)]
    assert not index.entries


def test_pools_of_a_page_come_and_go_together() -> None:
    """A page is there if all of its pools are, and an eviction takes them all."""
    index = PageIndex(pools=2)
    add(index, 0, None, 0)
    assert (index.has(name_of(0), 0), index.has_all(name_of(0))) == (True, False)
    add(index, 0, None, 1)
    assert index.has_all(name_of(0))
    assert index.pools_of(name_of(0)) == [0, 1]
    assert evicted(index) == [name_of(0)]


def test_kept_pages_are_passed_over_and_stay_in_the_queue() -> None:
    """They are evicted when they are no longer kept."""
    index = PageIndex()
    for number in range(3):
        add(index, number, None)
    assert index.victim({name_of(0), name_of(1)}) == name_of(2)
    assert index.victim({name_of(number) for number in range(3)}) is None
    assert evicted(index) == [name_of(0), name_of(1), name_of(2)]


def test_entries_are_used_again() -> None:
    """Pages that come and go leave nothing behind."""
    index = PageIndex()
    for number in range(1000):
        add(index, number, number - 1 if number % 7 else None)
        if number >= 70:
            name = index.victim(frozenset())
            assert name is not None
            index.drop(name, 0)
    assert len(index.names) < 160
    assert len(index.leaves) < 160


def test_a_filled_index_is_as_one_that_was_added_to() -> None:
    """Order of use, prompts and pools are the same."""
    pages = [(0, None, 0), (1, 0, 0), (0, None, 1), (5, 4, 0), (2, 1, 0), (6, 5, 1)]
    one = PageIndex(pools=2)
    packed = []
    for number, parent, pool in pages:
        add(one, number, parent, pool)
        packed.append(record(number, parent, pool).packed())
    other = filled_index(whole_records(b"".join(packed))[0], 2)
    assert one.in_order_of_use() == other.in_order_of_use()
    assert evicted(one) == evicted(other)
    assert not other.entries
