"""HTTP connections whose answers are bounded, in bytes and in time, whatever the server sends.

A socket's own time-out is for one read: a server that sends a byte a second never meets it. Here
each read has the time that is left of the whole answer, and takes from the bytes that are left. So
the bounds hold for headers, for the sizes of chunks and for lines without an end, too. The system
looks a name up without any time-out, so another thread waits for that.
"""

from __future__ import annotations

import io
import socket
import time
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from queue import Empty, SimpleQueue
from ssl import SSLContext, create_default_context
from threading import Thread
from typing import Any

from attrs import define, frozen

from kvcanon.conformance.errors import UsageError

BUFFER_BYTES = 1 << 16


class TooLarge(OSError):
    """An answer larger than any that an engine sends."""


class NoAddress(TimeoutError):
    """A name whose address was not known in time."""


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


@define
class ServerPlace:
    """Where a server is: its host and port, and the address at which it was found first.

    It is looked up once, so that all requests go to one machine of several that a name has, and a
    name server that fails meanwhile is no end of the server.
    """

    host: str
    port: int
    address: tuple[str, int] | None = None

    def connected(self, bounds: AnswerBounds) -> socket.socket:
        """A connection to it. Raises: OSError."""
        problem = OSError(f"{self.host} has no address")
        known = _addresses_of(self.host, self.port, bounds) if self.address is None else []
        for address in known or filter(None, [self.address]):
            try:
                found = socket.create_connection(address, bounds.seconds_left())
            except OSError as error:
                problem = error
            else:
                self.address = address
                return found
        raise problem


def connect(
    place: ServerPlace, bounds: AnswerBounds, security: SSLContext | None
) -> HTTPConnection | HTTPSConnection:
    """Connect to a server; with TLS where it is said how. Raises: OSError."""
    host, port = place.host, place.port
    connection = (
        HTTPConnection(host, port)
        if security is None
        else HTTPSConnection(host, port, context=security)
    )
    plain = place.connected(bounds)
    try:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        plain.settimeout(bounds.seconds_left())
        inner = plain if security is None else security.wrap_socket(plain, server_hostname=host)
    except BaseException:
        plain.close()
        raise
    # What `http.client` calls of a socket is all that this one has.
    connection.sock = _BoundedSocket(inner, bounds)
    return connection


def _addresses_of(host: str, port: int, bounds: AnswerBounds) -> list[tuple[str, int]]:
    """The addresses of a host, looked up by another thread. Raises: OSError.

    A thread that waits for a name server cannot be ended, and holds up no end of the process.
    """
    answers: SimpleQueue[list[tuple[str, int]] | OSError] = SimpleQueue()

    def look_up() -> None:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            answers.put(error)
        else:
            answers.put([(str(each[4][0]), int(each[4][1])) for each in found])

    Thread(target=look_up, name="kvcanon-name", daemon=True).start()
    try:
        answer = answers.get(timeout=bounds.seconds_left())
    except Empty:
        raise NoAddress from None
    if isinstance(answer, OSError):
        raise answer
    return answer
