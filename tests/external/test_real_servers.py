"""The fast cache over real servers, which are stopped, killed and started again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

import pytest

from external_servers import BUFFER_BYTES, LOCAL, free_port, mooncake_servers, redis_server
from fast.stores import PAGE_BYTES, Server, prompt_of, server_over, wait_until
from kvcanon.disk import DiskIdentity
from kvcanon.external.mooncake_tier import MooncakeTier
from kvcanon.external.redis_tier import RedisTier
from kvcanon.optimized.store_carriers import ProvedCarrier, ProvedStore
from kvcanon.optimized.store_queue import ThreadedQueue
from kvcanon.optimized.store_stats import StoreStats
from kvcanon.spec.operations import HostInserted
from kvcanon.spec.tier import OrderKind
from kvcanon.spec.types import CPU, EXTERNAL, FULL

pytestmark = [pytest.mark.nightly, pytest.mark.usefixtures("no_thread_is_left")]
IDENTITY = DiskIdentity({"model": "small", "page_size": "4"})
DEADLINE_SECONDS, REST_SECONDS = 0.5, 0.2
SLACK_SECONDS = 1.0
"""How much later than a deadline this machine may look, and still be itself."""
PROMPT, OTHER, THIRD = prompt_of(1, 8), prompt_of(2, 6), prompt_of(3, 6)
NOTHING = HostInserted(0, 0, 0, 0)


@contextmanager
def over(tier: ProvedStore) -> Iterator[Server]:
    """A server over the external tier."""
    with (
        ThreadedQueue(
            ProvedCarrier(tier),
            EXTERNAL,
            batch_bytes=4 * PAGE_BYTES,
            deadline_seconds=DEADLINE_SECONDS,
            first_rest_seconds=REST_SECONDS,
            longest_rest_seconds=REST_SECONDS,
        ) as queue,
        server_over(queue) as server,
    ):
        yield server


@contextmanager
def over_redis(address: str, timeout_seconds: float = 30.0) -> Iterator[Server]:
    """A server over Redis, whose client waits longer than the queue does."""
    tier = RedisTier.open(address, IDENTITY, timeout_seconds=timeout_seconds)
    with over(tier) as server:
        yield server
    tier.close()


@contextmanager
def over_mooncake(address: str) -> Iterator[Server]:
    """A server over Mooncake, whose client knows the host pool."""
    client = import_module("mooncake.store").MooncakeDistributedStore()
    here = f"{LOCAL}:{free_port()}"
    assert client.setup(here, "P2PHANDSHAKE", 0, BUFFER_BYTES, "tcp", "", address) == 0
    tier = MooncakeTier.over(client, IDENTITY)
    with over(tier) as server:
        tier.register(server.pools.slab(FULL).numpy())
        yield server
    tier.close()
    client.close()


def store_of(server: Server) -> StoreStats:
    """What a server's store did."""
    stats = server.cache.stats().store
    assert stats is not None
    return stats


def free_host_slots(server: Server) -> int:
    """Free slots of the host pool."""
    return server.cache.stats().pools[FULL, CPU].free_slots


def stored(server: Server) -> None:
    """Write a prompt, and let the cache forget it."""
    server.compute(PROMPT)
    assert server.write(PROMPT) == 8
    server.empty()


def require_fetched(server: Server) -> None:
    """The stored prompt comes back with its bytes."""
    assert server.fetch(PROMPT) == HostInserted(8, 0, 0, 0)
    server.require_bytes(PROMPT, 8)
    server.empty()


def require_held_no_longer(server: Server, ask: Callable[[], object]) -> None:
    """An order ends by its deadline with nothing, and those after it at once."""
    begun = time.monotonic()
    assert ask() in {0, NOTHING}
    assert time.monotonic() - begun < DEADLINE_SECONDS + SLACK_SECONDS
    assert store_of(server).is_resting


def require_used_again(server: Server, write: bool) -> None:
    """After the rest a store that is back is tried, and used."""

    def is_used() -> bool:
        if write:
            server.write(PROMPT)
        else:
            server.empty()
            server.fetch(PROMPT)
        return not store_of(server).is_resting

    server.compute(PROMPT) if write else None
    wait_until(is_used)


def test_pages_outlive_the_process_that_wrote_them_in_redis(tmp_path: Path) -> None:
    """Another server of the same model finds them, and the events say EXTERNAL."""
    with redis_server(tmp_path) as (_, address):
        with over_redis(address) as server:
            stored(server)
            told = [each for each in server.cache.take_events() if each.medium == EXTERNAL]
            assert {each.kind for each in told} == {"stored"}
            assert sum(each.pages for each in told) == 8
        with over_redis(address) as server:
            require_fetched(server)
            assert server.fetch(OTHER) == NOTHING
            assert {event.medium for event in server.cache.tree.stored()} == {EXTERNAL}


