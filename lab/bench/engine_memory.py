"""How much memory the tree of one core takes, under SGLang's `UnifiedRadixCache`.

The process measures its own resident memory before and after it fills the tree, so that it must
have one core alone. SGLang's allocator and pools are made before. Prompts are made one by one: what
many leave behind between a tree's arrays varied by two bytes a cached token.
"""

from __future__ import annotations

import ctypes
import gc

from attrs import asdict, evolve, frozen

from kvcanon.lab.bench.case import BenchCell
from kvcanon.lab.bench.driver import StepTimes
from kvcanon.lab.bench.drivers.sglang import make_allocator
from kvcanon.lab.bench.drivers.sglang_engine import EngineDriver
from kvcanon.lab.bench.memory import resident_bytes
from kvcanon.lab.bench.shared_prefixes import SharedPrefixes

BATCH = 64
"""Requests that share their first texts."""


@frozen
class CoreMemory:
    """What a tree takes."""

    core: str
    tree_bytes: int
    cached_tokens: int

    @property
    def bytes_per_token(self) -> float:
        """Bytes a cached token."""
        return self.tree_bytes / self.cached_tokens

    def to_json(self) -> dict[str, object]:
        """Return all fields as JSON values."""
        return asdict(self) | {"bytes_per_token": self.bytes_per_token}


def measure_memory(cell: BenchCell, core: str, workload: SharedPrefixes) -> CoreMemory:
    """Fill a pool with prompts until one does not fit. Raises: UsageError.

    What SGLang's allocator and pools take is measured first, and taken off.
    """
    # What is imported and allocated once is there after a small run.
    _fill(EngineDriver(cell, core), evolve(workload, requests=BATCH))
    empty = _settled_bytes()
    allocator = make_allocator(cell)
    pools = _settled_bytes() - empty
    del allocator
    empty = _settled_bytes()
    driver = EngineDriver(cell, core)
    _fill(driver, workload)
    cached = driver.cached_tokens()
    return CoreMemory(core, max(0, _settled_bytes() - empty - pools), cached)


def _fill(driver: EngineDriver, workload: SharedPrefixes) -> None:
    """Serve batches of prompts until one does not fit."""
    for batch in range(-(-workload.requests // BATCH)):
        part = evolve(workload, requests=BATCH, seed=workload.seed + batch, prefixes=8)
        for request in part.stream():
            prompt = driver.prepare(request)
            if len(prompt.whole) > driver.available():
                return
            _serve(driver, prompt)


def _serve(driver: EngineDriver, prompt: object) -> None:
    taken = StepTimes()
    driver.serve(prompt, taken)  # type: ignore[arg-type] # As the driver prepared it.
    driver.take_events(taken)


def _settled_bytes() -> int:
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    return resident_bytes()
