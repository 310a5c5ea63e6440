"""The judge on caches over an engine's tensors: each layout agrees with the reference."""

from __future__ import annotations

import pytest

from engine_owned import FACTORIES, EngineOwned
from kvcanon.conformance.check.play import play
from kvcanon.conformance.check.walker import draw_case
from kvcanon.conformance.protocol.adapter import Adapter, Offer
from kvcanon.reference import ReferenceCache

CASES = 6


@pytest.mark.parametrize("name", FACTORIES)
def test_the_judge_finds_no_difference_from_the_reference(name: str) -> None:
    """Random cases give the same answers, states and bytes as the reference."""
    factory = EngineOwned(name)
    for seed in range(CASES):
        found, _ = play(
            draw_case(seed, Offer()),
            [Adapter(name, factory)],
            against=Adapter("reference", ReferenceCache),
        )
        assert not found, f"seed {seed}: {found[0].words}"
    assert factory.made[True] > CASES / 3, "too few pages of this layout were played"
