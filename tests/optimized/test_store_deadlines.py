"""Deadlines of calls to a store, and the rests of a store that does not answer."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from fast.copies import PATIENCE_S
from fast.slow_store import (
    DEADLINE_SECONDS,
    FIRST_REST_SECONDS,
    LONGEST_REST_SECONDS,
    Clock,
    Slow,
    over_slow,
)
from fast.stores import PAGE_BYTES, Server, prompt_of, server_over, wait_until
from kvcanon.disk import DiskIdentity, DiskStore, PageGet
from kvcanon.optimized.metrics import CacheCollector
from kvcanon.optimized.store_carriers import ProvedCarrier
from kvcanon.optimized.store_queue import MOST_LATE, ThreadedQueue
from kvcanon.optimized.store_stats import StoreStats
from kvcanon.spec.operations import HostInserted
from kvcanon.spec.tier import OrderKind
from kvcanon.spec.types import CPU, FULL
from kvcanon.store_breaker import StoreBreaker

pytestmark = pytest.mark.usefixtures("no_thread_is_left")
PROMPT, OTHER = prompt_of(1, 8), prompt_of(2, 6)
NOTHING = HostInserted(0, 0, 0, 0)


def store_of(server: Server) -> StoreStats:
    """What a server's store did, and how it is."""
    stats = server.cache.stats().store
    assert stats is not None
    return stats


def host_pool(server: Server) -> tuple[int, int]:
    """How many host slots are free, and how many are held."""
    stats = server.cache.stats().pools[FULL, CPU]
    return stats.free_slots, stats.held_slots


def ordered(server: Server, kind: OrderKind, prompt: object = PROMPT) -> int:
    """The id of an order that was given."""
    call = server.cache.store if kind is OrderKind.WRITE else server.cache.prefetch
    order_id = call(prompt).order_id  # type: ignore[arg-type]
    assert order_id is not None
    return order_id


def stored(server: Server, slow: Slow, prompt: object = PROMPT) -> None:
    """Write a prompt to the store, which then stops answering, and empty the cache."""
    slow.go_on()
    server.compute(prompt)  # type: ignore[arg-type]
    server.write(prompt)  # type: ignore[arg-type]
    server.empty()
    slow.stop()


def given_up(server: Server, slow: Slow, clock: Clock, kind: OrderKind) -> int:
    """Give an order, and let the deadline of its first call pass."""
    begun = slow.begun
    order_id = ordered(server, kind)
    wait_until(lambda: slow.begun > begun)
    clock.now += DEADLINE_SECONDS
    return order_id


@pytest.mark.parametrize("kind", OrderKind)
def test_an_order_ends_at_the_deadline_of_its_call(kind: OrderKind) -> None:
    """The poll that sees a call past its deadline ends the order, whatever the call does."""
    clock = Clock()
    with over_slow(clock=clock) as (server, slow):
        stored(server, slow)
        if kind is OrderKind.WRITE:
            server.compute(OTHER)
        prompt = OTHER if kind is OrderKind.WRITE else PROMPT
        begun = slow.begun
        order_id = ordered(server, kind, prompt)
        wait_until(lambda: slow.begun > begun)
        clock.now += DEADLINE_SECONDS - 0.1
        assert server.cache.poll_store() == ()
        clock.now += 0.1
        (progress,) = server.cache.poll_store()
        assert (progress.order_id, progress.pages, progress.ended) == (order_id, 0, True)
        assert store_of(server).calls[kind].given_up_calls == 1
        assert store_of(server).late_calls == 1


def test_a_late_read_writes_no_memory_with_a_new_owner() -> None:
    """The slots of a call that was given up stay held until it returns, and the others do not."""
    clock = Clock()
    with over_slow(clock=clock) as (server, slow):
        stored(server, slow)
        late = slow.may_go_on
        order_id = given_up(server, slow, clock, OrderKind.FETCH)
        (progress,) = server.cache.poll_store()
        assert progress.ended
        assert server.cache.end_prefetch(order_id) == NOTHING
        held = 16 - host_pool(server)[0]
        reserved, _, _ = server.cache.reserve_host(host_pool(server)[0])
        for slot in reserved:
            server.pools.host_page(FULL, int(slot))[:] = bytes(PAGE_BYTES)
        late.release()
        wait_until(lambda: not server.cache.poll_store() and store_of(server).late_calls == 0)
        for slot in reserved:
            assert bytes(server.pools.host_page(FULL, int(slot))) == bytes(PAGE_BYTES)
        assert (held, len(reserved)) == (2, 14)
        server.cache.abort_host(reserved)
        assert host_pool(server) == (16, 0)
        server.cache.tree.check()


