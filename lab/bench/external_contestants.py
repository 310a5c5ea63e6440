"""Ways to keep pages in Redis and in Mooncake Store: the raw client, and the external tier over it.

Each group starts its own server, on the loopback address. The raw client moves the same batches,
from and to the same memory, with nothing that proves a page.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
from attrs import define, field

from kvcanon.conformance.stores.check import ground_of
from kvcanon.conformance.stores.names import load_store
from kvcanon.disk import DiskIdentity, PageGet, PagePut
from kvcanon.disk.parts import checksum_of
from kvcanon.lab.bench.store_contestants import MakeKeeper, name_of

if TYPE_CHECKING:
    from kvcanon.external.mooncake_tier import MooncakeTier
    from kvcanon.external.redis_tier import RedisTier

IDENTITY = DiskIdentity({"bench": "store"})
CALL_BYTES = 16 << 20
"""About how much one call moves, as the fast cache has it."""
BUFFER_BYTES = 64 << 20
TIMEOUT_SECONDS = 60.0


@contextmanager
def redis_ways() -> Iterator[dict[str, MakeKeeper]]:
    """The ways over a Redis that is started here."""
    with ground_of(load_store("redis")) as ground:
        socket = cast("_RedisGround", ground).socket
        yield {
            "redis-py": lambda *_: RawRedis(socket),
            "kvcanon over Redis": lambda *_: TierKeeper(_redis_tier(socket)),
        }


@contextmanager
def mooncake_ways() -> Iterator[dict[str, MakeKeeper]]:
    """The ways over a Mooncake Store that is started here, by one client.

    Two clients of one process write at speeds that may differ by half, for as long as they live.
    """
    with ground_of(load_store("mooncake")) as ground:
        client = _mooncake_client(cast("_MooncakeGround", ground).master)
        try:
            yield {
                "Mooncake's client": lambda *_: RawMooncake(client),
                "Mooncake's client with checksums": lambda *_: ProvedMooncake(client),
                "kvcanon over Mooncake": lambda *_: TierKeeper(_mooncake_tier(client)),
            }
        finally:
            client.close()


class _RedisGround(Protocol):
    socket: str


class _MooncakeGround(Protocol):
    master: str


def _redis_tier(socket: str) -> RedisTier:
    from kvcanon.external.redis_tier import RedisTier  # noqa: PLC0415  # It needs the client.

    return RedisTier.open(f"unix://{socket}", IDENTITY, timeout_seconds=TIMEOUT_SECONDS)


def _mooncake_tier(client: Any) -> MooncakeTier:  # noqa: ANN401  # Mooncake has no types.
    from kvcanon.external.mooncake_tier import MooncakeTier  # noqa: PLC0415

    return MooncakeTier.over(client, IDENTITY)


def _mooncake_client(master: str) -> Any:  # noqa: ANN401
    ports = import_module("kvcanon.conformance.engines.mooncake.object_store")
    client = import_module("mooncake.store").MooncakeDistributedStore()
    here = f"{ports.LOCAL}:{ports.free_port()}"
    code = client.setup(here, "P2PHANDSHAKE", 0, BUFFER_BYTES, "tcp", "", master)
    if code:
        raise OSError(f"Mooncake's setup gave {code}")
    return client


def _calls(
    first: int, pages: Sequence[memoryview]
) -> Iterator[tuple[list[bytes], Sequence[memoryview]]]:
    """The names and the memory of the pages of each call."""
    count = max(1, CALL_BYTES // len(pages[0])) if pages else 1
    for at in range(0, len(pages), count):
        part = pages[at : at + count]
        yield [name_of(first + at + each) for each in range(len(part))], part


def _whole_memory(page: memoryview) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """The memory that a page is a piece of."""
    return np.frombuffer(cast("bytes", page.obj), np.uint8)


@define(eq=False)
class TierKeeper:
    """The external tier, as the fast cache calls it."""

    tier: RedisTier | MooncakeTier
    names: list[bytes] = field(factory=list)

    def write(self, first: int, pages: Sequence[memoryview]) -> None:
        """Put pages, from memory that the client knows where it has to."""
        if not self.names and hasattr(self.tier, "register"):
            self.tier.register(_whole_memory(pages[0]))
        for names, part in _calls(first, pages):
            puts = [PagePut(name, (page,)) for name, page in zip(names, part, strict=True)]
            if not all(self.tier.put(puts)):
                raise OSError("the store refused a page")
            self.names += names

    def read(self, first: int, pages: Sequence[memoryview]) -> None:
        """Get pages."""
        for names, part in _calls(first, pages):
            gets = [PageGet(name, (page,)) for name, page in zip(names, part, strict=True)]
            if None in self.tier.get(gets):
                raise OSError("the store missed a page")

    def forget(self) -> None:
        """Nothing is in a cache of this machine."""

    def close(self) -> None:
        """Remove the pages, and end the connections."""
        self.tier.remove(self.names)
        self.tier.close()


@define(eq=False)
class RawRedis:
    """redis-py: a pipeline of SET or GET for each call."""

    socket: str
    client: Any = field(init=False)

    def __attrs_post_init__(self) -> None:
        redis = import_module("redis")
        self.client = redis.Redis(unix_socket_path=self.socket, socket_timeout=TIMEOUT_SECONDS)

    def write(self, first: int, pages: Sequence[memoryview]) -> None:
        """Set keys."""
        for names, part in _calls(first, pages):
            pipe = self.client.pipeline(transaction=False)
            for name, page in zip(names, part, strict=True):
                pipe.set(name, page)
            pipe.execute()

    def read(self, first: int, pages: Sequence[memoryview]) -> None:
        """Get keys, and copy the values to where pages belong."""
        for names, part in _calls(first, pages):
            pipe = self.client.pipeline(transaction=False)
            for name in names:
                pipe.get(name)
            for page, value in zip(part, pipe.execute(), strict=True):
                page[:] = value

    def forget(self) -> None:
        """Nothing is in a cache of this machine."""

    def close(self) -> None:
        """Forget all keys."""
        self.client.flushall()
        self.client.close()


@define(eq=False)
class RawMooncake:
    """Mooncake's client, from and to memory that it knows."""

    client: Any
    keys: list[str] = field(factory=list)
    address: int = 0

    def write(self, first: int, pages: Sequence[memoryview]) -> None:
        """Put objects."""
        if not self.keys:
            memory = _whole_memory(pages[0])
            self.address = memory.ctypes.data
            self.client.register_buffer(self.address, memory.nbytes)
        for names, part in _calls(first, pages):
            keys = [name.hex() for name in names]
            self.keys += keys
            codes = self.client.batch_put_from(keys, *_places(part))
            if any(codes):
                raise OSError(f"a put gave {codes}")

    def read(self, first: int, pages: Sequence[memoryview]) -> None:
        """Get objects."""
        for names, part in _calls(first, pages):
            codes = self.client.batch_get_into([name.hex() for name in names], *_places(part))
            if codes != [*map(len, part)]:
                raise OSError(f"a get gave {codes}")

    def forget(self) -> None:
        """Nothing is in a cache of this machine."""

    def close(self) -> None:
        """Remove the objects; the client is used again."""
        self.client.batch_remove(self.keys, True)  # Also those with a lease.
        self.client.unregister_buffer(self.address)


@define(eq=False)
class ProvedMooncake(RawMooncake):
    """The same with a checksum of each page: what proving alone costs."""

    def write(self, first: int, pages: Sequence[memoryview]) -> None:
        """Put objects, after their checksums were made."""
        for names, part in _calls(first, pages):
            for page in part:
                checksum_of([page])
            super().write(int.from_bytes(names[0], "big"), part)

    def read(self, first: int, pages: Sequence[memoryview]) -> None:
        """Get objects, and make their checksums."""
        for names, part in _calls(first, pages):
            super().read(int.from_bytes(names[0], "big"), part)
            for page in part:
                checksum_of([page])


def _places(pages: Sequence[memoryview]) -> tuple[list[int], list[int]]:
    """Where pages are, and how long."""
    return [np.frombuffer(page, np.uint8).ctypes.data for page in pages], [*map(len, pages)]
