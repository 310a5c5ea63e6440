"""Fixtures of several tests of the fast cache."""

import threading
from collections.abc import Iterator

import pytest

from fast.copies import PATIENCE_S, Patient
from fast.nodes import MADE
from kvcanon.optimized import _core


@pytest.fixture
def engine() -> Iterator[Patient]:
    """A threaded engine with one layer in a group."""
    with Patient(group_bytes=1) as made:
        yield made


@pytest.fixture
def no_thread_is_left() -> Iterator[None]:
    """Every thread that a test started has ended soon after it."""
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), f"{thread.name} is left"


@pytest.fixture(autouse=True)
def _sound_cores() -> Iterator[None]:
    """The redundant state of the cores that a test made for their nodes agrees in the end."""
    yield
    while MADE:
        _core.Tree(MADE.pop()).check()
