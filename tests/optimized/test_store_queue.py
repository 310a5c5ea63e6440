"""The queue of a store: over the disk tier, any store of pages, and one that waits or fails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fast.slow_store import FIRST_REST_SECONDS, Clock, Slow, over_slow
from fast.stores import PAGE_BYTES, PAGE_SIZE, Server, bytes_of, prompt_of, server_over, wait_until
from kvcanon.disk import DiskIdentity, DiskStore
from kvcanon.optimized.page_orders import PageOrder
from kvcanon.optimized.store_carriers import ProvedCarrier, SealedCarrier
from kvcanon.optimized.store_queue import ThreadedQueue
from kvcanon.optimized.store_stats import StoreCallStats
from kvcanon.optimized.store_tier import StoreTier
from kvcanon.reference.stores.memory_store import MemoryServer, MemoryStore
from kvcanon.spec.errors import CacheUnusable
from kvcanon.spec.operations import HostInserted, HostPayload
from kvcanon.spec.stores.pages import StoreIdentity
from kvcanon.spec.tier import OrderKind
from kvcanon.spec.types import CPU, EXTERNAL, FULL

pytestmark = pytest.mark.usefixtures("no_thread_is_left")
IDENTITY = DiskIdentity({"model": "small", "page_size": str(PAGE_SIZE)})


@contextmanager
def on_disk(folder: Path) -> Iterator[Server]:
    """A server that starts over what is in a folder."""
    store = DiskStore.open(folder, IDENTITY)
    with (
        ThreadedQueue(ProvedCarrier(store), batch_bytes=3 * PAGE_BYTES, clock=Clock()) as queue,
        server_over(queue) as server,
    ):
        yield server
    store.close()


def test_a_server_finds_its_pages_after_two_restarts(tmp_path: Path) -> None:
    """What was written is a hit with its right bytes after each restart; the rest is none."""
    first, second, unwritten = prompt_of(1, 8), prompt_of(2, 5), prompt_of(3, 4)
    with on_disk(tmp_path) as server:
        server.compute(first)
        assert server.write(first) == 8
        server.empty()
        server.compute(second)
        assert server.write(second) == 5
        server.empty()
        server.compute(unwritten)
    for _ in range(2):
        with on_disk(tmp_path) as server:
            for prompt, pages in ((first, 8), (second, 5)):
                assert server.cache.match(prompt).prefix_pages == 0
                assert server.fetch(prompt) == HostInserted(pages, 0, 0, 0)
                server.require_bytes(prompt, pages)
                server.empty()
            assert server.fetch(unwritten) == HostInserted(0, 0, 0, 0)


def test_a_longer_prompt_writes_and_fetches_what_is_missing(tmp_path: Path) -> None:
    """A turn of a conversation writes only its own pages, and a fetch begins after the host's."""
    shorter, longer = prompt_of(1, 3), prompt_of(1, 8)
    with on_disk(tmp_path) as server:
        server.compute(shorter)
        assert server.write(shorter) == 3
        server.compute(longer)
        ordered = server.cache.store(longer)
        assert (ordered.start_pages, ordered.pages) == (3, 5)
        assert ordered.order_id is not None
        server.wait_for_store(ordered.order_id)
        assert server.cache.store(longer).order_id is None
    with on_disk(tmp_path) as server:
        server.compute(shorter)
        assert server.fetch(longer) == HostInserted(5, 0, 0, 0)
        server.require_bytes(longer, 8)


def test_a_prefetch_ends_before_a_page_that_the_disk_has_damaged(tmp_path: Path) -> None:
    """A flipped byte on the disk is a miss, and what comes after it is computed."""
    prompt = prompt_of(1, 6)
    with on_disk(tmp_path) as server:
        server.compute(prompt)
        server.write(prompt)
    wanted, slabs = bytes_of(prompt, 4), [each for each in tmp_path.rglob("*") if each.is_file()]
    damaged = 0
    for path in slabs:
        content = bytearray(path.read_bytes())
        at = content.find(wanted)
        if at >= 0:
            content[at] ^= 1
            path.write_bytes(content)
            damaged += 1
    assert damaged == 1
    with on_disk(tmp_path) as server:
        assert server.fetch(prompt) == HostInserted(4, 0, 0, 0)
        server.require_bytes(prompt, 4)


def test_any_store_of_pages_is_a_store() -> None:
    """A store that knows pages by their tokens keeps sealed records, for a later server, too."""
    memory, prompt = MemoryServer(), prompt_of(7, 6)

    def carrier() -> SealedCarrier:
        return SealedCarrier(MemoryStore(memory, StoreIdentity(page_size=PAGE_SIZE)))

    with ThreadedQueue(carrier(), EXTERNAL) as queue, server_over(queue) as server:
        server.compute(prompt)
        assert server.write(prompt) == 6
        assert {event.medium for event in server.cache.tree.stored()} == {"EXTERNAL"}
    with (
        ThreadedQueue(carrier(), EXTERNAL, batch_bytes=2 * PAGE_BYTES) as queue,
        server_over(queue) as server,
    ):
        assert server.fetch(prompt) == HostInserted(6, 0, 0, 0)
        server.require_bytes(prompt, 6)


