"""The requests that a report shows: they show what they tell of each time, not by luck."""

from __future__ import annotations

import pytest
from attrs import evolve, mutable

from kvcanon.conformance.probe.findings import ProbeFault, ProbeFinding
from kvcanon.conformance.probe.reduction import CONFIRMATIONS, OtherClients, Reducer, ShownFinding
from kvcanon.conformance.probe.request_judge import JudgedAgainst
from kvcanon.conformance.probe.talk import Leaves, ProbeReply, ProbeRequest, SentRequest
from probing import FACTS, PAGE, SPACE, QuietApi, player_of, scored

GOES_ON = ProbeRequest("goes on", tuple(range(40)), 4, SPACE, overlaps=5)
FILLERS = [
    ProbeRequest(f"filler {at}", tuple(range(100 * at, 100 * at + 40)), 1, SPACE)
    for at in range(1, 5)
]
LAST = ProbeRequest("last", tuple(range(900, 940)), 1, SPACE)
RIGHT, WRONG = scored((1, -0.1, 2, -9.0)), scored((2, -0.1, 1, -0.1))


@mutable
class LuckyApi(QuietApi):
    """Answers the last request wrongly after all fillers, and after fewer every second time."""

    first_shows: int = 0
    """Plays of all requests before one of them shows it."""
    plays: int = 0
    fillers: int = 0
    few: int = 0

    def generate(self, request: ProbeRequest, leaves: Leaves | None = None) -> ProbeReply:
        """The reply."""
        if leaves is not None and request.name == GOES_ON.name:
            for came in range(1, request.count + 1):
                leaves(came)
            return ProbeReply((1,) * request.count, 0)
        if request.name != LAST.name:
            self.fillers += 1
            return RIGHT
        fillers, self.fillers = self.fillers, 0
        if fillers == len(FILLERS):
            self.plays += 1
            return WRONG if self.plays > self.first_shows else RIGHT
        self.few += 1
        return WRONG if self.few % 2 else RIGHT


def reduced(api: LuckyApi, goes_on: ProbeRequest = GOES_ON) -> ShownFinding:
    """What is shown of a wrong reply to the last request."""
    by = JudgedAgainst(FACTS, PAGE, 1.0, truths={(LAST.tokens, ""): RIGHT})
    sent = [SentRequest(each, RIGHT, "together") for each in (goes_on, *FILLERS)]
    sent.append(SentRequest(LAST, WRONG, "together"))
    finding = ProbeFinding(ProbeFault.TOKENS, "other tokens", "together", at=len(sent) - 1)
    return Reducer(player_of(api), by).reduce(sent, finding)


def test_fewer_requests_must_show_a_matter_of_timing_each_time() -> None:
    """What shows every second time is not what is reported."""
    api = LuckyApi()
    shown = reduced(api)
    assert shown.repeated
    assert [each.request.name for each in shown.requests] == [
        "goes on",
        *(each.name for each in FILLERS),
        "last",
    ]
    assert api.few > 1


def test_requests_that_do_not_overlap_are_confirmed_once() -> None:
    """Nothing is left to timing, and the fewest requests are shown."""
    shown = reduced(LuckyApi(), evolve(GOES_ON, overlaps=0))
    assert shown.repeated
    assert len(shown.requests) < 2 + len(FILLERS)


@pytest.mark.parametrize(
    ("misses", "repeated"), [(CONFIRMATIONS - 1, True), (CONFIRMATIONS, False)]
)
def test_matter_of_timing_is_tried_again(misses: int, repeated: bool) -> None:
    """A finding that does not come again at once is tried a few times."""
    assert reduced(LuckyApi(first_shows=misses)).repeated is repeated


def test_witness_has_tokens_that_the_model_has() -> None:
    """It is drawn of those of the prompt that it is sent before: a vocabulary may be small."""
    asked: list[ProbeRequest] = []

    class Asked(LuckyApi):
        def generate(self, request: ProbeRequest, leaves: Leaves | None = None) -> ProbeReply:
            asked.append(request)
            return super().generate(request, leaves)

    finding = ProbeFinding(ProbeFault.TOO_FEW, "too few", "repeats", at=2, since=1)
    others = OtherClients(player_of(Asked()), finding, PAGE)
    for at, each in enumerate((GOES_ON, FILLERS[0], FILLERS[0])):
        others.before(at, each)
    (witness,) = asked
    assert len(witness.tokens) > 12
    assert set(witness.tokens) <= set(FILLERS[0].tokens)
