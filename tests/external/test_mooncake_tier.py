"""What Mooncake's codes mean, and which memory its client knows."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import numpy as np
import pytest

from disk_pages import name_of
from external_pages import IDENTITY, LENGTH, MooncakeStandIn, Pages, pages_of
from fakes.mooncake_client import FakeMooncake
from fast.copies import PATIENCE_S
from kvcanon.disk import PageGet, PagePut
from kvcanon.external import ExternalFailed, mooncake_tier, registered_memory
from kvcanon.external.mooncake_tier import MooncakeTier
from kvcanon.external.records import key_of


def test_pages_beyond_the_room_are_refused() -> None:
    """A store without room is no failure: the pages before are stored, and say so."""
    server = MooncakeStandIn()
    server.shared.most_objects = 2
    pages = pages_of(server)
    assert pages.put(range(4)) == [True, True, False, False]
    assert pages.put(range(2, 4)) == [False, False]
    assert pages.tier.statistics().refused_pages == 4


def test_an_object_that_another_call_has_begun_is_not_said_to_be_there() -> None:
    """The client answers a put of such an object as one of an object that is there."""
    server = MooncakeStandIn()
    pages = pages_of(server)
    server.shared.begun.add(key_of(IDENTITY.fingerprint, name_of(1)))
    assert pages.put(range(3)) == [True, False, True]
    server.shared.begun.clear()
    assert pages.put(range(3)) == [True, True, True]


def test_a_master_that_is_gone_fails_a_call() -> None:
    """So does one that cannot say how long an object is."""
    server = MooncakeStandIn()
    pages = pages_of(server)
    pages.put(range(2))
    server.shared.master_gone = True
    with pytest.raises(ExternalFailed, match="out of reach"):
        pages.get(range(2))
    with pytest.raises(ExternalFailed, match="code -900"):
        pages.put(range(3, 4))


def test_a_provider_that_is_gone_spoils_no_other_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where some pages of a batch can be read, the others are misses, and are not removed."""
    server = MooncakeStandIn()
    pages = pages_of(server)
    pages.put(range(3))
    get = FakeMooncake._get_into

    def partly(client: FakeMooncake, key: str, pointers: list[int], sizes: list[int]) -> int:
        client.shared.providers_gone = key.endswith(name_of(1).hex())
        return get(client, key, pointers, sizes)

    monkeypatch.setattr(FakeMooncake, "_get_into", partly)
    assert pages.get(range(3)) == [0, 2]
    assert len(server.values()) == 3
    assert pages.tier.statistics().damaged_pages == 0


def test_a_provider_that_is_gone_is_not_waited_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that could not reach pages of one call is not asked for those of the next."""
    monkeypatch.setattr(mooncake_tier, "GET_BYTES", 2 * LENGTH)
    server = MooncakeStandIn()
    pages = pages_of(server)
    pages.put(range(6))
    get, asked = FakeMooncake._get_into, []

    def partly(client: FakeMooncake, key: str, pointers: list[int], sizes: list[int]) -> int:
        asked.append(key)
        client.shared.providers_gone = key.endswith(name_of(2).hex())
        return get(client, key, pointers, sizes)

    monkeypatch.setattr(FakeMooncake, "_get_into", partly)
    assert pages.get(range(6)) == [0, 1, 3]
    assert len(asked) == 4
    assert len(server.values()) == 6


def test_small_pages_are_copied_and_large_ones_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both come back from one call, each by its way; so do pages elsewhere."""
    server = MooncakeStandIn(most_copied_bytes=LENGTH - 1)
    pages = pages_of(server)
    ways: list[tuple[str, int]] = []
    for way in (
        *("batch_put_from", "batch_put_from_multi_buffers"),
        *("batch_get_into", "batch_get_into_multi_buffers"),
    ):
        monkeypatch.setattr(FakeMooncake, way, noted(getattr(FakeMooncake, way), way, ways))
    other = bytearray(LENGTH)
    parts = [
        pages.memory[0].data,
        pages.memory[1, 1:].data,
        memoryview(other),
        pages.memory[3].data,
    ]
    for at, part in enumerate(parts):
        part[:] = bytes([at + 1]) * len(part)
    assert all(pages.tier.put([PagePut(name_of(at), (part,)) for at, part in enumerate(parts)]))
    pages.memory[:], other[:] = 0, bytes(LENGTH)
    gets = [PageGet(name_of(at), (part,)) for at, part in enumerate(parts)]
    assert pages.tier.get(gets) == [len(part) for part in parts]
    assert [set(part) for part in parts] == [{1}, {2}, {3}, {4}]
    assert [each for each in ways if each[1]] == [
        ("batch_put_from", 2),
        ("batch_put_from_multi_buffers", 2),
        ("batch_get_into_multi_buffers", 2),
        ("batch_get_into", 2),
    ]


