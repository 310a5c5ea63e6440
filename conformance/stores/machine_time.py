"""How much later than they should this machine runs its processes: `MachineWatch`.

A store may promise a deadline, and a starved machine lets nobody keep one. So a process of its own
sleeps and works a little, over and over, and notes by how much it was late: it is starved as the
store is, whatever the store does. It takes a twentieth of a processor, and ends with this process.
"""

from __future__ import annotations

import atexit
import mmap
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import cache
from struct import Struct
from typing import Protocol

from attrs import define

from kvcanon.conformance.workers.ending import tied

PERIOD_SECONDS, WORK_SECONDS = 0.01, 0.0005
USUAL_SECONDS = 0.001
"""By how much a machine with time for everybody may be late."""
STARTS_SECONDS = 20.0
_STATE = Struct("dd")
"""Seconds that it was late in all, and when it looked last."""
_WATCH = """
import mmap, os, struct, sys, time
file, parent = int(sys.argv[1]), int(sys.argv[2])
period, work, usual = map(float, sys.argv[3:])
memory = mmap.mmap(file, mmap.PAGESIZE)
late, begin = 0.0, time.monotonic()
while os.getppid() == parent:
    used = time.thread_time()
    time.sleep(period)
    while time.thread_time() < used + work:
        pass
    now = time.monotonic()
    lost = now - begin - period - (time.thread_time() - used)
    late, begin = late + (lost if lost > usual else 0.0), now
    memory[:16] = struct.pack("dd", late, now)
"""


class LateMachine(Protocol):
    """What tells how late the machine is."""

    def late_seconds(self) -> float:
        """By how much it was late, all times together. It only grows."""


@define(eq=False)
class MachineWatch:
    """The process that watches, and the memory that it writes."""

    process: subprocess.Popen[bytes]
    memory: mmap.mmap

    def late_seconds(self) -> float:
        """By how much the machine was late, with what it is late now."""
        late, looked = self._state()
        waits = time.monotonic() - looked - PERIOD_SECONDS - WORK_SECONDS
        return late + (waits if waits > USUAL_SECONDS else 0.0)

    def _state(self) -> tuple[float, float]:
        late, looked = _STATE.unpack(self.memory[: _STATE.size])
        return late, looked

    @classmethod
    def start(cls) -> MachineWatch:
        """Start it, and wait until it has looked once. Raises: OSError, if it does not start."""
        with tempfile.TemporaryFile() as file:
            file.truncate(mmap.PAGESIZE)
            numbers = (file.fileno(), os.getpid(), PERIOD_SECONDS, WORK_SECONDS, USUAL_SECONDS)
            process = subprocess.Popen(  # noqa: S603  # Our own interpreter.
                [sys.executable, "-S", "-I", "-c", _WATCH, *map(str, numbers)],
                pass_fds=(file.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                preexec_fn=tied(),  # noqa: PLW1509
            )
            watch = cls(process, mmap.mmap(file.fileno(), mmap.PAGESIZE))
        until = time.monotonic() + STARTS_SECONDS
        while not watch._state()[1]:
            if process.poll() is not None or time.monotonic() > until:
                watch.end()
                raise OSError("the process that watches the machine does not start")
            time.sleep(PERIOD_SECONDS)
        return watch

    def end(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()


class _NeverLate:
    """For stores that promise no time."""

    def late_seconds(self) -> float:
        """Nothing is measured."""
        return 0.0


NEVER_LATE = _NeverLate()
_LOCK = threading.Lock()


def machine_watch() -> LateMachine:
    """The watch of this process, which is started with the first call. Raises: OSError."""
    with _LOCK:
        return _started(os.getpid())


@cache
def _started(pid: int) -> MachineWatch:  # noqa: ARG001  # A copy of this process needs its own.
    watch = MachineWatch.start()
    atexit.register(watch.end)
    return watch


Watch = Callable[[], LateMachine]
