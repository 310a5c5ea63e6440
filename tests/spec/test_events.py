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
    folded = fold_events(stream)
    assert folded.resident() == naive(stream)
    assert [item in folded for item in EVERYTHING] == [item in naive(stream) for item in EVERYTHING]


@given(streams, streams)
def test_fold_events_goes_on_from_a_residency(first: list[Event], then: list[Event]) -> None:
    """Folding in two parts equals folding the whole."""
    assert fold_events(then, fold_events(first)).resident() == naive(first + then)


@given(st.sets(st.sampled_from(EVERYTHING)), streams)
def test_fold_events_over_a_base(base: set[Resident], stream: list[Event]) -> None:
    """Events are folded on top of a base, and the base does not change."""
    kept = frozenset(base)
    folded = fold_events(stream, Residency(base))
    assert folded.resident() == naive(stream, base)
    assert base == kept


@given(streams)
def test_fold_events_one_by_one_is_fold_events_at_once(stream: list[Event]) -> None:
    """Folding event by event equals folding all at once."""
    residency = Residency()
    for event in stream:
        residency = fold_events([event], residency)
    assert residency.resident() == fold_events(stream).resident()


@given(streams)
def test_fold_events_leaves_its_residency_alone(stream: list[Event]) -> None:
    """A residency is a value: later folds do not change it."""
    residency = fold_events(stream)
    before = residency.resident()
    for event in (BlockStored(b"a", None, (1,), GPU), BlockRemoved(b"a", GPU), AllBlocksCleared()):
        fold_events([event], residency)
    assert residency.resident() == before


@given(st.booleans(), st.lists(st.booleans(), max_size=8))
def test_fold_events_of_one_page_is_the_oracle(present: bool, history: list[bool]) -> None:
    """Each page is folded as the oracle function says."""
    item = (GPU, b"a")
    start = Residency(frozenset({item} if present else ()))
    stream = [
        BlockStored(b"a", None, (1,), GPU) if stored else BlockRemoved(b"a", GPU)
        for stored in history
    ]
    assert (item in fold_events(stream, start)) == fold_page(present, tuple(history))


def test_fold_events_keeps_media_apart() -> None:
    """A page that left one medium is still on the other."""
    stored = [BlockStored(b"a", None, (1,), medium) for medium in MEDIA]
    folded = fold_events([*stored, BlockRemoved(b"a", GPU)])
    assert (GPU, b"a") not in folded
    assert (CPU, b"a") in folded


def test_fold_events_clears_every_medium() -> None:
    """After a clear nothing is on any medium, whatever the base was."""
    folded = fold_events([AllBlocksCleared()], Residency(frozenset(EVERYTHING)))
    assert folded.resident() == frozenset()
