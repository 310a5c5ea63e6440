"""The plain cache under every law, in random cases over the matrix of what it can be asked to be.

Components, page sizes, windows, policies, bigrams, pools from a few pages up; copies that come
late, out of order, or fail; every law after every step, and a drain at the end.
"""

from __future__ import annotations

import pytest

from kvcanon.conformance.protocol.adapter import Adapter, Offer
from kvcanon.conformance.search.play import JudgeConfig, play
from kvcanon.conformance.search.walker import draw_case
from kvcanon.reference import ReferenceCache

REFERENCE = Adapter("reference", ReferenceCache)


@pytest.mark.parametrize("hundred", range(12))
def test_random_cases_keep_every_law(hundred: int) -> None:
    """Some case of calls, copies and failures breaks a law on the plain cache."""
    for seed in range(100 * hundred, 100 * hundred + 100):
        found, _ = play(draw_case(seed, Offer()), [REFERENCE])
        assert not found, f"seed {seed}: {found[0].words}"


@pytest.mark.parametrize("hundred", range(10))
def test_random_cases_are_accepted_from_outside(hundred: int) -> None:
    """The acceptor accuses the plain cache."""
    for seed in range(100 * hundred, 100 * hundred + 100):
        found, _ = play(draw_case(seed, Offer()), [REFERENCE], JudgeConfig(black_box=True))
        assert not found, f"seed {seed}: {found[0].words}"


def test_cache_agrees_with_itself() -> None:
    """Two caches of one make differ in one case."""
    for seed in range(60):
        found, _ = play(draw_case(seed, Offer()), [REFERENCE], against=REFERENCE)
        assert not found, f"seed {seed}: {found[0].words}"
