"""Agreement of two caches: exact, and folded to what events and copies come to."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import frozen

from kvcanon.conformance import Adapter, JudgeConfig, draw_case, play
from kvcanon.conformance.judge.agreement import Recorder, first_difference, folded_events
from kvcanon.conformance.protocol.cache_names import REFERENCE
from kvcanon.reference import ReferenceCache
from kvcanon.spec.events import AllBlocksCleared, BlockRemoved, BlockStored, Event
from kvcanon.spec.operations import Inserted, LoadDecision, LoadedBack, Matched, Settled
from kvcanon.spec.transfer import Completion, TransferStatus
from kvcanon.spec.types import CPU, GPU, Counts, Key, Slots
from kvcanon.spec.views import PageNumbers

KEY = Key(((1,), (2,)))
OLD, NEW = b"old", b"new"
STORED = BlockStored(NEW, None, (1,), GPU)
ELSEWHERE = BlockStored(OLD, None, (2,), CPU)
GONE = BlockRemoved(OLD, GPU)


@frozen(eq=False)
class Answers:
    """A cache that answers this, without a state."""

    events: tuple[Event, ...] = ()
    transfers: tuple[int, ...] = ()
    counts: Counts = Counts(full=2)

    def take_events(self) -> tuple[Event, ...]:
        """The events."""
        return self.events

    def poll(self) -> Settled:
        """Every transfer is done."""
        return Settled(tuple((each, TransferStatus.DONE) for each in self.transfers))

    def settle(self, _completions: object) -> Settled:
        """What it is asked for is done."""
        return self.poll()

    def insert(self, *_given: object, **_named: object) -> Inserted:
        """An insert that enqueued the transfers."""
        return Inserted(0, self.counts, Counts(), self.transfers)

    def load_back(self, *_given: object, **_named: object) -> LoadedBack:
        """A load in the first of the transfers."""
        return LoadedBack(LoadDecision.ENQUEUED, self.transfers[0], self.counts)

    def match(self, _key: Key) -> Matched:
        """A match that waits for the transfers."""
        return Matched(2, 2, Slots(full=(0, 1)), self.transfers)


def differs(ours: Answers, theirs: Answers, *, folding: bool) -> str | None:
    """What differs first, of the answers to the same calls."""

    def played(answering: Any) -> Recorder:  # noqa: ANN401 # It has no more than the answers.
        recorder = Recorder(answering, folding=folding)
        recorder.take_events()
        recorder.insert(KEY, 0, Slots(full=(0, 1)))
        recorder.poll()
        if answering.transfers:
            recorder.settle([Completion(each, ok=True) for each in answering.transfers])
            recorder.match(KEY)
            recorder.load_back(KEY)
        return recorder

    difference = first_difference(played(ours), played(theirs), PageNumbers())
    return None if difference is None else difference.what


@pytest.mark.parametrize(
    ("events", "folded"),
    [
        ((), {}),
        ((STORED, GONE), {"6e6577 on GPU": STORED, "6f6c64 on GPU": GONE}),
        ((GONE, STORED), {"6e6577 on GPU": STORED, "6f6c64 on GPU": GONE}),
        # It came and went again; it went and came again.
        ((STORED, BlockRemoved(NEW, GPU)), {}),
        ((BlockRemoved(NEW, GPU), STORED), {"6e6577 on GPU": STORED}),
        ((ELSEWHERE, GONE), {"6f6c64 on CPU_PINNED": ELSEWHERE, "6f6c64 on GPU": GONE}),
        (
            (GONE, AllBlocksCleared(), STORED),
            {"cleared": AllBlocksCleared(), "6e6577 on GPU": STORED},
        ),
    ],
)
def test_events_are_folded_to_what_a_router_knows(
    events: tuple[Event, ...], folded: dict[str, Event]
) -> None:
    """The last event of each page on each medium counts, with all that it says."""
    assert folded_events(events) == folded


def test_order_of_events_is_compared_unless_they_are_folded() -> None:
    """What they come to is always compared."""
    ours = Answers(events=(STORED, GONE))
    assert differs(ours, Answers(events=(GONE, STORED)), folding=False) == "takeevents"
    assert differs(ours, Answers(events=(GONE, STORED)), folding=True) is None
    assert differs(ours, Answers(events=(STORED,)), folding=True) == "takeevents"
    other = BlockStored(NEW, OLD, (1,), GPU)
    assert differs(ours, Answers(events=(other, GONE)), folding=True) == "takeevents"


def test_number_of_transfers_is_compared_unless_folded() -> None:
    """What a call says besides is always compared."""
    ours = Answers(transfers=(3, 4))
    assert differs(ours, Answers(transfers=(8, 9)), folding=False) is None
    assert differs(ours, Answers(transfers=(8,)), folding=False) == "insert"
    assert differs(ours, Answers(transfers=(8,)), folding=True) is None
    fewer = Answers(transfers=(8,), counts=Counts(full=1))
    assert differs(ours, fewer, folding=True) == "insert"


class ByPage(ReferenceCache):
    """A cache whose events are in the order of their pages, between two clearings."""

    def take_events(self) -> tuple[Event, ...]:
        cleared = 0

        def place(event: Event) -> tuple[int, bytes]:
            nonlocal cleared
            if isinstance(event, AllBlocksCleared):
                cleared += 1
                return cleared, b""
            return cleared, event.block_hash

        events = super().take_events()
        places = [place(event) for event in events]
        return tuple(events[at] for at in sorted(range(len(events)), key=places.__getitem__))


@pytest.mark.parametrize("folded", [False, True])
def test_an_adapter_says_whether_it_is_compared_folded(*, folded: bool) -> None:
    """In another order are the events of most cases; they come to the same in all."""
    ordered = Adapter("by page", ByPage, compared_folded=folded)
    differing = 0
    for seed in range(12):
        case = draw_case(seed=seed, offer=REFERENCE.offer)
        found, _ = play(case, [REFERENCE], JudgeConfig(laws=()), ordered)
        assert {each.name for each in found} <= {"takeevents"}
        differing += bool(found)
    assert differing == 0 if folded else differing > 5
