"""Copies that block at a gate, and calls that must not block, for tests of the threaded engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import TypeVar

import numpy as np
from attrs import define, field

from kvcanon.optimized.layout import PageLayout
from kvcanon.optimized.page_transfer import ALL_LAYERS, Move
from kvcanon.optimized.threaded_engine import ThreadedEngine
from kvcanon.spec.transfer import Direction, TransferOrder
from kvcanon.spec.types import FULL, SWA, Component, TransferId

BACKUP, LOAD_BACK = Direction.BACKUP, Direction.LOAD_BACK

PATIENCE_S = 20.0

Answer = TypeVar("Answer")


@define
class Log:
    """Makes transfer orders, and records the order in which they are performed."""

    performed: list[TransferId] = field(factory=list)

    def make(
        self,
        transfer_id: TransferId,
        direction: Direction = BACKUP,
        copy: Callable[[], None] = lambda: None,
    ) -> TransferOrder:
        """An order that performs this action."""

        def perform() -> None:
            copy()
            self.performed.append(transfer_id)

        return TransferOrder(transfer_id, direction, (), perform)


@define
class Gate:
    """A copy that starts, then blocks until the gate opens."""

    reached: Event = field(factory=Event)
    opened: Event = field(factory=Event)

    def __call__(self) -> None:
        """Wait until the gate opens."""
        self.reached.set()
        assert self.opened.wait(PATIENCE_S)


@define
class GatedPools:
    """Pools that copy a layer when its gate opens."""

    layers: int
    moved: list[tuple[Component, int]] = field(factory=list)
    gates: dict[int, Gate] = field(factory=dict)

    @property
    def layouts(self) -> dict[Component, PageLayout]:
        """One byte per layer; swa has fewer layers."""
        return {FULL: PageLayout(self.layers, (1,)), SWA: PageLayout(self.layers - 1, (1,))}

    def copy(self, move: Move, direction: Direction, layers: slice = ALL_LAYERS) -> None:
        """Record the layers, once their gate opens."""
        for layer in range(self.layouts[move.component].layers)[layers]:
            if layer in self.gates:
                self.gates[layer]()
            self.moved.append((move.component, layer))


def slots(count: int) -> np.typing.NDArray[np.int32]:
    """The first slots."""
    return np.arange(count, dtype=np.int32)


def soon(ask: Callable[[], Answer]) -> Answer:
    """The result or error of a call in another thread; fails the test if it does not return."""
    answers: list[Answer] = []
    errors: list[BaseException] = []

    def answer() -> None:
        try:
            answers.append(ask())
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    thread = Thread(target=answer, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    for error in errors:
        raise error
    assert answers, "no answer"
    return answers[0]


class Patient(ThreadedEngine):
    """An engine whose calls that wait fail the test if they do not return."""

    def wait(self, transfer_id: TransferId) -> None:
        soon(lambda: super(Patient, self).wait(transfer_id))

    def wait_layer(self, transfer_id: TransferId, layer: int) -> bool:
        """Wait for a layer; returns whether it arrived."""
        return soon(lambda: super(Patient, self).wait_layer(transfer_id, layer))

    def close(self) -> None:
        """End the threads."""
        soon(super().close)


@contextmanager
def is_stuck(ask: Callable[[], object]) -> Iterator[None]:
    """Start a call that must not return yet; the code inside must make it return."""
    thread = Thread(target=ask, daemon=True)
    thread.start()
    thread.join(0.02)
    assert thread.is_alive()
    yield
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
