"""Fixtures of tests of the external tier."""

import threading
from collections.abc import Iterator

import pytest

from fast.copies import PATIENCE_S


@pytest.fixture
def no_thread_is_left() -> Iterator[None]:
    """Every thread that a test started has ended soon after it."""
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), f"{thread.name} is left"
