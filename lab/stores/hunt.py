"""Hunts planted faults: which case of a check first breaks the law of a fault, and the smallest."""

from __future__ import annotations

from collections.abc import Callable

from attrs import evolve, frozen

from kvcanon.conformance.stores.adapter import StoreAdapter
from kvcanon.conformance.stores.case import StoreCase
from kvcanon.conformance.stores.check import STORE_EFFORTS, first_break, ground_of
from kvcanon.conformance.stores.draw import draw_case
from kvcanon.conformance.stores.play import play_case
from kvcanon.conformance.stores.reduce import reduce_store_case
from kvcanon.lab.stores.fault import StoreFault
from kvcanon.spec.stores.store_law import STORE_LAWS


@frozen
class StoreHunt:
    """What came of a hunt."""

    fault: StoreFault
    seed: int
    case: StoreCase | None
    """The first drawn case that breaks the law of the fault; None if there is none."""
    number: int
    """How many cases were played."""
    words: str = ""


def hunt(fault: StoreFault, seed: int, effort: str = "quick") -> StoreHunt:
    """Play the drawn cases of a check until the law of a fault is broken."""
    law = STORE_LAWS[fault.law_id]
    with ground_of(fault.adapter) as ground:
        for number in range(STORE_EFFORTS[effort]):
            case = draw_case(fault.adapter.offer, seed, number)
            words = first_break(play_case(fault.adapter, ground, case), law)
            if words is not None:
                return StoreHunt(fault, seed, case, number + 1, words)
    return StoreHunt(fault, seed, None, STORE_EFFORTS[effort])


def smallest_case(found: StoreHunt, holds: Callable[[StoreCase], bool]) -> StoreHunt:
    """The same with the smallest case, which the plain stores play without a fault."""
    assert found.case is not None  # noqa: S101  # Who asks has found one.
    law = STORE_LAWS[found.fault.law_id]
    with ground_of(found.fault.adapter) as ground:

        def breaks(case: StoreCase) -> bool:
            broken = first_break(play_case(found.fault.adapter, ground, case), law) is not None
            return broken and holds(case)

        smallest, _ = reduce_store_case(found.case, breaks)
        words = first_break(play_case(found.fault.adapter, ground, smallest), law)
    return evolve(found, case=smallest, words=words or found.words)


def holds_on(adapter: StoreAdapter, case: StoreCase) -> bool:
    """Whether a store breaks no law in a case."""
    with ground_of(adapter) as ground:
        return not play_case(adapter, ground, case).broken
