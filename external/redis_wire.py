"""One exchange with Redis: commands sent together, and their replies read one by one.

redis-py makes the connections. Its own reading copies a value four times before its caller has it,
and hands over the values of a batch when all are there, so that the first has left the processor's
caches. Here the bytes of a page go from the socket straight to where the page belongs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from socket import socket

from attrs import define, field, frozen

KEPT_BYTES = 16 << 10
"""How many received bytes are kept that nobody has taken: a line of a reply, and what follows."""
SMALL_BYTES = 16 << 10
"""Pieces below this are sent with others, since a call for each costs more than a copy."""
END = b"\r\n"
"""Ends a line, and a value."""


class WireFailed(Exception):
    """The connection ended, or said what no server says; it cannot be used any more."""


@frozen
class BulkReply:
    """A value follows, of so many bytes: `read_into` or `skip` them, and then `end_value`."""

    length: int


@frozen
class ErrorReply:
    """The server refuses a command."""

    text: str


Reply = int | str | BulkReply | ErrorReply | None
"""A number, a status, a value, a refusal, or that there is no value."""


def command_of(*words: bytes) -> bytes:
    """A command in the words of the protocol."""
    return b"*%d\r\n%s" % (len(words), b"".join(map(_word, words)))


def command_before_value(*words: bytes, length: int) -> bytes:
    """A command up to its last word, a value of this length; the value and `END` come after it."""
    return b"*%d\r\n%s$%d\r\n" % (len(words) + 1, b"".join(map(_word, words)), length)


def _word(word: bytes) -> bytes:
    return b"$%d\r\n%s\r\n" % (len(word), word)


@define(eq=False)
class Exchange:
    """What is sent and received over a connection that nobody else uses meanwhile."""

    socket: socket
    _outgoing: list[bytes | memoryview] = field(factory=list)
    _outgoing_bytes: int = 0
    _kept: bytearray = field(factory=lambda: bytearray(KEPT_BYTES))
    _begin: int = 0
    """Where what nobody has taken begins in `_kept`, and where it ends."""
    _end: int = 0

    def send(self, piece: bytes | memoryview) -> None:
        """Send a piece, after those before it. Small ones wait for `flush`."""
        if len(piece) >= SMALL_BYTES:
            self.flush()
            self.socket.sendall(piece)
            return
        self._outgoing.append(piece)
        self._outgoing_bytes += len(piece)
        if self._outgoing_bytes >= SMALL_BYTES:
            self.flush()

    def flush(self) -> None:
        """Send all that waits."""
        if self._outgoing:
            self.socket.sendall(b"".join(self._outgoing))
            self._outgoing.clear()
            self._outgoing_bytes = 0

    def reply(self) -> Reply:
        """The next reply, or that a value follows. Raises: WireFailed, OSError."""
        line = self._line()
        kind, text = line[:1], line[1:]
        match kind:
            case b"$":
                length = _number(text)
                return BulkReply(length) if length >= 0 else None
            case b":":
                return _number(text)
            case b"+":
                return text.decode("utf-8", "replace")
            case b"-":
                return ErrorReply(text.decode("utf-8", "replace"))
            case b"_":
                return None
            case _:
                raise WireFailed(f"a reply begins with {line[:20]!r}")

    def take(self, count: int) -> bytes:
        """The next few bytes, at most as many as are kept. Raises: WireFailed, OSError."""
        while self._end - self._begin < count:
            self._receive_more()
        self._begin += count
        return bytes(self._kept[self._begin - count : self._begin])

    def read_into(self, parts: Sequence[memoryview], note: Callable[[memoryview], object]) -> None:
        """Receive bytes into memory; each piece is noted while it is in the processor's caches.

        Raises: WireFailed, OSError.
        """
        for part in parts:
            at = 0
            while at < len(part):
                end = at + self._some_into(part[at:])
                note(part[at:end])
                at = end

    def skip(self, count: int) -> None:
        """Receive bytes, and forget them. Raises: WireFailed, OSError."""
        while count:
            if self._begin == self._end:
                self._receive_more()
            skipped = min(count, self._end - self._begin)
            self._begin += skipped
            count -= skipped

    def end_value(self) -> None:
        """Take what ends a value. Raises: WireFailed, OSError."""
        if self.take(len(END)) != END:
            raise WireFailed("a value is longer than was said")

    def _line(self) -> bytes:
        while (end := self._kept.find(END, self._begin, self._end)) < 0:
            self._receive_more()
        line = bytes(self._kept[self._begin : end])
        self._begin = end + len(END)
        return line

    def _some_into(self, memory: memoryview) -> int:
        """Receive at least a byte into memory; how many."""
        if self._begin == self._end:
            if len(memory) >= KEPT_BYTES:
                return self._received(memory)
            self._receive_more()
        count = min(len(memory), self._end - self._begin)
        memory[:count] = self._kept[self._begin : self._begin + count]
        self._begin += count
        return count

    def _receive_more(self) -> None:
        """Keep more bytes behind those that nobody has taken."""
        left = self._end - self._begin
        if left == KEPT_BYTES:
            raise WireFailed("a line of a reply has no end")
        self._kept[:left] = self._kept[self._begin : self._end]
        self._begin, self._end = 0, left
        with memoryview(self._kept) as whole, whole[left:] as free:
            self._end += self._received(free)

    def _received(self, memory: memoryview) -> int:
        count = self.socket.recv_into(memory)
        if not count:
            raise WireFailed("the server closed the connection")
        return count


def _number(text: bytes) -> int:
    try:
        return int(text)
    except ValueError:
        raise WireFailed(f"{text[:20]!r} is no number") from None
