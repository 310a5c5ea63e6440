"""Locks on the plain cache: the data that a receipt holds, and what its release unlocks."""

from __future__ import annotations

import pytest
from attrs import evolve

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import CacheBusy, ReceiptSpent
from kvcanon.spec.types import FULL, MAMBA, SWA, Counts, Key
from scenes import plain, refused

WINDOW = CacheConfig(window_tokens=2, device_slots=Counts(16, 16))
BOTH = evolve(WINDOW, mamba=True, device_slots=Counts(16, 16, 4))
HOST = evolve(WINDOW, host_slots=Counts(16, 16), write_policy="write_through")
ALL = Counts(16, 16, 16)


def test_lock_covers_the_path_the_window_and_the_end_state() -> None:
    """A lock holds the whole prefix, exactly its window, and the mamba state at its end."""
    s = plain(BOTH, "put 12; put 123456; lock 123456")
    assert s.refs("123456", FULL, SWA, MAMBA) == "111111 000011 000001"


@pytest.mark.parametrize(
    ("page_size", "window_tokens", "held_pages"),
    [(1, 1, 1), (1, 3, 3), (4, 1, 1), (4, 4, 1), (4, 5, 2), (4, 40, 6)],
)
def test_lock_holds_exactly_the_pages_that_cover_its_window(
    page_size: int, window_tokens: int, held_pages: int
) -> None:
    """A lock on a long leaf pins exactly the pages that cover the window."""
    s = plain(CacheConfig(page_size=page_size, window_tokens=window_tokens))
    tokens = list(range(6 * page_size))
    s.put(tokens)
    s.lock(tokens)
    assert s.refs(tokens, SWA) == "0" * (6 - held_pages) + "1" * held_pages
    assert s.evict(swa=6) == Counts(swa=6 - held_pages)


def test_lock_whose_window_begins_inside_a_node_cuts_it() -> None:
    """A node inside of which the window begins is cut there, and its lower part is pinned."""
    s = plain(evolve(WINDOW, window_tokens=3), "put 012345")
    assert s.ends("012345") == [3, 6]
    s.lock("0123")
    assert s.ends("012345") == [1, 3, 4, 6]
    assert s.refs("012345", SWA, FULL) == "011100 111100"


def test_lock_inside_a_node_cuts_it() -> None:
    """A lock of a part of a node cuts it and holds that part only."""
    s = plain(evolve(WINDOW, window_tokens=None), "put 1234; lock 12")
    assert s.ends("1234") == [2, 4]
    assert s.refs("1234", FULL) == "1100"
    assert s.cache.evict(ALL).freed == Counts(full=2)


def test_locked_data_stays_on_both_media() -> None:
    """Locked data stays on the device, and its host copy stays, too."""
    s = plain(HOST, "put 1234; flush")
    on_device = s.lock("1234")
    assert s.cache.evict(ALL).freed == Counts(swa=2)
    assert s.cache.evict_host(ALL).freed == Counts(swa=2)
    s.cache.unlock(on_device)
    s.cache.evict(ALL)
    on_host = s.lock("1234")
    assert s.cache.evict_host(ALL).freed == Counts()
    s.cache.unlock(on_host)
    assert s.cache.evict_host(ALL).freed == Counts(4, 2)


def test_two_holders_each_release_their_own() -> None:
    """After the first of two releases the data is still locked."""
    s = plain(BOTH, "put 1234")
    first, second = s.lock("1234"), s.lock("1234")
    s.cache.unlock(first)
    assert s.refs("1234", FULL, SWA) == "1111 0011"
    assert s.cache.evict(ALL).freed == Counts(swa=2)
    s.cache.unlock(second)
    assert s.cache.evict(ALL).freed == Counts(4, 2, 1)


def test_unlock_after_cuts_and_longer_locks_releases_its_own_pages() -> None:
    """A release takes no lock refs of a longer lock that came later."""
    s = plain(BOTH, "put 1234")
    short = s.lock("1234")
    s.play("put 1239; put 12345")
    long = s.lock("12345")
    assert s.refs("12345", SWA) == "00121"
    s.cache.unlock(short)
    assert s.refs("12345", SWA, FULL, MAMBA) == "00011 11111 00001"
    s.cache.unlock(long)
    assert s.refs("12345", FULL) == "00000"


def test_unlock_after_its_window_was_healed_leaves_the_second_holder() -> None:
    """A lock on a tombstone takes no lock refs of another lock after the tombstone is healed."""
    s = plain(WINDOW, "put 12; put 1234; evict swa=2")
    first = s.lock("12")
    s.put("1234", start=0)
    second = s.lock("12")
    s.cache.unlock(first)
    assert s.refs("12", SWA) == "11"
    s.cache.unlock(second)
    assert s.refs("12", SWA) == "00"


def test_unlock_window_frees_window_and_state_only() -> None:
    """An early release unlocks window data and mamba state, and keeps full data locked."""
    s = plain(BOTH, "put 1234")
    s.cache.unlock_window(s.lock("1234"))
    assert s.refs("1234", FULL, SWA, MAMBA) == "1111 0000 0000"
    assert s.see("1234", SWA) == "####"
    assert s.cache.evict(ALL).freed == Counts(0, 4, 1)


def test_unlock_after_an_early_release_gives_back_the_rest() -> None:
    """The release after an early one unlocks full data, and takes no other lock's window refs."""
    s = plain(BOTH, "put 1234")
    early, other = s.lock("1234"), s.lock("1234")
    s.cache.unlock_window(early)
    s.cache.unlock_window(early)
    s.cache.unlock(early)
    assert s.refs("1234", FULL, SWA, MAMBA) == "1111 0011 0001"
    with refused(s.cache, ReceiptSpent):
        s.cache.unlock_window(early)
    s.cache.unlock(other)
    assert s.cache.evict(ALL).freed == Counts(4, 4, 1)


def test_lock_of_the_empty_key_holds_nothing() -> None:
    """The empty prefix can be locked, and its lock holds no data."""
    s = plain(BOTH, "put 12")
    receipt = s.cache.lock(Key(()))
    assert s.cache.evict(ALL).freed == Counts(2, 2, 1)
    with refused(s.cache, CacheBusy):
        s.cache.reset()
    s.cache.unlock(receipt)
    s.cache.reset()


def test_lock_changes_no_recency() -> None:
    """A lock does not change the LRU order."""
    s = plain(WINDOW, "put 12; put 34")
    s.cache.unlock(s.lock("12"))
    s.evict(full=1)
    assert (s.see("12", FULL), s.see("34", FULL)) == ("..", "##")


def test_lock_of_host_data_survives_its_load() -> None:
    """Data on the host that is locked stays locked when it is loaded, and has its bytes."""
    s = plain(HOST, "put 1234; flush; evict full=4")
    receipt = s.lock("1234")
    s.load("1234")
    assert s.refs("1234", FULL) == "2222"
    s.cache.flush()
    assert s.refs("1234", FULL, SWA) == "1111 0011"
    s.check_bytes("1234")
    s.cache.unlock(receipt)
    assert s.refs("1234", FULL) == "0000"
