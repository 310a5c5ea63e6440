"""Faults that could hide behind `fetches_all_pages=False`: each is found.

The cache with the freedom ends a prefetch at a page that has come to the host meanwhile; each fault
is planted in that cache.
"""

from __future__ import annotations

import pytest

import kvcanon.spec.laws  # noqa: F401  # Importing the laws registers them.
from kvcanon.conformance.cases.draw_stored import draw_stored_case
from kvcanon.conformance.check.play import play
from kvcanon.conformance.protocol.adapter import Adapter, Offer
from kvcanon.conformance.report.declarations import declaring
from kvcanon.lab.variants.override import Overrides, Plant, overriding
from kvcanon.lab.variants.variant import VARIATIONS
from kvcanon.lab.variants.wrapped_rules import Original, around
from kvcanon.reference import tier
from kvcanon.reference.state import OpenOrder, State
from kvcanon.reference.tree import walk, walked_pages
from kvcanon.spec.config import CANON
from kvcanon.spec.types import Slot

FREEDOM = VARIATIONS["fetches_end_at_host_pages"]
SEEDS = range(60)


def adapter_of(*plants: Plant) -> Adapter:
    """The cache with the freedom declared, and with what is planted in it."""

    def plant(overrides: Overrides) -> None:
        for each in (FREEDOM.plant, *plants):
            each(overrides)

    made = Adapter("ends early", overriding(plant), Offer(stores=True))
    return declaring(made, FREEDOM.declared(CANON))


def broken(adapter: Adapter) -> set[str]:
    """The laws that the first finding in drawn cases names."""
    for seed in SEEDS:
        case = draw_stored_case(seed, adapter.offer, ranks=3 if seed % 4 == 1 else 1)
        found, _ = play(case, [adapter])
        if found:
            return set(found[0].broken)
    return set()


@around(tier._accept)
def ends_behind_host_pages(
    usual: Original[bool],
    state: State,
    order: OpenOrder,
    slots: tuple[Slot, ...],
    page: int,
    record: bytes,
) -> bool:
    """Ends at the page after one that the host has."""
    before = order.key.prefix(order.start + page)
    walked = walk(state, before) if before.pages else []
    is_there = bool(walked) and walked_pages(walked) == len(before) and tier._on_host(walked[-1][0])
    return not is_there and usual(state, order, slots, page, record)


@around(tier._accept)
def ends_before_the_last_page(
    usual: Original[bool],
    state: State,
    order: OpenOrder,
    slots: tuple[Slot, ...],
    page: int,
    record: bytes,
) -> bool:
    """Never takes the last page of a prefetch."""
    return page + 1 < len(slots) and usual(state, order, slots, page, record)


@pytest.mark.parametrize("plant", [ends_behind_host_pages, ends_before_the_last_page])
def test_a_fault_behind_the_freedom_is_found(plant: Plant) -> None:
    """A cache that declares the freedom is accused of ending at another page."""
    assert "TIER-15" in broken(adapter_of(plant))


def test_the_freedom_is_accused_where_it_is_not_declared() -> None:
    """A cache that ends at pages of the host, and declares nothing, breaks one law."""
    assert broken(declaring(adapter_of(), CANON)) == {"TIER-15"}


def test_the_freedom_is_permitted_where_it_is_declared() -> None:
    """A cache that declares it breaks no law in the same cases."""
    assert broken(adapter_of()) == set()
