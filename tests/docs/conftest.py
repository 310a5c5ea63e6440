"""Fixtures of the tests of the docs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from kvcanon.optimized.threaded_engine import ThreadedEngine


@pytest.fixture(name="_one_thread")
def one_thread_of_torch() -> Iterator[None]:
    """What the example does, and what it needs to be fast beside other processes."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(name="transfers")
def engine_that_tells_of_every_layer() -> Iterator[ThreadedEngine]:
    """Copies in the background, one layer at a time."""
    with ThreadedEngine(group_bytes=1) as engine:
        yield engine
