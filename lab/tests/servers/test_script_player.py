"""The script begins where its events are heard, whatever the server sent before."""

from __future__ import annotations

import msgspec
import pytest
from attrs import define

from kvcanon.lab.servers import script_player
from kvcanon.lab.servers.event_listener import EventListener
from kvcanon.lab.servers.folded_events import FoldedEvents
from kvcanon.lab.servers.script_player import TRIES, RoundPlayer


@define
class LateSocket:
    """Hears nothing of the first flushes, as a socket that its publisher does not know yet."""

    deaf: int
    flushes: int = 0
    heard: int = 0

    def flush(self, port: int) -> None:
        """What a flush of the server publishes."""
        assert port == 1
        self.flushes += 1

    def poll(self, timeout: int) -> int:
        """Whether a batch is there that was not read."""
        assert timeout > 0
        return int(self.flushes > max(self.deaf, self.heard))

    def recv_multipart(self) -> list[bytes]:
        """The batch of the last flush."""
        self.heard = self.flushes
        payload = msgspec.msgpack.encode([0.0, [{"type": "AllBlocksCleared"}], 0])
        return [b"", self.flushes.to_bytes(8, "big"), payload]


@pytest.mark.parametrize(("deaf", "flushes"), [(0, 1), (3, 4), (99, TRIES)])
def test_flushes_go_on_until_one_is_heard(
    deaf: int, flushes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server whose events never come is played to all the same: the verdict says what lacks."""
    socket = LateSocket(deaf)
    monkeypatch.setattr(script_player, "flush", socket.flush)
    listener = EventListener(socket, FoldedEvents(4))
    RoundPlayer(1, listener).await_events()
    assert socket.flushes == flushes
    assert listener.folded.faults == []
