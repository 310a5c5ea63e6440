"""A Redis of this process behind real sockets: what fakeredis keeps, in the words of the protocol.

fakeredis hands values over as objects. The external tier reads the bytes of a socket, so each
connection here has a thread at its other end, which ends with the connection.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import BinaryIO

from fakeredis import FakeRedis, FakeServer
from redis import ConnectionPool, Redis
from redis.connection import AbstractConnection
from redis.exceptions import ResponseError

STATUSES = {b"OK", b"PONG"}


class SocketConnection(AbstractConnection):
    """A connection whose other end is a thread of this process."""

    def __init__(
        self, server: FakeServer, replies: Mapping[bytes, bytes], **others: object
    ) -> None:
        super().__init__(**others)  # type: ignore[arg-type]
        self.server = server
        self.replies = replies

    def repr_pieces(self) -> list[tuple[str, object]]:
        return [("server", self.server)]

    def _connect(self) -> socket.socket:
        if not self.server.connected:
            raise ConnectionRefusedError("the server is gone")
        ours, theirs = socket.socketpair()
        ours.settimeout(self.socket_timeout)
        threading.Thread(
            target=_serve, args=(theirs, self.server, self.replies), daemon=True
        ).start()
        return ours

    def _host_error(self) -> str:
        return "the stand-in"


def socket_client(
    server: FakeServer,
    replies: Mapping[bytes, bytes] | None = None,
    *,
    timeout_seconds: float = 30.0,
) -> Redis:
    """A client of a server over sockets; `replies` are given to commands by their first word."""
    pool = ConnectionPool(
        connection_class=SocketConnection,
        server=server,
        replies={} if replies is None else replies,
        protocol=2,
        socket_timeout=timeout_seconds,
    )
    return Redis.from_pool(pool)


def _serve(connection: socket.socket, server: FakeServer, replies: Mapping[bytes, bytes]) -> None:
    """Answer commands until the other end closes, or the server is gone."""
    client = FakeRedis(server=server, protocol=2)
    # An answer as the server gave it, not as redis-py understands it.
    client.response_callbacks.clear()
    with suppress(ConnectionError), connection, connection.makefile("rb") as received:
        while (words := _command(received)) and server.connected:
            reply = replies.get(words[0])
            connection.sendall(_reply(client, words) if reply is None else reply)


def _command(received: BinaryIO) -> list[bytes]:
    """The words of the next command; none at the end."""
    first = received.readline()
    return [_word(received) for _ in range(int(first[1:]))] if first else []


def _word(received: BinaryIO) -> bytes:
    length = int(received.readline()[1:])
    return received.read(length + 2)[:length]


def _reply(client: FakeRedis, words: list[bytes]) -> bytes:
    try:
        execute: Callable[..., object] = client.execute_command
        answer = execute(*words)
    except ResponseError as error:
        return b"-%s\r\n" % str(error).encode()
    if answer is None:
        return b"$-1\r\n"
    if isinstance(answer, int):
        return b":%d\r\n" % answer
    assert isinstance(answer, bytes)
    if answer in STATUSES:
        return b"+%s\r\n" % answer
    return b"$%d\r\n%s\r\n" % (len(answer), answer)
