"""Waiting for a transfer, closing a cache, and what is wrong after new weights."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from fast.caches import CALLS, PROMPT, insert, new_cache, tiered, unchanged
from kvcanon.optimized import PrefixCache
from kvcanon.optimized.layout import PageLayout
from kvcanon.optimized.pools import Pools
from kvcanon.optimized.threaded_engine import ThreadedEngine
from kvcanon.reference.engine import ManualEngine
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument, CacheBusy
from kvcanon.spec.transfer import TransferStatus
from kvcanon.spec.types import CPU, DEFAULT_NAMESPACE, FULL, Counts, Namespace

CONFIG = tiered(8)


def own_cache(engine: ThreadedEngine | None = None) -> PrefixCache:
    """A cache that makes its engine, or has this one."""
    return PrefixCache(CONFIG, Pools(CONFIG, {FULL: PageLayout(1, (1,))}), engine)


def test_wait_lets_the_next_poll_settle() -> None:
    """After a wait the transfer has ended, and the next poll reports it."""
    with own_cache() as cache:
        (backup,) = insert(cache, PROMPT)
        cache.wait(backup)
        assert cache.poll() == [(backup, TransferStatus.DONE)]
        cache.wait(backup)
        cache.wait(10**6)
    with pytest.raises(BadArgument, match="engine: is needed to load anything"):
        PrefixCache(CacheConfig(device_slots=Counts(full=4))).wait(1)


@pytest.mark.usefixtures("no_thread_is_left")
def test_the_end_of_the_block_closes_the_cache() -> None:
    """Copies in flight are done, and the threads that the cache started end; others go on."""
    with own_cache() as cache:
        insert(cache, PROMPT)
    stats = cache.stats()
    assert (stats.transfers_in_flight, stats.transfers_done) == (0, 1)
    cache.close()
    cache.close()
    with ThreadedEngine() as engine:
        for _ in range(2):
            with own_cache(engine) as cache:
                insert(cache, PROMPT)
                assert cache.flush()


@pytest.mark.parametrize("name", CALLS)
def test_a_closed_cache_refuses_every_call(name: str) -> None:
    """The refusal is one line that says what to do, and nothing changes."""
    cache = new_cache(CONFIG)
    cache.close()
    with unchanged(cache, BadArgument, "cache: is closed; make a new one"):
        CALLS[name](cache)


def test_every_call_is_tried() -> None:
    """The calls above are all that a cache has, but `close` and what only looks."""
    looks = {"close", "stats", "namespace", "namespace_of", "free_slot_counts"}
    public = {name for name in dir(PrefixCache) if not name.startswith("_")}
    assert {each for each in public if callable(getattr(PrefixCache, each))} - looks == set(CALLS)


# New weights


def test_new_weights_invalidate_both_tiers(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing that was cached is matched any more, on no medium, and the log has the reason."""
    with own_cache() as cache, caplog.at_level(logging.INFO):
        (backup,) = insert(cache, PROMPT)
        held, _, _ = cache.allocate(2)
        reserved, _, _ = cache.reserve_host(1)
        cache.take_events()
        assert cache.invalidate("weights of step 41") == [(backup, TransferStatus.DONE)]
        assert cache.match(PROMPT).prefix_pages == 0
        assert "1 nodes were forgotten: weights of step 41" in caplog.text
        assert [event.kind for event in cache.take_events()] == ["stored", "cleared"]
        assert cache.free_slot_counts() == (6, 0, 0)
        cache.free(held)
        assert cache.stats().pools[FULL, CPU].held_slots == len(reserved)


def test_requests_are_to_end_before_new_weights() -> None:
    """While a receipt is open the tree is in use, and the call is refused."""
    cache = new_cache(CONFIG, ManualEngine())
    insert(cache, PROMPT)
    receipt = cache.lock(PROMPT)
    with unchanged(cache, CacheBusy, "1 receipts are open"):
        cache.invalidate("weights of step 41")
    cache.unlock(receipt)
    cache.invalidate("weights of step 41")
    assert cache.match(PROMPT).prefix_pages == 0


def test_requests_may_go_on_under_old_weights() -> None:
    """A namespace for each version of the weights parts them, while requests run."""
    with own_cache() as cache:
        old, new = (cache.namespace(Namespace(extra_key=f"weights {at}")) for at in (40, 41))
        insert(cache, PROMPT, namespace=old)
        receipt = cache.lock(PROMPT, old)
        assert cache.match(PROMPT, new).prefix_pages == 0
        assert cache.match(PROMPT, old).device_pages == 4
        assert cache.match(PROMPT, cache.namespace(DEFAULT_NAMESPACE)).prefix_pages == 0
        cache.unlock(receipt)
        cache.flush()
        # Nobody matches the old pages any more, so that they are the first to leave.
        insert(cache, PROMPT, namespace=new)
        assert cache.evict(4) == [4, 0, 0]
        assert cache.match(PROMPT, new).device_pages == 4


# Rejected tokens


def test_slots_of_rejected_tokens_are_used_again_or_freed() -> None:
    """Only whole pages of accepted tokens are inserted; slots behind them are the request's."""
    cache = PrefixCache(CacheConfig(page_size=4, device_slots=Counts(full=8)))
    prompt = np.arange(8, dtype=np.uint32)
    slots = cache.allocate(5)[0].tolist()
    # Ten tokens were drafted behind the prompt, in three pages; three of them are accepted.
    accepted = np.append(prompt, [20, 21, 22]).astype(np.uint32)
    whole = len(accepted) // 4
    used = -(-len(accepted) // 4)
    cache.free(np.array(slots[used:], np.int32))
    assert cache.free_slot_counts() == (5, 0, 0)
    cache.insert(accepted, 0, np.array(slots[:whole], np.int32))
    assert cache.match(accepted).device_pages == 2
    # The third page is overwritten from its fourth token on, and inserted once it is whole.
    finished = np.append(accepted, [30]).astype(np.uint32)
    cache.insert(finished, whole, np.array(slots[whole:used], np.int32))
    assert cache.match(finished).full.tolist() == slots[:3]
    drafted = np.append(prompt, [20, 21, 22, 23]).astype(np.uint32)
    assert cache.match(drafted).device_pages == 2