def host_pool(server: Server) -> tuple[int, int]:
    """How many host slots are free, and how many are held."""
    stats = server.cache.stats().pools[FULL, CPU]
    return stats.free_slots, stats.held_slots


def calls_of(server: Server, kind: OrderKind) -> StoreCallStats:
    """The calls of a kind that a server made to its store."""
    stats = server.cache.stats().store
    assert stats is not None
    return stats.calls[kind]


def tier_of(server: Server) -> StoreTier:
    """The open orders of a server."""
    assert server.cache.store_tier is not None
    return server.cache.store_tier


def test_a_slot_that_the_store_reads_is_given_to_nobody() -> None:
    """Pages that leave the host while they are written come into the store with their bytes.

    Those that the store reads now keep their slots until then; the others are copied when their
    slots are overwritten.
    """
    prompt = prompt_of(1, 8)
    with over_slow() as (server, slow):
        server.compute(prompt)
        ordered = server.cache.store(prompt)
        assert ordered.order_id is not None
        wait_until(lambda: slow.begun == 1)
        server.empty()
        # Two batches of two pages were handed over.
        assert host_pool(server) == (12, 4)
        for number in (2, 3):
            server.compute(prompt_of(number, 6))
            server.empty()
        server.cache.tree.check()
        slow.go_on()
        assert server.wait_for_store(ordered.order_id) == 8
        assert host_pool(server) == (16, 0)
        server.cache.tree.check()
        assert server.fetch(prompt) == HostInserted(8, 0, 0, 0)
        server.require_bytes(prompt, 8)


def test_a_free_slot_that_the_store_reads_is_given_to_nobody() -> None:
    """A page may have left the host before the store begins to read it, with its slot still free.

    From then on nobody gets the slot, and so the store reads the right bytes.
    """
    prompt = prompt_of(1, 8)
    with over_slow() as (server, slow):
        server.compute(prompt)
        ordered = server.cache.store(prompt)
        assert ordered.order_id is not None
        server.empty()
        slow.go_on(2)
        wait_until(lambda: bool(server.cache.poll_store()) or slow.begun > 2)
        wait_until(lambda: not server.cache.poll_store() and host_pool(server) == (12, 4))
        reserved, _, _ = server.cache.reserve_host(12)
        for slot in reserved:
            server.pools.host_page(FULL, int(slot))[:] = bytes(PAGE_BYTES)
        server.cache.abort_host(reserved)
        slow.go_on()
        assert server.wait_for_store(ordered.order_id) == 8
        server.cache.tree.check()
        assert host_pool(server) == (16, 0)
        assert server.fetch(prompt) == HostInserted(8, 0, 0, 0)
        server.require_bytes(prompt, 8)


def test_a_reserved_slot_does_not_change_what_is_written() -> None:
    """Slots that a client reserves and fills may be those of pages that are still to be written."""
    prompt = prompt_of(1, 8)
    with over_slow() as (server, slow):
        server.compute(prompt)
        ordered = server.cache.store(prompt)
        assert ordered.order_id is not None
        server.empty()
        reserved, _, _ = server.cache.reserve_host(12)
        for slot in reserved:
            server.pools.host_page(FULL, int(slot))[:] = bytes(PAGE_BYTES)
        server.cache.abort_host(reserved)
        slow.go_on()
        assert server.wait_for_store(ordered.order_id) == 8
        assert server.fetch(prompt) == HostInserted(8, 0, 0, 0)
        server.require_bytes(prompt, 8)


def test_a_store_that_stands_still_is_passed_over() -> None:
    """Beyond what may wait, writes end at once; they are given again once the store goes on."""
    prompts = [prompt_of(at, 4) for at in range(3)]
    with over_slow(waiting=3) as (server, slow):
        for prompt in prompts:
            server.compute(prompt)
            server.cache.store(prompt)
            server.cache.evict(4)
        ended = [each for each in server.cache.poll_store() if each.ended]
        assert [each.pages for each in ended] == [0]
        assert calls_of(server, OrderKind.WRITE).passed_over_pages == 4
        slow.go_on()
        wait_until(lambda: not server.cache.poll_store() and not tier_of(server).orders)
        assert server.write(prompts[2]) == 4


