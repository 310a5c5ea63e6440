"""Pages in Redis or Valkey, which speak the same language: `RedisTier`.

The client tries nothing twice. redis-py's own retries keep a caller for many times its time-out,
and who calls a store here has better to do: it computes the page. Its connections are used, and
pages move over them without a copy in between (`kvcanon.external.redis_wire`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

from attrs import define, evolve, field

from kvcanon.disk.identity import DiskIdentity
from kvcanon.disk.parts import PageGet, PagePut, total_bytes
from kvcanon.external.failing import ExternalFailed
from kvcanon.external.figures import ExternalFigures
from kvcanon.external.records import HEADER_BYTES, ProofOfPage, header_of, key_of
from kvcanon.external.redis_wire import (
    END,
    BulkReply,
    ErrorReply,
    Exchange,
    Reply,
    WireFailed,
    command_before_value,
    command_of,
)

if TYPE_CHECKING:
    from socket import socket

try:
    from redis import Redis
    from redis.backoff import NoBackoff
    from redis.exceptions import RedisError
    from redis.retry import Retry
except ModuleNotFoundError as error:
    raise ImportError(
        "kvcanon.external.redis_tier needs redis, which is not installed; "
        "run `pip install 'kvcanon[redis]'`."
    ) from error

TIMEOUT_SECONDS = 5.0
LARGEST_BYTES = 512 << 20
"""A server takes no longer value, unless its `proto-max-bulk-len` says so."""
OF_ITS_PAGE = ("OOM ", "WRONGTYPE ")
"""How a refusal begins that is about its page alone: no room for this value, or a value of another
type under its key."""
_LOG = logging.getLogger(__name__)


@define(eq=False)
class RedisTier:
    """Pages under the keys of one identity. Any thread may call it; `open` makes one."""

    client: Redis
    fingerprint: bytes
    figures: ExternalFigures = field(factory=ExternalFigures)

    @classmethod
    def open(
        cls, url: str, identity: DiskIdentity, *, timeout_seconds: float = TIMEOUT_SECONDS
    ) -> RedisTier:
        """Make a client for a server, as `redis://host:6379/0` or `unix:///run/redis.sock`.

        It connects when it is first used: a server that is down delays no start. A socket that is
        silent for `timeout_seconds` is given up.
        """
        client = Redis.from_url(
            url,
            socket_timeout=timeout_seconds,
            socket_connect_timeout=timeout_seconds,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
        )
        return cls(client, identity.fingerprint)

    def put(self, pages: Sequence[PagePut]) -> list[bool]:
        """Store pages; says for each whether it is there. Raises: ExternalFailed.

        A page whose value is there with its length is kept: another server wrote the same.
        """
        sizes = [HEADER_BYTES + total_bytes(page.parts) for page in pages]
        lengths = self._ask(b"STRLEN", (page.name for page in pages))
        done = [length == size for length, size in zip(lengths, sizes, strict=True)]
        fits = [size <= LARGEST_BYTES for size in sizes]
        new = [at for at in range(len(pages)) if fits[at] and not done[at]]
        kept = sum(done)
        for at, stored in zip(new, self._set([pages[at] for at in new]), strict=True):
            done[at] = stored
        self.figures.kept_pages += kept
        self.figures.written_pages += sum(done) - kept
        self.figures.refused_pages += done.count(False)
        return done

    def get(self, pages: Sequence[PageGet]) -> list[int | None]:
        """Read pages into their parts; says for each how many bytes it has, or None for a miss.

        The parts of a page that is a miss may have been written to. Raises: ExternalFailed.
        """
        if not pages:
            return []
        with self._exchange() as exchange:
            for page in pages:
                exchange.send(command_of(b"GET", self._key(page.name)))
            exchange.flush()
            found = [self._read(exchange, page) for page in pages]
        damaged = [
            page.name for page, is_page in zip(pages, found, strict=True) if is_page is False
        ]
        if damaged:
            self.figures.damaged_pages += len(damaged)
            first = key_of(self.fingerprint, damaged[0])
            _LOG.warning("%d values in Redis are damaged, and removed: %s", len(damaged), first)
            self.remove(damaged)
        self.figures.read_pages += found.count(True)
        self.figures.missed_pages += len(found) - found.count(True)
        return [
            total_bytes(page.parts) if is_page else None
            for page, is_page in zip(pages, found, strict=True)
        ]

    def leading_run(self, names: Sequence[bytes]) -> int:
        """How many pages are there before the first that is not. Raises: ExternalFailed."""
        there = self._ask(b"EXISTS", names)
        return next((at for at, each in enumerate(there) if each != 1), len(there))

    def remove(self, names: Sequence[bytes]) -> None:
        """Remove pages. Raises: ExternalFailed."""
        self._ask(b"UNLINK", names)

    def statistics(self) -> ExternalFigures:
        """What it has done since it was made."""
        return evolve(self.figures)

    def close(self) -> None:
        """Close the connections; a call that is under way fails. What was stored stays."""
        self.client.close()

    # Inside.

    def _key(self, name: bytes) -> bytes:
        return key_of(self.fingerprint, name).encode("ascii")

    @contextmanager
    def _exchange(self) -> Iterator[Exchange]:
        """An exchange over a connection of its own. Raises: ExternalFailed.

        A connection over which something went wrong is closed: replies may be left in it.
        """
        pool = self.client.connection_pool
        try:
            connection = pool.get_connection()
        except (RedisError, OSError) as error:
            raise ExternalFailed(f"Redis: {error}") from error
        try:
            # redis-py has no other way to the socket that it made, and no reading into memory.
            yield Exchange(cast("socket", connection._sock))  # noqa: SLF001
        except BaseException as error:
            disconnect: Callable[[], object] = connection.disconnect
            disconnect()
            if isinstance(error, OSError | WireFailed):
                raise ExternalFailed(f"Redis: {error}") from error
            raise
        finally:
            pool.release(connection)

    def _ask(self, what: bytes, names: Iterable[bytes]) -> list[Reply]:
        """Send a command for each page, together; the replies. Raises: ExternalFailed."""
        commands = [command_of(what, self._key(name)) for name in names]
        if not commands:
            return []
        with self._exchange() as exchange:
            for command in commands:
                exchange.send(command)
            exchange.flush()
            return [_understood(exchange.reply()) for _ in commands]

    def _set(self, pages: Sequence[PagePut]) -> list[bool]:
        """Send the values of pages, each while the processor has it from its checksum."""
        if not pages:
            return []
        with self._exchange() as exchange:
            for page in pages:
                size = HEADER_BYTES + total_bytes(page.parts)
                exchange.send(command_before_value(b"SET", self._key(page.name), length=size))
                exchange.send(header_of(self.fingerprint, page.name, page.parts))
                for part in page.parts:
                    exchange.send(part)
                exchange.send(END)
            exchange.flush()
            return [_understood(exchange.reply()) == "OK" for _ in pages]

    def _read(self, exchange: Exchange, page: PageGet) -> bool | None:
        """Read the next reply: whether it is the page; None if there is none."""
        reply = _understood(exchange.reply())
        if not isinstance(reply, BulkReply):
            return None if reply is None else False
        proof = ProofOfPage(self.fingerprint, page.name, total_bytes(page.parts))
        if reply.length != HEADER_BYTES + proof.length:
            exchange.skip(reply.length)
            exchange.end_value()
            return False
        header = exchange.take(HEADER_BYTES)
        if proof.begins(header):
            exchange.read_into(page.parts, proof.add)
        else:
            exchange.skip(proof.length)
        exchange.end_value()
        return proof.is_of(header)


def _understood(reply: Reply) -> Reply:
    """A reply, or a refusal that is about its page alone. Raises: ExternalFailed, for another."""
    if isinstance(reply, ErrorReply) and not reply.text.startswith(OF_ITS_PAGE):
        raise ExternalFailed(f"Redis: {reply.text}")
    return reply