def test_a_prefetch_may_be_ended_after_its_late_call_returned() -> None:
    """An engine that comes late finds its slots reserved, and gets them back once."""
    clock = Clock()
    with over_slow(clock=clock) as (server, slow):
        stored(server, slow)
        late = slow.may_go_on
        order_id = given_up(server, slow, clock, OrderKind.FETCH)
        server.cache.poll_store()
        late.release()
        wait_until(lambda: not server.cache.poll_store() and store_of(server).late_calls == 0)
        assert host_pool(server) == (8, 8)
        assert server.cache.end_prefetch(order_id) == NOTHING
        assert host_pool(server) == (16, 0)
        server.cache.tree.check()


def test_slots_come_free_on_all_ranks_in_the_same_poll() -> None:
    """A rank whose own call has returned keeps the slots as long as another rank's has not."""
    other_is_late = True
    asked: list[list[int]] = []

    def agree(ours: Sequence[int]) -> list[int]:
        asked.append(list(ours))
        # Copies between device and host are asked for, too, one number each.
        if len(ours) == 4 and other_is_late:
            return [0, *ours[1:3], min(ours[3], 8 - 3)]
        return list(ours)

    with over_slow(agree=agree) as (server, slow):
        slow.go_on()
        order_id = ordered(server, OrderKind.FETCH)
        wait_until(lambda: any(each.ended for each in server.cache.poll_store()))
        assert asked[-1] == [0, 1, 0, 8]
        assert server.cache.end_prefetch(order_id) == NOTHING
        assert host_pool(server) == (13, 3)
        server.cache.poll_store()
        assert host_pool(server) == (13, 3)
        other_is_late = False
        assert server.cache.poll_store() == ()
        assert host_pool(server) == (16, 0)
        calls = len(asked)
        server.cache.poll_store()
        assert len(asked) == calls


def test_a_late_write_reads_its_pages_as_they_were() -> None:
    """The slots of a write that was given up are given to nobody before it returns."""
    clock = Clock()
    with over_slow(clock=clock) as (server, slow):
        server.compute(PROMPT)
        late = slow.may_go_on
        given_up(server, slow, clock, OrderKind.WRITE)
        server.cache.poll_store()
        server.empty()
        reserved, _, _ = server.cache.reserve_host(host_pool(server)[0])
        for slot in reserved:
            server.pools.host_page(FULL, int(slot))[:] = bytes(PAGE_BYTES)
        late.release()
        wait_until(lambda: not server.cache.poll_store() and store_of(server).late_calls == 0)
        server.cache.abort_host(reserved)
        # Two batches of two pages were offered.
        assert len(reserved) == 16 - 4
        assert host_pool(server) == (16, 0)
        slow.go_on()
        clock.now += FIRST_REST_SECONDS
        assert server.fetch(PROMPT) == HostInserted(2, 0, 0, 0)
        server.require_bytes(PROMPT, 2)


def test_a_store_that_rests_is_asked_nothing() -> None:
    """Orders of both kinds end at once, and the cache goes on without a store."""
    clock = Clock()
    with over_slow(clock=clock) as (server, slow):
        stored(server, slow)
        waiting = ordered(server, OrderKind.FETCH, OTHER)
        wait_until(lambda: slow.begun == 5)
        behind = ordered(server, OrderKind.FETCH)
        clock.now += DEADLINE_SECONDS
        ended = {each.order_id for each in server.cache.poll_store() if each.ended}
        assert ended == {waiting, behind}
        for order_id in ended:
            server.cache.end_prefetch(order_id)
        begun = slow.begun
        assert server.fetch(PROMPT) == NOTHING
        server.compute(OTHER)
        assert server.write(OTHER) == 0
        assert slow.begun == begun
        stats = store_of(server)
        assert (stats.is_resting, stats.rests) == (True, 1)
        # Pages of the second call, of the order behind, and of the prefetch in the rest.
        assert stats.calls[OrderKind.FETCH].passed_over_pages == 4 + 8 + 8
        assert stats.calls[OrderKind.WRITE].passed_over_pages == 6
        server.require_bytes(OTHER, 6)


