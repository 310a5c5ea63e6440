"""Pages in Redis or Valkey, which speak the same language: `RedisTier`.

The client tries nothing twice. redis-py's own retries keep a caller for many times its time-out,
and who calls a store here has better to do: it computes the page.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from attrs import define, evolve, field

from kvcanon.disk.identity import DiskIdentity
from kvcanon.disk.parts import PageGet, PagePut, copy_from, total_bytes
from kvcanon.disk.scratch import Scratch
from kvcanon.external.failing import ExternalFailed
from kvcanon.external.figures import ExternalFigures
from kvcanon.external.records import HEADER_BYTES, header_of, key_of, place

try:
    from redis import Redis
    from redis.backoff import NoBackoff
    from redis.exceptions import OutOfMemoryError, RedisError
    from redis.retry import Retry
except ModuleNotFoundError as error:
    raise ImportError(
        "kvcanon.external.redis_tier needs redis, which is not installed; "
        "run `pip install 'kvcanon[redis]'`."
    ) from error

TIMEOUT_SECONDS = 5.0
LARGEST_BYTES = 512 << 20
"""A server takes no longer value, unless its `proto-max-bulk-len` says so."""
KEPT_BYTES = 32 << 20
"""Memory for the values of one call is used again up to this: fresh memory costs a fault a page."""
_LOG = logging.getLogger(__name__)


@define(eq=False)
class RedisTier:
    """Pages under the keys of one identity. Any thread may call it; `open` makes one."""

    client: Redis
    fingerprint: bytes
    figures: ExternalFigures = field(factory=ExternalFigures)
    scratch: Scratch = field(factory=lambda: Scratch(KEPT_BYTES))

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
        )
        return cls(client, identity.fingerprint)

    def put(self, pages: Sequence[PagePut]) -> list[bool]:
        """Store pages; says for each whether it is there. Raises: ExternalFailed.

        A page whose value is there with its length is kept: another server wrote the same.
        """
        keys = [self._key(page.name) for page in pages]
        sizes = [HEADER_BYTES + total_bytes(page.parts) for page in pages]
        lengths = self._ask([("STRLEN", key) for key in keys])
        done = [length == size for length, size in zip(lengths, sizes, strict=True)]
        fits = [size <= LARGEST_BYTES for size in sizes]
        new = [at for at in range(len(pages)) if fits[at] and not done[at]]
        with self.scratch.piece(sum(sizes[at] for at in new)) as memory:
            values = self._values([pages[at] for at in new], memory)
            answers = self._ask(
                [("SET", keys[at], value) for at, value in zip(new, values, strict=True)]
            )
        kept = sum(done)
        for at, answer in zip(new, answers, strict=True):
            done[at] = answer is True
        self.figures.kept_pages += kept
        self.figures.written_pages += sum(done) - kept
        self.figures.refused_pages += done.count(False)
        return done

    def get(self, pages: Sequence[PageGet]) -> list[int | None]:
        """Read pages into their parts; says for each how many bytes it has, or None for a miss.

        Nothing is written to the parts of a miss. Raises: ExternalFailed.
        """
        keys = [self._key(page.name) for page in pages]
        values = self._ask([("GET", key) for key in keys])
        answers: list[int | None] = []
        damaged = []
        for page, key, value in zip(pages, keys, values, strict=True):
            is_page = isinstance(value, bytes) and place(
                value, self.fingerprint, page.name, page.parts
            )
            answers.append(total_bytes(page.parts) if is_page else None)
            if not is_page and value is not None:
                damaged.append(key)
        if damaged:
            self.figures.damaged_pages += len(damaged)
            _LOG.warning(
                "%d values in Redis are damaged, and removed: %s", len(damaged), damaged[0]
            )
            self._ask([("UNLINK", key) for key in damaged])
        missed = answers.count(None)
        self.figures.missed_pages += missed
        self.figures.read_pages += len(answers) - missed
        return answers

    def leading_run(self, names: Sequence[bytes]) -> int:
        """How many pages are there before the first that is not. Raises: ExternalFailed."""
        there = self._ask([("EXISTS", self._key(name)) for name in names])
        return next((at for at, each in enumerate(there) if each != 1), len(there))

    def remove(self, names: Sequence[bytes]) -> None:
        """Remove pages. Raises: ExternalFailed."""
        self._ask([("UNLINK", self._key(name)) for name in names])

    def statistics(self) -> ExternalFigures:
        """What it has done since it was made."""
        return evolve(self.figures)

    def close(self) -> None:
        """Close the connections; a call that is under way fails. What was stored stays."""
        self.client.close()

    def _key(self, name: bytes) -> str:
        return key_of(self.fingerprint, name)

    def _values(self, pages: Sequence[PagePut], memory: memoryview) -> list[memoryview]:
        """The values of pages, one after another in memory."""
        values, end = [], 0
        for page in pages:
            begin, end = end, end + HEADER_BYTES + total_bytes(page.parts)
            value = memory[begin:end]
            value[:HEADER_BYTES] = header_of(self.fingerprint, page.name, page.parts)
            copy_from(page.parts, value[HEADER_BYTES:])
            values.append(value)
        return values

    def _ask(self, commands: Sequence[tuple[str | memoryview, ...]]) -> list[object]:
        """Send commands together; an answer is False where an error is about its page alone.

        Raises: ExternalFailed, for any other error.
        """
        if not commands:
            return []
        pipe = self.client.pipeline(transaction=False)
        add: Callable[..., object] = pipe.execute_command
        for command in commands:
            add(*command)
        try:
            answers = pipe.execute(raise_on_error=False)
        except RedisError as error:
            raise ExternalFailed(f"Redis: {error}") from error
        return [_understood(answer) for answer in answers]


def _understood(answer: object) -> object:
    if not isinstance(answer, Exception):
        return answer
    # No room for this value, or a value of another type under its key.
    if isinstance(answer, OutOfMemoryError) or str(answer).startswith("WRONGTYPE"):
        return False
    raise ExternalFailed(f"Redis: {answer}") from answer
