"""The stream beside a probe: what is late is no difference between stream and answers."""

from __future__ import annotations

import time

import pytest
from attrs import define, field

from kvcanon.conformance.probe import beside
from kvcanon.conformance.probe.beside import StreamBeside
from kvcanon.conformance.probe.findings import ProbeFault
from kvcanon.conformance.probe.talk import (
    EngineFacts,
    ProbeReply,
    ProbeRequest,
    PromptSpace,
    SentRequest,
)
from kvcanon.live.follower import Follower, FollowerConfig
from kvcanon.live.frames import Frame
from sent_events import CLEARED, batch, store

FACTS = EngineFacts("sglang", window=0)
PROMPT = (10, 11, 12, 13, 20, 21, 22, 23, 30)
"""A prompt whose first two pages of four tokens are stored."""


@define
class SlowSubscriber:
    """Gives each frame to whoever waits for so long; `waited` has how long each call would."""

    frames: list[tuple[float, Frame]] = field(factory=list)
    waited: list[float] = field(factory=list)

    def receive(self, seconds: float) -> list[Frame]:
        """The frames that come within this time."""
        self.waited.append(seconds)
        came = [frame for after, frame in self.frames if after <= seconds]
        self.frames = [each for each in self.frames if each[0] > seconds]
        return came


def frame(sequence: int, sent: float, *events: object) -> Frame:
    """A batch of events, sent at a time."""
    return Frame(0, b"", sequence, batch(*events, at=sent), sent)


def stream(slow: SlowSubscriber) -> StreamBeside:
    """A stream that has told of another prompt so far."""
    slow.frames.append((0.0, frame(0, time.time() - 9, CLEARED, store((90, 100)))))
    made = StreamBeside(slow, Follower(0, FollowerConfig(finding_prompts=True)), None)  # type: ignore[arg-type]
    made.settle("before")
    return made


def hit(made: StreamBeside, began: float) -> bool:
    """Serve the prompt with its two pages from the cache, and compare."""
    request = ProbeRequest("again", PROMPT, 1, PromptSpace(""))
    sent = SentRequest(request, ProbeReply((1,), 8), "repeats", began)
    return made.compare(made.promise(request), request, sent, FACTS)


def test_events_that_come_late_accuse_nobody() -> None:
    """A publisher that gets no processor for a second is waited for, and not compared."""
    slow = SlowSubscriber()
    made, began = stream(slow), time.time()
    slow.frames.append((1.0, frame(1, began - 1, store((10, 20)))))
    assert not hit(made, began)
    assert (made.found, made.late, made.sums.requests) == ([], 1, 0)
    # Now the stream promises what is served.
    assert hit(made, time.time())
    assert (made.found, made.late, made.sums.requests) == ([], 1, 1)


def test_a_difference_that_stays_is_found_after_one_wait() -> None:
    """What no event explains is a finding; the stream is not waited for a second time."""
    slow = SlowSubscriber()
    made = stream(slow)
    assert all(hit(made, time.time()) for _ in range(3))
    assert [each.fault for each in made.found] == [ProbeFault.UNPROMISED] * 3
    assert slow.waited.count(beside.LATE_SECONDS) == 1


def test_events_of_the_request_itself_explain_nothing() -> None:
    """A store that is sent after the request began does not make the promise late."""
    slow = SlowSubscriber()
    made, began = stream(slow), time.time()
    slow.frames.append((1.0, frame(1, began + 0.01, store((10, 20)))))
    assert hit(made, began)
    assert [each.fault for each in made.found] == [ProbeFault.UNPROMISED]


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait as a probe does, whatever other tests set."""
    monkeypatch.setattr(beside, "QUIET_SECONDS", 0.05)
