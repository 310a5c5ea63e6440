"""A pytest plugin, `-p small_effort`, with which a quick check plays few cases.

The vectors are played all the same: they find most planted faults.
"""

from __future__ import annotations

import pytest
from attrs import evolve

from kvcanon.conformance.check.plan import EFFORTS

SMALL = evolve(
    EFFORTS["quick"],
    walker_cases=6,
    machine_cases=0,
    ranks_cases=0,
    corpus_cases=0,
    store_cases=0,
    seconds=560,
)


def pytest_configure(config: pytest.Config) -> None:
    """Play few cases in this process, which is not that of kvcanon's own tests."""
    EFFORTS["quick"] = SMALL
