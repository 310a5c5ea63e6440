"""Events of an idle server are waited for, since those of a cached page can come late."""

from __future__ import annotations

import time

import msgspec
import pytest
from attrs import define, field

from kvcanon.lab.servers import event_listener
from kvcanon.lab.servers.event_listener import QUIET_MS, EventListener
from kvcanon.lab.servers.folded_events import FoldedEvents
from kvcanon.spec.hashing import page_hashes, wire_id

TOKENS = tuple(range(30, 41))
HASHES = [wire_id(each) for each in page_hashes(b"", [TOKENS[:4], TOKENS[4:8]])]


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
        tokens = [0] * (4 * len(hashes))
        event = {"type": "BlockStored", "block_hashes": hashes, "token_ids": tokens}
        cleared = {"type": "AllBlocksCleared"}
        sent = event | {"medium": "GPU"} if hashes else cleared
        payload = msgspec.msgpack.encode([0.0, [sent], 0])
        return [b"", self.number.to_bytes(8, "big"), payload]


def test_quiet_stream_ends_the_wait() -> None:
    """Where nothing is known of what was cached, the first quiet time is enough."""
    socket = SlowSocket([(0, HASHES[:1]), (1, HASHES[1:])])
    folded = EventListener(socket, FoldedEvents(4)).settle()
    assert folded.resident() == (1, 0)
    assert socket.polls == [QUIET_MS, QUIET_MS]


def test_page_that_was_cached_is_waited_for() -> None:
    """Its event came after three quiet times."""
    socket = SlowSocket([(0, HASHES[:1]), (3, HASHES[1:])])
    folded = EventListener(socket, FoldedEvents(4)).settle(TOKENS)
    assert folded.resident() == (2, 0)


def test_page_that_left_again_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have been evicted at once."""
    monkeypatch.setattr(event_listener, "LATE_SECONDS", 0.02)
    socket, began = SlowSocket([(0, HASHES[:1])]), time.monotonic()
    assert EventListener(socket, FoldedEvents(4)).settle(TOKENS).resident() == (1, 0)
    assert time.monotonic() - began >= 0.02


def test_clearing_is_waited_for() -> None:
    """After a flush no page may be left; the event for it came after three quiet times."""
    socket = SlowSocket([(0, HASHES), (3, [])])
    assert EventListener(socket, FoldedEvents(4)).settle_cleared().resident() == (0, 0)
    assert not socket.batches


def test_silent_stream_is_not_waited_for() -> None:
    """A server without a cache sends no event at all."""
    socket = SlowSocket([])
    assert EventListener(socket, FoldedEvents(4)).settle(TOKENS).resident() == (0, 0)
    assert socket.polls == [QUIET_MS]
