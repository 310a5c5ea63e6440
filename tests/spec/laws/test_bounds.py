"""Where laws can come up: `enabled_if` of each law, in runs of different bounds."""

from __future__ import annotations

import pytest
from attrs import evolve

import kvcanon.spec.laws  # noqa: F401  # Importing the laws registers them.
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.law import LAWS, Bounds
from kvcanon.spec.types import Counts, WritePolicy

POOLS = Counts(full=4, swa=4, mamba=4)
WIDEST = Bounds(
    CacheConfig(
        window_tokens=1,
        mamba=True,
        device_slots=POOLS,
        host_slots=POOLS,
        write_policy=WritePolicy.WRITE_THROUGH,
    ),
    pages=3,
    receipts=2,
    requests=1,
    fetches=True,
    states_within=True,
    stores=True,
)
"""A run in which every law can come up, except those of write_back alone."""
WRITE_BACK = evolve(WIDEST, config=evolve(WIDEST.config, write_policy=WritePolicy.WRITE_BACK))


def out_of_reach(run: Bounds) -> set[str]:
    """The laws that cannot come up in a run."""
    return {law_id for law_id, law in LAWS.items() if not law.enabled_if(run)}


def test_every_law_can_come_up_under_some_policy() -> None:
    """Write-through and write_back each leave out only laws of the other."""
    assert out_of_reach(WIDEST) == {"ASYNC-16", "EVENT-14", "EVICT-7", "EVICT-8", "EVICT-9"}
    of_stores = {law_id for law_id, law in LAWS.items() if law.area == "TIER"}
    assert out_of_reach(evolve(WIDEST, stores=False)) - out_of_reach(WIDEST) == of_stores
    assert out_of_reach(WRITE_BACK) == {"ASK-3", "RES-4", "RES-5", "RES-10"}


def test_a_device_alone_leaves_out_the_laws_of_the_host() -> None:
    """Without a host tier no law of copies and load-backs can come up."""
    config = CacheConfig(window_tokens=1, mamba=True, device_slots=POOLS)
    areas = {LAWS[law_id].area for law_id in out_of_reach(evolve(WIDEST, config=config))}
    assert {"LOAD", "ASYNC"} <= areas
    assert not areas & {"TREE", "ALLOC", "LOCK", "NS", "REFUSE"}


@pytest.mark.parametrize(
    ("smaller", "lost"),
    [
        (evolve(WIDEST, pages=2), {"REC-1"}),
        (evolve(WIDEST, receipts=1), {"LOCK-11"}),
        (evolve(WIDEST, receipts=0), {"LOCK-8", "LOCK-9", "LOCK-10", "LOCK-11", "REFUSE-2"}),
        (evolve(WIDEST, requests=0), {"ALLOC-10"}),
        (evolve(WIDEST, fetches=False), {"RES-9", "RES-11"}),
        (evolve(WIDEST, states_within=False), {"MATCH-8"}),
        (evolve(WIDEST, config=evolve(WIDEST.config, mamba=False)), {"REC-5", "MATCH-8"}),
    ],
)
def test_a_smaller_run_leaves_out_the_laws_of_what_it_lacks(
    smaller: Bounds, lost: set[str]
) -> None:
    """A run with fewer pages, receipts or requests lacks exactly the laws that need them."""
    assert out_of_reach(smaller) - out_of_reach(WIDEST) == lost