def test_a_write_outlives_a_cache_that_has_to_be_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache that is unusable until a reset takes nothing from the store, and gives no slot away.

    After the reset the write ends, its slots come free, and the store is used on.
    """
    prompt, other = prompt_of(1, 8), prompt_of(2, 6)

    def fail(*_: object) -> None:
        raise OSError("no memory")

    with over_slow() as (server, slow):
        server.compute(prompt)
        ordered = server.cache.store(prompt)
        assert ordered.order_id is not None
        wait_until(lambda: slow.begun == 1)
        with monkeypatch.context() as patched:
            patched.setattr(server.pools, "write_host", fail)
            with pytest.raises(OSError, match="no memory"):
                server.cache.insert_host(other[:4], 0, HostPayload((bytes(PAGE_BYTES),)))
        slow.go_on(1)
        wait_until(lambda: slow.begun == 2)
        for _ in range(2):
            with pytest.raises(CacheUnusable):
                server.cache.poll_store()
        server.cache.reset(keep_store=True)
        # What is read now is nobody's.
        assert host_pool(server) == (12, 4)
        server.cache.tree.check()
        slow.go_on()
        server.wait_for_store(ordered.order_id)
        assert host_pool(server) == (16, 0)
        server.cache.tree.check()
        server.compute(other)
        assert server.write(other) == 6


def test_only_writes_that_lose_a_slot_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is copied when slots are overwritten costs as much however many writes are open."""
    looked_at: list[int] = []
    keep = PageOrder.keep

    def counted(order: PageOrder, page: int) -> None:
        looked_at.append(order.order_id)
        keep(order, page)

    monkeypatch.setattr(PageOrder, "keep", counted)
    prompts = [prompt_of(at, 4) for at in range(4)]
    with over_slow() as (server, _):
        for prompt in prompts:
            server.compute(prompt)
            server.cache.store(prompt)
            server.cache.evict(4)
        server.empty()
        server.compute(prompt_of(9, 2))
    assert len(looked_at) == 2


def test_a_failed_batch_ends_its_order() -> None:
    """A store that raises has written the pages before the batch; it is used again after a rest."""
    prompt, other, clock = prompt_of(1, 8), prompt_of(2, 6), Clock()
    with over_slow(clock=clock) as (server, slow):
        slow.fails_at = 5
        slow.go_on()
        server.compute(prompt)
        assert server.write(prompt) == 4
        assert [event.pages for event in server.cache.tree.stored()] == [4]
        slow.fails_at = None
        server.empty()
        server.compute(other)
        clock.now += FIRST_REST_SECONDS
        assert server.write(other) == 6


def test_a_given_up_prefetch_frees_its_slots_only_when_the_store_is_done() -> None:
    """A late read still writes to the slots of its batches, so nobody else gets these before."""
    prompt = prompt_of(1, 8)
    with over_slow() as (server, slow):
        slow.go_on(4)
        server.compute(prompt)
        server.write(prompt)
        server.empty()
        ordered = server.cache.prefetch(prompt)
        assert ordered.order_id is not None
        wait_until(lambda: slow.begun == 5)
        assert server.cache.end_prefetch(ordered.order_id) == HostInserted(0, 0, 0, 0)
        server.cache.poll_store()
        assert host_pool(server) == (8, 8)
        slow.go_on()
        wait_until(lambda: not server.cache.poll_store() and host_pool(server) == (16, 0))
        assert server.cache.match(prompt).prefix_pages == 0


def test_best_effort_takes_what_has_arrived() -> None:
    """A prefetch that is ended in the middle places the pages of the batches that have arrived."""
    prompt = prompt_of(1, 8)
    with over_slow() as (server, slow):
        slow.go_on(4)
        server.compute(prompt)
        server.write(prompt)
        server.empty()
        ordered = server.cache.prefetch(prompt)
        assert ordered.order_id is not None
        slow.go_on(2)
        wait_until(lambda: any(each.pages == 4 for each in server.cache.poll_store()))
        assert server.cache.end_prefetch(ordered.order_id) == HostInserted(4, 0, 0, 0)
        server.require_bytes(prompt, 4)


def test_a_closed_queue_ends_what_it_has() -> None:
    """After a close the cache finds that each order has ended, and its slots are free."""
    prompt, slow = prompt_of(1, 8), Slow()
    queue = ThreadedQueue(slow, batch_bytes=PAGE_BYTES)
    with server_over(queue) as server:
        server.compute(prompt)
        server.cache.store(prompt)
        early = server.cache.prefetch(prompt_of(2, 4)).order_id
        slow.go_on()
        queue.close()
        late = server.cache.prefetch(prompt_of(3, 4)).order_id
        assert len({each.order_id for each in server.cache.poll_store() if each.ended}) == 3
        for prefetch in (early, late):
            assert prefetch is not None
            server.cache.end_prefetch(prefetch)
        assert host_pool(server) == (8, 0)