@pytest.mark.parametrize("kind", OrderKind)
def test_a_stopped_redis_holds_no_request(tmp_path: Path, kind: OrderKind) -> None:
    """At the deadline an order ends, though the client waits 30 s; then Redis is used again."""
    with redis_server(tmp_path) as (redis, address), over_redis(address) as server:
        stored(server)
        if kind is OrderKind.WRITE:
            server.compute(OTHER)
        redis.stop()
        ask = (
            (lambda: server.write(OTHER))
            if kind is OrderKind.WRITE
            else (lambda: server.fetch(PROMPT))
        )
        require_held_no_longer(server, ask)
        assert store_of(server).calls[kind].given_up_calls == 1
        held = free_host_slots(server)
        redis.go_on()
        wait_until(lambda: not server.cache.poll_store() and store_of(server).late_calls == 0)
        assert free_host_slots(server) >= held
        require_used_again(server, write=False)
        server.empty()
        require_fetched(server)
        assert free_host_slots(server) == 16


def test_a_killed_redis_fails_at_once_and_an_empty_one_is_used(tmp_path: Path) -> None:
    """What it had is gone, and is written again."""
    with redis_server(tmp_path) as (redis, address), over_redis(address) as server:
        stored(server)
        redis.kill()
        require_held_no_longer(server, lambda: server.fetch(PROMPT))
        assert store_of(server).calls[OrderKind.FETCH].failed_calls == 1
        redis.start()
        require_used_again(server, write=False)
        assert server.fetch(PROMPT) == NOTHING
        stored(server)
        require_fetched(server)


def test_a_full_redis_refuses_pages_and_goes_on(tmp_path: Path) -> None:
    """Without room a write ends with what was stored, and nothing rests."""
    with redis_server(tmp_path) as (_, address), over_redis(address) as server:
        stored(server)
        from redis import Redis  # noqa: PLC0415

        with Redis.from_url(address) as client:
            client.config_set("maxmemory", 1)
        server.compute(OTHER)
        assert server.write(OTHER) == 0
        assert store_of(server).calls[OrderKind.WRITE].missed_pages > 0
        assert not store_of(server).is_resting
        server.empty()
        require_fetched(server)


def test_pages_outlive_the_process_that_wrote_them_in_mooncake(tmp_path: Path) -> None:
    """Another client finds them, and reads them into the host pool where they belong."""
    with mooncake_servers(tmp_path) as servers:
        with over_mooncake(servers.address) as server:
            stored(server)
        with over_mooncake(servers.address) as server:
            require_fetched(server)
            assert server.fetch(OTHER) == NOTHING
            assert {event.medium for event in server.cache.tree.stored()} == {EXTERNAL}


@pytest.mark.parametrize("stopped", ["provider", "master"])
def test_a_stopped_mooncake_holds_no_request(tmp_path: Path, stopped: str) -> None:
    """At the deadline a fetch ends, though the client blocks for 30 s; then Mooncake is used."""
    with mooncake_servers(tmp_path) as servers, over_mooncake(servers.address) as server:
        stored(server)
        process = servers.provider if stopped == "provider" else servers.master
        process.stop()
        require_held_no_longer(server, lambda: server.fetch(PROMPT))
        reserved, _, _ = server.cache.reserve_host(free_host_slots(server))
        for slot in reserved:
            server.pools.host_page(FULL, int(slot))[:] = bytes(PAGE_BYTES)
        process.go_on()
        wait_until(lambda: not server.cache.poll_store() and store_of(server).late_calls == 0)
        for slot in reserved:
            assert bytes(server.pools.host_page(FULL, int(slot))) == bytes(PAGE_BYTES)
        server.cache.abort_host(reserved)
        assert free_host_slots(server) == 16
        require_used_again(server, write=True)
        server.empty()
        require_fetched(server)


def is_written(server: Server) -> bool:
    """Whether the whole third prompt is stored; if not, it is tried again."""
    order_id = server.cache.store(THIRD).order_id
    if order_id is not None:
        server.wait_for_store(order_id)
    return order_id is None


def test_a_killed_provider_is_a_store_without_its_pages(tmp_path: Path) -> None:
    """No wrong byte comes back; with a new provider pages are stored again."""
    with mooncake_servers(tmp_path) as servers, over_mooncake(servers.address) as server:
        stored(server)
        servers.provider.kill()
        begun = time.monotonic()
        assert server.fetch(PROMPT) == NOTHING
        assert time.monotonic() - begun < DEADLINE_SECONDS + SLACK_SECONDS
        servers.provider.start()
        server.compute(THIRD)
        wait_until(lambda: is_written(server))
        server.empty()
        assert server.fetch(THIRD) == HostInserted(6, 0, 0, 0)
        server.require_bytes(THIRD, 6)
