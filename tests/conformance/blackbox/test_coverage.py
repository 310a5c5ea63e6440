"""Black-box coverage: the capabilities that a report names are those that a law needs."""

from __future__ import annotations

from collections import Counter

import pytest

from kvcanon.conformance.blackbox.coverage import FROM_OUTSIDE, AnyOf, missing_for
from kvcanon.conformance.protocol.adapter import Adapter, Offer
from kvcanon.conformance.search.play import JudgeConfig, play
from kvcanon.conformance.search.walker import draw_case
from kvcanon.reference import ReferenceCache

CASES = 80


def judged(kind: type[ReferenceCache]) -> Counter[str]:
    """The laws that are judged of a cache in black-box mode."""
    laws: Counter[str] = Counter()
    for seed in range(CASES):
        _, tallies = play(
            draw_case(seed, Offer()), [Adapter("it", kind)], JudgeConfig(black_box=True)
        )
        laws += tallies["it"].laws
    return laws


def test_all_laws_that_are_said_to_be_judged_are() -> None:
    """The laws that are listed as judged in black-box mode are exactly those that are."""
    assert set(judged(ReferenceCache)) == set(FROM_OUTSIDE)


@pytest.mark.parametrize(
    "group", sorted({group for groups in FROM_OUTSIDE.values() for group in groups})
)
def test_what_is_lacking_is_why_a_law_is_not_judged(group: AnyOf) -> None:
    """A law is not judged without a capability that it is said to need."""
    kind = type("Lacking", (ReferenceCache,), dict.fromkeys([each.value for each in group]))
    for law_id in judged(kind):
        assert group not in FROM_OUTSIDE[law_id]


def test_what_is_missing_is_told_in_words() -> None:
    """What is missing for a law is named, and nothing else."""
    assert missing_for("DATA-1", ["write", "poll"]) == ["write"]
    assert missing_for("RES-5", ["take_events", "free_slots"]) == ["take_events or free_slots"]
    assert missing_for("RES-5", ["free_slots"]) == []
