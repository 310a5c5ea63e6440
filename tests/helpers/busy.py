"""A busy machine: this process and endless loops beside it share one processor."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

LOOP = "import time; end = time.monotonic() + 60\nwhile time.monotonic() < end: pass"


@contextmanager
def one_processor(beside: int) -> Iterator[None]:
    """Share one processor with so many processes inside, also in what is started there."""
    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("the system does not bind a process to a processor")
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    loops = [subprocess.Popen([sys.executable, "-c", LOOP]) for _ in range(beside)]
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
        for each in loops:
            each.kill()
            each.wait()
