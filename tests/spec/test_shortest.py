"""The shortest part of a run: every fault of few items is found among many, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcanon.spec.shortest import shortest


@given(st.integers(1, 60), st.sets(st.integers(0, 59), max_size=5), st.booleans())
def test_what_is_needed_stays_and_nothing_else(
    length: int, needed: set[int], keeps_last: bool
) -> None:
    """A fault that needs some items is shown by these alone, in their order."""
    needed = {each for each in needed if each < length}
    last = {length - 1} if keeps_last else set()

    def shows(items: Sequence[int]) -> bool:
        return needed <= set(items)

    assert list(shortest(range(length), shows, keeps_last=keeps_last)) == sorted(needed | last)


@pytest.mark.parametrize(("most", "few"), [(0, 0), (5, 0), (16, 1), (100, 9)])
def test_the_result_needs_each_of_its_items(most: int, few: int) -> None:
    """Where an item is needed only together with others, no single one can be left out."""

    def shows(items: Sequence[int]) -> bool:
        return sum(items) >= sum(range(few)) and len(items) >= few

    found = list(shortest(range(most), shows))
    assert shows(found)
    assert not any(shows(found[:at] + found[at + 1 :]) for at in range(len(found)))


def test_items_that_depend_on_those_before_are_rewritten() -> None:
    """What leaves items out may change the rest, so that it is a run by itself."""

    def renumbered(items: Sequence[int], out: range) -> list[int]:
        return list(range(len(items) - len(out)))

    def shows(items: Sequence[int]) -> bool:
        assert all(after - before == 1 for before, after in pairwise(items))
        return len(items) >= 3

    assert list(shortest(range(40), shows, without=renumbered)) == [0, 1, 2]
