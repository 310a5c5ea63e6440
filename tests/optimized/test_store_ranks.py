"""Ranks of one model, each over a store of its own that reads and answers at other times."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TypeVar

import pytest
from attrs import Factory, define

from fast.slow_store import DEADLINE_SECONDS, Clock, Slow, over_slow
from fast.stores import Server, Tokens, prompt_of, wait_until
from kvcanon.conformance.judge.ranks import Lockstep
from kvcanon.optimized.snapshot import take_snapshot
from kvcanon.optimized.store_tier import StoreTier
from kvcanon.spec.operations import HostInserted, Ordered
from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.tier import OrderId, OrderKind, OrderProgress
from kvcanon.spec.types import CPU, FULL

pytestmark = pytest.mark.usefixtures("no_thread_is_left")

Answer = TypeVar("Answer")
BATCH_PAGES, PROMPT = 2, prompt_of(1, 8)


@define
class Ranks:
    """Servers that get the same calls. After each call their answers and states are compared."""

    servers: list[Server]
    stores: list[Slow]
    clock: Clock
    lockstep: Lockstep
    fetches: list[OrderId] = Factory(list)
    """The prefetches that were ordered and not ended."""

    def call(self, do: Callable[[Server], Answer]) -> Answer:
        """Make a call on every rank. Raises: AssertionError, if they differ afterwards."""
        answers = self.lockstep.call([partial(do, each) for each in self.servers])
        assert answers[1:] == answers[:1]
        first, *others = [take_snapshot(each.cache) for each in self.servers]
        for other in others:
            assert_alike(first, other)
        return answers[0]

    def poll(self) -> tuple[OrderProgress, ...]:
        """Poll the store on every rank."""
        return self.call(lambda server: server.cache.poll_store())

    def store(self, tokens: Tokens) -> Ordered:
        """Order the write of a prompt."""
        return self.call(lambda server: server.cache.store(tokens))

    def prefetch(self, tokens: Tokens) -> OrderId | None:
        """Order the fetch of a prompt."""
        order_id = self.call(lambda server: server.cache.prefetch(tokens)).order_id
        self.fetches += [] if order_id is None else [order_id]
        return order_id

    def end_prefetch(self, order_id: OrderId) -> HostInserted:
        """End a prefetch."""
        self.fetches.remove(order_id)
        return self.call(lambda server: server.cache.end_prefetch(order_id))

    def end_some_prefetch(self, draw: random.Random) -> None:
        """End one of the prefetches, if there is one."""
        if self.fetches:
            self.end_prefetch(draw.choice(self.fetches))

    def restart(self) -> None:
        """Reset, and keep the stores."""
        self.call(lambda server: server.cache.reset(keep_store=True))
        self.fetches.clear()

    def let_the_deadline_pass(self) -> None:
        """Let the clock go on: what a store has not answered by now is given up."""
        self.clock.now += DEADLINE_SECONDS

    def evict_host(self, pages: int) -> None:
        """Evict pages from the host."""
        self.call(lambda server: server.cache.evict_host(pages))

    def compute(self, tokens: Tokens) -> None:
        """Compute a prompt on an empty device, and wait for its copy on the host."""
        self.call(lambda server: server.cache.evict(8))
        self.call(lambda server: server.compute(tokens))

    def empty(self) -> None:
        """Evict all that no lock holds."""
        self.call(Server.empty)

    def wait_for_end(self) -> OrderProgress:
        """Poll until an order has ended on every rank; returns how far it came."""
        ended: list[OrderProgress] = []

        def polled() -> bool:
            ended.extend(each for each in self.poll() if each.ended)
            return bool(ended)

        wait_until(polled)
        return ended[0]

    def wait_for_calls(self, rank: int, pages: int) -> None:
        """Poll until a rank's store has written so many pages, and all ranks know."""

        def has_written() -> bool:
            stats = self.servers[rank].cache.stats().store
            assert stats is not None
            return not self.poll() and stats.calls[OrderKind.WRITE].pages == pages

        wait_until(has_written)

    @property
    def late_calls(self) -> int:
        """Calls of the last rank's store that were given up and have not returned."""
        stats = self.servers[-1].cache.stats().store
        assert stats is not None
        return stats.late_calls

    @property
    def free_slots(self) -> int:
        """Host slots that are free on every rank."""
        return self.servers[0].cache.stats().pools[FULL, CPU].free_slots


def assert_alike(first: Snapshot, other: Snapshot) -> None:
    """Check that two ranks have the same slots, nodes and orders."""
    assert other.pools == first.pools
    assert other.nodes == first.nodes
    assert other.recency == first.recency
    assert other.store == first.store


@contextmanager
def two_ranks() -> Iterator[Ranks]:
    """Two ranks over stores that wait until they are told to go on."""
    lockstep, clock = Lockstep(2), Clock()
    with ExitStack() as stack:
        made = [
            stack.enter_context(over_slow(BATCH_PAGES, clock=clock, agree=lockstep.agree_of(rank)))
            for rank in range(2)
        ]
        yield Ranks([server for server, _ in made], [slow for _, slow in made], clock, lockstep)
        for _, slow in made:
            slow.go_on()


