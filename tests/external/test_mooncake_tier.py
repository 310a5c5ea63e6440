"""What Mooncake's codes mean, and which memory its client knows."""

from __future__ import annotations

import logging
import threading

import numpy as np
import pytest

from disk_pages import name_of
from external_pages import IDENTITY, LENGTH, MooncakeStandIn, Pages, pages_of
from fakes.mooncake_client import FakeMooncake, MooncakeObjects
from fast.copies import PATIENCE_S
from kvcanon.disk import PageGet
from kvcanon.external import ExternalFailed
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


def test_memory_is_registered_once_and_forgotten_at_the_end() -> None:
    """Memory that cannot be registered is said so; headers have memory of their own, used again."""
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


def test_more_pages_than_usual_have_headers_too() -> None:
    """A batch of small pages is larger than the usual block of headers."""
    client, count = FakeMooncake(MooncakeObjects(most_objects=1 << 20)), 300
    tier, memory = MooncakeTier.over(client, IDENTITY), np.zeros((count, 8), np.uint8)
    tier.register(memory)
    gets = [PageGet(name_of(each), (memory[each].data,)) for each in range(count)]
    assert tier.get(gets) == [None] * count


def test_memory_of_a_call_that_does_not_return_stays_registered(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A client that may still write to it does not forget it; nor does another call get it."""
    client, begun, may_go_on = FakeMooncake(), threading.Event(), threading.Event()
    tier, memory = MooncakeTier.over(client, IDENTITY), np.zeros((8, LENGTH), np.uint8)
    tier.register(memory)
    Pages(tier, memory).put(range(2))
    get = client.batch_get_into_multi_buffers
    places: list[int] = []

    def slow(keys: list[str], pointers: list[list[int]], sizes: list[list[int]], /) -> list[int]:
        places.append(pointers[0][0])
        if len(places) == 1:
            begun.set()
            may_go_on.wait(PATIENCE_S)
        return get(keys, pointers, sizes)

    monkeypatch.setattr(FakeMooncake, "batch_get_into_multi_buffers", lambda _, *a: slow(*a))
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
