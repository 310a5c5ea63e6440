"""What is proved is what runs: each kernel is called by laws, caches or judges, while they work."""

from __future__ import annotations

import sys
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import CodeType, FrameType

import pytest

from kvcanon.conformance.protocol.loading import load_adapter
from kvcanon.conformance.search.play import JudgeConfig
from kvcanon.conformance.search.trial import Trial
from kvcanon.conformance.search.walker import draw_case
from kvcanon.conformance.verify.prove.claim import kernels

CASES = range(16)
"""Cases that are played; a handful would do for most kernels."""

COUNT = ("kvcanon.spec.laws.", "kvcanon.reference.", "kvcanon.conformance.")
"""Laws, the plain cache and the judge: those whose answers are to rest on kernels."""

Callers = Mapping[str, set[str]]


@contextmanager
def watched(codes: Mapping[CodeType, str]) -> Iterator[Callers]:
    """Which modules call functions, by the names of these."""
    callers: dict[str, set[str]] = defaultdict(set)

    def look(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code in codes:
            callers[codes[frame.f_code]].add(on_whose_behalf(frame))

    earlier = sys.getprofile()
    threading.setprofile(look)
    sys.setprofile(look)
    try:
        yield callers
    finally:
        sys.setprofile(earlier)
        threading.setprofile(None)


def on_whose_behalf(frame: FrameType) -> str:
    """The module that asked: the first up the stack that is no other chapter of the law book."""
    asking = frame.f_back
    while asking is not None:
        module: str = asking.f_globals["__name__"]
        if module.startswith(COUNT) or not module.startswith("kvcanon.spec."):
            return module
        asking = asking.f_back
    return "nobody"


@pytest.fixture(scope="module")
def callers() -> Callers:
    """Who calls kernels while the reference is judged from inside, from outside and by requests."""
    reference = load_adapter("reference")
    codes = {function.__code__: name for name, function in kernels().items()}
    with watched(codes) as found:
        for number in CASES:
            trial = Trial(reference, JudgeConfig(black_box=number % 2 == 1))
            finding, _ = trial.play(draw_case(number, reference.offer))
            assert finding is None
    return found


INVERSES = {"unframe"}
"""Kernels that nobody calls: that they undo another is why that one is injective."""


@pytest.mark.parametrize("name", [name for name in kernels() if name not in INVERSES])
def test_each_kernel_is_called_where_it_counts(name: str, callers: Callers) -> None:
    """A kernel is proved that nothing rests on: a law or a cache has a rule of its own again."""
    assert any(module.startswith(COUNT) for module in callers[name]), sorted(callers[name])
