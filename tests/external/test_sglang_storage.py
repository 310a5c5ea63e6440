"""The external tier as a storage backend of SGLang: what is refused, and what a server gets.

SGLang's interface is a stand-in here; its own classes load this backend in the tests of servers.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from attrs import define, field
from fakeredis import FakeServer
from redis import Redis

from external_pages import IDENTITY
from fakes.mooncake_client import FakeMooncake, MooncakeObjects
from fakes.redis_sockets import socket_client
from fast.copies import PATIENCE_S
from kvcanon.disk import DiskUnusable
from kvcanon.disk.sglang_weights_watch import WeightsWatch
from kvcanon.external.mooncake_tier import MOST_COPIED_BYTES

pytestmark = pytest.mark.usefixtures("no_thread_is_left")
PAGE_SIZE, TOKEN_BYTES, PAGES = 4, 64, 6
PAGE_BYTES = PAGE_SIZE * TOKEN_BYTES
KEYS = [f"{number:064x}" for number in range(1, PAGES + 1)]
REDIS = {"store": "redis://u:secret@10.0.0.7:6379/0"}
MOONCAKE = {"store": "mooncake://10.0.0.7:50051", "here": "10.0.0.5:17812"}
WATCHED = "kvcanon.disk.sglang_pages", "kvcanon.external.sglang_storage"


class MHATokenToKVPoolHost:  # SGLang's name.
    """A host pool of SGLang's: rows of keys, and rows of values."""

    layout, page_size, size_per_token = "page_first", PAGE_SIZE, TOKEN_BYTES

    def __init__(self) -> None:
        numbers = np.random.default_rng(1).integers(0, 256, (2, PAGES, PAGE_BYTES // 2))
        self.rows = numbers.astype(np.uint8)

    def get_page_buffer_meta(self, indices: range) -> tuple[list[int], list[int]]:
        """Where the keys and values of the pages of these tokens are."""
        pages = [index // PAGE_SIZE for index in indices[::PAGE_SIZE]]
        places = [self.rows[half, page].ctypes.data for page in pages for half in (0, 1)]
        return places, [PAGE_BYTES // 2] * len(places)


@define(eq=False)
class SetUpMooncake(FakeMooncake):
    """A client with the calls of its owner."""

    code: int = 0
    set_up: list[object] = field(factory=list)
    closed: bool = False

    def setup(self, *given: object) -> int:
        """Note with what it is set up."""
        self.set_up += given
        return self.code

    def close(self) -> None:
        """The memory that it knew must be forgotten before."""
        assert not self.known
        self.closed = True


@define(eq=False)
class World:
    """An SGLang that has a class for backends and no more, a Redis, and a Mooncake."""

    storage: Any
    watch: WeightsWatch
    redis: FakeServer
    mooncake: SetUpMooncake

    def attached(self, **options: object) -> Any:  # noqa: ANN401
        """A backend that is attached as SGLang's controller attaches it."""
        config = SimpleNamespace(
            extra_config={"backend_name": "kvcanon", "interface_v1": 1, **options},
            is_mla_model=False,
            tp_size=1,
            should_split_heads=False,
            enable_storage_metrics=False,
        )
        backend = self.storage.ExternalStorage(config, {})
        backend.register_mem_pool_host(MHATokenToKVPoolHost())
        return backend


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """The backend's module over a stand-in of SGLang's interface, made anew for each test."""
    package = "sglang.srt.mem_cache.hicache_storage"
    interface = ModuleType(package)
    interface.HiCacheStorage = type("HiCacheStorage", (), {})  # type: ignore[attr-defined]
    client = ModuleType("mooncake.store")
    mooncake = SetUpMooncake(MooncakeObjects())
    client.MooncakeDistributedStore = lambda: mooncake  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, package, interface)
    monkeypatch.setitem(sys.modules, "mooncake.store", client)
    server = FakeServer()
    monkeypatch.setattr(Redis, "from_url", lambda *_, **__: socket_client(server))
    for name in WATCHED:
        monkeypatch.delitem(sys.modules, name, raising=False)
    pages, storage = map(import_module, WATCHED)
    watch = WeightsWatch()
    monkeypatch.setattr(pages, "watch_weights", lambda: watch)
    monkeypatch.setattr(pages, "sglang_identity", lambda *_: IDENTITY)
    yield World(storage, watch, server, mooncake)
    for name in WATCHED:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, 'needs a "store" in --hicache-storage-backend-extra-config, as redis://10.0.0.7'),
        ({"store": "10.0.0.7:6379"}, 'needs a "store"'),
        ({"store": "http://10.0.0.7"}, 'needs a "store"'),
        ({"store": 7}, 'needs a "store"'),
        ({"store": MOONCAKE["store"]}, 'needs "here", this machine\'s address with a port'),
        ({**MOONCAKE, "here": ""}, 'needs "here"'),
        ({**REDIS, "deadline_seconds": 0}, '"deadline_seconds" of kvcanon\'s external store is'),
        ({**REDIS, "deadline_seconds": "soon"}, "is not above 0"),
        ({**REDIS, "folder": "pages"}, "no option 'folder' of kvcanon's external store; it has"),
        ({**REDIS, "interface_v1": 0}, 'external store needs "interface_v1": 1'),
    ],
)
def test_what_cannot_be_used_is_refused_with_one_sentence(
    world: World, options: dict[str, Any], words: str
) -> None:
    """The sentence names the option, and what to give."""
    with pytest.raises(DiskUnusable) as refused:
        world.attached(**options)
    assert words in str(refused.value)
    assert not world.mooncake.set_up


