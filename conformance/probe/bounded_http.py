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
from pathlib import Path
from ssl import SSLContext, create_default_context
from typing import Any

from attrs import define, frozen

from kvcanon.conformance.errors import UsageError

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


@frozen
class ClientCertificate:
    """The files of what a client shows to a server that asks who it is."""

    file: Path
    """The certificate, in PEM; its key may be in it, too."""
    key: Path | None = None


def security_of(certificate: ClientCertificate | None) -> SSLContext:
    """How to speak TLS. Raises: UsageError, if files of a certificate cannot be used."""
    security = create_default_context()
    if certificate is not None:
        try:
            # A key with a password would ask for it on the terminal.
            security.load_cert_chain(certificate.file, certificate.key, password="")
        except (OSError, ValueError) as error:
            raise UsageError(
                f"--client-cert {certificate.file} cannot be used: {error}; give a certificate in "
                "PEM, and its key, without a password, by --client-key"
            ) from error
    return security


def connect(
    host: str, port: int, bounds: AnswerBounds, security: SSLContext | None
) -> HTTPConnection | HTTPSConnection:
    """Connect to a server; with TLS where it is said how. Raises: OSError."""
    seconds = bounds.seconds_left()
    connection = (
        HTTPConnection(host, port, timeout=seconds)
        if security is None
        else HTTPSConnection(host, port, timeout=seconds, context=security)
    )
    try:
        connection.connect()
    except BaseException:
        connection.close()
        raise
    # What `http.client` calls of a socket is all that this one has.
    connection.sock = _BoundedSocket(connection.sock, bounds)
    return connection
