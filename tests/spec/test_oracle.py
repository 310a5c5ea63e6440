"""The oracle functions, each against a second, naive definition.

The second definitions go token by token, or step by step; the oracle functions compute with whole
nodes. That both agree allows a cache to cut its nodes anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcanon.spec.oracle.backup import backup_chain
from kvcanon.spec.oracle.eviction import policy_key, pre_evict_need, refresh, victim_order
from kvcanon.spec.oracle.folding import fold_page, is_alternating
from kvcanon.spec.oracle.pages import pages_covering, split, whole_pages
from kvcanon.spec.oracle.prefix import usable_prefix
from kvcanon.spec.oracle.window import window_nodes, window_start
from kvcanon.spec.types import EvictionPolicy

# Pages.


@given(length=st.integers(0, 400), size=st.integers(1, 40))
def test_pages_are_counted_by_filling_them(length: int, size: int) -> None:
    """`whole_pages` counts full pages, and `pages_covering` those that are begun."""
    full = [begin for begin in range(0, length, size) if begin + size <= length]
    begun = list(range(0, length, size))
    assert whole_pages(length, size) == len(full)
    assert pages_covering(length, size) == len(begun)


# The usable prefix.

Segment = tuple[int, bool, bool, bool]
"""Length in tokens; whether full data, window data, and the state at the end are there."""

SEGMENTS = st.lists(
    st.tuples(st.integers(1, 6), st.booleans(), st.booleans(), st.booleans()), max_size=8
)


def usable(segments: Iterable[Segment], window_tokens: int, *, recurrent: bool) -> int:
    """The oracle's answer; a model without mamba layers passes all states as present."""
    lengths, full, swa, state = [tuple(column) for column in zip(*segments, strict=True)] or [
        ()
    ] * 4
    return usable_prefix(
        lengths, full, swa, state if recurrent else (True,) * len(full), window_tokens
    )


def usable_by_token(segments: list[Segment], window_tokens: int, *, recurrent: bool) -> int:
    """The largest usable position, checked token by token."""
    full = [there for length, there, _, _ in segments for _ in range(length)]
    swa = [there for length, _, there, _ in segments for _ in range(length)]
    states, end = {0}, 0
    for length, _, _, has_state in segments:
        end += length
        states |= {end} if has_state else set()
    positions = [
        at
        for at in range(end + 1)
        if all(full[:at])
        and all(swa[max(0, at - window_tokens) : at])
        and (at in states or not recurrent)
    ]
    return max(positions)


@given(segments=SEGMENTS, window_tokens=st.integers(1, 14), recurrent=st.booleans())
def test_usable_prefix_is_the_last_usable_position(
    segments: list[Segment], window_tokens: int, recurrent: bool
) -> None:
    """The usable prefix is the last position that is usable token by token."""
    expected = usable_by_token(segments, window_tokens, recurrent=recurrent)
    assert usable(segments, window_tokens, recurrent=recurrent) == expected


# The window.


@given(
    lengths=st.lists(st.integers(1, 20), max_size=12).map(tuple),
    window_tokens=st.integers(1, 60),
    page_size=st.integers(1, 16),
)
def test_window_nodes_reach_into_the_window(
    lengths: tuple[int, ...], window_tokens: int, page_size: int
) -> None:
    """Exactly the nodes with a token near enough to the end are touched."""
    near = [
        index
        for index in range(len(lengths))
        if any(token < window_tokens + page_size for token in _tokens_from_end(lengths, index))
    ]
    assert window_nodes(lengths, window_tokens, page_size) == len(near)


def _tokens_from_end(lengths: tuple[int, ...], index: int) -> range:
    """For each token of a node, the number of tokens between it and the end."""
    return range(sum(lengths[:index]), sum(lengths[: index + 1]))


