"""Proved functions are in use: laws, caches or judges call each oracle function."""

from __future__ import annotations

import sys
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import CodeType, FrameType

import pytest

from kvcanon.conformance.cases.draw import draw_case
from kvcanon.conformance.check.trial import Trial
from kvcanon.conformance.judge import JudgeConfig
from kvcanon.conformance.protocol.cache_names import load_adapter
from kvcanon.lab.prove.claim import oracle_functions

CASES = range(24)
"""The cases that are played; a handful would do for most functions."""

COUNT = ("kvcanon.spec.laws.", "kvcanon.reference.", "kvcanon.conformance.")
"""Laws, the plain cache and the judge: their answers rest on oracle functions."""

Callers = Mapping[str, set[str]]


@contextmanager
def watched(codes: Mapping[CodeType, str]) -> Iterator[Callers]:
    """Collect the modules that call some functions, by the function's name."""
    callers: dict[str, set[str]] = defaultdict(set)

    def look(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code in codes:
            callers[codes[frame.f_code]].add(calling_module(frame))

    earlier = sys.getprofile()
    threading.setprofile(look)
    sys.setprofile(look)
    try:
        yield callers
    finally:
        sys.setprofile(earlier)
        threading.setprofile(None)


def calling_module(frame: FrameType) -> str:
    """Return the calling module: the first up the stack that is not a chapter of laws."""
    caller = frame.f_back
    while caller is not None:
        module: str = caller.f_globals.get("__name__", "")
        if module.startswith(COUNT) or not module.startswith("kvcanon.spec."):
            return module
        caller = caller.f_back
    return "nobody"


@pytest.fixture(scope="module")
def callers() -> Callers:
    """Return the callers of oracle functions while the reference is judged in both modes."""
    reference = load_adapter("reference")
    codes = {function.__code__: name for name, function in oracle_functions().items()}
    with watched(codes) as found:
        for number in CASES:
            trial = Trial(reference, JudgeConfig(black_box=number % 2 == 1))
            finding, _ = trial.play(draw_case(number, reference.offer))
            assert finding is None
    return found


INVERSES = {"unframe"}
"""Functions without callers: as inverses they prove that other functions are injective."""


@pytest.mark.parametrize("name", [name for name in oracle_functions() if name not in INVERSES])
def test_each_oracle_function_is_called_where_it_counts(name: str, callers: Callers) -> None:
    """A law, the plain cache or the judge calls each proved function."""
    assert any(module.startswith(COUNT) for module in callers[name]), sorted(callers[name])
