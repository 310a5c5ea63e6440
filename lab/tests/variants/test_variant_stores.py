"""Lawful variations over a store below the host: none is accused."""

from __future__ import annotations

import pytest

from kvcanon.conformance.cases.draw_stored import draw_stored_case
from kvcanon.conformance.check.play import play
from kvcanon.lab.variants.registry import VARIATIONS
from kvcanon.lab.variants.variant import varied

CASES = 4
"""Cases of each."""


@pytest.mark.parametrize("name", VARIATIONS)
def test_a_variation_holds_over_a_store(name: str) -> None:
    """A sound cache of another design breaks no law where it has a store."""
    adapter = varied(name, [name])
    for seed in range(CASES):
        found, _ = play(draw_stored_case(seed, adapter.offer), [adapter])
        assert not found, found[0].words
