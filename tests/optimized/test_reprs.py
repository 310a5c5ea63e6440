"""What a debugger, a log line and a failed assertion show of results and caches."""

from __future__ import annotations

import numpy as np
import pytest
from attrs import evolve

from fast.caches import hybrid, insert, new_cache, tiered
from kvcanon.optimized import PrefixCache
from kvcanon.reference.engine import ManualEngine
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import CacheUnusable
from kvcanon.spec.operations import HostPayload
from kvcanon.spec.transfer import TransferOrder
from kvcanon.spec.types import Counts, WritePolicy

TOKENS = np.arange(20, dtype=np.uint32)
CONFIG = hybrid(Counts(40, 30, 4), Counts(20, 20, 2), page_size=2, window_tokens=4)
PLAIN = CacheConfig(device_slots=Counts(full=9))


@pytest.fixture
def cache() -> PrefixCache:
    """A cache with all components and a host tier."""
    return new_cache(CONFIG)


def test_an_insert_shows_what_became_of_its_slots(cache: PrefixCache) -> None:
    """Ids are shown where there are some, and declined pages where some were declined."""
    done = cache.insert(TOKENS, 0, *cache.allocate(10, 10, 1))
    first, second = done.backups
    assert repr(done) == (
        "Inserted(present_pages=0, adopted=[10, 10, 1], freed=[0, 0, 0], "
        f"backups=({first}, {second}))"
    )
    again = cache.insert(TOKENS[:4], 0, *cache.allocate(2, 2))
    assert repr(again) == "Inserted(present_pages=2, adopted=[0, 0, 0], freed=[2, 2, 0])"
    one = cache.insert(TOKENS[:2] + 90, 0, *cache.allocate(1, 1))
    assert repr(one).endswith(f", freed=[0, 0, 0], backups=({one.backups[0]},))")
    small = new_cache(evolve(PLAIN, write_policy=WritePolicy.WRITE_THROUGH))
    assert repr(small.insert(TOKENS[:3], 0, small.allocate(3)[0])) == (
        "Inserted(present_pages=0, adopted=[3, 0, 0], freed=[0, 0, 0], backup_declined_pages=3)"
    )


def test_a_match_shows_its_slots_and_what_is_pending(cache: PrefixCache) -> None:
    """Up to eight slots are all shown; of more the first and last three, and their number."""
    assert repr(cache.match(TOKENS)) == "Matched(prefix_pages=0, device_pages=0)"
    insert(cache, TOKENS)
    assert repr(cache.match(TOKENS)) == (
        "Matched(prefix_pages=10, device_pages=10, full=[0 1 2 ... 7 8 9] of 10, "
        "swa=[0 1 2 ... 7 8 9] of 10, mamba=[0])"
    )
    insert(cache, TOKENS[:16] + 50)
    shown = repr(cache.match(TOKENS[:16] + 50))
    assert "full=[10 11 12 13 14 15 16 17], swa=[10 11 12 13 14 15 16 17], mamba=[1])" in shown
    cache.flush()
    assert repr(cache.host_slots(TOKENS)).startswith(
        "HostSlots(pages=10, full=[0 1 2 ... 7 8 9] of 10, "
    )
    cache.evict(40, 30, 4)
    loaded = cache.load_back(TOKENS)
    assert repr(loaded) == (
        f"LoadedBack(decision='enqueued', transfer_id={loaded.transfer_id}, loading=[10, 2, 1], "
        "evicted=[0, 0, 0], full=[0 1 2 ... 7 8 9] of 10, swa=[0 1], mamba=[0])"
    )
    assert repr(cache.match(TOKENS)) == (
        f"Matched(prefix_pages=10, device_pages=0, pending=({loaded.transfer_id},))"
    )
    assert repr(cache.load_back(TOKENS)) == (
        "LoadedBack(decision='nothing_to_load', loading=[0, 0, 0], evicted=[0, 0, 0])"
    )


def test_an_event_shows_what_happened() -> None:
    """An event of many pages is one short line, as any other."""
    cache = new_cache(PLAIN)
    insert(cache, TOKENS[:5])
    assert [repr(each) for each in cache.take_events()] == [
        "Event(kind='cleared', medium='GPU', namespace=0, pages=0)",
        "Event(kind='stored', medium='GPU', namespace=0, pages=5)",
    ]


def test_a_result_of_any_size_is_one_short_line() -> None:
    """Neither many slots nor many transfers make a long line."""
    slots = 1 << 16
    cache = new_cache(tiered(slots))
    many = np.arange(slots, dtype=np.uint32)
    for pages in range(1, 40):  # A node and a transfer each.
        insert(cache, many[:pages])
    insert(cache, many)
    cache.flush()
    cache.evict(slots)
    for pages in range(1, 41):
        cache.load_back(many[:pages])
    cache.load_back(many)
    shown = repr(cache.match(many))
    assert shown.endswith(") of 41)")
    cache.flush()
    shown += repr(cache.match(many)) + repr(cache.host_slots(many)) + repr(cache)
    assert "of 65536" in shown
    assert "\n" not in shown
    assert len(shown) < 600


def test_a_cache_shows_how_full_it_is(cache: PrefixCache) -> None:
    """The line has the free slots of each pool, and how many nodes, receipts and transfers.

    Debuggers and tracebacks may also show what a failed constructor leaves.
    """
    assert repr(cache) == (
        "<PrefixCache: page_size 2, free slots full 40 of 40, swa 30 of 30, mamba 4 of 4, "
        "host full 20 of 20, host swa 20 of 20, host mamba 2 of 2; "
        "0 nodes, 0 receipts, 0 transfers>"
    )
    cache.lock(TOKENS[:0])
    insert(cache, TOKENS)
    assert repr(cache) == (
        "<PrefixCache: page_size 2, free slots full 30 of 40, swa 20 of 30, mamba 3 of 4, "
        "host full 10 of 20, host swa 10 of 20, host mamba 1 of 2; "
        "2 nodes, 1 receipt, 2 transfers>"
    )

    class ShortName(PrefixCache):
        pass

    assert repr(ShortName(PLAIN)) == (
        "<ShortName: page_size 1, free slots full 9 of 9; 0 nodes, 0 receipts, 0 transfers>"
    )
    assert repr(PrefixCache.__new__(PrefixCache)) == "<PrefixCache: not made>"


def test_a_cache_that_refuses_calls_says_so(
    cache: PrefixCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closed, detached and broken caches show themselves, and why they refuse."""
    cache.detach(contents_kept=True)
    assert repr(cache).endswith("0 transfers; detached>")
    cache.attach()
    cache.close()
    assert repr(cache).endswith("0 transfers; closed>")
    broken = new_cache(CONFIG)
    assert broken.pools is not None
    monkeypatch.setattr(broken.pools, "write_host", None)
    with pytest.raises(TypeError):  # Nobody may read what was not written.
        broken.insert_host(TOKENS[:2], 0, HostPayload((b"a",)))
    with pytest.raises(CacheUnusable):
        broken.match(TOKENS)
    assert "; refuses calls: an error broke off an earlier call in the middle>" in repr(broken)


def test_a_cache_shows_itself_in_the_middle_of_a_call() -> None:
    """The engine may log the cache that calls it."""

    class Logging(ManualEngine):
        cache: PrefixCache
        lines: list[str]

        def submit(self, order: TransferOrder) -> None:
            self.lines.append(repr(self.cache))
            super().submit(order)

    engine = Logging()
    engine.lines = []
    engine.cache = new_cache(CONFIG, engine)
    insert(engine.cache, TOKENS)
    assert [line.count("1 transfer>") for line in engine.lines] == [1, 0]
