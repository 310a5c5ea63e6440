"""The observed state of a request cache: one pool for all components, and refused growth."""

from __future__ import annotations

import kvcanon.spec.laws  # noqa: F401 # Importing the laws registers them.
from kvcanon.conformance.judge.from_outside.checks import Checks
from kvcanon.conformance.judge.from_outside.request.checks import (
    check_contents,
    check_freed,
    check_owners,
    table_of,
)
from kvcanon.conformance.judge.from_outside.request.state import ObservedRequests
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.law import LAWS
from kvcanon.spec.types import FULL, SWA, Counts, Key, Slots, make_key

CONFIG = CacheConfig(window_tokens=1, device_slots=Counts(full=3, swa=3))
TWO = make_key([1, 2], 1)
OTHER = make_key([3, 4], 1)


def requests_of(*, one_pool: bool) -> ObservedRequests:
    """Return the observed state of a new cache."""
    return ObservedRequests(CONFIG, Checks(LAWS.keys()), one_pool)


def give(observed: ObservedRequests, request_id: int, key: Key, slots: Slots) -> list[str]:
    """Give a request its block table, and compute all of it; returns the laws that this broke."""
    prompt = observed.prompt(key)
    table = table_of(observed, prompt, slots)
    check_owners(observed, request_id, table)
    observed.note_demand(prompt)
    observed.compute(request_id, prompt, table, 0)
    found = observed.checks.close()
    return [violation.law.law_id for violation in found]


def test_slots_of_one_pool_are_numbered_together() -> None:
    """One pool for all components has as many slots as their pools together."""
    slots = Slots((4, 5), (0, 1))
    assert give(requests_of(one_pool=True), 1, TWO, slots) == []
    assert give(requests_of(one_pool=False), 1, TWO, slots) == ["ALLOC-5"]
    assert give(requests_of(one_pool=True), 1, TWO, Slots((4, 6), (2, 3))) == ["ALLOC-5"]
    observed = requests_of(one_pool=True)
    check_freed(observed, Counts(full=6), Counts(full=6))
    assert not observed.checks.broken
    check_freed(observed, Counts(full=7), Counts(full=7))
    assert observed.checks.broken


def test_slot_of_one_pool_has_one_owner() -> None:
    """A slot of one pool that is given out for two components is reported."""
    assert give(requests_of(one_pool=True), 1, TWO, Slots((0, 1), (1, 2))) == ["ALLOC-1"]
    assert give(requests_of(one_pool=False), 1, TWO, Slots((0, 1), (1, 2))) == []
    observed = requests_of(one_pool=True)
    assert give(observed, 1, TWO, Slots((0, 1), (2, 3))) == []
    assert give(observed, 2, OTHER, Slots((4, 5), (1,))) == ["ALLOC-1"]


def test_slot_of_one_pool_holds_one_thing() -> None:
    """Full data in a slot to which window data was written later is reported."""
    observed = requests_of(one_pool=True)
    give(observed, 1, TWO, Slots((0, 1), (2, 3)))
    del observed.running[1]
    give(observed, 2, OTHER, Slots((4, 5), (1,)))
    check_contents(observed, observed.prompt(TWO), Slots((0, 1), (2, 3)), 2)
    assert [violation.law.law_id for violation in observed.checks.broken] == ["MATCH-3"]


def test_one_pool_is_short_when_all_is() -> None:
    """Due prompts are dropped where the one pool may be short, and only there."""
    observed = requests_of(one_pool=True)
    give(observed, 1, TWO, Slots((0, 1), (2, 3)))
    assert not observed.may_need_used_slots(observed.prompt(make_key([9], 1)))
    assert observed.may_need_used_slots(observed.prompt(OTHER))


def test_refused_growth_lets_go_of_what_left_the_window() -> None:
    """Window data outside the window of a refused request may be given to another."""
    observed = requests_of(one_pool=True)
    give(observed, 1, TWO, Slots((0, 1), (2, 3)))
    observed.let_windows_go(1)
    assert set(observed.running[1].table) == {(FULL, 0), (FULL, 1), (SWA, 3)}
    observed.let_windows_go(7)
    assert set(observed.running) == {1}


def test_what_is_not_computed_has_its_window() -> None:
    """A reused prefix whose window is not in the table is reported."""
    observed = requests_of(one_pool=False)
    give(observed, 1, TWO, Slots((0, 1), (0, 1)))
    check_contents(observed, observed.prompt(TWO), Slots((0, 1), (1,)), 2)
    assert not observed.checks.broken
    check_contents(observed, observed.prompt(TWO), Slots((0, 1), (1,)), 1)
    assert [violation.law.law_id for violation in observed.checks.broken] == ["MATCH-3"]
