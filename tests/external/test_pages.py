"""Pages in an external store: what comes back is what was put, or a miss."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from disk_pages import name_of
from external_pages import IDENTITY, LENGTH, MooncakeStandIn, RedisStandIn, StandIn, pages_of
from kvcanon.disk import DiskIdentity, PageGet
from kvcanon.external import ExternalFailed
from kvcanon.external.records import HEADER_BYTES, key_of


@pytest.fixture(params=["redis", "mooncake", "mooncake in place"])
def server(request: pytest.FixtureRequest) -> StandIn:
    """Each of the two servers; pages of Mooncake are copied, or move where they are."""
    if request.param == "redis":
        return RedisStandIn()
    return MooncakeStandIn(most_copied_bytes=LENGTH if request.param == "mooncake" else 0)


@pytest.mark.parametrize("elsewhere", [False, True], ids=["in place", "copied"])
def test_pages_come_back_for_another_process(server: StandIn, elsewhere: bool) -> None:
    """A second client of the same identity finds every page with its bytes."""
    assert pages_of(server).put(range(6), elsewhere=elsewhere) == [True] * 6
    other = pages_of(server)
    assert other.get(range(8), elsewhere=elsewhere) == [0, 1, 2, 3, 4, 5]
    assert other.tier.leading_run([name_of(each) for each in range(8)]) == 6
    figures = other.tier.statistics()
    assert (figures.read_pages, figures.missed_pages, figures.damaged_pages) == (6, 2, 0)


def test_another_identity_finds_nothing(server: StandIn) -> None:
    """Other weights, or another rank, have other keys."""
    pages_of(server).put(range(3))
    for other in (
        DiskIdentity({"weights": "2"}),
        DiskIdentity({"weights": "1"}, place="rank1of2"),
    ):
        pages = pages_of(server, other)
        assert pages.get(range(3)) == []
        assert pages.put(range(3)) == [True] * 3
    assert len(server.values()) == 9
    assert pages_of(server).get(range(3)) == [0, 1, 2]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "flipped": lambda value: value[:-5] + bytes([value[-5] ^ 1]) + value[-4:],
    "header flipped": lambda value: bytes([value[0] ^ 1]) + value[1:],
    "checksum flipped": lambda value: (
        value[: HEADER_BYTES - 1] + bytes([value[HEADER_BYTES - 1] ^ 1]) + value[HEADER_BYTES:]
    ),
    "half zero": lambda value: value[: len(value) // 2] + bytes(len(value) - len(value) // 2),
    "short": lambda value: value[:-1],
    "long": lambda value: value + b"x",
    "header alone": lambda value: value[:HEADER_BYTES],
    "foreign": lambda value: b"of somebody else",
    "empty": lambda value: b"",
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("elsewhere", [False, True], ids=["in place", "copied"])
def test_a_damaged_value_is_a_miss_and_is_written_again(
    server: StandIn, damage: str, elsewhere: bool
) -> None:
    """It is removed when it is read, so that the next put makes the page whole."""
    pages = pages_of(server)
    pages.put(range(4))
    key = key_of(IDENTITY.fingerprint, name_of(1))
    server.set(key, DAMAGE[damage](server.values()[key]))
    assert pages.get(range(4), elsewhere=elsewhere) == [0, 2, 3]
    assert key not in server.values()
    assert pages.tier.statistics().damaged_pages == 1
    assert pages.put(range(4)) == [True] * 4
    assert pages.get(range(4)) == [0, 1, 2, 3]


def test_a_page_under_the_name_of_another_is_a_miss(server: StandIn) -> None:
    """A whole value with another page's name, or of another identity, proves to be neither."""
    pages, other = pages_of(server), pages_of(server, DiskIdentity({"weights": "2"}))
    pages.put(range(3))
    other.put(range(3))
    keys = [key_of(IDENTITY.fingerprint, name_of(each)) for each in range(3)]
    theirs = key_of(DiskIdentity({"weights": "2"}).fingerprint, name_of(2))
    server.set(keys[0], server.values()[keys[1]])
    server.set(keys[2], server.values()[theirs])
    assert pages.get(range(3)) == [1]


def test_a_page_of_another_length_is_a_miss(server: StandIn) -> None:
    """A buffer that does not fit the page is not filled in part."""
    pages = pages_of(server)
    pages.put(range(1))
    short = pages.memory[3, : LENGTH - 8].data
    assert pages.tier.get([PageGet(name_of(0), (short,))]) == [None]


def test_pages_in_parts_are_one_value(server: StandIn) -> None:
    """Keys and values of a page that lie apart are stored together: both are there, or neither."""
    pages = pages_of(server)
    pages.put(range(1))
    halves = (pages.memory[5, 100:].data, pages.memory[6, :100].data)
    assert pages.tier.get([PageGet(name_of(0), halves)]) == [LENGTH]
    joined = bytes(halves[0]) + bytes(halves[1])
    assert pages.get(range(1)) == [0]
    assert joined == pages.memory[0].tobytes()


def test_a_put_of_a_page_that_is_there_sends_nothing(server: StandIn) -> None:
    """Two servers of one model compute the same pages; the second keeps what is there."""
    pages_of(server).put(range(3))
    before = server.values()
    again = pages_of(server)
    assert again.put(range(4)) == [True] * 4
    assert {key: server.values()[key] for key in before} == before
    if isinstance(server, RedisStandIn):
        assert (again.tier.figures.kept_pages, again.tier.figures.written_pages) == (3, 1)


def test_a_removed_page_is_gone(server: StandIn) -> None:
    """And nothing else is."""
    pages = pages_of(server)
    pages.put(range(3))
    pages.tier.remove([name_of(1), name_of(7)])
    assert pages.get(range(3)) == [0, 2]
    assert pages.tier.leading_run([name_of(each) for each in range(3)]) == 1


def test_nothing_is_asked_for_no_pages(server: StandIn) -> None:
    """Empty batches have empty answers, also where the server is gone."""
    pages = pages_of(server)
    server.leave()
    assert (pages.tier.put([]), pages.tier.get([]), pages.tier.leading_run([])) == ([], [], 0)


def test_a_server_out_of_reach_is_said_so(server: StandIn) -> None:
    """A call raises, so that its caller leaves the server alone; it is used when it is back."""
    pages = pages_of(server)
    pages.put(range(3))
    server.leave()
    with pytest.raises(ExternalFailed):
        pages.get(range(3))
    with pytest.raises(ExternalFailed):
        pages.put(range(4, 6))
    server.leave(gone=False)
    assert pages.get(range(3)) == [0, 1, 2]
