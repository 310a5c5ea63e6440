"""Locks on the plain cache: the data that a receipt holds, and what its release unlocks."""

from __future__ import annotations

import pytest
from attrs import evolve

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import CacheBusy, PrefixNotCached, ReceiptSpent
from kvcanon.spec.operations import Receipt
from kvcanon.spec.types import FULL, MAMBA, SWA, Counts, Key
from scenes import (
    assert_right_bytes,
    lock,
    lock_refs,
    new_cache,
    node_ends,
    prompt,
    put,
    refused,
    shown,
)

WINDOW = CacheConfig(window_tokens=2, device_slots=Counts(16, 16))
BOTH = evolve(WINDOW, mamba=True, device_slots=Counts(16, 16, 4))
HOST = evolve(WINDOW, host_slots=Counts(16, 16), write_policy="write_through")
ALL = Counts(16, 16, 16)


def test_lock_covers_the_path_the_window_and_the_end_state() -> None:
    """A lock holds the whole prefix, exactly its window, and the mamba state at its end."""
    cache, _ = new_cache(BOTH)
    put(cache, [1, 2])
    put(cache, [1, 2, 3, 4, 5, 6])
    lock(cache, [1, 2, 3, 4, 5, 6])
    assert lock_refs(cache, [1, 2, 3, 4, 5, 6], FULL) == [1] * 6
    assert lock_refs(cache, [1, 2, 3, 4, 5, 6], SWA) == [0, 0, 0, 0, 1, 1]
    assert lock_refs(cache, [1, 2, 3, 4, 5, 6], MAMBA) == [0, 0, 0, 0, 0, 1]


@pytest.mark.parametrize(
    ("page_size", "window_tokens", "held_pages"),
    [(1, 1, 1), (1, 3, 3), (4, 1, 1), (4, 4, 1), (4, 5, 2), (4, 40, 6)],
)
def test_lock_holds_exactly_the_pages_that_cover_its_window(
    page_size: int, window_tokens: int, held_pages: int
) -> None:
    """A lock on a long leaf pins exactly the pages that cover the window."""
    cache, _ = new_cache(CacheConfig(page_size=page_size, window_tokens=window_tokens))
    tokens = list(range(6 * page_size))
    put(cache, tokens)
    lock(cache, tokens)
    assert lock_refs(cache, tokens, SWA) == [0] * (6 - held_pages) + [1] * held_pages
    freed = cache.evict(Counts(swa=6)).freed
    assert freed == Counts(swa=6 - held_pages)


def test_lock_whose_window_begins_inside_a_node_cuts_it() -> None:
    """A node inside of which the window begins is cut there, and its lower part is pinned."""
    cache, _ = new_cache(evolve(WINDOW, window_tokens=3))
    put(cache, [0, 1, 2, 3, 4, 5])
    assert node_ends(cache, [0, 1, 2, 3, 4, 5]) == [3, 6]
    lock(cache, [0, 1, 2, 3])
    assert node_ends(cache, [0, 1, 2, 3, 4, 5]) == [1, 3, 4, 6]
    assert lock_refs(cache, [0, 1, 2, 3, 4, 5], SWA) == [0, 1, 1, 1, 0, 0]
    assert lock_refs(cache, [0, 1, 2, 3, 4, 5], FULL) == [1, 1, 1, 1, 0, 0]


def test_lock_inside_a_node_cuts_it() -> None:
    """A lock of a part of a node cuts it and holds that part only."""
    cache, _ = new_cache(evolve(WINDOW, window_tokens=None))
    put(cache, [1, 2, 3, 4])
    lock(cache, [1, 2])
    assert node_ends(cache, [1, 2, 3, 4]) == [2, 4]
    assert lock_refs(cache, [1, 2, 3, 4]) == [1, 1, 0, 0]
    assert cache.evict(ALL).freed == Counts(full=2)