def no_redis(_: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """redis-py is not installed."""
    monkeypatch.delitem(sys.modules, "kvcanon.external.redis_tier")
    monkeypatch.setitem(sys.modules, "redis", None)


def no_mooncake(_: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is Mooncake's client."""
    monkeypatch.setitem(sys.modules, "mooncake.store", None)


def no_master(world: World, _: pytest.MonkeyPatch) -> None:
    """Its client does not reach a master."""
    world.mooncake.code = -1


def no_memory(_: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its client cannot register memory."""
    monkeypatch.setattr(FakeMooncake, "register_buffer", lambda *_: -600)


def updated_weights(world: World, _: pytest.MonkeyPatch) -> None:
    """The server has other weights than it started with."""
    world.watch.updates = 1


@pytest.mark.parametrize(
    ("harm", "options", "words"),
    [
        (
            no_redis,
            REDIS,
            "needs redis, which is not installed; run `pip install",
        ),
        (no_mooncake, MOONCAKE, "external store needs Mooncake's client in this environment: "),
        (no_master, MOONCAKE, "does not start for mooncake://10.0.0.7:50051: code -1"),
        (no_memory, MOONCAKE, "external store has no memory: Mooncake does not register"),
        (updated_weights, REDIS, 'say which they are, as a revision, in "weights"'),
    ],
)
def test_what_is_missing_is_said_when_it_is_attached(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    harm: Callable[[World, pytest.MonkeyPatch], None],
    options: dict[str, Any],
    words: str,
) -> None:
    """SGLang ends with the sentence, and not at the first request."""
    harm(world, monkeypatch)
    with pytest.raises(DiskUnusable) as refused:
        world.attached(**options)
    assert words in str(refused.value)


def test_a_second_client_of_mooncake_is_refused(world: World) -> None:
    """It may end the process, so the server has to be restarted; Redis is attached again."""
    world.attached(**MOONCAKE).close()
    with pytest.raises(DiskUnusable, match="had a client of Mooncake before"):
        world.attached(**MOONCAKE)
    for _ in range(2):
        world.attached(**REDIS).close()


@pytest.mark.parametrize("options", [REDIS, MOONCAKE], ids=["redis", "mooncake"])
def test_pages_move_between_host_pool_and_store(
    world: World, options: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """Written from the slots of the pool, and read into them; what was done is in the log."""
    caplog.set_level(logging.INFO)
    backend = world.attached(**options)
    tokens, rows = range(PAGES * PAGE_SIZE), backend.pool.rows
    before = rows.copy()
    assert backend.batch_set_v1(KEYS[:4], tokens[: 4 * PAGE_SIZE]) == [True] * 4
    rows[:] = 0
    assert backend.batch_exists(KEYS) == 4
    assert backend.batch_get_v1(KEYS, tokens) == [True] * 4 + [False] * 2
    assert (rows[:, :4] == before[:, :4]).all()
    assert not rows[:, 4:].any()
    said = backend.in_words()
    assert "4 pages written" in said
    assert "4 read, 2 missed, 0 damaged, 0 refused; 0 calls given up, 0 failed, 0 rests" in said
    backend.close()
    assert backend.batch_get_v1(KEYS[:1], tokens[:PAGE_SIZE]) == [False]
    assert backend.in_words() == ""
    backend.close()
    assert world.mooncake.closed == (options is MOONCAKE)
    assert f"pages of {PAGE_BYTES} bytes" in caplog.text
    assert "10.0.0.7" in caplog.text
    assert "secret" not in caplog.text


def test_what_a_user_says_reaches_the_client(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Addresses, protocol and device; a copy is worth its time over TCP alone."""
    backend = world.attached(**MOONCAKE)
    assert backend.store.store.most_copied_bytes == MOST_COPIED_BYTES
    backend.close()
    here, _, _, _, *others = world.mooncake.set_up
    assert (here, others) == ("10.0.0.5:17812", ["tcp", "", "10.0.0.7:50051"])
    monkeypatch.setattr(world.storage._Clients, "mooncake", 0)
    world.mooncake.set_up.clear()
    backend = world.attached(**MOONCAKE, protocol="rdma", device="mlx5_0")
    assert backend.store.store.most_copied_bytes == 0
    backend.close()
    assert world.mooncake.set_up[4:6] == ["rdma", "mlx5_0"]


def test_the_deadline_is_also_the_clients(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A socket is silent no longer than a request may wait."""
    given: list[tuple[object, ...]] = []

    def from_url(url: str, **settings: object) -> Redis:
        given.append((url, settings["socket_timeout"], settings["socket_connect_timeout"]))
        return socket_client(world.redis, timeout_seconds=PATIENCE_S)

    monkeypatch.setattr(Redis, "from_url", from_url)
    for more, seconds in (({}, 1.0), ({"deadline_seconds": 2.5}, 2.5)):
        backend = world.attached(**REDIS, **more)
        assert backend.store.deadline_seconds == seconds
        backend.close()
    assert given == [(REDIS["store"], 1.0, 1.0), (REDIS["store"], 2.5, 2.5)]
