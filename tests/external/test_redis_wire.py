"""Replies of Redis, read from a socket that gives them in pieces of any size."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from random import Random

import pytest
import xxhash

from fast.copies import PATIENCE_S
from kvcanon.external.redis_wire import (
    END,
    KEPT_BYTES,
    SMALL_BYTES,
    BulkReply,
    ErrorReply,
    Exchange,
    WireFailed,
    command_before_value,
    command_of,
)

Say = Callable[[bytes, int], None]
"""Lets the server say something, in pieces of at most so many bytes, and close."""


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two sockets that are connected."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(PATIENCE_S)
        yield ours, theirs


@pytest.fixture
def said(ends: tuple[socket.socket, socket.socket]) -> Iterator[tuple[Exchange, Say]]:
    """An exchange, and a function that lets its server speak."""
    threads = []

    def say(words: bytes, piece: int) -> None:
        def send() -> None:
            for at in range(0, len(words), piece):
                ends[1].sendall(words[at : at + piece])
            ends[1].shutdown(socket.SHUT_WR)

        threads.append(threading.Thread(target=send))
        threads[-1].start()

    yield Exchange(ends[0]), say
    ends[0].close()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


@pytest.mark.parametrize("piece", [1, 3, 1000])
def test_each_kind_of_reply_is_understood(said: tuple[Exchange, Say], piece: int) -> None:
    """Numbers, statuses, refusals, values and their absence, also where a line comes in pieces."""
    exchange, say = said
    say(b":-17\r\n+OK\r\n-ERR no\r\n$-1\r\n_\r\n$4\r\n\r\n\r\n\r\n:1\r\n", piece)
    assert [exchange.reply() for _ in range(5)] == [-17, "OK", ErrorReply("ERR no"), None, None]
    assert exchange.reply() == BulkReply(4)
    assert exchange.take(4) == b"\r\n\r\n"
    exchange.end_value()
    assert exchange.reply() == 1


@pytest.mark.parametrize("piece", [97, 5000, 1 << 20])
@pytest.mark.parametrize(
    "lengths",
    [(0, 1), (10, 0, 20), (KEPT_BYTES, 1, KEPT_BYTES - 1), (5 * KEPT_BYTES + 3,), (7,) * 3000],
    ids=["one", "few", "about what is kept", "many", "small parts"],
)
def test_values_reach_their_parts(
    said: tuple[Exchange, Say], piece: int, lengths: tuple[int, ...]
) -> None:
    """Each part gets its own bytes, and each byte is noted once, in order; so in the next value."""
    exchange, say = said
    value = Random(1).randbytes(sum(lengths))
    reply = b"$%d\r\n%s\r\n" % (len(value), value)
    say(2 * reply, piece)
    for _ in range(2):
        memory, noted = bytearray(len(value)), xxhash.xxh3_128()
        parts, end = [], 0
        for length in lengths:
            parts.append(memoryview(memory)[end : end + length])
            end += length
        assert exchange.reply() == BulkReply(len(value))
        exchange.read_into(parts, noted.update)
        exchange.end_value()
        assert memory == value
        assert noted.digest() == xxhash.xxh3_128_digest(value)


def test_a_value_that_is_skipped_leaves_the_next_reply(said: tuple[Exchange, Say]) -> None:
    """Whatever its length is."""
    exchange, say = said
    lengths = (0, 1, KEPT_BYTES, 3 * KEPT_BYTES + 1)
    say(b"".join(b"$%d\r\n%s\r\n" % (each, bytes(each)) for each in lengths) + b":5\r\n", 4096)
    for length in lengths:
        assert exchange.reply() == BulkReply(length)
        exchange.skip(length)
        exchange.end_value()
    assert exchange.reply() == 5


@pytest.mark.parametrize(
    ("words", "read"),
    [
        (b"", Exchange.reply),
        (b":1", Exchange.reply),
        (b"abc", lambda exchange: exchange.take(4)),
        (b"abc", lambda exchange: exchange.skip(4)),
        (b"abc", lambda exchange: exchange.read_into([memoryview(bytearray(4))], len)),
        (
            b"abc",
            lambda exchange: exchange.read_into([memoryview(bytearray(2 * KEPT_BYTES))], len),
        ),
    ],
    ids=["at once", "in a line", "taken", "skipped", "read", "read in place"],
)
def test_a_server_that_closes_is_said_so(
    said: tuple[Exchange, Say], words: bytes, read: Callable[[Exchange], object]
) -> None:
    """Wherever it ends."""
    exchange, say = said
    say(words, 1)
    with pytest.raises(WireFailed, match="closed the connection"):
        read(exchange)


def test_pieces_are_sent_in_order(ends: tuple[socket.socket, socket.socket]) -> None:
    """Small ones wait for others, large ones do not; none overtakes."""
    random = Random(2)
    sizes = [0, 1, SMALL_BYTES - 1, SMALL_BYTES, 3, 2 * SMALL_BYTES, *([SMALL_BYTES // 4] * 9), 5]
    pieces = [random.randbytes(size) for size in sizes]
    received = bytearray()

    def receive() -> None:
        while data := ends[1].recv(1 << 16):
            received.extend(data)

    thread = threading.Thread(target=receive)
    thread.start()
    exchange = Exchange(ends[0])
    for piece in pieces:
        exchange.send(memoryview(piece))
    exchange.flush()
    ends[0].shutdown(socket.SHUT_WR)
    thread.join(PATIENCE_S)
    assert received == b"".join(pieces)


def test_commands_are_in_the_words_of_the_protocol() -> None:
    """A command whose last word comes apart is the same command."""
    whole = command_of(b"SET", b"key", b"a value")
    assert whole == b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$7\r\na value\r\n"
    assert command_before_value(b"SET", b"key", length=7) + b"a value" + END == whole