def test_writes_that_are_passed_over_wait_no_longer() -> None:
    """What waited behind a call without an answer is let go of, with the pages that it kept."""
    clock = Clock()
    with over_slow(clock=clock) as (server, slow):
        for prompt in (PROMPT, OTHER):
            server.compute(prompt)
            ordered(server, OrderKind.WRITE, prompt)
            server.cache.evict(8)
        wait_until(lambda: slow.begun == 1)
        assert store_of(server).waiting_pages == 8 - 4 + 6
        clock.now += DEADLINE_SECONDS
        assert len(server.cache.poll_store()) == 2
        assert store_of(server).waiting_pages == 0
        assert store_of(server).calls[OrderKind.WRITE].passed_over_pages == 6 + 6


@pytest.mark.parametrize("keep_store", [False, True])
def test_a_reset_gives_no_slot_of_a_late_call_away(keep_store: bool) -> None:
    """A cache that starts anew has all slots but those, until the call returns."""
    clock = Clock()
    with over_slow(clock=clock) as (server, slow):
        stored(server, slow)
        late = slow.may_go_on
        given_up(server, slow, clock, OrderKind.FETCH)
        server.cache.poll_store()
        server.cache.reset(keep_store=keep_store)
        server.cache.poll_store()
        assert host_pool(server) == (14, 2)
        late.release()
        wait_until(lambda: not server.cache.poll_store() and store_of(server).late_calls == 0)
        server.cache.poll_store()
        assert host_pool(server) == (16, 0)
        server.cache.tree.check()


def test_one_call_tries_a_store_after_its_rest() -> None:
    """While it is under way nothing else is asked; when it is answered, the store is used."""
    clock = Clock()
    with over_slow(clock=clock) as (server, slow):
        stored(server, slow)
        late = slow.may_go_on
        order_id = given_up(server, slow, clock, OrderKind.FETCH)
        server.cache.poll_store()
        server.cache.end_prefetch(order_id)
        clock.now += FIRST_REST_SECONDS
        begun = slow.begun
        trial = ordered(server, OrderKind.FETCH)
        wait_until(lambda: slow.begun == begun + 1)
        server.compute(OTHER)
        assert server.write(OTHER) == 0
        assert slow.begun == begun + 1
        slow.go_on()
        late.release()
        # The other batches of the order follow the trial.
        assert server.wait_for_store(trial) == 8
        assert not store_of(server).is_resting
        assert server.cache.end_prefetch(trial) == HostInserted(8, 0, 0, 0)
        assert server.write(OTHER) == 6


def test_rests_grow_while_a_store_does_not_answer() -> None:
    """Each failed trial doubles the rest, up to the longest; an answer begins anew."""
    clock = Clock()
    breaker = StoreBreaker(clock, FIRST_REST_SECONDS, LONGEST_REST_SECONDS)
    assert breaker.admits
    assert not breaker.begin_call()
    rests = []
    is_trial = False
    for _ in range(4):
        assert breaker.note_failure(is_trial=is_trial)
        rests.append(breaker.rest_seconds)
        assert not breaker.admits
        clock.now += rests[-1]
        assert breaker.admits
        is_trial = breaker.begin_call()
        assert is_trial
        assert not breaker.admits
    assert rests == [1, 2, 4, 4]
    assert breaker.note_answer(is_trial=True)
    assert breaker.admits
    breaker.note_failure(is_trial=False)
    assert breaker.rest_seconds == 1


def test_what_was_called_before_a_rest_neither_ends_nor_prolongs_it() -> None:
    """Only the trial says how the store is now; one that was not made leaves it to the next."""
    clock = Clock()
    breaker = StoreBreaker(clock)
    breaker.note_failure(is_trial=False)
    assert not breaker.note_failure(is_trial=False)
    assert not breaker.note_answer(is_trial=False)
    assert (breaker.is_resting, breaker.rests) == (True, 1)
    clock.now += breaker.rest_seconds
    breaker.note_untried(is_trial=breaker.begin_call())
    assert breaker.admits


def test_calls_that_never_return_are_few() -> None:
    """With so many that were given up, the store is not tried again before one returns."""
    clock = Clock()
    with over_slow(pages=1, clock=clock) as (server, slow):
        stored(server, slow)
        late = slow.may_go_on
        for _ in range(MOST_LATE):
            given_up(server, slow, clock, OrderKind.FETCH)
            server.cache.end_prefetch(server.cache.poll_store()[0].order_id)
            server.cache.poll_store()
            clock.now += LONGEST_REST_SECONDS
        begun = slow.begun
        assert server.fetch(prompt_of(3, 1)) == NOTHING
        assert slow.begun == begun
        assert store_of(server).late_calls == MOST_LATE
        late.release()
        wait_until(
            lambda: not server.cache.poll_store() and store_of(server).late_calls < MOST_LATE
        )
        slow.go_on()
        assert server.fetch(PROMPT).placed_pages == 8
        late.release(MOST_LATE)
        wait_until(lambda: not server.cache.poll_store() and host_pool(server)[1] == 0)


