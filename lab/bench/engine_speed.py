"""Times tree cores under SGLang's `UnifiedRadixCache`, side by side in one process.

The cores take turns, a few requests each, so that what disturbs one disturbs all. Every round
serves the same requests from fresh caches; of each step of each request the least time over the
rounds counts.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence

from attrs import asdict, frozen

from kvcanon.lab.bench.case import BenchCell, RequestStep
from kvcanon.lab.bench.driver import StepTimes
from kvcanon.lab.bench.drivers.sglang_engine import FLOOR, OURS, EngineDriver
from kvcanon.lab.bench.shared_prefixes import SharedPrefixes

TURN = 16
"""Requests that a core serves before it is another's turn."""
WARM_UP = 8
Row = dict[RequestStep, int]


@frozen
class CoreSpeed:
    """What one core took."""

    core: str
    steps_us: Mapping[str, float]
    """Microseconds a request, by step; what SGLang's allocator takes is left out."""
    hit_rate: float

    @property
    def request_us(self) -> float:
        """Microseconds a request, until it has its events."""
        return self.sent_us - self.steps_us.get(RequestStep.SEND, 0.0)

    @property
    def sent_us(self) -> float:
        """Microseconds a request with the sending of its events.

        That is another thread's work, and holds the interpreter's lock as the scheduler does.
        """
        return sum(self.steps_us.values())

    def to_json(self) -> dict[str, object]:
        """Return all fields as JSON values."""
        return asdict(self) | {"request_us": self.request_us, "sent_us": self.sent_us}


def measure_speed(
    cell: BenchCell, cores: Sequence[str], workload: SharedPrefixes, rounds: int
) -> list[CoreSpeed]:
    """Serve the workload from every core, `rounds` times. Raises: UsageError."""
    requests = workload.make()
    maker = EngineDriver(cell, OURS)
    prompts = [maker.prepare(request) for request in requests]
    answers = _recorded(cell, prompts) if FLOOR in cores else []
    best: dict[str, list[Row]] = {}
    hits: dict[str, int] = {}
    for number in range(rounds):
        # Whoever is first differs from round to round.
        order = [*cores[number % len(cores) :], *cores[: number % len(cores)]]
        drivers = {core: _driver(cell, core, answers) for core in order}
        rows: dict[str, list[Row]] = {core: [] for core in order}
        found = dict.fromkeys(order, 0)
        gc.collect()
        for begin in range(0, len(prompts), TURN):
            for core, driver in drivers.items():
                for prompt in prompts[begin : begin + TURN]:
                    hit, row = _serve(driver, prompt, cell)
                    rows[core].append(row)
                    found[core] += hit
        for core, taken in rows.items():
            best[core] = [_least(*pair) for pair in zip(best.get(core, taken), taken, strict=True)]
        hits = found
        drivers.clear()
    # SGLang complains of results that are dropped with slots in them.
    for answer in answers:
        for name in ("device_frees", "host_frees", "cache_actions"):
            getattr(answer, name, answers[:0]).clear()
    asked = sum(len(prompt.whole) for prompt in prompts)
    return [CoreSpeed(core, _means(best[core][WARM_UP:]), hits[core] / asked) for core in cores]


def _driver(cell: BenchCell, core: str, answers: list[object]) -> EngineDriver:
    if core != FLOOR:
        return EngineDriver(cell, core)
    driver = EngineDriver(cell, OURS)
    driver.answer_with(answers)
    return driver


def _recorded(cell: BenchCell, prompts: Sequence[object]) -> list[object]:
    driver = EngineDriver(cell, OURS)
    answers = driver.record()
    for prompt in prompts:
        _serve(driver, prompt, cell)
    return answers


def _serve(driver: EngineDriver, prompt: object, cell: BenchCell) -> tuple[int, Row]:
    taken = StepTimes()
    hit = driver.serve(prompt, taken)  # type: ignore[arg-type] # As the driver prepared it.
    if cell.events:
        driver.send_events(taken)
    steps = taken.by_step()
    steps.pop(RequestStep.ALLOCATE, None)
    return hit, {step: sum(times) for step, times in steps.items()}


def _least(one: Row, other: Row) -> Row:
    return {step: min(one.get(step, time), time) for step, time in other.items()}


def _means(rows: Sequence[Row]) -> dict[str, float]:
    means = {step: sum(row.get(step, 0) for row in rows) / len(rows) / 1e3 for step in RequestStep}
    return {step.value: mean for step, mean in means.items() if mean}
