"""The fast cache over an external tier, without a server: residency, events, damage, failures."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest
import torch
from fakeredis import FakeRedis, FakeServer
from redis import Redis

from doc_blocks import python_blocks
from external_pages import IDENTITY, value_in
from fakes.mooncake_client import FakeMooncake, MooncakeObjects
from fakes.redis_sockets import socket_client
from fast.stores import PAGE_BYTES, PAGE_SIZE, Server, config_of, prompt_of, server_over
from kvcanon.external.mooncake_tier import MooncakeTier
from kvcanon.external.records import HEADER_BYTES, key_of
from kvcanon.external.redis_tier import RedisTier
from kvcanon.optimized import PrefixCache
from kvcanon.optimized.layout import PageLayout
from kvcanon.optimized.pools import Pools
from kvcanon.optimized.store_carriers import ProvedCarrier
from kvcanon.optimized.store_queue import ThreadedQueue
from kvcanon.spec.hashing import namespace_seed, page_hashes
from kvcanon.spec.operations import HostInserted
from kvcanon.spec.types import DEFAULT_NAMESPACE, EXTERNAL, FULL

pytestmark = pytest.mark.usefixtures("no_thread_is_left")
PROMPT, LONGER = prompt_of(1, 5), prompt_of(1, 8)


@pytest.fixture(params=["redis", "mooncake"])
def values(request: pytest.FixtureRequest) -> FakeServer | MooncakeObjects:
    """A stand-in for each server."""
    return FakeServer() if request.param == "redis" else MooncakeObjects()


@contextmanager
def over(values: FakeServer | MooncakeObjects) -> Iterator[Server]:
    """A server of a model over the external tier, with three pages in a call."""
    tier: RedisTier | MooncakeTier
    if isinstance(values, FakeServer):
        tier = RedisTier(socket_client(values), IDENTITY.fingerprint)
    else:
        tier = MooncakeTier.over(FakeMooncake(values), IDENTITY)
    queue = ThreadedQueue(
        ProvedCarrier(tier),
        EXTERNAL,
        batch_bytes=3 * PAGE_BYTES,
        deadline_seconds=60,
        first_rest_seconds=1e-6,
    )
    with queue, server_over(queue) as server:
        if isinstance(tier, MooncakeTier):
            tier.register(server.pools.slab(FULL).numpy())
        yield server
    tier.close()


def change(values: FakeServer | MooncakeObjects, key: str, at: int) -> None:
    """Flip a bit of a value."""
    if isinstance(values, FakeServer):
        client = FakeRedis(server=values)
        found = bytearray(value_in(client, key))
        found[at] ^= 1
        client.set(key, bytes(found))
    else:
        found = bytearray(values.objects[key])
        found[at] ^= 1
        values.objects[key] = bytes(found)


def key_of_page(number: int) -> str:
    """The key of a page of the longer prompt."""
    pages = [tuple(page) for page in LONGER.reshape(-1, PAGE_SIZE).tolist()]
    return key_of(
        IDENTITY.fingerprint, page_hashes(namespace_seed(DEFAULT_NAMESPACE), pages)[number]
    )


def told(server: Server) -> list[tuple[str, int]]:
    """What routers hear about the external tier."""
    events = server.cache.take_events()
    return [(each.kind, each.pages) for each in events if each.medium == EXTERNAL]


def test_what_is_announced_is_what_is_there(values: FakeServer | MooncakeObjects) -> None:
    """Pages count as stored once they are written, also for a server that only finds them."""
    with over(values) as server:
        server.compute(PROMPT)
        assert server.write(PROMPT) == 5
        assert sum(pages for kind, pages in told(server) if kind == "stored") == 5
        server.compute(LONGER)
        assert server.write(LONGER) == 8 - 5
        assert sum(pages for kind, pages in told(server) if kind == "stored") == 3
    with over(values) as server:
        assert server.fetch(LONGER) == HostInserted(8, 0, 0, 0)
        assert sum(pages for kind, pages in told(server) if kind == "stored") == 8
        assert {each.medium for each in server.cache.tree.stored()} == {EXTERNAL}
        server.require_bytes(LONGER, 8)


def test_a_damaged_page_ends_the_run_and_is_written_again(
    values: FakeServer | MooncakeObjects,
) -> None:
    """It is taken back from routers with all that follows it; the next write repairs it."""
    with over(values) as server:
        server.compute(LONGER)
        assert server.write(LONGER) == 8
        server.empty()
        told(server)
        change(values, key_of_page(4), HEADER_BYTES + 9)
        assert server.fetch(LONGER) == HostInserted(4, 0, 0, 0)
        server.require_bytes(LONGER, 4)
        assert sum(pages for kind, pages in told(server) if kind == "removed") == 4
        stats = server.cache.stats().store
        assert stats is not None
        assert (stats.damaged_pages, stats.is_resting) == (1, False)
        server.compute(LONGER)
        assert server.write(LONGER) == 4
        server.empty()
        assert server.fetch(LONGER) == HostInserted(8, 0, 0, 0)
        server.require_bytes(LONGER, 8)


class SetUpMooncake(FakeMooncake):
    """A client with the call that sets it up."""

    def setup(self, *_: object) -> int:
        """Succeed."""
        return 0


def queues_of_the_page(monkeypatch: pytest.MonkeyPatch, client: Redis) -> dict[str, object]:
    """The functions of docs/stores.md, over stand-ins for the servers that they name."""
    package, module = ModuleType("mooncake"), ModuleType("mooncake.store")
    module.MooncakeDistributedStore = SetUpMooncake  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mooncake", package)
    monkeypatch.setitem(sys.modules, "mooncake.store", module)
    monkeypatch.setattr(Redis, "from_url", lambda *_, **__: client)
    names: dict[str, object] = {}
    (source,) = (body for page, body in python_blocks() if page == "docs/stores.md")
    exec(source, names)  # noqa: S102  # The page's own words.
    return names


@pytest.mark.parametrize("name", ["redis", "mooncake"])
def test_the_page_shows_how(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """What docs/stores.md makes of each server is a queue of a cache, on the external medium."""
    client = socket_client(FakeServer())
    make: Any = queues_of_the_page(monkeypatch, client)[f"{name}_queue"]
    config = config_of()
    pools = Pools(config, {FULL: PageLayout(1, (PAGE_BYTES,))}, torch.device("cpu"))
    queue: ThreadedQueue = make(IDENTITY) if name == "redis" else make(IDENTITY, pools)
    with queue, PrefixCache(config, pools, store=queue) as cache:
        server = Server(cache, pools)
        server.compute(PROMPT)
        assert server.write(PROMPT) == 5
        server.empty()
        assert server.fetch(PROMPT) == HostInserted(5, 0, 0, 0)
        server.require_bytes(PROMPT, 5)
        assert sum(pages for _, pages in told(server)) == 5
    client.close()