@given(end=st.integers(0, 60), window_tokens=st.integers(1, 80), page_size=st.integers(1, 16))
def test_window_start_is_the_first_page_in_sight(
    end: int, window_tokens: int, page_size: int
) -> None:
    """A lock pins exactly the pages that its end can see."""
    seen = range(max(0, end * page_size - window_tokens), end * page_size)
    pages_seen = {token // page_size for token in seen}
    assert window_start(end, window_tokens, page_size) == min(pages_seen, default=end)


@given(
    lengths_pages=st.lists(st.integers(1, 4), max_size=8),
    window_tokens=st.integers(1, 40),
    page_size=st.integers(1, 8),
)
def test_window_that_is_locked_is_a_part_of_what_is_refreshed(
    lengths_pages: list[int], window_tokens: int, page_size: int
) -> None:
    """Every page that a lock pins is made recent by a match."""
    upwards = tuple(length * page_size for length in lengths_pages)
    touched = lengths_pages[: window_nodes(upwards, window_tokens, page_size)]
    end = sum(lengths_pages)
    assert end - sum(touched) <= window_start(end, window_tokens, page_size)


# Backups.


@given(backed=st.lists(st.booleans(), min_size=1, max_size=12).map(tuple), parents=st.booleans())
def test_backup_chain_is_what_recursion_would_copy(backed: tuple[bool, ...], parents: bool) -> None:
    """The chain is what recursion copies, each parent before its node."""

    def back_up(position: int) -> list[int]:
        above = back_up(position - 1) if parents and position else []
        return above if backed[position] else [*above, position]

    assert backup_chain(backed, parents) == tuple(back_up(len(backed) - 1))


# Eviction.


@given(needed=st.integers(0, 99), free=st.integers(0, 99))
def test_pre_evict_need_is_the_least_that_suffices(needed: int, free: int) -> None:
    """The need is the least number of slots that is enough."""
    enough = [evicted for evicted in range(100) if free + evicted >= needed]
    assert pre_evict_need(needed, free) == min(enough)


OLD, HIT, LATE, LESSER = "old", "hit", "late", "lesser"
CANDIDATES = {
    OLD: {"hit_count": 1, "last_access": 3, "created": 1, "priority": 2},
    HIT: {"hit_count": 5, "last_access": 5, "created": 2, "priority": 2},
    LATE: {"hit_count": 1, "last_access": 9, "created": 4, "priority": 1},
    LESSER: {"hit_count": 0, "last_access": 7, "created": 3, "priority": 0},
}


@pytest.mark.parametrize(
    ("policy", "order"),
    [
        (EvictionPolicy.LRU, [OLD, HIT, LESSER, LATE]),
        (EvictionPolicy.LFU, [LESSER, OLD, LATE, HIT]),
        (EvictionPolicy.FIFO, [OLD, HIT, LESSER, LATE]),
        (EvictionPolicy.MRU, [LATE, LESSER, HIT, OLD]),
        (EvictionPolicy.FILO, [LATE, LESSER, HIT, OLD]),
        (EvictionPolicy.SLRU, [OLD, LESSER, LATE, HIT]),
        (EvictionPolicy.PRIORITY, [LESSER, LATE, OLD, HIT]),
    ],
)
def test_policy_decides_the_order(policy: EvictionPolicy, order: list[str]) -> None:
    """Each policy evicts first the leaf that its name says."""
    names = list(CANDIDATES)
    keys = tuple(policy_key(policy, **CANDIDATES[name]) for name in names)
    assert [names[at] for at in victim_order(keys)] == order


def test_every_policy_has_a_rank() -> None:
    """`policy_key` has a rank for every policy."""
    assert all(policy_key(policy, 1, 2, 3, 4) for policy in EvictionPolicy)


@given(keys=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), max_size=9).map(tuple))
def test_victim_order_takes_the_smallest_again_and_again(
    keys: tuple[tuple[int, int], ...],
) -> None:
    """The order takes the smallest key each time; among equal keys, the first."""
    left, order = dict(enumerate(keys)), []
    while left:
        smallest = min(left.values())
        order.append(next(at for at, key in left.items() if key == smallest))
        del left[order[-1]]
    assert victim_order(keys) == tuple(order)


# Recency.


@given(data=st.data(), order=st.lists(st.integers(0, 12), unique=True).map(tuple))
def test_refresh_is_one_use_after_another(data: st.DataObject, order: tuple[int, ...]) -> None:
    """Refreshing several at once equals using them one after another."""
    touched = data.draw(st.lists(st.sampled_from([*order, 20, 21]), unique=True).map(tuple))
    queue = list(order)
    for each in touched:
        if each in queue:
            queue.remove(each)
        queue.append(each)
    assert refresh(order, touched) == tuple(queue)


# Cutting.


@given(items=st.lists(st.integers()).map(tuple), data=st.data())
def test_split_parts_join_to_what_was_there(items: tuple[int, ...], data: st.DataObject) -> None:
    """The two parts of a cut, joined, are the original."""
    at = data.draw(st.integers(0, len(items)))
    upper, lower = split(items, at)
    assert upper == tuple(item for index, item in enumerate(items) if index < at)
    assert upper + lower == items


# Folding.

HISTORY = st.lists(st.booleans(), max_size=10).map(tuple)


@given(present=st.booleans(), history=HISTORY)
def test_fold_page_believes_the_last_event(present: bool, history: tuple[bool, ...]) -> None:
    """The last event decides whether a page is on a medium."""
    assert fold_page(present, history) is (present, *history)[-1]


@given(present=st.booleans(), history=HISTORY)
def test_is_alternating_replays_like_a_set(present: bool, history: tuple[bool, ...]) -> None:
    """Only a store of an absent page and a remove of a present one are accepted."""
    there, sound = {"page"} if present else set(), True
    for stored in history:
        sound = sound and (("page" in there) != stored)
        there = {"page"} if stored else set()
    assert is_alternating(present, history) is sound
