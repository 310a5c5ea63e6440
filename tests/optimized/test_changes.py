"""Waiting that an interrupt between any two steps of Python does not break."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from threading import Event, Thread
from types import FrameType
from typing import TypeAlias

from kvcanon.optimized import changes as changes_module
from kvcanon.optimized.changes import Changes

Tracer: TypeAlias = Callable[[FrameType, str, object], "Tracer | None"]

SOON_S = 10
MOST_STEPS = 200


def interrupted_at(step: int, call: Callable[[], None]) -> bool:
    """Make a call, interrupted before the numbered step in its module; False if it ended before."""
    left = step

    def trace(frame: FrameType, event: str, _: object) -> Tracer | None:
        nonlocal left
        if frame.f_code.co_filename != changes_module.__file__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            left -= 1
            if left < 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
    return False


class Waiter:
    """A thread that waits until a value is set."""

    def __init__(self, changes: Changes) -> None:
        self.is_set, self.looked = False, Event()
        self.thread = Thread(target=changes.wait_for, args=(self.look,), daemon=True)
        self.thread.start()
        assert self.looked.wait(SOON_S)

    def look(self) -> bool:
        """Say whether the value is set, and that somebody looked."""
        self.looked.set()
        return self.is_set


def waiting(changes: Changes) -> Waiter:
    """A waiter that has its bell, and sleeps or is about to."""
    waiter = Waiter(changes)
    while not changes._bells:  # Nothing else shows that it waits.
        pass
    return waiter


def test_an_interrupted_ring_can_be_rung_again() -> None:
    """Wherever an interrupt comes, the next ring wakes all who wait."""
    steps = 0
    for step in range(MOST_STEPS):
        changes = Changes()
        waiter = waiting(changes)
        if not interrupted_at(step, changes.notify_all):
            break
        steps += 1
        waiter.is_set = True
        changes.notify_all()
        waiter.thread.join(SOON_S)
        assert not waiter.thread.is_alive(), f"interrupted before step {step}"
    assert 5 < steps < MOST_STEPS


def test_who_waits_rings_for_changes_that_rang_no_bell() -> None:
    """A change whose ring was interrupted is seen as soon as anybody else waits."""
    changes = Changes()
    waiter = waiting(changes)
    waiter.is_set = True
    changes.wait_for(lambda: True)
    waiter.thread.join(SOON_S)
    assert not waiter.thread.is_alive()


def test_an_interrupted_wait_leaves_others_alone() -> None:
    """Wherever an interrupt ends a wait, later rings wake the others and nobody gets an error."""
    steps = 0
    for step in range(MOST_STEPS):
        changes = Changes()
        waiter = waiting(changes)
        wait = partial(changes.wait_for, iter([False, True]).__next__)
        if not interrupted_at(step, wait):
            break
        steps += 1
        waiter.is_set = True
        changes.notify_all()
        waiter.thread.join(SOON_S)
        assert not waiter.thread.is_alive(), f"interrupted before step {step}"
    assert 5 < steps < MOST_STEPS
