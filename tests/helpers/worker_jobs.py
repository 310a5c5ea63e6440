"""Jobs for worker processes, by name: some end or block them."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Callable

from deadly import hold_the_interpreter, loop
from kvcanon.conformance.workers.allowance import Allowance
from kvcanon.conformance.workers.notes import NOTE

__all__ = ["hold_the_interpreter", "loop"]


class Strange(Exception):
    """An exception that cannot be unpickled."""

    def __init__(self, number: int, _more: object) -> None:
        super().__init__(number)


class Mute(Exception):
    """An exception whose message cannot be made."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


def fail_with(error: Exception) -> None:
    """Raise an exception."""
    raise error


def be_strange() -> None:
    """Raise a strange exception."""
    raise Strange(7, object())


def be_mute() -> None:
    """Raise a mute exception."""
    raise Mute


def leave(code: int) -> None:
    """Exit as a careless program does."""
    sys.exit(code)


def die_at(place: bytes, code: int) -> None:
    """End at a place."""
    NOTE.place(place)
    os.write(2, b"last words\n")
    os._exit(code)


def crash() -> None:
    """Crash in native code, in the second operation of an action."""
    NOTE.place(b"1")
    NOTE.step(2, 4)
    NOTE.operation("insert")
    NOTE.operation("match")
    ctypes.string_at(0)


def within_limit(do: Callable[[], object], seconds: float) -> None:
    """Do something under a limit that only the parent keeps."""
    NOTE.limit(Allowance(seconds))
    do()
    NOTE.limit(None)


def import_for(seconds: float, limit: float) -> str:
    """Look for modules for a while."""
    NOTE.limit(Allowance(limit))
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            __import__("no_such_module")
        except ModuleNotFoundError:
            time.sleep(0.1)
    NOTE.limit(None)
    return "done"


def say(words: str) -> None:
    """Write to stderr."""
    sys.stderr.write(words)


def fork_and_return() -> int:
    """Come back twice."""
    os.fork()
    return os.getppid()


def start_a_sleeper() -> tuple[int, int]:
    """Start a process that sleeps; returns the ids of this one and of that."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
    return os.getpid(), child.pid
