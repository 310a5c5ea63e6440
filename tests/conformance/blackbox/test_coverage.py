"""Coverage in black-box mode: laws are judged if they declare it, by the methods they declare."""

from __future__ import annotations

from collections import Counter

import pytest

import kvcanon.spec.laws  # noqa: F401  # Importing the laws registers them.
from kvcanon.conformance.blackbox.coverage import missing_for
from kvcanon.conformance.protocol.adapter import Adapter, Capability, Offer
from kvcanon.conformance.search.judges import JudgeConfig
from kvcanon.conformance.search.play import play
from kvcanon.conformance.search.walker import draw_case
from kvcanon.reference import ReferenceCache
from kvcanon.spec.law import LAWS, AnyOf

CASES = 80
GROUPS: tuple[AnyOf, ...] = tuple(
    dict.fromkeys(group for law in LAWS.values() for group in law.from_outside or ())
)


def judged(kind: type[ReferenceCache]) -> Counter[str]:
    """Return the laws that are judged of a cache in black-box mode."""
    laws: Counter[str] = Counter()
    for seed in range(CASES):
        _, tallies = play(
            draw_case(seed, Offer()), [Adapter("it", kind)], JudgeConfig(black_box=True)
        )
        laws += tallies["it"].laws
    return laws


def test_laws_are_judged_from_outside_that_say_so() -> None:
    """The laws that are judged without snapshots are those that declare `from_outside`."""
    declared = {law_id for law_id, law in LAWS.items() if law.from_outside is not None}
    assert set(judged(ReferenceCache)) == declared


def test_laws_name_methods_that_a_cache_may_lack() -> None:
    """Every method in `from_outside` is a capability."""
    named = {method.__name__ for group in GROUPS for method in group}
    assert named <= {each.value for each in Capability}


@pytest.mark.parametrize("group", GROUPS)
def test_laws_need_the_methods_that_they_name(group: AnyOf) -> None:
    """A law is not judged of a cache that lacks a whole group of its methods."""
    names = [method.__name__ for method in group]
    kind = type("Lacking", (ReferenceCache,), dict.fromkeys(names))
    for law_id in judged(kind):
        assert group not in (LAWS[law_id].from_outside or ())


def test_missing_methods_are_named() -> None:
    """The report names the methods that a cache lacks, but no group of which it has one."""
    assert missing_for(LAWS["DATA-1"], ["write", "poll"]) == ["write"]
    lacks = ["take_events", "free_slots"]
    assert missing_for(LAWS["RES-5"], lacks) == ["take_events or free_slots"]
    assert missing_for(LAWS["RES-5"], ["free_slots"]) == []