def test_slots_come_free_once_every_rank_has_read_them() -> None:
    """A rank whose store is done keeps as many slots back as the one that is late."""
    with two_ranks() as ranks:
        ranks.compute(PROMPT)
        ranks.store(PROMPT)
        ranks.empty()
        assert ranks.free_slots == 16 - 2 * BATCH_PAGES
        ranks.stores[0].go_on()
        ranks.wait_for_calls(0, 4)
        assert ranks.free_slots == 16 - 2 * BATCH_PAGES
        # As many pages as fit into what is free: a rank with more of it would take them all.
        ranks.compute(prompt_of(2, 8))
        ranks.compute(prompt_of(3, 8))
        ranks.stores[1].go_on()
        ranks.wait_for_end()
        ranks.empty()
        assert ranks.free_slots == 16
        fetch(ranks, PROMPT, pages=8)


def test_a_rank_that_ends_a_write_early_keeps_the_others_from_nothing() -> None:
    """A write that failed on one rank ends on all once it has ended on all."""
    with two_ranks() as ranks:
        ranks.compute(PROMPT)
        ranks.stores[0].fails_at = 1
        ranks.store(PROMPT)
        ranks.empty()
        for store in ranks.stores:
            store.go_on()
        assert ranks.wait_for_end().pages == 0
        assert ranks.free_slots == 16


def test_a_late_call_of_one_rank_keeps_its_slots_on_all() -> None:
    """A write that one rank gave up has ended on all; what it reads stays held on all."""
    with two_ranks() as ranks:
        ranks.compute(PROMPT)
        late = ranks.stores[1].may_go_on
        ranks.store(PROMPT)
        wait_until(lambda: ranks.stores[1].begun == 1)
        ranks.stores[0].go_on()
        ranks.wait_for_calls(0, 4)
        ranks.let_the_deadline_pass()
        ranks.wait_for_end()
        shown = take_snapshot(ranks.servers[0].cache).store
        assert shown is not None
        assert shown.orders == ()
        ranks.empty()
        assert ranks.free_slots == 16 - 2 * BATCH_PAGES
        ranks.compute(prompt_of(2, 6))
        late.release()
        wait_until(lambda: not ranks.poll() and not ranks.late_calls)
        ranks.poll()
        ranks.empty()
        assert ranks.free_slots == 16
        asked = ranks.lockstep.agreed[0]
        asked.clear()
        ranks.poll()
        assert asked == []


def fetch(ranks: Ranks, tokens: Tokens, pages: int) -> None:
    """Fetch a prompt on every rank, and compare its bytes with those that were computed."""
    order_id = ranks.prefetch(tokens)
    assert order_id is not None
    wait_until(lambda: any(each.ended for each in ranks.poll()))
    assert ranks.end_prefetch(order_id) == HostInserted(pages, 0, 0, 0)
    for server in ranks.servers:
        server.require_bytes(tokens, pages)


@pytest.mark.parametrize("seed", range(6))
def test_ranks_decide_alike_whatever_their_stores_do(seed: int) -> None:
    """Writes, fetches, evictions and resets are drawn, and how far each rank's store goes.

    Where the clock goes on, calls of one rank alone may be given up.
    """
    draw = random.Random(seed)
    prompts = [prompt_of(number % 3, 3 + number) for number in range(5)]
    with two_ranks() as ranks:
        calls: dict[Callable[[], object], int] = {
            lambda: ranks.compute(draw.choice(prompts)): 4,
            lambda: ranks.store(draw.choice(prompts)): 4,
            lambda: ranks.prefetch(draw.choice(prompts)): 3,
            lambda: ranks.end_some_prefetch(draw): 2,
            lambda: ranks.evict_host(draw.randrange(1, 9)): 1,
            ranks.empty: 2,
            ranks.restart: 1,
            ranks.let_the_deadline_pass: 1,
        }
        for call in draw.choices([*calls], [*calls.values()], k=120):
            call()
            for store in ranks.stores:
                store.go_on(draw.choice((0, 0, 0, 1)))
            ranks.poll()
        while ranks.fetches:
            ranks.end_some_prefetch(draw)
        for store in ranks.stores:
            store.go_on(999)
        ranks.empty()
        wait_until(lambda: not ranks.poll() and ranks.free_slots == 16)


def ranks_free_what_they_have_read(tier: StoreTier) -> Mapping[OrderId, OrderProgress]:
    """A rank frees slots as soon as its own store has read them."""
    progress = ORIGINAL_AGREEMENT(tier)
    for order_id, its in tier.orders.items():
        here = tier._reported.get(order_id)
        its.unused_pages = its.order.unused_pages(ended=here is not None and here.ended)
    return progress


ORIGINAL_AGREEMENT = StoreTier._on_all_ranks


def test_ranks_that_free_what_they_have_read_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison finds ranks that do not agree on what comes free."""
    monkeypatch.setattr(StoreTier, "_on_all_ranks", ranks_free_what_they_have_read)
    with pytest.raises(AssertionError):
        test_slots_come_free_once_every_rank_has_read_them()
