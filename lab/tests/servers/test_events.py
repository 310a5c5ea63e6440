"""Events of a server: they are waited for, and fold to the pages that are cached, or to faults."""

from __future__ import annotations

import time

import msgspec
import pytest
from attrs import define, field

from kvcanon.lab.servers import event_listener
from kvcanon.lab.servers.event_listener import QUIET_MS, EventListener
from kvcanon.lab.servers.folded_events import FoldedEvents, WireEvent
from kvcanon.spec.hashing import page_hashes, wire_id
from kvcanon.spec.types import CPU, GPU

TOKENS = tuple(range(20, 32))
HASHES = [
    wire_id(each) for each in page_hashes(b"", [TOKENS[at : at + 4] for at in range(0, 12, 4)])
]


def stored(hashes: list[int], medium: str = GPU) -> WireEvent:
    """A store event."""
    tokens = [0] * (4 * len(hashes))
    return {"type": "BlockStored", "block_hashes": hashes, "token_ids": tokens, "medium": medium}


def removed(hashes: list[int], medium: str = GPU) -> WireEvent:
    """A removal event."""
    return {"type": "BlockRemoved", "block_hashes": hashes, "medium": medium}


@define
class SlowSocket:
    """Gives each batch after so many polls without one."""

    batches: list[tuple[int, list[int]]]
    polls: list[int] = field(factory=list)
    number: int = -1
    empty: int = 0

    def poll(self, timeout: int) -> int:
        """Whether a batch is there."""
        self.polls.append(timeout)
        if self.batches and self.empty >= self.batches[0][0]:
            return 1
        self.empty += 1
        return 0

    def recv_multipart(self) -> list[bytes]:
        """The next batch, a store of pages; a clearing where it has none."""
        self.number, self.empty = self.number + 1, 0
        _, hashes = self.batches.pop(0)
        sent = stored(hashes) if hashes else {"type": "AllBlocksCleared"}
        payload = msgspec.msgpack.encode([0.0, [sent], 0])
        return [b"", self.number.to_bytes(8, "big"), payload]


def test_quiet_stream_ends_the_wait() -> None:
    """Where nothing is known of what was cached, the first quiet time is enough."""
    socket = SlowSocket([(0, HASHES[:1]), (1, HASHES[1:2])])
    folded = EventListener(socket, FoldedEvents(4)).settle()
    assert folded.resident() == (1, 0)
    assert socket.polls == [QUIET_MS, QUIET_MS]


def test_page_that_was_cached_is_waited_for() -> None:
    """Its event came after three quiet times."""
    socket = SlowSocket([(0, HASHES[:1]), (3, HASHES[1:2])])
    folded = EventListener(socket, FoldedEvents(4)).settle(TOKENS[:11])
    assert folded.resident() == (2, 0)


def test_page_that_left_again_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have been evicted at once."""
    monkeypatch.setattr(event_listener, "LATE_SECONDS", 0.02)
    socket, began = SlowSocket([(0, HASHES[:1])]), time.monotonic()
    assert EventListener(socket, FoldedEvents(4)).settle(TOKENS[:11]).resident() == (1, 0)
    assert time.monotonic() - began >= 0.02


def test_clearing_is_waited_for() -> None:
    """After a flush no page may be left; the event for it came after three quiet times."""
    socket = SlowSocket([(0, HASHES[:2]), (3, [])])
    assert EventListener(socket, FoldedEvents(4)).settle_cleared().resident() == (0, 0)
    assert not socket.batches


def test_silent_stream_is_not_waited_for() -> None:
    """A server without a cache sends no event at all."""
    socket = SlowSocket([])
    assert EventListener(socket, FoldedEvents(4)).settle(TOKENS[:11]).resident() == (0, 0)
    assert socket.polls == [QUIET_MS]


def folded(*batches: list[WireEvent]) -> FoldedEvents:
    """Fold batches of four-token pages."""
    made = FoldedEvents(4)
    for number, batch in enumerate(batches):
        made.fold(number, batch)
    return made


def test_stores_and_removals_leave_the_cached_pages() -> None:
    """A page is where it was stored last and not removed since."""
    made = folded([stored(HASHES), stored(HASHES[:2], CPU)], [removed(HASHES[1:])])
    assert (made.resident(), made.removed, made.faults) == ((1, 2), 2, [])
    assert made.overlap(TOKENS) == (1, 2)
    assert made.overlap(TOKENS[:7]) == (1, 1)


def test_clear_empties_every_medium() -> None:
    """After a flush nothing is cached."""
    made = folded([stored(HASHES), stored(HASHES, CPU)], [{"type": "AllBlocksCleared"}])
    assert (made.resident(), made.faults) == ((0, 0), [])


def test_page_that_was_stored_twice_is_removed_at_once() -> None:
    """Pages are a set, as a router keeps them."""
    made = folded([stored(HASHES[:1]), stored(HASHES[:1])], [removed(HASHES[:1])])
    assert (made.overlap(TOKENS), made.faults) == ((0, 0), [])


def test_pages_of_namespaces_may_share_a_hash_until_a_flush() -> None:
    """SGLang's hashes leave out `extra_key`, so the second removal of a hash is no fault there."""
    made = folded([stored(HASHES[:1])])
    made.mixed = True
    made.fold(1, [removed(HASHES[:1]), removed(HASHES[:1])])
    assert made.faults == []
    made.fold(2, [{"type": "AllBlocksCleared"}, removed(HASHES[:1])])
    assert made.faults == ["BlockRemoved of 1 pages that are not on GPU"]


def test_removal_of_an_absent_page_is_a_fault() -> None:
    """A page that was not stored on a medium cannot be removed from it."""
    made = folded([stored(HASHES[:1], CPU), removed(HASHES)])
    assert made.faults == ["BlockRemoved of 3 pages that are not on GPU"]


def test_lost_batch_unknown_medium_and_short_tokens_are_faults() -> None:
    """A gap in the sequence, a medium that nobody knows, and tokens that fill no page are said."""
    made = folded([])
    made.fold(2, [stored([5], "TAPE"), {**stored([5]), "token_ids": [1]}])
    assert made.faults == [
        "batch 2 came where 1 was due",
        "BlockStored names the medium 'TAPE'",
        "BlockStored has 1 tokens for 1 pages",
    ]
