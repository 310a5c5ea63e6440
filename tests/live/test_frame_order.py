"""Frames in order: what a replay gives, then what was held, and each gap asked for once."""

from __future__ import annotations

import pytest

from kvcanon.live.frame_order import FrameOrder
from kvcanon.live.frames import Frame
from sent_events import batch


def payload(number: int, run: int = 1) -> bytes:
    """The batch of a number, by the publisher of a run."""
    return batch(number, at=float(run))


def live(number: int, run: int = 1) -> Frame:
    """A batch as it arrives."""
    return Frame(0, b"kv", number, payload(number, run), 1.0)


def ask(order: FrameOrder, kept: range, run: int = 1) -> list[Frame]:
    """Ask a publisher for a replay; it answers with what it has of it."""
    order.asked()
    return answered(order, kept, run)


def answered(order: FrameOrder, kept: range, run: int = 1) -> list[Frame]:
    """The answer to a replay, and what was held until then; read as the subscriber reads it."""
    wanted = order.wanted
    assert wanted is not None
    given = list[Frame]()
    for number in kept[wanted:]:
        given += order.give(number, payload(number, run), 2.0)
        if order.wanted != wanted:
            return given + ask(order, kept, run)
        if order.has_reached(number):
            break
    given += order.end(answered=True)
    return given


def numbers(frames: list[Frame]) -> list[int]:
    """The numbers of frames."""
    return [each.sequence for each in frames]


def missing(frames: list[Frame]) -> list[range]:
    """The gaps that frames are placed after."""
    return [each.placed.missing for each in frames if each.placed and each.placed.missing]


def test_what_a_replay_was_too_early_for_is_asked_for_again() -> None:
    """Batches sent after the replay, and before the subscription was in effect, are not lost."""
    order = FrameOrder(can_ask=True)
    order.joined()
    order.asked()
    assert not list(order.take(live(5)))
    assert numbers(answered(order, range(3))) == [0, 1, 2]
    assert order.wanted == 2
    filled = ask(order, range(6))
    assert numbers(filled) == [3, 4, 5]
    assert not missing(filled)
    assert numbers(list(order.take(live(6)))) == [6]


def test_what_a_replay_asked_for_in_time_lacks_is_a_gap() -> None:
    """The publisher does not have it: nobody is asked again, and the gap is shown."""
    order = FrameOrder(can_ask=True)
    order.joined()
    assert not list(order.take(live(5)))
    given = ask(order, range(3))
    assert numbers(given) == [0, 1, 2, 5]
    assert missing(given) == [range(3, 5)]
    assert order.wanted is None


@pytest.mark.parametrize("replayed", [0, 2])
def test_a_replay_that_stops_leaves_a_gap(replayed: int) -> None:
    """Its publisher was killed, say: what was held goes on after the gap."""
    order = FrameOrder(can_ask=True)
    order.joined()
    order.asked()
    assert not list(order.take(live(5)))
    given = [frame for each in range(replayed) for frame in order.give(each, payload(each), 2.0)]
    given += order.end(answered=False)
    assert (numbers(given), missing(given)) == ([*range(replayed), 5], [range(replayed, 5)])
    assert order.wanted is None


@pytest.mark.parametrize("seen", [1, 2, 4, 9])
def test_another_publisher_is_given_from_its_first_batch_on(seen: int) -> None:
    """However many batches of the one before were seen, and whether this one has as many."""
    order = FrameOrder(can_ask=True)
    for number in range(seen):
        assert numbers(list(order.take(live(number)))) == [number]
    order.joined()
    assert not list(order.take(live(5, run=2)))
    given = ask(order, range(6), run=2)
    if order.wanted is not None:
        # The first replay had nothing of so high a number.
        given += ask(order, range(6), run=2)
    assert numbers(given) == list(range(6))
    assert [each.anew for each in given] == [True] + [False] * 5
    assert not missing(given)
