"""Fixtures of several tests of the fast cache."""

import threading
from collections.abc import Iterator

import pytest

from gated_copies import PATIENCE_S, soon
from kvcanon.optimized.threaded_engine import ThreadedEngine


@pytest.fixture
def engine() -> Iterator[ThreadedEngine]:
    """A threaded engine with one layer in a group."""
    made = ThreadedEngine(group_bytes=1)
    yield made
    soon(made.close)


@pytest.fixture
def no_thread_is_left() -> Iterator[None]:
    """Every thread that a test started has ended soon after it."""
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), f"{thread.name} is left"
