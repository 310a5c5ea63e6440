"""The connectors that runs are played around, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from attrs import evolve, frozen

from kvcanon.lab.connectors.connector_calls import ConnectorHalves
from kvcanon.lab.connectors.drawn_run import DrawnRun, MakeDrawn
from kvcanon.lab.connectors.engine_shape import Queueing
from kvcanon.lab.connectors.kvcanon_tier import drawn_kvcanon, drawn_kvcanon_over_disk
from kvcanon.lab.connectors.plain_connector import plain_connector
from kvcanon.optimized.vllm.tier_shape import Policy


@frozen
class ConnectorContestant:
    """A connector, and what of a run it can play."""

    make: MakeDrawn
    fitted: Callable[[DrawnRun], DrawnRun] = lambda run: run


def make_plain(run: DrawnRun) -> ConnectorHalves:
    """The plain connector, for a run."""
    return plain_connector(run.shape, run.times, run.seed, run.host_blocks)


def holders_first(run: DrawnRun) -> DrawnRun:
    """The run with the queues of vLLM 0.33.

    A connector that lets requests wait for the load of another hangs with those of vllm#57841.
    """
    return evolve(run, shape=evolve(run.shape, queueing=Queueing.HOLDERS_FIRST))


CONNECTORS: Mapping[str, ConnectorContestant] = {
    "plain": ConnectorContestant(make_plain),
    "kvcanon": ConnectorContestant(partial(drawn_kvcanon, policy=Policy.WRITE_BACK), holders_first),
    "kvcanon-through": ConnectorContestant(
        partial(drawn_kvcanon, policy=Policy.WRITE_THROUGH), holders_first
    ),
    "kvcanon-disk": ConnectorContestant(
        partial(drawn_kvcanon_over_disk, policy=Policy.WRITE_BACK), holders_first
    ),
    "kvcanon-disk-through": ConnectorContestant(
        partial(drawn_kvcanon_over_disk, policy=Policy.WRITE_THROUGH), holders_first
    ),
}
