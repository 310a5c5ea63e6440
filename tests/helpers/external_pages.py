"""Stand-ins for the servers of the external tier, so that each test is played on both."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt
from attrs import Factory, define, frozen
from fakeredis import FakeRedis, FakeServer

from disk_pages import content_of, name_of
from fakes.mooncake_client import FakeMooncake, MooncakeObjects
from fakes.redis_sockets import socket_client
from kvcanon.disk import DiskIdentity, PageGet, PagePut
from kvcanon.external.figures import ExternalFigures
from kvcanon.external.mooncake_tier import MOST_COPIED_BYTES, MooncakeTier
from kvcanon.external.redis_tier import RedisTier

IDENTITY = DiskIdentity({"weights": "1"})
LENGTH = 3000
Bytes = npt.NDArray[np.uint8]


def value_in(client: FakeRedis, key: bytes | str) -> bytes:
    """What a stand-in for Redis has under a key."""
    value = client.get(key)
    assert isinstance(value, bytes)
    return value


class ExternalTier(Protocol):
    """What both stores have."""

    figures: ExternalFigures

    def put(self, pages: list[PagePut]) -> list[bool]: ...
    def get(self, pages: list[PageGet]) -> list[int | None]: ...
    def leading_run(self, names: list[bytes]) -> int: ...
    def remove(self, names: list[bytes]) -> None: ...
    def statistics(self) -> ExternalFigures: ...
    def close(self) -> None: ...


class StandIn(Protocol):
    """A server that is none."""

    def open(self, identity: DiskIdentity, memory: Bytes) -> ExternalTier:
        """A client for it, which knows the memory."""

    def values(self) -> dict[str, bytes]:
        """What it has."""

    def set(self, key: str, value: bytes) -> None:
        """Put something else there."""

    def leave(self, *, gone: bool = True) -> None:
        """Let it be out of reach, or there again."""


@frozen(eq=False)
class RedisStandIn:
    """Redis in this process."""

    server: FakeServer = Factory(FakeServer)
    replies: dict[bytes, bytes] = Factory(dict)
    """What is answered to commands of these words."""
    timeout_seconds: float = 30.0

    def open(self, identity: DiskIdentity, memory: Bytes) -> RedisTier:
        client = socket_client(self.server, self.replies, timeout_seconds=self.timeout_seconds)
        return RedisTier(client, identity.fingerprint)

    def values(self) -> dict[str, bytes]:
        client = self._client()
        return {key.decode(): value_in(client, key) for key in client.scan_iter()}

    def set(self, key: str, value: bytes) -> None:
        self._client().set(key, value)

    def leave(self, *, gone: bool = True) -> None:
        self.server.connected = not gone

    def _client(self) -> FakeRedis:
        return FakeRedis(server=self.server)


@frozen(eq=False)
class MooncakeStandIn:
    """Mooncake in this process."""

    shared: MooncakeObjects = Factory(MooncakeObjects)
    most_copied_bytes: int = MOST_COPIED_BYTES

    def open(self, identity: DiskIdentity, memory: Bytes) -> ExternalTier:
        tier = MooncakeTier.over(
            FakeMooncake(self.shared), identity, most_copied_bytes=self.most_copied_bytes
        )
        tier.register(memory)
        return tier

    def values(self) -> dict[str, bytes]:
        return dict(self.shared.objects)

    def set(self, key: str, value: bytes) -> None:
        self.shared.objects[key] = value

    def leave(self, *, gone: bool = True) -> None:
        self.shared.providers_gone = gone


@define(eq=False)
class Pages:
    """A client with memory for pages, as an engine's host pool has it."""

    tier: ExternalTier
    memory: Bytes

    def put(self, numbers: range, *, elsewhere: bool = False) -> list[bool]:
        """Put pages from the memory, or from another."""
        puts = []
        for number in numbers:
            content = content_of(number, LENGTH)
            self.memory[number] = np.frombuffer(content, np.uint8)
            part = memoryview(content) if elsewhere else self.memory[number].data
            puts.append(PagePut(name_of(number), (part,)))
        return self.tier.put(puts)

    def get(self, numbers: range, *, elsewhere: bool = False) -> list[int]:
        """The pages that are given, each of which must have its own bytes."""
        self.memory[:] = 0
        rows = np.zeros_like(self.memory) if elsewhere else self.memory
        answers = self.tier.get([PageGet(name_of(each), (rows[each].data,)) for each in numbers])
        found = []
        for number, answer in zip(numbers, answers, strict=True):
            if answer is not None:
                assert (answer, rows[number].tobytes()) == (LENGTH, content_of(number, LENGTH))
                found.append(number)
        return found


def pages_of(stand_in: StandIn, identity: DiskIdentity = IDENTITY) -> Pages:
    """A client with memory for eight pages."""
    memory = np.zeros((8, LENGTH), np.uint8)
    return Pages(stand_in.open(identity, memory), memory)
