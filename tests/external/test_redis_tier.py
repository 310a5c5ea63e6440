"""What Redis answers, and how its client is set."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
from fakeredis import FakeRedis, FakeServer

from disk_pages import name_of
from external_pages import IDENTITY, LENGTH, RedisStandIn, pages_of
from kvcanon.external import ExternalFailed, redis_tier
from kvcanon.external.records import key_of
from kvcanon.external.redis_tier import RedisTier
from kvcanon.external.redis_wire import KEPT_BYTES


def test_the_client_tries_once() -> None:
    """No retry of redis-py's is left, and sockets have the time-out that was given."""
    tier = RedisTier.open("redis://127.0.0.1:1/0", IDENTITY, timeout_seconds=0.25)
    settings = tier.client.connection_pool.connection_kwargs
    assert (settings["socket_timeout"], settings["socket_connect_timeout"]) == (0.25, 0.25)
    tries = []

    def fails() -> None:
        tries.append(1)
        raise TimeoutError

    with pytest.raises(TimeoutError):
        settings["retry"].call_with_retry(fails, lambda _: None)
    assert len(tries) == 1
    with pytest.raises(ExternalFailed, match="Redis: Error"):
        pages_of_redis(tier)
    tier.close()


def pages_of_redis(tier: RedisTier) -> None:
    """Ask for a page."""
    tier.leading_run([name_of(0)])


def test_a_value_of_another_type_is_a_miss_and_is_replaced() -> None:
    """A list under a page's key is none of ours: it is removed, or a put replaces it."""
    server = RedisStandIn()
    pages, client = pages_of(server), FakeRedis(server=server.server)
    key = key_of(IDENTITY.fingerprint, name_of(1))
    client.lpush(key, "x")
    pages.put(range(3))
    assert pages.get(range(3)) == [0, 1, 2]
    client.delete(key)
    client.lpush(key, "x")
    assert pages.get(range(3)) == [0, 2]
    assert not client.exists(key)


def test_a_short_value_is_seen_by_a_put() -> None:
    """A put looks at the length of what is there."""
    server = RedisStandIn()
    pages = pages_of(server)
    pages.put(range(2))
    server.set(key_of(IDENTITY.fingerprint, name_of(0)), b"short")
    assert pages.put(range(2)) == [True, True]
    assert pages.get(range(2)) == [0, 1]


def test_a_full_server_refuses_pages() -> None:
    """A page without room is refused, and nothing fails."""
    server = RedisStandIn(replies={b"SET": b"-OOM command not allowed\r\n"})
    pages = pages_of(server)
    assert pages.put(range(2)) == [False, False]
    assert pages.tier.statistics().refused_pages == 2


@pytest.mark.parametrize("command", [b"STRLEN", b"SET", b"GET", b"EXISTS", b"UNLINK"])
def test_a_server_that_is_out_of_order_fails_a_call(command: bytes) -> None:
    """Any other refusal is no answer about a page; what is left of it confuses no next call."""
    server = RedisStandIn()
    pages = pages_of(server)
    pages.put(range(2))
    server.replies[command] = b"-READONLY it is a replica\r\n"
    ask: dict[bytes, Callable[[], object]] = {
        b"STRLEN": lambda: pages.put(range(3)),
        b"SET": lambda: pages.put(range(3)),
        b"GET": lambda: pages.get(range(3)),
        b"EXISTS": lambda: pages.tier.leading_run([name_of(0), name_of(1)]),
        b"UNLINK": lambda: pages.tier.remove([name_of(5), name_of(6)]),
    }
    with pytest.raises(ExternalFailed, match="Redis: READONLY it is a replica"):
        ask[command]()
    server.replies.clear()
    assert pages.get(range(2)) == [0, 1]


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (b"$3080\r\nthe beginning", "timed out"),
        (b"$30", "timed out"),
        (b"?\r\n", "a reply begins with"),
        (b"$x\r\n", "is no number"),
        (b"$2\r\nlonger\r\n", "longer than was said"),
        (b"x" * (2 * KEPT_BYTES), "has no end"),
    ],
    ids=["in a value", "in a line", "unknown", "no length", "too long", "endless"],
)
def test_a_connection_over_which_something_went_wrong_is_not_used_again(
    reply: bytes, said: str
) -> None:
    """What is left in it would be taken for the next reply."""
    server = RedisStandIn(timeout_seconds=0.2)
    pages = pages_of(server)
    pages.put(range(3))
    server.replies[b"GET"] = reply
    with pytest.raises(ExternalFailed, match=said):
        pages.get(range(2))
    server.replies.clear()
    assert pages.get(range(8)) == [0, 1, 2]


def test_a_foreign_value_is_not_written_to_a_page() -> None:
    """A header of another page is seen before the bytes behind it are received."""
    server = RedisStandIn()
    pages = pages_of(server)
    pages.put(range(2))
    keys = [key_of(IDENTITY.fingerprint, name_of(each)) for each in range(2)]
    server.set(keys[0], server.values()[keys[1]])
    assert pages.get(range(2)) == [1]
    assert not pages.memory[0].any()


def test_a_page_larger_than_a_value_may_be_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not sent: the server would end the connection."""
    server = RedisStandIn()
    pages = pages_of(server)
    monkeypatch.setattr(redis_tier, "LARGEST_BYTES", LENGTH)
    assert pages.put(range(2)) == [False, False]
    assert server.values() == {}


@pytest.mark.parametrize(
    ("missing", "imported", "said"),
    [
        ("xxhash", "kvcanon.external", "needs xxhash"),
        ("redis", "kvcanon.external.redis_tier", "run `pip install 'kvcanon[redis]'`"),
    ],
)
def test_a_missing_package_is_named(missing: str, imported: str, said: str) -> None:
    """The import says what to install."""
    script = f"import sys; sys.modules[{missing!r}] = None; import {imported}"
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 1
    assert said in ran.stderr


def test_a_server_that_is_back_is_used() -> None:
    """A connection that broke is no obstacle to the next call."""
    server = RedisStandIn(FakeServer())
    pages = pages_of(server)
    pages.put(range(1))
    server.leave()
    with pytest.raises(ExternalFailed):
        pages.get(range(1))
    server.leave(gone=False)
    assert pages.get(range(1)) == [0]