def test_lock_of_what_is_not_there_is_refused() -> None:
    """A lock of a prefix that is not in the tree as a whole is refused, and cuts nothing."""
    cache, _ = new_cache(BOTH)
    put(cache, [1, 2, 3])
    for tokens in ([9], [1, 2, 9], [1, 2, 3, 4]):
        with refused(cache, PrefixNotCached):
            lock(cache, tokens)


def test_locked_data_stays_on_both_media() -> None:
    """Locked data stays on the device, and its host copy stays, too."""
    cache, _ = new_cache(HOST)
    put(cache, [1, 2, 3, 4])
    cache.flush()
    on_device = lock(cache, [1, 2, 3, 4])
    assert cache.evict(ALL).freed == Counts(swa=2)
    assert cache.evict_host(ALL).freed == Counts(swa=2)
    cache.unlock(on_device)
    cache.evict(ALL)
    on_host = lock(cache, [1, 2, 3, 4])
    assert cache.evict_host(ALL).freed == Counts()
    cache.unlock(on_host)
    assert cache.evict_host(ALL).freed == Counts(4, 2)


def test_two_holders_each_release_their_own() -> None:
    """After the first of two releases the data is still locked."""
    cache, _ = new_cache(BOTH)
    put(cache, [1, 2, 3, 4])
    first, second = lock(cache, [1, 2, 3, 4]), lock(cache, [1, 2, 3, 4])
    cache.unlock(first)
    assert lock_refs(cache, [1, 2, 3, 4], FULL) == [1, 1, 1, 1]
    assert lock_refs(cache, [1, 2, 3, 4], SWA) == [0, 0, 1, 1]
    assert cache.evict(ALL).freed == Counts(swa=2)
    cache.unlock(second)
    assert cache.evict(ALL).freed == Counts(4, 2, 1)


def test_unlock_after_cuts_and_longer_locks_releases_its_own_pages() -> None:
    """A release takes no lock refs of a longer lock that came later."""
    cache, _ = new_cache(BOTH)
    put(cache, [1, 2, 3, 4])
    short = lock(cache, [1, 2, 3, 4])
    put(cache, [1, 2, 3, 9])
    put(cache, [1, 2, 3, 4, 5])
    long = lock(cache, [1, 2, 3, 4, 5])
    assert lock_refs(cache, [1, 2, 3, 4, 5], SWA) == [0, 0, 1, 2, 1]
    cache.unlock(short)
    assert lock_refs(cache, [1, 2, 3, 4, 5], SWA) == [0, 0, 0, 1, 1]
    assert lock_refs(cache, [1, 2, 3, 4, 5], FULL) == [1] * 5
    assert lock_refs(cache, [1, 2, 3, 4, 5], MAMBA) == [0, 0, 0, 0, 1]
    cache.unlock(long)
    assert not any(lock_refs(cache, [1, 2, 3, 4, 5], FULL))


def test_unlock_after_its_window_was_healed_leaves_the_second_holder() -> None:
    """A lock on a tombstone takes no lock refs of another lock after the tombstone is healed."""
    cache, _ = new_cache(WINDOW)
    put(cache, [1, 2])
    put(cache, [1, 2, 3, 4])
    cache.evict(Counts(swa=2))
    first = lock(cache, [1, 2])
    put(cache, [1, 2, 3, 4], start_pages=0)
    second = lock(cache, [1, 2])
    cache.unlock(first)
    assert lock_refs(cache, [1, 2], SWA) == [1, 1]
    cache.unlock(second)
    assert lock_refs(cache, [1, 2], SWA) == [0, 0]


def test_unlock_window_frees_window_and_state_only() -> None:
    """An early release unlocks window data and mamba state, and keeps full data locked."""
    cache, _ = new_cache(BOTH)
    put(cache, [1, 2, 3, 4])
    receipt = lock(cache, [1, 2, 3, 4])
    cache.unlock_window(receipt)
    assert lock_refs(cache, [1, 2, 3, 4], FULL) == [1] * 4
    assert lock_refs(cache, [1, 2, 3, 4], SWA) == [0] * 4
    assert lock_refs(cache, [1, 2, 3, 4], MAMBA) == [0] * 4
    assert shown(cache, [1, 2, 3, 4], SWA) == "####"
    assert cache.evict(ALL).freed == Counts(0, 4, 1)


