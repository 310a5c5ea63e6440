"""Redis as a store of pages: one key a page, pipelined, with a deadline and without retries.

The ground starts a server of its own on a socket in the judge's folder. With a capacity it evicts
by `allkeys-lru`; a stop of the server is a SIGSTOP. redis-py tries again by default, which takes
many times its time-out: the client here does not.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from attrs import define, evolve, field

from kvcanon.conformance.engines.installed_names import EngineObject, InstalledNames
from kvcanon.conformance.engines.key_value.page_names import name_of
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.stores.adapter import StoreAdapter, StoreGround, StoreOffer
from kvcanon.conformance.workers.ending import tied
from kvcanon.spec.stores.calls import Ability
from kvcanon.spec.stores.page_store import PageStore
from kvcanon.spec.stores.pages import PageKey, StoreIdentity

NAMES = InstalledNames(
    "redis",
    "redis-py",
    "",
    {
        "Redis": "redis",
        "RedisError": "redis",
        "Retry": "redis.retry",
        "NoBackoff": "redis.backoff",
    },
)
NAMES.version()

DEADLINE_SECONDS = 0.3
PAGE_BYTES = (64, 2048, 65_536)
LARGEST_BYTES = 2 * PAGE_BYTES[-1]
"""The most that one command adds to what the server takes."""
STARTS_SECONDS = 10.0
"""How long a server may take to answer first."""

Value = TypeVar("Value")


@define(eq=False)
class RedisPages:
    """A `PageStore` around a client."""

    socket: str
    identity: StoreIdentity
    client: EngineObject = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.client = client_of(self.socket)

    def put(self, pages: Sequence[tuple[PageKey, bytes]]) -> list[bool]:
        """Set one key after the other: what a pipeline holds counts for the server's memory."""

        def work() -> list[bool]:
            return [self.client.set(self.name_of(key), content) is True for key, content in pages]

        return self.ask(work, [False] * len(pages))

    def get(self, pages: Sequence[tuple[PageKey, memoryview]]) -> list[int | None]:
        """Get one key after the other, and copy the values."""
        names = [self.name_of(key) for key, _ in pages]
        missed: list[bytes | None] = [None] * len(pages)
        found = self.ask(lambda: [self.client.get(name) for name in names], missed)
        return [_fill(buffer, value) for value, (_, buffer) in zip(found, pages, strict=True)]

    def exists(self, keys: Sequence[PageKey]) -> list[bool]:
        """Ask for all keys in one round trip."""

        def work() -> list[bool]:
            pipe = self.client.pipeline(transaction=False)
            for key in keys:
                pipe.exists(self.name_of(key))
            return [each == 1 for each in pipe.execute(raise_on_error=False)]

        return self.ask(work, [False] * len(keys))

    def leading_run(self, keys: Sequence[PageKey]) -> int:
        """How many pages from the first on have a key in every pool."""
        wanted = [evolve(key, pool=pool) for key in keys for pool in self.identity.pools]
        there = self.exists(wanted)
        missing = there.index(False) if False in there else len(there)
        return missing // len(self.identity.pools)

    def remove(self, keys: Sequence[PageKey]) -> None:
        """Delete keys."""
        self.ask(lambda: self.client.delete(*map(self.name_of, keys)), None)

    def close(self) -> None:
        """Close the connections."""
        self.client.close()

    def name_of(self, key: PageKey) -> bytes:
        """The key of a page."""
        return name_of(self.identity, key)

    def ask(self, work: Callable[[], Value], otherwise: Value) -> Value:
        """Ask the server; `otherwise` if it does not answer, or with an error."""
        try:
            return work()
        except NAMES["RedisError"]:
            return otherwise


def client_of(socket: str) -> EngineObject:
    """A client that waits for its deadline, once."""
    return NAMES["Redis"](
        unix_socket_path=socket,
        socket_timeout=DEADLINE_SECONDS,
        socket_connect_timeout=DEADLINE_SECONDS,
        retry=NAMES["Retry"](NAMES["NoBackoff"](), 0),
    )


def _fill(buffer: memoryview, value: bytes | None) -> int | None:
    if value is None or len(value) > len(buffer):
        return None
    buffer[: len(value)] = value
    return len(value)


@define
class RedisGround:
    """A server that is started for a check."""

    socket: str
    server: subprocess.Popen[bytes]
    control: EngineObject
    at_first_bytes: int = 0
    """What the server takes without pages."""

    def open(self, identity: StoreIdentity, capacity_bytes: int | None) -> PageStore:
        """Connect a client; with a capacity the server evicts."""
        # Redis makes room before a command, and then stores its value.
        most = 0 if capacity_bytes is None else self.at_first_bytes + capacity_bytes - LARGEST_BYTES
        self.control.config_set("maxmemory", most)
        return RedisPages(self.socket, identity)

    def empty(self) -> None:
        """Forget all keys."""
        self.control.flushall()
        self.at_first_bytes = self.control.info("memory")["used_memory"]

    def used_bytes(self) -> int:
        """The bytes of all keys and values, as the server counts them."""
        return max(0, int(self.control.info("memory")["used_memory"]) - self.at_first_bytes)

    def files_of(self, identity: StoreIdentity, key: PageKey) -> Sequence[Path]:  # noqa: ARG002
        """There are none."""
        return ()

    def stall(self) -> None:
        """Stop the server's process."""
        os.kill(self.server.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        os.kill(self.server.pid, signal.SIGCONT)


@contextmanager
def _ground(folder: Path) -> Iterator[StoreGround]:
    program = shutil.which("redis-server")
    if program is None:
        raise UsageError("there is no redis-server on the PATH; install Redis 6 or later")
    socket = str(folder / "redis.sock")
    settings = ["port 0", "save ''", "appendonly no", "maxmemory-policy allkeys-lru"]
    words = [f"--{each}".replace("''", "").split(" ") for each in settings]
    arguments = [program, "--unixsocket", socket, *(word for each in words for word in each)]
    server = subprocess.Popen(  # noqa: S603  # Our own arguments.
        arguments,
        cwd=folder,
        stdout=subprocess.DEVNULL,
        preexec_fn=tied(),  # noqa: PLW1509
    )
    try:
        control = client_of(socket)
        _wait_for(control, server)
        yield RedisGround(socket, server, control)
    finally:
        os.kill(server.pid, signal.SIGCONT)
        server.kill()
        server.wait()


def _wait_for(control: EngineObject, server: subprocess.Popen[bytes]) -> None:
    """Wait until the server answers. Raises: UsageError."""
    until = time.monotonic() + STARTS_SECONDS
    while time.monotonic() < until and server.poll() is None:
        try:
            if control.ping():
                return
        except NAMES["RedisError"]:
            time.sleep(0.02)
    raise UsageError("redis-server does not answer; start it by hand to see why")


REDIS = StoreAdapter(
    f"redis (redis-py {NAMES.version()})",
    _ground,
    StoreOffer(
        frozenset(
            {
                Ability.DURABLE,
                Ability.SHARED,
                Ability.EVICTS,
                Ability.REMOVES,
                Ability.RUNS,
                Ability.POOLS,
                Ability.STALLS,
                Ability.NAMESPACES,
            }
        ),
        deadline_seconds=DEADLINE_SECONDS,
        recovers_seconds=0.2,
        slack_bytes=8 * LARGEST_BYTES,
        page_bytes=PAGE_BYTES,
    ),
)
