"""HTTP connections whose answers are bounded, in bytes and in time, whatever the server sends.

A socket's own time-out is for one read: a server that sends a byte a second never meets it. Here
each read has the time that is left of the whole answer, and takes from the bytes that are left. So
the bounds hold for headers, for the sizes of chunks and for lines without an end, too.
"""

from __future__ import annotations

import io
import socket
import time
from http.client import HTTPConnection, HTTPSConnection
from typing import Any

from attrs import define

BUFFER_BYTES = 1 << 16


class TooLarge(OSError):
    """An answer larger than any that an engine sends."""


@define
class AnswerBounds:
    """What is left for one answer; shared by all reads of its connection."""

    ends: float
    """By the monotonic clock."""
    bytes_left: int

    def seconds_left(self) -> float:
        """Seconds for the next read. Raises: TimeoutError."""
        left = self.ends - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left

    def take(self, count: int) -> None:
        """Count bytes that came. Raises: TooLarge."""
        self.bytes_left -= count
        if self.bytes_left < 0:
            raise TooLarge


class _BoundedReads(io.RawIOBase):
    """The bytes of a socket, within bounds."""

    def __init__(self, inner: socket.socket, bounds: AnswerBounds) -> None:
        super().__init__()
        self._inner = inner
        self._bounds = bounds

    def readable(self) -> bool:
        """Whether it can be read: always."""
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401  # A writable buffer, which 3.11 has no name for.
        """Read what is there. Raises: TimeoutError, TooLarge, OSError."""
        self._inner.settimeout(self._bounds.seconds_left())
        count = self._inner.recv_into(buffer)
        self._bounds.take(count)
        return count

    def close(self) -> None:
        """Close the socket with its file."""
        super().close()
        self._inner.close()


class _BoundedSocket:
    """A socket as `http.client` uses it: it sends at once, and reads through a file."""

    def __init__(self, inner: socket.socket, bounds: AnswerBounds) -> None:
        self._inner = inner
        self._bounds = bounds
        self._is_read = False

    def sendall(self, data: bytes) -> None:
        """Send; a server that does not read in time is one that hangs. Raises: OSError."""
        self._inner.settimeout(self._bounds.seconds_left())
        self._inner.sendall(data)

    def makefile(self, _mode: str) -> io.BufferedReader:
        """The file that an answer is read from; closing it closes the socket."""
        self._is_read = True
        return io.BufferedReader(_BoundedReads(self._inner, self._bounds), BUFFER_BYTES)

    def close(self) -> None:
        """Close the connection, unless its answer is still read: `http.client` closes before."""
        if not self._is_read:
            self._inner.close()


def connect(
    host: str, port: int, bounds: AnswerBounds, *, secure: bool
) -> HTTPConnection | HTTPSConnection:
    """Connect to a server. Raises: OSError."""
    kind = HTTPSConnection if secure else HTTPConnection
    connection = kind(host, port, timeout=bounds.seconds_left())
    try:
        connection.connect()
    except BaseException:
        connection.close()
        raise
    # What `http.client` calls of a socket is all that this one has.
    connection.sock = _BoundedSocket(connection.sock, bounds)
    return connection
