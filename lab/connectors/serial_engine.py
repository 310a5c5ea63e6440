"""An engine without memory, whose copies end with the step that begins them.

For what only the scheduler's half of a connector decides: hits, and the time of its calls.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import define, field, frozen

from kvcanon.lab.connectors.connector_calls import ConnectorOfScheduler, ConnectorReport, Metadata
from kvcanon.lab.connectors.engine_request import StandInRequest
from kvcanon.lab.connectors.engine_scheduler import EngineScheduler
from kvcanon.lab.connectors.engine_shape import EngineShape

TOKEN = 1
"""What every request generates."""


@frozen
class InstantConnector:
    """The scheduler's half of a connector, and what ends with a step."""

    scheduler: ConnectorOfScheduler
    ended: Callable[[Metadata], ConnectorReport]
    """What the workers report of a step, if all copies end that its metadata begin."""


@define(eq=False)
class SerialEngine:
    """Serves one request after the other."""

    shape: EngineShape
    connector: InstantConnector
    scheduler: EngineScheduler = field(init=False)
    prompt_tokens: int = 0

    def __attrs_post_init__(self) -> None:
        self.scheduler = EngineScheduler(self.shape, self.connector.scheduler)

    @property
    def hit_rate(self) -> float:
        """The share of prompt tokens that were found on the device or in the host."""
        found = self.scheduler.local_tokens + self.scheduler.external_tokens
        return found / self.prompt_tokens if self.prompt_tokens else 0.0

    def restart_counts(self) -> None:
        """Count tokens from here on."""
        self.prompt_tokens = 0
        self.scheduler.local_tokens = self.scheduler.external_tokens = 0

    def serve(self, request: StandInRequest) -> None:
        """Serve a request to its end, and all that follows from it."""
        self.prompt_tokens += request.num_prompt_tokens
        self.scheduler.add(request)
        while self.scheduler.has_work():
            self.step()

    def step(self) -> None:
        """Run one step."""
        plan = self.scheduler.plan()
        self.scheduler.settle(plan, self.connector.ended(plan.kv_connector_metadata), TOKEN)
        self.scheduler.take_events()
