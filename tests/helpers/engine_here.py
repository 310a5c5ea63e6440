"""Adapters of engines that are tested in the environment of the engine."""

from __future__ import annotations

import pytest

from kvcanon.conformance.cases.draw import draw_case
from kvcanon.conformance.check.play import play
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.judge.judges import JudgeConfig
from kvcanon.conformance.protocol.adapter import Adapter
from kvcanon.conformance.protocol.cache_names import load_adapter


def adapter_here(name: str) -> Adapter:
    """Return an adapter, or end the collection with the reason why there is none."""
    try:
        return load_adapter(name)
    except UsageError as reason:
        raise pytest.UsageError(str(reason)) from reason


def broken_laws(adapter: Adapter, cases: int) -> set[str]:
    """Return the names of what the first cases of seed 0 find."""
    found = set[str]()
    for seed in range(cases):
        findings, _ = play(
            draw_case(seed, adapter.offer, kind=adapter.kind),
            [adapter],
            JudgeConfig(black_box=True),
        )
        found.update(finding.name for finding in findings)
    return found