def test_unlock_after_an_early_release_gives_back_the_rest() -> None:
    """The release after an early one unlocks full data, and takes no other lock's window refs."""
    cache, _ = new_cache(BOTH)
    put(cache, [1, 2, 3, 4])
    early, other = lock(cache, [1, 2, 3, 4]), lock(cache, [1, 2, 3, 4])
    cache.unlock_window(early)
    cache.unlock_window(early)
    cache.unlock(early)
    assert lock_refs(cache, [1, 2, 3, 4], FULL) == [1] * 4
    assert lock_refs(cache, [1, 2, 3, 4], SWA) == [0, 0, 1, 1]
    assert lock_refs(cache, [1, 2, 3, 4], MAMBA) == [0, 0, 0, 1]
    with refused(cache, ReceiptSpent):
        cache.unlock_window(early)
    cache.unlock(other)
    assert cache.evict(ALL).freed == Counts(4, 4, 1)


def test_unlock_twice_is_refused() -> None:
    """A second release of a receipt is refused."""
    cache, _ = new_cache(WINDOW)
    put(cache, [1, 2])
    first, second = lock(cache, [1, 2]), lock(cache, [1, 2])
    cache.unlock(first)
    with refused(cache, ReceiptSpent):
        cache.unlock(first)
    cache.unlock(second)


def test_unlock_of_a_receipt_that_was_never_given_is_refused() -> None:
    """A made-up receipt, or that of a copy in flight, is refused."""
    cache, _ = new_cache(HOST)
    put(cache, [1, 2])
    (held,) = cache.snapshot().holds
    assert held.transfer_id is not None
    receipt = lock(cache, [1, 2])
    key = prompt(cache, [1, 2])
    made_up = (
        Receipt(held.receipt_id, key),
        Receipt(receipt.receipt_id + 1000, key),
        Receipt(receipt.receipt_id, key.prefix(1)),
    )
    for each in made_up:
        with refused(cache, ReceiptSpent):
            cache.unlock(each)
        with refused(cache, ReceiptSpent):
            cache.unlock_window(each)
    cache.unlock(receipt)


def test_lock_of_the_empty_key_holds_nothing() -> None:
    """The empty prefix can be locked, and its lock holds no data."""
    cache, _ = new_cache(BOTH)
    put(cache, [1, 2])
    receipt = cache.lock(Key(()))
    assert cache.evict(ALL).freed == Counts(2, 2, 1)
    with refused(cache, CacheBusy):
        cache.reset()
    cache.unlock(receipt)
    cache.reset()


def test_lock_changes_no_recency() -> None:
    """A lock does not change the LRU order."""
    cache, _ = new_cache(WINDOW)
    put(cache, [1, 2])
    put(cache, [3, 4])
    cache.unlock(lock(cache, [1, 2]))
    cache.evict(Counts(full=1))
    assert (shown(cache, [1, 2]), shown(cache, [3, 4])) == ("..", "##")


def test_lock_of_host_data_survives_its_load() -> None:
    """Data on the host that is locked stays locked when it is loaded, and has its bytes."""
    cache, _ = new_cache(HOST)
    put(cache, [1, 2, 3, 4])
    cache.flush()
    cache.evict(Counts(full=4))
    receipt = lock(cache, [1, 2, 3, 4])
    cache.load_back(prompt(cache, [1, 2, 3, 4]))
    assert lock_refs(cache, [1, 2, 3, 4], FULL) == [2] * 4
    cache.flush()
    assert lock_refs(cache, [1, 2, 3, 4], FULL) == [1] * 4
    assert lock_refs(cache, [1, 2, 3, 4], SWA) == [0, 0, 1, 1]
    assert_right_bytes(cache, [1, 2, 3, 4])
    cache.unlock(receipt)
    assert not any(lock_refs(cache, [1, 2, 3, 4], FULL))