def noted(
    call: Callable[..., list[int]], way: str, ways: list[tuple[str, int]]
) -> Callable[..., list[int]]:
    """A call of a client that says how many objects it moved by which way."""

    def moved(client: FakeMooncake, keys: list[str], *places: object) -> list[int]:
        ways.append((way, len(keys)))
        return call(client, keys, *places)

    return moved


def test_memory_is_registered_once_and_forgotten_at_the_end() -> None:
    """Memory that cannot be registered is said so; calls have memory of their own, used again."""
    client = FakeMooncake()
    tier, memory = MooncakeTier.over(client, IDENTITY), np.zeros((8, LENGTH), np.uint8)
    tier.register(memory)
    with pytest.raises(ExternalFailed, match="does not register 24000 bytes: code -600"):
        tier.register(memory)
    pages = Pages(tier, memory)
    for _ in range(3):
        pages.put(range(8))
        assert len(pages.get(range(8))) == 8
    assert len(client.known) == 2
    tier.close()
    assert client.known == {}


def test_memory_that_was_not_registered_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call without memory fails; the next one has memory that the client knows."""
    server = MooncakeStandIn()
    pages = pages_of(server)
    with monkeypatch.context() as patched:
        patched.setattr(FakeMooncake, "register_buffer", lambda *_: -1)
        with pytest.raises(ExternalFailed, match="does not register"):
            pages.put(range(2))
    assert pages.put(range(2)) == [True, True]
    assert pages.get(range(2)) == [0, 1]
    pages.tier.close()


@pytest.mark.parametrize("most_copied_bytes", [0, LENGTH])
def test_memory_for_very_much_is_not_kept(
    monkeypatch: pytest.MonkeyPatch, most_copied_bytes: int
) -> None:
    """A block that is larger than others is forgotten after its call; smaller ones are used."""
    monkeypatch.setattr(registered_memory, "BLOCK_BYTES", 100)
    monkeypatch.setattr(registered_memory, "KEPT_BYTES", 400)
    client = FakeMooncake()
    tier = MooncakeTier.over(client, IDENTITY, most_copied_bytes=most_copied_bytes)
    memory = np.zeros((300, 8), np.uint8)
    tier.register(memory)
    gets = [PageGet(name_of(each), (memory[each].data,)) for each in range(len(memory))]
    assert tier.get(gets) == [None] * len(gets)
    assert list(client.known.values()) == [memory.nbytes]
    assert tier.get(gets[:3]) == [None] * 3
    assert len(client.known) == 2


def test_memory_of_a_call_that_does_not_return_stays_registered(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A client that may still write to it does not forget it; nor does another call get it."""
    client, begun, may_go_on = FakeMooncake(), threading.Event(), threading.Event()
    tier, memory = MooncakeTier.over(client, IDENTITY), np.zeros((8, LENGTH), np.uint8)
    tier.register(memory)
    Pages(tier, memory).put(range(2))
    get = client.batch_get_into
    places: list[int] = []

    def slow(keys: list[str], pointers: list[int], sizes: list[int], /) -> list[int]:
        places.append(pointers[0])
        if len(places) == 1:
            begun.set()
            may_go_on.wait(PATIENCE_S)
        return get(keys, pointers, sizes)

    monkeypatch.setattr(FakeMooncake, "batch_get_into", lambda _, *a: slow(*a))
    late = threading.Thread(target=lambda: Pages(tier, memory).get(range(2)), daemon=True)
    late.start()
    try:
        assert begun.wait(PATIENCE_S)
        Pages(tier, memory).get(range(2))
        assert places[0] != places[1]
        with caplog.at_level(logging.WARNING):
            tier.close()
        assert "has not answered 1 calls" in caplog.text
        assert len(client.known) == 3
    finally:
        may_go_on.set()
        late.join()
    tier.close()
    assert client.known == {}
