"""The threaded engine, layer by layer: when each layer of a load is reported."""

from __future__ import annotations

import pytest

from gated_copies import PATIENCE_S, Gate, GatedPools, Log, is_stuck, slots, wait, wait_layer
from kvcanon.optimized.page_transfer import Move, page_order
from kvcanon.optimized.threaded_engine import ThreadedEngine
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.transfer import Completion, Direction
from kvcanon.spec.types import FULL, SWA

BACKUP, LOAD_BACK = Direction.BACKUP, Direction.LOAD_BACK


pytestmark = pytest.mark.usefixtures("no_thread_is_left")


def test_layers_arrive_one_after_the_other(engine: ThreadedEngine) -> None:
    """Waiting for a layer returns when that layer is there, before later layers."""
    gates = {1: Gate(), 2: Gate()}
    pools = GatedPools(3, gates=gates)
    order = page_order(7, LOAD_BACK, (Move(FULL, slots(2), slots(2)),), pools)
    engine.submit(order)
    assert wait_layer(engine, 7, 0)
    assert pools.moved == [(FULL, 0)]
    waiting = is_stuck(lambda: engine.wait_layer(7, 1))
    gates[1].opened.set()
    waiting.join(PATIENCE_S)
    assert not waiting.is_alive()
    assert wait_layer(engine, 7, 1)
    assert wait_layer(engine, 7, 0)
    assert engine.poll() == ()
    assert gates[2].reached.wait(PATIENCE_S)
    gates[2].opened.set()
    assert wait_layer(engine, 7, 2)
    wait(engine, 7)
    assert engine.poll() == (Completion(7, ok=True),)
    assert pools.moved == [(FULL, 0), (FULL, 1), (FULL, 2)]
    assert wait_layer(engine, 7, 2)


def test_a_layer_is_there_when_every_component_has_it(engine: ThreadedEngine) -> None:
    """A layer is reported only when the data of all its components is there."""
    gates = {2: Gate()}
    pools = GatedPools(3, gates=gates)
    moves = (Move(FULL, slots(2), slots(2)), Move(SWA, slots(1), slots(1)))
    engine.submit(page_order(7, LOAD_BACK, moves, pools))
    assert wait_layer(engine, 7, 1)
    assert pools.moved == [(FULL, 0), (SWA, 0), (FULL, 1), (SWA, 1)]
    gates[2].opened.set()
    # Beyond the last layer, which is that of the whole order.
    assert wait_layer(engine, 7, 5)
    assert pools.moved[4:] == [(FULL, 2)]


def test_layers_go_in_groups_that_are_worth_it() -> None:
    """Layers arrive in groups of at least `group_bytes`."""
    gates = {3: Gate()}
    pools = GatedPools(4, gates=gates)
    with ThreadedEngine(group_bytes=6) as engine:
        engine.submit(page_order(1, LOAD_BACK, (Move(FULL, slots(3), slots(3)),), pools))
        assert gates[3].reached.wait(PATIENCE_S)
        assert wait_layer(engine, 1, 1)
        # The group of layers 2 and 3 is under way.
        waiting = is_stuck(lambda: engine.wait_layer(1, 2))
        gates[3].opened.set()
        waiting.join(PATIENCE_S)
        assert wait_layer(engine, 1, 2)


def test_layers_of_a_failed_copy_are_reported_missing(engine: ThreadedEngine) -> None:
    """Waiting for a layer of a failed copy returns False."""
    gate = Gate()
    pools = GatedPools(3, gates={1: gate})
    order = page_order(7, LOAD_BACK, (Move(FULL, slots(1), slots(1)),), pools)
    engine.submit(order)
    assert wait_layer(engine, 7, 0)
    pools.moved = None  # type: ignore[assignment]
    gate.opened.set()
    assert not wait_layer(engine, 7, 1)
    wait(engine, 7)
    assert engine.poll() == (Completion(7, ok=False),)
    assert not wait_layer(engine, 7, 2)
    assert wait_layer(engine, 8, 0)


def test_layers_of_a_plain_order_come_together(engine: ThreadedEngine) -> None:
    """The layers of a plain order arrive when the order ends, not before."""
    log, gate = Log(), Gate()
    engine.submit(log.make(1, LOAD_BACK, gate))
    waiting = is_stuck(lambda: engine.wait_layer(1, 0))
    gate.opened.set()
    waiting.join(PATIENCE_S)
    assert wait_layer(engine, 1, 0)
    assert log.performed == [1]


def test_an_order_of_nothing_completes(engine: ThreadedEngine) -> None:
    """An order without pages completes."""
    pools = GatedPools(3)
    engine.submit(page_order(1, LOAD_BACK, (), pools))
    engine.submit(page_order(2, LOAD_BACK, (Move(FULL, slots(0), slots(0)),), pools))
    wait(engine, 2)
    assert engine.poll() == (Completion(1, ok=True), Completion(2, ok=True))


def test_engine_refuses_what_is_no_layer_and_no_group(engine: ThreadedEngine) -> None:
    """A layer below 0 and a group below 1 byte are refused."""
    with pytest.raises(BadArgument, match="layer: is -1"):
        engine.wait_layer(1, -1)
    with pytest.raises(BadArgument, match="group_bytes: is 0"):
        ThreadedEngine(group_bytes=0)
