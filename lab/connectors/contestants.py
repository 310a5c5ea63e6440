"""The connectors that runs are played around, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from attrs import frozen

from kvcanon.lab.connectors.connector_calls import ConnectorHalves
from kvcanon.lab.connectors.drawn_run import DrawnRun, MakeDrawn
from kvcanon.lab.connectors.plain_connector import plain_connector


@frozen
class ConnectorContestant:
    """A connector, and what of a run it can play."""

    make: MakeDrawn
    fitted: Callable[[DrawnRun], DrawnRun] = lambda run: run
    idle_seconds: float = 0.0
    """How long a step without tokens takes, for copies that run in threads."""


def make_plain(run: DrawnRun) -> ConnectorHalves:
    """The plain connector, for a run."""
    return plain_connector(run.shape, run.times, run.seed, run.host_blocks)


CONNECTORS: Mapping[str, ConnectorContestant] = {"plain": ConnectorContestant(make_plain)}
