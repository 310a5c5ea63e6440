"""The books of a cache used by requests: one pool for all components, and refused growth."""

from __future__ import annotations

import kvcanon.spec.laws  # noqa: F401 # Importing the laws registers them.
from kvcanon.conformance.blackbox.checks import Checks
from kvcanon.conformance.blackbox.request.state import (
    ObservedRequests,
    check_contents,
    check_freed,
    check_owners,
    table_of,
)
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.law import LAWS
from kvcanon.spec.types import FULL, SWA, Counts, Key, Slots, make_key

CONFIG = CacheConfig(window_tokens=1, device_slots=Counts(full=3, swa=3))
TWO = make_key([1, 2], 1)
OTHER = make_key([3, 4], 1)


def books_of(*, one_pool: bool) -> ObservedRequests:
    """Books in which nothing is yet."""
    return ObservedRequests(CONFIG, Checks(LAWS.keys()), one_pool)


def give(books: ObservedRequests, request_id: int, key: Key, slots: Slots) -> list[str]:
    """Give a request its block table, and compute all of it; the laws that this broke."""
    prompt = books.prompt(key)
    table = table_of(books, prompt, slots)
    check_owners(books, request_id, table)
    books.make_room(prompt)
    books.compute(request_id, prompt, table, 0)
    found = books.checks.close()
    return [violation.law.law_id for violation in found]


def test_slots_of_one_pool_are_numbered_together() -> None:
    """A pool as large as all is said to have slots that it has not, or more than it has."""
    slots = Slots((4, 5), (0, 1))
    assert give(books_of(one_pool=True), 1, TWO, slots) == []
    assert give(books_of(one_pool=False), 1, TWO, slots) == ["ALLOC-5"]
    assert give(books_of(one_pool=True), 1, TWO, Slots((4, 6), (2, 3))) == ["ALLOC-5"]
    books = books_of(one_pool=True)
    check_freed(books, Counts(full=6), Counts(full=6))
    assert not books.checks.broken
    check_freed(books, Counts(full=7), Counts(full=7))
    assert books.checks.broken


def test_slot_of_one_pool_has_one_owner() -> None:
    """A slot holds full data and window data at once, of one request or of two."""
    assert give(books_of(one_pool=True), 1, TWO, Slots((0, 1), (1, 2))) == ["ALLOC-1"]
    assert give(books_of(one_pool=False), 1, TWO, Slots((0, 1), (1, 2))) == []
    books = books_of(one_pool=True)
    assert give(books, 1, TWO, Slots((0, 1), (2, 3))) == []
    assert give(books, 2, OTHER, Slots((4, 5), (1,))) == ["ALLOC-1"]


def test_slot_of_one_pool_holds_one_thing() -> None:
    """Full data is found in a slot that window data was written to since."""
    books = books_of(one_pool=True)
    give(books, 1, TWO, Slots((0, 1), (2, 3)))
    del books.running[1]
    give(books, 2, OTHER, Slots((4, 5), (1,)))
    check_contents(books, books.prompt(TWO), Slots((0, 1), (2, 3)), 2)
    assert [violation.law.law_id for violation in books.checks.broken] == ["MATCH-3"]


def test_one_pool_is_short_when_all_is() -> None:
    """One pool is taken for several, and what is due for gone, or the other way round."""
    books = books_of(one_pool=True)
    give(books, 1, TWO, Slots((0, 1), (2, 3)))
    assert not books.may_need_used_slots(books.prompt(make_key([9], 1)))
    assert books.may_need_used_slots(books.prompt(OTHER))


def test_refused_growth_lets_go_of_what_left_the_window() -> None:
    """What left the window of a request that was refused room is held against the next."""
    books = books_of(one_pool=True)
    give(books, 1, TWO, Slots((0, 1), (2, 3)))
    books.let_windows_go(1)
    assert set(books.running[1].table) == {(FULL, 0), (FULL, 1), (SWA, 3)}
    books.let_windows_go(7)
    assert set(books.running) == {1}


def test_what_is_not_computed_has_its_window() -> None:
    """A prefix is reused whose window is gone, and the pages after it are computed from nothing."""
    books = books_of(one_pool=False)
    give(books, 1, TWO, Slots((0, 1), (0, 1)))
    check_contents(books, books.prompt(TWO), Slots((0, 1), (1,)), 2)
    assert not books.checks.broken
    check_contents(books, books.prompt(TWO), Slots((0, 1), (1,)), 1)
    assert [violation.law.law_id for violation in books.checks.broken] == ["MATCH-3"]
