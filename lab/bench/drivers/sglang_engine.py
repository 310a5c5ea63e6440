"""Drives SGLang's `UnifiedRadixCache` over any tree core, as its scheduler does.

The core `floor` is no core: it gives again what kvcanon's core answered to the same calls, so that
what is left is SGLang's own work, which is the same over every core.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from importlib import import_module
from time import perf_counter_ns
from typing import Any

from kvcanon.lab.bench.case import BenchCell
from kvcanon.lab.bench.driver import StepTimes, shortage
from kvcanon.lab.bench.drivers.sglang import SGLangDriver

OURS, FLOOR = "kvcanon", "floor"


class EngineDriver(SGLangDriver):
    """Calls a `UnifiedRadixCache`."""

    def __init__(self, cell: BenchCell, core: str) -> None:
        import_module("kvcanon.sglang_plugin").register()
        super().__init__(cell, core)
        self._batch = import_module("sglang.srt.disaggregation.kv_events").KVEventBatch
        self._encode = import_module("msgspec").msgpack.Encoder().encode

    def _make_room(self, missing: int, taken: StepTimes) -> None:
        """Evict as an allocation of SGLang does: until the allocator has room."""
        short = shortage(missing, self._full.available_size())
        short_swa = shortage(missing, self._swa.available_size()) if self._swa is not None else 0
        if short or short_swa:
            params = self._evict_params(num_tokens=short, swa_num_tokens=short_swa)
            began = perf_counter_ns()
            self._cache.evict_for_alloc(params)
            taken.evict.append(perf_counter_ns() - began)

    def send_events(self, taken: StepTimes) -> None:
        """Take the events and encode them, as SGLang's scheduler and its publisher do.

        They are not looked at: reading the lists of kvcanon's events decodes them, which nothing in
        a server does.
        """
        began = perf_counter_ns()
        batch = self._batch(ts=0.0, events=self._cache.take_events())
        taken.events.append(perf_counter_ns() - began)
        began = perf_counter_ns()
        self._encode(batch)
        taken.send.append(perf_counter_ns() - began)

    def available(self) -> int:
        """Tokens that every pool of the device has free."""
        pools = (self._full, self._swa) if self._swa is not None else (self._full,)
        return min(int(pool.available_size()) for pool in pools)

    def cached_tokens(self) -> int:
        """Tokens of full data in the tree."""
        cached: int = self._cache.total_size()[0]
        return cached

    def record(self) -> list[object]:
        """Begin to record what the core answers; returns the list that will have it."""
        answers: list[object] = []
        self._cache.tree_core = AnswerRecorder(self._cache.tree_core, answers)
        return answers

    def answer_with(self, answers: list[object]) -> None:
        """Answer with recorded answers from now on, to the same calls."""
        # Some are emptied by SGLang as it goes.
        self._cache.tree_core = Canned(self._cache.tree_core, iter(deepcopy(answers)))


class AnswerRecorder:
    """Passes calls on to a core, and keeps copies of its answers."""

    def __init__(self, core: object, answers: list[object]) -> None:
        self._core, self._answers = core, answers

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 # Whatever the core has.
        value = getattr(self._core, name)
        if not callable(value):
            return value

        def call(*arguments: object, **named: object) -> object:
            answer = value(*arguments, **named)
            self._answers.append(deepcopy(answer))
            return answer

        return call


class Canned:
    """Answers every call with the next recorded answer."""

    def __init__(self, core: object, answers: Iterator[object]) -> None:
        self._core = core
        self._next: Callable[[], object] = answers.__next__

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 # Whatever the core has.
        value = getattr(self._core, name)
        if callable(value):
            following = self._next

            def value(*_arguments: object, **_named: object) -> object:
                return following()

        # Found at once from now on. Numbers that change are asked by calls.
        self.__dict__[name] = value
        return value
