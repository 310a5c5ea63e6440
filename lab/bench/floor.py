"""A full hit of a long prompt, compared with its floor: comparing the prompt's bytes.

There are two floors. A prompt that was just matched is in the processor's caches, as is the tree's
copy of it; one of many prompts is in neither, and its bytes come from memory.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Mapping, Sequence
from functools import partial
from time import perf_counter_ns

from attrs import evolve, field, frozen

from kvcanon.conformance.replay.latency import Latency, latency_of
from kvcanon.conformance.replay.workloads.request import Request
from kvcanon.lab.bench.case import BenchCell
from kvcanon.lab.bench.driver import Driver, MakeDriver, Prompt, StepTimes
from kvcanon.lab.bench.growth import random_tokens
from kvcanon.lab.bench.throughput import latency_from, warm_up

PROMPT_TOKENS = 100_000
PROMPTS = 200
"""The number of prompts: their bytes exceed any processor's caches between two uses of one."""
REPEATS = 200


@frozen
class FullHit:
    """The times to find a prompt that is cached whole."""

    prompt_tokens: int
    hot: Latency = field(converter=latency_from)
    """The same prompt again and again."""
    cold: Latency = field(converter=latency_from)
    """One prompt after the other."""
    floor_hot: Latency = field(converter=latency_from)
    """Comparing the prompt's bytes, four per token; the same prompt again and again."""
    floor_cold: Latency = field(converter=latency_from)


def full_hit(
    make: MakeDriver[Prompt],
    cell: BenchCell,
    options: Mapping[str, str],
    prompt_tokens: int = PROMPT_TOKENS,
    prompts: int = PROMPTS,
) -> FullHit:
    """Find prompts that are cached whole, hot and cold, and compare bytes in the same way."""
    page_size = cell.page_size
    length = prompt_tokens // page_size * page_size + 1
    roomy = evolve(cell, pool_tokens=(length + page_size) * prompts, swa_tokens=0)
    driver = warm_up(make, roomy, options)
    driver = make(roomy, options)
    requests = [
        Request(length, partial(random_tokens, f"hit {number}", length))
        for number in range(prompts)
    ]
    prepared = [driver.prepare(request) for request in requests]
    for prompt in prepared:
        driver.serve(prompt, StepTimes())
    cold = _matches(driver, prepared)
    hot = _matches(driver, prepared[:1] * REPEATS)
    pairs = [(array("I", request.make_tokens()), array("I")) for request in requests]
    for one, other in pairs:
        other.extend(one)
    floor_cold = _comparisons(pairs)
    floor_hot = _comparisons(pairs[:1] * REPEATS)
    return FullHit(prompt_tokens, hot, cold, floor_hot, floor_cold)


def _matches(driver: Driver[Prompt], prompts: Sequence[Prompt]) -> Latency:
    taken = StepTimes()
    for prompt in prompts:
        driver.find(prompt, taken)
    return latency_of(taken.match)


def _comparisons(pairs: Sequence[tuple[array[int], array[int]]]) -> Latency:
    compare = ctypes.CDLL(None).memcmp
    compare.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    taken_ns = array("Q")
    for one, other in pairs:
        size = one.itemsize * len(one)
        first, second = one.buffer_info()[0], other.buffer_info()[0]
        began = perf_counter_ns()
        compare(first, second, size)
        taken_ns.append(perf_counter_ns() - began)
    return latency_of(taken_ns)
