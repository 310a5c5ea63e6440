"""What the engine needs of a scheduler: our own, or vLLM's in its environment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from kvcanon.lab.connectors.connector_calls import ConnectorOfScheduler, ConnectorReport
from kvcanon.lab.connectors.engine_request import StandInRequest
from kvcanon.lab.connectors.engine_shape import EngineShape


class StepScheduler(Protocol):
    """Decides what each step computes, and tells a connector in the order that vLLM does."""

    local_tokens: int
    """Tokens that were found on the device."""
    external_tokens: int
    """Tokens that the connector was asked to load."""
    preemptions: int
    failed_loads: int

    def made(self, request: StandInRequest) -> StandInRequest:
        """The request as this scheduler takes it."""

    def add(self, request: StandInRequest) -> None:
        """Take a new request, which `made` has made."""

    def end_unscheduled(self, request: StandInRequest) -> None:
        """End a request that was never added, of which the connector was only asked."""

    def has_work(self) -> bool:
        """Whether vLLM would make another step."""

    def unfinished(self) -> Sequence[StandInRequest]:
        """The requests that did not end."""

    def loading(self) -> Sequence[StandInRequest]:
        """The requests that the connector loads for."""

    def ended_loads(self) -> Sequence[StandInRequest]:
        """Those of them whose load has ended, so that a step need only look at them."""

    def plan(self) -> Any:  # noqa: ANN401  # Our plan, or vLLM's.
        """Decide what the next step computes, and tell the connector."""

    def settle(self, plan: Any, report: ConnectorReport, token: int) -> None:  # noqa: ANN401
        """Take what a step has computed, and what the connector has finished."""

    def finish(self, request: StandInRequest) -> None:
        """End a request in whatever state it is."""

    def reset(self) -> bool:
        """Empty both caches. Returns: whether that was done."""

    def take_events(self) -> Iterable[Any]:
        """The connector's events since the last call."""

    def table_of(self, request: StandInRequest) -> Sequence[Sequence[int]]:
        """The block ids of a request, by group."""

    def has_on_device(self, block_hash: bytes, group: int) -> bool:
        """Whether a block of a group is found on the device."""

    def held_blocks(self) -> Sequence[int]:
        """The ids of all blocks that something holds."""

    def open_requests(self) -> Mapping[str, str]:
        """Those that hold blocks or wait, by id, each with a word on where it is."""


MakeScheduler = Callable[[EngineShape, ConnectorOfScheduler], StepScheduler]
