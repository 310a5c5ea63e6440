"""Whose hang it is when no step computes anything: the connector's, or the engine's own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kvcanon.lab.connectors.connector_calls import ConnectorHalves
from kvcanon.lab.connectors.engine_request import StandInRequest
from kvcanon.lab.connectors.engine_shape import EngineShape
from kvcanon.lab.connectors.finding import BreachKind, BrokenConnector
from kvcanon.lab.connectors.stand_in_engine import STALLED_STEPS, StandInEngine
from kvcanon.lab.connectors.step_plan import StepPlan

BLOCKS = {"ended": [1, 2], "lost": [3], "waits": list[int]()}


class Stuck:
    """A scheduler that computes nothing. The loads of some of its requests have ended."""

    def __init__(self, names: tuple[str, ...], ended: tuple[str, ...], kept: list[int]) -> None:
        self.requests = {each: StandInRequest(each, (1, 2, 3), 4, 1) for each in names}
        self._ended, self._kept = ended, kept
        self.finished: list[str] = []

    def plan(self) -> StepPlan:
        """A step of nothing."""
        return StepPlan()

    def settle(self, *_: object) -> None:
        """Nothing came of it."""

    def take_events(self) -> tuple[()]:
        """None."""
        return ()

    def unfinished(self) -> list[StandInRequest]:
        """All."""
        return list(self.requests.values())

    def ended_loads(self) -> list[StandInRequest]:
        """Those that are said."""
        return [self.requests[each] for each in self._ended]

    def table_of(self, request: StandInRequest) -> tuple[list[int], ...]:
        """Its blocks."""
        return (BLOCKS[request.request_id],)

    def held_blocks(self) -> list[int]:
        """Those of all, and what something else keeps."""
        return [*(block for each in self.requests for block in BLOCKS[each]), *self._kept]

    def open_requests(self) -> dict[str, str]:
        """All."""
        return dict.fromkeys(self.requests, "")

    def finish(self, request: StandInRequest) -> None:
        """Forget it."""
        self.finished.append(request.request_id)
        del self.requests[request.request_id]


def steps_of(scheduler: Stuck) -> StandInEngine:
    """An engine that has made so many steps as are a hang. Raises: BrokenConnector."""
    unasked: Any = None
    stuck: Any = scheduler
    engine = StandInEngine(
        EngineShape(blocks=8), ConnectorHalves(unasked, []), scheduler=lambda *_: stuck
    )
    counter: Any = SimpleNamespace(report_of=lambda _: None)
    engine._counter = counter
    for _ in range(STALLED_STEPS):
        engine.step()
    return engine


def test_request_in_front_of_an_ended_load_is_the_engines_own() -> None:
    """Its client goes away, and that of the load stays."""
    scheduler = Stuck(("waits", "ended"), ("ended",), [])
    assert steps_of(scheduler).own_hangs == 1
    assert scheduler.finished == ["waits"]


@pytest.mark.parametrize(
    ("names", "ended", "kept"),
    [
        (("waits", "ended", "lost"), ("ended",), []),
        (("waits", "ended"), ("ended",), [4]),
        (("waits",), (), []),
        (("ended",), ("ended",), []),
    ],
    ids=["a load never ends", "a block is never freed", "told to wait", "nobody in front"],
)
def test_other_hangs_are_the_connectors(
    names: tuple[str, ...], ended: tuple[str, ...], kept: list[int]
) -> None:
    """Where something is held that no ended load has, or no load has ended, nothing is excused."""
    scheduler = Stuck(names, ended, kept)
    with pytest.raises(BrokenConnector) as raised:
        steps_of(scheduler)
    assert raised.value.fault is BreachKind.HANG
    assert not scheduler.finished
