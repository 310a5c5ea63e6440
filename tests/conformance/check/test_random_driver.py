"""Random cases on the reference, over all configurations.

The cases vary components, page sizes, windows, policies, bigrams and pools; copies come late, out
of order, or fail. Every law is checked after each step, and each case ends with a drain.
"""

from __future__ import annotations

import pytest

from kvcanon.conformance.cases.draw import draw_case
from kvcanon.conformance.check.play import play
from kvcanon.conformance.judge.judges import JudgeConfig
from kvcanon.conformance.protocol.adapter import Adapter, Offer
from kvcanon.reference import ReferenceCache

REFERENCE = Adapter("reference", ReferenceCache)


@pytest.mark.parametrize("hundred", range(4))
def test_random_cases_keep_every_law(hundred: int) -> None:
    """Random cases break no law on the reference, judged by states."""
    for seed in range(100 * hundred, 100 * hundred + 100):
        found, _ = play(draw_case(seed, Offer()), [REFERENCE])
        assert not found, f"seed {seed}: {found[0].words}"


@pytest.mark.parametrize("hundred", range(4))
def test_random_cases_are_accepted_from_outside(hundred: int) -> None:
    """Random cases break no law on the reference in black-box mode."""
    for seed in range(100 * hundred, 100 * hundred + 100):
        found, _ = play(draw_case(seed, Offer()), [REFERENCE], JudgeConfig(black_box=True))
        assert not found, f"seed {seed}: {found[0].words}"


def test_cache_agrees_with_itself() -> None:
    """Two reference caches agree in random cases."""
    for seed in range(60):
        found, _ = play(draw_case(seed, Offer()), [REFERENCE], against=REFERENCE)
        assert not found, f"seed {seed}: {found[0].words}"