def test_a_store_that_fails_is_left_alone_at_once(caplog: pytest.LogCaptureFixture) -> None:
    """A call that raises begins a rest; the log says why once, and again when it is over."""
    clock = Clock()
    with over_slow(clock=clock) as (server, slow), caplog.at_level(logging.WARNING):
        slow.go_on()
        slow.fails_at = 0
        server.compute(PROMPT)
        assert server.write(PROMPT) == 0
        assert server.write(PROMPT) == 0
        slow.fails_at = None
        clock.now += FIRST_REST_SECONDS
        assert server.write(PROMPT) == 8
        calls = store_of(server).calls[OrderKind.WRITE]
        assert (calls.calls, calls.failed_calls, calls.pages) == (5, 1, 8)
        assert calls.bytes == 8 * PAGE_BYTES
    assert [record.getMessage() for record in caplog.records] == [
        "the store on DISK is left alone for 1 s: a write failed with OSError: the store is full",
        "the store on DISK answers again, and is used",
    ]


def test_a_close_waits_no_longer_than_the_deadline() -> None:
    """A queue over a store that does not answer closes, and the cache finds its orders ended."""
    slow = Slow()
    with (
        ThreadedQueue(slow, deadline_seconds=0.05, batch_bytes=PAGE_BYTES) as queue,
        server_over(queue) as server,
    ):
        server.compute(PROMPT)
        server.cache.store(PROMPT)
        fetched = ordered(server, OrderKind.FETCH, OTHER)
        wait_until(lambda: slow.begun == 2)
        queue.close()
        assert len({each.order_id for each in server.cache.poll_store() if each.ended}) == 2
        server.cache.end_prefetch(fetched)
        slow.go_on()
        wait_until(lambda: not server.cache.poll_store() and host_pool(server) == (8, 0))


def test_the_disk_has_deadlines_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read of the disk tier that hangs ends its prefetch, and the disk is used after it."""
    clock, may_go_on, get = Clock(), threading.Event(), DiskStore.get
    store = DiskStore.open(tmp_path, DiskIdentity({"model": "small"}))
    queue = ThreadedQueue(ProvedCarrier(store), deadline_seconds=DEADLINE_SECONDS, clock=clock)
    begun = threading.Event()

    def hung(disk: DiskStore, pages: list[PageGet]) -> list[int | None]:
        begun.set()
        may_go_on.wait(PATIENCE_S)
        return get(disk, pages)

    with queue, server_over(queue) as server:
        server.compute(PROMPT)
        assert server.write(PROMPT) == 8
        server.empty()
        monkeypatch.setattr(DiskStore, "get", hung)
        order_id = ordered(server, OrderKind.FETCH)
        assert begun.wait(PATIENCE_S)
        clock.now += DEADLINE_SECONDS
        assert server.wait_for_store(order_id) == 0
        server.cache.end_prefetch(order_id)
        assert server.fetch(PROMPT) == NOTHING
        may_go_on.set()
        clock.now += FIRST_REST_SECONDS
        assert server.fetch(PROMPT) == HostInserted(8, 0, 0, 0)
        server.require_bytes(PROMPT, 8)
    store.close()


def test_a_scrape_tells_of_the_store() -> None:
    """Calls by outcome, pages, bytes, and whether the store is left alone."""
    clock = Clock()
    with over_slow(clock=clock) as (server, slow):
        stored(server, slow)
        given_up(server, slow, clock, OrderKind.FETCH)
        server.cache.poll_store()
        registry = CollectorRegistry()
        registry.register(CacheCollector({"rank 0": server.cache}))

        def value(name: str, **labels: str) -> float | None:
            full = {"cache": "rank 0", "medium": "DISK", **labels}
            return registry.get_sample_value(f"kvcanon_store_{name}", full)

        assert value("calls_total", order="write", outcome="answered") == 4
        assert value("calls_total", order="fetch", outcome="given_up") == 1
        assert value("calls_total", order="fetch", outcome="failed") == 0
        assert value("pages_total", order="write") == 8
        assert value("bytes_total", order="write") == 8 * PAGE_BYTES
        assert value("passed_over_pages_total", order="fetch") == 6
        assert (value("resting"), value("rests_total"), value("late_calls")) == (1, 1, 1)
