"""Folding: the residency after a stream of events, compared with a naive fold."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kvcanon.spec.events import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    Event,
    Residency,
    Resident,
    fold_events,
)
from kvcanon.spec.oracle.folding import fold_page
from kvcanon.spec.types import CPU, GPU

NAMES = (b"a", b"b", b"c")
MEDIA = (GPU, CPU)
EVERYTHING = [(medium, name) for medium in MEDIA for name in NAMES]

events = st.one_of(
    st.builds(
        BlockStored, st.sampled_from(NAMES), st.none(), st.just((1,)), st.sampled_from(MEDIA)
    ),
    st.builds(BlockRemoved, st.sampled_from(NAMES), st.sampled_from(MEDIA)),
    st.just(AllBlocksCleared()),
)
streams = st.lists(events, max_size=12)


def naive(stream: list[Event], start: set[Resident] | None = None) -> set[Resident]:
    """Applies one event after another to a set."""
    there = set(start or ())
    for event in stream:
        if isinstance(event, BlockStored):
            there.add((event.medium, event.block_hash))
        elif isinstance(event, BlockRemoved):
            there.discard((event.medium, event.block_hash))
        else:
            there.clear()
    return there


@given(streams)
def test_fold_events_from_nothing(stream: list[Event]) -> None:
    """A stream folds to the same residency as the naive fold."""
    folded, there = fold_events(stream), naive(stream)
    assert set(folded) == there
    assert bool(folded) is bool(there)
    assert [item in folded for item in EVERYTHING] == [item in there for item in EVERYTHING]
    for medium in MEDIA:
        assert folded.on(medium) == {page for where, page in there if where is medium}


@given(st.sets(st.sampled_from(EVERYTHING)), streams)
def test_ahead_is_the_fold_of_further_events(base: set[Resident], stream: list[Event]) -> None:
    """Looking ahead says what the fold would come to, and leaves the residency alone."""
    residency = Residency(base)
    ahead, there = residency.ahead(stream), naive(stream, base)
    assert set(residency) == base
    assert set(ahead) == there
    assert [item in ahead for item in EVERYTHING] == [item in there for item in EVERYTHING]


@given(st.sets(st.sampled_from(EVERYTHING)), streams, streams)
def test_ahead_settles(base: set[Resident], first: list[Event], then: list[Event]) -> None:
    """A residency that was moved on is the same as one that was folded event by event."""
    residency = Residency(base)
    ahead = residency.ahead(first)
    ahead.settle()
    assert set(residency) == set(ahead) == naive(first, base)
    for event in then:
        residency.fold(event)
    assert set(residency) == naive(first + then, base)


@given(st.sets(st.sampled_from(EVERYTHING)), streams, streams)
def test_ahead_agrees_with_the_same_pages(
    base: set[Resident], one: list[Event], other: list[Event]
) -> None:
    """Two looks ahead of one residency agree if the pages are the same and none was cleared."""
    residency = Residency(base)
    cleared = AllBlocksCleared() in one + other
    same = naive(one, base) == naive(other, base)
    ahead = residency.ahead(other)
    assert residency.ahead(one).agrees_with(ahead) is (same and not cleared)
    assert not Residency(base).ahead(one).agrees_with(ahead)


@given(st.booleans(), st.lists(st.booleans(), max_size=8))
def test_fold_events_of_one_page_is_the_oracle(present: bool, history: list[bool]) -> None:
    """Each page is folded as the oracle function says."""
    item = (GPU, b"a")
    residency = Residency([item] if present else ())
    stream = [
        BlockStored(b"a", None, (1,), GPU) if stored else BlockRemoved(b"a", GPU)
        for stored in history
    ]
    expected = fold_page(present, tuple(history))
    assert (item in residency.ahead(stream)) is expected
    for event in stream:
        residency.fold(event)
    assert (item in residency) is expected


def test_fold_events_keeps_media_apart() -> None:
    """A page that left one medium is still on the other."""
    stored = [BlockStored(b"a", None, (1,), medium) for medium in MEDIA]
    folded = fold_events([*stored, BlockRemoved(b"a", GPU)])
    assert (GPU, b"a") not in folded
    assert (CPU, b"a") in folded
