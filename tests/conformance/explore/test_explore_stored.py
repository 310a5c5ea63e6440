"""Exploring a cache with a store below its host tier: its orders, its pages, and its restarts."""

from __future__ import annotations

from functools import cache

import pytest
from attrs import evolve

from kvcanon.conformance.cases.case import Action
from kvcanon.conformance.cases.exact_actions import exact_action
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.explore.expansion import Expander
from kvcanon.conformance.explore.exploration import Exploration, ExplorationLimits, explore
from kvcanon.conformance.explore.moves import FLIPPED
from kvcanon.conformance.explore.offered_scopes import why_left_out
from kvcanon.conformance.explore.scope import Scope
from kvcanon.conformance.explore.scopes.naming import SCOPES
from kvcanon.conformance.protocol.adapter import Adapter, Offer
from kvcanon.conformance.protocol.cache_names import REFERENCE
from kvcanon.lab.mutants.faulty import mutated
from kvcanon.lab.mutants.planted import STORE_MUTANTS
from kvcanon.lab.variants.override import overriding
from kvcanon.reference import ReferenceCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.law import LAWS, Need
from kvcanon.spec.types import DISK, EXTERNAL, Counts

SCOPE = Scope(
    "tiny_store",
    "",
    CacheConfig(device_slots=Counts(1), host_slots=Counts(1), write_policy="write_through"),
    fans=(1,),
    receipts=0,
    in_flight=1,
    store=DISK,
)
PAGE = (0,)
STORE, FETCH = exact_action("store_exactly", PAGE), exact_action("prefetch_exactly", PAGE)
ONE_PAGE, POLL = Action("carry_out", 0, 2, 1), Action("poll_store")
STORED = (exact_action("insert_exactly", PAGE), Action("copy", 0), Action("poll"), STORE, ONE_PAGE)
"""A page is written to the store; nobody has polled yet."""
EMPTY = Action("evict", 1), Action("evict_host", 1)
NEEDS_TWO_PAGES = {"TIER-13", "TIER-14"}
BY_NAME = {mutant.name: mutant for mutant in STORE_MUTANTS}


@cache
def explored(adapter: Adapter = REFERENCE, levels: int | None = None) -> Exploration:
    """Explore the tiny scope."""
    return explore(Expander(adapter, SCOPE), limits=ExplorationLimits(levels))


def test_a_sound_cache_over_a_store_is_exhausted() -> None:
    """Every state is visited, no law is broken, and those of the tier are exercised."""
    found = explored()
    assert found.exhausted
    of_stores = {law_id for law_id, law in LAWS.items() if Need.STORE in law.needs}
    assert of_stores - found.laws_exercised.keys() == NEEDS_TWO_PAGES


def test_states_that_are_copied_are_those_that_are_replayed() -> None:
    """A plain cache is copied with its store; one that cannot be is played from the beginning."""
    wrapped = Adapter("replayed", overriding(lambda _: None), Offer(stores=True))
    copied, replayed = explored(levels=9), explored(wrapped, levels=9)
    assert replayed.levels == copied.levels
    assert replayed.edges == copied.edges
    assert replayed.laws_exercised == copied.laws_exercised


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((), (Action("lose_stored", 0),)),
        ((), (Action("damage_stored", 0, FLIPPED),)),
        ((Action("lose_stored", 0),), (Action("damage_stored", 0, FLIPPED),)),
        ((), (POLL,)),
        ((POLL, *EMPTY), (POLL, *EMPTY, FETCH)),
        ((POLL, *EMPTY, FETCH), (POLL, *EMPTY, FETCH, ONE_PAGE)),
        ((POLL, *EMPTY, FETCH), (POLL, *EMPTY, FETCH, Action("end_prefetch"))),
        ((POLL,), (Action("restart_exactly"),)),
        ((Action("restart_exactly"),), (Action("reset"),)),
    ],
)
def test_states_of_the_store_are_told_apart(
    one: tuple[Action, ...], other: tuple[Action, ...]
) -> None:
    """What the store has, what is known of it, and what orders do are parts of a state."""
    by = Expander(REFERENCE, SCOPE)
    first, second = (by.origin.at((*STORED, *each)) for each in (one, other))
    assert by.digest(first) != by.digest(second)


def test_a_record_that_is_written_again_is_the_same() -> None:
    """A page that was lost and is written again leaves the state as it would be without that."""
    by = Expander(REFERENCE, SCOPE)
    again = (POLL, *EMPTY, Action("restart_exactly"), *STORED[:3])
    kept = by.origin.at((*STORED, *again, STORE, ONE_PAGE, POLL))
    lost = by.origin.at((*STORED, Action("lose_stored", 0), *again, STORE, ONE_PAGE, POLL))
    assert by.digest(kept) == by.digest(lost)


@pytest.mark.parametrize(
    ("name", "moves"),
    [
        ("missing_pages_still_count", 10),
        ("unproved_pages_are_placed", 11),
        ("fetched_pages_do_not_count", 9),
    ],
)
def test_a_fault_of_the_tier_is_found(name: str, moves: int) -> None:
    """A planted fault is found by its law, on a shortest path."""
    mutant = BY_NAME[name]
    found = explored(evolve(mutated(mutant), offer=Offer(stores=True))).finding
    assert found is not None
    assert mutant.law_id in found.broken
    assert len(found.case.actions) == moves
    assert found.case.store is DISK


def test_the_named_scopes_have_stores_of_both_media() -> None:
    """Both policies and both media come up, and every law of the tier has a scope made for it."""
    scopes = [scope for scope in SCOPES.values() if scope.store is not None]
    assert {scope.store for scope in scopes} == {DISK, EXTERNAL}
    assert {scope.config.write_policy.value for scope in scopes} == {"write_through", "write_back"}
    of_the_tier = {law_id for law_id, law in LAWS.items() if Need.STORE in law.needs}
    assert {law_id for scope in scopes for law_id in scope.made_for} == of_the_tier


def test_a_cache_without_a_store_is_left_out() -> None:
    """It says what it does not offer."""
    adapter = Adapter("no stores", ReferenceCache)
    assert why_left_out(adapter, SCOPE) == "no stores offers no store below its host tier"
    with pytest.raises(UsageError, match="offers no store"):
        explore(Expander(adapter, SCOPE))
